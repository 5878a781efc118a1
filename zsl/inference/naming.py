r"""Naming clusters: a Gaussian process from attributes to class means says which cluster of test images is which class.

Clusters of test images are often right and have the wrong names, because the scores that name them have been used to
find them. Here the clusters are named together: the means of the seen classes show how class means follow from
attributes, a Gaussian process gives every assignment of M clusters to M classes a likelihood, and names are averaged
over their posterior and over several clusterings.

The process has the kernel :math:`k(a, b) = \tfrac12 a^\top b + \tfrac12 \exp(-|a - b|^2 / 2 w^2)` and noise
:math:`\sigma^2`. With the seen attributes S and the centred seen means Y it predicts the means
:math:`\mu = k(Z, S) (k(S, S) + \sigma^2 I)^{-1} Y` of the classes Z, with the covariance
:math:`\Sigma = k(Z, Z) - k(Z, S) (k(S, S) + \sigma^2 I)^{-1} k(S, Z) + \sigma^2 I`, equal in every dimension up to the
scale v. The log-likelihood of a naming is :math:`-\mathrm{tr}(\Sigma^{-1} R R^\top) / 2v`, R being the means of the
clusters in the order of their classes less the predicted ones.
"""

from __future__ import annotations

import itertools
import logging
from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.special import logsumexp, softmax

from zsl.checks import Array, Count, NonNegative, Positive, Seed, as_matrix, check_arguments
from zsl.inference.feature_space import confident_means, spherical_k_means
from zsl.inference.labels import standard_scores
from zsl.inference.mixture import Mixture, expectation_maximisation
from zsl.inference.rules import TRANSDUCTIVE, label_rule
from zsl.inference.statistics import SeenStatistics
from zsl.linalg import squared_distances, unit_rows

log = logging.getLogger(__name__)

# Up to so many classes all assignments are compared: 5040 of them.
_EXACT_UP_TO = 7
# Steps of the Metropolis sampler above, and those before the first that counts.
_N_STEPS, _N_BURNED = 20_000, 2_000
_LLOYD_STEPS = 5
# Weight of the evidence of a clustering against that of the others.
_BETWEEN = 0.5


class Names(NamedTuple):
    """The posterior of the names of one clustering."""

    N: Array
    """(M, M) probability that the cluster of the row is the class of the column; rows and columns sum to 1"""
    evidence: float
    """Logarithm of the tempered likelihood, summed over all assignments; above seven classes that of the best one"""


