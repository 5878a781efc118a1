"""Hubness and domain shift: how unevenly test images choose their classes, and how far predictions fall from them."""

from __future__ import annotations

import numpy as np
from scipy.special import entr

from zsl.checks import Array, Count, as_matrix, check_value, need_squares
from zsl.errors import UserError
from zsl.evaluation.metrics import as_labels, as_probabilities, as_scores

# Images whose distances or choices are held at once.
_BLOCK = 4096


def first_choices(scores: Array) -> Array:
    """N_1 (M,): how many of the images (L, M) score each class highest; a tie is shared evenly. Sums to L."""
    return choices(scores, 1)


def choices(scores: Array, k: int) -> Array:
    """N_k (M,): how many of the images (L, M) have each class among their K best, 1 <= K <= M. Sums to K L.

    Ties at the K-th place count as the expectation of a random tie-break.
    """
    check_value(Count, k, "k")
    scores = as_scores(scores)
    n_classes = scores.shape[1]
    if k > n_classes:
        raise UserError(f"the {k} best of {n_classes} classes do not exist; K runs from 1 to {n_classes}.")
    counts = np.zeros(n_classes)
    for i in range(0, len(scores), _BLOCK):
        rows = scores[i : i + _BLOCK]
        last = np.partition(rows, n_classes - k, axis=1)[:, n_classes - k, None]
        above, tied = rows > last, rows == last
        left = (k - above.sum(axis=1)) / tied.sum(axis=1)
        counts += above.sum(axis=0) + left @ tied
    return counts


def skewness(counts: Array) -> float:
    """``E[(N - mean)^3] / std^3`` of counts; 0 where all are equal. Imbalanced classes alone make it positive."""
    deviation = counts - counts.mean()
    spread = np.sqrt((deviation**2).mean())
    # What rounding leaves of equal counts is none.
    return float((deviation**3).mean() / spread**3) if spread > 1e-12 * np.abs(counts).max(initial=0) else 0.0


def hubness_skew(scores: Array) -> float:
    """Skewness of N_1 for scores (L, M)."""
    return skewness(first_choices(scores))


def antihub_share(scores: Array) -> float:
    """Share of the classes that are no image's first choice, not even in a tie: scores (L, M) -> 0..1.

    A class without test images may rightly be one.
    """
    return float((first_choices(scores) == 0).mean())


def attribute_shift(Z_hat: Array, y: Array, Z: Array) -> tuple[Array, Array]:
    """How far predictions lie from the true prototype.

    Parameters
    ----------
    Z_hat : (L, q)
        Predicted attributes.
    y : (L,)
        True classes 0..M-1.
    Z : (M, q)
        Attributes of the classes.

    Returns
    -------
    distance : (L,)
        Euclidean distance between a prediction and its class's prototype, in the units of the attributes.
    relative : (L,)
        The same in units of the distance from this prototype to the nearest other one. Below 1/2 the nearest class is
        the right one, whatever the direction; NaN for a class with a twin, and where there is one class.
    """
    Z = as_matrix(Z, "Z")
    Z_hat = as_matrix(Z_hat, "Z_hat", n_columns=Z.shape[1])
    need_squares(Z, "Z")
    need_squares(Z_hat, "Z_hat", np.float64)
    y = as_labels(y, len(Z_hat), len(Z))
    distance = np.linalg.norm(Z_hat - Z[y], axis=1)
    between = nearest_other(Z)
    usable = np.isfinite(between) & (between > 0)
    scale = np.where(usable, between, np.nan)
    return distance, distance / scale[y]


def nearest_other(Z: Array) -> Array:
    """(M,) Euclidean distance from each row of Z (M, q) to the nearest other row; infinite for a single row."""
    distances = np.empty(len(Z))
    for m, z in enumerate(Z):
        # Differences, not inner products: twins must be at distance 0 exactly.
        to_all = np.linalg.norm(Z - z, axis=1)
        to_all[m] = np.inf
        distances[m] = to_all.min()
    return distances


def entropy_histogram(P: Array, n_bins: int = 10) -> tuple[Array, Array]:
    """Of soft assignments P (L, M), rows summing to 1: shares of images by the entropy of their assignment.

    Returns
    -------
    shares : (n_bins,)
        Sum to 1.
    edges : (n_bins + 1,)
        From 0 (one class for sure) to log M (no idea), in nats. For M = 1 all entropies are 0 and the edges 0..1.
    """
    check_value(Count, n_bins, "n_bins")
    P = as_probabilities(P)
    top = np.log(P.shape[1]) if P.shape[1] > 1 else 1.0
    # Rounding may put a uniform assignment an ulp above log M.
    counts, edges = np.histogram(np.clip(entr(P).sum(axis=1), 0, top), bins=n_bins, range=(0.0, top))
    return counts / len(P), edges


def hubness_report(scores: Array, y: Array, Z_hat: Array | None = None, Z: Array | None = None) -> dict[str, float]:
    """Hubness of scores (L, M), and domain shift where attributes predicted (L, q) and of classes Z (M, q) are given.

    Parameters
    ----------
    y : (L,)
        True classes 0..M-1; -1 for an image of unknown class, which counts for plain skewness and anti-hubs only.

    Returns
    -------
    dict
        ``hubness_skew``, ``hubness_skew_5``
            Skewness of N_1 and of N_5; nothing about N_5 for M <= 5, where it is the same for every class.
        ``hubness_skew_excess``, ``hubness_skew_5_excess``
            The same minus the skewness of the true class counts, over images of known class: a perfect classifier has
            0 for N_1, however imbalanced the classes are.
        ``hubness_antihubs``
            Share of classes that are nobody's first choice.
        ``shift_distance``, ``shift_relative``
            Means over images of known class of :func:`attribute_shift`; the second over classes without a twin.
    """
    scores = as_scores(scores)
    n_classes = scores.shape[1]
    y = as_labels(y, len(scores), n_classes, unknown=True)
    known = y >= 0
    report = {}
    for k, name in ((1, "hubness_skew"), (5, "hubness_skew_5")):
        if k >= n_classes and k > 1:
            continue
        report[name] = skewness(choices(scores, k))
        if known.any():
            true = skewness(np.bincount(y[known], minlength=n_classes).astype(float))
            chosen = report[name] if known.all() else skewness(choices(scores[known], k))
            report[f"{name}_excess"] = chosen - true
    report["hubness_antihubs"] = antihub_share(scores)
    if Z_hat is not None and Z is not None and known.any():
        Z_hat = as_matrix(Z_hat, "Z_hat", n_rows=len(scores))
        distance, relative = attribute_shift(Z_hat[known], y[known], Z)
        report["shift_distance"] = float(distance.mean())
        if not np.isnan(relative).all():
            report["shift_relative"] = float(np.nanmean(relative))
    return report
