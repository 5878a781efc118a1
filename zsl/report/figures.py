"""Figures. ``matplotlib.figure.Figure`` only: pyplot would start a window system."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from zsl.checks import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe & Ito's colours, told apart by people with any kind of colour vision; markers help in print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#000000")
MARKERS = "os^Dv<>P"


def embedding(
    Z_hat: Array, Z_unseen: Array, panels: Mapping[str, Array], names: Sequence[str], *, seed: int = 0
) -> Figure:
    """Predicted attributes in two dimensions (t-SNE), once per labelling; classes as large, black-edged markers.

    Parameters
    ----------
    Z_hat : (L, q)
        Predicted attributes. Scaled to unit length, as spreading sees them.
    Z_unseen : (M, q)
        Attributes of the classes.
    panels : mapping
        Title -> labels (L,) 0..M-1 by which the images are coloured.
    names : M class names.
    """
    from matplotlib.figure import Figure
    from sklearn.manifold import TSNE

    from zsl.linalg import unit_rows

    V = np.vstack([unit_rows(Z_unseen), unit_rows(Z_hat)])
    # Perplexity must stay below the number of points; 30 is the usual choice.
    points = TSNE(perplexity=min(30, (len(V) - 1) / 3), init="pca", random_state=seed).fit_transform(V)
    M = len(Z_unseen)
    figure = Figure(figsize=(4 * len(panels), 4.2), layout="constrained")
    for axes, (title, labels) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items()):
        for m, name in enumerate(names):
            style = {"color": COLOURS[m % len(COLOURS)], "marker": MARKERS[m % len(MARKERS)]}
            own = points[M:][labels == m]
            axes.scatter(*own.T, s=9, alpha=0.7, linewidths=0, **style)
            axes.scatter(*points[m], s=170, edgecolors="black", linewidths=1.6, label=name, zorder=3, **style)
        axes.set(title=title, xticks=[], yticks=[])
    legend_below(figure, *axes.get_legend_handles_labels(), columns=8)
    return figure


def panels(
    lines: Sequence[tuple[str, str, float, Any]],
    logarithmic: Mapping[str, bool],
    title: str,
    *,
    chance: float | None,
    selection: str,
) -> Figure:
    """Accuracy in percent against each setting, one panel per setting; bars are standard errors, as the figure says.

    Parameters
    ----------
    lines : (setting, line, value, summary or None)
    logarithmic : by setting, whether its axis is.
    chance : accuracy of guessing, drawn if it is the same everywhere.
    """
    from matplotlib.figure import Figure

    settings = list(dict.fromkeys(s for s, _, _, found in lines if found))
    n_columns = min(3, len(settings))
    n_rows = -(-len(settings) // n_columns)
    figure = Figure(figsize=(max(4.2 * n_columns, 5.5), 3.1 * n_rows + 0.9), layout="constrained")
    axes = figure.subplots(n_rows, n_columns, squeeze=False, sharey=True).ravel()
    styles = ("-", "--", "-.", ":")
    names = list(dict.fromkeys(line for _, line, _, _ in lines))
    cut = False
    for ax, setting in zip(axes, settings):
        for i, name in enumerate(names):
            points = sorted((v, s) for k, line, v, s in lines if (k, line) == (setting, name) and s)
            if not points:
                continue
            x = np.array([v for v, _ in points])
            y, e = (np.array([100 * getattr(s, what) for _, s in points]) for what in ("mean", "error"))
            e = np.nan_to_num(e)
            bars = np.minimum([e, e], [y, 100 - y])  # no accuracy is outside
            cut = cut or bool((bars < e).any())
            # Bars of several lines would lie upon each other.
            shift = (i - (len(names) - 1) / 2) * 0.02
            x = (
                x * 10 ** (shift * np.log10(max(x.max() / x.min(), 10)))
                if logarithmic[setting]
                else x + shift * np.ptp(x)
            )
            ax.errorbar(x, y, yerr=bars, color=COLOURS[i % len(COLOURS)], marker=MARKERS[i % len(MARKERS)],
                        linestyle=styles[i % len(styles)], markersize=5, linewidth=1.5, capsize=2, elinewidth=0.8,
                        label=name)  # fmt: skip
        if logarithmic[setting]:
            ax.set_xscale("log")
        values = sorted({v for k, _, v, s in lines if k == setting and s})
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
    heading = [f"{title}; {selection}", *_of_bars([s for *_, s in lines if s], cut)]
    width = int(figure.get_figwidth() * 13)  # letters at this size
    figure.suptitle("\n".join(t for line in heading for t in textwrap.wrap(line, width)), fontsize=10)
    # A line may have points in one panel only.
    known = {word: handle for ax in axes[: len(settings)] for handle, word in zip(*ax.get_legend_handles_labels())}
    words = [w for w in (*names, "chance") if w in known]
    legend_below(figure, [known[w] for w in words], words, columns=5)
    return figure


def _of_bars(summaries: Sequence[Any], cut: bool) -> list[str]:
    """What the bars are, over how many repetitions; nothing where there are none."""
    parts = []
    for kind, counts in (
        ("class splits", {s.n_splits for s in summaries if s.n_splits > 1}),
        ("seeds on one class split", {s.n_seeds for s in summaries if s.n_splits == 1 and s.n_seeds > 1}),
    ):
        if counts:
            low, high = min(counts), max(counts)
            parts.append(f"{low} {kind}" if low == high else f"{low} to {high} {kind}")
    end = ", cut off at 0 and 100 %" if cut else ""
    return [f"bars: one standard error over {' or '.join(parts)}{end}"] if parts else []


def legend_below(figure: Figure, handles: Sequence[Any], words: Sequence[str], *, columns: int, **style: Any) -> Any:
    """A legend under the axes with as many columns (at most ``columns``) as fit the figure, which grows by its rows."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
    for n in range(min(len(words), columns), 0, -1):
        legend = figure.legend(handles, words, loc="outside lower center", ncols=n, frameon=False, **style)
        if n == 1 or legend.get_window_extent(renderer).width <= 0.97 * figure.bbox.width:
            break
        legend.remove()
    rows = -(-len(words) // n)
    figure.set_figheight(figure.get_figheight() + 0.22 * (rows - 1))
    return legend


def six_panels(points: Mapping[str, Array], labels: Mapping[str, Mapping[str, Array]], names: Sequence[str]) -> Figure:
    """The paper's figure: AAg above, AAw below; coloured by truth, by nearest class, by spread labels.

    Parameters
    ----------
    points : row title -> (M + L, 2), the classes' positions first.
    labels : row title -> panel title -> (L,) labels.
    names : M class names.
    """
    from matplotlib.figure import Figure

    M = len(names)
    figure = Figure(figsize=(11.5, 8.2), layout="constrained")
    grid = figure.subplots(len(points), 3, squeeze=False)
    for row, (title, P) in zip(grid, points.items()):
        for ax, (panel, y) in zip(row, labels[title].items()):
            for m, name in enumerate(names):
                colour = COLOURS[m % len(COLOURS)]
                own = P[M:][y == m]
                # Shapes as well as colours for the images; the classes are circles with a black edge, as in the paper.
                ax.scatter(
                    *own.T, s=11, alpha=0.75, linewidths=0, color=colour, marker=MARKERS[m % len(MARKERS)], label=name
                )
                ax.scatter(*P[m], s=190, color=colour, edgecolors="black", linewidths=1.8, zorder=3)
            ax.set(title=panel, xticks=[], yticks=[])
    handles, words = grid[0, 0].get_legend_handles_labels()
    legend = legend_below(figure, handles, words, columns=8, markerscale=2.2)
    for handle in filter(None, legend.legend_handles):
        handle.set_alpha(1)
    return figure


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """``NAME.svg`` and ``NAME.png``; text stays text in the SVG."""
    import matplotlib

    folder.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
    figure.savefig(folder / f"{name}.png", dpi=160)
    return [folder / f"{name}.svg", folder / f"{name}.png"]
