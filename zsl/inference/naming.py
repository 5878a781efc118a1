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
from scipy.special import log_softmax, logsumexp, softmax

from zsl.checks import Array, Count, NonNegative, Positive, Seed, as_matrix, check_arguments
from zsl.inference.clusters import clusterings
from zsl.inference.labels import standard_scores
from zsl.inference.reliability import held_out_sets
from zsl.inference.rules import TRANSDUCTIVE, label_rule
from zsl.inference.statistics import Reliability, SeenStatistics
from zsl.linalg import squared_distances, unit_rows

log = logging.getLogger(__name__)

# Up to so many classes all assignments are compared: 5040 of them.
_EXACT_UP_TO = 7
# Steps of the Metropolis sampler above, and those before the first that counts.
_N_STEPS, _N_BURNED = 20_000, 2_000
# Starts of the search for the best naming; one above so many classes.
_N_STARTS, _MANY = 8, 50
# Weight of the evidence of a clustering against that of the others.
_BETWEEN = 0.5
# Held-out seen classes that are named at once, and the least probability of a name in their mean logarithm.
_NAMED_AT_ONCE, _LEAST_PROBABILITY = 6, 1e-6
# What the cautious rule asks for: test images for each class, how well attributes name classes, and a margin over the
# base rule. The last two were chosen on validation classes (docs/defaults.md).
_LEAST_IMAGES, _LEAST_TOLD, _MARGIN = 2, 0.4, 0.1


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
        products = Y @ Y.T
        effective = np.trace(products) ** 2 / (products**2).sum() if products.any() else 0.0
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

    def _best(self, L: Array, G: Array, rng: np.random.Generator) -> Array:
        """A naming that no exchange of two names improves, the best from several starts."""
        M = len(L)
        n_starts = _N_STARTS if M <= _MANY else 1
        starts = [linear_sum_assignment(-L.T)[1], *(rng.permutation(M) for _ in range(n_starts - 1))]
        return max((self._exchanged(L, G, pi) for pi in starts), key=lambda pi: float(self.likelihood(L, G, pi)))

    def _exchanged(self, L: Array, G: Array, pi: Array) -> Array:
        """``pi`` after the best exchange of two names, again and again, until none improves it."""
        while True:
            gains = self._gains(L, G, pi)
            c, d = np.unravel_index(int(gains.argmax()), gains.shape)
            if not gains[c, d] > 1e-9:
                return pi
            pi[[c, d]] = pi[[d, c]]

    def _gains(self, L: Array, G: Array, pi: Array) -> Array:
        """(M, M) what exchanging the clusters of two classes adds to the log-likelihood, for all pairs at once."""
        P, L, G = self.precision, L[pi].T, G[np.ix_(pi, pi)]  # clusters in the order of their classes
        A = P @ G
        p, g, linear, quadratic = (np.diag(V)[:, None] for V in (P, G, L, A))
        both = (p - P) * (G - g) + (P - p.T) * (g.T - G)  # what the sums over all classes have of the two themselves
        own = 0.5 * (p - p.T) * (g.T - g)
        return (L + L.T - linear - linear.T) - (A + A.T - quadratic - quadratic.T - both) - own

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