class Namer:
    """The Gaussian process for the classes Z (M, q), and the likelihood of assignments of clusters to them.

    Parameters
    ----------
    statistics : SeenStatistics
    Z : (M, q)
    noise : float > 0
        The variance of the noise, in units of the kernel.
    width : float > 0
        w of the kernel, in the distance of attributes of unit length.
    temper : float >= 0
        How much a likelihood counts: dimensions of features depend on each other, so the log-likelihood is multiplied
        by ``temper`` times the effective number of dimensions of the seen means, divided by their number.
    """

    def __init__(self, statistics: SeenStatistics, Z: Array, noise: float, width: float, temper: float) -> None:
        S, Z, Y = unit_rows(statistics.attributes), unit_rows(Z), statistics.means
        self.origin = Y.mean(axis=0)
        Y = Y - self.origin
        inverse = np.linalg.inv(_kernel(S, S, width) + noise * np.eye(len(S)))
        across = _kernel(Z, S, width)
        self.mu = across @ inverse @ Y
        covariance = _kernel(Z, Z, width) - across @ inverse @ across.T + noise * np.eye(len(Z))
        self.precision = np.linalg.inv(covariance)
        # Without any difference between seen classes nothing can be told; the scale then is that of unit rows.
        self.v = float(np.einsum("ij,ik,kj->", Y, inverse, Y)) / Y.size or 1 / Y.shape[1]
        spectrum = np.linalg.svd(Y, compute_uv=False) ** 2
        effective = spectrum.sum() ** 2 / (spectrum**2).sum() if spectrum.any() else 0.0
        self.temper = temper * effective / Y.shape[1]

    def quadratic(self, means: Array) -> tuple[Array, Array]:
        """Terms of the log-likelihood of a naming: L (M, M), cluster by class, and G (M, M), cluster by cluster.

        Up to a constant that all clusterings share, it is ``sum_c L[pi_c, c] - 1/2 sum_cd precision[c, d] G[pi_c,
        pi_d]`` for the clusters pi (M,) of the classes.
        """
        m = means - self.origin
        return m @ self.mu.T @ self.precision / self.v, m @ m.T / self.v

    def likelihood(self, L: Array, G: Array, pi: Array) -> Array:
        """Log-likelihood of assignments pi (..., M): the cluster of each class."""
        classes = np.arange(len(L))
        pairs = G[pi[..., :, None], pi[..., None, :]]
        return L[pi, classes].sum(axis=-1) - 0.5 * (self.precision * pairs).sum(axis=(-2, -1))

    def names(self, means: Array, rng: np.random.Generator) -> Names:
        """The posterior of the names of clusters with these means (M, p)."""
        L, G = self.quadratic(means)
        M = len(L)
        if M <= _EXACT_UP_TO:
            pi = np.array([*itertools.permutations(range(M))])
            scores = self.temper * self.likelihood(L, G, pi)
            weights = softmax(scores)
            N = np.zeros((M, M))
            for c in range(M):
                np.add.at(N[:, c], pi[:, c], weights)
            return Names(N, float(logsumexp(scores)))
        best = self._best(L, G, rng)
        return Names(self._sampled(L, G, best, rng), self.temper * float(self.likelihood(L, G, best)))

    def _best(self, L: Array, G: Array, rng: np.random.Generator, n_starts: int = 8) -> Array:
        """A naming that no exchange of two names improves, the best from several starts."""
        M = len(L)
        starts = [linear_sum_assignment(-L.T)[1], *(rng.permutation(M) for _ in range(n_starts - 1))]
        return max((self._exchanged(L, G, pi) for pi in starts), key=lambda pi: float(self.likelihood(L, G, pi)))

    def _exchanged(self, L: Array, G: Array, pi: Array) -> Array:
        improved = True
        while improved:
            improved = False
            for c in range(len(pi) - 1):
                gains = np.array([self._gain(L, G, pi, c, d) for d in range(c + 1, len(pi))])
                if gains.max() > 1e-9:
                    d = c + 1 + int(gains.argmax())
                    pi[[c, d]] = pi[[d, c]]
                    improved = True
        return pi

    def _gain(self, L: Array, G: Array, pi: Array, c: int, d: int) -> float:
        """What exchanging the clusters of classes c and d adds to the log-likelihood, in O(M)."""
        i, j, P = pi[c], pi[d], self.precision
        linear = L[j, c] + L[i, d] - L[i, c] - L[j, d]
        change = (P[c] - P[d]) * (G[j, pi] - G[i, pi])
        rest = float(change.sum() - change[c] - change[d])
        own = 0.5 * (P[c, c] - P[d, d]) * (G[j, j] - G[i, i])
        return float(linear - rest - own)

    def _sampled(self, L: Array, G: Array, pi: Array, rng: np.random.Generator) -> Array:
        """The posterior by Metropolis steps that exchange two names, from the naming pi."""
        M, pi = len(L), pi.copy()
        N, since = np.zeros((M, M)), np.zeros(M, dtype=int)
        pairs = rng.integers(M, size=(_N_STEPS, 2))
        logarithms = np.log(rng.random(_N_STEPS))
        for step, (c, d) in enumerate(pairs):
            if step == _N_BURNED:
                since[:] = step
            if c != d and logarithms[step] < self.temper * self._gain(L, G, pi, c, d):
                # A name counts for the steps that it lasted.
                for e in (c, d):
                    N[pi[e], e] += max(step - max(since[e], _N_BURNED), 0)
                    since[e] = step
                pi[[c, d]] = pi[[d, c]]
        for e in range(M):
            N[pi[e], e] += _N_STEPS - max(since[e], _N_BURNED)
        return N / (_N_STEPS - _N_BURNED)


