"""Hubness (how unevenly test images choose their classes) and domain shift (how far predictions are from the truth)."""

from __future__ import annotations

import numpy as np

from zsl.checks import Array, Count, as_matrix, check_no_overflow, check_value
from zsl.errors import UserError
from zsl.evaluation.metrics import check_labels, check_scores

# Images that are handled at once.
_BLOCK = 4096


def choices(scores: Array, k: int) -> Array:
    """N_k: the number of images that have each class among their K best.

    Ties at the K-th place count as the expectation of a random tie-break.

    Parameters
    ----------
    scores : (L, M)
    k : int, 1..M

    Returns
    -------
    (M,) float
        The sum is K L.

    Raises
    ------
    UserError
        For NaN, or k beyond the number of classes.

    Examples
    --------
    >>> choices([[2.0, 1.0, 0.0], [1.0, 1.0, 0.0]], k=1)
    array([1.5, 0.5, 0. ])
    """
    check_value(Count, k, "k")
    scores = check_scores(scores)
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
    """Skewness ``E[(N - mean)^3] / std^3`` of the counts N; 0 if all are equal, positive if a few are large."""
    deviation = counts - counts.mean()
    spread = np.sqrt((deviation**2).mean())
    # Differences of the size of rounding errors count as equal counts.
    return float((deviation**3).mean() / spread**3) if spread > 1e-12 * np.abs(counts).max(initial=0) else 0.0


def hubness_skew(scores: Array) -> float:
    """Skewness of N_1 (:func:`choices` with K = 1) for scores (L, M).

    Examples
    --------
    >>> hubness_skew([[1.0, 0.0], [0.0, 1.0]])
    0.0
    """
    return skewness(choices(scores, 1))


def attribute_shift(Z_hat: Array, y: Array, Z: Array) -> tuple[Array, Array]:
    """Distance of predicted attributes from those of the true class.

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
        The distance divided by that from the true prototype to the nearest other one. Below 1/2 the nearest class is
        the true one. NaN if another class has the same attributes, or if there is only one class.

    Examples
    --------
    >>> attribute_shift([[1.0, 0.0]], [0], [[0.0, 0.0], [4.0, 0.0]])
    (array([1.]), array([0.25]))
    """
    Z = as_matrix(Z, "Z")
    Z_hat = as_matrix(Z_hat, "Z_hat", n_columns=Z.shape[1])
    check_no_overflow(Z, "Z")
    check_no_overflow(Z_hat, "Z_hat", np.float64)
    y = check_labels(y, len(Z_hat), len(Z))
    distance = np.linalg.norm(Z_hat - Z[y], axis=1)
    between = nearest_other(Z)
    usable = np.isfinite(between) & (between > 0)
    scale = np.where(usable, between, np.nan)
    return distance, distance / scale[y]


def nearest_other(Z: Array) -> Array:
    """(M,) Euclidean distance from each row of Z (M, q) to the nearest other row; infinite for a single row."""
    distances = np.empty(len(Z))
    for m, z in enumerate(Z):
        # Differences give exactly 0 for equal rows; inner products would not.
        to_all = np.linalg.norm(Z - z, axis=1)
        to_all[m] = np.inf
        distances[m] = to_all.min()
    return distances


def hubness_report(scores: Array, y: Array, Z_hat: Array | None = None, Z: Array | None = None) -> dict[str, float]:
    """Hubness of scores, and the domain shift of predicted attributes.

    Parameters
    ----------
    scores : (L, M)
    y : (L,) int
        True classes 0..M-1, or -1 for an image of unknown class, which counts only for the skewness and the anti-hubs.
    Z_hat, Z : (L, q), (M, q), optional
        Predicted attributes and those of the classes, for the domain shift.

    Returns
    -------
    dict
        ``hubness_skew``, ``hubness_skew_5``
            Skewness of N_1 and N_5 (:func:`choices`); N_5 only for M > 5.
        ``hubness_skew_excess``, ``hubness_skew_5_excess``
            The skewness minus that of the true class counts, over images of known class. A perfect classifier has 0 for
            N_1, however imbalanced the classes are.
        ``hubness_antihubs``
            Share of the classes that are no image's first choice, not even in a tie.
        ``shift_distance``, ``shift_relative``
            Means of :func:`attribute_shift` over images of known class.

    Examples
    --------
    >>> hubness_report(np.eye(3), [0, 1, 2])["hubness_antihubs"]
    0.0
    """
    scores = check_scores(scores)
    n_classes = scores.shape[1]
    y = check_labels(y, len(scores), n_classes, unknown=True)
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
    report["hubness_antihubs"] = float((choices(scores, 1) == 0).mean())
    if Z_hat is not None and Z is not None and known.any():
        Z_hat = as_matrix(Z_hat, "Z_hat", n_rows=len(scores))
        distance, relative = attribute_shift(Z_hat[known], y[known], Z)
        report["shift_distance"] = float(distance.mean())
        if not np.isnan(relative).all():
            report["shift_relative"] = float(np.nanmean(relative))
    return report
