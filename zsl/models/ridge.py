"""Ridge regression from features to attributes: the plainest zero-shot classifier."""

from __future__ import annotations

from dataclasses import dataclass, field

from zsl.checks import Array, Positive
from zsl.linalg import class_means, class_sums, ridge, spectrum
from zsl.models.base import AttributePredictor, GridCache, Metric, compare


@dataclass(eq=False, repr=False)
class Ridge(AttributePredictor):
    r"""Attributes of an image as a linear function of its features.

    .. math:: \min_W \|X W - Z\|_F^2 + \gamma \|W\|_F^2, \qquad W = (X^\top X + \gamma I)^{-1} X^\top Z

    with X (n, p) features and Z (n, q) attributes of each image; the class whose attributes are most similar to
    ``x W`` is predicted. A regression baseline of the field without one origin (Palatucci et al., NIPS 2009, have
    it for binary codes). No intercept: features and attributes are centred by the pre-processing.

    Parameters
    ----------
    gamma : float > 0
        Ridge penalty.
    metric : "cosine", "nearest" or "dot"
        Similarity of predicted and class attributes. Predictions are shrunken, so that ``nearest`` (Euclidean)
        favours classes with short attribute rows.

    Attributes
    ----------
    W_ : (p, q)
    """

    gamma: Positive = 10.0
    metric: Metric = "cosine"

    W_: Array = field(init=False, repr=False)

    def _fit(self, X: Array, y: Array, Z: Array, shared: GridCache) -> None:
        # X'Z by images is X'Y S by classes only where images of a class share their attributes; this is exact for both.
        XtZ = shared("X'Z", lambda: cross(X, y, Z))
        self.W_ = ridge(shared("X", lambda: spectrum(X)), XtZ, self.gamma).astype(X.dtype)

    def _attributes(self, X: Array) -> Array:
        return X @ self.W_

    def _scores(self, X: Array, S: Array) -> Array:
        return compare(self._attributes(X), S, self.metric)


def cross(X: Array, y: Array, Z: Array) -> Array:
    """X'Z (p, q) in double precision; by class sums where the images of each class share one attribute row."""
    S = class_means(Z, y)
    if (S[y].astype(Z.dtype) == Z).all():
        return class_sums(X, y).T @ S
    return X.T.astype("float64") @ Z.astype("float64")
