r"""Probabilities from scores, and measures of their calibration.

Scores of models and rules have arbitrary scales. A softmax turns them into probabilities at a temperature that is
fitted on validation classes (Guo et al., ICML 2017). The ranking of the classes, and thus the accuracy, does not
change.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq
from scipy.special import logsumexp
from scipy.stats import rankdata

from zsl.checks import Array, Count, Positive, check_value
from zsl.errors import UserError
from zsl.evaluation.metrics import check_probabilities, check_scores, check_scores_labels, hit_probability

# The temperature lies within a factor of 1000 of the deviation of an image's scores. Outside this range probabilities
# are one-hot or uniform to three digits; without a limit, perfectly separating scores would have no optimum.
_LOG_RANGE = np.log(1e3)


def probabilities(scores: Array, temperature: float) -> Array:
    """``softmax(scores / temperature)``: rows that sum to 1 and rank the classes as the scores do.

    Parameters
    ----------
    scores : (L, C)
    temperature : float > 0

    Returns
    -------
    (L, C) float64

    Examples
    --------
    >>> probabilities(np.array([[0.0, np.log(3.0)]]), temperature=1.0)
    array([[0.25, 0.75]])
    """
    return np.exp(_log_probabilities(scores, temperature))


def nll(scores: Array, y: Array, temperature: float = 1.0) -> float:
    """Mean negative log-likelihood of the true classes, in nats.

    Parameters
    ----------
    scores : (L, C)
    y : (L,) int
        True classes 0..C-1.
    temperature : float > 0

    Returns
    -------
    float
        log C for constant scores.

    Examples
    --------
    >>> round(nll(np.zeros((3, 2)), np.array([0, 1, 1])), 4)
    0.6931
    """
    scores, y = _checked(scores, y)
    return float(-_log_probabilities(scores, temperature)[np.arange(len(y)), y].mean())


def fit_temperature(scores: Array, y: Array) -> float:
    r"""The temperature that minimises :func:`nll` on images of **validation classes**.

    In :math:`\beta = 1/T` the loss is convex, with the derivative
    :math:`\operatorname{mean}(\mathbb{E}_{p}[s] - s_y)`, so a bracketing method finds its only zero. Scaling the scores
    scales the temperature; adding a constant to the scores of an image changes nothing.

    Parameters
    ----------
    scores : (L, C)
        Finite scores of validation images for validation classes.
    y : (L,) int
        True classes 0..C-1.

    Returns
    -------
    float
        Between 1/1000 and 1000 times the root mean square deviation of the scores from their image's mean. The lower
        end means that every true class has the best score, the upper end that the scores carry no information. 1 if all
        scores are equal.

    Raises
    ------
    UserError
        For scores that are not finite or labels out of range.

    Examples
    --------
    >>> round(fit_temperature(np.array([[2.0, 0.0]] * 4), np.array([0, 0, 0, 1])), 3)
    1.82
    """
    scores, y = _checked(scores, y)
    centred = scores - scores.mean(axis=1, keepdims=True)
    top = np.abs(centred).max()
    # Differences of the size of rounding errors count as equal scores.
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
    """Expected calibration error: the mean over images of ``|confidence - accuracy|`` of their bin, 0..1.

    Confidence is the largest probability, accuracy the expected top-1 hit. All bins hold the same number of images
    (equal mass), because most bins of equal width are nearly empty for overconfident models. Images of equal confidence
    share a bin, so the order of the images does not matter. With L images in B bins even perfect calibration gives
    about ``0.8 sqrt(accuracy (1 - accuracy) B / L)``, so compare only values of the same L and B.

    Parameters
    ----------
    P : (L, C)
        Probabilities, such as those of :func:`probabilities`.
    y : (L,) int
        True classes 0..C-1.
    n_bins : int >= 1
        Number of bins, at most L.

    Returns
    -------
    float

    Examples
    --------
    >>> round(ece(np.array([[0.8, 0.2]] * 5), np.array([0, 0, 0, 0, 1])), 6)
    0.0
    """
    _, confidence, hit = reliability_bins(P, y, n_bins)
    return float(np.abs(confidence - hit).sum() / len(y))


def reliability_bins(P: Array, y: Array, n_bins: int) -> tuple[Array, Array, Array]:
    """The number of images, the sum of their confidences and the sum of their hits in each bin of :func:`ece`."""
    check_value(Count, n_bins, "n_bins")
    confidence, hit = _confidence(P, y)
    n_bins = min(n_bins, len(hit))
    # Mean ranks 1..L of equal values are equal, so that images of equal confidence share a bin.
    which = np.ceil(rankdata(confidence) * n_bins / len(hit)).astype(int) - 1
    return np.bincount(which, minlength=n_bins), np.bincount(which, confidence, n_bins), np.bincount(which, hit, n_bins)


def aurc(P: Array, y: Array) -> float:
    """Area under the risk-coverage curve, 0..1; lower is better.

    The risk at coverage k / L is the error rate over the k images with the highest confidence; the area is its mean
    over k. Images of equal confidence come in random order, and the risk is the expectation over it. A confidence that
    carries no information gives the error rate itself.

    Parameters
    ----------
    P : (L, C)
        Probabilities, such as those of :func:`probabilities`.
    y : (L,) int
        True classes 0..C-1.

    Returns
    -------
    float

    Examples
    --------
    >>> aurc(np.array([[0.9, 0.1], [0.6, 0.4]]), np.array([0, 1]))
    0.25
    """
    confidence, hit = _confidence(P, y)
    _, group = np.unique(-confidence, return_inverse=True)
    mean_error = np.bincount(group, 1 - hit) / np.bincount(group)
    return float((np.cumsum(mean_error[np.sort(group)]) / np.arange(1, len(hit) + 1)).mean())


def calibration_report(scores: Array, y: Array, temperature: float) -> dict[str, float]:
    """Calibration of scores (L, C) with true classes y (L,) at a temperature.

    Returns
    -------
    dict
        ``temperature``, ``nll``, ``ece`` and ``aurc``.

    Examples
    --------
    >>> calibration_report(np.zeros((2, 2)), np.array([0, 1]), temperature=1.0)["ece"]
    0.0
    """
    P = probabilities(scores, temperature)
    return {"temperature": temperature, "nll": nll(scores, y, temperature), "ece": ece(P, y), "aurc": aurc(P, y)}


def _log_probabilities(scores: Array, temperature: float) -> Array:
    check_value(Positive, temperature, "temperature")
    scores = check_scores(scores).astype(np.float64, copy=False)
    if not np.isfinite(scores.max(axis=1)).all():
        raise UserError("some images' best score is infinite; probabilities need finite ones, or minus infinity.")
    # With the best score moved to 0, an overflow gives minus infinity, which is the right limit.
    with np.errstate(over="ignore"):
        logits = (scores - scores.max(axis=1, keepdims=True)) / temperature
    return logits - logsumexp(logits, axis=1, keepdims=True)


def _checked(scores: Array, y: Array) -> tuple[Array, Array]:
    scores, y = check_scores_labels(scores, y)
    scores = scores.astype(np.float64, copy=False)
    if np.isinf(scores).any():
        raise UserError(
            f"{np.isinf(scores).any(axis=1).sum()} images have infinite scores; a temperature needs finite."
        )
    return scores, y


def _confidence(P: Array, y: Array) -> tuple[Array, Array]:
    """The largest probability (L,) and the expected top-1 hit (L,)."""
    P = check_probabilities(P)
    return P.max(axis=1), hit_probability(P, y, 1)
