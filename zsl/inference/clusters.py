"""Clusterings of test images by mixtures on the sphere, from scores and without any."""

from __future__ import annotations

import numpy as np
from scipy.special import softmax

from zsl.checks import Array
from zsl.inference.feature_space import confident_means, spherical_k_means
from zsl.inference.mixture import Mixture, expectation_maximisation
from zsl.linalg import standard_scores, unit_rows

_LLOYD_STEPS = 5

NARROW = 2.0
"""The factor of the seen classes' concentration where clusters are narrower than classes"""

# Rounds of EM in which names and clusters are estimated together, of which more change little; and the least share.
_ROUNDS, _LEAST_SHARE = 10, 1e-6


def clusterings(U: Array, base_scores: Array, kappa: float, n_starts: int, rng: np.random.Generator) -> list[Mixture]:
    """Several clusterings of unit rows U (L, p) into M clusters: four from base scores (L, M), others from k-means++.

    Two of the four keep the standardised scores as a prior of each image's cluster in EM. The concentration is kappa
    (above 0) or twice as much, in half of the four and in two thirds of the others: clusters may be narrower than
    classes.
    """
    start, prior = confident_means(U, base_scores), standard_scores(base_scores)
    found = [
        expectation_maximisation(U, start, factor * kappa, weight * prior)
        for factor in (1, NARROW)
        for weight in (1.0, 0.0)
    ]
    factors = (1 if k < n_starts // 3 else NARROW for k in range(n_starts))
    return found + [without_names(U, base_scores.shape[1], factor * kappa, rng) for factor in factors]


def without_names(U: Array, n: int, kappa: float, rng: np.random.Generator) -> Mixture:
    """A clustering of unit rows U (L, p) into n clusters of concentration kappa > 0, by EM from k-means++ alone."""
    return expectation_maximisation(U, k_means_start(U, n, rng), kappa, np.zeros((len(U), n)), tol=1e-6)


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


def estimate_together(
    U: Array, P: Array, kappa: float, expected: Array, rows: Array | None = None, allowed: Array | None = None,
    weight: float = 1.0,
) -> Array:  # fmt: skip
    """Posterior (L, K) of K parts after rounds of EM from a posterior of names: names and clusters change together.

    Parameters
    ----------
    U : (L, p)
        Unit rows, one for each image.
    P : (L, K)
        Probabilities of the parts, each of which is a class or a cluster of one, from which EM starts.
    kappa : float > 0
        Concentration of a part.
    expected : (K, p)
        Added to the sum of the images of each part before its mean direction is taken, as further images would be. It
        keeps small classes in their place.
    rows, allowed : (k,) integers, (k, K), optional
        Images whose class is known, and 1 for the parts of that class; they stay in these parts.
    weight : float >= 1
        With how many images an image of ``rows`` counts.
    """
    known = np.empty(0, np.int64) if rows is None else rows
    mask = np.ones((0, P.shape[1])) if allowed is None else allowed

    def kept(P: Array) -> Array:
        inside = np.maximum(P[known], _LEAST_SHARE) * mask
        P[known] = inside / inside.sum(axis=1, keepdims=True)
        return P

    P = kept(P.copy())
    for _ in range(_ROUNDS):
        means = unit_rows(P.T @ U + (weight - 1) * P[known].T @ U[known] + expected)
        P = kept(softmax(kappa * U @ means.T + np.log(np.maximum(P.mean(axis=0), _LEAST_SHARE)), axis=1))
    return P
