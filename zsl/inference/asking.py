r"""The label rule ``asked``: clusters of the test images that a few labels name, and which image to ask about next.

Clusters are found without any name: the likeliest of several mixtures on the sphere, each from k-means++. Their names
start from the posterior of the Gaussian process of :mod:`zsl.inference.namer` times the base scores. A label is
evidence for the name of the cluster that its image belongs to, the more the nearer the image is to the cluster's mean:
an image at the edge of a cluster is often of another class. Names are then brought to equal sums over clusters and
classes (Sinkhorn) in part, because most classes are one cluster each. In the last step EM estimates names and clusters
together; labelled images keep their labels in it and weigh more than others.

A question is worth the images that its answer is expected to rename: the size of the cluster times the probability
that its present name is wrong.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import softmax

from zsl.checks import Array, Count, NonNegative, Seed, as_matrix, check_arguments
from zsl.inference.clusters import NARROW, estimate_together, without_names
from zsl.inference.labels import checked_labels
from zsl.inference.namer import EMPTY, Namer
from zsl.inference.rules import TRANSDUCTIVE, label_rule
from zsl.inference.statistics import SeenStatistics
from zsl.linalg import sinkhorn, standard_scores

# Noise and width of the Gaussian process, those of the rule naming.
_NOISE, _WIDTH = 1.0, 0.7
# Share of the images that have the class of most images of their cluster, nearest the cluster's mean and farthest from
# it, on held-out seen classes of four data sets; in between it falls evenly (docs/defaults.md).
_NEAREST, _FARTHEST = 0.83, 0.5
# The weight of equal names beside those that attributes and base scores give, so that a label can overrule them.
_DOUBT = 0.3
# A label within this share of the images nearest the mean answers the question of which class the cluster is.
_CENTRAL = 0.1
# The weight of names that need not be one cluster for each class, beside those that are.
_REPEATED = 0.3
# With how many images a labelled image counts among those of a class, and at most the mean that attributes predict:
# with half as many as a class has on average, where these are fewer.
_LABELLED, _EXPECTED = 10.0, 100.0
# A name that is not impossible keeps this probability at least.
_LEAST = 1e-9
# Weight of the base scores, which decide between classes of the same probability only.
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
    of, P : (L,) integers, (L, M)
        The cluster of each image, 0..M-1, and the posterior of clusters.
    means : (M, p)
        Mean directions of the clusters.
    U, S : (L, p), (L, M)
        Whitened images as unit rows, and the standardised base scores.
    names : (M, M)
        Probabilities of the classes of each cluster before any label; rows sum to 1.
    """

    def __init__(
        self, base_scores: Array, X: Array, Z_unseen: Array, statistics: SeenStatistics, *,
        n_starts: Count = 6, prior_weight: NonNegative = 0.5, temper: NonNegative = 1.0, seed: Seed = 0,
    ) -> None:  # fmt: skip
        self.U = U = statistics.directions(X)
        scores = as_matrix(base_scores, "base_scores", n_rows=len(U)).astype(np.float64, copy=False)
        Z = as_matrix(Z_unseen, "Z_unseen", n_rows=scores.shape[1]).astype(np.float64, copy=False)
        rng = np.random.default_rng(seed)
        self.S, self.kappa = standard_scores(scores), NARROW * statistics.concentration
        starts = (without_names(U, len(Z), self.kappa, rng) for _ in range(n_starts))
        found = max(starts, key=lambda mixture: mixture.objective[-1])
        self.means, self.P = found.means, found.P
        self.of = found.P.argmax(axis=1)
        namer = Namer(statistics, Z, _NOISE, _WIDTH, temper)
        evidence = prior_weight * found.P.T @ self.S / np.maximum(found.P.sum(axis=0)[:, None], EMPTY)
        weights = np.maximum(namer.of_clusters(found.P, U, rng).N, _LEAST) * np.exp(evidence)
        self.names = (1 - _DOUBT) * weights / weights.sum(axis=1, keepdims=True) + _DOUBT / len(Z)
        self.expected = min(_EXPECTED, 0.5 * len(U) / len(Z)) * namer.expected

    def named(self, labelled: Array) -> Array:
        """Probabilities (K, M) of the classes of each cluster, given labels (L,); rows sum to 1.

        A label is evidence for its cluster with the probability, from 1/M upwards, that the image has the class of most
        images of the cluster.
        """
        M = self.S.shape[1]
        evidence, answered = np.zeros((len(self.means), M)), []
        for i in np.flatnonzero(labelled >= 0):
            k, remoteness = self.of[i], self._remoteness(i)
            if remoteness <= _CENTRAL:
                answered.append(k)
            right = _NEAREST - (_NEAREST - _FARTHEST) * remoteness
            right = 1 / M + max(right - 1 / M, 0) * self.P[i, k]
            wrong = max(1 - right, _LEAST) / max(M - 1, 1)
            evidence[k] += np.log(np.where(np.arange(M) == labelled[i], right, wrong))
        evidence -= evidence.max(axis=1, keepdims=True)
        names = np.maximum(self.names * np.exp(evidence), _LEAST)
        names /= names.sum(axis=1, keepdims=True)
        # The other clusters share what clusters with an answer leave of each class, since most classes are one cluster.
        others = np.setdiff1d(np.arange(len(names)), answered)
        if others.size:
            taken = np.minimum(np.delete(names, others, axis=0).sum(axis=0), 1)
            left = np.maximum(1 - taken, _LEAST)
            logits = np.log(names[others])
            shared = softmax(logits + sinkhorn(logits, left / left.sum()), axis=1)
            names[others] = (1 - _REPEATED) * shared + _REPEATED * names[others]
        return names

    def _remoteness(self, i: np.integer) -> float:
        """The share of the other images of an image's cluster that are nearer its mean."""
        k = self.of[i]
        near = self.U[self.of == k] @ self.means[k]
        return float(np.mean(near > self.U[i] @ self.means[k] + 1e-12))

    def posterior(self, labelled: Array) -> Array:
        """Probability (L, M) of each class for each image, given labels (L,)."""
        names, rows = self.named(labelled), np.flatnonzero(labelled >= 0)
        P = self.P @ names
        with_label = np.unique(self.of[rows])
        answers = names[with_label].argmax(axis=1)
        # A class has one part, or one for each of several clusters that labels give to it.
        classes, start, expected = [], [], []
        for m in range(P.shape[1]):
            own = with_label[answers == m]
            if len(own) < 2:
                parts = P[:, [m]]
                # A class that no cluster seems to be draws no image to where attributes expect it.
                share = min(1.0, P.shape[1] * float(P[:, m].mean()))
                # Where attributes expect a class counts the less the more labels show where it is.
                expected.append(share / (1 + (labelled == m).sum()) * self.expected[m])
            else:
                parts = self.P[:, own] * names[own, m]
                parts[:, 0] += P[:, m] - parts.sum(axis=1)
                expected += [np.zeros_like(self.expected[m])] * len(own)
            classes += [m] * parts.shape[1]
            start.append(parts)
        of_class = np.eye(P.shape[1])[classes]
        allowed = of_class.T[labelled[rows]]
        found = estimate_together(
            self.U, np.hstack(start), self.kappa, np.array(expected), rows, allowed, weight=_LABELLED
        )
        return found @ of_class

    def questions(self, labelled: Array) -> list[Question]:
        """One question for each cluster that has images and no label, the largest expected gain first.

        Equal gains stand in the order of the images that they ask about.
        """
        free = np.setdiff1d(np.arange(len(self.means)), self.of[labelled >= 0])
        names = self.named(labelled)
        out = []
        for k in free:
            name = names[k]
            mine = np.flatnonzero(self.of == k)
            if mine.size:
                near = mine[np.argsort(-(self.U[mine] @ self.means[k]), kind="stable")]
                certainty = float(name.max())
                gain = mine.size * (1 - certainty)
                out.append(Question(int(near[0]), mine.size, int(name.argmax()), certainty, gain, near))
        return sorted(out, key=lambda q: (-q.gain, q.image))


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
        How much a likelihood of :class:`zsl.inference.namer.Namer` counts.
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
    # Base scores decide between classes that have the same probability.
    return np.log(np.maximum(P, np.finfo(float).tiny)) + _TIE * clusters.S