def _kernel(A: Array, B: Array, width: float) -> Array:
    return 0.5 * (A @ B.T + np.exp(-squared_distances(A, B) / (2 * width**2)))


@label_rule(
    "attributes of unseen classes", TRANSDUCTIVE, "every class is taken to have test images", base="bidirectional"
)
def naming(
    base_scores: Array,
    X: Array,
    Z_unseen: Array,
    statistics: SeenStatistics,
    *,
    n_starts: Count = 6,
    noise: Positive = 1.0,
    width: Positive = 0.7,
    temper: NonNegative = 1.5,
    seed: Seed = 0,
) -> Array:
    """Logarithm of the posterior of each class for each image: clusters of test images, named by a Gaussian process.

    Four clusterings start from the base scores and ``n_starts`` from k-means++; all are mixtures on the sphere as in
    :func:`zsl.inference.mixture.mixture`. Each is named by :class:`Namer`, and the posteriors of the images are
    averaged with the evidence of the clusterings as weights. The base scores do not enter again.

    Parameters
    ----------
    base_scores : (L, M)
        Scores of the base rule, which is inductive.
    X : (L, p)
        Test images, pre-processed.
    Z_unseen : (M, q)
        Attributes of the classes, pre-processed.
    statistics : SeenStatistics
        Whitening, concentration, means and attributes of the seen classes.
    n_starts : int >= 1
        Clusterings from k-means++.
    noise, width, temper
        As for :class:`Namer`.
    seed : int >= 0
        Seed of k-means++ and, above seven classes, of the sampler of names.

    Returns
    -------
    (L, M) log-probabilities

    Examples
    --------
    >>> X = np.array([[1.0, 0.1], [1.0, -0.1], [0.9, 0.3], [0.1, 1.0]])
    >>> statistics = SeenStatistics(np.eye(2), np.eye(2), np.eye(2), concentration=10.0)
    >>> naming(X.copy(), X, np.eye(2), statistics).argmax(axis=1)
    array([0, 0, 0, 1])
    """
    check_arguments(naming, locals())
    U = statistics.directions(X)
    base_scores = as_matrix(base_scores, "base_scores", n_rows=len(U)).astype(np.float64, copy=False)
    Z = as_matrix(Z_unseen, "Z_unseen", n_rows=base_scores.shape[1]).astype(np.float64, copy=False)
    rng = np.random.default_rng(seed)
    namer = Namer(statistics, Z, noise, width, temper)
    posteriors, evidence = [], []
    for found in clusterings(U, base_scores, statistics.concentration, n_starts, rng):
        sizes = found.P.sum(axis=0)
        # A cluster without images has no mean; the mean of the seen classes in its place favours no name.
        means = np.where(sizes[:, None] > 1e-9, found.P.T @ U / np.maximum(sizes, 1e-9)[:, None], namer.origin)
        names = namer.names(means, rng)
        posteriors.append(found.P @ names.N)
        evidence.append(names.evidence)
    weights = softmax(_BETWEEN * np.array(evidence))
    log.debug("naming: weights of the clusterings %s", np.round(weights, 2))
    posterior = sum(w * P for w, P in zip(weights, posteriors))
    return np.log(np.maximum(posterior, np.finfo(float).tiny))


def clusterings(U: Array, base_scores: Array, kappa: float, n_starts: int, rng: np.random.Generator) -> list[Mixture]:
    """Several clusterings of unit rows U (L, p): four from the base scores (L, M), the others from k-means++."""
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
