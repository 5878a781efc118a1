"""Folders in the layout of "Zero-shot learning: the good, the bad and the ugly" (Xian et al.), ``xlsa17``.

``NAME.mat`` or ``NAME.npz`` holds ``features`` and ``labels``, ``att_splits.mat`` the class table and the proposed
split, ``att_splits_ss.mat`` (or ``../standard_split/FOLDER/att_splits.mat``, as published) the standard one.
"""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np

from zsl.checks import Array
from zsl.data.cache import Folder
from zsl.data.catalogue import ENTRIES, how_to_make
from zsl.data.readers.features import Features, feature_file, in_class_order, read_features
from zsl.data.readers.files import as_text, need, read_lines
from zsl.data.readers.mat import read_mat
from zsl.data.readers.tables import (
    Semantics,
    class_list,
    class_rows,
    class_semantics,
    fitting_names,
    missing_values,
    named_semantics,
    numbered_names,
    validation_lists,
)
from zsl.data.table import ImageTable, Split
from zsl.errors import UserError

log = logging.getLogger(__name__)

# What classes are called where neither the table nor allclasses.txt names them.
_UNNAMED = "class_{}"
# Keys of att_splits.mat that are no attribute table.
_LOCS = ("trainval_loc", "test_seen_loc", "test_unseen_loc", "train_loc", "val_loc", "val_seen_loc", "val_unseen_loc")


def how_to_get(name: str, feature: str = "resnet101") -> str:
    """What to do where a dataset or a feature of it is missing: how it is downloaded or made, if it can be."""
    entry = ENTRIES.get(name)
    if entry is None or not entry.archives:
        return "dataset.root=FOLDER says where it is"
    made = how_to_make(name, feature)
    made = f"; it has ResNet101 features only, {made}" if made else ""
    return (
        f"zsl data download {name} fetches it ({next(iter(entry.archives.values())).url}){made}; ZSL_DATA or "
        "dataset.root says where it is"
    )


def load(
    root: str,
    *,
    feature: str = "resnet101",
    name: str = "xlsa17",
    semantics: str | None = None,
    table: str = "att_splits.mat",
    cache: str | None = None,
) -> ImageTable:
    """Read a folder: features of every image, the class table, and the splits that are stored with it.

    Parameters
    ----------
    root : folder
        Holds ``att_splits.mat`` and the feature file.
    feature : str
        ``resnet101`` is ``res101.mat``; any other name is ``NAME.mat`` or ``NAME.npz``.
    name : str
        What to call the dataset in results.
    semantics : str, optional
        ``continuous`` (default: ``att``, unit length per class), ``original`` (``original_att``), ``binary``
        (``binaryAtt_splits.mat``), or any name: a key of ``att_splits.mat``, or a file ``NAME.mat|npz|npy|csv|txt``
        (``wordvec``, ``sentences``; with one row per image the attributes are image-level, as with ``image``).
    table : str
        Another class table and split of the same layout, such as ``att_splits_2018.mat``.
    cache : str, optional
        The folder of converted copies, which load faster; ``off``: none (:class:`zsl.data.cache.Folder`).

    Raises
    ------
    UserError
        For a file or key that is missing or unreadable, shapes that do not fit, labels or locations out of range.
    """
    folder = Folder(unpacked(root), cache)
    if not folder.root.is_dir():
        raise UserError(
            f"dataset={name} is not here: the folder {folder.root} does not exist; {how_to_get(name, feature)}."
        )
    path = feature_file(folder.root, feature, name, how_to_get(name, feature))
    found = read_features(folder, path)
    main = folder / table
    if not main.is_file():
        raise UserError(f"dataset={name}: {main} is missing; {how_to_get(name, feature)}.")
    stored = read_mat(folder.use(main))
    class_names = names_of(stored, folder, main, int(found.labels.max()) + 1)
    notes = list(leaks(stored, main))
    # Names that were made up say nothing about the lists beside the table.
    named = class_names[0] != _UNNAMED.format(1)
    if not named and any(folder.root.glob("*classes*.txt")):
        notes.append(
            f"{main.name} has no class names, so the class lists beside it are not used; put the names in the table's "
            f"order, one per line, into {folder / 'allclasses.txt'}."
        )
    listed = class_list(folder, "testclasses.txt", class_names) if named else None
    labels, note = _labels(found, stored, class_names, listed, path, main)
    notes += [note] if note else []
    attributes = read_semantics(folder, stored, main, class_names, semantics, len(labels))
    splits = {"proposed": _split(stored, "proposed", labels, main)}
    places = [folder / "att_splits_ss.mat", folder.root.parent / "standard_split" / folder.root.name / "att_splits.mat"]
    standard = next((place for place in places if place.is_file()), None)
    published = name in ENTRIES and "standard_split" in ENTRIES[name].archives
    fetched = f"zsl data download {name} --form standard_split fetches it, " if published else ""
    if standard is not None:
        other = read_mat(folder.use(standard))
        if names_of(other, folder, standard, len(class_names)) != class_names:
            raise UserError(f"{standard} lists other classes, or in another order, than {main}; they must agree.")
        splits["standard"] = _split(other, "standard", labels, standard)
        notes += leaks(other, standard)
    return ImageTable(
        name=name,
        feature=feature,
        features=found.rows,
        labels=labels,
        class_names=class_names,
        attribute_names=predicate_names(folder, attributes.attributes.shape[1], semantics),
        image_names=found.image_names,
        semantics=semantics or "continuous",
        splits=splits,
        n_unseen=len(splits["proposed"].unseen),
        validation=validation_lists(folder, class_names) if named else (),
        notes=tuple(notes),
        provenance={
            "root": str(folder.root),
            "layout": "xlsa17",
            "feature_file": path.name,
            "network": found.network,
            "files": folder.files,
            "missing_splits": {"standard": f"{fetched}it would be read from {places[0]} or {places[1]}; "},
        },
        **attributes._asdict(),
    )


