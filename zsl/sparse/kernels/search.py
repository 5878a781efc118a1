# numba's functions are typed by their arguments.
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
"""The active-set search for the code of one row: Newton steps on the support, and a descent method if those fail.

:mod:`zsl.sparse.solvers.active_set` explains the algorithm.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from zsl.checks import Array
from zsl.sparse.kernels.certificate import gap_of_support
from zsl.sparse.kernels.compiled import njit
from zsl.sparse.kernels.factor import FAST, PAD, append, remove, solve_factored

# Atoms that may enter a small support in one round; a larger support may grow by half.
_QUOTA = 20
# A row is given up after this many careful rounds without improvement.
_STALLS = 12


@njit(fastmath=FAST, error_model="numpy")
def correlations(G, c, S, a, k, q):
    """``q = c - a G`` for a code with ``k`` non-zeros ``a[i]`` at the atoms ``S[i]``."""
    r = len(c)
    for j in range(r):
        q[j] = c[j]
    i = 0
    # Eight atoms at a time, so that q is read and written once for all of them.
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


@njit(fastmath=FAST, error_model="numpy")
def _newton(U, inverse, q, t, S, s, k, v):
    """Write to ``v`` the step from the code with correlations ``q`` to the minimiser on S for the signs s."""
    for i in range(k):
        v[i] = q[S[i]] - t * s[i]
    solve_factored(U, inverse, k, v)


@njit(fastmath=FAST, error_model="numpy")
def entering(q, is_in, t, most, quota, out, counts):
    """Write about ``quota`` atoms outside the support with the largest ``|q| > t`` to ``out``; return their number.

    The threshold comes from a histogram of 64 bins, so it costs two passes over q and does not depend on the order of
    the atoms.
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


@njit(fastmath=FAST, error_model="numpy")
def _careful_step(G, q, t, floor, enter, S, s, a, k, right, U, d, inverse, w, v, gone, is_in):
    """One step of a descent method: towards the minimiser on the support, as far as the first sign change.

    ``enter`` is the atom that enters first, or -1. The step changes S, s and a. It returns the new ``k``, the number of
    valid columns of the factor, and whether the step was a full one; only a full step solves the support, so that
    another atom may enter.
    """
    if enter >= 0:
        S[k], a[k], s[k] = enter, 0, 1 if q[enter] > 0 else -1
        is_in[enter] = True
        k += 1
    append(G, S, right, k, U, d, inverse, floor)
    theta, full = 1.0, True
    exchange = enter >= 0 and inverse[k - 1] == 0
    if exchange:
        # The entering atom depends on the support, d_enter = w D_S: exchange it for one of the support's atoms along
        # this relation, which leaves the residual unchanged.
        for i in range(k - 1):
            v[i] = G[enter, S[i]]
        solve_factored(U, inverse, k - 1, v)
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
        # The atom that limits theta ends at zero up to rounding.
        gone[i] = t > 0 and a[i] * s[i] <= 1e-6 * theta * abs(v[i]) and v[i] * s[i] <= 0
    kept, right = remove(gone, S, s, a, v, k, U, d, inverse, w, is_in)
    if exchange:
        right = min(right, kept - 1)  # the entering atom is independent now that another has left
    return kept, right, full


@njit(fastmath=FAST, error_model="numpy")
def largest(q):
    """The largest ``|q|``."""
    most = q[0] * 0
    for j in range(len(q)):
        most = max(most, abs(q[j]))
    return most


class Workspace(NamedTuple):
    """Arrays in which the search of one row works.

    After the search, the first k entries of ``S`` and ``a`` are the support of the code and its values, and ``q`` holds
    the correlations of the residual. ``s`` holds the signs; names that end in ``kept`` hold the last code that was an
    improvement; ``U``, ``d`` and ``inverse`` are the Cholesky factor.
    """

    q: Array
    q_kept: Array
    S: Array
    S_kept: Array
    s: Array
    a: Array
    a_kept: Array
    v: Array
    out: Array
    is_in: Array
    gone: Array
    U: Array
    d: Array
    inverse: Array
    w: Array
    counts: Array


