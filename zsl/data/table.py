"""The images of a dataset before any split, and which of them play which part."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from zsl.checks import Array, as_matrix
from zsl.errors import UserError


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
    """Unseen classes, ascending; a class may be here without images."""
    origin: Mapping[str, Any] = field(default_factory=dict)
    """What fixed it (seed, file, source): part of the result's key."""

    @property
    def rows(self) -> str:
        """Digest of which images have which role."""
        return content_hash(self.trainval, self.test_seen, self.test_unseen)


@dataclass(frozen=True)
class ImageTable:
    """What a reader returns: every image of a dataset, before any split.

    Classes are numbered 0..C-1 in the order of ``class_names``.
    """

    name: str
    feature: str
    features: Array
    """(n, p)"""
    labels: Array
    """(n,) integers 0..C-1; -1 for an image of unknown class, which is only ever tested"""
    class_names: tuple[str, ...]
    attributes: Array
    """(C, q) one row per class"""
    splits: Mapping[str, Split] = field(default_factory=dict)
    """The splits that come with the data, by name."""
    n_unseen: int | None = None
    """How many classes the dataset's own split leaves unseen: the default of ``split=random``."""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """Where it came from: files, notes; part of the record."""
    missing: Array | None = None
    """(C, q) where True the source says that it has no value; NaN in ``attributes`` must be True here"""
    image_attributes: Array | None = None
    """(n, q) each image's own row, for image-level annotations; NaN is missing"""
    attribute_names: tuple[str, ...] = ()
    """q names, or none"""
    image_names: tuple[str, ...] = ()
    """n file names, or none"""
    semantics: str = "continuous"
    """Which of the dataset's attribute tables this is."""
    validation: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = ()
    """Published (training, validation) class names, for choosing hyper-parameters."""
    notes: tuple[str, ...] = ()
    """Findings worth a sentence, such as leaks; ``python -m zsl.data check`` prints them."""

    def __post_init__(self) -> None:
        who = self.name
        as_matrix(self.features, f"{who}: features")
        gaps = np.zeros(self.attributes.shape, bool) if self.missing is None else self.missing
        q = as_matrix(np.where(gaps, 0, self.attributes), f"{who}: attributes", n_rows=len(self.class_names)).shape[1]
        if self.image_attributes is not None:
            known = np.nan_to_num(self.image_attributes, posinf=np.inf, neginf=-np.inf)
            as_matrix(known, f"{who}: image attributes", n_rows=len(self.features), n_columns=q)
        for names, expected, kind in (
            (self.attribute_names, q, "attribute"),
            (self.image_names, len(self.features), "image"),
        ):
            if names and len(names) != expected:
                raise UserError(f"{who}: {len(names)} {kind} names for {expected} {kind}s; there must be one each.")
        check_labels(self.labels, len(self.features), len(self.class_names), f"{who}: labels", unknown=True)
        repeated = [c for c in dict.fromkeys(self.class_names) if self.class_names.count(c) > 1]
        unnamed = [c for c, name in enumerate(self.class_names) if not name.strip()]
        if unnamed:
            raise UserError(f"{who}: class {unnamed[0] + 1} has an empty name; name it.")
        without = np.flatnonzero(gaps.all(axis=1) & (self.image_attributes is None))
        if without.size:
            raise UserError(
                f"{who}: the class {self.class_names[without[0]]!r} has no attribute value at all; give it some, or "
                "remove the class and its images."
            )
        if repeated:
            raise UserError(f"{who}: the class name {repeated[0]!r} occurs more than once; names must be unique.")

    @cached_property
    def content(self) -> str:
        """Digest of images, labels, class names and attributes: the same data have the same, wherever they lie."""
        own = [] if self.image_attributes is None else [self.image_attributes]
        return content_hash(self.features, self.labels, self.attributes, np.array(self.class_names), *own)

    def doubts(self) -> list[str]:
        """What is allowed and yet rarely meant: constant attributes, classes that are alike."""
        if self.image_attributes is not None:
            return []
        gaps = np.zeros(self.attributes.shape, bool) if self.missing is None else self.missing
        table = np.where(gaps, np.nan, self.attributes)
        with np.errstate(invalid="ignore"):
            constant = np.flatnonzero(np.fmin.reduce(table) >= np.fmax.reduce(table))
        found = []
        if constant.size and len(table) > 1:
            names = [self.attribute_names[a] if self.attribute_names else f"attribute {a + 1}" for a in constant]
            found.append(
                f"{self.name}: {constant.size} of {table.shape[1]} attributes (first: {names[0]}) are the same for all "
                "classes and tell nothing."
            )
        first: dict[bytes, int] = {}
        alike = [(first.setdefault(np.nan_to_num(row, nan=np.inf).tobytes(), c), c) for c, row in enumerate(table)]
        alike = [(a, b) for a, b in alike if a != b]
        if alike:
            a, b = (self.class_names[c] for c in alike[0])
            found.append(
                f"{self.name}: {len(alike)} classes have the attributes of another one and cannot be told from it "
                f"(first: {b!r}, as {a!r})."
            )
        return found

    def class_ids(self, names: list[str], where: str) -> Array:
        """Class numbers of ``names``, in their order; unknown names are refused with near misses."""
        index = {c: i for i, c in enumerate(self.class_names)}
        for name in names:
            if name not in index:
                raise UserError(f"{where}: {name!r} is not a class of {self.name}{near(name, self.class_names)}.")
        return np.array([index[name] for name in names], dtype=np.int64)


def content_hash(*arrays: Array) -> str:
    """A short digest of arrays: values, shapes and types (16 hex digits of SHA-256)."""
    digest = hashlib.sha256()
    for a in arrays:
        a = np.ascontiguousarray(a)
        digest.update(f"{a.dtype.str}{a.shape}".encode())
        digest.update(a.reshape(-1).view(np.uint8).data if a.size else b"")
    return digest.hexdigest()[:16]


def check_labels(y: Array, n: int, n_classes: int, name: str, *, unknown: bool = False) -> None:
    if y.ndim != 1 or not np.issubdtype(y.dtype, np.integer):
        raise UserError(f"{name} have shape {y.shape} and type {y.dtype}; one integer per image is needed.")
    if len(y) != n:
        raise UserError(f"{name}: {len(y)} labels for {n} images; there must be one each.")
    lowest = -1 if unknown else 0
    if n and (y.min() < lowest or y.max() >= n_classes):
        bad = int(np.flatnonzero((y < lowest) | (y >= n_classes))[0])
        raise UserError(f"{name}: image {bad} has label {y[bad]}, outside the {n_classes} classes of the table.")


def near(name: str, names: tuple[str, ...]) -> str:
    import difflib

    plain = {c.replace("+", " ").replace("_", " ").lower(): c for c in names}
    mine = name.replace("+", " ").replace("_", " ").lower()
    # Short words are alike by chance (cat, ant), unless their letters are the same (dgo, dog).
    close = [
        c for c in difflib.get_close_matches(mine, plain, n=5)
        if difflib.SequenceMatcher(None, mine, c).ratio() >= 0.7 or sorted(c) == sorted(mine)
    ]  # fmt: skip
    return f" (did you mean {plain[close[0]]!r}?)" if close else ""