def _labels(
    found: Features,
    stored: dict[str, Array],
    class_names: tuple[str, ...],
    listed: tuple[str, ...] | None,
    path: Path,
    main: Path,
) -> tuple[Array, str]:
    """Labels of the images that count ``class_names`` from 0, and a finding worth a sentence, or nothing.

    Numbers 1..C-1 of C classes are either the first C-1 classes counted from 1 or the last ones counted from 0, and
    a wrong guess gives every class the attributes of its neighbour. ``listed``, the content of ``testclasses.txt``,
    decides; without it, labels are taken to count from 1.

    Raises
    ------
    UserError
        If the split's unseen images are of other classes than ``testclasses.txt`` names, however labels count.
    """
    labels = in_class_order(found, class_names, path, main)
    # Names in the feature file, a 0 or the highest number leave no doubt.
    ambiguous = not found.class_names and found.from_one and int(labels.max()) + 1 < len(class_names)
    if listed is None:
        if not ambiguous:
            return labels, ""
        note = (
            f"{path.name}: no image has the label {len(class_names)}, so the labels are taken to count from 1 with the "
            f"last class ({class_names[-1]!r}) empty; if they count from 0, put testclasses.txt, the names of the "
            "unseen classes, beside it."
        )
        log.warning("%s", note)
        return labels, note
    numbers = np.unique(labels[locations(stored, "test_unseen_loc", len(labels), main)])
    unseen = {class_names[c] for c in numbers}
    if unseen == set(listed):
        return labels, ""
    if ambiguous and {class_names[c + 1] for c in numbers} == set(listed):
        return labels + 1, f"{path.name}: labels count from 0, as testclasses.txt shows, though no image has class 0."
    note = (
        f"{main}: test_unseen_loc holds images of other classes than testclasses.txt names (such as "
        f"{min(unseen ^ set(listed))!r}); labels in {path.name} and the split belong to different datasets or count "
        "classes differently: put right or remove testclasses.txt."
    )
    if main.name == "att_splits.mat":
        raise UserError(note)
    return labels, note  # another split than the one the list came with may leave other classes unseen


def unpacked(root: str | Path) -> Path:
    """Find the dataset's folder where ``xlsa17.zip`` unpacks it, in or beside ``root``; otherwise return ``root``."""
    base = Path(root).expanduser()
    inner = Path("xlsa17") / "data" / base.name
    return next((p for p in (base, base / inner, base.parent / inner) if (p / "att_splits.mat").is_file()), base)


def names_of(stored: dict[str, Array], folder: Folder, path: Path, n_labels: int) -> tuple[str, ...]:
    """Class names from the file, from ``allclasses.txt``, or ``class_1`` to ``class_C`` where neither has them."""
    if "allclasses_names" in stored:
        cells = stored["allclasses_names"]
        if cells.ndim == 2 and np.issubdtype(cells.dtype, np.integer):
            # A character matrix of MATLAB, by a program that did not say so: each row a name, blanks after it.
            return tuple("".join(map(chr, row)).strip() for row in cells)
        return tuple(c.strip() for c in as_text(cells, path, "allclasses_names").tolist())
    shape = need(stored, "att", path).shape
    listed = folder / "allclasses.txt"
    if listed.is_file():
        names = tuple(read_lines(folder.use(listed)))
        if len(names) in shape:
            return names
        raise UserError(f"{listed} has {len(names)} names, but att has shape {shape}; put right or remove the list.")
    # Without names the table's own sides decide; labels settle it where every class has images.
    n_classes = n_labels if n_labels in shape else min((s for s in shape if s >= n_labels), default=0)
    if not n_classes:
        raise UserError(f"{path}: att has shape {shape}, but there is an image of class {n_labels}; they do not fit.")
    return tuple(_UNNAMED.format(c + 1) for c in range(n_classes))


