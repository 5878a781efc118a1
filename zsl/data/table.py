"""``ImageTable``: every image of a dataset before any split; the division of images into training and test."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from zsl.checks import Array, as_matrix
from zsl.errors import UserError, did_you_mean
from zsl.text import not_text


@dataclass(frozen=True)
class Split:
    """Which images train, and which classes are never seen. Rows and classes index an :class:`ImageTable`."""

    name: str
    trainval: Array
    """Rows that train: images of seen classes."""
    test_seen: Array
    """Held-out rows of seen classes (the generalised setting); may be empty."""
    test_unseen: Array
    """Rows of unseen classes: the zero-shot test images."""
    unseen: Array
    """Unseen classes, ascending; an unseen class need not have images."""
    origin: Mapping[str, Any] = field(default_factory=dict)
    """What fixed the split (seed, file, source): part of the result's key."""

    @property
    def rows(self) -> str:
        """Digest of the role that each image has."""
        return content_hash(self.trainval, self.test_seen, self.test_unseen)


@dataclass(frozen=True, repr=False)
class ImageTable:
    """What a reader returns: every image of a dataset, before any split.

    Classes are numbered 0..C-1 in the order of ``class_names``. Shapes, types and finiteness are checked here, once
    for all readers; everything after ``attributes`` is optional.

    Raises
    ------
    UserError
        If arrays and names do not fit together, a value is not finite, a label is out of range, a class name is empty
        or repeated, or a class has no attribute value at all.

    Examples
    --------
    >>> table = ImageTable("toy", "raw", np.eye(4), np.array([0, 0, 1, 1]), ("cat", "dog"), np.array([[0.0], [1.0]]))
    >>> table.class_ids(["dog"], "unseen.txt")
    array([1])
    """

    name: str
    feature: str
    features: Array
    """(n, p)"""
    labels: Array
    """(n,) integers 0..C-1; -1 for an image of unknown class, which is only ever tested"""
    class_names: tuple[str, ...]
    attributes: Array
    """(C, q) one row per class; NaN where a class has no value"""
    splits: Mapping[str, Split] = field(default_factory=dict)
    """The splits that come with the data, by name."""
    n_unseen: int | None = None
    """How many classes the dataset's own split leaves unseen: the default of ``split=random``."""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """Where the data come from: part of the record."""
    missing: Array | None = None
    """(C, q) where True, the source says that it has no value although ``attributes`` holds a number"""
    image_attributes: Array | None = None
    """(n, q) each image's own row, for image-level annotations; NaN is missing"""
    attribute_names: tuple[str, ...] = ()
    """q names, or none"""
    image_names: tuple[str, ...] = ()
    """n file names, or none"""
    feature_blocks: tuple[int, ...] = ()
    """Numbers of columns of the features of each network, where those of several stand beside each other"""
    attribute_blocks: tuple[int, ...] = ()
    """Numbers of columns of each kind of attributes, where there are several, such as attributes and text"""
    semantics: str = "continuous"
    """Which of the dataset's attribute tables this is."""
    validation: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = ()
    """Published (training, validation) class names, for choosing hyper-parameters."""
    notes: tuple[str, ...] = ()
    """Findings worth a sentence, such as leaks; ``zsl data check`` prints them."""

    def __post_init__(self) -> None:
        who, n, n_classes = self.name, len(self.features), len(self.class_names)
        file = self.provenance.get("feature_file")
        as_matrix(self.features, f"{who}: features{f' of {file}' if file else ''}")
        known = np.where(self.gaps, 0, self.attributes)
        q = as_matrix(known, f"{who}: attributes", n_rows=n_classes).shape[1]
        if self.image_attributes is not None:
            known = np.nan_to_num(self.image_attributes, posinf=np.inf, neginf=-np.inf)
            as_matrix(known, f"{who}: image attributes", n_rows=n, n_columns=q)
        elif self.gaps.all(axis=1).any():
            first = self.class_names[int(self.gaps.all(axis=1).argmax())]
            raise UserError(
                f"{who}: the class {first!r} has no attribute value at all; give it some, or remove the class and its "
                "images."
            )
        images, attributes = (self.image_names, n, "image"), (self.attribute_names, q, "attribute")
        for names, expected, kind in (images, attributes, (self.class_names, n_classes, "class")):
            if names and len(names) != expected:
                raise UserError(f"{who} has {len(names)} {kind} names for {expected} {kind}s; give each one name.")
            foreign = not_text(names)
            if foreign is not None:
                raise UserError(f"{who}: the {kind} name '{foreign}' is not text in UTF-8; rename it.")
        for blocks, width, of in (
            (self.feature_blocks, self.features.shape[1], "features"), (self.attribute_blocks, q, "attributes"),
        ):  # fmt: skip
            if blocks and (min(blocks) < 1 or sum(blocks) != width):
                raise UserError(f"{who}: blocks of {' + '.join(map(str, blocks))} {of} do not make {width} columns.")
        check_labels(self.labels, n, n_classes, f"{who}: labels", unknown=True)
        if not all(name.strip() for name in self.class_names):
            empty = [bool(name.strip()) for name in self.class_names].index(False)
            raise UserError(f"{who}: class {empty + 1} has an empty name; name it.")
        repeated = first_repeated(self.class_names)
        if repeated is not None:
            raise UserError(f"{who}: the class name {repeated!r} occurs more than once; names must be unique.")

    def __repr__(self) -> str:
        n, p = self.features.shape
        return (
            f"ImageTable({self.name}, {self.feature}: {n} images of {len(self.class_names)} classes, {p} features, "
            f"{self.attributes.shape[1]} attributes, splits: {', '.join(self.splits) or 'none'})"
        )

    @property
    def gaps(self) -> Array:
        """(C, q) True where the class has no value of the attribute."""
        nan = np.isnan(self.attributes)
        return nan if self.missing is None else nan | self.missing

    @cached_property
    def content(self) -> str:
        """Digest of images, labels, class names and attributes with the marks of missing ones; equal for equal data."""
        own = [] if self.image_attributes is None else [self.image_attributes]
        # What is no number tells by itself that it is missing.
        marked = [] if self.missing is None else [self.missing & ~np.isnan(self.attributes)]
        own += [marks for marks in marked if marks.any()]
        return content_hash(self.features, self.labels, self.attributes, np.array(self.class_names), *own)

    def class_ids(self, names: list[str], where: str) -> Array:
        """Class numbers of ``names``, in their order; refusals as :func:`check_class_names`."""
        check_class_names(names, self.class_names, where, self.name)
        index = {c: i for i, c in enumerate(self.class_names)}
        return np.array([index[name] for name in names], dtype=np.int64)

    def row_numbers(self) -> list[str]:
        """Columns without names that count the rows, a sentence each; readers refuse those that have names."""
        return [
            f"{self.name}: column {int(counts.argmax()) + 1} of the {what} counts the rows; remove it if it only "
            "numbers them."
            for what, table in (("features", self.features), ("attributes", self.attributes))
            if (counts := counting(table)).any()
        ]


