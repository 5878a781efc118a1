"""The objectives of the two couplings, as tasks for :func:`zsl.sparse.learning.learn`.

:class:`Visual` is Eq. (3), the visual dictionary alone; :class:`Joint` is Eq. (2), both dictionaries at once.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Self

import numpy as np
import scipy.sparse as sp

from zsl.checks import Array
from zsl.sparse import Codes, objective
from zsl.sparse.dictionary import RidgeAtoms, gradient_atoms, ridge_atoms, square, unit_atoms, unit_ball_atoms

HISTORY = ("objective_x_", "objective_z_", "objective_", "gap_x_", "gap_z_", "gap_")
"""Fitted attributes with the objectives and gaps of learning; each coupling has some of them"""

# Rows that are handled at once where memory must not grow with their number.
_BLOCK = 4096
# Gradient steps between two codings; each costs as much as one pass of exact updates over the atoms.
_STEPS = 5


def forget_history(model: object) -> None:
    """Remove the objectives of an earlier fit of ``model``, which may have had another coupling."""
    for name in HISTORY:
        vars(model).pop(name, None)


class ImageAttributes:
    """Attributes Z (n, q) of the seen images, and their products with codes.

    If all images of a class have the same attributes, ``A'Z`` needs only the sums of the codes of each class:
    ``sum_c (sum of a_i in c)' z_c``.

    Parameters
    ----------
    Z : (n, q)
    y : (n,) int
        Classes 0..C-1.
    """

    def __init__(self, Z: Array, y: Array) -> None:
        self.Z, self.y, n = Z, y, len(Z)
        pieces = [slice(i, i + _BLOCK) for i in range(0, n, _BLOCK)]
        member = np.zeros(int(y.max()) + 1, np.int64)
        for rows in pieces:
            member[y[rows]] = np.arange(rows.start, min(rows.stop, n))
        self.of_class = Z[member]
        self.repeat = all(np.array_equal(Z[rows], self.of_class[y[rows]]) for rows in pieces)
        squares = sum(float(np.einsum("ij,ij->", Z[rows], Z[rows], dtype=np.float64)) for rows in pieces)
        self.mean_square = squares / n

    def products(self, which: slice, A: sp.csr_array) -> Array:
        """For a piece of rows with codes A, the array to sum over all pieces: class sums of A, or A'Z itself."""
        if not self.repeat:
            return A.T.astype(np.float64) @ self.Z[which].astype(np.float64)
        y = self.y[which]
        members = sp.csr_array((np.ones(len(y)), (y, np.arange(len(y)))), shape=(len(self.of_class), len(y)))
        return (members @ A).toarray()

    def part(self, which: slice) -> ImageAttributes:
        """The attributes of the rows ``which`` alone."""
        part = copy(self)
        part.Z, part.y = self.Z[:0] if self.repeat else self.Z[which], self.y[which]
        return part

    def rows(self, which: slice | Array) -> Array:
        """The attributes of the rows ``which``."""
        return self.of_class[self.y[which]] if self.repeat else self.Z[which]

    def mean_products(self, total: Array) -> Array:
        """``A'Z / n`` (r, q) from the sum of :meth:`products`."""
        return (total.T @ self.of_class if self.repeat else total) / len(self.Z)


class Visual:
    """``F_x`` of Eq. (3): learn the visual dictionary from images.

    Parameters
    ----------
    X : (n, p)
    attributes : ImageAttributes
    beta : float >= 0
        Ridge penalty on the atoms; 0 confines the atoms to the unit ball instead.
    by_gradient : bool
        Whether the dictionary moves by gradient steps or to the exact minimiser.
    """

    def __init__(self, X: Array, attributes: ImageAttributes, beta: float, by_gradient: bool = False) -> None:
        self.X, self.attributes, self.beta, self.by_gradient = X, attributes, beta, by_gradient
        self.n_rows, self.n_features = X.shape

    def part(self, which: slice) -> Self:
        """The same problem for the rows ``which`` alone, without their images, which :meth:`over` adds."""
        part = copy(self)
        part.X, part.attributes = np.zeros((0, self.n_features)), self.attributes.part(which)
        part.n_rows = which.stop - which.start
        return part

    def over(self, X: Array) -> Self:
        """The same problem with images X (n, p)."""
        out = copy(self)
        out.X = X
        return out

    def rows(self, which: slice | Array) -> Array:
        return np.ascontiguousarray(self.X[which])

    def extra(self, D: Array, B: Array) -> tuple[float, float, Codes]:
        return self.beta / D.shape[1] * square(D), 0.0, Codes(B, np.zeros(0), 0)

    def update(self, AtA: Array, AtX: Array, D: Array, B: Array) -> Array:
        if self.beta and not self.by_gradient:
            unused = np.diag(AtA) == 0
            new = ridge_atoms(AtA, AtX, self.beta)
            new[unused] = D[unused]
            return new
        H = AtA.astype(D.dtype, copy=False)
        if self.by_gradient:
            return gradient_atoms(H, AtX, D, self.beta, in_ball=not self.beta, n_steps=_STEPS)
        return unit_ball_atoms(H, AtX, D)

    def new_atoms(self, D: Array, which: Array, sources: Array) -> Array:
        return self._length(D, which) * unit_atoms(sources)

    def _length(self, D: Array, which: Array) -> float:
        """Length of new atoms: one, or with a ridge penalty at most the mean length of the other atoms."""
        if not self.beta:
            return 1.0
        others = np.delete(np.linalg.norm(D, axis=1), which)
        return min(1.0, float(others.mean())) if others.size else 0.0

    def products(self, which: slice, A: sp.csr_array) -> Array:
        return self.attributes.products(which, A)


