r"""Exact codes by a block active set: the default solver, and the fast one.

With the Gram matrix :math:`G = DD^T`, :math:`c = xD^T` and :math:`t = \lambda p / 2r`, Eq. (5) is ``p/2`` times
smaller than

.. math:: \min_a \; \tfrac12 aGa^T - ca^T + t \|a\|_1 ,

whose solution on a support S with signs s solves :math:`G_{SS}\, a_S = c_S - t s`. Each row keeps S, s and a
Cholesky factor of :math:`G_{SS}`. One round

1. computes the correlations :math:`q = c - aG`, and from them the duality gap: stop if it is small enough;
2. lets many of the atoms with ``|q| > t`` enter at once, at most a share of the support, largest first;
3. solves on S; atoms whose sign came out wrong leave, all at once, until every sign is right.

The factor is updated, never begun anew: only what follows the first column that changed is computed again.
Few rounds are needed (2 or 3 for 20 non-zeros, 7 for 165), since nothing is followed along a path and no
coordinate is visited twice. Letting many atoms in and out at once may, in theory, not lower the objective. It is
therefore checked, and a round that failed is replaced by *careful* ones that stop at the first sign change,
a descent method that ends. A warm start begins with the support and the signs of ``init``.
"""

from __future__ import annotations

import numba
import numpy as np
from numba import njit, prange

from zsl.checks import Array
from zsl.sparse.lasso import Codes

# Rows whose correlations c are held at once.
_BLOCK = 8192
# Reassociation lets sums use vector registers; NaN and inf keep their meaning.
_FAST = {"reassoc", "contract", "nsz", "arcp"}
# Columns of the factor are padded to full vectors of zeros, which spares the loops their scalar remainders.
_PAD = 16


@njit(cache=True, fastmath=_FAST, error_model="numpy")
def _correlations(G, c, S, a, k, q):  # type: ignore[no-untyped-def]
    """``q = c - a G`` for a code with ``k`` non-zeros ``a[i]`` at the atoms ``S[i]``."""
    r = len(c)
    for j in range(r):
        q[j] = c[j]
    i = 0
    # Eight atoms at a time: q is read and written once for all of them.
    while i + 8 <= k:
        g0, g1, g2, g3 = G[S[i]], G[S[i + 1]], G[S[i + 2]], G[S[i + 3]]
        g4, g5, g6, g7 = G[S[i + 4]], G[S[i + 5]], G[S[i + 6]], G[S[i + 7]]
        a0, a1, a2, a3 = a[i], a[i + 1], a[i + 2], a[i + 3]
        a4, a5, a6, a7 = a[i + 4], a[i + 5], a[i + 6], a[i + 7]
        for j in range(r):
            q[j] -= (a0 * g0[j] + a1 * g1[j] + a2 * g2[j] + a3 * g3[j]) + (
                a4 * g4[j] + a5 * g5[j] + a6 * g6[j] + a7 * g7[j]
            )
        i += 8
    while i < k:
        g0, a0 = G[S[i]], a[i]
        for j in range(r):
            q[j] -= a0 * g0[j]
        i += 1


@njit(cache=True, fastmath=_FAST, error_model="numpy")
def _factor(G, S, k, first, U, floor):  # type: ignore[no-untyped-def]
    """Upper Cholesky factor of ``G[S, S]`` (k x k), given that its columns before ``first`` are right.

    A pivot below ``floor * G_jj`` (an atom that depends on those before it) is raised to it: the step is then a
    descent direction still, only not the exact one.
    """
    end = first + (k - first + _PAD - 1) // _PAD * _PAD
    for j in range(first, k):
        g = G[S[j]]
        for i in range(j + 1):
            U[i, j] = g[S[i]]
    for i in range(k):
        for j in range(k, end):
            U[i, j] = 0
    for i in range(k):
        low = max(i, first)
        low -= (low - first) % _PAD
        row = U[i, low:end]
        m = end - low
        # Entries left of the diagonal that the rounding of low takes in are rubbish below it: never read.
        n = 0
        while n + 8 <= i:
            u0, u1, u2, u3 = U[n, low:end], U[n + 1, low:end], U[n + 2, low:end], U[n + 3, low:end]
            u4, u5, u6, u7 = U[n + 4, low:end], U[n + 5, low:end], U[n + 6, low:end], U[n + 7, low:end]
            f0, f1, f2, f3 = U[n, i], U[n + 1, i], U[n + 2, i], U[n + 3, i]
            f4, f5, f6, f7 = U[n + 4, i], U[n + 5, i], U[n + 6, i], U[n + 7, i]
            for j in range(m):
                row[j] -= (f0 * u0[j] + f1 * u1[j] + f2 * u2[j] + f3 * u3[j]) + (
                    f4 * u4[j] + f5 * u5[j] + f6 * u6[j] + f7 * u7[j]
                )
            n += 8
        while n < i:
            u0, f0 = U[n, low:end], U[n, i]
            for j in range(m):
                row[j] -= f0 * u0[j]
            n += 1
        if i >= first:
            least = floor * G[S[i], S[i]]
            U[i, i] = np.sqrt(max(U[i, i], least))
        inverse = 1 / U[i, i]
        start = max(i + 1, first)
        for j in range(start, k):
            U[i, j] *= inverse


