"""Animals with Attributes 1 and 2: the xlsa17 folder or the official archives.

The official archives hold ``classes.txt``, ``predicates.txt``, ``predicate-matrix-continuous.txt`` (0..100, -1 for no
value), ``predicate-matrix-binary.txt``, ``trainclasses.txt``, ``testclasses.txt`` (the standard split), and features:
``Features/ResNet101/AwA2-features.txt`` with ``AwA2-labels.txt`` and ``AwA2-filenames.txt`` in AwA2,
``Features/NAME/CLASS/IMAGE.txt``, one image per file, in AwA1.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from zsl.checks import Array
from zsl.data.cache import Folder
from zsl.data.readers import xlsa17
from zsl.data.readers.files import read_lines, read_table
from zsl.data.readers.layout import choose, with_class_splits
from zsl.data.readers.tables import (
    Features,
    as_float32,
    class_list,
    class_numbers,
    class_rows,
    feature_file,
    in_class_order,
    missing_values,
    named_table,
    numbered_names,
    plain_name,
    read_features,
    validation_lists,
)
from zsl.data.table import ImageTable, near
from zsl.errors import UserError

# The unseen classes of the proposed split (Xian et al.): disjoint from ImageNet's 1000 classes.
PROPOSED = ("sheep", "dolphin", "bat", "seal", "blue+whale", "rat", "horse", "walrus", "giraffe", "bobcat")
_ARCHIVES = {"awa1": "Animals_with_Attributes", "awa2": "Animals_with_Attributes2"}


def load(
    root: str,
    *,
    feature: str = "resnet101",
    name: str = "awa2",
    semantics: str | None = None,
    layout: Literal["auto", "xlsa17", "official"] = "auto",
    table: str = "att_splits.mat",
    cache: str | None = None,
) -> ImageTable:
    """Animals with Attributes from ``root``, whichever form lies there.

    Parameters
    ----------
    root, feature, name, cache : see :func:`zsl.data.readers.xlsa17.load`.
    semantics : ``continuous`` (default), ``binary``, or a table of that name in the folder (``wordvec``).
    layout : "auto", "xlsa17" or "official"
        See :func:`zsl.data.readers.layout.choose`.
    table : str
        The class table of the xlsa17 form.

    Raises
    ------
    UserError
        As :func:`zsl.data.readers.xlsa17.load`.
    """
    archive = _ARCHIVES.get(name, _ARCHIVES["awa2"])
    found, folder = choose(
        root, layout, name=name, marker="predicate-matrix-continuous.txt", archive=archive, how_to_get=xlsa17.HOW_TO_GET
    )
    if found == "xlsa17":
        return xlsa17.load(str(folder), feature=feature, name=name, semantics=semantics, table=table, cache=cache)
    return _official(Folder(folder, cache), feature, name, semantics)


def _official(folder: Folder, feature: str, name: str, semantics: str | None) -> ImageTable:
    class_names = numbered_names(folder.use(folder / "classes.txt"))
    predicates = folder / "predicates.txt"
    attribute_names = numbered_names(folder.use(predicates)) if predicates.is_file() else ()
    features = _features(folder, feature, name, class_names)
    labels = in_class_order(features, class_names, folder.root, folder / "classes.txt")
    _need_same_names(features, labels, class_names, folder.root)
    if semantics in (None, "continuous", "binary"):
        path = folder.use(folder / f"predicate-matrix-{semantics or 'continuous'}.txt")
        rows = class_rows(read_table(path), len(class_names), path, "the matrix", published="rows")
        image_rows = None
        missing = missing_values(rows)
    else:
        other = named_table(folder, semantics, class_names, len(labels))
        if other is None:
            raise UserError(
                f"dataset.semantics={semantics}: {folder.root} has no {semantics}.mat, .npz, .npy, .csv or .txt; "
                "there is: continuous, binary."
            )
        rows, image_level = other
        image_rows = rows if image_level else None
        rows = np.zeros((len(class_names), rows.shape[1])) if image_level else rows
        missing = None if image_level else missing_values(rows)
    table = ImageTable(
        name=name,
        feature=feature,
        features=features.rows,
        labels=labels,
        class_names=class_names,
        attributes=rows,
        missing=missing,
        image_attributes=image_rows,
        attribute_names=attribute_names if len(attribute_names) == rows.shape[1] else (),
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
    )
    lists: dict[str, str | tuple[str, ...]] = {}
    if set(PROPOSED) <= set(class_names):
        lists["proposed"] = PROPOSED
    test = class_list(folder, "testclasses.txt", class_names)
    train = class_list(folder, "trainclasses.txt", class_names)
    if test is not None:
        both = set(test) & set(train or ())
        if both:
            raise UserError(
                f"{folder / 'testclasses.txt'}: {min(both)!r} is in trainclasses.txt as well; "
                "a class is either seen or unseen."
            )
        if train is not None and len(train) + len(test) != len(class_names):
            absent = next(c for c in class_names if c not in {*train, *test})
            raise UserError(f"{folder.root}: {absent!r} is neither in trainclasses.txt nor in testclasses.txt.")
        if set(test) != set(PROPOSED):
            lists["standard"] = "testclasses.txt"
    return with_class_splits(table, folder, lists)


def _need_same_names(features: Features, labels: Array, class_names: tuple[str, ...], root: Path) -> None:
    """File names ``CLASS_NUMBER.jpg`` (perhaps in a folder) tell an image's class; labels must tell the same."""
    index = {plain_name(c): i for i, c in enumerate(class_names)}
    for i, name in enumerate(features.image_names):
        said = index.get(plain_name(name.rsplit("/", 1)[-1].rpartition("_")[0]))
        if said is not None and said != labels[i]:
            raise UserError(
                f"{root}: image {i + 1} is {name!r}, but its label says {class_names[labels[i]]!r}; file names, labels "
                "and features are not in one order: unpack the archive again."
            )


