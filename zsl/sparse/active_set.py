# numba's functions are typed by their arguments.
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
r"""Exact codes by a block active set: the default solver, and the fast one.

With the Gram matrix :math:`G = DD^T`, :math:`c = xD^T` and :math:`t = \lambda p / 2r`, Eq. (5) is ``p/2``
times smaller than

.. math:: \min_a \; \tfrac12 aGa^T - ca^T + t \|a\|_1 ,

whose solution on a support S with signs s solves :math:`G_{SS}\, a_S = c_S - t s`. Each row keeps S, s and a
Cholesky factor of :math:`G_{SS}`. One round

1. computes the correlations :math:`q = c - aG`, and from them the duality gap: stop if it is small enough;
2. lets many of the atoms with ``|q| > t`` enter at once, at most a share of the support, largest first;
3. solves on S; atoms whose sign came out wrong leave, all at once, until every sign is right.

The factor is updated: columns are appended, and taken out by Givens rotations unless many go at once.
Few rounds are needed (2 or 3 for 20 non-zeros, 7 for 165), since nothing is followed along a path and no
coordinate is visited twice. Letting many atoms in and out at once need not lower the objective: a check
follows, and a round that failed is replaced by *careful* ones that let one atom in and stop at the first
sign change, a descent method that ends. A warm start begins with the support and the signs of ``init``.
"""

from __future__ import annotations

from functools import lru_cache

import numba
import numpy as np
from numba import njit, prange
from threadpoolctl import ThreadpoolController

from zsl.checks import Array
from zsl.sparse.lasso import Codes, scale

# Rows whose correlations c are held at once.
_BLOCK = 8192
# Reassociation lets sums use vector registers; NaN and inf keep their meaning.
_FAST = {"reassoc", "contract", "nsz", "arcp"}
# Columns of the factor are padded to full vectors of zeros, which spares the loops their scalar remainders.
_PAD = 16
# Atoms that may enter in one round when the support is small; a larger one may grow by half.
_QUOTA = 20
# Careful rounds without improvement after which a row is given up.
_STALLS = 12
# For up to this many rows and from this many atoms on, the Gram matrix costs more than it saves.
_FEW, _MANY_ATOMS = 4, 256
# Multiplications up to which products are done by one thread.
_SMALL = 2e8
# Atoms in the first working set of such a row.
_WORK = 64
# From this tolerance on float32 is precise enough to search in.
_LOOSE = 1e-5


