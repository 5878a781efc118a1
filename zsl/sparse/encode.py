"""One function in front of every LASSO solver."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache
from typing import Protocol

import numpy as np
from numpy.typing import DTypeLike

from zsl.checks import Array, Count, NonNegative, Positive, as_matrix, check_arguments, need_small, row_squares
from zsl.errors import UserError
from zsl.sparse.kernels.products import need_threads
from zsl.sparse.problem import Codes, largest_penalty

# Counters of rounds have at least 32 bits.
_MOST_ROUNDS = 2**31 - 1


class Encoder(Protocol):
    """A solver with its settings bound: what models are given (``conf/solver/*.yaml``)."""

    def __call__(self, X: Array, D: Array, lam: float, *, init: Array | None = None) -> Codes: ...


def sparse_encode(
    X: Array,
    D: Array,
    lam: NonNegative,
    *,
    solver: str | Callable[..., Codes] = "active_set",
    init: Array | None = None,
    tol: Positive = 1e-6,
    max_iter: Count = 10_000,
) -> Codes:
    r"""Sparse codes of every row of ``X``: ``min_a 1/p |x - a D|^2 + lam/r |a|_1`` (Eq. (5), ``eq:attrAgn``).

    Parameters
    ----------
    X : (n, p)
        Samples, one per row; float32 or float64, which is the precision of the result.
    D : (r, p)
        Dictionary, one atom per row: the transpose of the paper's ``D_x``.
    lam : float >= 0
        The paper's lambda, before the ``1/r``. At 0, least squares, the codes are right but the gap is no use: no
        residual is orthogonal to every atom but for rounding, and the bound is then the data term itself.
    solver : name or callable
        A module of ``zsl.sparse.solvers``, or a function of that signature.
    init : (n, r), optional
        Codes to start from (a warm start); zeros if absent. Not modified; ``lars`` has no use for them.
    tol : float > 0
        Every row stops once its duality gap is at most ``tol * |x|^2 / p``, or where rounding allows no better: the
        gap then says so. It is computed in double precision from the residual, and can be off by about ``1e-16``
        of ``(|x| + sum_j |a_j| |d_j|)^2 / p``.
    max_iter : int >= 1
        Iterations after which a row is given up; its gap then says how far it is.

    Returns
    -------
    Codes
        ``A`` (n, r), ``gap`` (n,), ``n_iter``.

    Raises
    ------
    UserError
        On an unknown solver, wrong shapes, NaN or inf, ``lam < 0``; in a process that was forked while threads ran.
    """
    need_threads()
    check_arguments(sparse_encode, {"lam": lam, "tol": tol, "max_iter": max_iter})
    X = as_matrix(X, "X", finite=False)
    need_small(X, "X")
    solve = solver if callable(solver) else _solver(solver)
    D = as_matrix(D, "D", n_columns=X.shape[1], finite=False)
    # Some solvers look for NaN and inf in D at less than the price of a pass over it.
    checks = getattr(solve, "checks_dictionary", None)
    if not (checks and checks(len(X), len(D))):
        need_small(D, "D", X.dtype)
    X, D = np.ascontiguousarray(X), np.ascontiguousarray(_in_type(D, "D", X.dtype))
    if init is not None:
        init = _usable(as_matrix(init, "init", n_rows=len(X), n_columns=len(D), finite=False), X.dtype)
    lam = min(float(lam), largest_penalty(X.dtype))
    codes = solve(X, D, lam, init=init, tol=float(tol), max_iter=min(int(max_iter), _MOST_ROUNDS))
    if not isinstance(codes, Codes):
        raise UserError(f"solver={solver} returned {type(codes).__name__}; zsl.sparse.Codes(A, gap, n_iter) is needed.")
    return codes


def _in_type(M: Array, name: str, dtype: DTypeLike) -> Array:
    if M.dtype == dtype:
        return M
    with np.errstate(over="ignore"):
        out: Array = M.astype(dtype)
    need_small(out, name)
    return out


def _usable(init: Array, dtype: DTypeLike) -> Array:
    """A start in the type of the samples; rows whose squares overflow are none, and begin at zero."""
    with np.errstate(over="ignore"):
        out: Array = init.astype(dtype, copy=False)
    squares = row_squares(out)
    if not squares.max() < np.inf:
        as_matrix(init, "init")
        out = np.where(np.isfinite(squares)[:, None], out, 0)
    return out


@cache
def solver_names() -> list[str]:
    """The solvers that ``zsl.sparse`` has: the modules of ``zsl.sparse.solvers``."""
    from zsl.sparse import solvers

    return sorted(module.name for module in pkgutil.iter_modules(solvers.__path__))


def _solver(name: str) -> Callable[..., Codes]:
    if name not in solver_names():
        raise UserError(f"solver={name} does not exist; zsl.sparse has: {', '.join(solver_names())}.")
    return importlib.import_module(f"zsl.sparse.solvers.{name}").solve
