"""Clusterings of test images by mixtures on the sphere, from scores and without any."""

from __future__ import annotations

import numpy as np

from zsl.checks import Array
from zsl.inference.feature_space import confident_means, spherical_k_means
from zsl.inference.labels import standard_scores
from zsl.inference.mixture import Mixture, expectation_maximisation

_LLOYD_STEPS = 5


def clusterings(U: Array, base_scores: Array, kappa: float, n_starts: int, rng: np.random.Generator) -> list[Mixture]:
    """Several clusterings of unit rows U (L, p) into M clusters: four from base scores (L, M), others from k-means++.

    Two of the four keep the standardised scores as a prior of each image's cluster in EM. The concentration is kappa
    (above 0) or twice as much, in half of the four and in two thirds of the others: clusters may be narrower than
    classes.
    """
    start, prior = confident_means(U, base_scores), standard_scores(base_scores)
    found = [
        expectation_maximisation(U, start, factor * kappa, weight * prior) for factor in (1, 2) for weight in (1.0, 0.0)
    ]
    for k in range(n_starts):
        means = k_means_start(U, base_scores.shape[1], rng)
        found.append(expectation_maximisation(U, means, kappa * (1 if k < n_starts // 3 else 2), 0 * prior, tol=1e-6))
    return found


def k_means_start(U: Array, n: int, rng: np.random.Generator) -> Array:
    """Mean directions (n, p) from k-means++ on unit rows U (L, p) and a few rounds of spherical k-means."""
    # In the order of their coordinates, so that the order of the images does not matter.
    U = U[np.lexsort(U.T)]
    means = U[rng.integers(len(U))][None]
    for _ in range(n - 1):
        distance = np.maximum(1 - (U @ means.T).max(axis=1), 0)
        total = distance.sum()
        # Where all images are alike any of them will do.
        share = distance / total if total > 0 else np.full(len(U), 1 / len(U))
        means = np.vstack([means, U[rng.choice(len(U), p=share)]])
    return spherical_k_means(U, means, _LLOYD_STEPS)