class Joint(Visual):
    r"""Eq. (2) in all its variables, as a dictionary of stacked rows.

    The codes A see images and attributes at once. With ``P = p + q`` the rows are
    :math:`s = \sqrt P\,[x/\sqrt p,\; z/\sqrt q]`, and so are the atoms. Since
    :math:`\tfrac1P\|s - aD\|^2 = \tfrac1p\|x - aD_x\|^2 + \tfrac1q\|z - aD_z\|^2`, the codes A solve one LASSO of
    the form of Eq. (5) in P dimensions with the same lambda and r, and its duality gap is that of the sum.
    """

    def __init__(
        self, X: Array, attributes: ImageAttributes, Z_unseen: Array, ridge: float, beta: float, weight: float,
        encode: Callable[[Array, Array, Array | None], Codes], lam: float, by_gradient: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(X, attributes, ridge, by_gradient)
        self.Z_unseen = Z_unseen if weight else Z_unseen[:0]
        self.beta_z, self.weight, self.encode, self.lam = beta, weight, encode, lam
        self.p, q = X.shape[1], Z_unseen.shape[1]
        scales = np.repeat([((self.p + q) / self.p) ** 0.5, ((self.p + q) / q) ** 0.5], [self.p, q])
        self.scales = scales.astype(X.dtype)

    def stacked(self, X: Array, Z: Array) -> Array:
        """Stack visual and semantic rows, or atoms, side by side."""
        return np.hstack([X, Z]) * self.scales

    def split(self, S: Array) -> tuple[Array, Array]:
        """Split stacked rows, atoms or products ``A'S`` into the visual and the semantic part."""
        S = S / self.scales
        return np.ascontiguousarray(S[:, : self.p]), np.ascontiguousarray(S[:, self.p :])

    def start(self, Dx: Array, sample: Array) -> Array:
        """Initial stacked atoms: ``Dx``, and the ``Dz`` that fits the codes of the images ``sample`` under ``Dx``."""
        A = self.encode(np.ascontiguousarray(self.X[sample]), Dx, None).A
        AtA, AtZ = A.T @ A / len(A), A.T @ self.attributes.rows(sample) / len(A)
        none = np.zeros((0, len(Dx)), Dx.dtype)
        start = np.zeros((len(Dx), AtZ.shape[1]), Dx.dtype)
        Dz = SemanticAtoms(AtA, AtZ, self.beta_z, not self.beta).atoms(start, none, self.Z_unseen, 0.0)
        return self.stacked(Dx, Dz)

    def rows(self, which: slice | Array) -> Array:
        return self.stacked(self.X[which], self.attributes.rows(which))

    def extra(self, D: Array, B: Array) -> tuple[float, float, Codes]:
        Dx, Dz = self.split(D)
        value = self.beta / self.p * square(Dx) + self.beta_z / Dz.shape[1] * square(Dz)
        if not self.weight:
            return value, 0.0, Codes(B, np.zeros(0), 0)
        codes = self.encode(self.Z_unseen, Dz, B)
        value += self.weight * float(objective(self.Z_unseen, Dz, codes.A, self.lam).sum())
        return value, self.weight * float(codes.gap.sum()), codes

    def update(self, AtA: Array, AtX: Array, D: Array, B: Array) -> Array:
        (Dx, Dz), (of_X, of_Z) = self.split(D), self.split(AtX)
        Dx = super().update(AtA, of_X, Dx, B)
        Dz = SemanticAtoms(AtA, of_Z, self.beta_z, not self.beta).atoms(Dz, B, self.Z_unseen, self.weight)
        return self.stacked(Dx, Dz.astype(D.dtype, copy=False))

    def new_atoms(self, D: Array, which: Array, sources: Array) -> Array:
        Dx, Dz = self.split(D)
        # The semantic atoms stay, because the codes B of the unseen classes may use them.
        return self.stacked(super().new_atoms(Dx, which, self.split(sources)[0]), Dz[which])

    def products(self, which: slice, A: sp.csr_array) -> Array:
        return np.zeros(())


class SemanticAtoms:
    """Minimise Eq. (4) over Dz for fixed codes of the seen images; call ``atoms`` once for each choice of codes B.

    Parameters
    ----------
    AtA : (r, r)
    AtZ : (r, q)
    beta : float > 0
    in_ball : bool
        Whether atoms are confined to the unit ball. If an atom of the free minimiser, which has a closed form, is
        longer than one, ten passes of block-coordinate descent approximate the confined minimiser.
    """

    def __init__(self, AtA: Array, AtZ: Array, beta: float, in_ball: bool) -> None:
        self.AtA, self.AtZ, self.beta, self.in_ball = AtA, AtZ, beta, in_ball
        self._free = RidgeAtoms(AtA, AtZ, beta)

    def atoms(self, Dz: Array, B: Array, Z: Array, weight: float) -> Array:
        """The atoms (r, q) with the term of classes Z (M, q) and codes B (M, r) times ``weight``.

        The term is left out if B is empty or the weight is 0. A descent starts at ``Dz``.
        """
        rows = bool(len(B) and weight)
        free = self._free.with_rows(B, Z, weight) if rows else self._free.atoms
        if not self.in_ball or np.linalg.norm(free, axis=1).max() <= 1:
            return free
        H, C = (self.AtA + weight * B.T @ B, self.AtZ + weight * B.T @ Z) if rows else (self.AtA, self.AtZ)
        return unit_ball_atoms(H, C, Dz, self.beta, n_passes=10)
