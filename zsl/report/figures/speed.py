"""Relative times of several contenders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from zsl.report.figures.style import COLOURS, FAINT, MARKERS, SMALL, axes, legend_under

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def relative_times(
    ratios: pd.DataFrame, seconds: Sequence[float] | None = None, *, ax: Axes | None = None
) -> Axes:  # fmt: skip
    """Draw times relative to the first contender as points: a row for each problem, a marker for each contender.

    The axis is logarithmic, where the length of a bar would mean nothing. A row names who was not timed on its problem.

    Parameters
    ----------
    ratios : DataFrame (problems, contenders)
        The first contender is the unit; NaN where one was not timed.
    seconds : (problems,), optional
        What the first contender takes for a row; stands beside the problem in ms.

    Examples
    --------
    >>> ax = relative_times(pd.DataFrame({"zsl": [1.0], "other": [4.0], "third": [np.nan]}, index=["one image"]))
    >>> [line.get_xdata().tolist() for line in ax.lines[:2]], [text.get_text() for text in ax.texts]
    ([[1.0], [4.0]], ['not timed: third'])
    """
    ax = axes(ax, height=1.2 + 0.36 * len(ratios), width=7.0)
    for i, name in enumerate(ratios):
        known = ratios[name].notna().to_numpy()
        # A little apart, so that equal times do not hide each other.
        y = np.flatnonzero(known) + (i - (ratios.shape[1] - 1) / 2) * 0.5 / max(ratios.shape[1], 2)
        ax.plot(ratios[name][known], y, linestyle="", markersize=5, label=name, color=COLOURS[i % len(COLOURS)],
                marker=MARKERS[i % len(MARKERS)])  # fmt: skip
    ax.axvline(1, color=FAINT, linewidth=0.8, linestyle=(0, (3, 2)), zorder=0)
    for row, values in enumerate(ratios.isna().to_numpy()):
        if values.any():
            untimed = "not timed: " + ", ".join(name for name, absent in zip(ratios, values) if absent)
            ax.text(0.995, row + 0.38, untimed, transform=ax.get_yaxis_transform(), ha="right", va="center",
                    color=FAINT, fontsize=SMALL - 1)  # fmt: skip
    words = [str(problem) for problem in ratios.index]
    if seconds is not None:
        words = [f"{word}\n1 = {1e3 * s:.3g} ms a row" for word, s in zip(words, seconds)]
    ax.set_yticks(range(len(ratios)), words, fontsize=SMALL)
    ax.set_ylim(len(ratios) - 0.4, -0.6)
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter("{x:g}")
    ax.grid(axis="both", alpha=0.25, linewidth=0.6)
    ax.set_xlabel(f"time per row divided by that of {ratios.columns[0]} on the same problem (2: twice as long)")
    legend_under(ax, below=2.6)
    return ax
