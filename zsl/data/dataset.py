"""What an experiment may read: images by class, and their split into seen and unseen."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

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
        _check_labels(self.labels, len(self.features), len(self.class_names), f"{who}: labels", unknown=True)
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


@dataclass(frozen=True)
class ZeroShotData:
    """Everything an experiment may read, split into what trains and what is predicted.

    Samples are rows. ``y`` and ``y_test_seen`` count the seen classes 0..C_seen-1 (positions in ``seen``),
    ``y_unseen`` the unseen ones 0..M-1 (positions in ``unseen``); ``seen`` and ``unseen`` are rows of the
    class table. Nothing that fits a model has an argument for ``y_unseen``.

    Raises
    ------
    UserError
        If an invariant does not hold: disjoint classes, labels in range, agreeing shapes, finite values, an
        image for every seen class.
    """

    name: str
    feature: str
    split: str
    X: Array
    """(n, p) features of the training images"""
    y: Array
    """(n,) their seen class"""
    X_test_seen: Array
    """(s, p) held-out images of seen classes; s may be 0"""
    y_test_seen: Array
    X_unseen: Array
    """(L, p) test images of unseen classes"""
    y_unseen: Array
    """(L,) their unseen class, for evaluation only; -1 where it is unknown"""
    class_names: tuple[str, ...]
    attributes: Array
    """(C, q) the whole class table"""
    seen: Array
    """(C_seen,) rows of the class table"""
    unseen: Array
    """(M,) rows of the class table"""
    key: Mapping[str, Any] = field(default_factory=dict)
    """What identifies it in a result: content hash, split origin, semantics, provenance."""
    Z_images: Array | None = None
    """(n, q) each training image's own attributes, where the dataset has them"""
    attribute_names: tuple[str, ...] = ()
    validation: tuple[tuple[Array, Array], ...] = ()
    """Published (training, validation) classes, as positions in ``seen``"""
    names_unseen: tuple[str, ...] = ()
    """File names of the test images of unseen classes, or none"""
    imputed: Array | None = None
    """(C, q) where True, ``attributes`` has no value of its own but the mean of the seen classes that have one"""
    imputed_images: Array | None = None
    """(n, q) where True, ``Z_images`` has no value of its own but its class's"""
    rows_unseen: tuple[int, ...] = ()
    """Rows of the data, counted from 1, of the test images of unseen classes"""

    def __post_init__(self) -> None:
        who = f"{self.name} ({self.split})"
        both = np.intersect1d(self.seen, self.unseen)
        if both.size:
            raise UserError(
                f"{who}: {both.size} classes are both seen and unseen (first: {self.class_names[both[0]]!r}); "
                "a zero-shot split must be disjoint."
            )
        if not self.unseen.size:
            raise UserError(f"{who}: no class is unseen; a zero-shot split needs at least one.")
        p = as_matrix(self.X, f"{who}: X").shape[1]
        for name, X, y, classes in (
            ("training", self.X, self.y, self.seen),
            ("seen test", self.X_test_seen, self.y_test_seen, self.seen),
            ("unseen test", self.X_unseen, self.y_unseen, self.unseen),
        ):
            if len(X):
                as_matrix(X, f"{who}: {name} features", n_columns=p)
            _check_labels(y, len(X), len(classes), f"{who}: {name} labels", unknown=name == "unseen test")
        q = as_matrix(self.attributes, f"{who}: attributes", n_rows=len(self.class_names)).shape[1]
        if self.Z_images is not None:
            as_matrix(self.Z_images, f"{who}: image attributes", n_rows=len(self.X), n_columns=q)
        if not len(self.X_unseen):
            raise UserError(f"{who}: there is no test image of an unseen class; nothing could be predicted.")
        empty = np.setdiff1d(np.arange(len(self.seen)), self.y)
        if empty.size:
            names = [self.class_names[self.seen[c]] for c in empty[:3]]
            raise UserError(f"{who}: {empty.size} seen classes have no training image (first: {', '.join(names)}).")

    @classmethod
    def from_table(
        cls, table: ImageTable, split: Split, *, missing: Literal["mean", "drop", "keep"] = "mean"
    ) -> ZeroShotData:
        """Arrange a table by a split; a class that is neither trained on nor unseen stays in the table only.

        With image-level attributes, ``attributes`` holds class means: of a seen class over its training images, of any
        other over all its images.

        Parameters
        ----------
        missing : "mean", "drop" or "keep"
            Attribute values the source marks as missing become the mean of the seen classes (training images) that
            have one, or their attributes are left out, or the published number stays (AwA's -1).
        """
        origin = split.origin.get("file") or split.origin.get("path")
        who = f"{table.name}, split {split.name}" + (f" ({origin})" if origin else "")
        for a, b in (("trainval", "test_unseen"), ("trainval", "test_seen"), ("test_seen", "test_unseen")):
            common = np.intersect1d(getattr(split, a), getattr(split, b))
            if common.size:
                raise UserError(
                    f"{who}: {common.size} images are in both {a} and {b} (first: image {common[0] + 1}); "
                    "remove them from one of the two, since every image may have one role."
                )
        seen = np.unique(table.labels[split.trainval])
        unseen = np.unique(split.unseen)
        y = {}
        for part, classes in (("trainval", seen), ("test_seen", seen), ("test_unseen", unseen)):
            labels = table.labels[getattr(split, part)]
            known = labels >= 0 if part == "test_unseen" else np.ones(len(labels), bool)
            strangers = np.setdiff1d(labels[known], classes)
            if strangers.size:
                kind = "unseen" if part == "test_unseen" else "seen"
                raise UserError(
                    f"{who}: {part} holds images of {table.class_names[strangers[0]]!r}, which is not one of the "
                    f"{len(classes)} {kind} classes"
                    + ("; a seen class needs images in trainval." if kind == "seen" else "; check the class list.")
                )
            y[part] = np.where(known, np.searchsorted(classes, labels), -1)
        attributes, Z_images, kept, semantics, imputed, imputed_images = _semantics(table, split, seen, missing)
        names = table.image_names
        return cls(
            name=table.name,
            feature=table.feature,
            split=split.name,
            X=table.features[split.trainval],
            y=y["trainval"],
            X_test_seen=table.features[split.test_seen],
            y_test_seen=y["test_seen"],
            X_unseen=table.features[split.test_unseen],
            y_unseen=y["test_unseen"],
            class_names=table.class_names,
            attributes=attributes,
            seen=seen,
            unseen=unseen,
            Z_images=Z_images,
            imputed=imputed,
            imputed_images=imputed_images,
            attribute_names=tuple(table.attribute_names[a] for a in kept) if table.attribute_names else (),
            validation=_published_folds(table, seen),
            names_unseen=tuple(names[i] for i in split.test_unseen) if names else (),
            rows_unseen=tuple(int(i) + 1 for i in split.test_unseen),
            key={
                "content": table.content,
                "semantics": semantics,
                "split": {
                    **split.origin,
                    "rows": split.rows,
                    "n_seen": len(seen),
                    "unseen": [table.class_names[c] for c in unseen],
                },
                "provenance": dict(table.provenance),
            },
        )

    @property
    def Z_seen(self) -> Array:
        """(C_seen, q) attributes of the seen classes."""
        return self.attributes[self.seen]

    @property
    def Z_unseen(self) -> Array:
        """(M, q) attributes of the unseen classes."""
        return self.attributes[self.unseen]

    @cached_property
    def Z(self) -> Array:
        """(n, q) attributes of each training image: its own where the dataset has them, else its class's row."""
        return self.Z_seen[self.y] if self.Z_images is None else self.Z_images

    @property
    def unseen_names(self) -> list[str]:
        return [self.class_names[c] for c in self.unseen]

    def shuffle_attributes(self, seed: int) -> ZeroShotData:
        """The control: class rows of the attribute table permuted, everything else untouched.

        A method that still beats chance on the mean of many shuffles has found something other than attributes.
        """
        order = np.random.default_rng(seed).permutation(len(self.class_names))
        if self.Z_images is not None:
            # An image's own row would stay with its image; the control is about the link between both.
            raise UserError(
                f"dataset.shuffle_attributes permutes class rows, and {self.name} is used with image-level attributes; "
                "choose class-level ones (dataset.semantics=continuous)."
            )
        permuted = replace(
            self,
            attributes=self.attributes[order],
            imputed=None if self.imputed is None else self.imputed[order],
            key={**self.key, "shuffle_attributes": seed},
        )
        return permuted.impute_anew()

    def impute_anew(self) -> ZeroShotData:
        """Values that stand for missing ones, taken again from the classes that are seen now.

        Where another division of the classes makes some of the seen ones unseen, what was imputed still holds their
        values. An attribute that no seen class has a value for says nothing and becomes zero for every class.
        """
        if self.imputed is None:
            return self
        Z, own = self.attributes.copy(), ~self.imputed
        Z_images = None if self.Z_images is None else self.Z_images.copy()
        for a in np.flatnonzero(self.imputed.any(axis=0)):
            has = self.seen[own[self.seen, a]]
            if has.size:
                Z[self.imputed[:, a], a] = Z[has, a].mean()
            else:
                Z[:, a] = 0
                if Z_images is not None:
                    Z_images[:, a] = 0
        if Z_images is not None and self.imputed_images is not None:
            Z_images = np.where(self.imputed_images, Z[self.seen[self.y]], Z_images)
        return replace(self, attributes=Z, Z_images=Z_images)


