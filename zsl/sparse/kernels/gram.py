# numba's functions are typed by their arguments.
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
"""The active set over many rows: one Gram matrix of all atoms, then every row on its own, in parallel.

numba's cache notices a change to this file only. After a change to the kernels that this file calls (``search``,
``factor``, ``certificate``) run ``make clean``, or the old machine code goes on running.
"""

from __future__ import annotations

import numba
import numpy as np
from numba import prange

from zsl.checks import Array
from zsl.sparse.kernels.certificate import certified_gap
from zsl.sparse.kernels.compiled import njit
from zsl.sparse.kernels.factor import PAD
from zsl.sparse.kernels.products import gram, product
from zsl.sparse.kernels.search import solve_row, workspace
from zsl.sparse.problem import largest_penalty

# Rows whose correlations with the atoms are held at once.
_BLOCK = 8192


def _solve_rows(X, D, G, C, xx, t, exact_t, tol, max_iter, floor, error, A, gap, rounds, n_threads):
    """Write the codes of all rows to ``A``; thread ``w`` of ``n_threads`` takes every ``n_threads``-th row.

    The search uses the penalty ``t`` in its own dtype, the certificate ``exact_t`` in float64. The work space is
    allocated once, before the parallel loop.
    """
    n, r = C.shape
    width = r + 3 * PAD
    floats = np.empty((n_threads, 10, width), C.dtype)
    ints = np.empty((n_threads, 3, width), np.int64)
    counts = np.empty((n_threads, 64), np.int64)
    flags = np.empty((n_threads, 2, width), np.bool_)
    U = np.empty((n_threads, width, width), C.dtype)
    residual = np.empty((n_threads, D.shape[1]), np.float64)
    norms = np.empty(r, np.float64)
    for j in range(r):
        norms[j] = np.sqrt(G[j, j])
    for w in prange(n_threads):
        code, work = floats[w, 9, :r], workspace(floats[w], ints[w], flags[w], U[w], counts[w], r)
        for i in range(w, n, n_threads):
            for j in range(r):
                code[j] = A[i, j]
            rounds[i], k, _ = solve_row(G, C[i], xx[i], D.shape[1], t, tol * xx[i] / 2, max_iter, floor, code, work)
            gap[i] = certified_gap(X[i], D, norms, exact_t, work.S, work.a, k, work.q, error, residual[w], work.gone)
            for j in range(r):
                A[i, j] = code[j]


_solve_rows_parallel = njit(parallel=True)(_solve_rows)
# Starting a parallel region costs more than a single row does.
_solve_rows_serial = njit()(_solve_rows)


def _search_rows(G, C, xx, p, t, tol, max_iter, floor, A, gap, n_threads):
    """Write the codes of all rows to ``A``, and their gaps, which are estimated from products and not certified."""
    n, r = C.shape
    width = r + 3 * PAD
    floats = np.empty((n_threads, 9, width), C.dtype)
    ints = np.empty((n_threads, 3, width), np.int64)
    counts = np.empty((n_threads, 64), np.int64)
    flags = np.empty((n_threads, 2, width), np.bool_)
    U = np.empty((n_threads, width, width), C.dtype)
    for w in prange(n_threads):
        work = workspace(floats[w], ints[w], flags[w], U[w], counts[w], r)
        for i in range(w, n, n_threads):
            _, _, gap[i] = solve_row(G, C[i], xx[i], p, t, tol * xx[i] / 2, max_iter, floor, A[i], work)


_search_rows_parallel = njit(parallel=True)(_search_rows)
_search_rows_serial = njit()(_search_rows)


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
    n_threads = min(numba.get_num_threads(), len(C))
    run = _search_rows_serial if n_threads == 1 else _search_rows_parallel
    run(G, C, xx, p, t, tol, max_iter, 64 * float(np.finfo(np.float64).eps), A, gap, n_threads)
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
        n_threads = min(numba.get_num_threads(), len(C))
        (_solve_rows_serial if n_threads == 1 else _solve_rows_parallel)(
            X[rows], D, G, C, xx[rows], dtype(min(t, largest_penalty(dtype))), t, aim, max_iter, dtype(64 * eps), error,
            A[rows], gap[rows], rounds[rows], n_threads,
        )  # fmt: skip
    return np.maximum(gap, 0.0) * (2 / p), int(rounds.max())
