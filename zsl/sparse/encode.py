"""One function in front of every LASSO solver."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from functools import lru_cache
from typing import Protocol

import numpy as np

from zsl.checks import Array, Count, NonNegative, Positive, as_matrix, check_arguments
from zsl.errors import UserError
from zsl.sparse.lasso import Codes

# The modules of zsl.sparse that are no solvers.
_OTHER = {
    "lasso",
    "encode",
    "dictionary",
    "statistics",
    "learning",
    "checkpoint",
    "progress",
    "factor",
    "certificate",
    "search",
    "gram",
    "products",
    "few",
}


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
        The paper's lambda, before the ``1/r``.
    solver : name or callable
        A module of ``zsl.sparse`` with a ``solve`` function, or a function of that signature.
    init : (n, r), optional
        Codes to start from (a warm start); zeros if absent. Not modified.
    tol : float > 0
        Every row stops once its duality gap is at most ``tol * |x|^2 / p``.
    max_iter : int >= 1
        Iterations after which a row is given up; its gap then says how far it is.

    Returns
    -------
    Codes
        ``A`` (n, r), ``gap`` (n,), ``n_iter``.

    Raises
    ------
    UserError
        On an unknown solver, wrong shapes, NaN or inf, ``lam < 0``.
    """
    check_arguments(sparse_encode, {"lam": lam, "tol": tol, "max_iter": max_iter})
    X = as_matrix(X, "X")
    solve = solver if callable(solver) else _solver(solver)
    # Some solvers look for NaN and inf in D at less than the price of a pass over it.
    checks = getattr(solve, "checks_dictionary", None)
    D = as_matrix(D, "D", n_columns=X.shape[1], finite=not (checks and checks(len(X), len(D))))
    D = D.astype(X.dtype, copy=False)
    if init is not None:
        init = as_matrix(init, "init", n_rows=len(X), n_columns=len(D)).astype(X.dtype, copy=False)
    return solve(np.ascontiguousarray(X), np.ascontiguousarray(D), float(lam), init=init, tol=tol, max_iter=max_iter)


def solver_names() -> list[str]:
    """The solvers that ``zsl.sparse`` has: its modules that define ``solve``."""
    return list(_modules())


@lru_cache(maxsize=1)
def _modules() -> tuple[str, ...]:
    import zsl.sparse as package

    return tuple(sorted(m.name for m in pkgutil.iter_modules(package.__path__) if m.name not in _OTHER))


def _solver(name: str) -> Callable[..., Codes]:
    if name not in solver_names():
        raise UserError(f"solver={name} does not exist; zsl.sparse has: {', '.join(solver_names())}.")
    return importlib.import_module(f"zsl.sparse.{name}").solve
