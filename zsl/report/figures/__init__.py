"""Figures for papers: functions that take runs or arrays and return Matplotlib's axes.

A *run* is the folder of a run, or its record (the contents of ``results.json``). Every function draws into the axes
that it is given by ``ax``, or else makes a figure 3.3 inches wide, a column of a paper; ``ax.figure`` is that figure,
and ``ax.figure.set_figwidth(7)`` makes it as wide as a page. Colours are told apart by people with any colour vision.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zsl.errors import UserError
from zsl.report.figures.classes import attribute_errors, confusion, per_class
from zsl.report.figures.contenders import rank_diagram, relative_times
from zsl.report.figures.curves import learning_curve, objective, panels, sensitivity
from zsl.report.figures.evaluation import reliability, seen_unseen
from zsl.report.figures.images import contact_sheet, most_certain
from zsl.report.figures.runs import record_of
from zsl.report.figures.scatter import embedding
from zsl.report.figures.style import COLOURS, figure_of, save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "COLOURS",
    "attribute_errors",
    "confusion",
    "contact_sheet",
    "embedding",
    "figure_of",
    "learning_curve",
    "most_certain",
    "objective",
    "of_run",
    "panels",
    "per_class",
    "rank_diagram",
    "relative_times",
    "reliability",
    "save_figure",
    "seen_unseen",
    "sensitivity",
]


def of_run(folder: str | Path) -> dict[str, Figure]:
    """Make the figures of one run from its folder, those that its files allow, in about a second.

    Parameters
    ----------
    folder : str or Path
        A complete run. ``attribute_errors`` needs ``predictions.npz`` in it (``save_predictions=true``).

    Returns
    -------
    dict
        Of ``confusion``, ``per_class``, ``objective``, ``attribute_errors``, ``most_certain``: those that can be made.

    Raises
    ------
    UserError
        If the folder has no complete record.

    Examples
    --------
    >>> of_run("nothing here")
    Traceback (most recent call last):
    zsl.errors.UserError: nothing here holds no results.json; name the folder of a complete run.
    """
    record_of(folder)
    out: dict[str, Figure] = {}
    makers: list[Callable[[str | Path], Any]] = [confusion, per_class, objective, attribute_errors, most_certain]
    for make in makers:
        with suppress(UserError, OSError):  # the run has not what this figure shows
            made = make(folder)
            out[make.__name__] = made if make is most_certain else figure_of(made)
    return out
