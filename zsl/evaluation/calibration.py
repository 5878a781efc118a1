r"""Probabilities from scores, how honest they are, and what abstaining would gain.

Scores of models and rules have any scale, so they become probabilities by a softmax at a temperature that is fitted on
validation classes (Guo et al., ICML 2017). No ranking changes, hence no accuracy.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import logsumexp
from scipy.stats import rankdata

from zsl.checks import Array, Count, Positive, check_value
from zsl.errors import UserError
from zsl.evaluation.metrics import as_probabilities, as_scored, as_scores, hit_probability

# Temperatures from a thousandth to a thousand times the deviation of an image's scores: beyond them probabilities are
# one-sided or uniform to three digits, and scores that separate validation images perfectly would have no optimum.
_LOG_RANGE = np.log(1e3)


class RiskCoverage(NamedTuple):
    """The error rate of answering only the images with the highest confidence."""

    coverage: Array
    """(L,) 1/L, 2/L, ..., 1: share of images answered"""
    risk: Array
    """(L,) expected error rate among them, 0..1"""


def probabilities(scores: Array, temperature: float) -> Array:
    """(L, C) ``softmax(scores / temperature)``: rows sum to 1 and rank as the scores do; temperature > 0."""
    return np.exp(_log_probabilities(scores, temperature))


def nll(scores: Array, y: Array, temperature: float = 1.0) -> float:
    """Mean negative log probability of the true classes y (L,), in nats; log C for constant scores (L, C)."""
    scores, y = _checked(scores, y)
    return float(-_log_probabilities(scores, temperature)[np.arange(len(y)), y].mean())


def fit_temperature(scores: Array, y: Array) -> float:
    r"""The temperature that minimises :func:`nll`, for scores (L, C) of **validation classes** and their labels y (L,).

    In :math:`\beta = 1/T` the loss is convex, with the derivative
    :math:`\operatorname{mean}(\mathbb{E}_{p}[s] - s_y)`, so its one zero is found by bracketing. Multiplying the scores
    by a constant multiplies the temperature; adding one to an image's scores changes nothing.

    Returns
    -------
    float
        Between 1/1000 and 1000 times the root mean square deviation of scores from their image's mean: the lower end
        where every true class has the best score, the upper end where scores are no better than none. 1 for scores that
        are all equal.

    Raises
    ------
    UserError
        For scores that are not finite, labels out of range.
    """
    scores, y = _checked(scores, y)
    centred = scores - scores.mean(axis=1, keepdims=True)
    top = np.abs(centred).max()
    # What rounding leaves of equal scores is none.
    if top <= 1e-12 * np.abs(scores).max():
        return 1.0
    scale = float(top * np.sqrt(((centred / top) ** 2).mean()))
    units = centred / scale
    own = units[np.arange(len(y)), y]

    def slope(log_beta: float) -> float:
        P = np.exp(_log_probabilities(units, float(np.exp(-log_beta))))
        return float((np.einsum("ij,ij->i", P, units) - own).mean())

    if slope(_LOG_RANGE) <= 0:
        return float(scale / np.exp(_LOG_RANGE))
    if slope(-_LOG_RANGE) >= 0:
        return float(scale * np.exp(_LOG_RANGE))
    return float(scale * np.exp(-brentq(slope, -_LOG_RANGE, _LOG_RANGE, xtol=1e-12)))


def ece(P: Array, y: Array, n_bins: int = 15) -> float:
    """Expected calibration error: mean over images of the distance between confidence and accuracy of their bin, 0..1.

    Confidence is the largest probability, accuracy the expected top-1 hit. Bins hold equally many images (equal mass),
    so none is near empty, which equal-width bins of overconfident models are; images of equal confidence stay in one
    bin, so the order of images does not matter. With L images in B bins even perfect calibration gives about
    ``0.8 sqrt(accuracy (1 - accuracy) B / L)``: compare values of one L and B only.

    Parameters
    ----------
    P : (L, C)
        From :func:`probabilities`.
    y : (L,)
        True classes 0..C-1.
    n_bins : int
        At most one per image.
    """
    check_value(Count, n_bins, "n_bins")
    confidence, hit = _confidence(P, y)
    n_bins = min(n_bins, len(hit))
    # Mean ranks 1..L of equal values are equal.
    which = np.ceil(rankdata(confidence) * n_bins / len(hit)).astype(int) - 1
    gap = np.bincount(which, confidence, n_bins) - np.bincount(which, hit, n_bins)
    return float(np.abs(gap).sum() / len(hit))


def risk_coverage(P: Array, y: Array) -> RiskCoverage:
    """Error rate against the share of images answered, the most confident first; P (L, C), y (L,).

    Images of equal confidence come in random order: the risk is the expectation over it.
    """
    confidence, hit = _confidence(P, y)
    _, group = np.unique(-confidence, return_inverse=True)
    mean_error = np.bincount(group, 1 - hit) / np.bincount(group)
    answered = np.arange(1, len(hit) + 1)
    return RiskCoverage(answered / len(hit), np.cumsum(mean_error[np.sort(group)]) / answered)


def aurc(P: Array, y: Array) -> float:
    """Area under :func:`risk_coverage`, its mean over all coverages, 0..1; lower is better.

    Confidence that says nothing gives the error rate.
    """
    return float(risk_coverage(P, y).risk.mean())


def calibration_report(scores: Array, y: Array, temperature: float) -> dict[str, float]:
    """``nll``, ``ece`` and ``aurc`` of scores (L, C) at a temperature, and that ``temperature``."""
    P = probabilities(scores, temperature)
    return {
        "temperature": temperature,
        "nll": nll(scores, y, temperature),
        "ece": ece(P, y),
        "aurc": aurc(P, y),
    }


def _log_probabilities(scores: Array, temperature: float) -> Array:
    check_value(Positive, temperature, "temperature")
    scores = as_scores(scores).astype(np.float64, copy=False)
    if not np.isfinite(scores.max(axis=1)).all():
        raise UserError("some images' best score is infinite; probabilities need finite ones, or minus infinity.")
    # The best score goes to 0 first: what overflows after that is minus infinity, the right limit.
    with np.errstate(over="ignore"):
        logits = (scores - scores.max(axis=1, keepdims=True)) / temperature
    return logits - logsumexp(logits, axis=1, keepdims=True)


def _checked(scores: Array, y: Array) -> tuple[Array, Array]:
    scores, y = as_scored(scores, y)
    scores = scores.astype(np.float64, copy=False)
    if np.isinf(scores).any():
        raise UserError(
            f"{np.isinf(scores).any(axis=1).sum()} images have infinite scores; a temperature needs finite."
        )
    return scores, y


def _confidence(P: Array, y: Array) -> tuple[Array, Array]:
    """(L,) largest probability and (L,) expected hit."""
    P = as_probabilities(P)
    return P.max(axis=1), hit_probability(P, y, 1)