def _semantics(
    table: ImageTable, split: Split, seen: Array, missing: Literal["mean", "drop", "keep"]
) -> tuple[Array, Array | None, Array, dict[str, Any], Array | None, Array | None]:
    """Class rows, rows of training images, attributes kept, what the record says, and where both rows are imputed."""
    Z, rows = np.array(table.attributes, dtype=np.float64), table.image_attributes
    gaps = np.zeros(Z.shape, bool) if table.missing is None else np.array(table.missing)
    record: dict[str, Any] = {"source": table.semantics, "image_level": rows is not None}
    absent = int(gaps.sum())
    if rows is not None:
        trains = np.zeros(len(rows), bool)
        trains[split.trainval] = True
        known = ~np.isnan(rows)
        for c in range(len(Z)):
            mine = table.labels == c
            if c in seen:
                mine &= trains
            n = known[mine].sum(axis=0)
            gaps[c] = n == 0
            Z[c] = np.where(known[mine], rows[mine], 0).sum(axis=0) / np.maximum(n, 1)
        absent = int((~known).sum())
        record["class_rows"] = "means over images: of a seen class its training images, of an unseen class all"
    kept = np.arange(Z.shape[1])
    if absent or gaps.any():
        record["missing"] = {"values": absent, "classes_without": int(gaps.any(axis=1).sum()), "treated": missing}
        unknown = gaps.any(axis=0) | (np.isnan(rows).any(axis=0) if rows is not None else False)
        if missing == "drop":
            kept = np.flatnonzero(~unknown)
            record["missing"]["attributes_left"] = len(kept)
            if not kept.size:
                raise UserError(
                    f"{table.name}: every attribute has a missing value, so none is left; "
                    "use dataset.semantics.missing=mean."
                )
        elif missing == "keep":
            if np.isnan(Z).any() or (rows is not None and np.isnan(rows[split.trainval]).any()):
                raise UserError(
                    f"{table.name}: missing attributes hold no number that could be kept; "
                    "use dataset.semantics.missing=mean or drop."
                )
        else:
            for a in np.flatnonzero(unknown):
                has = seen[~gaps[seen, a]]
                if not has.size:
                    raise UserError(
                        f"{table.name}: attribute {a + 1} has no value for any seen class; "
                        "use dataset.semantics.missing=drop."
                    )
                Z[gaps[:, a], a] = Z[has, a].mean()
    imputed = gaps[:, kept] if missing == "mean" and gaps[:, kept].any() else None
    Z_images = imputed_images = None
    if rows is not None:
        own = rows[split.trainval]
        imputed_images = np.isnan(own)[:, kept] if imputed is not None else None
        # An image without a value takes its class's mean, which is a mean over training images.
        Z_images = np.where(np.isnan(own), Z[table.labels[split.trainval]], own)[:, kept].astype(np.float64)
    return np.ascontiguousarray(Z[:, kept]), Z_images, kept, record, imputed, imputed_images


def _published_folds(table: ImageTable, seen: Array) -> tuple[tuple[Array, Array], ...]:
    """The table's published folds as positions in ``seen``; none unless they divide just these classes."""
    index = {table.class_names[c]: i for i, c in enumerate(seen)}
    folds = []
    for train, val in table.validation:
        if set(train) & set(val) or set(train) | set(val) != set(index):
            return ()
        folds.append((np.sort([index[c] for c in train]), np.sort([index[c] for c in val])))
    return tuple(folds)


def content_hash(*arrays: Array) -> str:
    """A short digest of arrays: values, shapes and types (16 hex digits of SHA-256)."""
    digest = hashlib.sha256()
    for a in arrays:
        a = np.ascontiguousarray(a)
        digest.update(f"{a.dtype.str}{a.shape}".encode())
        digest.update(a.reshape(-1).view(np.uint8).data if a.size else b"")
    return digest.hexdigest()[:16]


def _check_labels(y: Array, n: int, n_classes: int, name: str, *, unknown: bool = False) -> None:
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
