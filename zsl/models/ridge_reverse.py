"""Ridge regression from attributes to features: prototypes of unseen classes, nearest in feature space."""

from __future__ import annotations

from dataclasses import dataclass, field

from zsl.checks import Array, Positive
from zsl.linalg import ridge, spectrum
from zsl.models.base import GridCache, InductiveModel, Metric, compare
from zsl.models.ridge import cross


@dataclass(eq=False, repr=False)
class RidgeReverse(InductiveModel):
    r"""Features as a linear function of attributes; a class's image is what the function makes of its attributes.

    .. math:: \min_V \|Z V - X\|_F^2 + \gamma \|V\|_F^2, \qquad V = (Z^\top Z + \gamma I)^{-1} Z^\top X

    with X (n, p) and Z (n, q); an image x gets the class u with ``s_u V`` most similar to x. The direction that
    makes fewer hubs (Shigeto et al., "Ridge regression, hubness, and zero-shot learning", ECML 2015).

    Parameters
    ----------
    gamma : float > 0
        Ridge penalty. Z'Z sums over images, so that gamma of the order of their number matters.
    metric : "nearest", "cosine" or "dot"
        Similarity in feature space; ``nearest`` is the reference's.

    Attributes
    ----------
    V_ : (q, p)
    """

    gamma: Positive = 100.0
    metric: Metric = "nearest"

    V_: Array = field(init=False, repr=False)

    def _fit(self, X: Array, y: Array, Z: Array, shared: GridCache) -> None:
        XtZ = shared("X'Z", lambda: cross(X, y, Z))
        self.V_ = ridge(shared("Z", lambda: spectrum(Z)), XtZ.T, self.gamma).astype(X.dtype)

    def _scores(self, X: Array, S: Array) -> Array:
        return compare(X, S @ self.V_, self.metric)
