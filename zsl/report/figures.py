"""Figures, from arrays. They use ``matplotlib.figure.Figure`` alone, because pyplot would start a window system."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from zsl.checks import Array
from zsl.linalg import unit_rows

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The colours of Okabe and Ito are told apart by people with any kind of colour vision; markers help in print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#000000")
MARKERS = "os^Dv<>P"
_LINES = ("-", "--", "-.", ":")


def style(i: int) -> dict[str, Any]:
    """Colour and marker of the i-th class or line."""
    return {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[i % len(MARKERS)]}


def tsne(V: Array, seed: int = 0) -> Array:
    """The rows of V (n, q) in two dimensions (n, 2), by t-SNE with at most 30 for the perplexity."""
    from sklearn.manifold import TSNE

    # The perplexity must stay below the number of points.
    perplexity = min(30, (len(V) - 1) / 3)
    return TSNE(perplexity=perplexity, init="pca", random_state=seed).fit_transform(V)


def embedding(
    Z_hat: Array, Z_unseen: Array, panels: Mapping[str, Array], names: Sequence[str], *, seed: int = 0
) -> Figure:
    """Predicted attributes in two dimensions, once per labelling.

    Parameters
    ----------
    Z_hat : (L, q)
        Predicted attributes; scaled to unit length.
    Z_unseen : (M, q)
        Attributes of the classes.
    panels : mapping
        Title -> labels (L,) 0..M-1 by which the images are coloured.
    names : M class names.
    seed : int
        Of t-SNE.
    """
    points = tsne(np.vstack([unit_rows(Z_unseen), unit_rows(Z_hat)]), seed)
    return panel_grid([{title: (points, labels) for title, labels in panels.items()}], names)


def panel_grid(rows: Sequence[Mapping[str, tuple[Array, Array]]], names: Sequence[str]) -> Figure:
    """Panels of images in the colour of their label; the classes are large markers with a black edge.

    Parameters
    ----------
    rows : sequence of mappings
        One per row of panels: title -> points (M + L, 2), those of the classes first, and labels (L,).
    names : M class names.
    """
    from matplotlib.figure import Figure

    M = len(names)
    figure = Figure(figsize=(3.9 * len(rows[0]), 4.1 * len(rows)), layout="constrained")
    grid = figure.subplots(len(rows), len(rows[0]), squeeze=False)
    for axes, row in zip(grid, rows):
        for ax, (title, (points, labels)) in zip(axes, row.items()):
            for m, name in enumerate(names):
                x, y = points[M:][labels == m].T
                ax.scatter(x, y, s=11, alpha=0.75, linewidths=0, **style(m))
                ax.scatter(points[m, 0], points[m, 1], s=170, edgecolors="black", linewidths=1.7, label=name, zorder=3,
                           **style(m))  # fmt: skip
            ax.set(title=title, xticks=[], yticks=[])
    legend_below(figure, *grid[0, 0].get_legend_handles_labels(), columns=8)
    return figure


def panels(points: pd.DataFrame, logarithmic: Mapping[str, bool], title: str, *, chance: float | None) -> Figure:
    """Accuracy in percent against each setting, one panel per setting; the figure says what its bars are.

    Parameters
    ----------
    points : DataFrame
        ``setting``, ``line``, ``value``, and the columns of :func:`zsl.report.statistics.summarise`.
    logarithmic : mapping
        By setting, whether its axis is logarithmic.
    title : str
    chance : float, optional
        The accuracy of guessing, drawn if it is the same everywhere.
    """
    from matplotlib.figure import Figure

    settings, names = list(points["setting"].unique()), list(points["line"].unique())
    n_columns = min(3, len(settings))
    n_rows = -(-len(settings) // n_columns)
    figure = Figure(figsize=(max(4.2 * n_columns, 5.5), 3.1 * n_rows + 0.9), layout="constrained")
    axes = figure.subplots(n_rows, n_columns, squeeze=False, sharey=True).ravel()
    for ax, setting in zip(axes, settings):
        of_setting = points[points["setting"] == setting]
        for i, name in enumerate(names):
            line = of_setting[of_setting["line"] == name].sort_values("value")
            if len(line):
                _line(ax, line, i, (i - (len(names) - 1) / 2) * 0.02, logarithmic[setting], name)
        if logarithmic[setting]:
            ax.set_xscale("log")
        values = sorted(of_setting["value"].unique())
        ax.set_xticks(values, [f"{v:g}" for v in values])
        ax.set_xticks([], minor=True)
        if chance is not None:
            ax.axhline(100 * chance, color="0.35", linewidth=1.2, linestyle=(0, (1, 2)), label="chance")
        ax.set_xlabel(setting)
        ax.grid(alpha=0.25, linewidth=0.6)
        ax.spines[["top", "right"]].set_visible(False)
    for ax in axes[len(settings) :]:
        ax.remove()
    for ax in axes[: len(settings) : n_columns]:
        ax.set_ylabel("per-class accuracy (%)")
    width = int(figure.get_figwidth() * 13)  # letters at this size
    figure.suptitle("\n".join(t for s in (title, *_of_bars(points)) for t in textwrap.wrap(s, width)), fontsize=10)
    # A line may have points in one panel only.
    known = {word: handle for ax in axes[: len(settings)] for handle, word in zip(*ax.get_legend_handles_labels())}
    words = [word for word in (*names, "chance") if word in known]
    legend_below(figure, [known[word] for word in words], words, columns=5)
    return figure


def _line(ax: Axes, line: pd.DataFrame, i: int, shift: float, logarithmic: bool, name: str) -> None:
    """One curve with bars of a standard error, shifted a little so that the bars of several lines do not overlap."""
    x, y = line["value"].to_numpy(), 100 * line["mean"].to_numpy()
    error = np.nan_to_num(100 * line["error"].to_numpy())
    bars = np.minimum([error, error], [y, 100 - y])  # no accuracy is outside
    x = x * 10 ** (shift * np.log10(max(x.max() / x.min(), 10))) if logarithmic else x + shift * np.ptp(x)
    ax.errorbar(x, y, yerr=bars, linestyle=_LINES[i % len(_LINES)], markersize=5, linewidth=1.5, capsize=2,
                elinewidth=0.8, label=name, **style(i))  # fmt: skip


def _of_bars(points: pd.DataFrame) -> list[str]:
    """What the bars are, and over how many repetitions; nothing where there are none."""
    single = points["n_splits"] == 1
    counts = {
        "class splits": points.loc[~single, "n_splits"],
        "seeds on one class split": points.loc[single & (points["n_seeds"] > 1), "n_seeds"],
    }
    words = [f"{' to '.join(map(str, sorted({n.min(), n.max()})))} {kind}" for kind, n in counts.items() if len(n)]
    return [f"bars: one standard error over {' or '.join(words)}, within 0 and 100 %"] if words else []


def legend_below(figure: Figure, handles: Sequence[Any], words: Sequence[str], *, columns: int) -> None:
    """A legend under the axes with as many columns (at most ``columns``) as fit; the figure grows by its rows."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
    for n in range(min(len(words), columns), 0, -1):
        legend = figure.legend(handles, words, loc="outside lower center", ncols=n, frameon=False)
        if n == 1 or legend.get_window_extent(renderer).width <= 0.97 * figure.bbox.width:
            figure.set_figheight(figure.get_figheight() + 0.22 * (-(-len(words) // n) - 1))
            return
        legend.remove()


def save_figure(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write ``NAME.svg`` and ``NAME.png``; text stays text in the SVG."""
    import matplotlib

    folder.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
    figure.savefig(folder / f"{name}.png", dpi=160)
    return [folder / f"{name}.svg", folder / f"{name}.png"]


def ratio_bars(ratios: pd.DataFrame) -> Figure:
    """Bars of relative times: a group for each problem, a colour for each contender.

    Parameters
    ----------
    ratios : DataFrame (problems, contenders)
        The first contender is the unit; NaN where one was not timed.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(ratios)}
    timed = {problem: row.dropna() for problem, row in ratios.iterrows()}
    figure = Figure(figsize=(8, 1.2 + 0.2 * sum(map(len, timed.values())) + 0.15 * len(timed)), layout="constrained")
    axes, y, ticks = figure.subplots(), 0.0, []
    for row in timed.values():
        bars = axes.barh(y + np.arange(len(row)), row, 0.9, color=[colours[name] for name in row.index])
        axes.bar_label(bars, fmt="{:.3g}", padding=3, fontsize=7)
        ticks.append(y + (len(row) - 1) / 2)
        y += len(row) + 0.8
    axes.set_yticks(ticks, [str(problem).replace(", ", "\n", 1) for problem in timed], fontsize=8)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.margins(x=0.12, y=0.01)
    axes.axvline(1, color="grey", linewidth=0.8, linestyle=":", zorder=0)
    axes.set_xlabel(f"time per row, in units of that of {ratios.columns[0]} on the same problem")
    handles = [Patch(color=colour, label=name) for name, colour in colours.items()]
    figure.legend(handles=handles, loc="outside upper center", ncols=3, fontsize=8)
    return figure
