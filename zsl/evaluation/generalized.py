r"""The generalised setting: test images of seen and of unseen classes, scored for all classes together.

Scores prefer the classes that trained them, so calibrated stacking (Chao et al., ECCV 2016) subtracts an offset from
the scores of seen classes. Only one number of an image matters to that choice, its *gap*: the best score of any seen
class minus the best of any unseen one. Its answer is a seen class while the gap is above the offset, an unseen one when
it is below; at equality all the best of both kinds are tied. So the mean per-class accuracies are piecewise constant in
the offset, change at the gaps alone, and everything below is exact after one sort.

Ties count as the expected hit of a random tie-break, as in :mod:`zsl.evaluation.metrics`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from zsl.checks import Array
from zsl.errors import UserError
from zsl.evaluation.metrics import as_scored


class SeenUnseenCurve(NamedTuple):
    """Both accuracies as the offset grows: ``2 K + 1`` points for K different gaps.

    Even points are the open intervals between gaps, odd ones the gaps themselves, where images are tied.
    """

    gaps: Array
    """(K,) different finite gaps, ascending, in the units of the scores"""
    seen: Array
    """(2 K + 1,) mean per-class accuracy of images of seen classes, never rising"""
    unseen: Array
    """(2 K + 1,) the same of unseen classes, never falling"""

    @property
    def h(self) -> Array:
        """(2 K + 1,) harmonic means."""
        return harmonic_mean(self.seen, self.unseen)

    @property
    def area(self) -> float:
        """Below the points joined by straight lines, 0..1; see :func:`ausuc`."""
        # Only infinite gaps, which no offset moves, keep the first point from the axis.
        start = self.seen[0] * self.unseen[0]
        return float(start + (np.diff(self.unseen) * (self.seen[1:] + self.seen[:-1]) / 2).sum())


class _Images(NamedTuple):
    """What an image contributes, whatever the offset."""

    gap: Array
    weight: Array
    """1 / (images of its class x classes of its kind that have images); 0 where its true class can never be chosen"""
    is_seen: Array
    n_tied: Array
    """Best classes of the kind of its own class"""
    n_tied_both: Array
    """Best classes of both kinds: tied where the offset equals the gap"""


def gzsl(scores: Array, y: Array, is_seen_class: Array, offset: float = 0.0) -> dict[str, float]:
    """Accuracy on images of seen and of unseen classes, each among all classes, and their harmonic mean.

    Parameters
    ----------
    scores : (L, C)
        Larger is likelier; over seen and unseen classes.
    y : (L,)
        True classes 0..C-1.
    is_seen_class : (C,) bool
    offset : float
        Subtracted from the scores of seen classes; in their units. Choose it by :func:`best_offset` on validation
        classes.

    Returns
    -------
    dict
        ``gzsl_seen`` and ``gzsl_unseen``, means over the classes that have images of their top-1 accuracies, 0..1, and
        ``gzsl_h``, 0 if both are 0.

    Raises
    ------
    UserError
        For NaN scores or offset, labels out of range, no class or no image of either kind.
    """
    if isinstance(offset, bool | str) or not np.isscalar(offset) or not np.isfinite(offset):
        raise UserError(
            f"the offset {offset} of calibrated stacking is not a number; choose one on validation classes."
        )
    images = _images(scores, y, is_seen_class)
    chosen = np.where(images.is_seen, images.gap > offset, images.gap < offset)
    hit = np.where(images.gap == offset, 1 / images.n_tied_both, chosen / images.n_tied) * images.weight
    # A sum of shares may exceed 1 by rounding.
    seen, unseen = (min(float(hit[images.is_seen == kind].sum()), 1.0) for kind in (True, False))
    return {"gzsl_seen": seen, "gzsl_unseen": unseen, "gzsl_h": float(harmonic_mean(seen, unseen))}


def seen_unseen_curve(scores: Array, y: Array, is_seen_class: Array) -> SeenUnseenCurve:
    """The accuracies of :func:`gzsl` for every offset; arguments as there. O(L log L + L C)."""
    images = _images(scores, y, is_seen_class)
    finite = np.isfinite(images.gap)
    gaps, place = np.unique(images.gap[finite], return_inverse=True)
    alone, tied = images.weight / images.n_tied, images.weight / images.n_tied_both

    def at_gaps(share: Array, kind: bool) -> Array:
        keep = images.is_seen[finite] == kind
        return np.bincount(place[keep], share[finite][keep], minlength=len(gaps))

    # An infinite gap is on its side of every offset.
    always_seen = alone[images.is_seen & (images.gap == np.inf)].sum()
    always_unseen = alone[~images.is_seen & (images.gap == -np.inf)].sum()
    seen, unseen = np.empty(2 * len(gaps) + 1), np.empty(2 * len(gaps) + 1)
    # Sums run from the end at which an accuracy is zero, so that zero is what they give there.
    seen[::2] = always_seen + np.r_[np.cumsum(at_gaps(alone, True)[::-1])[::-1], 0.0]
    unseen[::2] = always_unseen + np.r_[0.0, np.cumsum(at_gaps(alone, False))]
    seen[1::2] = seen[2::2] + at_gaps(tied, True)
    unseen[1::2] = unseen[:-1:2] + at_gaps(tied, False)
    return SeenUnseenCurve(gaps, np.minimum(seen, 1), np.minimum(unseen, 1))


def ausuc(scores: Array, y: Array, is_seen_class: Array) -> float:
    """Area under the seen-unseen accuracy curve over all offsets (Chao et al., ECCV 2016), 0..1; exact, no sweep.

    The attainable points are joined by straight lines, as is usual (their points are what drawing at random between two
    offsets gives); those at which images are tied are points too. No offset has to be chosen. Arguments and errors as
    for :func:`gzsl`.
    """
    return seen_unseen_curve(scores, y, is_seen_class).area


def best_offset(scores: Array, y: Array, is_seen_class: Array) -> float:
    """The offset at which ``gzsl_h`` is largest, over all offsets there are.

    **Only for validation classes**: seen classes, some of which played the unseen ones while a model was fitted to the
    others. Calling it with images of truly unseen classes chooses a setting on the test set. The offset is in the units
    of the scores, so it carries over only to a model whose scores have the same scale.

    Of equally good offsets the middle of the widest interval is taken (then the one nearest 0): it is what changes of
    the gaps from validation to test images upset last. An offset at which images are tied, so that a coin decides, is
    taken only if no interval is as good. Arguments and errors as for :func:`gzsl`.
    """
    curve = seen_unseen_curve(scores, y, is_seen_class)
    gaps, h = curve.gaps, curve.h
    if not len(gaps):
        return 0.0
    # The outer intervals have no middle; a finite step suffices, as all points of an interval are equal.
    step = max(float(gaps[-1] - gaps[0]), float(np.abs(gaps).max()) * 1e-3, np.finfo(float).tiny)
    edges = np.r_[gaps[0] - step, gaps, gaps[-1] + step]
    middles = edges[:-1] + np.diff(edges) / 2
    # Neighbouring floats have no number between them, so their interval holds no offset.
    between = (middles > edges[:-1]) & (middles < edges[1:])
    offsets = np.r_[middles[between], gaps]
    value = np.r_[h[::2][between], h[1::2]]
    # The accuracies are sums of rounded shares: differences of that size are none.
    best = value >= value.max() - 1e-12
    width = np.r_[np.diff(edges)[between], np.zeros(len(gaps))]
    return float(offsets[best][np.lexsort((np.abs(offsets[best]), -width[best]))[0]])


def harmonic_mean(a: Array | float, b: Array | float) -> Array:
    """``2 a b / (a + b)``, 0 where both are 0; a, b >= 0."""
    total = np.asarray(a) + np.asarray(b)
    return 2 * np.asarray(a) * np.asarray(b) / np.where(total > 0, total, 1)


def _images(scores: Array, y: Array, is_seen_class: Array) -> _Images:
    scores, y = as_scored(scores, y)
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
        # Doubles: a difference of float32 scores would be rounded.
        gap=best[True].astype(np.float64) - best[False].astype(np.float64),
        weight=can_win / (per_class[y] * n_classes),
        is_seen=is_seen,
        n_tied=np.where(is_seen, tied[True], tied[False]),
        n_tied_both=tied[True] + tied[False],
    )
