"""A matrix that stays in its file and is read in pieces."""

from __future__ import annotations

from typing import Any

import numpy as np

from zsl.checks import Array, as_matrix, check_finite, check_no_overflow, check_real
from zsl.errors import UserError


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
        X = np.ascontiguousarray(self.source[which], dtype=self.dtype)
        check_finite(X, self.name, which.start or 0 if isinstance(which, slice) else 0)
        if X.size:
            check_no_overflow(X, self.name, allow_tiny=True)
        return X
