r"""The Gaussian process that names clusters: every assignment of clusters to classes has a likelihood.

The Gaussian process has the kernel :math:`k(a, b) = \tfrac12 a^\top b + \tfrac12 \exp(-|a - b|^2 / 2 w^2)` and noise
:math:`\sigma^2`. With the seen attributes S and the centred seen means Y it predicts the means
:math:`\mu = k(Z, S) (k(S, S) + \sigma^2 I)^{-1} Y` of the classes Z, with the covariance
:math:`\Sigma = k(Z, Z) - k(Z, S) (k(S, S) + \sigma^2 I)^{-1} k(S, Z) + \sigma^2 I`, equal in every dimension up to the
scale :math:`v = \mathrm{tr}(Y^\top (k(S, S) + \sigma^2 I)^{-1} Y) / Cp`. The log-likelihood of a naming is
:math:`\ell = -\mathrm{tr}(\Sigma^{-1} R R^\top) / 2v`, where R are the means of the clusters in the order of their
classes less the predicted ones. Its posterior is proportional to :math:`e^{t \ell}`, where t is ``temper`` times the
effective number of dimensions of Y, :math:`\mathrm{tr}(YY^\top)^2 / |YY^\top|^2`, divided by p.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.special import logsumexp, softmax

from zsl.checks import Array
from zsl.inference.statistics import SeenStatistics
from zsl.linalg import squared_distances, unit_rows

EMPTY = 1e-9
"""The size up to which a cluster is without images"""

# Up to so many classes all assignments are compared: 5040 of them.
_EXACT_UP_TO = 7
# Steps of the Metropolis sampler above, and those before the first that counts.
_N_STEPS, _N_BURNED = 20_000, 2_000
# Starts of the search for the best naming, and the number of classes above which there is one start.
_N_STARTS, _MANY = 8, 50


class Names(NamedTuple):
    """The posterior of the names of one clustering."""

    N: Array
    """(M, M) probability that the cluster of the row is the class of the column; rows and columns sum to 1"""
    evidence: float
    """Logarithm of the tempered likelihood of all assignments together, or above seven classes of the best one alone.
    It compares clusterings of the same images into the same classes."""


class Namer:
    """The Gaussian process for the classes Z (M, q), and the likelihood of assignments of clusters to them.

    Parameters
    ----------
    statistics : SeenStatistics
    Z : (M, q)
    noise : float > 0
        The variance of the noise, where k(a, a) = 1.
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

    @property
    def expected(self) -> Array:
        """(M, p) the means at which attributes expect the classes."""
        return self.mu + self.origin

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

    def of_clusters(self, P: Array, U: Array, rng: np.random.Generator) -> Names:
        """The posterior of the names of clusters with posterior P (L, M) over unit rows U (L, p)."""
        sizes = P.sum(axis=0)[:, None]
        # A cluster without images has no mean; the mean of the seen classes in its place favours no name.
        return self.names(np.where(sizes > EMPTY, P.T @ U / np.maximum(sizes, EMPTY), self.origin), rng)

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
