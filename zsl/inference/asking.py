r"""The label rule ``asked``: clusters of the test images that a few labels name, and which image to ask about next.

Clusters are found without any name: the likeliest of several mixtures on the sphere, each from k-means++. A label names
the cluster that its image belongs to. The other clusters have soft names: the posterior of the Gaussian process of
:mod:`zsl.inference.naming`, times the base scores, brought to equal sums over the clusters and the classes that are
left (Sinkhorn), because most classes are one cluster each. As some are more, a class that a label has named already
keeps a small share. EM runs on from the named means, and labelled images keep their labels in it.

A question is worth the images that its answer is expected to rename: the size of the cluster times the probability
that its present name is wrong.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from zsl.checks import Array, Count, NonNegative, Seed, as_matrix, check_arguments
from zsl.inference.clusters import k_means_start
from zsl.inference.labels import checked_labels, standard_scores
from zsl.inference.mixture import expectation_maximisation
from zsl.inference.namer import Namer
from zsl.inference.rules import TRANSDUCTIVE, label_rule
from zsl.inference.statistics import SeenStatistics
from zsl.linalg import unit_rows

# Of the seen classes' concentration: clusters that no name has blurred are narrower than classes (docs/defaults.md).
_CONCENTRATION = 2.0
# Noise and width of the Gaussian process, those of the rule naming.
_NOISE, _WIDTH = 1.0, 0.7
# With t of M classes named, the probability that a further cluster is of one of them is this times t / M: so it was on
# held-out seen classes of four data sets, for any t (docs/defaults.md).
_REPEATED = 0.3
# A name that is not impossible keeps this probability at least.
_LEAST = 1e-9
# What keeps a labelled image out of clusters of other names, in units of the log-posterior.
_NEVER = 1e6
# Weight of the base scores where the clusters do not tell classes apart.
_TIE = 1e-9

WORTH_ASKING = 0.01
"""Share of the test images that an answer should be expected to rename; below it asking ends"""


class Question(NamedTuple):
    """An image whose class would name a cluster."""

    image: int
    """The row of the image nearest the cluster's mean"""
    size: int
    """Images in the cluster"""
    guess: int
    """The present name of the cluster: a class 0..M-1"""
    certainty: float
    """Probability of the present name"""
    gain: float
    """How many images the answer is expected to rename: ``size * (1 - certainty)``"""
    images: Array
    """Rows of the cluster's images, the one nearest its mean first"""


class Clusters:
    """Clusters of test images without names, and what names they may have.

    Parameters
    ----------
    base_scores, X, Z_unseen, statistics, n_starts, prior_weight, temper, seed
        As for :func:`asked`, whose documentation says what is refused.

    Attributes
    ----------
    of : (L,) integers
        The cluster of each image, 0..M-1.
    """

    def __init__(
        self, base_scores: Array, X: Array, Z_unseen: Array, statistics: SeenStatistics, *,
        n_starts: Count = 6, prior_weight: NonNegative = 0.5, temper: NonNegative = 1.0, seed: Seed = 0,
    ) -> None:  # fmt: skip
        self.U = U = statistics.directions(X)
        scores = as_matrix(base_scores, "base_scores", n_rows=len(U)).astype(np.float64, copy=False)
        Z = as_matrix(Z_unseen, "Z_unseen", n_rows=scores.shape[1]).astype(np.float64, copy=False)
        rng = np.random.default_rng(seed)
        self.S, self.kappa = standard_scores(scores), _CONCENTRATION * statistics.concentration
        starts = [k_means_start(U, len(Z), rng) for _ in range(n_starts)]
        found = max(
            (expectation_maximisation(U, means, self.kappa, np.zeros_like(self.S), tol=1e-6) for means in starts),
            key=lambda mixture: mixture.objective[-1],
        )
        self.means, self.of = found.means, found.P.argmax(axis=1)
        namer, sizes = Namer(statistics, Z, _NOISE, _WIDTH, temper), found.P.sum(axis=0)[:, None]
        # A cluster without images has no mean; the mean of the seen classes in its place favours no name.
        means = np.where(sizes > _LEAST, found.P.T @ U / np.maximum(sizes, _LEAST), namer.origin)
        evidence = prior_weight * found.P.T @ self.S / np.maximum(sizes, _LEAST)
        self.names = np.maximum(namer.names(means, rng).N, _LEAST) * np.exp(evidence)

    def named(self, labelled: Array) -> tuple[Array, Array]:
        """The clusters that labels (L,) make, which are more where one cluster has labels of several classes.

        Returns
        -------
        means : (K, p)
            Mean directions; first those of the clusters without a label, in their order.
        names : (K, M)
            Probabilities of the classes; rows sum to 1.
        """
        M = self.S.shape[1]
        rows = np.flatnonzero(labelled >= 0)
        pairs = sorted({(int(self.of[i]), int(labelled[i])) for i in rows})
        clusters = [k for k, _ in pairs]
        free = np.setdiff1d(np.arange(M), clusters)
        taken = np.unique(labelled[rows])
        left = np.setdiff1d(np.arange(M), taken)
        names = np.zeros((len(free), M))
        repeated = _REPEATED * len(taken) / M if len(left) else 1.0
        if len(free) and len(left):
            names[:, left] = (1 - repeated) * balanced(self.names[np.ix_(free, left)])
        if len(free) and len(taken):
            known = self.names[np.ix_(free, taken)]
            names[:, taken] = repeated * known / known.sum(axis=1, keepdims=True)
        means = [
            self.means[k]
            if clusters.count(k) == 1
            else unit_rows(self.U[rows][(self.of[rows] == k) & (labelled[rows] == c)].mean(axis=0, keepdims=True))[0]
            for k, c in pairs
        ]
        own = np.eye(M)[[c for _, c in pairs]]
        return np.vstack([self.means[free], *(m[None] for m in means)]), np.vstack([names, own])

    def posterior(self, labelled: Array) -> Array:
        """Probability (L, M) of each class for each image, given labels (L,)."""
        means, names = self.named(labelled)
        prior = np.zeros((len(self.U), len(means)))
        for i in np.flatnonzero(labelled >= 0):
            prior[i, names[:, labelled[i]] < 1] = -_NEVER
        found = expectation_maximisation(self.U, means, self.kappa, prior, tol=1e-6)
        return found.P @ names

    def questions(self, labelled: Array) -> list[Question]:
        """One question for each cluster that has images and no label, the largest expected gain first.

        Equal gains stand in the order of the images that they ask about.
        """
        free = np.setdiff1d(np.arange(len(self.means)), self.of[labelled >= 0])
        names = self.named(labelled)[1]
        out = []
        for k, name in zip(free, names):
            mine = np.flatnonzero(self.of == k)
            if mine.size:
                near = mine[np.argsort(-(self.U[mine] @ self.means[k]), kind="stable")]
                certainty = float(name.max())
                gain = mine.size * (1 - certainty)
                out.append(Question(int(near[0]), mine.size, int(name.argmax()), certainty, gain, near))
        return sorted(out, key=lambda q: (-q.gain, q.image))


