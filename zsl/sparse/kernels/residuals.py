# numba's functions are typed by their arguments.
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
"""Squared residuals and l1 norms of sparse codes, at a cost proportional to the number of their non-zero entries."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from zsl.checks import Array
from zsl.sparse.kernels.compiled import njit
from zsl.sparse.kernels.threads import few_rows, spread

# Matrix products are faster if more than this share of the entries is non-zero.
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


def is_dense(A: Array | sp.csr_array) -> bool:
    """Whether codes have so many non-zeros that matrix products are the faster way to compute with them."""
    return (A.nnz if isinstance(A, sp.csr_array) else np.count_nonzero(A)) > _DENSE * A.shape[0] * A.shape[1]


def residuals_and_norms(X: Array, D: Array, A: sp.csr_array) -> tuple[Array, Array]:
    """``|x - aD|^2`` and ``|a|_1``, both (n,) float64, of the rows of X (n, p) with codes A (n, r)."""
    squares, norms = np.empty(len(X)), np.empty(len(X))
    spread(_residuals_and_norms, len(X), few_rows(len(D)), X, D, A.indptr, A.indices, A.data, squares, norms)
    return squares, norms


@njit()
def _compress(A, start, columns, values):
    for i in range(A.shape[0]):
        k = start[i]
        row = A[i]
        for j in range(len(row)):
            if row[j] != 0:
                columns[k], values[k] = j, row[j]
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


@njit(nogil=True)
def _residuals_and_norms(first, step, X, D, start, columns, values, squares, norms):
    for i in range(first, len(X), step):
        a = values[start[i] : start[i + 1]]
        squares[i] = _squared_residual(X[i], D, columns[start[i] : start[i + 1]], a)
        norm = 0.0
        for v in a:
            norm += abs(np.float64(v))
        norms[i] = norm
