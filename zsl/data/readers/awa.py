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
from zsl.data.catalogue import ENTRIES
from zsl.data.readers import official
from zsl.data.readers.features import (
    Features,
    class_numbers,
    feature_file,
    in_class_order,
    read_features,
    simple_name,
)
from zsl.data.readers.files import read_lines, read_table
from zsl.data.readers.tables import (
    check_disjoint,
    class_list,
    class_rows,
    class_semantics,
    named_semantics,
    numbered_names,
    validation_lists,
)
from zsl.data.table import ImageTable
from zsl.errors import UserError, did_you_mean

# The unseen classes of the proposed split (Xian et al.): disjoint from ImageNet's 1000 classes.
PROPOSED = ("sheep", "dolphin", "bat", "seal", "blue+whale", "rat", "horse", "walrus", "giraffe", "bobcat")


def load(
    root: str,
    *,
    feature: str = "resnet101",
    name: str = "awa2",
    semantics: str | None = None,
    layout: official.Layout = "auto",
    table: str = "att_splits.mat",
    cache: str | None = None,
) -> ImageTable:
    """Animals with Attributes from ``root``, whichever form lies there.

    Parameters
    ----------
    root, feature, name, cache : see :func:`zsl.data.readers.xlsa17.load`.
    semantics : ``continuous`` (default), ``binary``, or a table of that name in the folder (``wordvec``).
    layout : "auto", "xlsa17" or "official"
        Which published form to read; ``auto`` takes the xlsa17 form where both are there.
    table : str
        The class table of the xlsa17 form.

    Raises
    ------
    UserError
        As :func:`zsl.data.readers.xlsa17.load`.
    """
    return official.load(
        root, _official, marker="predicate-matrix-continuous.txt",
        archive=ENTRIES["awa1" if name == "awa1" else "awa2"].official,
        feature=feature, name=name, semantics=semantics, layout=layout, table=table, cache=cache,
    )  # fmt: skip


def _official(folder: Folder, feature: str, name: str, semantics: str | None) -> ImageTable:
    class_names = numbered_names(folder.use(folder / "classes.txt"))
    predicates = folder / "predicates.txt"
    attribute_names = numbered_names(folder.use(predicates)) if predicates.is_file() else ()
    features = _features(folder, feature, name, class_names)
    labels = in_class_order(features, class_names, folder.root, folder / "classes.txt")
    _check_image_names(features.image_names, labels, class_names, folder.root)
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
        attribute_names=attribute_names if len(attribute_names) == found.attributes.shape[1] else (),
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
    return official.with_class_splits(table, folder, _class_lists(folder, class_names))


def _class_lists(folder: Folder, class_names: tuple[str, ...]) -> dict[str, str | tuple[str, ...]]:
    lists: dict[str, str | tuple[str, ...]] = {}
    if set(PROPOSED) <= set(class_names):
        lists["proposed"] = PROPOSED
    test = class_list(folder, "testclasses.txt", class_names)
    train = class_list(folder, "trainclasses.txt", class_names)
    if test is None:
        return lists
    if train is not None:
        check_disjoint(train, test, folder / "testclasses.txt", "trainclasses.txt")
        if len(train) + len(test) != len(class_names):
            absent = next(c for c in class_names if c not in {*train, *test})
            raise UserError(f"{folder.root}: {absent!r} is neither in trainclasses.txt nor in testclasses.txt.")
    if set(test) != set(PROPOSED):
        lists["standard"] = "testclasses.txt"
    return lists


def _check_image_names(names: tuple[str, ...], labels: Array, class_names: tuple[str, ...], root: Path) -> None:
    """Refuse labels that differ from the class in file names ``CLASS_NUMBER.jpg`` (perhaps in a folder)."""
    index = {simple_name(c): i for i, c in enumerate(class_names)}
    for i, name in enumerate(names):
        c = index.get(simple_name(name.rsplit("/", 1)[-1].rpartition("_")[0]))
        if c is not None and c != labels[i]:
            raise UserError(
                f"{root}: image {i + 1} is {name!r}, but its label says {class_names[labels[i]]!r}; file names, labels "
                "and features are not in one order: unpack the archive again."
            )


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
    for below in sorted(base.iterdir()):
        if below.is_dir() and not below.name.startswith(".") and below.name not in class_names:
            hint = did_you_mean(below.name, class_names)
            raise UserError(f"{below} is not the folder of a class{hint}; rename or remove it.")
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
