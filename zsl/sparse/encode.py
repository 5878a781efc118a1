"""``sparse_encode``: one function that checks its arguments and calls any of the LASSO solvers."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike

from zsl.checks import Array, Count, NonNegative, Positive, as_matrix, check_arguments, check_no_overflow, row_squares
from zsl.errors import UserError
from zsl.sparse.chunks import by_rows, encode_chunks, is_chunked
from zsl.sparse.problem import Codes, largest_penalty

# The kernels count iterations in at least 32 bits.
_MOST_ITERATIONS = 2**31 - 1


class Encoder(Protocol):
    """Type of a solver with its settings bound, as models take it (``conf/solver/*.yaml``)."""

    def __call__(self, X: Array, D: Array, lam: float, *, init: Array | None = None) -> Codes:
        """Return the codes; a solver that also takes ``rough`` may end sooner where dictionaries are learned."""
        ...


def sparse_encode(
    X: Array,
    D: Array,
    lam: NonNegative,
    *,
    solver: str | Callable[..., Codes] = "auto",
    init: Array | None = None,
    tol: Positive = 1e-6,
    max_iter: Count = 10_000,
    rough: NonNegative = 0.0,
) -> Codes:
    r"""Sparse codes of every row of ``X``: ``min_a 1/p |x - a D|^2 + lam/r |a|_1`` (Eq. (5), ``eq:attrAgn``).

    Parameters
    ----------
    X : (n, p)
        Samples, one per row; float32 or float64, which is the precision of the result. Of a ``dask.array`` each chunk
        of rows is coded by itself, and the three results are lazy: ``A`` and ``gap`` are dask arrays, the chunks of
        ``A`` CSR arrays.
    D : (r, p)
        Dictionary, one atom per row: the transpose of the paper's ``D_x``.
    lam : float >= 0
        The paper's lambda, before the ``1/r``. At 0 the problem is least squares: the codes are right, but the gap is
        useless, because rounding keeps the residual from being orthogonal to every atom and the gap is then the data
        term itself.
    solver : name or callable
        The name of a module in ``zsl.sparse.solvers``, or a function with the signature of their ``solve``.
    init : (n, r), optional
        Codes to start from (a warm start); zeros if absent. ``init`` is not modified; ``lars`` ignores it.
    tol : float > 0
        A row stops once its duality gap is at most ``tol * |x|^2 / p``, or where rounding allows no smaller gap. The
        gap is computed from the residual in double precision, with an error of about ``1e-16`` times
        ``(|x| + sum_j |a_j| |d_j|)^2 / p``.
    rough : float >= 0
        A tolerance that may replace a smaller ``tol``, for codes that are a step on the way to others, as in dictionary
        learning. ``"torch"`` uses it, and ``"auto"`` where codes have so many non-zeros that exact ones take long.
    max_iter : int >= 1
        A row also stops after this many iterations; its gap then shows how far it is from the minimum.

    Returns
    -------
    Codes
        ``A`` (n, r), ``gap`` (n,), ``n_iter``.

    Raises
    ------
    UserError
        For an unknown solver, wrong shapes, NaN or inf, or ``lam < 0``.

    Examples
    --------
    >>> import numpy as np
    >>> codes = sparse_encode(np.array([[3.0, 0.2]]), np.eye(2), lam=1.0)
    >>> codes.A, bool(codes.gap.max() < 1e-6)
    (array([[2.5, 0. ]]), True)
    """
    check_arguments(sparse_encode, {"lam": lam, "tol": tol, "max_iter": max_iter, "rough": rough})
    if is_chunked(X):
        settings = {"lam": lam, "solver": solver, "tol": tol, "max_iter": max_iter, "rough": rough}
        X = by_rows(X, "X")
        return Codes(*encode_chunks(partial(_encode_chunk, settings), X, as_matrix(D, "D", n_columns=X.shape[1]), init))
    X = as_matrix(X, "X", finite=False)
    check_no_overflow(X, "X", allow_tiny=True)
    solve = solver if callable(solver) else _solver(solver)
    D = as_matrix(D, "D", n_columns=X.shape[1], finite=False)
    # These two check D themselves: for a small batch the products of D with a sample show NaN and inf at no cost.
    if solver not in ("auto", "active_set") or D.dtype != X.dtype:
        check_no_overflow(D, "D", X.dtype, allow_tiny=True)
    X, D = np.ascontiguousarray(X), np.ascontiguousarray(D, X.dtype)
    if init is not None:
        init = _usable_init(as_matrix(init, "init", n_rows=len(X), n_columns=len(D), finite=False), X.dtype)
    lam = min(float(lam), largest_penalty(X.dtype))
    limits = {"tol": float(tol), "max_iter": min(int(max_iter), _MOST_ITERATIONS)}
    codes = solve(X, D, lam, init=init, **limits, **_hint(solve, rough=float(rough)))
    if not isinstance(codes, Codes):
        raise UserError(f"solver={solver} returned {type(codes).__name__}; zsl.sparse.Codes(A, gap, n_iter) is needed.")
    return codes


@dataclass(frozen=True)
class Coding:
    """A solver at one penalty: ``coding(X, D, init, rough)`` are the codes of the rows of X."""

    solve: Encoder
    lam: float

    def __call__(self, X: Array, D: Array, init: Array | None = None, rough: float = 0.0) -> Codes:
        """The codes; a solver that takes the argument ``rough`` is told that rough codes will do."""
        return self.solve(X, D, self.lam, init=init, **_hint(self.solve, rough=rough))


def _hint(solve: Callable[..., Codes], **arguments: Any) -> dict[str, Any]:
    """Those of the arguments that are given and that a solver has."""
    return {name: value for name, value in arguments.items() if value and name in inspect.signature(solve).parameters}


def _encode_chunk(settings: dict[str, Any], X: Array, D: Array, init: Array | None) -> Codes:
    return sparse_encode(X, D, init=init, **settings)


def _usable_init(init: Array, dtype: DTypeLike) -> Array:
    """The warm start in the dtype of X; rows whose squares overflow are reset to zero."""
    with np.errstate(over="ignore"):
        out: Array = init.astype(dtype, copy=False)
    squares = row_squares(out)
    if not squares.max() < np.inf:
        as_matrix(init, "init")
        out = np.where(np.isfinite(squares)[:, None], out, 0)
    return out


@cache
def solver_names() -> list[str]:
    """Names of the available solvers, which are the modules of ``zsl.sparse.solvers``.

    Returns
    -------
    list of str

    Examples
    --------
    >>> solver_names()
    ['active_set', 'admm', 'auto', 'coordinate', 'fista', 'lars', 'sklearn', 'torch']
    """
    from zsl.sparse import solvers

    return sorted(module.name for module in pkgutil.iter_modules(solvers.__path__))


def _solver(name: str) -> Callable[..., Codes]:
    if name not in solver_names():
        raise UserError(f"solver={name} does not exist; zsl.sparse has: {', '.join(solver_names())}.")
    return importlib.import_module(f"zsl.sparse.solvers.{name}").solve
