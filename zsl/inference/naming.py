"""The label rule ``naming``: clusters of test images, all named together by where attributes expect the class means.

Clusters of test images are often right and have the wrong names, because the scores that name them have been used to
find them. Here the means of the seen classes show how class means follow from attributes. A Gaussian process
(:mod:`zsl.inference.namer`) gives every assignment of M clusters to M classes a likelihood, and names are averaged over
their posterior and over several clusterings. Held-out seen classes say whether clusters or the inductive rule answer.
"""

from __future__ import annotations

import logging

import numpy as np
from scipy.special import log_softmax, softmax

from zsl.checks import Array, Count, NonNegative, Positive, Seed, as_matrix, check_arguments
from zsl.inference.clusters import NARROW, clusterings, estimate_together
from zsl.inference.namer import Namer
from zsl.inference.reliability import held_out_sets
from zsl.inference.rules import TRANSDUCTIVE, label_rule
from zsl.inference.statistics import Reliability, SeenStatistics
from zsl.linalg import standard_scores

log = logging.getLogger(__name__)

# Weight of the evidence of a clustering against that of the others.
_BETWEEN = 0.5
# Held-out seen classes that are named at once, and the least probability of a name in their mean logarithm.
_NAMED_AT_ONCE, _LEAST_PROBABILITY = 6, 1e-6
# What the cautious rule asks for: test images for each class, how well attributes name classes, and a margin over the
# base rule. The last two were chosen on validation classes (docs/defaults.md).
_LEAST_IMAGES, _LEAST_SKILL, _MARGIN = 2, 0.4, 0.1


def naming_skill(statistics: SeenStatistics, n_unseen: int, noise: float, width: float, temper: float) -> float:
    """Logarithmic skill score of the names that attributes give to the means of held-out seen classes.

    It is one minus the mean negative log-probability of the right name divided by that of chance, log(m) for m classes.
    1: names are certain and right; 0: as good as chance; below 0: certain and wrong.

    Parameters
    ----------
    statistics : SeenStatistics
        With the means and attributes of C seen classes.
    n_unseen : int
        Classes that are named at a time; at most six, and at most half of the seen ones.
    noise, width, temper
        As for :class:`zsl.inference.namer.Namer`.

    Returns
    -------
    float
        At most 1; 0 with fewer than four seen classes.
    """
    C = len(statistics.means)
    size = min(n_unseen, C // 2, _NAMED_AT_ONCE)
    if size < 2 or C < 4:
        return 0.0
    gains = []
    for held in held_out_sets(statistics.attributes, size):
        namer = Namer(statistics.without(held), statistics.attributes[held], noise, width, temper)
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
    pull: NonNegative = 100.0,
    seed: Seed = 0,
) -> Array:
    """Logarithm of the posterior of each class for each image: clusters of test images, named by a Gaussian process.

    Test images are clustered ``n_starts`` times from k-means++, without names, and four times from the base scores, by
    mixtures on the sphere as in :func:`zsl.inference.mixture.mixture`. Each clustering is named by
    :class:`zsl.inference.namer.Namer`, and the posteriors of the images are averaged with the evidence of the
    clusterings as weights. EM goes on from this average with one cluster for each class, whose mean is pulled towards
    where its attributes expect it. The base scores enter only the four clusterings that start from them.

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
        What held-out seen classes say of clusters and of inductive scores. None, with fewer than four seen classes: the
        base rule answers; with ``cautious=False`` both numbers are then 1.
    cautious : bool
        Let the base rule answer unless clusters are the better guide: there are two test images for each class or more,
        :func:`naming_skill` is at least 0.4, and the named clusters are expected to be right for 10 percentage points
        more of the images than the base rule. False: clusters answer in any case.
    n_starts : int >= 1
        Clusterings from k-means++.
    noise, width, temper
        As for :class:`zsl.inference.namer.Namer`.
    pull : float >= 0
        With how many images the mean that attributes predict counts among those of a class, in the last step.
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
    cluster_accuracy, inverse_temperature = reliability or (1.0, 1.0)
    alone = log_softmax(inverse_temperature * standard_scores(base_scores), axis=1)
    if cautious and (reason := _no_names(statistics, reliability, alone, noise, width, temper)):
        log.info("naming: %s, so the base rule answers", reason)
        return alone
    namer = Namer(statistics, Z, noise, width, temper)
    clustered = _posterior(U, base_scores, statistics, namer, n_starts, cluster_accuracy, seed)
    if cautious:
        certain, alone_certain = float(clustered.max(axis=1).mean()), float(np.exp(alone.max(axis=1)).mean())
        used = certain > alone_certain + _MARGIN
        log.info(
            f"naming: clusters are expected to be right for {certain:.0%} of the images and the base rule for "
            f"{alone_certain:.0%}; clusters need {_MARGIN:.0%} more, so "
            f"{'clusters answer' if used else 'the base rule answers'}"
        )
        if not used:
            return alone
    together = estimate_together(U, clustered, NARROW * statistics.concentration, pull * namer.expected)
    return np.log(np.maximum(cluster_accuracy * together + (1 - cluster_accuracy) / M, np.finfo(float).tiny))


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
    skill = naming_skill(statistics, M, noise, width, temper)
    if skill < _LEAST_SKILL:
        return (
            "attributes do not name the means of held-out seen classes well enough "
            f"(skill {skill:.2f}, where 0 is chance, 1 is certain and {_LEAST_SKILL} is needed)"
        )
    # No image is surer of its name than of its cluster, so clusters need not be looked for.
    accuracy, expected = reliability.cluster_accuracy, float(np.exp(alone.max(axis=1)).mean())
    at_best = accuracy + (1 - accuracy) / M
    if at_best <= expected + _MARGIN:
        return (
            f"clusters can be expected to be right for {at_best:.0%} of the images at best and the base rule for "
            f"{expected:.0%}; clusters need {_MARGIN:.0%} more"
        )
    return ""


def _posterior(
    U: Array,
    base_scores: Array,
    statistics: SeenStatistics,
    namer: Namer,
    n_starts: int,
    cluster_accuracy: float,
    seed: int,
) -> Array:
    """Posterior (L, M) of the classes for unit rows U (L, p), averaged over clusterings and names."""
    rng = np.random.default_rng(seed)
    M = base_scores.shape[1]
    posteriors, evidence = [], []
    for found in clusterings(U, base_scores, statistics.concentration, n_starts, rng):
        names = namer.of_clusters(found.P, U, rng)
        # An image is in a wrong cluster with the probability that held-out seen classes show.
        posteriors.append((cluster_accuracy * found.P + (1 - cluster_accuracy) / M) @ names.N)
        evidence.append(names.evidence)
    weights = softmax(_BETWEEN * np.array(evidence))
    log.debug("naming: weights of the clusterings %s", np.round(weights, 2))
    return sum(w * P for w, P in zip(weights, posteriors))
