# numba's functions are typed by their arguments.
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
"""The active set for a small batch, such as one image at test time, without the Gram matrix of all atoms.

Every row is solved on a working set of atoms, which grows by the atoms that violate the optimality conditions. Most of
the time goes into reading the dictionary, which a row does twice: once for its correlations and once for the
certificate. The whole search is compiled, because calls from Python would take a visible share of so short a time.
"""

from __future__ import annotations

import numpy as np

from zsl.checks import Array, as_matrix
from zsl.sparse.kernels.certificate import gap_of_residual
from zsl.sparse.kernels.compiled import njit
from zsl.sparse.kernels.factor import FAST
from zsl.sparse.kernels.search import entering, largest, new_workspace, solve_row
from zsl.sparse.problem import largest_penalty

# For at most this many rows and at least this many atoms, the Gram matrix costs more than it saves.
_MAX_ROWS, _MIN_ATOMS = 4, 256
# Atoms in the first working set.
_WORKING_SET = 64
# For this tolerance and larger ones, float32 is precise enough for the search.
LOOSE = 1e-5


def is_small_batch(n: int, r: int) -> bool:
    """Whether this module is the faster one for ``n`` rows and ``r`` atoms."""
    return n <= _MAX_ROWS and r >= _MIN_ATOMS


def solve_small_batch(X: Array, D: Array, lam: float, A: Array, tol: float, max_iter: int) -> tuple[Array, int]:
    """Improve the codes ``A`` in place; return their gaps (n,) and the largest number of rounds.

    A row whose working set grew too large, or on which the search failed, keeps a gap above ``tol``.

    Raises
    ------
    UserError
        If D holds NaN or inf. The products of D with a sample show them, so D is not read once more for the check.
    """
    r, p = D.shape
    search: type = np.float32 if tol >= LOOSE else D.dtype.type
    # The kernel reads only the dtype of this array.
    like: Array = np.empty(0, search)
    error = float(np.finfo(D.dtype).eps) * (16 + p**0.5)
    floor = search(64 * np.finfo(search).eps)
    gaps, most = np.empty(len(X)), 0
    is_finite = False
    t = lam * p / (2 * r)
    for i, (x, a) in enumerate(zip(X, A)):
        args = x, D, t, search(min(t, largest_penalty(search))), a, tol, max_iter, like, floor, error, _WORKING_SET
        is_done, gaps[i], rounds = _solve_one(*args, is_finite)
        if not is_done:
            # Finite atoms whose squares overflow end here too, and are solved in the usual way.
            as_matrix(D, "D")
            is_finite = True
            _, gaps[i], rounds = _solve_one(*args, is_finite)
        most = max(most, rounds)
    return gaps, most


@njit(fastmath=FAST, error_model="numpy")
def _products_and_lengths(D, x, q, norms):
    """``q = D x`` and the length of every atom in one pass over D; returns whether all squares are finite."""
    total = 0.0
    for j in range(len(D)):
        d = D[j]
        product, square = x[0] * 0, x[0] * 0
        for m in range(len(d)):
            product += d[m] * x[m]
            square += d[m] * d[m]
        q[j] = product
        norms[j] = np.sqrt(square)
        total += square
    return total < np.inf


@njit(fastmath=FAST, error_model="numpy")
def _gram(part, G):
    """``G = part part'`` in tiles of two by four, up to the diagonal; for so few rows BLAS is not faster."""
    k, p = part.shape
    for i in range(0, k, 2):
        # A tile over the edge computes its last row or column again.
        i1 = min(i + 1, k - 1)
        x0, x1 = part[i], part[i1]
        for j in range(0, i1 + 1, 4):
            j1, j2, j3 = min(j + 1, i1), min(j + 2, i1), min(j + 3, i1)
            y0, y1, y2, y3 = part[j], part[j1], part[j2], part[j3]
            zero = x0[0] * 0
            s0, s1, s2, s3, t0, t1, t2, t3 = zero, zero, zero, zero, zero, zero, zero, zero
            for m in range(p):
                s0 += x0[m] * y0[m]
                s1 += x0[m] * y1[m]
                s2 += x0[m] * y2[m]
                s3 += x0[m] * y3[m]
                t0 += x1[m] * y0[m]
                t1 += x1[m] * y1[m]
                t2 += x1[m] * y2[m]
                t3 += x1[m] * y3[m]
            G[i, j], G[i, j1], G[i, j2], G[i, j3] = s0, s1, s2, s3
            G[i1, j], G[i1, j1], G[i1, j2], G[i1, j3] = t0, t1, t2, t3
    for i in range(k):
        for j in range(i + 1, k):
            G[i, j] = G[j, i]


