"""Accuracy from scores: flat hit@K and per-class, with ties counted as the expectation of a random tie-break."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from zsl.checks import Array, Count, as_matrix, check_value
from zsl.errors import UserError


def as_scores(scores: Any, name: str = "scores") -> Array:
    """Scores (L, C) as a float matrix; infinite ones are some rules' way to exclude a class.

    Raises
    ------
    UserError
        If they are no matrix of numbers, are empty or hold NaN.
    """
    scores = as_matrix(scores, name, finite=False)
    missing = np.isnan(scores).any(axis=1)
    if missing.any():
        raise UserError(f"{missing.sum()} of {len(scores)} images have NaN {name}; no accuracy is defined.")
    return scores


def as_labels(y: Any, n_images: int, n_classes: int, *, unknown: bool = False) -> Array:
    """Labels (L,) as integers 0..C-1, or -1 as well for images of ``unknown`` class.

    Raises
    ------
    UserError
        If they are not one for each image, no integers, or outside the classes.
    """
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


def as_scored(scores: Any, y: Any) -> tuple[Array, Array]:
    """Scores (L, C) and true classes (L,), checked as by :func:`as_scores` and :func:`as_labels`."""
    scores = as_scores(scores)
    return scores, as_labels(y, *scores.shape)


def as_probabilities(P: Any) -> Array:
    """Probabilities (L, C) in double precision: not negative, rows summing to 1; else :class:`UserError`."""
    kind = getattr(P, "dtype", np.dtype(np.float64))
    P = as_scores(P, "P").astype(np.float64, copy=False)
    rounding = max(1e-6, 4 * float(np.finfo(kind).eps)) if kind in (np.float16, np.float32) else 1e-6
    # Not (... <= rounding): infinite entries give NaN.
    if P.min() < 0 or not np.abs(P.sum(axis=1) - 1).max() <= rounding:
        raise UserError("rows of P are no probabilities; make them with zsl.evaluation.probabilities.")
    return P


def hit_probability(scores: Array, y: Array, k: int) -> Array:
    """Probability (L,) that the true class is among the K best, ties broken at random.

    With g classes scored strictly above the true one and t classes (itself included) scored the same, it is
    ``(K - g) / t`` clipped to 0..1. Constant scores therefore give K / M, not 0 or 1 by accident of order.

    Parameters
    ----------
    scores : (L, M)
        Larger is likelier; no NaN.
    y : (L,)
        True classes 0..M-1.
    k : int >= 1

    Raises
    ------
    UserError
        On NaN, labels that are no classes, shapes that do not fit.
    """
    check_value(Count, k, "k")
    scores, y = as_scored(scores, y)
    own = scores[np.arange(len(y)), y][:, None]
    above, tied = (scores > own).sum(axis=1), (scores == own).sum(axis=1)
    return np.clip((k - above) / tied, 0.0, 1.0)


def hit_at(scores: Array, y: Array, k: int) -> float:
    """Flat hit@K: the mean over images of :func:`hit_probability`, 0..1."""
    return float(hit_probability(scores, y, k).mean())


def class_accuracy(scores: Array, y: Array) -> dict[int, float]:
    """Top-1 accuracy of every class that has test images, 0..1."""
    hits, y = hit_probability(scores, y, 1), np.asarray(y)
    return {int(c): float(hits[y == c].mean()) for c in np.unique(y)}


def evaluate(scores: Array, y: Array, ks: tuple[int, ...] = (1, 3, 5)) -> dict[str, float]:
    """The metrics of a stage: ``hit_K`` for every K < M (K >= M is no test), and ``acc_class``.

    ``acc_class`` is the mean over classes with test images; a class without any has no accuracy and is left out.
    """
    if not isinstance(ks, Iterable) or isinstance(ks, str):
        raise UserError(f"ks={ks!r} is not accepted: it should be a list of numbers K for hit@K.")
    for k in ks:
        check_value(Count, k, "k")
    scores, y = as_scored(scores, y)
    n_classes = scores.shape[1]
    metrics = {f"hit_{k}": hit_at(scores, y, k) for k in ks if k < n_classes}
    metrics["acc_class"] = float(np.mean(list(class_accuracy(scores, y).values())))
    return metrics