def told_apart(statistics: SeenStatistics, n_unseen: int, noise: float, width: float, temper: float) -> float:
    """How well attributes name the means of held-out seen classes: 1 is certain and right, 0 as good as chance.

    It is the mean logarithm of the probability of the right name, less that of chance, divided by the logarithm of the
    number of classes. Confident wrong names make it negative.
    """
    C = len(statistics.means)
    size = min(n_unseen, C // 2, _NAMED_AT_ONCE)
    if size < 2 or C < 4:
        return 0.0
    gains = []
    for held in held_out_sets(statistics.attributes, size):
        kept = np.setdiff1d(np.arange(C), held)
        others = statistics._replace(means=statistics.means[kept], attributes=statistics.attributes[kept])
        namer = Namer(others, statistics.attributes[held], noise, width, temper)
        N = namer.names(statistics.means[held], np.random.default_rng(0)).N
        gains.append(np.log(np.maximum(np.diag(N), _LEAST_PROBABILITY)).mean() / np.log(size) + 1)
    return float(np.mean(gains))


@label_rule(
    "attributes of unseen classes",
    TRANSDUCTIVE,
    "every class is taken to have test images",
    base="inductive",
    calibrated=True,
)
def naming(
    base_scores: Array,
    X: Array,
    Z_unseen: Array,
    statistics: SeenStatistics,
    reliability: Reliability | None = None,
    *,
    cautious: bool = True,
    n_starts: Count = 6,
    noise: Positive = 1.0,
    width: Positive = 0.7,
    temper: NonNegative = 3.0,
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
    reliability : Reliability, optional
        How pure clusters of held-out seen classes are. None, with fewer than four seen classes: the base rule answers,
        unless ``cautious`` is false, which then takes clusters as pure.
    cautious : bool
        Keep to the base rule unless held-out seen classes say that clusters are the better guide: attributes must name
        the means of held-out classes well (:func:`told_apart`), and the named clusters must be expected to be right
        for more images than the base rule by a margin. Both expectations are calibrated on held-out seen classes.
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
    >>> naming(X.copy(), X, np.eye(2), statistics, cautious=False).argmax(axis=1)
    array([0, 0, 0, 1])
    """
    check_arguments(naming, locals())
    U = statistics.directions(X)
    base_scores = as_matrix(base_scores, "base_scores", n_rows=len(U)).astype(np.float64, copy=False)
    M = base_scores.shape[1]
    Z = as_matrix(Z_unseen, "Z_unseen", n_rows=M).astype(np.float64, copy=False)
    purity, sharpness = reliability or (1.0, 1.0)
    alone = log_softmax(sharpness * standard_scores(base_scores), axis=1)
    if cautious and (reason := _no_names(statistics, reliability, alone, noise, width, temper)):
        log.info("naming: %s, so the inductive rule answers", reason)
        return alone
    namer = Namer(statistics, Z, noise, width, temper)
    clustered = _posterior(U, base_scores, statistics, namer, n_starts, purity, seed)
    if cautious:
        certain, alone_certain = float(clustered.max(axis=1).mean()), float(np.exp(alone.max(axis=1)).mean())
        used = certain > alone_certain + _MARGIN
        log.info(
            f"naming: clusters are expected to be right for {certain:.0%} of the images, the inductive rule for "
            f"{alone_certain:.0%}, so {'clusters are used' if used else 'the inductive rule answers'}"
        )
        if not used:
            return alone
    return np.log(np.maximum(clustered, np.finfo(float).tiny))


def _no_names(
    statistics: SeenStatistics, reliability: Reliability | None, alone: Array, noise: float, width: float,
    temper: float,
) -> str:  # fmt: skip
    """Why clusters cannot be a better guide than log-probabilities ``alone`` (L, M); empty where they may be."""
    n, M = alone.shape
    if reliability is None:
        return "fewer than four seen classes cannot show whether attributes name classes"
    if n < _LEAST_IMAGES * M:
        return f"{n} test images are too few for clusters of {M} classes"
    told = told_apart(statistics, M, noise, width, temper)
    if told < _LEAST_TOLD:
        return (
            "attributes do not name held-out seen classes well enough "
            f"({told:.2f}, where 0 is chance, 1 is certain and {_LEAST_TOLD} is needed)"
        )
    # No image is surer of its name than of its cluster, so clusters need not be looked for.
    at_best, expected = reliability.purity + (1 - reliability.purity) / M, float(np.exp(alone.max(axis=1)).mean())
    if at_best <= expected + _MARGIN:
        return (
            f"clusters of held-out seen classes are right for {at_best:.0%} of the images at best, and the inductive "
            f"rule is expected to be right for {expected:.0%}"
        )
    return ""


def _posterior(
    U: Array, base_scores: Array, statistics: SeenStatistics, namer: Namer, n_starts: int, purity: float, seed: int
) -> Array:
    """Posterior (L, M) of the classes for unit rows U (L, p), averaged over clusterings and names."""
    rng = np.random.default_rng(seed)
    M = base_scores.shape[1]
    posteriors, evidence = [], []
    for found in clusterings(U, base_scores, statistics.concentration, n_starts, rng):
        sizes = found.P.sum(axis=0)
        # A cluster without images has no mean; the mean of the seen classes in its place favours no name.
        means = np.where(sizes[:, None] > 1e-9, found.P.T @ U / np.maximum(sizes, 1e-9)[:, None], namer.origin)
        names = namer.names(means, rng)
        # An image is in the wrong cluster with probability 1 - purity.
        posteriors.append((purity * found.P + (1 - purity) / M) @ names.N)
        evidence.append(names.evidence)
    weights = softmax(_BETWEEN * np.array(evidence))
    log.debug("naming: weights of the clusterings %s", np.round(weights, 2))
    return sum(w * P for w, P in zip(weights, posteriors))
