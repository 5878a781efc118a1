"""Methods and programs beside each other: mean ranks, with what data sets cannot tell apart, and relative times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from zsl.report.figures.style import COLOURS, FAINT, MARKERS, SMALL, TEXT, axes, legend_under
from zsl.report.statistics import critical_difference

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Inches for the line of a method, and for the scale with the bar of the critical difference.
_LINE, _SCALE = 0.15, 0.75


def rank_diagram(ranks: Mapping[str, float], n_data: int, title: str, *, ax: Axes | None = None) -> Axes:
    """Draw methods as points at their mean ranks, best first, with the critical difference as a bar and a band.

    Two methods whose ranks differ by less than the critical difference cannot be told apart at the 5 % level by these
    data sets (Nemenyi's test; Demsar, JMLR 2006). The band shows which ones that are for the best method.

    Parameters
    ----------
    ranks : mapping
        Mean rank of each method over the data sets; 1 is best.
    n_data : int
        Number of data sets. Several kinds of split of one data set count once, because they share its classes.
    title : str
        Stands under the axis.

    Examples
    --------
    >>> ax = rank_diagram({"a": 1.2, "b": 1.8, "c": 3.0}, n_data=8, title="mean rank")
    >>> [text.get_text() for text in ax.get_yticklabels()]
    ['a', 'b', 'c']
    """
    names = sorted(ranks, key=lambda name: ranks[name])
    values = np.array([ranks[name] for name in names])
    width = critical_difference(len(names), n_data)
    ax = axes(ax, height=_SCALE + _LINE * len(names))
    places = np.arange(len(names))
    ax.axvspan(values[0], values[0] + width, color=COLOURS[5], alpha=0.25, lw=0)
    ax.hlines(places, 0, values, color=FAINT, lw=0.4)
    ax.plot(values, places, "o", color=COLOURS[0], ms=3.5)
    ax.set_yticks(places, names, fontsize=SMALL)
    ax.set_ylim(len(names) - 0.4, -1.6)
    ax.set_xlim(0, max(len(names), values[0] + width) * 1.02)
    ax.plot([values[0], values[0] + width], [-1.0, -1.0], color=COLOURS[1], lw=1.5, solid_capstyle="butt")
    ax.annotate(
        f"critical difference {width:.1f}", (values[0], -1.0), (0, 3), textcoords="offset points", fontsize=SMALL
    )
    ax.set_xlabel(f"{title}\nover {n_data} data sets (1 is best)", fontsize=TEXT, loc="right")
    return ax


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
