r"""The sparse-coding problem of Eq. (5) (``eq:attrAgn``), its duality gap and its limits.

For a sample :math:`x` (a row of ``X``) and a dictionary :math:`D` (one atom per row) the code is

.. math:: \min_a \; P(a) = \tfrac1p \|x - aD\|_2^2 + \tfrac{\lambda}{r} \|a\|_1 .

It is one problem everywhere, in training and in testing. scikit-learn solves the same one as
``Lasso(alpha=lam / (2 * r), fit_intercept=False)`` and as ``sparse_encode(alpha=p * lam / (2 * r))``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from zsl.checks import Array, NonNegative, as_matrix, check_value

# Rows per block where a whole (n, p) residual would otherwise be held in float64.
_BLOCK = 4096


class Codes(NamedTuple):
    """What every solver returns: the codes and the proof of how good they are."""

    A: Array
    """(n, r) codes, one row per sample."""
    gap: Array
    """(n,) upper bound on ``P(A[i]) - min P`` from duality, float64. Not converging is not an error: read it."""
    n_iter: int
    """Iterations of the row that took longest."""

    @property
    def density(self) -> float:
        """Share of non-zero entries, 0..1."""
        return float(np.count_nonzero(self.A)) / max(self.A.size, 1)


def soft_threshold(V: Array, t: float | Array) -> Array:
    """``sign(V) * max(|V| - t, 0)``: the proximal map of ``t * |.|_1``, elementwise."""
    return np.sign(V) * np.maximum(np.abs(V) - t, 0.0)


def objective(X: Array, D: Array, A: Array, lam: float) -> Array:
    """``P`` of Eq. (5) for every row; (n,), float64, for any codes ``A`` (n, r); ``lam >= 0``."""
    return row_objectives(*_checked(X, D, A, lam), lam)


def row_objectives(X: Array, D: Array, A: Array, lam: float) -> Array:
    """:func:`objective` of arguments that are known to fit, of any number of rows."""
    r, p = D.shape
    fit = np.empty(len(X))
    for rows in _blocks(len(X)):
        R = X[rows].astype(np.float64, copy=False) - A[rows].astype(np.float64, copy=False) @ D
        fit[rows] = np.einsum("ij,ij->i", R, R)
    return fit / p + lam / r * np.abs(A).sum(axis=1, dtype=np.float64)


def duality_gap(X: Array, D: Array, A: Array, lam: float) -> Array:
    r"""An upper bound on ``P(A[i]) - min P`` for every row, valid for any codes.

    The dual of Eq. (5) is :math:`\max_v \langle v, x\rangle - \tfrac p4 \|v\|^2` subject to
    :math:`\|D v\|_\infty \le \lambda / r`. The residual :math:`R = x - aD`, scaled by the best feasible factor,
    is a dual point; weak duality does the rest. Computed in float64 whatever the dtype of the codes, since
    the gap is a small difference of larger numbers.

    Returns
    -------
    (n,) float64, at least 0. For ``lam = 0`` it is the data term, unless the residual is orthogonal to every atom to
    the last digit.
    """
    X, D, A = _checked(X, D, A, lam)
    r, p = D.shape
    D = D.astype(np.float64, copy=False)
    gap = np.empty(len(X))
    for rows in _blocks(len(X)):
        x = X[rows].astype(np.float64, copy=False)
        a = A[rows].astype(np.float64, copy=False)
        R = x - a @ D
        RR, Rx = np.einsum("ij,ij->i", R, R), np.einsum("ij,ij->i", R, x)
        steepest = np.abs(R @ D.T).max(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            # v = (2/p) s R is feasible for |s| <= limit; the dual is a parabola in s with its top at <R,x>/|R|^2.
            limit = np.where(steepest > 0, lam * p / (2 * r) / steepest, np.inf)
            top = np.where(RR > 0, Rx / RR, 0.0)
        s = np.clip(top, -limit, limit)
        primal = RR / p + lam / r * np.abs(a).sum(axis=1)
        gap[rows] = primal - (2 * s * Rx - s * s * RR) / p
    # Weak duality makes the gap non-negative; rounding can leave it at minus a few ulps.
    return np.maximum(gap, 0.0)


def lambda_max(X: Array, D: Array) -> Array:
    r"""The smallest lambda at which the code of each row is zero: ``2 r / p * max_j |<x, d_j>|``; (n,)."""
    X = as_matrix(X, "X")
    D = as_matrix(D, "D", n_columns=X.shape[1])
    r, p = D.shape
    out = np.empty(len(X))
    for rows in _blocks(len(X)):
        out[rows] = np.abs(X[rows] @ D.T).max(axis=1)
    return out * (2.0 * r / p)


def _checked(X: Array, D: Array, A: Array, lam: float) -> tuple[Array, Array, Array]:
    check_value(NonNegative, lam, "lam")
    X = as_matrix(X, "X")
    D = as_matrix(D, "D", n_columns=X.shape[1])
    # Codes may be what overflow left of a start: the gap is then NaN, and says so.
    return X, D, as_matrix(A, "A", n_rows=len(X), n_columns=len(D), finite=False)


def largest_penalty(dtype: DTypeLike) -> float:
    """A bound for ``lam`` and ``lam p / 2 r``: beyond it the type overflows, and the code is zero as it is there."""
    return 1e-8 * float(np.finfo(dtype).max)


def scale(X: Array) -> Array:
    """``|x|^2 / p`` for every row: the value of ``P`` at the zero code, in which ``tol`` is measured; (n,)."""
    return np.einsum("ij,ij->i", X, X, dtype=np.float64) / X.shape[1]


def _blocks(n: int) -> list[slice]:
    return [slice(i, min(i + _BLOCK, n)) for i in range(0, n, _BLOCK)]
