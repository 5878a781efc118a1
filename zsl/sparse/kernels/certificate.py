# numba's functions are typed by their arguments.
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
"""Duality gaps of the active set's codes, in units of ``p/2`` times those of Eq. (5)."""

from __future__ import annotations

import numpy as np
from numba import njit

from zsl.sparse.kernels.factor import FAST


@njit(cache=True, fastmath=FAST, error_model="numpy")
def gap_of_residual(rr, rx, t, steepest, l1):
    """Gap between a code of residual R, ``rr = |R|^2``, ``rx = <R, x>``, and the best feasible multiple of
    R."""
    limit = t / steepest if steepest > 0 else np.inf
    s = rx / rr if rr > 0 else 0.0
    s = min(max(s, -limit), limit)
    return max(0.5 * rr + t * l1 - s * rx + 0.5 * s * s * rr, 0.0)


@njit(cache=True, fastmath=FAST, error_model="numpy")
def gap_of_support(xx, c, q, t, S, a, k, most):
    """Duality gap and objective, both of the problem in the units of the module's docstring."""
    ac, aq, l1 = 0.0, 0.0, 0.0
    for i in range(k):
        j = S[i]
        v = np.float64(a[i])
        ac += v * c[j]
        aq += v * q[j]
        l1 += abs(v)
    return gap_of_residual(max(xx - ac - aq, 0.0), xx - ac, np.float64(t), np.float64(most), l1), t * l1 - 0.5 * (
        ac + aq
    )


@njit(cache=True, fastmath=FAST, error_model="numpy")
def certified_gap(x, D, norms, t, S, a, k, q, error, R, is_done):
    """Duality gap in float64 from the residual itself, in the units of the module's docstring.

    ``q`` is known to ``error * |d_j| (|x| + sum |a_i| |d_i|)``: only atoms that can be the steepest are
    multiplied out again.
    """
    r, p = D.shape
    for j in range(p):
        R[j] = x[j]
    i = 0
    while i + 4 <= k:
        d0, d1, d2, d3 = D[S[i]], D[S[i + 1]], D[S[i + 2]], D[S[i + 3]]
        a0, a1, a2, a3 = np.float64(a[i]), np.float64(a[i + 1]), np.float64(a[i + 2]), np.float64(a[i + 3])
        for j in range(p):
            R[j] -= (a0 * d0[j] + a1 * d1[j]) + (a2 * d2[j] + a3 * d3[j])
        i += 4
    while i < k:
        d0, a0 = D[S[i]], np.float64(a[i])
        for j in range(p):
            R[j] -= a0 * d0[j]
        i += 1
    i = k // 4 * 4
    for j in range(r):
        is_done[j] = False
    rr, rx, xx, l1, size = 0.0, 0.0, 0.0, 0.0, 0.0
    for j in range(p):
        rr += R[j] * R[j]
        rx += R[j] * x[j]
        xx += np.float64(x[j]) * x[j]
    for m in range(k):
        l1 += abs(np.float64(a[m]))
        size += abs(np.float64(a[m])) * norms[S[m]]
    error *= np.sqrt(xx) + size
    bound = 0.0
    for j in range(r):
        bound = max(bound, abs(q[j]) - error * norms[j])
    # The support last to first: what was read last above is still in cache. It is always among the steepest.
    steepest = 0.0
    while i >= 4:
        i -= 4
        d0, d1, d2, d3 = D[S[i]], D[S[i + 1]], D[S[i + 2]], D[S[i + 3]]
        t0, t1, t2, t3 = 0.0, 0.0, 0.0, 0.0
        for m in range(p):
            t0 += R[m] * d0[m]
            t1 += R[m] * d1[m]
            t2 += R[m] * d2[m]
            t3 += R[m] * d3[m]
        steepest = max(steepest, max(max(abs(t0), abs(t1)), max(abs(t2), abs(t3))))
        for m in range(i, i + 4):
            is_done[S[m]] = True
    for j in range(r):
        if abs(q[j]) + error * norms[j] >= bound and not is_done[j]:
            d0 = D[j]
            total = 0.0
            for m in range(p):
                total += R[m] * d0[m]
            steepest = max(steepest, abs(total))
    return gap_of_residual(rr, rx, np.float64(t), steepest, l1)
