"""Types and ranges of arguments, declared in annotations and checked by pydantic.

A component writes ``lam: Positive`` once; constructors, the command line and the Python API then refuse
the same values with the same sentence.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Annotated, Any

import annotated_types as at
import numpy as np
from numpy.typing import DTypeLike, NDArray

from zsl.errors import UserError

Array = NDArray[Any]

Positive = Annotated[float, at.Gt(0), at.Lt(float("inf"))]
NonNegative = Annotated[float, at.Ge(0), at.Lt(float("inf"))]
Share = Annotated[float, at.Ge(0), at.Le(1)]
Fraction = Annotated[float, at.Gt(0), at.Le(1)]
Count = Annotated[int, at.Ge(1)]
Seed = Annotated[int, at.Ge(0)]


# Rows checked at once, so that a check needs no memory in proportion to the data.
_BLOCK = 4096


@lru_cache(maxsize=512)
def _hints(target: Any) -> dict[str, Any]:
    is_plain_class = isinstance(target, type) and not dataclasses.is_dataclass(target)
    return typing.get_type_hints(getattr(target, "__init__") if is_plain_class else target, include_extras=True)  # noqa: B009


def check_arguments(target: Callable[..., Any], values: Mapping[str, Any], prefix: str = "") -> None:
    """Check ``values`` against the annotations of ``target`` (a dataclass or a function).

    Parameters whose annotation pydantic cannot judge (arrays, protocols) are left to the callee.

    Raises
    ------
    UserError
        At the first value of a wrong type or out of range: key, value, what is accepted.
    """
    hints = _hints(target)
    for key, value in values.items():
        if key in hints:
            check_value(hints[key], value, prefix + key)


def check_value(annotation: Any, value: Any, key: str) -> None:
    """Raise :class:`UserError` unless ``value`` satisfies ``annotation`` (strictly: no ``"3"`` for 3)."""
    from pydantic import ValidationError

    adapter = _adapter(annotation)
    if adapter is None:
        return
    if isinstance(value, np.generic):
        value = value.item()
    try:
        adapter.validate_python(value, strict=True)
    except ValidationError as error:
        # A union reports one problem per member; together they are the list of what is accepted.
        problems = dict.fromkeys(e["msg"].removeprefix("Input should be ") for e in error.errors())
        none_too = " or null" if type(None) in typing.get_args(annotation) else ""
        accepted = " or ".join(p for p in problems if p != "None")
        raise UserError(f"{key}={value!r} is not accepted: it should be {accepted}{none_too}.") from None


@lru_cache(maxsize=512)
def _adapter(annotation: Any) -> Any:
    """A pydantic validator, or None where the annotation is not a plain value."""
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticSchemaGenerationError

    try:
        return TypeAdapter(annotation)
    except PydanticSchemaGenerationError:
        return None


def check_fields(instance: Any) -> None:
    """Check every field of a dataclass instance; call it from ``__post_init__``."""
    values = {f.name: getattr(instance, f.name) for f in dataclasses.fields(instance) if f.init}
    check_arguments(type(instance), values, prefix=f"{type(instance).__name__}: ")


def as_matrix(
    X: Any, name: str, *, n_columns: int | None = None, n_rows: int | None = None, finite: bool = True
) -> Array:
    """``X`` as a finite two-dimensional float array (float32 is kept, anything else becomes float64).

    ``finite=False`` leaves the look for NaN and inf to a caller that has a cheaper one.

    Raises
    ------
    UserError
        If it is not two-dimensional, has other than the expected rows or columns, is empty, holds NaN or inf, masked
        entries or anything but numbers.
    """
    if np.ma.is_masked(X):
        raise UserError(f"{name} has {int(np.ma.getmaskarray(X).sum())} masked entries; fill or impute them.")
    try:
        X = np.asarray(X)
    except ValueError:
        raise UserError(f"{name} has rows of different lengths; a matrix with one sample per row is needed.") from None
    _need_real(X.dtype, name)
    if X.dtype != np.float32:
        try:
            X = X.astype(np.float64, copy=False)
        except (TypeError, ValueError):
            raise UserError(f"{name} holds {X.dtype} values; numbers are needed.") from None
        except OverflowError:
            raise UserError(f"{name} holds a number beyond the range of float64.") from None
    if X.ndim != 2:
        raise UserError(f"{name} has shape {X.shape}; a matrix with one sample per row is needed.")
    if X.size == 0:
        raise UserError(f"{name} is empty (shape {X.shape}); at least one row and one column are needed.")
    if n_columns is not None and X.shape[1] != n_columns:
        hint = " (is it transposed?)" if X.shape[0] == n_columns else ""
        raise UserError(f"{name} has {X.shape[1]} columns where {n_columns} are needed{hint}.")
    if n_rows is not None and X.shape[0] != n_rows:
        raise UserError(f"{name} has {X.shape[0]} rows where {n_rows} are needed.")
    for start in range(0, len(X) if finite else 0, _BLOCK):
        _need_finite(X[start : start + _BLOCK], name, start)
    return X


class Rows:
    """A matrix that is read piece by piece: anything with a shape that gives rows for a slice (memory maps, HDF5).

    Pieces come as finite float arrays: float32 is kept, anything else becomes float64.
    """

    def __init__(self, source: Any, name: str) -> None:
        if not hasattr(source, "dtype"):  # a table, a list
            source = as_matrix(source, name)
        shape = tuple(getattr(source, "shape", ()))
        if len(shape) != 2 or 0 in shape:
            raise UserError(f"{name} has shape {shape}; a matrix with one sample per row is needed.")
        _need_real(source.dtype, name)
        self.source, self.name, self.shape = source, name, shape
        self.dtype = np.dtype(np.float32 if source.dtype == np.float32 else np.float64)

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, which: Any) -> Array:
        X = np.ascontiguousarray(self.source[which], dtype=self.dtype)
        _need_finite(X, self.name, which.start or 0 if isinstance(which, slice) else 0)
        if X.size:
            _need_squares(self.name, X.dtype, 0.0, float(np.abs(X).max()), int(np.prod(self.shape)))
        return X


def need_small(X: Array, name: str, dtype: DTypeLike | None = None) -> None:
    """Refuse X (n, p) with NaN, inf, or rows whose squared lengths ``dtype`` (its own) cannot hold, in one pass."""
    if not row_squares(X).max() <= np.finfo(dtype or X.dtype).max:
        as_matrix(X, name)
        _need_squares(name, np.dtype(dtype or X.dtype), 0.0, float(np.abs(X).max()), X.shape[1])


def row_squares(X: Array) -> Array:
    """(n,) squared lengths of the rows of X (n, p); inf where they overflow."""
    with np.errstate(over="ignore", invalid="ignore"):
        squares: Array = np.einsum("ij,ij->i", X, X)
    return squares


def need_squares(X: Array, name: str, dtype: DTypeLike | None = None) -> None:
    """Refuse X (n, p) whose squares ``dtype`` (its own) cannot hold; zeros are fine. :class:`Rows` look when read.

    Every model forms sums of squares. Overflow would make all scores infinite or equal, and underflow all distances
    zero, without a word.

    Raises
    ------
    UserError
        If the square of the largest entry, times their number, exceeds the largest number of the type, or if that
        square is below its smallest normal one.
    """
    if isinstance(X, Rows):
        return
    blocks = (X[i : i + _BLOCK] for i in range(0, len(X), _BLOCK))
    largest = max(max(float(B.max()), -float(B.min())) for B in blocks)
    dtype = np.dtype(dtype or X.dtype)
    _need_squares(name, dtype, float(np.sqrt(float(np.finfo(dtype).tiny))), largest, X.size)


def _need_squares(name: str, dtype: np.dtype[Any], low: float, largest: float, n: int) -> None:
    high = float(np.sqrt(float(np.finfo(dtype).max) / n))
    if largest > high or 0 < largest < low:
        size, how = ("large", "overflow") if largest > high else ("small", "underflow")
        raise UserError(
            f"{name} is as {size} as {largest:.0e}, whose squares {how} in {dtype}; "
            "scale it to length 1 (feature.l2=true, dataset.semantics.l2=true)."
        )


def _need_real(dtype: np.dtype[Any], name: str) -> None:
    if dtype.kind == "c":
        raise UserError(f"{name} holds complex values; real numbers are needed.")
    if dtype.kind not in "biufO":
        # Dates, durations and text would become numbers.
        raise UserError(f"{name} holds {dtype} values; numbers are needed.")


def _need_finite(X: Array, name: str, first: int) -> None:
    if not np.isfinite(X).all():
        row, column = np.argwhere(~np.isfinite(X))[0]
        raise UserError(f"{name} holds {X[row, column]} in row {first + row}, column {column}; remove or impute it.")