def read_semantics(
    folder: Folder,
    stored: dict[str, Array],
    path: Path,
    class_names: tuple[str, ...],
    source: str | None,
    n_images: int,
) -> Semantics:
    """The attribute table that ``source`` names, of ``stored`` (the content of ``path``) or of a file in the folder."""
    n_classes = len(class_names)
    if source in (None, "continuous", "original"):
        rows = class_rows(need(stored, "att" if source != "original" else "original_att", path), n_classes, path)
        found = class_semantics(rows)
        if "original_att" in stored:
            # ``att`` is ``original_att`` with each class at unit length, where a -1 is not recognisable any more.
            # Each table may lie either way, whatever the other does.
            marked = missing_values(class_rows(stored["original_att"], n_classes, path, "original_att"))
            if marked is not None and marked.shape == rows.shape:
                found = found._replace(missing=marked if found.missing is None else marked | found.missing)
        return found
    binary = folder / "binaryAtt_splits.mat"
    if source == "binary" and binary.is_file():
        return Semantics(class_rows(need(read_mat(folder.use(binary)), "att", binary), n_classes, binary))
    if source in stored and source not in _LOCS:
        return class_semantics(class_rows(stored[source], n_classes, path, source))
    available = ["continuous", *(["original"] if "original_att" in stored else [])]
    available += [name for name, files in (("binary", binary.name), ("image", "image_attributes.*"))
                  if any(folder.root.glob(files))]  # fmt: skip
    available += sorted(k for k, v in stored.items() if k not in {"att", "original_att", *_LOCS}
                        and v.ndim == 2 and n_classes in v.shape and v.dtype.kind in "biuf")  # fmt: skip
    available += sorted({p.stem for p in folder.root.glob("wordvec*.*")})
    return named_semantics(
        folder, source, class_names, n_images, available, file="image_attributes" if source == "image" else ""
    )


def predicate_names(folder: Folder, q: int, semantics: str | None = None) -> tuple[str, ...]:
    """Attribute names from ``predicates.txt`` or ``attributes.txt`` where one fits the table."""
    places = [folder / file for file in ("predicates.txt", "attributes.txt") if (folder / file).is_file()]
    found = {path: numbered_names(path) for path in places}
    path = next((path for path in places if len(found[path]) == q), None)
    if path is None:
        return fitting_names(found[places[0]], q, places[0], semantics) if places else ()
    return numbered_names(folder.use(path))


def locations(stored: dict[str, Array], key: str, n_images: int | None, path: Path) -> Array:
    """Rows (0-based, int64) that ``key`` points to."""
    # Stored as uint16 or double; int64 first, since arithmetic on uint16 overflows.
    raw = need(stored, key, path).ravel()
    if not np.issubdtype(raw.dtype, np.number) or not np.isfinite(raw).all() or np.any(raw != np.floor(raw)):
        raise UserError(f"{path}: {key} holds {raw.dtype} values that are not whole numbers; it lists images from 1.")
    loc = raw.astype(np.int64)
    wrong = loc[(loc < 1) | (loc > (n_images or loc.max(initial=0)))]
    if wrong.size:
        there = f", but there are {n_images} images" if n_images else ""
        raise UserError(
            f"{path}: {key} points to image {wrong[0]}{there} (counted from 1); features and splits belong to "
            "different datasets."
        )
    if len(np.unique(loc)) < len(loc):
        raise UserError(f"{path}: {key} lists {len(loc) - len(np.unique(loc))} images twice; each may occur once.")
    return loc - 1


def leaks(stored: dict[str, Array], path: Path) -> list[str]:
    """A sentence for every way in which training on this file's ``train_loc`` or ``val_loc`` would see test images."""
    notes = []
    inner = [k for k in ("train_loc", "val_loc") if k in stored]
    train = np.unique(np.concatenate([locations(stored, k, None, path) for k in inner])) if inner else np.empty(0, int)
    for key, setting in (("test_seen_loc", "the generalised setting"), ("test_unseen_loc", "zero-shot accuracy")):
        if key not in stored or not inner:
            continue
        test = locations(stored, key, None, path)
        common = np.intersect1d(train, test).size
        if common:
            notes.append(
                f"{path.name}: leak: {' and '.join(inner)} hold {common} of the {len(test)} images of {key}, so "
                f"training on them spoils {setting}; zsl trains on trainval_loc only, which does not."
            )
    return notes


def _split(stored: dict[str, Array], name: str, labels: Array, path: Path) -> Split:
    stored = {"test_seen_loc": np.empty(0, np.int64), **stored}
    trainval, test_seen, test_unseen = (
        locations(stored, f"{part}_loc", len(labels), path) for part in ("trainval", "test_seen", "test_unseen")
    )
    return Split(name, trainval, test_seen, test_unseen, np.unique(labels[test_unseen]), {"file": path.name})
