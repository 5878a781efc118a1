# numba's functions are typed by their arguments.
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
"""The active set over many rows: one Gram matrix of all atoms, then every row on its own, in parallel.

numba's cache notices a change to this file only. After a change to the kernels that this file calls (``search``,
``factor``, ``certificate``) run ``make clean``, or the old machine code goes on running.
"""

from __future__ import annotations

import numpy as np

from zsl.checks import Array
from zsl.sparse.kernels.certificate import certified_gap
from zsl.sparse.kernels.compiled import njit
from zsl.sparse.kernels.products import gram, product
from zsl.sparse.kernels.search import new_workspace, solve_row
from zsl.sparse.kernels.threads import few_rows, spread
from zsl.sparse.problem import largest_penalty

# Rows whose correlations with the atoms are held at once.
_BLOCK = 8192


@njit(nogil=True)
def _solve_rows(first, step, X, D, G, C, xx, t, exact_t, tol, max_iter, floor, error, A, gap, rounds):
    """Write the codes of every ``step``-th row to ``A``, and their certified gaps.

    The search uses the penalty ``t`` in its own dtype, the certificate ``exact_t`` in float64.
    """
    n, r = C.shape
    work, code = new_workspace(C), np.empty(r, C.dtype)
    residual, norms = np.empty(D.shape[1], np.float64), np.empty(r, np.float64)
    for j in range(r):
        norms[j] = np.sqrt(G[j, j])
    for i in range(first, n, step):
        for j in range(r):
            code[j] = A[i, j]
        rounds[i], k, _ = solve_row(G, C[i], xx[i], D.shape[1], t, tol * xx[i] / 2, max_iter, floor, code, work)
        gap[i] = certified_gap(X[i], D, norms, exact_t, work.S, work.a, k, work.q, error, residual, work.gone)
        for j in range(r):
            A[i, j] = code[j]


@njit(nogil=True)
def _search_rows(first, step, G, C, xx, p, t, tol, max_iter, floor, A, gap):
    """Write the codes of every ``step``-th row to ``A``, and their gaps, estimated from products and not certified."""
    work = new_workspace(C)
    for i in range(first, len(C), step):
        _, _, gap[i] = solve_row(G, C[i], xx[i], p, t, tol * xx[i] / 2, max_iter, floor, A[i], work)


def search(G: Array, C: Array, xx: Array, p: int, t: float, A: Array, tol: float, max_iter: int) -> Array:
    """Improve codes ``A`` (n, r) in place from products alone; return the gaps (n,) of ``1/2 |x - aD|^2 + t |a|_1``.

    Parameters
    ----------
    G : (r, r)
        ``D D'``, in float64, as everything else.
    C : (n, r)
        ``X D'``.
    xx : (n,)
        ``|x|^2``; a row stops once its gap is at most ``tol xx / 2``.
    p : int
        A support has at most so many atoms.
    t : float >= 0
    A : (n, r)
    tol : float > 0
    max_iter : int
    """
    gap = np.empty(len(C))
    floor = 64 * float(np.finfo(np.float64).eps)
    spread(_search_rows, len(C), few_rows(len(G)), G, C, xx, p, t, tol, max_iter, floor, A, gap)
    return gap


def solve_in(dtype: type, X: Array, D: Array, lam: float, A: Array, tol: float, max_iter: int) -> tuple[Array, int]:
    """Improve the codes ``A`` in place, in the arithmetic of ``dtype``; return their gaps (n,) and the rounds used."""
    r, p = D.shape
    Dw: Array = D.astype(dtype, copy=False)
    G = gram(Dw)
    xx = np.einsum("ij,ij->i", X, X, dtype=np.float64)
    gap, rounds = np.empty(len(X)), np.empty(len(X), np.int64)
    eps = float(np.finfo(dtype).eps)
    t = lam * p / (2 * r)
    # Bounds the rounding error of a sum of p products in any order that BLAS may choose.
    error = eps * (16 + p**0.5)
    # The search aims a little lower than tol, because the certificate may differ in the last digits.
    aim = 0.98 * tol
    for start in range(0, len(X), _BLOCK):
        rows = slice(start, start + _BLOCK)
        C = product(X[rows].astype(dtype, copy=False), Dw.T)
        spread(
            _solve_rows, len(C), few_rows(r), X[rows], D, G, C, xx[rows], dtype(min(t, largest_penalty(dtype))), t, aim,
            max_iter, dtype(64 * eps), error, A[rows], gap[rows], rounds[rows],
        )  # fmt: skip
    return np.maximum(gap, 0.0) * (2 / p), int(rounds.max())
