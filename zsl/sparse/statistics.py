# numba's functions are typed by their arguments.
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
"""Sums over sparse codes for the dictionary updates: ``A'A``, ``A'X`` and the objective.

Where codes are sparse the cost of a sum is proportional to the number of their non-zero entries; dense codes go through
matrix products.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numba import prange

from zsl.checks import Array
from zsl.sparse.kernels.compiled import njit
from zsl.sparse.kernels.products import gram, product
from zsl.sparse.problem import row_blocks, row_objectives

_FAST = {"reassoc", "contract", "nsz", "arcp"}
# With a larger share of non-zeros than this matrix products are faster.
_DENSE = 0.12


def compressed(A: Array) -> sp.csr_array:
    """Convert dense codes (n, r) to scipy's CSR format.

    Examples
    --------
    >>> import numpy as np
    >>> compressed(np.array([[0.0, 2.0], [0.0, 0.0]])).nnz
    1
    """
    start = np.zeros(len(A) + 1, np.int64)
    np.cumsum(np.count_nonzero(A, axis=1), out=start[1:])
    columns, values = np.empty(start[-1], np.int32), np.empty(start[-1], A.dtype)
    _compress(np.ascontiguousarray(A), start, columns, values)
    return sp.csr_array((values, columns, start), shape=A.shape)


def accumulate(A: sp.csr_array, X: Array, AtA: Array, AtX: Array | None, *, keep: float, add: float) -> None:
    """Update the statistics in place: ``AtA <- keep AtA + add A'A`` and ``AtX <- keep AtX + add A'X``.

    Parameters
    ----------
    A : (n, r) csr_array
        Codes of the rows of X.
    X : (n, p)
    AtA : (r, r) float64
    AtX : (r, p), optional
        ``None`` updates AtA alone.
    keep, add : float
    """
    if _is_dense(A):
        AtA *= keep
        if AtX is not None:
            AtX *= keep
        for rows in row_blocks(A.shape[0]):
            transposed = np.ascontiguousarray(A[rows].toarray().T)
            AtA += gram(transposed.astype(np.float64, copy=False)) * add
            if AtX is not None:
                AtX += product(transposed, X[rows]) * AtX.dtype.type(add)
        return
    columns = A.tocsc()
    _add_gram(A.indptr, A.indices, A.data, columns.indptr, columns.indices, columns.data, AtA, keep, add)
    if AtX is not None:
        weight = AtX.dtype.type
        _add_products(columns.indptr, columns.indices, columns.data, X, AtX, weight(keep), weight(add))


def total_objective(X: Array, D: Array, A: sp.csr_array, lam: float) -> float:
    """Sum of :func:`zsl.sparse.objective` over the rows of X (n, p) with codes A (n, r), in float64."""
    if _is_dense(A):
        blocks = row_blocks(len(X))
        return float(sum(row_objectives(X[rows], D, A[rows].toarray(), lam).sum() for rows in blocks))
    r, p = D.shape
    fit = np.empty(len(X))
    _squared_residuals(X, D, A.indptr, A.indices, A.data, fit)
    return float(fit.sum()) / p + lam / r * float(np.abs(A.data).sum(dtype=np.float64))


def _is_dense(A: sp.csr_array) -> bool:
    return A.nnz > _DENSE * A.shape[0] * A.shape[1]


@njit()
def _compress(A, start, columns, values):
    for i in range(A.shape[0]):
        k = start[i]
        row = A[i]
        for j in range(len(row)):
            if row[j] != 0:
                columns[k], values[k] = j, row[j]
                k += 1


# Each task is one atom, so one thread sums every entry of a result, in the order of the rows.
@njit(parallel=True, fastmath=_FAST)
def _add_gram(start, columns, values, begin, rows, weights, AtA, keep, add):
    for j in prange(len(AtA)):
        out = AtA[j]
        for m in range(len(out)):
            out[m] *= keep
        for k in range(begin[j], begin[j + 1]):
            i, a = rows[k], add * weights[k]
            for m in range(start[i], start[i + 1]):
                out[columns[m]] += a * values[m]


@njit(parallel=True, fastmath=_FAST)
def _add_products(begin, rows, weights, X, AtX, keep, add):
    for j in prange(len(AtX)):
        out = AtX[j]
        for m in range(len(out)):
            out[m] *= keep
        k, end = begin[j], begin[j + 1]
        while k + 4 <= end:
            a0, a1, a2, a3 = add * weights[k], add * weights[k + 1], add * weights[k + 2], add * weights[k + 3]
            x0, x1, x2, x3 = X[rows[k]], X[rows[k + 1]], X[rows[k + 2]], X[rows[k + 3]]
            for m in range(len(out)):
                out[m] += (a0 * x0[m] + a1 * x1[m]) + (a2 * x2[m] + a3 * x3[m])
            k += 4
        while k < end:
            a0, x0 = add * weights[k], X[rows[k]]
            for m in range(len(out)):
                out[m] += a0 * x0[m]
            k += 1


# Sums are not reordered here (no fastmath): the code that numba compiles in one process may differ from the code that
# another process loads from the cache, and a resumed fit must reach the same last digit.
@njit()
def _squared_residual(x, D, atoms, a):
    # The residual of one sample stays in the processor's cache while the atoms are read.
    R = np.empty(len(x))
    for m in range(len(x)):
        R[m] = x[m]
    k = 0
    while k + 4 <= len(a):
        a0, a1, a2, a3 = np.float64(a[k]), np.float64(a[k + 1]), np.float64(a[k + 2]), np.float64(a[k + 3])
        d0, d1, d2, d3 = D[atoms[k]], D[atoms[k + 1]], D[atoms[k + 2]], D[atoms[k + 3]]
        for m in range(len(R)):
            R[m] -= (a0 * d0[m] + a1 * d1[m]) + (a2 * d2[m] + a3 * d3[m])
        k += 4
    while k < len(a):
        a0, d0 = np.float64(a[k]), D[atoms[k]]
        for m in range(len(R)):
            R[m] -= a0 * d0[m]
        k += 1
    s0, s1, s2, s3, s4, s5, s6, s7 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    m = 0
    while m + 8 <= len(R):
        s0 += R[m] * R[m]
        s1 += R[m + 1] * R[m + 1]
        s2 += R[m + 2] * R[m + 2]
        s3 += R[m + 3] * R[m + 3]
        s4 += R[m + 4] * R[m + 4]
        s5 += R[m + 5] * R[m + 5]
        s6 += R[m + 6] * R[m + 6]
        s7 += R[m + 7] * R[m + 7]
        m += 8
    total = ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7))
    while m < len(R):
        total += R[m] * R[m]
        m += 1
    return total


@njit(parallel=True)
def _squared_residuals(X, D, start, columns, values, out):
    for i in prange(len(X)):
        out[i] = _squared_residual(X[i], D, columns[start[i] : start[i + 1]], values[start[i] : start[i + 1]])