@njit(cache=True, fastmath=_FAST, error_model="numpy")
def _solve_factored(U, k, b):  # type: ignore[no-untyped-def]
    """``b <- (U'U)^-1 b``."""
    for i in range(k):
        u = U[i]
        b[i] /= u[i]
        f = b[i]
        for j in range(i + 1, k):
            b[j] -= f * u[j]
    for i in range(k - 1, -1, -1):
        u = U[i]
        total = b[i]
        for j in range(i + 1, k):
            total -= u[j] * b[j]
        b[i] = total / u[i]


@njit(cache=True, fastmath=_FAST, error_model="numpy")
def _entering(q, is_in, t, most, quota, out):  # type: ignore[no-untyped-def]
    """Write about ``quota`` atoms outside the support with the largest ``|q| > t`` to ``out``; their number.

    The cut is made on a histogram, so that it costs two passes over q and depends on no order.
    """
    r = len(q)
    counts = np.zeros(64, np.int64)
    step = (most - t) / 64
    if not step > 0:
        return 0
    inverse = 1 / step
    total = 0
    for j in range(r):
        v = abs(q[j])
        if v > t and not is_in[j]:
            counts[min(63, int((v - t) * inverse))] += 1
            total += 1
    cut = t
    if total > quota:
        b, seen = 63, counts[63]
        while b > 0 and seen + counts[b - 1] <= quota:
            b -= 1
            seen += counts[b]
        cut = t + b * step
    n = 0
    for j in range(r):
        v = abs(q[j])
        if v > t and v >= cut and not is_in[j]:
            out[n] = j
            n += 1
    return n


@njit(cache=True, fastmath=_FAST, error_model="numpy")
def _gap(xx, c, q, t, S, a, k, most):  # type: ignore[no-untyped-def]
    """Duality gap and objective, both of the problem in the units of the module's docstring."""
    ac, aq, l1 = 0.0, 0.0, 0.0
    for i in range(k):
        j = S[i]
        v = float(a[i])
        ac += v * c[j]
        aq += v * q[j]
        l1 += abs(v)
    rr = max(xx - ac - aq, 0.0)
    rx = xx - ac
    limit = t / most if most > 0 else np.inf
    s = rx / rr if rr > 0 else 0.0
    s = min(max(s, -limit), limit)
    return 0.5 * rr + t * l1 - s * rx + 0.5 * s * s * rr, t * l1 - 0.5 * (ac + aq)


