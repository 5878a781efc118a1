"""ESZSL with a kernel on the features."""

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

    with K (n, n) the kernel between training images, S (C, q) attributes of the seen classes (class means of images'
    own attributes) and Y (n, C) targets. With a linear kernel it is :class:`zsl.models.ESZSL`.

    Parameters
    ----------
    gamma, lam : float > 0
        Penalties as in ESZSL.
    kernel : "rbf" or "linear"
    width : float > 0
        Of ``exp(-|x - x'|^2 / (2 width^2 m))`` with m the mean of |x|^2 over the training images, so that it means
        the same for any features.
    y_negative : 0 or -1
        Target of a class that is not the image's.
    max_images : int
        K takes memory of the square and time of the cube of the number of images; of more than ``max_images`` as many
        are drawn without replacement (not in the reference), and the log says so.
    seed : int
        Of that draw.

    Attributes
    ----------
    A_ : (n, q), X_ : (n, p)
        Coefficients, and the training images they belong to.
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
        # Rounding may leave eigenvalues of K a little below zero.
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
