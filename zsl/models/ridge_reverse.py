"""RidgeReverse: ridge regression from attributes to features, which gives prototypes of the unseen classes."""

from __future__ import annotations

from dataclasses import dataclass, field

from zsl.checks import Array, Positive
from zsl.linalg import ridge, spectrum
from zsl.models.base import GridCache, InductiveModel, Metric, compare
from zsl.models.ridge import cross


@dataclass(eq=False, repr=False)
class RidgeReverse(InductiveModel):
    r"""Predict the features of a class as a linear function of its attributes.

    .. math:: \min_V \|Z V - X\|_F^2 + \gamma \|V\|_F^2, \qquad V = (Z^\top Z + \gamma I)^{-1} Z^\top X

    X (n, p) are features and Z (n, q) are attributes of each image. An image x gets the class u whose prototype ``s_u
    V`` is most similar to x. This direction makes fewer hubs than regression from features to attributes (Shigeto et
    al., "Ridge regression, hubness, and zero-shot learning", ECML 2015).

    Parameters
    ----------
    gamma : float > 0
        Ridge penalty. Z'Z sums over images, so only a gamma of the order of their number has an effect.
    metric : "nearest", "cosine" or "dot"
        Similarity in feature space; the reference has ``nearest``.

    Attributes
    ----------
    V_ : (q, p)

    Examples
    --------
    >>> import numpy as np
    >>> X, y, Z = np.eye(2), np.array([0, 1]), np.array([[1.0, -1.0], [-1.0, 1.0]])
    >>> RidgeReverse().fit(X, y, Z, Z_unseen=-Z).predict(X)
    array([1, 0])
    """

    gamma: Positive = 100.0
    metric: Metric = "nearest"

    V_: Array = field(init=False, repr=False)

    def _fit(self, X: Array, y: Array, Z: Array, shared: GridCache) -> None:
        XtZ = shared("X'Z", lambda: cross(X, y, Z))
        self.V_ = ridge(shared("Z", lambda: spectrum(Z)), XtZ.T, self.gamma).astype(X.dtype)

    def _scores(self, X: Array, S: Array) -> Array:
        return compare(X, S @ self.V_, self.metric)
