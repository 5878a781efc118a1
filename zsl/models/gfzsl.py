"""GFZSL: class-conditional Gaussians whose means and variances a kernel regression predicts from attributes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from zsl.checks import Array, Count, NonNegative
from zsl.linalg import class_means, ridge
from zsl.models.base import GridCache, InductiveModel
from zsl.models.gaussian_mixture import class_variances, fit_mixture, log_densities, positive, within_scale
from zsl.models.kernel_ridge import decompose, kernel
from zsl.models.transductive import EVERY_CLASS, TransductiveModel

# Predicted log-variances stay within these limits, so that their exponentials are finite.
_RANGE = 200.0


@dataclass(eq=False, repr=False)
class GFZSL(InductiveModel):
    r"""A simple exponential family framework for zero-shot learning (Verma and Rai, ECML 2017), inductive form.

    .. math:: \mu_u = K(a_u, S) (K(S, S) + \gamma I)^{-1} M, \qquad
        \log \sigma_u^2 = K(a_u, S) (K(S, S) + \gamma_\sigma I)^{-1} \log(V + \epsilon), \qquad
        \text{score} = \log N(x;\; \mu_u,\; \mathrm{diag}(\sigma_u^2 + r))

    M (C, p) are means and V (C, p) variances of the features of the seen classes, S (C, q) are their attributes and K
    is the kernel ``(1 + a.b)^2`` or ``a.b``. Formulas and constants are those of the authors' code. In the generalised
    setting seen classes, too, get predicted Gaussians.

    The regression of log-variances has neither an intercept nor centred targets, as published. The published
    ``gamma_variance`` is so large that every predicted variance is 1, whatever V is, and the nearest predicted mean
    wins. Variances then depend on the unit of the features, so by default features are divided by the square root of
    the mean within-class variance, which makes 1 the mean variance, and ``eps`` and ``reg`` shares of it. The published
    results are for raw features of ResNet101: ``model.scale_features=false feature.centre=false feature.l2=false
    dataset.semantics.centre=false``, with attributes of unit length and gamma 0.01 (AwA2), 1 (CUB) or 0.1 (SUN).

    Parameters
    ----------
    gamma : float >= 0
        Ridge penalty of the means, in relation to the kernel, which is at most 4 for attributes of unit length.
    gamma_variance : float >= 0
        Ridge penalty of the log-variances; published are 1e8 (AwA2, SUN) and 1e7 (CUB).
    eps : float >= 0
        Added to variances before the logarithm; published are 1e-3 (AwA2, SUN) and 1e-4 (CUB).
    reg : float >= 0
        Added to predicted variances. With 0, variances of 0, as pooled ones of constant features, become the smallest
        positive one.
    kernel : "polynomial" or "linear"
    variances : "regressed" or "pooled"
        ``pooled`` gives every class the variances of the seen images about their class means; this option is ours.
    scale_features : bool
        Whether features are divided by the square root of the mean within-class variance; the authors do not.

    Attributes
    ----------
    S_ : (C, q)
    mean_coefficients_, variance_coefficients_ : (C, p)
    pooled_ : (p,)

    Examples
    --------
    >>> import numpy as np
    >>> X, y, Z = np.eye(2), np.array([0, 1]), np.array([[1.0, -1.0], [-1.0, 1.0]])
    >>> GFZSL(kernel="linear").fit(X, y, Z, Z_unseen=-Z).predict(X)
    array([1, 0])
    """

    gamma: NonNegative = 1.0
    gamma_variance: NonNegative = 1e8
    eps: NonNegative = 1e-3
    reg: NonNegative = 0.05
    kernel: Literal["polynomial", "linear"] = "polynomial"
    variances: Literal["regressed", "pooled"] = "regressed"
    scale_features: bool = True

    S_: Array = field(init=False, repr=False)
    mean_coefficients_: Array = field(init=False, repr=False)
    variance_coefficients_: Array = field(init=False, repr=False)
    pooled_: Array = field(init=False, repr=False)

    def _fit(self, X: Array, y: Array, Z: Array, shared: GridCache) -> None:
        self.S_ = shared("S", lambda: class_means(Z, y))
        M, V = shared("M", lambda: class_means(X, y)), shared("V", lambda: class_variances(X, y))
        K = shared(("K", self.kernel), lambda: decompose(kernel(self.S_, self.S_, self.kernel)))
        self.scale_ = within_scale(X, V) if self.scale_features else 1.0
        M, V = M / self.scale_, V / self.scale_**2
        self.mean_coefficients_ = ridge(K, M, self.gamma)
        # A class without spread has no logarithm of its variances.
        logarithms = np.log(np.maximum(V + self.eps, np.finfo(np.float64).tiny))
        self.variance_coefficients_ = ridge(K, logarithms, self.gamma_variance)
        pooled, largest = np.bincount(y) @ V / len(y), np.abs(X).max(axis=0) / self.scale_
        # The variance of a constant feature is zero but for rounding.
        self.pooled_ = np.where(pooled > 1e-24 * largest**2, pooled, 0.0)

    def gaussians(self, S: Array) -> tuple[Array, Array]:
        """Predicted means and variances, both (C, p), of classes with attributes S (C, q), for scaled features."""
        K = kernel(S, self.S_, self.kernel)
        means = K @ self.mean_coefficients_
        if self.variances == "pooled":
            return means, np.tile(self.pooled_, (len(S), 1))
        return means, np.exp(np.clip(K @ self.variance_coefficients_, -_RANGE, _RANGE))

    def _classify(self, X: Array, means: Array, variances: Array, dtype: np.dtype) -> Array:
        # Where nothing has any spread all variances are 1, and the nearest mean wins.
        variances = positive(variances + self.reg, variances)
        return log_densities(X, means, variances).astype(dtype, copy=False)

    def _scores(self, X: Array, S: Array) -> Array:
        return self._classify(X / self.scale_, *self.gaussians(S), X.dtype)


@dataclass(eq=False, repr=False)
class GFZSLTransductive(GFZSL, TransductiveModel):
    r"""GFZSL, transductive form (Verma and Rai, ECML 2017): the predicted Gaussians start a mixture of the test images.

    Expectation maximisation fits a mixture of Gaussians with diagonal covariances to the test images,

    .. math:: \max_{\pi, \mu, \sigma} \sum_i \log \sum_u \pi_u N(x_i;\; \mu_u,\; \mathrm{diag}(\sigma_u^2)),
        \qquad \sigma_u^2 \ge f

    from the Gaussians that :class:`GFZSL` predicts and equal weights. The scores are the log-densities under the fitted
    means and ``sigma^2 + reg``, without the weights, as in the authors' code. The published floor of 0.4 is for raw
    features of ResNet101, see :class:`GFZSL` for the keys; by default it is a share of the mean within-class variance.
    The authors report accuracy per image; accuracy per class is lower.

    Parameters
    ----------
    gamma, gamma_variance, eps, reg, kernel, variances, scale_features
        As in :class:`GFZSL`.
    floor : float >= 0
        Smallest variance of the mixture; the published value is 0.4. It may keep the likelihood from rising.
    max_iter : int >= 1
    tol : float >= 0
        The iteration ends once the mean log-likelihood changes by at most this.

    Examples
    --------
    >>> import numpy as np
    >>> X, y, Z = np.eye(2), np.array([0, 1]), np.array([[1.0, -1.0], [-1.0, 1.0]])
    >>> GFZSLTransductive(kernel="linear").fit(X, y, Z, Z_unseen=-Z).predict(X)
    array([1, 0])
    """

    assumes = (EVERY_CLASS,)

    floor: NonNegative = 0.4
    max_iter: Count = 1000
    tol: NonNegative = 1e-7

    def _scores(self, X: Array, S: Array) -> Array:
        scaled = X / self.scale_
        found = fit_mixture(scaled, *self.gaussians(S), floor=self.floor, max_iter=self.max_iter, tol=self.tol)
        return self._classify(scaled, found.means, found.variances, X.dtype)
