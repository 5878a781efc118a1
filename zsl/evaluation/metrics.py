"""Accuracy from scores: flat hit@K and per-class, with ties counted as the expectation of a random tie-break."""

from __future__ import annotations

import numpy as np

from zsl.checks import Array
from zsl.errors import UserError


def check_labels(scores: Array, y: Array) -> None:
    """Raise :class:`UserError` unless scores (L, C) have no NaN and ``y`` (L,) are some of their classes; L > 0."""
    if scores.ndim != 2 or y.shape != (len(scores),) or not scores.size:
        raise UserError(f"scores of shape {scores.shape} do not go with labels of shape {y.shape}: (L, C) and (L,).")
    if np.isnan(scores).any():
        raise UserError(
            f"{np.isnan(scores).any(axis=1).sum()} of {len(scores)} images have NaN scores; no accuracy is defined."
        )
    if y.dtype.kind not in "iu" or y.min() < 0 or y.max() >= scores.shape[1]:
        raise UserError(
            f"labels run from {y.min()} to {y.max()} where there are {scores.shape[1]} classes; "
            "leave images of unknown class out."
        )


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
    """
    if np.isnan(scores).any():
        raise UserError(
            f"{np.isnan(scores).any(axis=1).sum()} of {len(scores)} images have NaN scores; no accuracy is defined."
        )
    own = scores[np.arange(len(y)), y][:, None]
    above, tied = (scores > own).sum(axis=1), (scores == own).sum(axis=1)
    return np.clip((k - above) / tied, 0.0, 1.0)


def hit_at(scores: Array, y: Array, k: int) -> float:
    """Flat hit@K: the mean over images of :func:`hit_probability`, 0..1."""
    return float(hit_probability(scores, y, k).mean())


def class_accuracy(scores: Array, y: Array) -> dict[int, float]:
    """Top-1 accuracy of every class that has test images, 0..1."""
    hits = hit_probability(scores, y, 1)
    return {int(c): float(hits[y == c].mean()) for c in np.unique(y)}


def evaluate(scores: Array, y: Array, ks: tuple[int, ...] = (1, 3, 5)) -> dict[str, float]:
    """The metrics of a stage: ``hit_K`` for every K < M (K >= M is no test), and ``acc_class``.

    ``acc_class`` is the mean over classes with test images; a class without any has no accuracy and is left out.
    """
    n_classes = scores.shape[1]
    metrics = {f"hit_{k}": hit_at(scores, y, k) for k in ks if k < n_classes}
    metrics["acc_class"] = float(np.mean(list(class_accuracy(scores, y).values())))
    return metrics
