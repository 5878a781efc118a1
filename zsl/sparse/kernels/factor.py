# numba's functions are typed by their arguments.
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
"""A Cholesky factor ``G[S, S] = R'R`` of the Gram matrix of the support, updated in place as atoms enter and leave.

``R`` is stored as ``U`` (the entries strictly above the diagonal), ``d`` (the diagonal) and ``inverse`` (one over the
diagonal). Rows of ``U`` are zero from column k to ``padded(k)``. An atom that depends linearly on the atoms before it
is left out: ``d`` and ``inverse`` are zero at its place, and the factor is that of the other atoms.
"""

from __future__ import annotations

import numpy as np

from zsl.sparse.kernels.compiled import njit

# Reassociation lets the compiler vectorise sums; NaN and inf keep their meaning.
FAST = {"reassoc", "contract", "nsz", "arcp"}
# Columns are padded with zeros to full vectors, so that no loop has a scalar remainder.
PAD = 16


@njit(fastmath=FAST, error_model="numpy")
def padded(k):
    """The smallest multiple of ``PAD`` above k; rows of the factor are zero from k to there."""
    return (k // PAD + 1) * PAD


@njit(fastmath=FAST, error_model="numpy")
def forward(U, inverse, k, b):
    """``b <- b R^-1`` in place; zero at the atoms that are left out."""
    end = padded(k)
    for i in range(k, end):
        b[i] = 0
    for i in range(k):
        u, rest = U[i, i // PAD * PAD : end], b[i // PAD * PAD : end]
        f = b[i] * inverse[i]
        for j in range(len(u)):
            rest[j] -= f * u[j]
        b[i] = f


@njit(fastmath=FAST, error_model="numpy")
def _set_diagonal(i, pivot, smallest, d, inverse):
    """Write the diagonal of column ``i``; it is zero, and the atom left out, if the pivot is not above ``smallest``."""
    if pivot > smallest:
        d[i] = np.sqrt(pivot)
        inverse[i] = 1 / d[i]
    else:
        d[i] = 0
        inverse[i] = 0


@njit(fastmath=FAST, error_model="numpy")
def _append_one(G, S, k, U, d, inverse, floor):
    """Extend the factor by its last column alone; the empty row of the new atom is work space meanwhile."""
    m = k - 1
    g, b = G[S[m]], U[m, : padded(m)]
    pivot = g[S[m]]
    for i in range(m):
        b[i] = g[S[i]]
    forward(U, inverse, m, b)
    for i in range(m):
        pivot -= b[i] * b[i]
    _set_diagonal(m, pivot, floor * g[S[m]], d, inverse)
    for i in range(m):
        U[i, m] = b[i] if inverse[m] > 0 else 0
        b[i] = 0


@njit(fastmath=FAST, error_model="numpy")
def append(G, S, first, k, U, d, inverse, floor):
    """Extend the Cholesky factor of ``G[S, S]`` from its first ``first`` columns to ``k``.

    An atom whose pivot is below ``floor * G_jj`` counts as dependent on the atoms before it and is left out.
    """
    end = padded(k)
    for i in range(k):
        row = U[i, first:end] if i < first else U[i, :end]
        for j in range(len(row)):
            row[j] = 0
    if k - first == 1:
        _append_one(G, S, k, U, d, inverse, floor)
        return
    for j in range(first, k):
        g = G[S[j]]
        for i in range(j + 1):
            U[i, j] = g[S[i]]
    for i in range(k):
        # Eight rows above are applied per pass. Every loop runs over slices from 0 and writes one array, because numba
        # does not vectorise loops whose index might be negative or that write several arrays.
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
            _set_diagonal(i, pivot, floor * G[S[i], S[i]], d, inverse)
            if inverse[i] == 0:
                for n in range(i):
                    U[n, i] = 0
        f0 = inverse[i]
        for j in range(len(row)):
            row[j] *= f0


@njit(fastmath=FAST, error_model="numpy")
def _remove_column(i, k, U, d, inverse, w):
    """Take atom ``i`` out of a factor of ``k`` atoms, by Givens rotations of the rows below it."""
    end = padded(k)
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


@njit(fastmath=FAST, error_model="numpy")
def remove(gone, S, s, a, v, k, U, d, inverse, w, is_in):
    """Remove the atoms marked in ``gone`` from S, s, a, v and from the factor.

    Returns the new ``k`` and the number of columns of the factor that are still valid. If many atoms leave, it is
    cheaper to factorise again from the first of them; the two costs are rough estimates in processor cycles.
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


@njit(fastmath=FAST, error_model="numpy")
def backward(U, inverse, k, b):
    """``b <- R^-1 b`` in place; zero at the atoms that are left out."""
    end = padded(k)
    for i in range(k, end):
        b[i] = 0
    for i in range(k - 1, -1, -1):
        u, rest = U[i, i // PAD * PAD : end], b[i // PAD * PAD : end]
        total = b[0] * 0
        for j in range(len(u)):
            total += u[j] * rest[j]
        b[i] = (b[i] - total) * inverse[i]


@njit(fastmath=FAST, error_model="numpy")
def solve_factored(U, inverse, k, b):
    """``b <- (R'R)^-1 b`` in place; zero at the atoms that are left out."""
    forward(U, inverse, k, b)
    backward(U, inverse, k, b)