@njit(cache=True, fastmath=_FAST, error_model="numpy")
def _correlations(G, c, S, a, k, q):
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
def _padded(k):
    """A multiple of ``_PAD`` above k: rows of the factor are zero from k to there."""
    return (k // _PAD + 1) * _PAD


@njit(cache=True, fastmath=_FAST, error_model="numpy")
def _append(G, S, first, k, U, d, inverse, floor):
    """Extend the Cholesky factor of ``G[S, S]`` from its first ``first`` columns to ``k``.

    ``U`` holds what is strictly above the diagonal, zeros elsewhere up to ``_padded(k)``; ``d`` the
    diagonal and
    ``inverse`` its inverse. An atom whose pivot is below ``floor * G_jj`` depends on those before it: it
    is left out, with ``d`` and ``inverse`` zero, and the factor is that of the other atoms.
    """
    end = _padded(k)
    for i in range(k):
        row = U[i, first:end] if i < first else U[i, :end]
        for j in range(len(row)):
            row[j] = 0
    for j in range(first, k):
        g = G[S[j]]
        for i in range(j + 1):
            U[i, j] = g[S[i]]
    for i in range(k):
        # Eight rows above are applied per pass. Loops run over slices from 0, with one target each:
        # numba's code
        # for others (an index that might be negative, more than one array written) is not vectorised.
        low = first if i < first else i
        row = U[i, low:end]
        n = 0
        while n + 8 <= i:
            u0, u1, u2, u3 = U[n, low:end], U[n + 1, low:end], U[n + 2, low:end], U[n + 3, low:end]
            u4, u5, u6, u7 = U[n + 4, low:end], U[n + 5, low:end], U[n + 6, low:end], U[n + 7, low:end]
            f0, f1, f2, f3 = U[n, i], U[n + 1, i], U[n + 2, i], U[n + 3, i]
            f4, f5, f6, f7 = U[n + 4, i], U[n + 5, i], U[n + 6, i], U[n + 7, i]
            for j in range(len(row)):
                row[j] -= (f0 * u0[j] + f1 * u1[j] + f2 * u2[j] + f3 * u3[j]) + (
                    f4 * u4[j] + f5 * u5[j] + f6 * u6[j] + f7 * u7[j]
                )
            n += 8
        while n < i:
            u0, f0 = U[n, low:end], U[n, i]
            for j in range(len(row)):
                row[j] -= f0 * u0[j]
            n += 1
        if i >= first:
            pivot = row[0]
            row[0] = 0
            if pivot > floor * G[S[i], S[i]]:
                d[i] = np.sqrt(pivot)
                inverse[i] = 1 / d[i]
            else:
                d[i] = 0
                inverse[i] = 0
                for n in range(i):
                    U[n, i] = 0
        f0 = inverse[i]
        for j in range(len(row)):
            row[j] *= f0


@njit(cache=True, fastmath=_FAST, error_model="numpy")
def _remove_column(i, k, U, d, inverse, w):
    """Take atom ``i`` out of a factor of ``k``, by Givens rotations of the rows below it."""
    end = _padded(k)
    for n in range(i):
        u = U[n, i : k + 1]
        for j in range(k - i):
            u[j] = u[j + 1]
    for j in range(i, end - 1):
        w[j] = U[i, j + 1]
    w[end - 1] = 0
    for n in range(i, k - 1):
        x, y = w[n], d[n + 1]
        length = np.sqrt(x * x + y * y)
        d[n] = length
        if length > 0:
            inverse[n] = 1 / length
            cosine, sine = x * inverse[n], y * inverse[n]
        else:
            inverse[n] = 0
            cosine, sine = x * 0 + 1, x * 0
        u, below, rest = U[n, n + 1 : k], U[n + 1, n + 2 : k + 1], w[n + 1 : k]
        for j in range(len(u)):
            z = below[j]
            u[j] = cosine * rest[j] + sine * z
            rest[j] = cosine * z - sine * rest[j]
        U[n, n] = 0
        U[n, k - 1] = 0


@njit(cache=True, fastmath=_FAST, error_model="numpy")
def _remove(gone, S, s, a, v, k, U, d, inverse, w, is_in):
    """Remove the atoms marked in ``gone`` from S, s, a, v and from the factor.

    Returns the new ``k`` and the number of columns of the factor that are right: where many atoms go it is
    cheaper to begin anew at the first of them (costs in cycles, roughly).
    """
    first, kept, rotations = k, 0, 0
    for i in range(k):
        if gone[i]:
            is_in[S[i]] = False
            first = min(first, i)
            rotations += 130 * (k - i) + 20 * i
        else:
            kept += 1
    if kept == k:
        return k, k
    if rotations < 9 * (kept - first) * (kept + first):
        right = kept
        m = k
        for i in range(k - 1, -1, -1):
            if gone[i]:
                _remove_column(i, m, U, d, inverse, w)
                m -= 1
    else:
        right = first
    kept = 0
    for i in range(k):
        if not gone[i]:
            S[kept], s[kept], a[kept], v[kept] = S[i], s[i], a[i], v[i]
            kept += 1
    return kept, right


@njit(cache=True, fastmath=_FAST, error_model="numpy")
def _solve_factored(U, inverse, k, b):
    """``b <- (U'U)^-1 b``, zero at the atoms left out."""
    end = _padded(k)
    f = b[0] * 0
    for i in range(k, end):
        b[i] = 0
    for i in range(k):
        u, rest = U[i, i // _PAD * _PAD : end], b[i // _PAD * _PAD : end]
        f = b[i] * inverse[i]
        for j in range(len(u)):
            rest[j] -= f * u[j]
        b[i] = f
    for i in range(k - 1, -1, -1):
        u, rest = U[i, i // _PAD * _PAD : end], b[i // _PAD * _PAD : end]
        total = f * 0
        for j in range(len(u)):
            total += u[j] * rest[j]
        b[i] = (b[i] - total) * inverse[i]


@njit(cache=True, fastmath=_FAST, error_model="numpy")
def _newton(U, inverse, q, t, S, s, k, v):
    """``v``: the step from the code to which ``q`` belongs to the minimiser on S for the signs s."""
    for i in range(k):
        v[i] = q[S[i]] - t * s[i]
    _solve_factored(U, inverse, k, v)


@njit(cache=True, fastmath=_FAST, error_model="numpy")
def _entering(q, is_in, t, most, quota, out, counts):
    """Write about ``quota`` atoms outside the support with the largest ``|q| > t`` to ``out``; their number.

    The cut is made on a histogram, so that it costs two passes over q and depends on no order.
    """
    r = len(q)
    for b in range(64):
        counts[b] = 0
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
def _gap_of(rr, rx, t, steepest, l1):
    """Gap between a code of residual R, ``rr = |R|^2``, ``rx = <R, x>``, and the best feasible multiple of
    R."""
    limit = t / steepest if steepest > 0 else np.inf
    s = rx / rr if rr > 0 else 0.0
    s = min(max(s, -limit), limit)
    return max(0.5 * rr + t * l1 - s * rx + 0.5 * s * s * rr, 0.0)


@njit(cache=True, fastmath=_FAST, error_model="numpy")
def _gap(xx, c, q, t, S, a, k, most):
    """Duality gap and objective, both of the problem in the units of the module's docstring."""
    ac, aq, l1 = 0.0, 0.0, 0.0
    for i in range(k):
        j = S[i]
        v = np.float64(a[i])
        ac += v * c[j]
        aq += v * q[j]
        l1 += abs(v)
    return _gap_of(max(xx - ac - aq, 0.0), xx - ac, np.float64(t), np.float64(most), l1), t * l1 - 0.5 * (ac + aq)


@njit(cache=True, fastmath=_FAST, error_model="numpy")
def _careful_step(G, q, t, floor, enter, S, s, a, k, right, U, d, inverse, w, v, gone, is_in):
    """One step of a descent method: towards the minimiser on the support, as far as the first sign change.

    ``enter`` is the atom to let in first, or -1. Changes S, s, a; the new ``k``, the columns of the factor
    that
    are right, and whether the step was a full one (only then the support is solved, and another may enter).
    """
    if enter >= 0:
        S[k], a[k], s[k] = enter, 0, 1 if q[enter] > 0 else -1
        is_in[enter] = True
        k += 1
    _append(G, S, right, k, U, d, inverse, floor)
    theta, full = 1.0, True
    exchange = enter >= 0 and inverse[k - 1] == 0
    if exchange:
        # It depends on the support: exchange it for one of them along d_enter = w D_S: the residual
        # stays.
        for i in range(k - 1):
            v[i] = G[enter, S[i]]
        _solve_factored(U, inverse, k - 1, v)
        theta = np.inf
        for i in range(k - 1):
            v[i] *= -s[k - 1]
            if v[i] * s[i] < 0:
                theta = min(theta, abs(a[i] / v[i]))
        if theta == np.inf:
            is_in[enter] = False
            return k - 1, k - 1, full
        v[k - 1] = s[k - 1]
        full = False
    else:
        _newton(U, inverse, q, t, S, s, k, v)
        if t > 0:
            for i in range(k):
                if (a[i] + v[i]) * s[i] <= 0:
                    theta = min(theta, abs(a[i]) / abs(v[i])) if v[i] != 0 else 0.0
                    full = False
    for i in range(k):
        a[i] += theta * v[i]
        # The atom that set theta ends at zero but for rounding.
        gone[i] = t > 0 and a[i] * s[i] <= 1e-6 * theta * abs(v[i]) and v[i] * s[i] <= 0
    kept, right = _remove(gone, S, s, a, v, k, U, d, inverse, w, is_in)
    if exchange:
        right = min(right, kept - 1)  # now that another has left it is independent
    return kept, right, full


@njit(cache=True, fastmath=_FAST, error_model="numpy")
def _largest(q):
    most = q[0] * 0
    for j in range(len(q)):
        most = max(most, abs(q[j]))
    return most


@njit(cache=True, fastmath=_FAST, error_model="numpy")
def _solve_row(
    G,
    c,
    xx,
    p,
    t,
    tol,
    max_iter,
    floor,
    code,
    q,
    q_kept,
    S,
    S_kept,
    s,
    a,
    a_kept,
    v,
    out,
    is_in,
    gone,
    U,
    d,
    inverse,
    w,
    counts,
):
    """Codes of one row into ``code``, whose non-zeros are the start: rounds used, non-zeros and gap.

    On return ``S``, ``a`` are the support and its values, ``q`` their correlations. ``s`` holds the signs,
    names with ``kept`` the last code that was an improvement; all else is work space.
    """
    r = len(c)
    k = 0
    for j in range(r):
        is_in[j] = False
        if code[j] != 0:
            S[k], a[k], s[k] = j, code[j], 1 if code[j] > 0 else -1
            is_in[j] = True
            k += 1
    _correlations(G, c, S, a, k, q)
    right = 0  # columns of the factor that are those of S
    # full: the support is solved, so that in careful steps another atom may enter.
    careful, failures, stalls, full, full_kept = 0, 0, 0, k == 0, True
    k_kept, rounds = -1, 0
    value_kept, gap_kept, gap_best = np.inf, np.inf, np.inf
    # A careful step of no length (atoms that reach zero together) changes the support and is no failure.
    noise = floor * xx
    while True:
        most = _largest(q)
        gap, value = _gap(xx, c, q, t, S, a, k, most)
        if gap <= tol or rounds >= max_iter:
            break
        improved = k_kept < 0 or value < value_kept or gap < 0.9 * gap_best
        if improved:
            k_kept, value_kept, gap_kept, gap_best = k, value, gap, min(gap_best, gap)
            full_kept = full
            for i in range(k):
                S_kept[i], a_kept[i] = S[i], a[i]
            for j in range(r):
                q_kept[j] = q[j]
        elif careful > 0:
            stalls += 1
            if stalls >= _STALLS:
                break  # even descent does not descend: this is what rounding allows
        if not improved and not (careful > 0 and value <= value_kept + noise):
            # Back to the last improvement, and carefully on from there.
            full = full_kept or careful > 0
            careful = 8 << min(failures, 8)
            failures += 1
            for i in range(k):
                is_in[S[i]] = False
            k, gap, value = k_kept, gap_kept, value_kept
            for i in range(k):
                S[i], a[i], s[i] = S_kept[i], a_kept[i], 1 if a_kept[i] > 0 else -1
                is_in[S[i]] = True
            for j in range(r):
                q[j] = q_kept[j]
            most = _largest(q)
            _append(G, S, 0, k, U, d, inverse, floor)
            right = k
            dependent = False
            for i in range(k):
                dependent |= inverse[i] == 0
            if dependent:
                # A support that depends on itself (a start may): careful steps need another, the empty one.
                for i in range(k):
                    is_in[S[i]] = False
                k = right = 0
                k_kept, value_kept, gap_kept, gap_best = -1, np.inf, np.inf, np.inf
                for j in range(r):
                    q[j] = c[j]
                most = _largest(q)
                full = True
        if careful > 0:
            careful -= 1
            enter = -1
            if full:
                for j in range(r):
                    if abs(q[j]) > t and not is_in[j] and (enter < 0 or abs(q[j]) > abs(q[enter])):
                        enter = j
            k, right, full = _careful_step(G, q, t, floor, enter, S, s, a, k, right, U, d, inverse, w, v, gone, is_in)
        else:
            quota = min(max(_QUOTA, k // 2), min(p, r) - k)
            for i in range(_entering(q, is_in, t, most, quota, out, counts)):
                S[k], a[k], s[k] = out[i], 0, 1 if q[out[i]] > 0 else -1
                is_in[S[k]] = True
                k += 1
            _append(G, S, right, k, U, d, inverse, floor)
            _newton(U, inverse, q, t, S, s, k, v)
            for i in range(k):
                v[i] += a[i]
            while True:
                for i in range(k):
                    gone[i] = inverse[i] == 0 or (t > 0 and v[i] * s[i] <= 0)
                kept, right = _remove(gone, S, s, a, v, k, U, d, inverse, w, is_in)
                if kept == k:
                    break
                k = kept
                _append(G, S, right, k, U, d, inverse, floor)
                # q belongs to a code with other atoms: solve for the values themselves.
                for i in range(k):
                    v[i] = c[S[i]] - t * s[i]
                _solve_factored(U, inverse, k, v)
            for i in range(k):
                a[i] = v[i]
            full = True
        _correlations(G, c, S, a, k, q)
        rounds += 1
    if k_kept >= 0 and not gap <= gap_kept:
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
def _certified_gap(x, D, norms, t, S, a, k, q, error, R, is_done):
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
    return _gap_of(rr, rx, np.float64(t), steepest, l1)


def _solve_rows(X, D, G, C, xx, t, tol, max_iter, floor, error, A, gap, rounds, n_threads):
    """Codes of all rows into ``A``, thread ``w`` of ``n_threads`` taking every ``n_threads``-th row.

    Work space is allocated here, once, and not in the parallel loop.
    """
    n, r = C.shape
    width = r + 3 * _PAD
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
        code, q, q_kept = floats[w, 0, :r], floats[w, 1, :r], floats[w, 2, :r]
        s, a, a_kept, v = floats[w, 3], floats[w, 4], floats[w, 5], floats[w, 6]
        d, inverse = floats[w, 7], floats[w, 8]
        S, S_kept, out = ints[w, 0], ints[w, 1], ints[w, 2]
        for i in range(w, n, n_threads):
            for j in range(r):
                code[j] = A[i, j]
            rounds[i], k, _ = _solve_row(
                G,
                C[i],
                xx[i],
                D.shape[1],
                t,
                tol * xx[i] / 2,
                max_iter,
                floor,
                code,
                q,
                q_kept,
                S,
                S_kept,
                s,
                a,
                a_kept,
                v,
                out,
                flags[w, 0],
                flags[w, 1],
                U[w],
                d,
                inverse,
                floats[w, 9],
                counts[w],
            )
            gap[i] = _certified_gap(X[i], D, norms, t, S, a, k, q, error, residual[w], flags[w, 1])
            for j in range(r):
                A[i, j] = code[j]


_solve_rows_parallel = njit(cache=True, parallel=True)(_solve_rows)
# A parallel region costs a lone row more than the row itself.
_solve_rows_serial = njit(cache=True)(_solve_rows)


def solve(X: Array, D: Array, lam: float, *, init: Array | None, tol: float, max_iter: int) -> Codes:
    """Block active set with an updated Cholesky factor. Arguments and result as in
    :func:`zsl.sparse.sparse_encode`.

    In float64 with a loose ``tol`` the search is made in float32; the gaps are those of the float64 problem
    all the same, and a row that missed ``tol`` is searched again in float64.
    """
    A = np.zeros((len(X), len(D)), X.dtype) if init is None else init.copy()
    if len(X) <= _FEW and len(D) >= _MANY_ATOMS:
        # Threads would wait for each other longer than they work.
        with _blas().limit(limits=1, user_api="blas"):
            few = [_solve_one(x, D, lam, a, tol, max_iter) for x, a in zip(X, A)]
        return Codes(A, np.array([gap for gap, _ in few]), max(n for _, n in few))
    if X.dtype == np.float32 or tol < _LOOSE:
        gap, n_iter = _solve_in(X.dtype.type, X, D, lam, A, tol, max_iter)
        return Codes(A, gap, n_iter)
    gap, n_iter = _solve_in(np.float32, X, D, lam, A, tol, max_iter)
    missed = np.flatnonzero(~(gap <= tol * scale(X)))
    if missed.size:
        again = np.nan_to_num(A[missed], posinf=0.0, neginf=0.0)
        gap[missed], more = _solve_in(np.float64, X[missed], D, lam, again, tol, max_iter)
        A[missed], n_iter = again, max(n_iter, more)
    return Codes(A, gap, n_iter)


@lru_cache(maxsize=1)
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


def _solve_one(x: Array, D: Array, lam: float, a: Array, tol: float, max_iter: int) -> tuple[float, int]:
    """Improve the code ``a`` of one sample without the Gram matrix of all atoms; its gap and the rounds.

    The problem is solved on a working set of atoms, which grows by those that violate the conditions.
    """
    r, p = D.shape
    t = lam * p / (2 * r)
    x64 = x.astype(np.float64, copy=False)
    xx = float(x64 @ x64)
    # Rounding of a product of D with the residual, by atom and per unit of the residual.
    error = np.finfo(D.dtype).eps * (16 + p**0.5) * np.sqrt(np.einsum("ij,ij->i", D, D))
    work, total, gap = np.flatnonzero(a), 0, np.inf
    q = D @ (x - a[work] @ D[work])
    while True:
        # As many again as there are, at least a batch: those with the steepest correlations.
        steep = np.abs(q)
        steep[work] = -1
        batch = min(max(_WORK, len(work)), r)
        new = np.argpartition(steep, r - batch)[r - batch :]
        work = np.concatenate([work, new[steep[new] > t]])
        if 2 * len(work) > r:
            gaps, n = _solve_in(D.dtype.type, x[None], D, lam, a[None], tol, max_iter)
            return float(gaps[0]), total + n
        part, code = D[work], a[work][None]
        # The penalty is lam / r whatever the number of atoms.
        _, n = _solve_in(D.dtype.type, x[None], part, lam * len(work) / r, code, 0.5 * tol, max_iter)
        a[work], total = code[0], total + n
        used = np.flatnonzero(code[0])
        residual = x64 - code[0][used].astype(np.float64) @ part[used].astype(np.float64)
        q = D @ residual.astype(D.dtype)
        rr, rx = float(residual @ residual), float(residual @ x64)
        low = np.abs(q) - error * rr**0.5
        candidates = np.flatnonzero(np.abs(q) + error * rr**0.5 >= low.max())
        steepest = float(np.abs(D[candidates].astype(np.float64) @ residual).max())
        before, gap = gap, _gap_of(rr, rx, t, steepest, float(np.abs(code).sum(dtype=np.float64))) * 2 / p
        if gap <= tol * xx / p or total >= max_iter or gap >= before:
            return gap, total


def _solve_in(dtype: type, X: Array, D: Array, lam: float, A: Array, tol: float, max_iter: int) -> tuple[Array, int]:
    """Improve the codes ``A`` in place, in the arithmetic of ``dtype``; their gaps and the rounds used."""
    r, p = D.shape
    Dw: Array = D.astype(dtype, copy=False)
    # Small products are done before a second thread has woken up; on a busy machine long before.
    threads = None if r * p * (r + min(len(X), _BLOCK)) > _SMALL else 1
    with _blas().limit(limits=threads, user_api="blas"):
        G = Dw @ Dw.T
    xx = np.einsum("ij,ij->i", X, X, dtype=np.float64)
    gap, rounds = np.empty(len(X)), np.empty(len(X), np.int64)
    eps = float(np.finfo(dtype).eps)
    # Of sums of p products, in any order that BLAS may choose.
    error = eps * (16 + p**0.5)
    # Stop a little early, for the certificate may differ in the last digits.
    aim = 0.98 * tol
    for start in range(0, len(X), _BLOCK):
        rows = slice(start, start + _BLOCK)
        with _blas().limit(limits=threads, user_api="blas"):
            C: Array = X[rows].astype(dtype, copy=False) @ Dw.T
        n_threads = min(numba.get_num_threads(), len(C))
        (_solve_rows_serial if n_threads == 1 else _solve_rows_parallel)(
            X[rows], D, G, C, xx[rows], dtype(lam * p / (2 * r)), aim, max_iter, dtype(64 * eps), error,
            A[rows], gap[rows], rounds[rows], n_threads,
        )  # fmt: skip
    return np.maximum(gap, 0.0) * (2 / p), int(rounds.max())
