r"""The sparse-coding problem of Eq. (5) (``eq:attrAgn``): its objective, its duality gap and its largest useful
penalty.

For a sample :math:`x` (a row of ``X``) and a dictionary :math:`D` (one atom per row) the code is

.. math:: \min_a \; P(a) = \tfrac1p \|x - aD\|_2^2 + \tfrac{\lambda}{r} \|a\|_1 .

Training and testing solve the same problem. scikit-learn calls it ``Lasso(alpha=lam / (2 * r), fit_intercept=False)``
and ``sparse_encode(alpha=p * lam / (2 * r))``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike

from zsl.checks import Array, NonNegative, as_matrix, check_value
from zsl.sparse.kernels.products import product
from zsl.sparse.kernels.residuals import compressed, is_dense, residuals_and_norms

# Rows per block where a whole (n, p) residual would otherwise be held in float64.
_BLOCK = 4096


class Codes(NamedTuple):
    """The result of every solver: the codes, and a certificate of how good they are.

    Examples
    --------
    >>> import numpy as np
    >>> Codes(np.array([[0.0, 2.0]]), gap=np.zeros(1), n_iter=3).density
    0.5
    """

    A: Array
    """(n, r) codes, one row per sample."""
    gap: Array
    """(n,) float64 upper bounds on ``P(A[i]) - min P`` from duality. A solver that has not converged raises no error;
    the gap shows the distance that remains."""
    n_iter: int
    """Iterations of the row that took longest."""

    @property
    def density(self) -> float:
        """Share of non-zero entries, 0..1."""
        return float(np.count_nonzero(self.A)) / max(self.A.size, 1)


def soft_threshold(V: Array, t: float | Array) -> Array:
    """Shrink every entry towards zero by t: ``sign(V) * max(|V| - t, 0)``, the proximal map of ``t * |.|_1``.

    Parameters
    ----------
    V : array
    t : float >= 0, or an array that broadcasts with V

    Returns
    -------
    array of V's shape

    Examples
    --------
    >>> import numpy as np
    >>> soft_threshold(np.array([-3.0, 0.5, 2.0]), 1.0)
    array([-2.,  0.,  1.])
    """
    return np.sign(V) * np.maximum(np.abs(V) - t, 0.0)


def objective(X: Array, D: Array, A: Array, lam: float) -> Array:
    """Value of ``P`` in Eq. (5) for every row.

    Parameters
    ----------
    X : (n, p)
    D : (r, p)
    A : (n, r)
        Any codes.
    lam : float >= 0

    Returns
    -------
    (n,) float64

    Examples
    --------
    >>> import numpy as np
    >>> objective(np.array([[3.0, 4.0]]), np.eye(2), np.array([[3.0, 0.0]]), lam=1.0)
    array([9.5])
    """
    return row_objectives(*_checked(X, D, A, lam), lam)


def row_objectives(X: Array, D: Array, A: Array | sp.csr_array, lam: float) -> Array:
    """:func:`objective` without its checks, for arguments that are known to fit together; A may be a csr_array."""
    r, p = D.shape
    if not is_dense(A):
        fit, norm = residuals_and_norms(X, D, A if isinstance(A, sp.csr_array) else compressed(A))
        return fit / p + lam / r * norm
    fit, norm = np.empty(len(X)), np.empty(len(X))
    D = D.astype(np.float64, copy=False)
    for rows in row_blocks(len(X)):
        a = (A[rows].toarray() if isinstance(A, sp.csr_array) else A[rows]).astype(np.float64, copy=False)
        R = X[rows].astype(np.float64, copy=False) - product(a, D)
        fit[rows], norm[rows] = np.einsum("ij,ij->i", R, R), np.abs(a).sum(axis=1)
    return fit / p + lam / r * norm


def duality_gap(X: Array, D: Array, A: Array, lam: float) -> Array:
    r"""Upper bound on ``P(A[i]) - min P`` for every row, valid for any codes.

    The dual of Eq. (5) is :math:`\max_v \langle v, x\rangle - \tfrac p4 \|v\|^2` subject to
    :math:`\|D v\|_\infty \le \lambda / r`. The residual :math:`R = x - aD`, scaled by the best feasible factor,
    is a dual point, so weak duality gives the bound. The gap is a small difference of larger numbers and is therefore
    computed in float64 whatever the dtype of the codes.

    Parameters
    ----------
    X : (n, p)
    D : (r, p)
    A : (n, r)
    lam : float >= 0

    Returns
    -------
    (n,) float64
        At least 0. For ``lam = 0`` the gap is the data term, unless the residual is orthogonal to every atom to the
        last digit.

    Examples
    --------
    >>> import numpy as np
    >>> X, D = np.array([[3.0, 4.0]]), np.eye(2)
    >>> duality_gap(X, D, soft_threshold(X, 0.5), lam=1.0)
    array([0.])
    """
    X, D, A = _checked(X, D, A, lam)
    D = D.astype(np.float64, copy=False)
    gap = np.empty(len(X))
    for rows in row_blocks(len(X)):
        gap[rows] = certificate(X[rows], D, A[rows], lam)[0]
    return gap


def certificate(X: Array, D: Array, A: Array, lam: float) -> tuple[Array, Array]:
    """:func:`duality_gap` (n,) without its checks, and the correlations (n, r) of the residuals, in float64.

    The arguments fit together, and D is float64; the result is the same to the bit for any number of threads.
    """
    r, p = D.shape
    x, a = X.astype(np.float64, copy=False), A.astype(np.float64, copy=False)
    R = x - product(a, D) if a.any() else x
    Q = product(R, D.T)
    RR, Rx = np.einsum("ij,ij->i", R, R), np.einsum("ij,ij->i", R, x)
    steepest = np.maximum(Q.max(axis=1), -Q.min(axis=1))
    with np.errstate(divide="ignore", invalid="ignore"):
        # v = (2/p) s R is feasible for |s| <= limit; the dual is a parabola in s with its top at <R,x>/|R|^2.
        limit = np.where(steepest > 0, lam * p / (2 * r) / steepest, np.inf)
        top = np.where(RR > 0, Rx / RR, 0.0)
    s = np.clip(top, -limit, limit)
    gap = RR / p + lam / r * np.abs(a).sum(axis=1) - (2 * s * Rx - s * s * RR) / p
    # The exact gap is never negative; rounding can make it so by a few ulps.
    return np.maximum(gap, 0.0), Q


def lambda_max(X: Array, D: Array) -> Array:
    r"""Smallest lambda at which the code of each row is zero: ``2 r / p * max_j |<x, d_j>|``.

    Parameters
    ----------
    X : (n, p)
    D : (r, p)

    Returns
    -------
    (n,)

    Examples
    --------
    >>> import numpy as np
    >>> lambda_max(np.array([[3.0, -4.0]]), np.eye(2))
    array([8.])
    """
    X = as_matrix(X, "X")
    D = as_matrix(D, "D", n_columns=X.shape[1])
    r, p = D.shape
    out = np.empty(len(X))
    for rows in row_blocks(len(X)):
        out[rows] = np.abs(X[rows] @ D.T).max(axis=1)
    return out * (2.0 * r / p)


def _checked(X: Array, D: Array, A: Array, lam: float) -> tuple[Array, Array, Array]:
    check_value(NonNegative, lam, "lam")
    X = as_matrix(X, "X")
    D = as_matrix(D, "D", n_columns=X.shape[1])
    # Codes may hold NaN after an overflow; the gap is then NaN too, which tells the caller.
    A = as_matrix(A, "A", n_rows=len(X), n_columns=len(D), finite=False)
    return np.ascontiguousarray(X), np.ascontiguousarray(D), np.ascontiguousarray(A)


def largest_penalty(dtype: DTypeLike) -> float:
    """Upper limit for ``lam`` and ``lam p / 2 r``: a larger penalty overflows the type, and the code is zero anyway."""
    return 1e-8 * float(np.finfo(dtype).max)


def scale(X: Array) -> Array:
    """(n,) ``|x|^2 / p`` of every row: the value of ``P`` at the zero code and the unit of the tolerance ``tol``."""
    return np.einsum("ij,ij->i", X, X, dtype=np.float64) / X.shape[1]


def row_blocks(n: int) -> list[slice]:
    """Blocks of neighbouring rows, so that work space does not grow with their number ``n``."""
    return [slice(i, min(i + _BLOCK, n)) for i in range(0, n, _BLOCK)]
