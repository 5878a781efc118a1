"""SynthesisGaussian: class-conditional Gaussians from attributes, a generative model without a deep network."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from zsl.checks import Array, Fraction, Positive
from zsl.linalg import class_means, ridge, spectrum, squared_distances
from zsl.models.base import GridCache, InductiveModel
from zsl.models.gaussian_mixture import class_variances, log_densities

# Variances of predicted Gaussians stay above this share of the mean one.
_FLOOR = 1e-3


@dataclass(eq=False, repr=False)
class SynthesisGaussian(InductiveModel):
    r"""The images of a class follow a Gaussian whose parameters are a linear function of the class's attributes.

    .. math:: p(x | s) = N(x;\; s B,\; \Sigma), \qquad
        B = \arg\min_B \sum_c \|m_c - s_c B\|^2 + \gamma \|B\|_F^2

    m_c (p,) are the mean features and s_c (q,) the attributes of seen class c. Scores are log-densities, up to a
    constant for each image. The Bayes classifier trained on many synthetic images would give the same answer, so none
    are drawn.

    With ``covariance="pooled"``, Sigma is the covariance of the images about their class means, shrunk towards a
    multiple of the identity, ``(1 - shrinkage) Sigma + shrinkage tr(Sigma) / p I``; its eigenvalues stay above 0.001 of
    their mean. With ``"predicted"``, Sigma is diagonal. The variances v_c (p,) of each seen class are shrunk towards
    their mean over classes and features, ``(1 - shrinkage) v_c + shrinkage mean(v)``, and stay above 0.001 mean(v); a
    ridge regression with the same gamma and an intercept predicts their logarithms. B has no intercept.

    The model follows Verma and Rai (GFZSL, ECML 2017), who regress the parameters of exponential families on
    attributes; the shrinkage and the choice of covariances are ours.

    Parameters
    ----------
    gamma : float > 0
        Ridge penalty, in relation to S'S, which sums over classes.
    shrinkage : float, 0 < shrinkage <= 1
        With 1, Sigma is a multiple of the identity, so the nearest predicted mean wins (``"pooled"``), or all variances
        are equal (``"predicted"``).
    covariance : "pooled" or "predicted"

    Attributes
    ----------
    B_ : (q, p)

    Examples
    --------
    >>> import numpy as np
    >>> X, y, Z = np.eye(2), np.array([0, 1]), np.array([[1.0, -1.0], [-1.0, 1.0]])
    >>> SynthesisGaussian().fit(X, y, Z, Z_unseen=-Z).predict(X)
    array([1, 0])
    """

    gamma: Positive = 1.0
    shrinkage: Fraction = 0.1
    covariance: Literal["pooled", "predicted"] = "pooled"

    B_: Array = field(init=False, repr=False)

    def _fit(self, X: Array, y: Array, Z: Array, shared: GridCache) -> None:
        S, M = shared("S", lambda: class_means(Z, y)), shared("M", lambda: class_means(X, y))
        of_S = shared("S'S", lambda: spectrum(S))
        self.dtype_ = X.dtype
        self.B_ = ridge(of_S, S.T @ M, self.gamma)
        if self.covariance == "pooled":
            e, V = shared("within", lambda: _within(X, y, M))
            e = (1 - self.shrinkage) * e + self.shrinkage * e.mean()
            # If no class has any spread, distances stay Euclidean.
            self.whiten_ = V / np.sqrt(np.maximum(e, _FLOOR * e.mean()) if e.mean() > 0 else np.ones_like(e))
        else:
            V = shared("variances", lambda: class_variances(X.astype(np.float64), y))
            mean = V.mean(axis=0)
            V = (1 - self.shrinkage) * V + self.shrinkage * mean.mean()
            L = np.log(np.maximum(V, _FLOOR * max(mean.mean(), 1e-300)))
            self.log_variance_ = L.mean(axis=0)
            self.L_ = ridge(of_S, S.T @ (L - self.log_variance_), self.gamma)

    def _scores(self, X: Array, S: Array) -> Array:
        S = S.astype(np.float64)
        if self.covariance == "pooled":
            scores = -0.5 * squared_distances(X @ self.whiten_, S @ self.B_ @ self.whiten_)
        else:
            variances = np.exp(self.log_variance_ + S @ self.L_)
            scores = log_densities(X, S @ self.B_, variances) + 0.5 * X.shape[1] * np.log(2 * np.pi)
        return scores.astype(self.dtype_, copy=False)


def _within(X: Array, y: Array, M: Array) -> tuple[Array, Array]:
    """Eigenvalues (p,) and eigenvectors (p, p) of the covariance of X (n, p) about its class means M (C, p)."""
    R = X - M[y]
    return np.linalg.eigh(R.T @ R / len(X))