@njit(cache=True, fastmath=_FAST, error_model="numpy")
def _solve_row(G, c, xx, t, tol, max_iter, floor, code, q, q_kept, S, S_kept, s, a, a_kept, v, out, is_in, U):  # type: ignore[no-untyped-def]
    """Codes of one row, into ``code`` (whose non-zeros are the start); rounds and gap. All else is work space.

    ``S``, ``s``, ``a`` are the support, its signs and values; names with ``kept`` hold the last accepted code.
    """
    r = len(c)
    k = 0
    for j in range(r):
        is_in[j] = False
        if code[j] != 0:
            S[k], a[k] = j, code[j]
            s[k] = 1 if code[j] > 0 else -1
            is_in[j] = True
            k += 1
    _correlations(G, c, S, a, k, q)
    first = 0  # columns of U before this one belong to S
    careful, failures, stalls = 0, 0, 0
    k_kept = -1
    value_kept, gap_kept, gap_best = np.inf, np.inf, np.inf
    gap = np.inf
    rounds = 0
    while True:
        most = t * 0
        for j in range(r):
            most = max(most, abs(q[j]))
        gap, value = _gap(xx, c, q, t, S, a, k, most)
        if gap <= tol or rounds >= max_iter:
            break
        if k_kept >= 0 and not (value < value_kept or gap < 0.9 * gap_best):
            # No progress. Back to the last code; if steps were careful already, rounding is the limit.
            if careful > 0 or failures > 30:
                stalls += 1
                if stalls >= 3:
                    break
            failures += 1
            careful = 4 << min(failures, 10)
            for i in range(k):
                is_in[S[i]] = False
            k = k_kept
            for i in range(k):
                S[i], a[i] = S_kept[i], a_kept[i]
                s[i] = 1 if a[i] > 0 else -1
                is_in[S[i]] = True
            for j in range(r):
                q[j] = q_kept[j]
            most = t * 0
            for j in range(r):
                most = max(most, abs(q[j]))
            value, gap = value_kept, gap_kept
            first = 0
        else:
            gap_best = min(gap_best, gap)
            k_kept = k
            value_kept, gap_kept = value, gap
            for i in range(k):
                S_kept[i], a_kept[i] = S[i], a[i]
            for j in range(r):
                q_kept[j] = q[j]

        quota = max(20, k // 2) if careful == 0 else max(1, k >> min(failures, 5))
        entering = _entering(q, is_in, t, most, quota, out)
        for i in range(entering):
            j = out[i]
            S[k], a[k] = j, 0
            s[k] = 1 if q[j] > 0 else -1
            is_in[j] = True
            k += 1
        _factor(G, S, k, first, U, floor)
        # The first solve is a correction of a, which refines it; after a removal q no longer belongs to a.
        for i in range(k):
            v[i] = q[S[i]] - t * s[i]
        _solve_factored(U, k, v)
        for i in range(k):
            v[i] += a[i]
        first = k
        if careful > 0:
            careful -= 1
            # An entering atom that would move against its own sign must wait: at least one does not.
            while True:
                kept = 0
                for i in range(k):
                    if a[i] == 0 and v[i] * s[i] <= 0 and t > 0:
                        is_in[S[i]] = False
                        first = min(first, i)
                    else:
                        S[kept], a[kept], s[kept] = S[i], a[i], s[i]
                        kept += 1
                if kept == k:
                    break
                k = kept
                _factor(G, S, k, first, U, floor)
                first = k
                for i in range(k):
                    v[i] = q[S[i]] - t * s[i]
                _solve_factored(U, k, v)
                for i in range(k):
                    v[i] += a[i]
            theta = 1.0
            if t > 0:
                for i in range(k):
                    if v[i] * s[i] < 0:
                        theta = min(theta, a[i] / (a[i] - v[i]))
            kept = 0
            for i in range(k):
                moved = a[i] + theta * (v[i] - a[i])
                if t > 0 and (moved * s[i] <= 0 or (v[i] * s[i] < 0 and a[i] / (a[i] - v[i]) <= theta)):
                    is_in[S[i]] = False
                    first = min(first, i)
                else:
                    S[kept], a[kept], s[kept] = S[i], moved, s[i]
                    kept += 1
            k = kept
        else:
            while t > 0:
                kept = 0
                for i in range(k):
                    if v[i] * s[i] <= 0:
                        is_in[S[i]] = False
                        first = min(first, i)
                    else:
                        S[kept], s[kept] = S[i], s[i]
                        kept += 1
                if kept == k:
                    break
                k = kept
                _factor(G, S, k, first, U, floor)
                first = k
                for i in range(k):
                    v[i] = c[S[i]] - t * s[i]
                _solve_factored(U, k, v)
            for i in range(k):
                a[i] = v[i]
        _correlations(G, c, S, a, k, q)
        rounds += 1
    if gap > gap_kept:
        k, gap = k_kept, gap_kept
        for i in range(k):
            S[i], a[i] = S_kept[i], a_kept[i]
        for j in range(r):
            q[j] = q_kept[j]
    for j in range(r):
        code[j] = 0
    for i in range(k):
        code[S[i]] = a[i]
    return rounds, k, gap


@njit(cache=True, fastmath=_FAST, error_model="numpy")
def _certified_gap(x, D, t, S, a, k, q, margin, R):  # type: ignore[no-untyped-def]
    """Duality gap in float64 from the residual itself, in the units of the module's docstring.

    Only atoms whose correlation is within ``margin`` of the largest can be the largest: only they are
    multiplied out again.
    """
    r, p = D.shape
    for j in range(p):
        R[j] = x[j]
    l1 = 0.0
    i = 0
    while i + 4 <= k:
        d0, d1, d2, d3 = D[S[i]], D[S[i + 1]], D[S[i + 2]], D[S[i + 3]]
        a0, a1, a2, a3 = float(a[i]), float(a[i + 1]), float(a[i + 2]), float(a[i + 3])
        for j in range(p):
            R[j] -= (a0 * d0[j] + a1 * d1[j]) + (a2 * d2[j] + a3 * d3[j])
        i += 4
    while i < k:
        d0, a0 = D[S[i]], float(a[i])
        for j in range(p):
            R[j] -= a0 * d0[j]
        i += 1
    for i in range(k):
        l1 += abs(float(a[i]))
    rr, rx = 0.0, 0.0
    for j in range(p):
        rr += R[j] * R[j]
        rx += R[j] * x[j]
    most = t * 0
    for j in range(r):
        most = max(most, abs(q[j]))
    steepest = 0.0
    for j in range(r):
        if abs(q[j]) >= most - margin:
            d0 = D[j]
            total = 0.0
            for m in range(p):
                total += R[m] * d0[m]
            steepest = max(steepest, abs(total))
    limit = t / steepest if steepest > 0 else np.inf
    s = rx / rr if rr > 0 else 0.0
    s = min(max(s, -limit), limit)
    return max(0.5 * rr + t * l1 - s * rx + 0.5 * s * s * rr, 0.0)


@njit(cache=True, parallel=True)
def _solve_rows(X, D, G, C, xx, t, tol, max_iter, floor, margin, certify, A, gap, rounds, n_threads):  # type: ignore[no-untyped-def]
    """Codes of all rows into ``A``, thread ``w`` of ``n_threads`` taking every ``n_threads``-th row.

    Work space is allocated here, once, and not in the parallel loop.
    """
    n, r = C.shape
    width = r + 2 * _PAD
    floats = np.empty((n_threads, 8, width), C.dtype)
    ints = np.empty((n_threads, 3, width), np.int64)
    flags = np.empty((n_threads, width), np.bool_)
    U = np.empty((n_threads, width, width), C.dtype)
    codes = np.empty((n_threads, r), C.dtype)
    residual = np.empty((n_threads, D.shape[1]), np.float64)
    for w in prange(n_threads):
        q, q_kept, s, a, a_kept, v = floats[w, 0, :r], floats[w, 1, :r], floats[w, 2], floats[w, 3], floats[w, 4], floats[w, 5]
        S, S_kept, out = ints[w, 0], ints[w, 1], ints[w, 2]
        code = codes[w]
        for i in range(w, n, n_threads):
            for j in range(r):
                code[j] = A[i, j]
            n_rounds, k, g = _solve_row(
                G, C[i], xx[i], t, tol * xx[i] / 2, max_iter, floor, code, q, q_kept,
                S, S_kept, s, a, a_kept, v, out, flags[w], U[w],
            )
            if certify:
                g = _certified_gap(X[i], D, t, S, a, k, q, margin, residual[w])
            for j in range(r):
                A[i, j] = code[j]
            rounds[i] = n_rounds
            gap[i] = g


def solve(X: Array, D: Array, lam: float, *, init: Array | None, tol: float, max_iter: int) -> Codes:
    r, p = D.shape
    working = np.float32 if X.dtype == np.float32 or tol >= 1e-5 else np.float64
    Dw = D.astype(working, copy=False)
    G = Dw @ Dw.T
    A = np.zeros((len(X), r), X.dtype) if init is None else init.copy()
    gap = np.empty(len(X))
    rounds = np.empty(len(X), np.int64)
    xx = np.einsum("ij,ij->i", X, X, dtype=np.float64)
    t = working(lam * p / (2 * r))
    eps = np.finfo(working).eps
    for start in range(0, len(X), _BLOCK):
        rows = slice(start, start + _BLOCK)
        C = X[rows].astype(working, copy=False) @ Dw.T
        _solve_rows(X[rows], D, G, C, xx[rows], t, 0.95 * tol, max_iter, working(4 * eps), 64 * eps, working == np.float32, A[rows], gap[rows], rounds[rows], numba.get_num_threads())
    return Codes(A, gap * (2 / p), int(rounds.max()))
