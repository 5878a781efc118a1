"""A critical-difference diagram: mean ranks of methods, and which of them data sets cannot tell apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from zsl.report.figures.style import COLOURS, FAINT, SMALL, TEXT, axes
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