def balanced(weights: Array, n_iter: int = 200) -> Array:
    """Weights (K, m) of m classes for K clusters, scaled so that rows sum to 1 and columns to K / m (Sinkhorn)."""
    out = weights
    for _ in range(n_iter):
        out = out / out.sum(axis=0, keepdims=True)
        out = out / out.sum(axis=1, keepdims=True)
    return out


@label_rule(
    "attributes of unseen classes", TRANSDUCTIVE, "every class is taken to have test images", base="bidirectional"
)
def asked(
    base_scores: Array,
    X: Array,
    Z_unseen: Array,
    statistics: SeenStatistics,
    labelled: Array | None = None,
    *,
    n_starts: Count = 6,
    prior_weight: NonNegative = 0.5,
    temper: NonNegative = 1.0,
    seed: Seed = 0,
) -> Array:
    """Logarithm of the posterior of each class for each image: clusters of test images, named by a few labels.

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
    labelled : (L,) integers, optional
        The class 0..M-1 of each test image, -1 where it has no label. ``None``: no image has one.
    n_starts : int >= 1
        Clusterings, of which the likeliest is taken.
    prior_weight : float >= 0
        Weight of a cluster's mean standardised base scores in the log-posterior of its name.
    temper : float >= 0
        How much a likelihood of :class:`zsl.inference.naming.Namer` counts.
    seed : int >= 0
        Seed of k-means++ and, above seven classes, of the sampler of names.

    Returns
    -------
    (L, M) log-probabilities

    Raises
    ------
    UserError
        For arguments that do not fit together or are out of range.

    Examples
    --------
    The label of one image names the images around it, and the others are what is left.

    >>> X = np.array([[1.0, 0.1], [1.0, -0.1], [0.9, 0.3], [0.1, 1.0]])
    >>> statistics = SeenStatistics(np.eye(2), np.eye(2), np.eye(2), concentration=10.0)
    >>> asked(X.copy(), X, np.eye(2), statistics).argmax(axis=1)
    array([0, 0, 0, 1])
    >>> asked(X.copy(), X, np.eye(2), statistics, np.array([1, -1, -1, -1])).argmax(axis=1)
    array([1, 1, 1, 0])
    """
    check_arguments(asked, locals())
    clusters = Clusters(
        base_scores, X, Z_unseen, statistics, n_starts=n_starts, prior_weight=prior_weight, temper=temper, seed=seed
    )
    P = clusters.posterior(checked_labels(labelled, *clusters.S.shape))
    # Only the base scores tell classes apart where there are fewer images than classes.
    return np.log(np.maximum(P, np.finfo(float).tiny)) + _TIE * clusters.S
