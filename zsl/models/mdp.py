"""MDP: unseen classes as missing data, coded over seen classes, then corrected by the test images (transductive)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from zsl.checks import Array, Count, NonNegative
from zsl.linalg import class_means, principal_directions, squared_distances
from zsl.models.base import GridCache
from zsl.models.gaussian_mixture import class_variances, fit_mixture, k_means, log_densities, positive, within_scale
from zsl.models.transductive import EVERY_CLASS, TransductiveModel
from zsl.sparse import sparse_encode


@dataclass(eq=False, repr=False)
class MDP(TransductiveModel):
    r"""Zero-shot learning posed as a missing data problem (Zhao, Wu, Wu and Wang, ICCV workshops 2017).

    A principal component analysis of seen and test images together gives d directions; all that follows is in these. A
    class u with attributes a_u is a sparse combination of the seen classes with attributes S (C, q),

    .. math:: w_u = \arg\min_w \tfrac12 \|a_u - w S\|^2 + \text{l1} \|w\|_1, \qquad
        \mu_u = w_u M, \qquad \sigma_u^2 = w_u V

    with the means M and variances V (C, d) of the seen classes. Variances that are not positive become the smallest
    positive one. Attributes are divided by their largest absolute value over the seen classes. Then the test images
    move the classes: expectation maximisation of a mixture of Gaussians from ``sigma^2 + reg``, each step of which adds
    ``reg`` to the variances (the authors on AwA), or k-means from the means (the authors on CUB). The score is the
    negative squared distance to the mean, or the log-density without the weights of the mixture.

    The steps are those of the authors' code. They take features as they are, with d = 80 (AwA) or 400 (CUB):
    ``model.scale_features=false feature.centre=false feature.l2=false dataset.semantics.centre=false
    dataset.semantics.l2=false``. If no variance at all is positive, which they leave open, all are the mean variance of
    the seen classes. The published accuracies are per image, not per class. A signed code may give variances far from
    those of any seen class: on validation classes of ``cifar_awa`` k-means, which needs none, is better than the
    mixture.

    The joint analysis needs the training images, so the fitted model, and its file, hold them.

    Parameters
    ----------
    n_components : int >= 1
        d, at most the rank of all images.
    l1 : float >= 0
    refine : "mixture", "k_means" or "none"
    label : "nearest" or "density"
        ``density`` needs variances, which ``k_means`` leaves as predicted.
    reg : float >= 0
    scale_features : bool
        Whether features are divided by the square root of the mean within-class variance, which makes ``reg`` a share
        of it; the authors do not.
    max_iter : int >= 1
        Steps of the mixture or of k-means at most.

    Attributes
    ----------
    X_ : (n, p)
        The training images.
    y_ : (n,)
    S_ : (C, q)

    Examples
    --------
    >>> import numpy as np
    >>> X, y, Z = np.eye(2), np.array([0, 1]), np.array([[1.0, -1.0], [-1.0, 1.0]])
    >>> MDP().fit(X, y, Z, Z_unseen=-Z).predict(X)
    array([1, 0])
    """

    assumes = (EVERY_CLASS,)

    n_components: Count = 80
    l1: NonNegative = 0.5
    refine: Literal["mixture", "k_means", "none"] = "k_means"
    label: Literal["nearest", "density"] = "nearest"
    reg: NonNegative = 0.01
    scale_features: bool = True
    max_iter: Count = 1000

    X_: Array = field(init=False, repr=False)
    y_: Array = field(init=False, repr=False)
    S_: Array = field(init=False, repr=False)

    def _fit(self, X: Array, y: Array, Z: Array, shared: GridCache) -> None:
        # A copy, because the caller may change its own.
        self.X_, self.y_, self.S_ = shared("X copied", X.copy), y, class_means(Z, y)

    def class_codes(self, S: Array) -> Array:
        """Sparse codes (L, C) over the seen classes of classes with attributes S (L, q)."""
        largest = float(np.abs(self.S_).max()) or 1.0
        C, q = self.S_.shape
        # sparse_encode divides the squares by q and the penalty by C.
        found = sparse_encode(S / largest, self.S_ / largest, lam=2 * self.l1 * C / q, tol=1e-8)
        return found.A

    def _scores(self, X: Array, S: Array) -> Array:
        P, T = self._components(X)
        V = class_variances(P, self.y_)
        scale = within_scale(P, V) if self.scale_features else 1.0
        P, T, V = P / scale, T / scale, V / scale**2
        w = self.class_codes(S.astype(np.float64))
        means, variances = w @ class_means(P, self.y_), positive(w @ V, V)
        if self.refine == "mixture":
            found = fit_mixture(T, means, variances + self.reg, added=self.reg, max_iter=self.max_iter)
            means, variances = found.means, found.variances
        elif self.refine == "k_means":
            means = k_means(T, means, self.max_iter)
        nearest = self.label == "nearest"
        scores = -squared_distances(T, means) if nearest else log_densities(T, means, variances)
        return scores.astype(X.dtype, copy=False)

    def _components(self, X: Array) -> tuple[Array, Array]:
        """Training and test images in the principal components of both together."""
        both = np.vstack([self.X_, X]).astype(np.float64)
        both -= both.mean(axis=0)
        both = both @ principal_directions(both)[:, -self.n_components :]
        return both[: len(self.X_)], both[len(self.X_) :]
