"""Codes that fit images and attribute targets at once, for many weights of the targets and with the same dictionaries.

This is the inner problem of attribute-aware prediction (:mod:`zsl.inference.optimisers`), a LASSO with the dictionary
``[Dx, u Dz]``, where u changes from call to call. Its Gram matrix is ``Dx Dx' + u^2 Dz Dz'``, so the products with the
images and among the atoms are formed once.
"""

from __future__ import annotations

import numpy as np

from zsl.checks import Array
from zsl.device import current
from zsl.sparse.encode import sparse_encode
from zsl.sparse.kernels.gram import search
from zsl.sparse.kernels.products import gram, product
from zsl.sparse.problem import largest_penalty
from zsl.sparse.solvers.auto import prefers_admm

_MAX_ITER = 10_000
# A gap below this share of the squared length of a row is at the level of rounding.
_FINE = 1e-9


class StackedCoder:
    r"""Minimise ``1/p |x - a Dx|^2 + c/2 |a Dz - target|^2 + lam/r |a|_1`` for each row.

    Parameters
    ----------
    Dx : (r, p)
    Dz : (r, q)
    lam : float >= 0

    Notes
    -----
    The Gram matrix of the last weight is kept, so threads must not share a coder. The model's ``solver`` is not used:
    on a GPU it is ``"torch"``, else ``"auto"``.
    """

    def __init__(self, Dx: Array, Dz: Array, lam: float) -> None:
        self.Dx, self.Dz, self.lam = Dx, Dz, lam
        self._x = np.ascontiguousarray(Dx, np.float64)
        self._z = np.ascontiguousarray(Dz, np.float64)
        self._Gx, self._Gz = gram(self._x), gram(self._z)
        self._u, self._G = 0.0, self._Gx.copy()

    def correlations(self, X: Array) -> Array:
        """``X Dx'`` (n, r) in float64: what :meth:`codes` needs of the images."""
        return product(np.ascontiguousarray(X, np.float64), self._x.T)

    def codes(self, X: Array, C: Array, target: Array, c: float, A: Array, tol: float) -> Array:
        """Codes (n, r) of images X (n, p) with correlations C and targets (n, q) for a weight c > 0, started from A.

        A row ends once its duality gap is at most ``tol (|x|^2 / p + c/2 |target|^2)``.
        """
        p, q = self.Dx.shape[1], self.Dz.shape[1]
        u = np.sqrt(c * p / 2)
        if current().is_torch or prefers_admm(len(A), A.shape[1], np.count_nonzero(A) / len(A)):
            return self._in_full(X, target, u, A, tol)
        scaled = u * target.astype(np.float64, copy=False)
        xx = np.einsum("ij,ij->i", X, X, dtype=np.float64) + np.einsum("ij,ij->i", scaled, scaled)
        codes = A.astype(np.float64)
        t = min(self.lam, largest_penalty(np.float64)) * p / (2 * len(self.Dx))
        if u != self._u:
            self._u = u
            np.multiply(self._Gz, u**2, out=self._G)
            self._G += self._Gx
        C = product(scaled, self._z.T * u) + C
        gap = search(self._G, C, xx, p + q, t, codes, tol, _MAX_ITER)
        codes = codes.astype(A.dtype, copy=False)
        # Rows above tol, where the search stalled on atoms that nearly depend on each other, are solved by another way.
        missed = np.flatnonzero(~(gap <= max(tol, _FINE) * xx / 2))
        if missed.size:
            codes[missed] = self._in_full(X[missed], target[missed], u, A[missed], tol)
        return codes

    def _in_full(self, X: Array, target: Array, u: float, A: Array, tol: float) -> Array:
        """The same codes by :func:`zsl.sparse.sparse_encode`, which forms all products again."""
        p, q = self.Dx.shape[1], self.Dz.shape[1]
        lam = self.lam * p / (p + q)  # the data term there has 1/(p + q) where this one has 1/p
        rows, D = np.hstack([X, u * target]), np.hstack([self.Dx, u * self.Dz])
        return sparse_encode(rows, D, lam, init=A, tol=tol, solver="torch" if current().is_torch else "auto").A
