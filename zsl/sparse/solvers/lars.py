"""Exact codes by homotopy (LARS), see :mod:`zsl.sparse.kernels.homotopy`."""

from __future__ import annotations

import numpy as np

from zsl.checks import Array
from zsl.sparse.kernels.homotopy import follow
from zsl.sparse.problem import Codes, duality_gap, scale
from zsl.sparse.solvers import active_set


def solve(X: Array, D: Array, lam: float, *, init: Array | None, tol: float, max_iter: int) -> Codes:
    """Homotopy from the zero code, whatever ``init``; arguments and result as in :func:`zsl.sparse.sparse_encode`.

    If a row's gap is above ``tol`` at the end, :mod:`zsl.sparse.solvers.active_set` continues from its code.
    """
    A, n_iter = follow(X, D, lam, max_iter)
    gap = duality_gap(X, D, A, lam)
    missed = np.flatnonzero(~(gap <= tol * scale(X)))
    if missed.size and n_iter < max_iter:
        polished = active_set.solve(X[missed], D, lam, init=A[missed], tol=tol, max_iter=max_iter)
        A[missed], gap[missed] = polished.A, polished.gap
        n_iter += polished.n_iter
    return Codes(A, gap, n_iter)
