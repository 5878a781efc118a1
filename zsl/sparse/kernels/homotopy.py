# numba's functions are typed by their arguments.
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
r"""Homotopy: follow the solution from lambda_max down to lambda (LARS with sign changes).

On a support S with signs s the solution is linear in the penalty t: :math:`a_S = G_{SS}^{-1}(c_S - t s)`. The
path has a kink wherever an atom enters or leaves; the algorithm goes from kink to kink.
"""

from __future__ import annotations

import numpy as np

from zsl.checks import Array
from zsl.sparse.kernels.compiled import njit
from zsl.sparse.kernels.factor import FAST, PAD, append, backward, forward, remove
from zsl.sparse.kernels.search import correlations
from zsl.sparse.kernels.threads import few_rows, spread

# Rows whose correlations with the atoms are held at once.
_BLOCK = 8192
# Kinks after which the correlations are computed from the code, because each step adds its rounding error.
_REFRESH = 32


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
        C, floor = X[rows] @ D.T, dtype(64 * np.finfo(dtype).eps)
        spread(_follow_rows, len(C), few_rows(r), G, C, dtype(lam * p / (2 * r)), max_iter, floor, A[rows], steps[rows])
    A[~np.isfinite(A).all(axis=1)] = 0
    return A, int(steps.max())


@njit(fastmath=FAST, error_model="numpy")
def _next_entry(q, u, t, longest, free, rates):
    """The step below ``longest`` at which ``|q + step u|`` of a free atom first equals ``t - step``, and that atom.

    The atom is -1 if no free atom gets there. ``free`` (r,) is 1 or 0, and ``rates`` (r,) is work space.
    """
    tiny = longest * 1e-30
    # One over each step is computed, which needs no branch, so that the loop becomes vector instructions.
    for j in range(len(q)):
        rates[j] = max((1 + u[j]) / max(t - q[j], tiny), (1 - u[j]) / max(t + q[j], tiny)) * free[j]
    most, enter = 1 / longest, -1
    for j in range(len(q)):
        if rates[j] > most:
            most, enter = rates[j], j
    return 1 / most if enter >= 0 else longest, enter


@njit(fastmath=FAST, error_model="numpy")
def _next_exit(a, v, s, k, longest):
    """The step below ``longest`` at which a value ``a + step v`` first loses its sign s, and its place, or -1."""
    tiny = longest * 1e-30
    most, leave = 1 / longest, -1
    for i in range(k):
        rate = -v[i] * s[i] / max(a[i] * s[i], tiny)
        if rate > most:
            most, leave = rate, i
    return 1 / most if leave >= 0 else longest, leave


@njit(fastmath=FAST, error_model="numpy")
def _follow(G, c, target, max_iter, floor, code, floats, S, is_in, gone, U):
    """Write the code at penalty ``target`` to ``code`` and return the number of kinks; the rest is work space.

    An atom that depends on the support when it would enter is left out. That is exact for a duplicate; for other atoms
    the caller sees the error in the gap.
    """
    r = len(c)
    q, u, zero, free, rates = floats[0, :r], floats[1, :r], floats[2, :r], floats[3, :r], floats[4, :r]
    s, a, v, y, w, d, inverse = floats[5], floats[6], floats[7], floats[8], floats[9], floats[10], floats[11]
    t, k, steps, enter, left = c[0] * 0, 0, 0, -1, -1
    for j in range(r):
        code[j], zero[j], is_in[j], q[j] = 0, 0, False, c[j]
        free[j] = 1 if G[j, j] > 0 else 0
        if abs(q[j]) * free[j] > t:
            t, enter = abs(q[j]), j
    while t > target and steps < max_iter:
        if enter >= 0:
            S[k], a[k], s[k] = enter, 0, 1 if q[enter] > 0 else -1
            append(G, S, k, k + 1, U, d, inverse, floor)
            free[enter] = 0
            # The column of an atom that depends on others is zero in the factor, and its row is not read again.
            if inverse[k] > 0:
                is_in[enter] = True
                y[k] = s[k]
                for i in range(k):
                    y[k] -= U[i, k] * y[i]
                y[k] *= inverse[k]
                k += 1
        if k == 0:
            break
        # v changes the values, and u the correlations, as the penalty falls by one.
        for i in range(k):
            v[i] = y[i]
        backward(U, inverse, k, v)
        correlations(G, zero, S, v, k, u)
        step, enter = _next_entry(q, u, t, t - target, free, rates)
        step, leave = _next_exit(a, v, s, k, step)
        steps += 1
        t -= step
        for i in range(k):
            a[i] += step * v[i]
        for j in range(r):
            q[j] += step * u[j]
        if left >= 0:
            free[left] = 1
            left = -1
        if leave >= 0:
            # Its correlation is as large as the penalty, so that this atom would enter again at once.
            enter, left = -1, S[leave]
            for i in range(k):
                gone[i] = i == leave
            k, right = remove(gone, S, s, a, v, k, U, d, inverse, w, is_in)
            append(G, S, right, k, U, d, inverse, floor)
            for i in range(k):
                y[i] = s[i]
            forward(U, inverse, k, y)
        elif enter < 0:
            t = target
        if steps % _REFRESH == 0:
            correlations(G, c, S, a, k, q)
    for i in range(k):
        code[S[i]] = a[i]
    return steps


@njit(nogil=True)
def _follow_rows(first, step, G, C, target, max_iter, floor, A, kinks):
    n, r = C.shape
    width = r + 3 * PAD
    floats, flags = np.empty((12, width), C.dtype), np.empty((2, width), np.bool_)
    S, U = np.empty(width, np.int64), np.empty((width, width), C.dtype)
    for i in range(first, n, step):
        kinks[i] = _follow(G, C[i], target, max_iter, floor, A[i], floats, S, flags[0], flags[1], U)
