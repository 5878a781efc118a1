# numba's functions are typed by their arguments.
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
"""Sums over sparse codes for the dictionary updates, ``A'A`` and ``A'X``.

Where codes are sparse the cost of a sum is proportional to the number of their non-zero entries; dense codes go through
matrix products, and so do all on a GPU.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from zsl.checks import Array
from zsl.device import current
from zsl.sparse.kernels.compiled import njit
from zsl.sparse.kernels.products import gram, product
from zsl.sparse.kernels.residuals import is_dense
from zsl.sparse.kernels.threads import spread
from zsl.sparse.problem import row_blocks

_FAST = {"reassoc", "contract", "nsz", "arcp"}
# A thread sums for at least so many atoms, because waking it up takes about a tenth of a millisecond.
_FEW_ATOMS = 32


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
    if is_dense(A) or not current().is_cpu:
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
    by_atom = columns.indptr, columns.indices, columns.data
    spread(_add_gram, len(AtA), _FEW_ATOMS, A.indptr, A.indices, A.data, *by_atom, AtA, keep, add)
    if AtX is not None:
        weight = AtX.dtype.type
        spread(_add_products, len(AtX), _FEW_ATOMS, *by_atom, X, AtX, weight(keep), weight(add))


# Each task is one atom, so one thread sums every entry of a result, in the order of the rows.
@njit(nogil=True, fastmath=_FAST)
def _add_gram(first, step, start, columns, values, begin, rows, weights, AtA, keep, add):
    for j in range(first, len(AtA), step):
        out = AtA[j]
        for m in range(len(out)):
            out[m] *= keep
        for k in range(begin[j], begin[j + 1]):
            i, a = rows[k], add * weights[k]
            for m in range(start[i], start[i + 1]):
                out[columns[m]] += a * values[m]


@njit(nogil=True, fastmath=_FAST)
def _add_products(first, step, begin, rows, weights, X, AtX, keep, add):
    for j in range(first, len(AtX), step):
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
