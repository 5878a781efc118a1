"""Feature files of the published layouts: which one to read, its labels, and the order of its images and classes."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from zsl.checks import Array
from zsl.data.cache import Folder
from zsl.data.catalogue import how_to_make
from zsl.data.readers.files import as_text, need, read_npz
from zsl.data.readers.mat import read_mat
from zsl.data.table import first_repeated
from zsl.errors import UserError, did_you_mean

# Feature names of this project that published archives store under another.
STORED_AS = {"resnet101": "res101"}
# Where the file names of images are kept beside features, by whoever wrote them.
NAME_KEYS = ("files", "image_files", "image_names")


class Features(NamedTuple):
    """What a feature file holds."""

    rows: Array
    """(n, d) float32"""
    labels: Array
    """(n,) counted from 0"""
    image_names: tuple[str, ...] = ()
    """n names, or none"""
    class_names: tuple[str, ...] = ()
    """Names of the classes that the labels count, or none"""
    network: str = ""
    """What made the features and from which weights, as :mod:`zsl.extract` writes it"""
    from_one: bool = False
    """Whether no label is 0: labels then count from 1, or no image has class 0"""


def feature_file(folder: Path, feature: str, name: str, how_to_get: str) -> Path:
    """``FEATURE.mat`` or ``FEATURE.npz`` in ``folder``; if there is neither, a sentence on what is there instead."""
    stem = STORED_AS.get(feature, feature)
    for file in (f"{stem}.mat", f"{stem}.npz", f"{feature}.mat", f"{feature}.npz"):
        if (folder / file).is_file():
            return folder / file
    tables = ("att_splits", "binaryAtt", "attribute", "images", "image_attributes", "wordvec")
    files = [p for p in folder.iterdir() if p.suffix in {".mat", ".npz"} and not p.name.startswith(tables)]
    there = ", ".join(sorted({p.stem for p in files}))
    made = how_to_make(name, feature)
    made = f"; {made}" if made else ""
    remedy = f"the folder has: {there} (choose with feature.name=NAME){made}" if there else how_to_get
    raise UserError(f"dataset={name}, feature={feature}: {folder / stem}.mat (or .npz) is missing; {remedy}.")


def read_features(folder: Folder, path: Path) -> Features:
    """Read a feature file ``.mat`` or ``.npz``: ``features``, ``labels``, and file and class names where it has them.

    Raises
    ------
    UserError
        For features and labels that do not fit, and labels that are no class numbers.
    """

    def make() -> dict[str, Array]:
        keys = ["features", "labels", "class_names", "network", *NAME_KEYS]
        stored = (read_npz if path.suffix == ".npz" else read_mat)(path, keys)
        given = need(stored, "labels", path)
        labels = class_numbers(given, path)
        rows = _oriented(need(stored, "features", path), len(labels), path)
        del stored["features"]
        names = next((stored[k] for k in NAME_KEYS if k in stored), np.empty(0, "U1"))
        return {
            "features": as_float32(rows, path),
            "labels": labels,
            "names": as_text(names, path, "file names"),
            "classes": as_text(stored.get("class_names", np.empty(0, "U1")), path, "class_names"),
            "from_one": np.array([given.min() > 0]),
            "network": as_text(stored.get("network", np.array("")), path, "network"),
        }

    found = folder.cached(path.name, [path], make)
    names, classes = tuple(found["names"].tolist()), tuple(found["classes"].tolist())
    network, from_one = str(found["network"][0]), bool(found["from_one"][0])
    return Features(found["features"], found["labels"], names, classes, network, from_one)


def in_class_order(stored: Features, class_names: Sequence[str], path: Path, table: Path) -> Array:
    """Labels that count ``class_names``, whatever order the feature file counts its classes in."""
    n_classes, where = len(stored.class_names or class_names), path if stored.class_names else table
    if stored.labels.max() >= n_classes:
        raise UserError(
            f"{path}: image {int(stored.labels.argmax()) + 1} is of class {stored.labels.max() + 1}, counted from 1, "
            f"and {where} has {n_classes} classes; correct the labels, or the list of classes."
        )
    if not stored.class_names:
        return stored.labels
    places = class_places(stored.class_names, class_names, path)
    for name, place in zip(stored.class_names, places):
        if place < 0:
            raise UserError(f"{path}: {name!r} is not a class of this dataset{did_you_mean(name, class_names)}.")
    return places[stored.labels]


def class_places(names: Sequence[str], class_names: Sequence[str], path: Path) -> Array:
    """The place in ``class_names`` of each name of ``path``, -1 if it has none.

    Archives write the blanks and capitals of a name in different ways, so a name that is not there as it stands is
    looked for without these marks.

    Raises
    ------
    UserError
        If a name may mean several classes, or several names mean one.
    """
    exact = {name: i for i, name in enumerate(class_names)}
    loose: dict[str, list[str]] = {}
    for name in class_names:
        loose.setdefault(simple_name(name), []).append(name)
    meant: dict[str, str] = {}
    for name in names:
        found = [name] if name in exact else loose.get(simple_name(name), [])
        others = [meant[c] for c in found if c in meant]
        if len(found) > 1 or others:
            several = [name, *others] if others else found
            raise UserError(
                f"{path}: the class {name!r} is not told from others: {', '.join(map(repr, several))} differ only in "
                "capitals, '_', '+' and blanks; write the names as the class table has them."
            )
        meant |= dict.fromkeys(found, name)
    places = {name: exact[c] for c, name in meant.items()}
    return np.array([places.get(name, -1) for name in names], dtype=np.int64)


def simple_name(name: str) -> str:
    """A class name without the marks that stand for a blank in one archive, and for a folder in a path.

    Examples
    --------
    >>> simple_name("a/Abbey_church") == simple_name("a_abbey+church")
    True
    """
    return name.replace("+", " ").replace("_", " ").replace("/", " ").lower().strip()


def in_image_order(stored: Features, image_names: Sequence[str], path: Path) -> Array:
    """Rows of ``stored`` for ``image_names``: matched by file name, else by position if there are as many."""
    if not stored.image_names:
        if len(stored.rows) != len(image_names):
            raise UserError(
                f"{path} has {len(stored.rows)} rows and no file names, but there are {len(image_names)} images; "
                "store the file names as 'files' (zsl extract does)."
            )
        return np.arange(len(image_names))
    repeated = first_repeated(stored.image_names)
    if repeated is not None:
        raise UserError(f"{path} names the image {repeated!r} more than once; keep one row of each image.")
    image_names = [unicodedata.normalize("NFC", n) for n in image_names]
    index = {n.replace("\\", "/"): i for i, n in enumerate(stored.image_names)}
    last = {n.rsplit("/", 1)[-1]: i for n, i in index.items()}
    if len(last) < len(index):
        last = {}  # the same name in two folders: only the path identifies an image
    found = [index.get(n, last.get(n.rsplit("/", 1)[-1], -1)) for n in image_names]
    if min(found) < 0:
        raise UserError(
            f"{path} lacks {found.count(-1)} of the {len(found)} images that the archive lists (first: "
            f"{image_names[found.index(-1)]!r}); extract them again."
        )
    return np.array(found)


def check_same_classes(
    stored: Features, order: Array, labels: Array, class_names: Sequence[str], path: Path, table: Path
) -> None:
    """Refuse features whose own labels divide the images into other classes than the archive does.

    Features are matched to images by name or position; where they have labels, these tell whether the match is right.
    Numbers and names of classes may differ between the two (another order, ``a_abbey`` for ``abbey``), the division
    into classes may not; and a class that has the same name in both must hold the same images.

    Parameters
    ----------
    order : (n,)
        Rows of ``stored`` for the images of the archive.
    labels : (n,)
        The archive's labels, which stand in the file ``table``.
    """
    theirs = stored.labels[order]
    n_pairs = len(np.unique(np.stack([theirs, labels], axis=1), axis=0))
    same = n_pairs == len(np.unique(theirs)) == len(np.unique(labels))
    if same and theirs.max() < len(stored.class_names):
        index = class_places(stored.class_names, class_names, path)[theirs]
        same = not ((index >= 0) & (index != labels)).any()
    if not same:
        raise UserError(
            f"{path}: its labels disagree with {table}; the rows are in another order or of other images: store the "
            "file names as 'files' (zsl extract does), or extract them again."
        )


def class_numbers(labels: Array, path: Path) -> Array:
    """Labels as int64 counted from 0: they count from 1 (the published form) unless a 0 occurs."""
    labels = np.asarray(labels).ravel()
    if labels.dtype.kind in "US":
        raise UserError(f"{path}: labels are text; class numbers are needed here (names are read by dataset=tabular).")
    # No table has 2^31 classes; beyond that, a label is damage and would overflow.
    if labels.dtype.kind not in "biuf" or not labels.size or not ((labels >= 0) & (labels < 2**31)).all() \
            or np.any(labels != np.floor(labels)):  # fmt: skip
        raise UserError(f"{path}: labels must be one whole number per image, counted from 1 (or 0).")
    labels = labels.astype(np.int64)
    return labels if labels.min() == 0 else labels - 1


def named_labels(labels: Array, class_names: Array, path: Path) -> Array:
    """The name (n,) of each image's class, from numbers (n,) that count ``class_names`` from 1.

    Raises
    ------
    UserError
        For a name that occurs twice, and numbers that count otherwise.
    """
    names = as_text(class_names, path, "class_names")
    repeated = first_repeated(names.tolist())
    if repeated is not None:
        raise UserError(f"{path}: class_names has {repeated!r} more than once; give each class its own name.")
    whole = labels.dtype.kind in "iuf" and bool((labels == np.floor(labels)).all())
    if not whole or (labels < 1).any() or (labels > len(names)).any():
        raise UserError(f"{path}: labels must be whole numbers from 1 to {len(names)}, the number of class_names.")
    return np.asarray(names[labels.astype(np.int64) - 1])


def as_float32(rows: Array, path: Path) -> Array:
    """Rows as C-ordered float32, in which networks compute; a value beyond the range of float32 becomes infinite."""
    if rows.ndim != 2 or rows.dtype.kind not in "biuf":
        raise UserError(f"{path}: features have shape {rows.shape} and type {rows.dtype}; a matrix is needed.")
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(rows, dtype=np.float32)


def _oriented(features: Array, n_images: int, path: Path) -> Array:
    """Images as rows, whichever way ``features`` lies; a square matrix is taken to lie as published.

    Published ``.mat`` files are features x images, ``.npz`` files images x features.
    """
    if features.ndim != 2 or n_images not in features.shape:
        raise UserError(
            f"{path}: features have shape {features.shape} and there are {n_images} labels; one side must be as long "
            "as the labels."
        )
    if features.shape[0] == features.shape[1]:
        return features.T if path.suffix == ".mat" else features
    return features if features.shape[0] == n_images else features.T
