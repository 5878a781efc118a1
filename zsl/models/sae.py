"""SAE: a linear auto-encoder whose code is the attributes of the image."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from zsl.checks import Array, Positive
from zsl.linalg import spectrum
from zsl.models.base import AttributePredictor, GridCache, Metric, compare
from zsl.models.ridge import cross


@dataclass(eq=False, repr=False)
class SAE(AttributePredictor):
    r"""Semantic auto-encoder (Kodirov, Xiang and Gong, CVPR 2017).

    .. math:: \min_W \|X - Z W\|_F^2 + \lambda \|X W^\top - Z\|_F^2

    X (n, p) are features and Z (n, q) are attributes of each image. The minimiser W (q, p) solves the Sylvester
    equation ``Z'Z W + W (lambda X'X) = (1 + lambda) Z'X``. Both matrices are symmetric, so two eigendecompositions
    ``Z'Z = U a U'`` and ``X'X = V b V'`` solve it for every lambda: ``U'WV = (1 + lambda) U'Z'XV / (a + lambda b')``.
    If the solution is not unique (both X'X and Z'Z are singular), W is the one of least norm.

    Parameters
    ----------
    lam : float > 0
        Weight of the encoder. Its scale is that of ``|Z|^2 / |X|^2``, which is 1 for rows of unit length. The published
        values go from 0.005 (SUN) to 500000 (AwA) and belong to rows that are not centred, so they do not carry over.
    direction : "semantic_to_feature" or "feature_to_semantic"
        Compare features with decoded class attributes ``s W``, or encoded features ``x W'`` with class attributes.
    metric : "cosine", "nearest" or "dot"
        Similarity; the reference has the cosine.

    Attributes
    ----------
    W_ : (q, p)

    Examples
    --------
    >>> import numpy as np
    >>> X, y, Z = np.eye(2), np.array([0, 1]), np.array([[1.0, -1.0], [-1.0, 1.0]])
    >>> SAE().fit(X, y, Z, Z_unseen=-Z).predict(X)
    array([1, 0])
    """

    lam: Positive = 50.0
    direction: Literal["semantic_to_feature", "feature_to_semantic"] = "feature_to_semantic"
    metric: Metric = "cosine"

    W_: Array = field(init=False, repr=False)

    def _fit(self, X: Array, y: Array, Z: Array, shared: GridCache) -> None:
        of_X = shared("X", lambda: spectrum(X))
        of_Z = shared("Z", lambda: spectrum(Z))
        middle = shared("U'Z'XV", lambda: of_Z.vectors.T @ (cross(X, y, Z).T @ of_X.vectors))

        def solution() -> Array:
            rotated = (1 + self.lam) * middle / (of_Z.values[:, None] + self.lam * of_X.values)
            return (of_Z.vectors @ (rotated @ of_X.vectors.T)).astype(X.dtype)

        self.W_ = shared(("W", self.lam), solution)

    def _attributes(self, X: Array) -> Array:
        return X @ self.W_.T

    def _scores(self, X: Array, S: Array) -> Array:
        if self.direction == "feature_to_semantic":
            return compare(self._attributes(X), S, self.metric)
        return compare(X, S @ self.W_, self.metric)
