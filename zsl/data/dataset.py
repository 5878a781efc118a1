"""ZeroShotData: training images of seen classes and test images, after the split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import index
from typing import Any, Literal

import numpy as np

from zsl.checks import Array, as_matrix
from zsl.data.semantics import blocks_of, class_rows_of
from zsl.data.table import ImageTable, Split, check_labels
from zsl.errors import UserError
from zsl.sparse.chunks import by_rows, is_chunked


@dataclass(frozen=True, repr=False)
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
    """(n, p) features of the training images; a ``dask.array`` where they lie in chunks on a cluster"""
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
    """(C, q) the whole class table; NaN where the source has no value, until :func:`preprocess` fills it"""
    seen: Array
    """(C_seen,) rows of the class table"""
    unseen: Array
    """(M,) rows of the class table"""
    key: Mapping[str, Any] = field(default_factory=dict)
    """What identifies it in a result: content hash, split origin, semantics, provenance."""
    Z_images: Array | None = None
    """(n, q) each training image's own attributes, where the dataset has them; NaN is missing"""
    attribute_names: tuple[str, ...] = ()
    feature_blocks: tuple[int, ...] = ()
    """Numbers of columns of each network's features, where there are several"""
    attribute_blocks: tuple[int, ...] = ()
    """Numbers of columns of each kind of attributes, where there are several"""
    validation: tuple[tuple[Array, Array], ...] = ()
    """Published (training, validation) classes, as positions in ``seen``"""
    notes: tuple[str, ...] = ()
    """What was left out, in a sentence each"""
    names_unseen: tuple[str, ...] = ()
    """File names of the test images of unseen classes, or none"""
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
        p = _rows(self.X, f"{who}: X").shape[1]
        for name, X, y, classes in (
            ("training", self.X, self.y, self.seen),
            ("seen test", self.X_test_seen, self.y_test_seen, self.seen),
            ("unseen test", self.X_unseen, self.y_unseen, self.unseen),
        ):
            if len(X):
                _rows(X, f"{who}: {name} features", n_columns=p)
            check_labels(y, len(X), len(classes), f"{who}: {name} labels", unknown=name == "unseen test")
        q = as_matrix(_known(self.attributes), f"{who}: attributes", n_rows=len(self.class_names)).shape[1]
        if self.Z_images is not None:
            as_matrix(_known(self.Z_images), f"{who}: image attributes", n_rows=len(self.X), n_columns=q)
        empty = np.setdiff1d(np.arange(len(self.seen)), self.y)
        if empty.size:
            names = [self.class_names[self.seen[c]] for c in empty[:3]]
            raise UserError(
                f"{who}: {empty.size} seen classes have no training image (first: {', '.join(names)}); add images."
            )

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
            What becomes of attribute values that the source marks as missing. ``mean``: they are NaN here, and
            pre-processing fills them with the mean of the seen classes. ``drop``: their attributes are left out.
            ``keep``: the published number stays (AwA's -1).
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
        for part in ("trainval", "test_seen"):
            nameless = getattr(split, part)[table.labels[getattr(split, part)] < 0]
            if nameless.size:
                raise UserError(
                    f"{who}: the class of {nameless.size} images of {part} is unknown (first: image "
                    f"{nameless[0] + 1}); leave them out of the split, since only test images of unseen classes may be "
                    "without a class."
                )
        if not len(split.unseen):
            raise UserError(f"{who}: no class is unseen; a zero-shot split needs at least one.")
        if not len(split.test_unseen):
            raise UserError(f"{who}: there is no test image of an unseen class; nothing could be predicted.")
        seen = np.unique(table.labels[split.trainval])
        unseen = np.unique(split.unseen)
        y = {}
        for part, classes in (("trainval", seen), ("test_seen", seen), ("test_unseen", unseen)):
            labels = table.labels[getattr(split, part)]
            known = labels >= 0
            strangers = np.setdiff1d(labels[known], classes)
            if strangers.size:
                kind = "unseen" if part == "test_unseen" else "seen"
                raise UserError(
                    f"{who}: {part} holds images of {table.class_names[strangers[0]]!r}, which is not one of the "
                    f"{len(classes)} {kind} classes"
                    + ("; a seen class needs images in trainval." if kind == "seen" else "; check the class list.")
                )
            y[part] = np.where(known, np.searchsorted(classes, labels), -1)
        folds, unused = _published_folds(table, seen)
        attributes, Z_images, kept, semantics = class_rows_of(table, split, seen, missing)
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
            attribute_names=tuple(table.attribute_names[a] for a in kept) if table.attribute_names else (),
            feature_blocks=table.feature_blocks,
            attribute_blocks=blocks_of(kept, table.attribute_blocks),
            validation=folds,
            notes=(*table.row_numbers(), *unused),
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

    @classmethod
    def for_training(
        cls, X: Array, y: Array, class_names: tuple[Any, ...], attributes: Array,
        attribute_names: tuple[str, ...] = (), blocks: tuple[Sequence[int], Sequence[int]] = ((), ()),
    ) -> ZeroShotData:  # fmt: skip
        """Data without test images: X (n, p), y (n,) rows of the class table, attributes (C, q).

        Classes without images are the unseen ones; ``blocks`` are those of features and of attributes.
        """
        try:
            of_features, of_attributes = (tuple(map(index, part)) for part in blocks)
        except (TypeError, ValueError):
            raise UserError(
                f"blocks={blocks!r} is not a pair of lists of whole numbers, such as ([384, 512], [])."
            ) from None
        seen = np.unique(y)
        nothing = np.empty(0, dtype=np.int64)
        return cls(
            name="data", feature="features", split="given",
            X=X, y=np.searchsorted(seen, y), X_test_seen=X[:0], y_test_seen=nothing, X_unseen=X[:0], y_unseen=nothing,
            class_names=class_names, attributes=attributes, attribute_names=attribute_names,
            feature_blocks=of_features, attribute_blocks=of_attributes,
            seen=seen, unseen=np.setdiff1d(np.arange(len(attributes)), seen),
        )  # fmt: skip

    def __repr__(self) -> str:
        seen = f"{len(self.X)} training images of {len(self.seen)} seen classes, {self.X.shape[1]} features"
        unseen = f"{len(self.X_unseen)} test images of {len(self.unseen)} unseen classes"
        return f"ZeroShotData({self.name}, {self.feature}, split {self.split}: {seen}; {unseen})"

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
    def identity(self) -> dict[str, Any]:
        """The data in a run's digest: the key, the published validation classes, and the kinds of attributes."""
        divisions = [[a.tolist() for a in division] for division in self.validation]
        return {**self.key, "validation": divisions, "attribute_blocks": list(self.attribute_blocks)}

    @property
    def unseen_names(self) -> list[str]:
        """Names of the unseen classes."""
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
        return replace(self, attributes=self.attributes[order], key={**self.key, "shuffle_attributes": seed})

    def hold_out(self, held: Array) -> ZeroShotData:
        """The seen classes ``held`` as if they were unseen, and the other seen classes as the seen ones.

        The class table shrinks to the seen classes and the images to the training images: the images, labels and
        attributes of the unseen classes are not in the result, so nothing that is chosen on it can depend on them.

        Parameters
        ----------
        held : (k,) integers
            Positions in ``seen``.
        """
        kept = np.setdiff1d(np.arange(len(self.seen)), held)
        trains = np.isin(self.y, kept)
        return replace(
            self,
            attributes=self.attributes[self.seen],
            class_names=tuple(self.class_names[c] for c in self.seen),
            seen=kept,
            unseen=held,
            X=self.X[trains],
            y=np.searchsorted(kept, self.y[trains]),
            X_unseen=self.X[~trains],
            y_unseen=np.searchsorted(held, self.y[~trains]),
            X_test_seen=self.X[:0],
            y_test_seen=self.y[:0],
            Z_images=None if self.Z_images is None else self.Z_images[trains],
            validation=(),
            names_unseen=(),
            rows_unseen=(),
        )

    def put_aside(self, share: float, seed: int) -> ZeroShotData:
        """A share of each seen class's training images as test images of seen classes, for the generalised setting."""
        order = np.random.default_rng(seed).permutation(len(self.y))
        aside = np.zeros(len(self.y), dtype=bool)
        for c in range(len(self.seen)):
            mine = order[self.y[order] == c]
            aside[mine[: int(share * len(mine))]] = True
        return replace(
            self,
            X=self.X[~aside], y=self.y[~aside], X_test_seen=self.X[aside], y_test_seen=self.y[aside],
            Z_images=None if self.Z_images is None else self.Z_images[~aside],
        )  # fmt: skip


def _rows(X: Any, name: str, n_columns: int | None = None) -> Any:
    """X, checked; the chunks of a ``dask.array`` are checked where they lie, when something is computed from them."""
    return by_rows(X, name) if is_chunked(X) else as_matrix(X, name, n_columns=n_columns)


def _known(values: Array) -> Array:
    """``values`` with 0 where they are missing (NaN); infinite values stay, to be refused."""
    return np.nan_to_num(values, posinf=np.inf, neginf=-np.inf)


def _published_folds(table: ImageTable, seen: Array) -> tuple[tuple[tuple[Array, Array], ...], list[str]]:
    """The table's published folds as positions in ``seen``, or none and the reason why they do not divide these."""
    index = {table.class_names[c]: i for i, c in enumerate(seen)}
    folds = []
    for i, (train, val) in enumerate(table.validation, start=1):
        others = sorted({*train, *val} - set(index)) or sorted(set(index) - {*train, *val})
        if others or set(train) & set(val):
            fault = "name unseen classes" if {*train, *val} - set(index) else "lack seen classes"
            shown = ", ".join(others[:3]) + (", ..." if len(others) > 3 else "")
            return (), [
                f"{table.name}: the published validation lists are not used, because trainclasses{i}.txt and "
                f"valclasses{i}.txt {fault} of this split ({shown}); folds over the seen classes are drawn instead."
            ]
        folds.append((np.sort([index[c] for c in train]), np.sort([index[c] for c in val])))
    return tuple(folds), []
