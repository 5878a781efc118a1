"""BiDiLEL: unseen classes get places in a discriminative latent space from their distances to seen classes."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import numpy as np
import scipy.linalg

from zsl.checks import Array, Count, Positive
from zsl.linalg import class_means, gram, ridge, spectrum, squared_distances
from zsl.models.base import GridCache, InductiveModel
from zsl.models.descent import descend

# Smaller distances than this share of the mean distance would get an unbounded weight.
_CLOSEST = 1e-2


@dataclass(eq=False, repr=False)
class BiDiLEL(InductiveModel):
    r"""Bidirectional latent embedding (Wang and Chen, IJCV 2017), inductive form.

    Bottom-up, a projection keeps the images of a class together (supervised LPP with equal weights within classes). Its
    columns are the leading solutions a (p,) of ``(X'X + alpha I) a = kappa (S_w + alpha I) a``, where S_w is the
    scatter of the images X (n, p) about their class means. Top-down, Sammon's stress places a class u in the latent
    space,

    .. math:: b_u = \arg\min_b \sum_c \frac{(\|b - b_c\| - \delta_{uc})^2}{\delta_{uc}}

    where c runs over the seen classes, b_c is the latent mean of their images and delta are distances of attributes. An
    image gets the class with the nearest place.

    Three parts are interpretations. The scale between distances of attributes and of latent means is the ratio of their
    means over pairs of seen classes. Each class is placed on its own, without the reference's term between unseen
    classes, so the scores of a class do not depend on the other classes. Descent starts at the prediction of a ridge
    regression from attributes to latent means.

    Parameters
    ----------
    alpha : float > 0
        Regularisation, relative to the mean diagonal of X'X.
    n_components : int >= 1
        Dimension of the latent space, at most C_seen - 1.

    Attributes
    ----------
    P_ : (p, d)
    b_ : (C_seen, d)

    Examples
    --------
    >>> import numpy as np
    >>> X, y, Z = np.eye(2), np.array([0, 1]), np.array([[1.0, -1.0], [-1.0, 1.0]])
    >>> BiDiLEL().fit(X, y, Z, Z_unseen=-Z).predict(X)
    array([1, 0])
    """

    alpha: Positive = 1.0
    n_components: Count = 100

    P_: Array = field(init=False, repr=False)
    b_: Array = field(init=False, repr=False)

    def _fit(self, X: Array, y: Array, Z: Array, shared: GridCache) -> None:
        S, M = shared("S", lambda: class_means(Z, y)), shared("M", lambda: class_means(X, y))
        total = shared("X'X", lambda: gram(X))
        counts = np.bincount(y)
        p = X.shape[1]
        between = (M * counts[:, None]).T @ M
        alpha = self.alpha * (float(np.trace(total)) / p or 1.0)
        d = max(min(self.n_components, len(S) - 1, p), 1)
        _, P = scipy.linalg.eigh(
            total + alpha * np.eye(p), total - between + alpha * np.eye(p), subset_by_index=[p - d, p - 1]
        )
        self.P_, self.S_ = P.astype(X.dtype), S
        self.b_ = M @ P
        pairs = np.triu_indices(len(S), 1)
        latent, semantic = (np.sqrt(squared_distances(A, A))[pairs] for A in (self.b_, S))
        mean = float(semantic.mean()) if semantic.size else 0.0
        self.scale_ = float(latent.mean()) / mean if mean > 0 else 1.0
        # If all means coincide, there is no scale.
        self.closest_ = (_CLOSEST * float(latent.mean()) if latent.size else 0.0) or 1.0
        self.towards_ = ridge(spectrum(S), S.T @ self.b_, 1.0)

    def places(self, S: Array) -> Array:
        """Places (C, d) in the latent space of classes with attributes S (C, q)."""
        S = S.astype(np.float64)
        delta = np.maximum(self.scale_ * np.sqrt(squared_distances(S, self.S_)), self.closest_)
        return np.array(
            [
                descend(partial(self.stress, delta=row), s @ self.towards_, tol=1e-9, max_iter=500).x
                for s, row in zip(S, delta)
            ]
        )

    def stress(self, b: Array, delta: Array) -> tuple[float, Array]:
        """Sammon's stress of a place b (d,) for distances delta (C_seen,), and its gradient."""
        difference = b - self.b_
        distance = np.maximum(np.linalg.norm(difference, axis=1), 1e-12)
        error = distance - delta
        return float((error**2 / delta).sum()), (2 * error / delta / distance) @ difference

    def _scores(self, X: Array, S: Array) -> Array:
        return -squared_distances(X @ self.P_, self.places(S).astype(X.dtype))
