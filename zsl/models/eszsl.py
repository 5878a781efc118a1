"""ESZSL: a bilinear score with a closed-form solution."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from zsl.checks import Array, Positive
from zsl.linalg import Spectrum, class_means, class_sums, spectrum
from zsl.models.base import AttributePredictor, GridCache


@dataclass(eq=False, repr=False)
class ESZSL(AttributePredictor):
    r"""Embarrassingly simple zero-shot learning (Romera-Paredes and Torr, ICML 2015).

    .. math:: \min_V \|X V S^\top - Y\|_F^2 + \gamma \|V S^\top\|_F^2 + \lambda \|X V\|_F^2
        + \gamma \lambda \|V\|_F^2, \qquad
        V = (X^\top X + \gamma I)^{-1} X^\top Y S (S^\top S + \lambda I)^{-1}

    X (n, p) are features, S (C, q) are attributes of the seen classes and Y (n, C) are targets. The score of class s
    for image x is ``x V s'``. If images have attributes of their own, S holds their class means.

    Parameters
    ----------
    gamma : float > 0
        The penalty on the side of the features.
    lam : float > 0
        The penalty on the side of the attributes.
    y_negative : 0 or -1
        Target of every class but the image's own. The reference's text has -1; its released code and most
        re-implementations have 0.

    Attributes
    ----------
    V_ : (p, q)

    Examples
    --------
    >>> import numpy as np
    >>> X, y, Z = np.eye(2), np.array([0, 1]), np.array([[1.0, -1.0], [-1.0, 1.0]])
    >>> ESZSL().fit(X, y, Z, Z_unseen=-Z).predict(X)
    array([1, 0])
    """

    gamma: Positive = 10.0
    lam: Positive = 1.0
    y_negative: Literal[0, -1] = 0

    V_: Array = field(init=False, repr=False)

    def _fit(self, X: Array, y: Array, Z: Array, shared: GridCache) -> None:
        S = shared("S", lambda: class_means(Z, y))
        of_X = shared("X", lambda: spectrum(X))
        of_S = shared("S'S", lambda: spectrum(S))
        # A whole grid shares both decompositions and the middle factor; the large product is made once per gamma.
        middle = shared(("middle", self.y_negative), lambda: _middle(X, y, S, of_X, of_S, self.y_negative))
        left = shared(
            ("left", self.y_negative, self.gamma), lambda: of_X.vectors @ (middle / (of_X.values + self.gamma)[:, None])
        )
        self.V_ = (left / (of_S.values + self.lam) @ of_S.vectors.T).astype(X.dtype)

    def _scores(self, X: Array, S: Array) -> Array:
        return X @ (self.V_ @ S.T)

    def _attributes(self, X: Array) -> Array:
        """``X V``, which scores multiply with the classes' attributes; its scale is not that of attributes."""
        return X @ self.V_


def targets_times(X: Array, y: Array, negative: float) -> Array:
    """X'Y (p, C) for the targets Y (n, C), which are 1 for the image's own class and ``negative`` for the others."""
    sums = class_sums(X, y).T
    return (1 - negative) * sums + negative * sums.sum(axis=1, keepdims=True)


def _middle(X: Array, y: Array, S: Array, of_X: Spectrum, of_S: Spectrum, negative: float) -> Array:
    return of_X.vectors.T @ (targets_times(X, y, negative) @ (S @ of_S.vectors)).astype(np.float64)
