"""Two numbers from held-out seen classes that tell the rule ``naming`` whether to use clusters.

They are how accurate clusters are, and at which temperature the scores of an inductive rule are probabilities.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from scipy.optimize import linear_sum_assignment, minimize_scalar
from scipy.special import logsumexp

from zsl.checks import Array
from zsl.inference.clusters import NARROW, without_names
from zsl.inference.statistics import Reliability, SeenStatistics, seen_statistics
from zsl.linalg import most_similar, standard_scores
from zsl.sparse.chunks import Chunks, is_chunked

if TYPE_CHECKING:
    from zsl.inference.inference import Inference

# Sets of seen classes that are held out, and those of them whose images are clustered.
_N_SETS, _N_CLUSTERED = 20, 6
# Classes of a set and images of a class at most, so that large data cost seconds.
_MAX_CLASSES, _MAX_IMAGES = 20, 60
_LOG_INVERSE_TEMPERATURE = (-3.0, 2.0)


def needed_statistics(
    rules: Sequence[Inference], model: Any, X: Array, y: Array, Z: Array, n_unseen: int
) -> SeenStatistics | None:
    """The statistics of seen classes that these rules need for a fitted model, None where they need none.

    X, y and Z are those of :func:`zsl.inference.statistics.seen_statistics`, and ``n_unseen`` is that of
    :func:`reliability`.
    """
    if not any(rule.asks_for("statistics", model) for rule in rules):
        return None
    X = cast(Array, Chunks(X, "X")) if is_chunked(X) else X
    statistics = seen_statistics(model, X, y, Z)
    if not any(rule.asks_for("reliability", model) for rule in rules):
        return statistics
    return statistics._replace(reliability=reliability(statistics, X, y, n_unseen))


def held_out_sets(attributes: Array, size: int, n_sets: int = _N_SETS, seed: int = 0) -> list[Array]:
    """Sets of ``size`` of the classes with these attributes (C, q), as if they were unseen.

    Every second set is a random class and the classes most similar to it, because unseen classes may be alike, too.
    """
    rng = np.random.default_rng(seed)
    sets = []
    for k in range(n_sets):
        if k % 2:
            sets.append(most_similar(attributes, int(rng.integers(len(attributes))), size))
        else:
            sets.append(np.sort(rng.permutation(len(attributes))[:size]))
    return sets


def reliability(statistics: SeenStatistics, X: Array, y: Array, n_unseen: int) -> Reliability | None:
    """Measure on held-out seen classes how accurate clusters are, and how certain inductive scores may be.

    Whitening and concentration are those of all seen classes; the prototypes of held-out classes come from the others.

    Parameters
    ----------
    statistics : SeenStatistics
    X : (n, p)
        Training images, pre-processed.
    y : (n,)
        Labels 0..C-1.
    n_unseen : int
        Classes that are held out at a time: at least 2, at most 20 and at most C - 2; at most 60 images of each count.

    Returns
    -------
    Reliability or None
        None with fewer than four seen classes.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat(np.arange(6), 20)
    >>> X = np.eye(6)[y] + 0.05 * rng.standard_normal((120, 6))
    >>> statistics = SeenStatistics(np.eye(6), np.eye(6), np.eye(6), concentration=20.0)
    >>> reliability(statistics, X, y, n_unseen=3).cluster_accuracy
    1.0
    """
    C = len(statistics.means)
    if C < 4:
        return None
    size = max(2, min(n_unseen, C - 2, _MAX_CLASSES))
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.permutation(np.flatnonzero(y == c))[:_MAX_IMAGES] for c in range(C)])
    U, labels = statistics.directions(X[rows]), y[rows]
    cluster_accuracy, scores = [], []
    for k, held in enumerate(held_out_sets(statistics.attributes, size)):
        mine = np.isin(labels, held)
        images, truth = U[mine], np.searchsorted(held, labels[mine])
        prototypes = statistics.without(held).prototypes(statistics.attributes[held])
        scores.append((standard_scores(images @ prototypes.T), truth))
        if k < _N_CLUSTERED:
            for j, factor in enumerate((1, NARROW)):
                found = without_names(images, size, factor * statistics.concentration, np.random.default_rng(j))
                cluster_accuracy.append(best_named(found.P, truth))
    return Reliability(float(np.mean(cluster_accuracy)), _inverse_temperature(scores))


def best_named(P: Array, y: Array) -> float:
    """Mean accuracy per class of clusters with posterior P (L, K), if they get the best names for labels y (L,)."""
    hits = np.zeros((P.shape[1], int(y.max()) + 1))
    np.add.at(hits, (P.argmax(axis=1), y), 1.0)
    hits /= np.maximum(hits.sum(axis=0), 1)
    clusters, classes = linear_sum_assignment(-hits)
    return float(hits[clusters, classes].sum() / hits.shape[1])


def _inverse_temperature(found: list[tuple[Array, Array]]) -> float:
    """The factor at which the softmax of scores has the least negative log-likelihood, averaged over the sets."""

    def loss(logarithm: float) -> float:
        losses = []
        for scores, y in found:
            logits = np.exp(logarithm) * scores
            losses.append(float((logsumexp(logits, axis=1) - logits[np.arange(len(y)), y]).mean()))
        return float(np.mean(losses))

    return float(np.exp(minimize_scalar(loss, bounds=_LOG_INVERSE_TEMPERATURE, method="bounded").x))
