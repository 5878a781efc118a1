"""What all figures share: colours, axes of a paper's size, legends, files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The colours of Okabe and Ito are told apart by people with any kind of colour vision; markers help in print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#000000")
MARKERS = "os^Dv<>P"
LINES = ("-", "--", "-.", ":")
FAINT = "0.4"
# The width of a column of a paper, and the sizes of letters that can be read there.
COLUMN_IN = 3.3
TEXT, SMALL = 8, 7


def style(i: int) -> dict[str, Any]:
    """Colour and marker of the i-th class or line: 64 different pairs."""
    return {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[(i + i // len(COLOURS)) % len(MARKERS)]}


def axes(ax: Axes | None, height: float = 2.6, width: float = COLUMN_IN) -> Axes:
    """The given axes, or new ones in a figure of ``width`` by ``height`` inches with letters for a paper.

    No pyplot is used, because it would start a window system.
    """
    if ax is not None:
        return ax
    from matplotlib.figure import Figure

    made: Axes = Figure(figsize=(width, height), layout="constrained").subplots()
    made.tick_params(labelsize=SMALL)
    for text in (made.title, made.xaxis.label, made.yaxis.label):
        text.set_fontsize(TEXT)
    made.spines[["top", "right"]].set_visible(False)
    return made


def from_to(n: pd.Series) -> str:
    """The numbers of repetitions behind a figure: ``3``, or ``2 to 5``."""
    return " to ".join(map(str, sorted({n.min(), n.max()})))


def figure_of(ax: Axes) -> Figure:
    """The whole figure that axes are in."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    return figure


def legend_under(ax: Axes, handles: Sequence[Any] | None = None, *, below: float = 0.0) -> None:
    """A legend under the axes with as many columns as fit; a figure that holds nothing else grows by its rows.

    Parameters
    ----------
    below : float
        The room for tick labels and the axis label, in lines of text.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = figure_of(ax)
    if handles is None:
        handles = ax.get_legend_handles_labels()[0]
    if not handles:
        return
    renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
    height = figure.get_figheight() if len(figure.axes) == 1 else None
    for most in range(min(len(handles), 6), 0, -1):
        rows = -(-len(handles) // most)
        n = -(-len(handles) // rows)  # rows of about the same length
        offset = -0.02 - below * 0.16 / (height or 2.6)
        legend = ax.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, offset), ncols=n, frameon=False,
                           fontsize=SMALL, handletextpad=0.4, columnspacing=1.0, borderaxespad=0.2)  # fmt: skip
        if n == 1 or legend.get_window_extent(renderer).width <= (0.98 if height else 0.3) * figure.bbox.width:
            if height:
                figure.set_figheight(height + 0.16 * rows)
            return


def legend_below(figure: Figure, handles: Sequence[Any], words: Sequence[str], *, columns: int) -> None:
    """A legend under all axes with as many columns (at most ``columns``) as fit; the figure grows by its rows."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
    for n in range(min(len(words), columns), 0, -1):
        legend = figure.legend(handles, words, loc="outside lower center", ncols=n, frameon=False, fontsize=TEXT)
        if n == 1 or legend.get_window_extent(renderer).width <= 0.97 * figure.bbox.width:
            figure.set_figheight(figure.get_figheight() + 0.2 * (-(-len(words) // n) - 1))
            return
        legend.remove()


def save_figure(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write ``NAME.svg`` and ``NAME.png``, and return their paths; text stays text in the SVG."""
    import matplotlib

    folder.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
    figure.savefig(folder / f"{name}.png", dpi=200)
    return [folder / f"{name}.svg", folder / f"{name}.png"]
