"""The seen-unseen curve of the generalised setting, and the reliability of probabilities."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from zsl.checks import Array
from zsl.errors import UserError
from zsl.evaluation import ece, gzsl, probabilities, seen_unseen_curve
from zsl.evaluation.calibration import reliability_bins
from zsl.report.figures.runs import last_stage, points_of, record_of
from zsl.report.figures.style import COLOURS, COLUMN_IN, SMALL, axes, legend_under

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def seen_unseen(scores: Array, y: Array, is_seen_class: Array, *, ax: Axes | None = None) -> Axes:
    """Draw accuracy on seen against unseen classes for every offset of calibrated stacking.

    Marked are the point with the best harmonic mean H and the point without an offset. The best point was found with
    test images, so it bounds what a choice on validation classes may reach.

    Parameters
    ----------
    scores : (L, C)
        Scores of the test images for seen and unseen classes together; larger is likelier.
    y : (L,) int
        True classes 0..C-1.
    is_seen_class : (C,) bool

    Raises
    ------
    UserError
        For NaN, labels out of range, or no class or image of one kind.

    Examples
    --------
    >>> scores, y = np.array([[3.0, 1.0], [3.0, 2.0]]), np.array([0, 1])
    >>> ax = seen_unseen(scores, y, np.array([True, False]))
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['all offsets, area 1.000', 'best H = 100.0 %', 'no offset, H = 0.0 %']
    """
    curve = seen_unseen_curve(scores, y, is_seen_class)
    zero = gzsl(scores, y, is_seen_class)
    best = int(curve.h.argmax())
    ax = axes(ax, height=2.7)
    ax.plot(
        100 * curve.unseen,
        100 * curve.seen,
        color=COLOURS[0],
        linewidth=1.5,
        label=f"all offsets, area {curve.area:.3f}",
    )
    ax.plot(100 * curve.unseen[best], 100 * curve.seen[best], "o", color=COLOURS[1], markersize=6, clip_on=False,
            label=f"best H = {100 * curve.h[best]:.1f} %")  # fmt: skip
    ax.plot(100 * zero["gzsl_unseen"], 100 * zero["gzsl_seen"], "s", color="black", markersize=5, clip_on=False,
            label=f"no offset, H = {100 * zero['gzsl_h']:.1f} %")  # fmt: skip
    ax.set(xlim=(0, 100), ylim=(0, 100), xlabel="accuracy on unseen classes (%)", ylabel="accuracy on seen classes (%)")
    ax.grid(alpha=0.25, linewidth=0.6)
    legend_under(ax, below=2.6)
    return ax


def reliability(
    P: Array | str | Path, y: Array | None = None, *, n_bins: int = 15, ax: Axes | None = None
) -> Axes:  # fmt: skip
    """Draw a reliability diagram: the accuracy of answers against their confidence, with the calibration error (ECE).

    The images are in bins of equal size by the probability of their answer, as in :func:`zsl.evaluation.ece`. A point
    is the mean confidence and the accuracy of a bin, and the line from it to the diagonal is what it is wrong by; the
    ECE is the mean length of these lines over the images.

    Parameters
    ----------
    P : (L, M) or folder of a run
        Probabilities of classes, each row with the sum 1. A run needs ``evaluation.calibrate=true`` and
        ``save_predictions=true``.
    y : (L,) int
        True classes 0..M-1; images of class -1 are left out.
    n_bins : int

    Raises
    ------
    UserError
        If rows are no probabilities, labels are out of range, or the run lacks its temperature or predictions.

    Examples
    --------
    >>> ax = reliability(np.array([[0.9, 0.1]] * 5), np.array([0, 0, 0, 0, 1]))
    >>> ax.get_title(loc="right"), ax.lines[1].get_xydata().round(6).tolist()
    ('ECE 0.100, 5 images', [[90.0, 80.0]])
    """
    if isinstance(P, str | Path):
        temperature = record_of(P)["metrics"].get("temperature")
        if temperature is None:
            raise UserError(
                f"{P} has no temperature, so its scores are no probabilities; run with evaluation.calibrate=true."
            )
        points = points_of(P)
        P, y = probabilities(points[last_stage(points, "scores") + "/scores"], temperature), points["y"]
    if y is None:
        raise UserError("a reliability diagram needs the true classes y of the images.")
    known = np.asarray(y) >= 0
    P, y = np.asarray(P)[known], np.asarray(y)[known]
    n, *sums = reliability_bins(P, y, n_bins)
    x, accuracy = (100 * of[n > 0] / n[n > 0] for of in sums)
    ax = axes(ax, height=COLUMN_IN - 0.5)
    ax.plot([0, 100], [0, 100], color="black", linewidth=0.9, linestyle=(0, (3, 2)), label="as confident as right")
    ax.plot(x, accuracy, "o", color=COLOURS[0], markersize=4.5, label="images of a bin", zorder=3)
    ax.vlines(x, x, accuracy, color=COLOURS[1], linewidth=1.6, label="difference", zorder=2)
    ax.set(xlim=(0, 100), ylim=(0, 100), xlabel="confidence (%)", ylabel="accuracy (%)")
    ax.grid(alpha=0.25, linewidth=0.6)
    ax.set_title(f"ECE {ece(P, y, n_bins):.3f}, {len(y)} images", fontsize=SMALL, loc="right")
    legend_under(ax, below=2.6)
    return ax
