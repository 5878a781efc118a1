"""Checks of arguments: types and ranges that annotations declare, and matrices of numbers.

A component writes ``lam: Positive`` once. Its constructor, the command line and the Python API then refuse the same
values with the same sentence; pydantic does the checking.
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

# Rows that are checked at once, so that a check needs little memory.
_BLOCK = 4096


@lru_cache(maxsize=512)
def _hints(target: Any) -> dict[str, Any]:
    is_plain_class = isinstance(target, type) and not dataclasses.is_dataclass(target)
    return typing.get_type_hints(getattr(target, "__init__") if is_plain_class else target, include_extras=True)  # noqa: B009


def check_arguments(target: Callable[..., Any], values: Mapping[str, Any], prefix: str = "") -> None:
    """Check values against the annotations of a function or a class.

    Parameters whose annotation pydantic does not know (arrays, protocols) are not checked.

    Parameters
    ----------
    target : callable
    values : mapping
        Values by parameter name; other names are ignored.
    prefix : str
        Precedes the name in the message.

    Raises
    ------
    UserError
        At the first value that has a wrong type or is out of range.

    Examples
    --------
    >>> def encode(lam: Positive): ...
    >>> check_arguments(encode, {"lam": -1.0})
    Traceback (most recent call last):
    zsl.errors.UserError: lam=-1.0 is not accepted: it should be greater than 0.
    """
    hints = _hints(target)
    for key, value in values.items():
        if key in hints:
            check_value(hints[key], value, prefix + key)


def check_value(annotation: Any, value: Any, key: str) -> None:
    """Raise UserError unless ``value`` satisfies ``annotation``; nothing is converted, so ``"3"`` is not a number."""
    from pydantic import ValidationError

    adapter = _adapter(annotation)
    if adapter is None:
        return
    if isinstance(value, np.generic):
        value = value.item()
    try:
        adapter.validate_python(value, strict=True)
    except ValidationError as error:
        # A union reports one problem for each member, which together list what is accepted.
        problems = dict.fromkeys(e["msg"].removeprefix("Input should be ") for e in error.errors())
        none_too = " or null" if type(None) in typing.get_args(annotation) else ""
        accepted = " or ".join(p for p in problems if p != "None")
        raise UserError(f"{key}={value!r} is not accepted: it should be {accepted}{none_too}.") from None


@lru_cache(maxsize=512)
def _adapter(annotation: Any) -> Any:
    """The pydantic validator of an annotation, or None if pydantic does not know the type."""
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticSchemaGenerationError

    try:
        return TypeAdapter(annotation)
    except PydanticSchemaGenerationError:
        return None


def check_fields(instance: Any) -> None:
    """Check every field of a dataclass instance against its annotation; made for ``__post_init__``."""
    values = {f.name: getattr(instance, f.name) for f in dataclasses.fields(instance) if f.init}
    check_arguments(type(instance), values, prefix=f"{type(instance).__name__}: ")


def as_matrix(
    X: Any, name: str, *, n_columns: int | None = None, n_rows: int | None = None, finite: bool = True
) -> Array:
    """Convert to a finite two-dimensional float array; float32 is kept, anything else becomes float64.

    Parameters
    ----------
    X : array-like
    name : str
        Name of the argument, for the message.
    n_columns, n_rows : int, optional
        Expected shape.
    finite : bool
        ``False`` skips the check for NaN and inf.

    Returns
    -------
    (n_rows, n_columns) float32 or float64

    Raises
    ------
    UserError
        If X is not two-dimensional, has another shape than expected, is empty, or holds NaN, inf, masked entries or
        anything but real numbers.

    Examples
    --------
    >>> as_matrix([[1, 2]], "X")
    array([[1., 2.]])
    """
    check_no_mask(X, name)
    try:
        X = np.asarray(X)
    except ValueError:
        raise UserError(f"{name} has rows of different lengths; a matrix with one sample per row is needed.") from None
    check_real(X.dtype, name)
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
        check_finite(X[start : start + _BLOCK], name, start)
    return X


def row_squares(X: Array) -> Array:
    """(n,) squared lengths of the rows of X (n, p); inf where they overflow."""
    with np.errstate(over="ignore", invalid="ignore"):
        squares: Array = np.einsum("ij,ij->i", X, X)
    return squares


def check_no_overflow(X: Array, name: str, dtype: DTypeLike | None = None, *, allow_tiny: bool = False) -> None:
    """Refuse a matrix that is not finite, or whose squares overflow or underflow.

    Every model forms sums of squares. An overflow would make all scores infinite or equal, an underflow would make all
    distances zero, and neither raises an exception.

    Parameters
    ----------
    X : (n, p)
        A matrix of zeros is accepted.
    name : str
        Name of the argument, for the message.
    dtype : optional
        The type in which the squares are computed; by default that of X.
    allow_tiny : bool
        Whether squares may underflow.

    Raises
    ------
    UserError
        If X holds NaN or inf, if the sum of squares may exceed the largest number of the type, or if the largest square
        is below the smallest normal number of the type.

    Examples
    --------
    >>> check_no_overflow(np.full((2, 2), 1e200), "X")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    zsl.errors.UserError: X is as large as 1e+200, whose squares overflow in float64; scale it to length 1 (...
    """
    dtype = np.dtype(dtype or X.dtype)
    tiny, huge = float(np.finfo(dtype).tiny), float(np.finfo(dtype).max)
    # One pass shows that nothing is wrong; only suspicious matrices need the exact limits below.
    if X.shape[1] * tiny <= float(row_squares(X).max()) <= huge / len(X):
        return
    as_matrix(X, name)
    largest = float(np.abs(X).max())
    too_large = largest > np.sqrt(huge / X.size)
    if too_large or (not allow_tiny and 0 < largest < np.sqrt(tiny)):
        size, how = ("large", "overflow") if too_large else ("small", "underflow")
        raise UserError(
            f"{name} is as {size} as {largest:.0e}, whose squares {how} in {dtype}; "
            "scale it to length 1 (feature.l2=true, dataset.semantics.l2=true)."
        )


def check_no_mask(values: Any, name: str, remedy: str = "fill or impute them") -> None:
    """Raise UserError if entries are masked: NumPy would take what lies under the mask."""
    if np.ma.is_masked(values):
        raise UserError(f"{name} has {int(np.ma.getmaskarray(values).sum())} masked entries; {remedy}.")


def check_real(dtype: np.dtype[Any], name: str) -> None:
    """Raise UserError unless ``dtype`` is that of real numbers."""
    if dtype.kind == "c":
        raise UserError(f"{name} holds complex values; real numbers are needed.")
    if dtype.kind not in "biufO":
        # NumPy would convert dates, durations and text to numbers.
        raise UserError(f"{name} holds {dtype} values; numbers are needed.")


def check_finite(X: Array, name: str, first_row: int) -> None:
    """Raise UserError if X holds NaN or inf; the message counts rows from ``first_row``."""
    if not np.isfinite(X).all():
        row, column = np.argwhere(~np.isfinite(X))[0]
        raise UserError(
            f"{name} holds {X[row, column]} in row {first_row + row}, column {column}; remove or impute it."
        )
