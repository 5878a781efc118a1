"""Label rules that correct for hubs: classes that are near to many images whatever the images show (transductive)."""

from __future__ import annotations

import numpy as np

from zsl.checks import Array, Count, Positive, as_matrix, check_arguments
from zsl.inference.blocks import Scores
from zsl.inference.rules import TRANSDUCTIVE, label_rule
from zsl.linalg import standard_scores


@label_rule(TRANSDUCTIVE, base="bidirectional", in_blocks=True)
def csls(base_scores: Array | Scores, *, n_neighbors: Count = 10) -> Array | Scores:
    """Cross-domain similarity local scaling (Conneau et al. 2018).

    Parameters
    ----------
    base_scores : (L, M)
        Similarities; they are brought to standard scores per image first.
    n_neighbors : int
        Each class is judged by this many of the best scores that it gets from any test image.

    Returns
    -------
    (L, M)
        ``2 s_im - r_m`` with ``r_m`` the mean of the ``n_neighbors`` best scores of class m. (The published ``r_i`` is
        the same for all classes of an image and changes no ranking.)

    Examples
    --------
    >>> csls(np.array([[1.0, 0.0], [1.0, 0.2], [0.1, 0.9]]), n_neighbors=1).argmax(axis=1)
    array([0, 0, 1])
    """
    check_arguments(csls, locals())
    S = _standardised(base_scores)
    k = min(n_neighbors, len(S))
    best = np.empty((0, S.shape[1]))
    for _, block in S.blocks():
        best = np.vstack([best, block])
        best = np.partition(best, max(len(best) - k, 0), axis=0)[-k:]
    hubness = best.mean(axis=0)
    return _as_given(S.map(lambda rows, s: 2 * s - hubness), base_scores, "csls")


@label_rule(TRANSDUCTIVE, base="bidirectional", in_blocks=True)
def inverted_softmax(base_scores: Array | Scores, *, temperature: Positive = 1.0) -> Array | Scores:
    """Logarithm of the probability of each image given the class (Smith et al. 2017).

    Parameters
    ----------
    base_scores : (L, M)
        Scores; they are brought to standard scores s per image first.
    temperature : float > 0
        T in the softmax.

    Returns
    -------
    (L, M)
        ``log(exp(s_im / T) / sum_j exp(s_jm / T))``: a softmax over images, not over classes.

    Examples
    --------
    >>> p = np.exp(inverted_softmax(np.array([[2.0, 0.0, 1.0], [0.5, 0.0, 3.0]])))
    >>> p.sum(axis=0).round(12)
    array([1., 1., 1.])
    """
    check_arguments(inverted_softmax, locals())
    S = _standardised(base_scores).map(lambda rows, s: s / temperature).kept()
    top, total = np.full(S.shape[1], -np.inf), np.zeros(S.shape[1])
    for _, block in S.blocks():
        higher = np.maximum(top, block.max(axis=0))
        total = total * np.exp(top - higher) + np.exp(block - higher).sum(axis=0)
        top = higher
    return _as_given(S.map(lambda rows, s: s - top - np.log(total)), base_scores, "inverted_softmax")


def _standardised(base_scores: Array | Scores) -> Scores:
    """The standard scores of each image."""
    given = base_scores if isinstance(base_scores, Scores) else as_matrix(base_scores, "base_scores")
    return Scores.of(given).map(lambda rows, s: standard_scores(as_matrix(s, "base_scores"))).kept()


def _as_given(scores: Scores, base_scores: Array | Scores, rule: str) -> Array | Scores:
    """An array where the base scores were one."""
    return scores if isinstance(base_scores, Scores) else scores.in_memory(rule)