def counting(X: Array) -> Array:
    """(p,) whether a column counts the rows one by one; never in a table of one or two rows, or of one column."""
    found = np.zeros(X.shape[1], dtype=bool)
    if min(len(X) - 1, X.shape[1]) > 1 and X.dtype.kind in "iuf":
        with np.errstate(invalid="ignore", over="ignore"):
            likely = np.flatnonzero((X[1] - X[0] == 1) & (X[2] - X[1] == 1))
            found[likely] = (np.diff(X[:, likely], axis=0) == 1).all(axis=0)
    return found


def content_hash(*arrays: Array) -> str:
    """A short digest of arrays: values, shapes and types (16 hex digits of SHA-256)."""
    digest = hashlib.sha256()
    for a in arrays:
        a = np.ascontiguousarray(a)
        digest.update(f"{a.dtype.str}{a.shape}".encode())
        digest.update(a.reshape(-1).view(np.uint8).data if a.size else b"")
    return digest.hexdigest()[:16]


def first_repeated(names: Sequence[str]) -> str | None:
    """The first name that occurs more than once, or None."""
    seen: set[str] = set()
    return next((name for name in names if name in seen or seen.add(name)), None)  # type: ignore[func-returns-value]


def check_class_names(names: Sequence[str], known: Sequence[str], where: object, of: str = "this dataset") -> None:
    """Refuse names in the file or key ``where`` that are no class of ``known``, or that occur more than once."""
    for name in names:
        if name not in known:
            raise UserError(
                f"{where}: {name!r} is not a class of {of}{did_you_mean(name, known) or '; correct the name'}."
            )
    if first_repeated(names) is not None:
        raise UserError(f"{where}: the class {first_repeated(names)!r} is named more than once; name each class once.")


def check_folders(files: Sequence[str], classes: Sequence[str], where: object) -> None:
    """Refuse folders of images (the paths ``files``) of which two would become one class: ``a_b`` and ``a/b``."""
    folders: dict[str, str] = {}
    for file, name in zip(files, classes, strict=True):
        folder = file.replace("\\", "/").rpartition("/")[0]
        if folders.setdefault(name, folder) != folder:
            raise UserError(
                f"{where}: the folders {folders[name]!r} and {folder!r} would both be the class {name!r}; rename one."
            )


def check_labels(y: Array, n: int, n_classes: int, name: str, *, unknown: bool = False) -> None:
    """Refuse labels other than ``n`` integers from 0 to ``n_classes - 1`` (or -1, where ``unknown`` allows it)."""
    if y.ndim != 1 or not np.issubdtype(y.dtype, np.integer):
        raise UserError(f"{name} have shape {y.shape} and type {y.dtype}; one integer per image is needed.")
    if len(y) != n:
        raise UserError(f"{name} are {len(y)} labels for {n} images; give each image one.")
    lowest = -1 if unknown else 0
    if n and (y.min() < lowest or y.max() >= n_classes):
        bad = int(np.flatnonzero((y < lowest) | (y >= n_classes))[0])
        raise UserError(f"{name}: image {bad} has label {y[bad]}, outside the {n_classes} classes of the table.")
