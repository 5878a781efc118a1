# numba's functions are typed by their arguments.
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
"""Cyclic coordinate descent on the Gram matrix: simple and reliable, but slow if atoms resemble each other."""

from __future__ import annotations

import numpy as np

from zsl.checks import Array
from zsl.sparse.kernels.certificate import gap_of_support
from zsl.sparse.kernels.compiled import njit
from zsl.sparse.kernels.search import correlations, largest
from zsl.sparse.kernels.threads import few_rows, spread
from zsl.sparse.problem import Codes, duality_gap

# Rows whose correlations with the atoms are held at once.
_BLOCK = 8192
# Sweeps over the non-zeros between two sweeps over all atoms; the gap is computed before every full sweep.
_INNER = 8


@njit(fastmath={"reassoc", "contract", "nsz", "arcp"}, error_model="numpy")
def _update(j, G, t, code, q):
    """Minimise over coordinate ``j`` and keep ``q = c - code G`` up to date."""
    g = G[j]
    h, old = g[j], code[j]
    if not h > 0:
        code[j] = 0
        return
    pull = q[j] + h * old
    if pull > t:
        new = (pull - t) / h
    elif pull < -t:
        new = (pull + t) / h
    else:
        new = 0 * t
    change = new - old
    if change != 0:
        code[j] = new
        for m in range(len(q)):
            q[m] -= change * g[m]


@njit(error_model="numpy")
def _solve_row(G, c, xx, t, tol, max_iter, code, q, S, a):
    """Improve the code of one row in place; return the sweeps used. ``q``, ``S`` and ``a`` are work space."""
    r = len(c)
    sweeps = 0
    while True:
        k = 0
        for j in range(r):
            if code[j] != 0:
                S[k], a[k] = j, code[j]
                k += 1
        # The correlations are computed anew, because rounding errors add up over the updates.
        correlations(G, c, S, a, k, q)
        gap, _ = gap_of_support(xx, c, q, t, S, a, k, largest(q))
        if gap <= tol or sweeps >= max_iter:
            return sweeps
        for j in range(r):
            _update(j, G, t, code, q)
        sweeps += 1
        for _ in range(_INNER):
            for j in range(r):
                if code[j] != 0:
                    _update(j, G, t, code, q)
            sweeps += 1


@njit(nogil=True)
def _solve_rows(first, step, G, C, xx, t, tol, max_iter, A, sweeps):
    n, r = C.shape
    q, a, S = np.empty(r, C.dtype), np.empty(r, C.dtype), np.empty(r, np.int64)
    for i in range(first, n, step):
        sweeps[i] = _solve_row(G, C[i], xx[i], t, tol * xx[i] / 2, max_iter, A[i], q, S, a)


def solve(X: Array, D: Array, lam: float, *, init: Array | None, tol: float, max_iter: int) -> Codes:
    """Coordinate descent, mostly over the non-zeros; arguments and result as in :func:`zsl.sparse.sparse_encode`.

    ``max_iter`` counts sweeps.
    """
    r, p = D.shape
    A = np.zeros((len(X), r), X.dtype) if init is None else init.copy()
    G = D @ D.T
    xx = np.einsum("ij,ij->i", X, X, dtype=np.float64)
    sweeps = np.zeros(len(X), np.int64)
    for start in range(0, len(X), _BLOCK):
        rows = slice(start, start + _BLOCK)
        C, t = X[rows] @ D.T, X.dtype.type(lam * p / (2 * r))
        spread(_solve_rows, len(C), few_rows(r), G, C, xx[rows], t, 0.98 * tol, max_iter, A[rows], sweeps[rows])
    return Codes(A, duality_gap(X, D, A, lam), int(sweeps.max()))
