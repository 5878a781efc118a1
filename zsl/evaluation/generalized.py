r"""The generalised setting: test images of seen and of unseen classes, scored for all classes together.

Scores favour the seen classes, so calibrated stacking (Chao et al., ECCV 2016) subtracts an offset from the scores of
the seen classes. Only one number of an image matters for the effect of the offset: its *gap*, the best score of a seen
class minus the best score of an unseen class. The image gets a seen class if its gap is above the offset, and an unseen
class if its gap is below; if they are equal, the best classes of both kinds are tied. The mean accuracies per class are
therefore piecewise constant in the offset and change only at the gaps, so one sort gives exact results for all offsets.

Tied scores count as the expected hit of a random tie-break, as in :mod:`zsl.evaluation.metrics`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from zsl.checks import Array, check_no_mask
from zsl.errors import UserError
from zsl.evaluation.metrics import check_scores_labels


class SeenUnseenCurve(NamedTuple):
    """Both accuracies as functions of the offset: ``2 K + 1`` points for K different gaps.

    Even points are the open intervals between the gaps; odd points are the gaps themselves, where images are tied.
    """

    gaps: Array
    """(K,) different finite gaps, ascending, in the units of the scores"""
    seen: Array
    """(2 K + 1,) mean per-class accuracy on images of seen classes, which never rises"""
    unseen: Array
    """(2 K + 1,) mean per-class accuracy on images of unseen classes, which never falls"""

    @property
    def h(self) -> Array:
        """(2 K + 1,) harmonic means."""
        return harmonic_mean(self.seen, self.unseen)

    @property
    def area(self) -> float:
        """Area under the points, joined by straight lines, 0..1; see :func:`ausuc`."""
        # Infinite gaps, which no offset changes, can keep the first point away from the axis.
        start = self.seen[0] * self.unseen[0]
        return float(start + (np.diff(self.unseen) * (self.seen[1:] + self.seen[:-1]) / 2).sum())


class _Images(NamedTuple):
    """The contribution of every image, which does not depend on the offset."""

    gap: Array
    weight: Array
    """1 / (images of its class x classes of its kind with images); 0 if the true class is never the best of its kind"""
    is_seen: Array
    n_tied: Array
    """Number of best classes of the kind of its own class"""
    n_tied_both: Array
    """Number of best classes of both kinds, which are tied if the offset equals the gap"""


def gzsl(scores: Array, y: Array, is_seen_class: Array, offset: float = 0.0) -> dict[str, float]:
    """Accuracy on images of seen and of unseen classes, each among all classes, and their harmonic mean.

    Parameters
    ----------
    scores : (L, C)
        Scores for seen and unseen classes together; larger is likelier.
    y : (L,) int
        True classes 0..C-1.
    is_seen_class : (C,) bool
    offset : float
        Subtracted from the scores of seen classes. Choose it by :func:`best_offset` on validation classes.

    Returns
    -------
    dict
        ``gzsl_seen`` and ``gzsl_unseen``, the mean top-1 accuracies over the classes with images, 0..1; and ``gzsl_h``,
        their harmonic mean, 0 if both are 0.

    Raises
    ------
    UserError
        For NaN, labels out of range, or no class or image of one kind.

    Examples
    --------
    >>> scores, y = np.array([[3.0, 1.0], [3.0, 2.0]]), np.array([0, 1])
    >>> gzsl(scores, y, np.array([True, False]), offset=1.5)
    {'gzsl_seen': 1.0, 'gzsl_unseen': 1.0, 'gzsl_h': 1.0}
    """
    if isinstance(offset, bool | str) or not np.isscalar(offset) or not np.isfinite(offset):
        raise UserError(
            f"the offset {offset} of calibrated stacking is not a number; choose one on validation classes."
        )
    images = _images(scores, y, is_seen_class)
    chosen = np.where(images.is_seen, images.gap > offset, images.gap < offset)
    hit = np.where(images.gap == offset, 1 / images.n_tied_both, chosen / images.n_tied) * images.weight
    # Rounding may make a sum of shares exceed 1.
    seen, unseen = (min(float(hit[images.is_seen == kind].sum()), 1.0) for kind in (True, False))
    return {"gzsl_seen": seen, "gzsl_unseen": unseen, "gzsl_h": float(harmonic_mean(seen, unseen))}


def seen_unseen_curve(scores: Array, y: Array, is_seen_class: Array) -> SeenUnseenCurve:
    """Accuracies of :func:`gzsl` for every offset, in time O(L log L + L C); arguments and errors as for :func:`gzsl`.

    Examples
    --------
    >>> curve = seen_unseen_curve(np.array([[3.0, 1.0], [3.0, 2.0]]), np.array([0, 1]), np.array([True, False]))
    >>> curve.gaps, curve.seen, curve.unseen
    (array([1., 2.]), array([1. , 1. , 1. , 0.5, 0. ]), array([0. , 0.5, 1. , 1. , 1. ]))
    """
    images = _images(scores, y, is_seen_class)
    finite = np.isfinite(images.gap)
    gaps, place = np.unique(images.gap[finite], return_inverse=True)
    alone, tied = images.weight / images.n_tied, images.weight / images.n_tied_both

    def at_gaps(share: Array, kind: bool) -> Array:
        keep = images.is_seen[finite] == kind
        return np.bincount(place[keep], share[finite][keep], minlength=len(gaps))

    # An infinite gap is on the same side of every offset.
    always_seen = alone[images.is_seen & (images.gap == np.inf)].sum()
    always_unseen = alone[~images.is_seen & (images.gap == -np.inf)].sum()
    seen, unseen = np.empty(2 * len(gaps) + 1), np.empty(2 * len(gaps) + 1)
    # Each sum starts at the end where the accuracy is zero, so that it is exactly zero there.
    seen[::2] = always_seen + np.r_[np.cumsum(at_gaps(alone, True)[::-1])[::-1], 0.0]
    unseen[::2] = always_unseen + np.r_[0.0, np.cumsum(at_gaps(alone, False))]
    seen[1::2] = seen[2::2] + at_gaps(tied, True)
    unseen[1::2] = unseen[:-1:2] + at_gaps(tied, False)
    return SeenUnseenCurve(gaps, np.minimum(seen, 1), np.minimum(unseen, 1))


def ausuc(scores: Array, y: Array, is_seen_class: Array) -> float:
    """Exact area under the seen-unseen accuracy curve over all offsets (Chao et al., ECCV 2016), 0..1.

    Straight lines join the attainable points, including those at which images are tied; a random choice between two
    offsets attains the points on a line. No offset has to be chosen. Arguments and errors are those of :func:`gzsl`.

    Examples
    --------
    >>> ausuc(np.array([[3.0, 1.0], [3.0, 2.0]]), np.array([0, 1]), np.array([True, False]))
    1.0
    """
    return seen_unseen_curve(scores, y, is_seen_class).area


def best_offset(scores: Array, y: Array, is_seen_class: Array) -> float:
    """The offset with the largest ``gzsl_h``, among all offsets.

    **Use validation classes only**: seen classes, some of which a model treated as unseen while it was fitted to the
    others. With images of the truly unseen classes the offset would be chosen on the test set. The offset has the units
    of the scores, so it applies only to a model whose scores have the same scale.

    If several offsets are equally good, the result is the middle of the widest interval (then the one nearest 0), which
    is the most robust to changes of the gaps between validation and test images. An offset at which images are tied is
    chosen only if no interval is as good. Arguments and errors are those of :func:`gzsl`.

    Examples
    --------
    >>> best_offset(np.array([[3.0, 1.0], [3.0, 2.0]]), np.array([0, 1]), np.array([True, False]))
    1.5
    """
    curve = seen_unseen_curve(scores, y, is_seen_class)
    gaps, h = curve.gaps, curve.h
    if not len(gaps):
        return 0.0
    # The outer intervals are unbounded; a finite step is enough, because all offsets of an interval are equally good.
    step = max(float(gaps[-1] - gaps[0]), float(np.abs(gaps).max()) * 1e-3, np.finfo(float).tiny)
    edges = np.r_[gaps[0] - step, gaps, gaps[-1] + step]
    middles = edges[:-1] + np.diff(edges) / 2
    # There is no number between neighbouring floats, so their interval holds no offset.
    between = (middles > edges[:-1]) & (middles < edges[1:])
    offsets = np.r_[middles[between], gaps]
    value = np.r_[h[::2][between], h[1::2]]
    # Accuracies are sums of rounded shares, so differences of the size of rounding errors count as ties.
    best = value >= value.max() - 1e-12
    width = np.r_[np.diff(edges)[between], np.zeros(len(gaps))]
    return float(offsets[best][np.lexsort((np.abs(offsets[best]), -width[best]))[0]])


def harmonic_mean(a: Array | float, b: Array | float) -> Array:
    """``2 a b / (a + b)``, 0 where both are 0; a, b >= 0."""
    total = np.asarray(a) + np.asarray(b)
    return 2 * np.asarray(a) * np.asarray(b) / np.where(total > 0, total, 1)


def _images(scores: Array, y: Array, is_seen_class: Array) -> _Images:
    scores, y = check_scores_labels(scores, y)
    check_no_mask(is_seen_class, "is_seen_class", "say of every class whether it is seen")
    is_seen_class = np.asarray(is_seen_class)
    if is_seen_class.dtype != bool or is_seen_class.shape != (scores.shape[1],):
        raise UserError(
            f"is_seen_class has type {is_seen_class.dtype} and shape {is_seen_class.shape}; "
            f"one bool for each of {scores.shape[1]} classes is needed."
        )
    is_seen = is_seen_class[y]
    for kind, name in ((True, "seen"), (False, "unseen")):
        if not (is_seen_class == kind).any():
            raise UserError(f"no class is {name}; the generalised setting needs seen and unseen classes.")
        if not (is_seen == kind).any():
            raise UserError(
                f"no test image is of a class that is {name}; the generalised setting needs images of both kinds."
            )
    best, tied = {}, {}
    for kind in (True, False):
        of_kind = scores[:, is_seen_class == kind]
        best[kind] = of_kind.max(axis=1)
        tied[kind] = (of_kind == best[kind][:, None]).sum(axis=1)
    undefined = np.isinf(best[True]) & (best[True] == best[False])
    if undefined.any():
        raise UserError(
            f"{undefined.sum()} images have the same infinite score for seen and unseen classes; scores must be finite."
        )
    own = scores[np.arange(len(y)), y]
    per_class = np.bincount(y, minlength=scores.shape[1])
    n_classes = np.where(is_seen, *((per_class[is_seen_class == kind] > 0).sum() for kind in (True, False)))
    can_win = own == np.where(is_seen, best[True], best[False])
    return _Images(
        # Float64 keeps the difference of float32 scores exact.
        gap=best[True].astype(np.float64) - best[False].astype(np.float64),
        weight=can_win / (per_class[y] * n_classes),
        is_seen=is_seen,
        n_tied=np.where(is_seen, tied[True], tied[False]),
        n_tied_both=tied[True] + tied[False],
    )
