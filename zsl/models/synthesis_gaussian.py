"""Class-conditional Gaussians synthesised from attributes: the generative family without a deep network."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from zsl.checks import Array, Fraction, Positive
from zsl.linalg import class_means, ridge, spectrum, squared_distances
from zsl.models.base import GridCache, InductiveModel

# Variances of predicted Gaussians stay above this share of the mean one.
_FLOOR = 1e-3


@dataclass(eq=False, repr=False)
class SynthesisGaussian(InductiveModel):
    r"""Images of a class are a Gaussian whose parameters are a linear function of its attributes.

    .. math:: p(x | s) = N(x;\; s B,\; \Sigma), \qquad
        B = \arg\min_B \sum_c \|m_c - s_c B\|^2 + \gamma \|B\|_F^2

    with m_c (p,) the mean features and s_c (q,) the attributes of seen class c. With ``covariance="pooled"``, Sigma is
    the covariance of images about their class's mean, shrunk towards a multiple of the identity,
    ``(1 - shrinkage) Sigma + shrinkage tr(Sigma) / p I``; with ``"predicted"`` it is diagonal: the
    variances v_c (p,) of each seen class are shrunk towards their mean over classes and features, ``(1 - shrinkage) v_c
    + shrinkage mean(v)``, kept above 0.001 mean(v), and their logarithms predicted by a ridge regression of the same
    gamma about their mean over classes, that is with an intercept; B has none. ``"pooled"`` keeps the eigenvalues of
    Sigma above 0.001 of their mean. Scores are log-densities (up to a constant per image): with as many
    synthetic images as one likes and the Bayes classifier trained on them, the answer is the same, so none are drawn.
    In the manner of Verma and Rai (GFZSL, ECML 2017), who regress the parameters of exponential families on attributes;
    the shrinkage and the choice of covariances are ours.

    Parameters
    ----------
    gamma : float > 0
        Ridge penalty; S'S sums over classes.
    shrinkage : 0 < float <= 1
        1: a multiple of the identity, that is the nearest predicted mean (``"pooled"``), or all variances alike
        (``"predicted"``).
    covariance : "pooled" or "predicted"

    Attributes
    ----------
    B_ : (q, p)
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
            # A feature space without any spread within classes keeps Euclidean distances.
            self.whiten_ = V / np.sqrt(np.maximum(e, _FLOOR * e.mean()) if e.mean() > 0 else np.ones_like(e))
        else:
            V = shared("variances", lambda: class_means(X.astype(np.float64) ** 2, y) - M**2)
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
            L, M = self.log_variance_ + S @ self.L_, S @ self.B_
            precision = np.exp(-L)
            # (x - m)^2 w summed: three products instead of a tensor (L, C, p).
            squares = (X**2) @ precision.T - 2 * X @ (precision * M).T + (precision * M**2).sum(axis=1)
            scores = -0.5 * (squares + L.sum(axis=1))
        return scores.astype(self.dtype_, copy=False)


def _within(X: Array, y: Array, M: Array) -> tuple[Array, Array]:
    """Eigenvalues (p,) and eigenvectors (p, p) of the covariance of X (n, p) about its class means M (C, p)."""
    R = X - M[y]
    return np.linalg.eigh(R.T @ R / len(X))
