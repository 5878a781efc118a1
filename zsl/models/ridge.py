"""Ridge regression from features to attributes: the simplest zero-shot model."""

from __future__ import annotations

from dataclasses import dataclass, field

from zsl.checks import Array, Positive
from zsl.linalg import class_means, class_sums, ridge, spectrum
from zsl.models.base import AttributePredictor, GridCache, Metric


@dataclass(eq=False, repr=False)
class Ridge(AttributePredictor):
    r"""Predict the attributes of an image as a linear function of its features.

    .. math:: \min_W \|X W - Z\|_F^2 + \gamma \|W\|_F^2, \qquad W = (X^\top X + \gamma I)^{-1} X^\top Z

    X (n, p) are features and Z (n, q) are attributes of each image. An image gets the class whose attributes are most
    similar to ``x W``. The baseline has no single origin; Palatucci et al. (NIPS 2009) have it for binary codes. There
    is no intercept, because the pre-processing centres features and attributes.

    Parameters
    ----------
    gamma : float > 0
        Ridge penalty.
    metric : "cosine", "nearest" or "dot"
        Similarity of predicted and class attributes. Predictions are shrunk towards zero, so ``nearest`` (Euclidean)
        favours classes with short attribute rows.

    Attributes
    ----------
    W_ : (p, q)

    Examples
    --------
    >>> import numpy as np
    >>> X, y, Z = np.eye(2), np.array([0, 1]), np.array([[1.0, -1.0], [-1.0, 1.0]])
    >>> Ridge().fit(X, y, Z, Z_unseen=-Z).predict(X)
    array([1, 0])
    """

    gamma: Positive = 10.0
    metric: Metric = "cosine"

    W_: Array = field(init=False, repr=False)

    def _fit(self, X: Array, y: Array, Z: Array, shared: GridCache) -> None:
        XtZ = shared("X'Z", lambda: cross(X, y, Z))
        self.W_ = ridge(shared("X", lambda: spectrum(X)), XtZ, self.gamma).astype(X.dtype)

    def _attributes(self, X: Array) -> Array:
        return X @ self.W_


def cross(X: Array, y: Array, Z: Array) -> Array:
    """X'Z (p, q) in double precision; class sums of X suffice if all images of a class have the same attributes."""
    S = class_means(Z, y)
    if (S[y].astype(Z.dtype) == Z).all():
        return class_sums(X, y).T @ S
    return X.T.astype("float64") @ Z.astype("float64")