def _features(folder: Folder, feature: str, name: str, class_names: tuple[str, ...]) -> Features:
    """The archive's text features, or ``NAME.mat`` / ``NAME.npz`` beside ``classes.txt``."""
    base = folder / "Features"
    there = sorted(p.name for p in base.iterdir() if p.is_dir()) if base.is_dir() else []
    match = next((d for d in there if d.lower() == feature.lower()), None)
    if match is None:
        hint = f"the archive has the features: {', '.join(there)}" if there else "unpack its Features folder here"
        path = feature_file(folder.root, feature, name, f"{hint} (choose with feature.name=NAME)")
        return read_features(folder, path)
    texts = sorted((base / match).glob("*features.txt"))
    if texts:
        return _one_file(folder, texts[0])
    return _file_per_image(folder, base / match, class_names)


def _one_file(folder: Folder, path: Path) -> Features:
    stem = path.name.removesuffix("features.txt")
    labels_path, names_path = path.with_name(f"{stem}labels.txt"), path.with_name(f"{stem}filenames.txt")

    def make() -> dict[str, Array]:
        labels = class_numbers(read_table(labels_path, n_columns=1), labels_path)
        rows = read_table(path, dtype=np.float32)
        if len(rows) != len(labels):
            raise UserError(
                f"{path} has {len(rows)} rows and {labels_path.name} {len(labels)} labels; there must be one each."
            )
        return {"features": as_float32(rows, path), "labels": labels}

    found = folder.cached(f"{path.parent.name}-{path.stem}", [path, labels_path], make)
    names = tuple(read_lines(folder.use(names_path))) if names_path.is_file() else ()
    if names and len(names) != len(found["labels"]):
        raise UserError(
            f"{names_path} has {len(names)} lines for {len(found['labels'])} images; there must be one each."
        )
    return Features(found["features"], np.array(found["labels"]), names)


def _file_per_image(folder: Folder, base: Path, class_names: tuple[str, ...]) -> Features:
    files, labels = [], []
    for below in sorted(base.iterdir()):
        if below.is_dir() and not below.name.startswith(".") and below.name not in class_names:
            raise UserError(
                f"{below} is not the folder of a class{near(below.name, class_names)}; rename or remove it."
            )
    for c, class_name in enumerate(class_names):
        mine = sorted((base / class_name).glob("*.txt"))
        files += mine
        labels += [c] * len(mine)
    if not files:
        raise UserError(f"{base} has neither *features.txt nor a folder of text files for each class.")

    def make() -> dict[str, Array]:
        first = read_table(files[0], dtype=np.float32).ravel()
        rows = np.empty((len(files), len(first)), np.float32)
        for i, file in enumerate(files):
            try:
                row = np.asarray(file.read_bytes().split(), np.float32)
            except ValueError:
                row = np.empty(0, np.float32)
            if len(row) != len(first):
                raise UserError(
                    f"{file} does not hold {len(first)} numbers as {files[0].name} does; download it again."
                )
            rows[i] = row
        return {"features": as_float32(rows, base)}

    found = folder.cached(base.name, files, make)
    return Features(found["features"], np.array(labels), tuple(str(f.relative_to(base).with_suffix("")) for f in files))
