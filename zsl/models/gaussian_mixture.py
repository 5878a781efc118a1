"""A mixture of Gaussians with diagonal covariances: log-densities, and expectation maximisation from given means."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from zsl.checks import Array
from zsl.linalg import class_means, class_sums, squared_distances

# A component whose responsibilities sum to less keeps its mean and variances.
_LEAST_IMAGES = 1e-8
# Variances stay above this share of the mean variance of the images, so that densities are finite.
_LEAST_VARIANCE = 1e-10


class GaussianMixture(NamedTuple):
    """The state in which expectation maximisation ended."""

    means: Array  # (M, p)
    variances: Array  # (M, p)
    weights: Array  # (M,) sum 1
    objective: list[float]
    """Mean log-likelihood before each step; it never falls if variances are neither floored nor added to"""


def log_densities(X: Array, means: Array, variances: Array) -> Array:
    """Log-density (L, M) of the images X (L, p) for Gaussians with these means and variances, both (M, p).

    Examples
    --------
    >>> log_densities(np.zeros((1, 2)), np.array([[0.0, 1.0]]), np.ones((1, 2))) + np.log(2 * np.pi)
    array([[-0.5]])
    """
    # Images and means are shifted together: far from the origin squares would swallow their difference. A single mean
    # far from the others does not move the median.
    origin = np.median(means, axis=0)
    X, means, precisions = X - origin, means - origin, 1 / variances
    # Three matrix products give the sums of (x - m)^2 / v without a tensor (L, M, p).
    squares = X**2 @ precisions.T - 2 * X @ (precisions * means).T + (precisions * means**2).sum(axis=1)
    return -0.5 * (np.maximum(squares, 0) + np.log(2 * np.pi * variances).sum(axis=1))


def fit_mixture(
    X: Array,
    means: Array,
    variances: Array,
    *,
    floor: float = 0.0,
    added: float = 0.0,
    max_iter: int = 1000,
    tol: float = 1e-7,
) -> GaussianMixture:
    """Expectation maximisation from these means and variances and from equal weights.

    Parameters
    ----------
    X : (L, p)
    means, variances : (M, p)
    floor : float >= 0
        Smallest variance, also of the start.
    added : float >= 0
        What each step adds to the variances.
    max_iter : int >= 1
    tol : float >= 0
        Steps end once the mean log-likelihood changes by at most this.

    Returns
    -------
    GaussianMixture
    """
    X = X.astype(np.float64)
    origin = X.mean(axis=0)
    X, means = X - origin, means - origin
    squares = X**2
    least = max(floor, _LEAST_VARIANCE * (float(squares.mean()) or 1.0))
    variances = np.maximum(variances, least)
    weights = np.full(len(means), 1 / len(means))
    objective: list[float] = []
    for _ in range(max_iter):
        joint = log_densities(X, means, variances) + np.log(weights)
        total = logsumexp(joint, axis=1, keepdims=True)
        objective.append(float(total.mean()))
        if len(objective) > 1 and abs(objective[-1] - objective[-2]) <= tol:
            break
        R = np.exp(joint - total)
        sizes = R.sum(axis=0)
        has = (sizes > _LEAST_IMAGES)[:, None]
        divisor = np.maximum(sizes, _LEAST_IMAGES)[:, None]
        means = np.where(has, R.T @ X / divisor, means)
        spread = R.T @ squares / divisor - means**2
        variances = np.where(has, np.maximum(spread + added, least), variances)
        weights = np.maximum(sizes, _LEAST_IMAGES) / len(X)
    return GaussianMixture(means + origin, variances, weights / weights.sum(), objective)


def class_variances(X: Array, y: Array) -> Array:
    """Variances (C, p) of the rows of X (n, p) within each class of the labels y (n,), 0..C-1 without gaps."""
    # Variances do not change with the origin, and near the mean of all images squares lose less.
    X = X - X.mean(axis=0, dtype=np.float64)
    return np.maximum(class_means(X**2, y) - class_means(X, y) ** 2, 0)


def positive(variances: Array, seen: Array) -> Array:
    """Variances (M, d) with the smallest positive one in place of those that are not positive.

    If none is, it is the mean of the variances (C, d) of the seen classes, or 1 where that is zero.
    """
    usable = variances[variances > 0]
    least = usable.min() if usable.size else seen.mean() or 1.0
    return np.where(variances > 0, variances, least)


def within_scale(X: Array, variances: Array) -> float:
    """Square root of the mean within-class variance; of the mean square of X where no class has any spread."""
    mean = float(variances.mean())
    largest = float(np.abs(X).max()) or 1.0
    return float(np.sqrt(mean)) if mean > 1e-12 * largest**2 else largest


def k_means(X: Array, means: Array, max_iter: int = 1000) -> Array:
    """Means (M, p) of the clusters of X (L, p) after Lloyd's iteration from ``means``; an empty cluster keeps its mean.

    Examples
    --------
    >>> k_means(np.array([[0.0], [2.0], [9.0]]), np.array([[1.0], [4.0]]))
    array([[1.],
           [9.]])
    """
    labels = None
    for _ in range(max_iter):
        new = squared_distances(X, means).argmin(axis=1)
        if labels is not None and (new == labels).all():
            break
        labels = new
        sizes = np.bincount(labels, minlength=len(means))[:, None]
        means = np.where(sizes > 0, class_sums(X, labels, len(means)) / np.maximum(sizes, 1), means)
    return means
