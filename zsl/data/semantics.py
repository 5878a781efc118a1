"""Computes the class attributes of a split: means over images, what becomes of missing values, blocks of columns."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from zsl.checks import Array
from zsl.data.table import ImageTable, Split
from zsl.errors import UserError


def class_rows_of(
    table: ImageTable, split: Split, seen: Array, missing: Literal["mean", "drop", "keep"]
) -> tuple[Array, Array | None, Array, dict[str, Any]]:
    """Class rows and rows of training images (NaN is missing), the attributes kept, and what the record says."""
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
            without = np.flatnonzero(gaps[seen].all(axis=0))
            if without.size:
                raise UserError(
                    f"{table.name}: attribute {without[0] + 1} has no value for any seen class; "
                    "use dataset.semantics.missing=drop."
                )
            Z[gaps] = np.nan
    Z_images = None if rows is None else rows[split.trainval][:, kept].astype(np.float64)
    return np.ascontiguousarray(Z[:, kept]), Z_images, kept, record


def blocks_of(kept: Array, blocks: tuple[int, ...]) -> tuple[int, ...]:
    """The sizes of the blocks that are left of the columns ``kept``."""
    counts = np.histogram(kept, bins=np.cumsum((0, *blocks)))[0] if blocks else np.empty(0)
    return tuple(int(n) for n in counts if n)
