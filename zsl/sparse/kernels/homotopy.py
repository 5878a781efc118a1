# numba's functions are typed by their arguments.
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
r"""Homotopy: follow the solution from lambda_max down to lambda (LARS with sign changes).

On a support S with signs s the solution is linear in the penalty t: :math:`a_S = G_{SS}^{-1}(c_S - t s)`. The
path has a kink wherever an atom enters or leaves; the algorithm goes from kink to kink.
"""

from __future__ import annotations

import numba
import numpy as np
from numba import prange

from zsl.checks import Array
from zsl.sparse.kernels.compiled import njit
from zsl.sparse.kernels.factor import append, remove, solve_factored
from zsl.sparse.kernels.search import correlations, largest

# Rows whose correlations with the atoms are held at once.
_BLOCK = 8192


def follow(X: Array, D: Array, lam: float, max_iter: int) -> tuple[Array, int]:
    """Codes (n, r) at the end of each row's path, and the largest number of kinks on a path.

    If atoms depend on each other, the path may branch, and rounding errors add up along the path; the caller sees the
    error in the duality gap. A path whose numbers are no longer finite gives the zero code.
    """
    r, p = D.shape
    G = D @ D.T
    dtype = X.dtype.type
    A = np.zeros((len(X), r), X.dtype)
    steps = np.zeros(len(X), np.int64)
    for start in range(0, len(X), _BLOCK):
        rows = slice(start, start + _BLOCK)
        _follow_rows(
            G, X[rows] @ D.T, dtype(lam * p / (2 * r)), max_iter, dtype(64 * np.finfo(dtype).eps),
            A[rows], steps[rows], numba.get_num_threads(),
        )  # fmt: skip
    A[~np.isfinite(A).all(axis=1)] = 0
    return A, int(steps.max())


@njit(error_model="numpy")
def _follow(G, c, target, max_iter, floor, code, q, u, zero, S, s, a, v, w, is_in, gone, banned, U, d, inverse):
    """Write the code at penalty ``target`` to ``code`` and return the number of kinks; the rest is work space.

    An atom that depends on the support when it would enter is left out. That is exact for a duplicate; for other atoms
    the caller sees the error in the gap.
    """
    r = len(c)
    for j in range(r):
        code[j], zero[j], is_in[j], banned[j] = 0, 0, False, not G[j, j] > 0
    correlations(G, c, S, a, 0, q)
    t = largest(q)
    k, steps, enter = 0, 0, -1
    for j in range(r):
        if abs(q[j]) == t and not banned[j]:
            enter = j
    left = -1
    while t > target and steps < max_iter:
        if enter >= 0:
            S[k], a[k], s[k] = enter, 0, 1 if q[enter] > 0 else -1
            append(G, S, k, k + 1, U, d, inverse, floor)
            if inverse[k] == 0:
                banned[enter] = True
                # The column of this atom in the factor is zero, and its row is not read again.
            else:
                is_in[enter] = True
                k += 1
        if k == 0:
            break
        for i in range(k):
            v[i] = s[i]
        solve_factored(U, inverse, k, v)
        # u = v G_S: the rate at which the correlations fall.
        correlations(G, zero, S, v, k, u)
        step, enter, leave = t - target, -1, -1
        for i in range(k):
            if v[i] * s[i] < 0 and -a[i] / v[i] < step:
                step, leave = max(-a[i] / v[i], 0 * step), i
        for j in range(r):
            if is_in[j] or banned[j] or j == left:
                continue
            # u has the opposite sign: q falls by step * (-u).
            rise, fall = 1 + u[j], 1 - u[j]
            if rise > 0 and (t - q[j]) / rise < step:
                step, enter, leave = max((t - q[j]) / rise, 0 * step), j, -1
            if fall > 0 and (t + q[j]) / fall < step:
                step, enter, leave = max((t + q[j]) / fall, 0 * step), j, -1
        for i in range(k):
            a[i] += step * v[i]
        t -= step
        left = -1
        if leave >= 0:
            left = S[leave]
            for i in range(k):
                gone[i] = i == leave
            k, right = remove(gone, S, s, a, v, k, U, d, inverse, w, is_in)
            append(G, S, right, k, U, d, inverse, floor)
        correlations(G, c, S, a, k, q)
        steps += 1
        if enter < 0 and leave < 0:
            break
    for i in range(k):
        code[S[i]] = a[i]
    return steps


@njit(parallel=True)
def _follow_rows(G, C, target, max_iter, floor, A, steps, n_threads):
    n, r = C.shape
    width = r + 48
    floats = np.empty((n_threads, 9, width), C.dtype)
    flags = np.empty((n_threads, 3, width), np.bool_)
    S = np.empty((n_threads, width), np.int64)
    U = np.empty((n_threads, width, width), C.dtype)
    for w in prange(n_threads):
        f = floats[w]
        for i in range(w, n, n_threads):
            steps[i] = _follow(
                G, C[i], target, max_iter, floor, A[i], f[0, :r], f[1, :r], f[2, :r], S[w], f[3], f[4],
                f[5], f[6], flags[w, 0], flags[w, 1], flags[w, 2], U[w], f[7], f[8],
            )  # fmt: skip