@njit(fastmath=FAST, error_model="numpy")
def _dot(x, d):
    """``<x, d>`` on one thread, because waiting for threads that BLAS still holds costs more than it saves."""
    total = 0.0
    for m in range(len(x)):
        total += x[m] * d[m]
    return total


@njit(fastmath=FAST, error_model="numpy")
def _subtract(R, value, d):
    for m in range(len(R)):
        R[m] -= value * d[m]


@njit(error_model="numpy")
def _solve_one(x, D, t, t_search, a, tol, max_iter, like, floor, error, batch, is_finite):
    """Improve the code ``a`` of one sample; return whether D is finite, the gap and the rounds.

    With ``is_finite`` the caller vouches that D is finite, and the squares of D are not looked at.
    """
    r, p = D.shape
    x64 = x.astype(np.float64)
    xx = _dot(x64, x)
    # The first ``size`` entries of ``work`` are the working set; ``is_in`` marks its atoms.
    work, size = np.empty(r, np.int64), 0
    is_in, new, counts = np.zeros(r, np.bool_), np.empty(r, np.int64), np.empty(64, np.int64)
    R = x64.copy()
    for j in range(r):
        if a[j] != 0:
            work[size] = j
            is_in[j] = True
            size += 1
            _subtract(R, np.float64(a[j]), D[j])
    q, norms = np.empty(r, D.dtype), np.empty(r, D.dtype)
    if not (_products_and_lengths(D, R.astype(D.dtype), q, norms) or is_finite):
        return False, np.inf, 0
    rounds, gap, is_first = 0, np.inf, True
    while True:
        # The working set doubles, or grows by ``batch`` atoms: those with the largest correlations enter.
        n_new = entering(q, is_in, t, largest(q), min(max(batch, size), r), new, counts)
        if n_new == 0 and not is_first:
            return True, gap, rounds  # the search on the set itself failed
        is_first = False
        for i in range(n_new):
            work[size] = new[i]
            is_in[new[i]] = True
            size += 1
        if 2 * size > r:
            return True, gap, rounds  # too many for a working set
        part = np.empty((size, p), like.dtype)
        code, c = np.empty(size, like.dtype), np.empty(size, like.dtype)
        for i in range(size):
            for m in range(p):
                part[i, m] = D[work[i], m]
            code[i] = a[work[i]]
            c[i] = _dot(x64, part[i])
        G = np.empty((size, size), like.dtype)
        _gram(part, G)
        if size > 0:
            space = new_workspace(G)
            n, _, _ = solve_row(G, c, xx, p, t_search, 0.49 * tol * xx / 2, max_iter, floor, code, space)
            rounds += n
        for m in range(p):
            R[m] = x[m]
        l1 = 0.0
        for i in range(size):
            a[work[i]] = code[i]
            if code[i] != 0:
                l1 += abs(np.float64(code[i]))
                _subtract(R, np.float64(code[i]), D[work[i]])
        residual = R.astype(D.dtype)
        for j in range(r):
            q[j] = _dot(residual, D[j])
        rr, rx = _dot(R, R), _dot(R, x)
        # ``slack * norms[j]`` bounds the rounding error of q[j]; atoms that may be the steepest are multiplied again.
        slack, bound, steepest = error * np.sqrt(rr), 0.0, 0.0
        for j in range(r):
            bound = max(bound, abs(q[j]) - slack * norms[j])
        for j in range(r):
            if abs(q[j]) + slack * norms[j] >= bound:
                steepest = max(steepest, abs(_dot(R, D[j])))
        # The gap need not fall as the working set grows; only the objective does.
        gap = gap_of_residual(rr, rx, t, steepest, l1) * 2 / p
        if gap <= tol * xx / p or rounds >= max_iter:
            return True, gap, rounds
