# numba's functions are typed by their arguments.
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
"""Duality gaps of a code inside the kernels.

All values are those of ``1/2 |x - aD|^2 + t |a|_1`` with ``t = lam p / 2r``, which is ``p/2`` times Eq. (5).
"""

from __future__ import annotations

import numpy as np

from zsl.sparse.kernels.compiled import njit
from zsl.sparse.kernels.factor import FAST


@njit(fastmath=FAST, error_model="numpy")
def gap_of_residual(rr, rx, t, steepest, l1):
    """Duality gap of a code with residual R: the dual point is the best feasible multiple of R.

    ``rr`` is ``|R|^2``, ``rx`` is ``<R, x>``, ``steepest`` is ``max_j |<R, d_j>|`` and ``l1`` is ``|a|_1``.
    """
    limit = t / steepest if steepest > 0 else np.inf
    s = rx / rr if rr > 0 else 0.0
    s = min(max(s, -limit), limit)
    return max(0.5 * rr + t * l1 - s * rx + 0.5 * s * s * rr, 0.0)


@njit(fastmath=FAST, error_model="numpy")
def gap_of_support(xx, c, q, t, S, a, k, most):
    """Duality gap and objective (without ``1/2 |x|^2``) of a code with ``k`` entries ``a`` at the atoms ``S``.

    ``xx`` is ``|x|^2``, ``c`` are the correlations of x and ``q`` those of the residual, ``most`` is their largest
    size.
    """
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


@njit(fastmath=FAST, error_model="numpy")
def certified_gap(x, D, norms, t, S, a, k, q, error, R, is_done):
    """Duality gap in float64, computed from the residual itself.

    The entries of ``q`` have an error of at most ``error * |d_j| (|x| + sum |a_i| |d_i|)``, so only atoms that can be
    the steepest are multiplied with the residual again.
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
    # The atoms of the support are always among the steepest. They are visited last to first, because the atoms that the
    # loop above read last are still in the processor's cache.
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
