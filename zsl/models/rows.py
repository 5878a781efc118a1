"""Checks of training data, and a matrix that stays in its file and is read in pieces."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from zsl.checks import Array, as_matrix, check_finite, check_no_mask, check_no_overflow, check_real
from zsl.errors import UserError
from zsl.sparse.chunks import Chunks, is_chunked


class Rows:
    """A matrix that is read in pieces, from anything with a shape that returns rows for a slice (memory map, HDF5).

    Every piece is checked when it is read, and comes as a float array: float32 is kept, anything else becomes float64.

    Parameters
    ----------
    source : array-like, memory map or HDF5 dataset
    name : str
        Name of the argument, for messages.
    """

    def __init__(self, source: Any, name: str) -> None:
        if not hasattr(source, "dtype"):  # a table, a list
            source = as_matrix(source, name)
        shape = tuple(getattr(source, "shape", ()))
        if len(shape) != 2 or 0 in shape:
            raise UserError(f"{name} has shape {shape}; a matrix with one sample per row is needed.")
        check_real(source.dtype, name)
        self.source, self.name, self.shape = source, name, shape
        self.dtype = np.dtype(np.float32 if source.dtype == np.float32 else np.float64)

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, which: Any) -> Array:
        check_no_mask(part := self.source[which], self.name)
        X = np.ascontiguousarray(part, dtype=self.dtype)
        check_finite(X, self.name, which.start or 0 if isinstance(which, slice) else 0)
        if X.size:
            check_no_overflow(X, self.name, allow_tiny=True)
        return X


def check_training(
    X: Array, y: Array, Z: Array, Z_unseen: Array, *, in_pieces: bool = False, in_chunks: bool = False
) -> tuple[Array, Array, Array, Array]:
    """Check the arguments of ``fit`` and convert them to float matrices and integer labels.

    Parameters
    ----------
    X, y, Z, Z_unseen
        As in :meth:`zsl.models.base.Model.fit`.
    in_pieces : bool
        Whether X may stay in its file: it may be anything that :class:`Rows` reads.
    in_chunks : bool
        Whether X may be a ``dask.array``, which becomes a :class:`zsl.sparse.chunks.Chunks`.

    Returns
    -------
    X, y, Z, Z_unseen
        The matrices in the dtype of X. ``y`` and ``Z_unseen`` are copies, because models keep them and the caller may
        change its own.

    Raises
    ------
    UserError
        For NaN, shapes that disagree, numbers whose squares overflow or underflow, labels other than 0..C-1, or
        classes without images.
    """
    if isinstance(X, Chunks) or is_chunked(X):
        if not in_chunks:
            raise UserError(
                "X is a dask.array, which only coupled dictionaries learn from; give an array in memory (X.compute()), "
                "or use zsl.CoupledDictionaries."
            )
        X = cast(Array, X if isinstance(X, Chunks) else Chunks(X, "X"))
    else:
        X = cast(Array, Rows(X, "X")) if in_pieces and hasattr(X, "shape") else as_matrix(X, "X")
    Z = as_matrix(Z, "Z", n_rows=len(X))
    Z_unseen = as_matrix(Z_unseen, "Z_unseen", n_columns=Z.shape[1])
    for matrix, name in ((X, "X"), (Z, "Z"), (Z_unseen, "Z_unseen")):
        if not isinstance(matrix, Rows | Chunks):
            check_no_overflow(matrix, name, X.dtype)
    Z, Z_unseen = Z.astype(X.dtype, copy=False), Z_unseen.astype(X.dtype)
    check_no_mask(y, "y", "leave these images out")
    try:
        y = np.asarray(y)
    except ValueError:
        raise UserError("y has rows of different lengths; one integer for each row of X is needed.") from None
    if y.shape != (len(X),) or not np.issubdtype(y.dtype, np.integer):
        raise UserError(
            f"y has shape {y.shape} and type {y.dtype}; one integer for each of the {len(X)} rows of X is needed."
        )
    # There are at most as many classes as images; without this test one huge label would make a huge count.
    if y.min() != 0 or y.max() >= len(y) or not np.bincount(y).all():
        raise UserError(
            f"y holds {y.min()} to {y.max()}; it must number the seen classes 0..C-1 without gaps, "
            "each with at least one image."
        )
    return X, y.astype(np.int64), Z, Z_unseen