@njit(fastmath=FAST, error_model="numpy")
def new_workspace(like):
    """Workspace for as many atoms as the array ``like`` (n, r) has columns, in its dtype."""
    r = like.shape[1]
    width = r + 3 * PAD
    floats, ints, flags = (
        np.empty((9, width), like.dtype), np.empty((3, width), np.int64), np.empty((2, width), np.bool_)
    )  # fmt: skip
    return Workspace(
        floats[0, :r], floats[1, :r], ints[0], ints[1], floats[2], floats[3], floats[4], floats[5], ints[2], flags[0],
        flags[1], np.empty((width, width), like.dtype), floats[6], floats[7], floats[8], np.empty(64, np.int64),
    )  # fmt: skip


@njit(fastmath=FAST, error_model="numpy")
def solve_row(G, c, xx, p, t, tol, max_iter, floor, code, work):
    """Find the code of one row, starting from ``code``; return the rounds used, the number of non-zeros and the gap."""
    q, q_kept, S, S_kept, s, a, a_kept, v, out, is_in, gone, U, d, inverse, w, counts = work
    r = len(c)
    k = 0
    for j in range(r):
        is_in[j] = False
        if code[j] != 0:
            S[k], a[k], s[k] = j, code[j], 1 if code[j] > 0 else -1
            is_in[j] = True
            k += 1
    correlations(G, c, S, a, k, q)
    right = 0  # number of columns of the factor that are valid for S
    # full: the current code solves the support, so that another atom may enter in a careful step.
    careful, failures, stalls, full, full_kept = 0, 0, 0, k == 0, True
    k_kept, rounds = -1, 0
    value_kept, gap_kept, gap_best = np.inf, np.inf, np.inf
    # A careful step of length zero (several atoms reach zero together) changes the support and is not a failure.
    noise = floor * xx
    while True:
        most = largest(q)
        gap, value = gap_of_support(xx, c, q, t, S, a, k, most)
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
                break  # rounding allows no further descent
        if not improved and not (careful > 0 and value <= value_kept + noise):
            # Return to the last improvement and continue with careful steps.
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
            most = largest(q)
            append(G, S, 0, k, U, d, inverse, floor)
            right = k
            dependent = False
            for i in range(k):
                dependent |= inverse[i] == 0
            if dependent:
                # Careful steps need independent atoms, which those of a warm start may not be: begin with no atoms.
                for i in range(k):
                    is_in[S[i]] = False
                k = right = 0
                k_kept, value_kept, gap_kept, gap_best = -1, np.inf, np.inf, np.inf
                for j in range(r):
                    q[j] = c[j]
                most = largest(q)
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
            for i in range(entering(q, is_in, t, most, quota, out, counts)):
                S[k], a[k], s[k] = out[i], 0, 1 if q[out[i]] > 0 else -1
                is_in[S[k]] = True
                k += 1
            append(G, S, right, k, U, d, inverse, floor)
            _newton(U, inverse, q, t, S, s, k, v)
            for i in range(k):
                v[i] += a[i]
            while True:
                for i in range(k):
                    gone[i] = inverse[i] == 0 or (t > 0 and v[i] * s[i] <= 0)
                kept, right = remove(gone, S, s, a, v, k, U, d, inverse, w, is_in)
                if kept == k:
                    break
                k = kept
                append(G, S, right, k, U, d, inverse, floor)
                # q belongs to a code with other atoms, so solve for the values instead of a step.
                for i in range(k):
                    v[i] = c[S[i]] - t * s[i]
                solve_factored(U, inverse, k, v)
            for i in range(k):
                a[i] = v[i]
            full = True
        correlations(G, c, S, a, k, q)
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
