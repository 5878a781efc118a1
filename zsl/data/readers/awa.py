"""Animals with Attributes 1 and 2: the xlsa17 folder or the official archives.

The official archives hold ``classes.txt``, ``predicates.txt``, ``predicate-matrix-continuous.txt`` (0..100, -1 for no
value), ``predicate-matrix-binary.txt``, ``trainclasses.txt``, ``testclasses.txt`` (the standard split), and features:
``Features/ResNet101/AwA2-features.txt`` with ``AwA2-labels.txt`` and ``AwA2-filenames.txt`` in AwA2,
``Features/NAME/CLASS/IMAGE.txt``, one image per file, in AwA1.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from zsl.checks import Array
from zsl.data.cache import Folder
from zsl.data.readers import official
from zsl.data.readers.features import (
    Features,
    class_numbers,
    feature_file,
    in_class_order,
    read_features,
)
from zsl.data.readers.files import read_lines, read_table
from zsl.data.readers.tables import (
    class_list,
    class_rows,
    class_semantics,
    fitting_names,
    named_semantics,
    numbered_names,
    validation_lists,
)
from zsl.data.table import ImageTable
from zsl.errors import UserError

# The unseen classes of the proposed split (Xian et al.): disjoint from ImageNet's 1000 classes.
PROPOSED = ("sheep", "dolphin", "bat", "seal", "blue+whale", "rat", "horse", "walrus", "giraffe", "bobcat")


@official.reader("awa2", marker="predicate-matrix-continuous.txt")
def load(folder: Folder, feature: str, name: str, semantics: str | None) -> ImageTable:
    """Animals with Attributes from ``root``, whichever form lies there.

    Parameters
    ----------
    semantics : ``continuous`` (default), ``binary``, or a table of that name in the folder (``wordvec``).
    """
    class_names = numbered_names(folder.use(folder / "classes.txt"))
    predicates = folder / "predicates.txt"
    attribute_names = numbered_names(folder.use(predicates)) if predicates.is_file() else ()
    features = _features(folder, feature, name, class_names)
    labels = in_class_order(features, class_names, folder.root, folder / "classes.txt")
    if semantics in (None, "continuous", "binary"):
        path = folder.use(folder / f"predicate-matrix-{semantics or 'continuous'}.txt")
        found = class_semantics(class_rows(read_table(path), len(class_names), path, "the matrix", published="rows"))
    else:
        found = named_semantics(folder, semantics, class_names, len(labels), ("continuous", "binary"))
    table = ImageTable(
        name=name,
        feature=feature,
        features=features.rows,
        labels=labels,
        class_names=class_names,
        attribute_names=fitting_names(attribute_names, found.attributes.shape[1], predicates, semantics),
        image_names=features.image_names,
        semantics=semantics or "continuous",
        validation=validation_lists(folder, class_names),
        provenance={
            "root": str(folder.root),
            "layout": "official archive",
            "network": features.network,
            "files": folder.files,
            "missing_splits": {"standard": f"it would be read from {folder / 'testclasses.txt'}; "},
        },
        **found._asdict(),
    )
    lists: dict[str, str | tuple[str, ...]] = {"proposed": PROPOSED} if set(PROPOSED) <= set(class_names) else {}
    test = class_list(folder, "testclasses.txt", class_names)
    if test is not None and set(test) != set(PROPOSED):
        lists["standard"] = "testclasses.txt"
    return official.with_class_splits(table, folder, lists)


def _features(folder: Folder, feature: str, name: str, class_names: tuple[str, ...]) -> Features:
    """The archive's text features, or ``NAME.mat`` / ``NAME.npz`` beside ``classes.txt``."""
    base = folder / "Features"
    there = {p.name.lower(): p for p in sorted(base.iterdir()) if p.is_dir()} if base.is_dir() else {}
    if feature.lower() not in there:
        names = ", ".join(p.name for p in there.values())
        hint = f"the archive has the features: {names}" if names else "unpack its Features folder here"
        return read_features(
            folder, feature_file(folder.root, feature, name, f"{hint} (choose with feature.name=NAME)")
        )
    texts = sorted(there[feature.lower()].glob("*features.txt"))
    return _one_file(folder, texts[0]) if texts else _file_per_image(folder, there[feature.lower()], class_names)


def _one_file(folder: Folder, path: Path) -> Features:
    stem = path.name.removesuffix("features.txt")
    labels_path, names_path = path.with_name(f"{stem}labels.txt"), path.with_name(f"{stem}filenames.txt")

    def make() -> dict[str, Array]:
        return {"features": read_table(path, np.float32), "labels": class_numbers(read_table(labels_path), labels_path)}

    found = folder.cached(f"{path.parent.name}-{path.stem}", [path, labels_path], make)
    if len(found["features"]) != len(found["labels"]):
        raise UserError(
            f"{path} has {len(found['features'])} rows and {labels_path.name} {len(found['labels'])} labels; there "
            "must be one each."
        )
    return Features(
        found["features"], found["labels"], tuple(read_lines(folder.use(names_path))) if names_path.is_file() else ()
    )


def _file_per_image(folder: Folder, base: Path, class_names: tuple[str, ...]) -> Features:
    files = {c: sorted((base / class_name).glob("*.txt")) for c, class_name in enumerate(class_names)}
    paths = [path for mine in files.values() for path in mine]
    if not paths:
        raise UserError(f"{base} has neither *features.txt nor a folder of text files for each class.")

    def make() -> dict[str, Array]:
        rows = np.empty((len(paths), read_table(paths[0]).size), np.float32)
        for i, path in enumerate(paths):
            row = read_table(path, np.float32).ravel()
            if len(row) != rows.shape[1]:
                raise UserError(
                    f"{path} holds {len(row)} numbers where {paths[0].name} holds {rows.shape[1]}; download it again."
                )
            rows[i] = row
        return {"features": rows}

    labels = np.repeat(np.arange(len(class_names)), [len(mine) for mine in files.values()])
    names = tuple(str(path.relative_to(base).with_suffix("")) for path in paths)
    return Features(folder.cached(base.name, paths, make)["features"], labels, names)
