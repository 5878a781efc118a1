"""Accuracy from scores: hit@K over images and the mean accuracy per class.

Tied scores count as the expected hit of a random tie-break.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from zsl.checks import Array, Count, as_matrix, check_no_mask, check_value
from zsl.errors import UserError


def check_scores(scores: Any, name: str = "scores") -> Array:
    """Convert scores (L, C) to a float matrix; infinite scores are allowed, since some rules exclude classes by them.

    Raises
    ------
    UserError
        If the scores are not a matrix of numbers, are empty or hold NaN.
    """
    scores = as_matrix(scores, name, finite=False)
    missing = np.isnan(scores).any(axis=1)
    if missing.any():
        raise UserError(f"{missing.sum()} of {len(scores)} images have NaN {name}; no accuracy is defined.")
    return scores


def check_labels(y: Any, n_images: int, n_classes: int, *, unknown: bool = False) -> Array:
    """Check labels (L,), which must be integers 0..C-1; with ``unknown`` also -1, for an image of unknown class.

    Raises
    ------
    UserError
        If there is not one label for each image, or labels are not integers or not among the classes.
    """
    check_no_mask(y, "labels", "leave these images out")
    try:
        y = np.asarray(y)
    except ValueError:
        raise UserError("labels have rows of different lengths; one class number for each image is needed.") from None
    if y.shape != (n_images,):
        raise UserError(f"labels have shape {y.shape} where there are {n_images} images; one for each is needed.")
    if y.dtype.kind not in "iu":
        raise UserError(f"labels hold {y.dtype} values; class numbers from 0 to {n_classes - 1} are needed.")
    if y.min() < -int(unknown) or y.max() >= n_classes:
        raise UserError(
            f"labels run from {y.min()} to {y.max()} where there are {n_classes} classes"
            + ("; -1 stands for an unknown one." if unknown else "; leave images of unknown class out.")
        )
    return y


def check_scores_labels(scores: Any, y: Any) -> tuple[Array, Array]:
    """Check scores (L, C) and true classes (L,) by :func:`check_scores` and :func:`check_labels`."""
    scores = check_scores(scores)
    return scores, check_labels(y, *scores.shape)


def check_probabilities(P: Any) -> Array:
    """Convert probabilities (L, C) to float64; raise UserError if entries are negative or rows do not sum to 1."""
    kind = getattr(P, "dtype", np.dtype(np.float64))
    P = check_scores(P, "P").astype(np.float64, copy=False)
    rounding = max(1e-6, 4 * float(np.finfo(kind).eps)) if kind in (np.float16, np.float32) else 1e-6
    # Infinite entries give NaN, for which every comparison is false.
    if P.min() < 0 or not np.abs(P.sum(axis=1) - 1).max() <= rounding:
        raise UserError("rows of P are no probabilities; make them with zsl.evaluation.probabilities.")
    return P


def hit_probability(scores: Array, y: Array, k: int) -> Array:
    """Probability that the true class is among the K best, with ties broken at random.

    If g classes score strictly above the true one and t classes (including itself) score the same, the probability is
    ``(K - g) / t``, clipped to 0..1. Constant scores therefore give K / M and not 0 or 1 by the order of the classes.

    Parameters
    ----------
    scores : (L, M)
        Larger is likelier; no NaN.
    y : (L,) int
        True classes 0..M-1.
    k : int >= 1

    Returns
    -------
    (L,) float, 0..1

    Raises
    ------
    UserError
        For NaN, labels outside the classes, or shapes that do not fit.

    Examples
    --------
    >>> hit_probability([[3.0, 1.0, 1.0], [0.0, 0.0, 0.0]], [0, 2], k=1).round(2)
    array([1.  , 0.33])
    """
    check_value(Count, k, "k")
    scores, y = check_scores_labels(scores, y)
    own = scores[np.arange(len(y)), y][:, None]
    above, tied = (scores > own).sum(axis=1), (scores == own).sum(axis=1)
    return np.clip((k - above) / tied, 0.0, 1.0)


def hit_at(scores: Array, y: Array, k: int) -> float:
    """Flat hit@K, 0..1: the mean over images of :func:`hit_probability`, with the same arguments.

    Examples
    --------
    >>> hit_at([[3.0, 1.0], [3.0, 1.0]], [0, 1], k=1)
    0.5
    """
    return float(hit_probability(scores, y, k).mean())


def class_accuracy(scores: Array, y: Array) -> dict[int, float]:
    """Top-1 accuracy of every class that has test images, 0..1, by class number.

    Examples
    --------
    >>> class_accuracy([[3.0, 1.0], [3.0, 1.0]], [0, 1])
    {0: 1.0, 1: 0.0}
    """
    hits, y = hit_probability(scores, y, 1), np.asarray(y)
    return {int(c): float(hits[y == c].mean()) for c in np.unique(y)}


def evaluate(scores: Array, y: Array, ks: tuple[int, ...] = (1, 3, 5)) -> dict[str, float]:
    """Accuracy of scores: hit@K and the mean accuracy per class.

    Parameters
    ----------
    scores : (L, M)
        Larger is likelier; no NaN.
    y : (L,) int
        True classes 0..M-1.
    ks : tuple of int
        Values of K; those that are not below M are left out, because every image is then a hit.

    Returns
    -------
    dict
        ``hit_K`` for every K, and ``acc_class``, the mean of :func:`class_accuracy` over the classes with test images.

    Raises
    ------
    UserError
        For NaN, labels outside the classes, or shapes that do not fit.

    Examples
    --------
    >>> evaluate([[3.0, 1.0], [3.0, 1.0], [3.0, 1.0]], [0, 0, 1], ks=(1,))["acc_class"]
    0.5
    """
    if not isinstance(ks, Iterable) or isinstance(ks, str):
        raise UserError(f"ks={ks!r} is not accepted: it should be a list of numbers K for hit@K.")
    for k in ks:
        check_value(Count, k, "k")
    scores, y = check_scores_labels(scores, y)
    n_classes = scores.shape[1]
    metrics = {f"hit_{k}": hit_at(scores, y, k) for k in ks if k < n_classes}
    metrics["acc_class"] = float(np.mean(list(class_accuracy(scores, y).values())))
    return metrics
