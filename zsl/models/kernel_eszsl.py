"""KernelESZSL: ESZSL with a kernel on the features."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import scipy.linalg

from zsl.checks import Array, Count, Positive, Seed
from zsl.linalg import class_means, spectrum, squared_distances
from zsl.models.base import GridCache, InductiveModel

log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class KernelESZSL(InductiveModel):
    r"""The kernel form of ESZSL (Romera-Paredes and Torr, ICML 2015).

    .. math:: A = (K + \gamma I)^{-1} Y S (S^\top S + \lambda I)^{-1}, \qquad
        \text{score} = k(x) A s^\top

    K (n, n) is the kernel between training images, S (C, q) are attributes of the seen classes and Y (n, C) are
    targets. With a linear kernel the model is :class:`zsl.models.ESZSL`.

    Parameters
    ----------
    gamma, lam : float > 0
        Penalties as in ESZSL.
    kernel : "rbf" or "linear"
    width : float > 0
        Width of the kernel ``exp(-|x - x'|^2 / (2 width^2 m))``. The mean m of ``|x|^2`` over the training images makes
        the width independent of the scale of the features.
    y_negative : 0 or -1
        Target of every class but the image's own.
    max_images : int >= 1
        If there are more images, this many are drawn without replacement and the log says so, because memory grows with
        the square and time with the cube of their number. The reference does not draw.
    seed : int >= 0
        Seed of the draw.

    Attributes
    ----------
    A_ : (n, q)
        Coefficients.
    X_ : (n, p)
        The training images to which the coefficients belong.

    Examples
    --------
    >>> import numpy as np
    >>> X, y, Z = np.eye(2), np.array([0, 1]), np.array([[1.0, -1.0], [-1.0, 1.0]])
    >>> KernelESZSL().fit(X, y, Z, Z_unseen=-Z).predict(X)
    array([1, 0])
    """

    gamma: Positive = 1.0
    lam: Positive = 1.0
    kernel: Literal["rbf", "linear"] = "rbf"
    width: Positive = 1.0
    y_negative: Literal[0, -1] = 0
    max_images: Count = 6000
    seed: Seed = 0

    A_: Array = field(init=False, repr=False)
    X_: Array = field(init=False, repr=False)

    def _fit(self, X: Array, y: Array, Z: Array, shared: GridCache) -> None:
        S = shared("S", lambda: class_means(Z, y))
        of_S = shared("S'S", lambda: spectrum(S))
        rows = shared(("rows", self.max_images, self.seed), lambda: self._draw(len(X)))
        self.X_ = X[rows]
        self.scale_ = shared("scale", lambda: float(np.einsum("ij,ij->", X, X) / len(X)) or 1.0)
        which = (self.kernel, self.width, self.max_images, self.seed)
        e, U = shared(("K", *which), lambda: scipy.linalg.eigh(self._kernel(self.X_).astype(np.float64), driver="evd"))
        targets = np.where(y[rows, None] == np.arange(len(S)), 1.0, self.y_negative)
        middle = shared(("UtY", self.y_negative, *which), lambda: U.T @ (targets @ (S @ of_S.vectors)))
        # Rounding may make eigenvalues of K slightly negative.
        left = shared(
            ("left", self.gamma, self.y_negative, *which),
            lambda: U @ (middle / (np.maximum(e, 0) + self.gamma)[:, None]),
        )
        self.A_ = (left / (of_S.values + self.lam) @ of_S.vectors.T).astype(X.dtype)

    def _draw(self, n: int) -> Array:
        if n <= self.max_images:
            return np.arange(n)
        log.info("kernel_eszsl: %d of %d images are drawn for the kernel (max_images)", self.max_images, n)
        return np.sort(np.random.default_rng(self.seed).choice(n, self.max_images, replace=False))

    def _kernel(self, X: Array) -> Array:
        if self.kernel == "linear":
            return X @ self.X_.T
        return np.exp(squared_distances(X, self.X_) * (-0.5 / (self.width**2 * self.scale_)))

    def _scores(self, X: Array, S: Array) -> Array:
        return self._kernel(X) @ (self.A_ @ S.T)
