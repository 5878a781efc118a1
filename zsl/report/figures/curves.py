"""Accuracy against a setting, against the amount of training data, and the objective against iterations."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd

from zsl.checks import Array
from zsl.errors import UserError
from zsl.report.figures.runs import Run, frame_of, is_run, record_of
from zsl.report.figures.style import LINES, SMALL, TEXT, axes, from_to, legend_below, legend_under, style
from zsl.report.records import settings_of, text_of, varying
from zsl.report.statistics import summarise

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Arrays = Mapping[str, tuple[Array, Array]]
# Bands of more lines than this would hide each other; bars stand in their place.
_BANDS = 4


def sensitivity(
    runs: Run | Sequence[Run] | pd.DataFrame | Arrays, key: str, metric: str = "acc_class", *, by: str | None = None,
    where: Mapping[str, Any] | None = None, label: str | None = None, ax: Axes | None = None,
) -> Axes:  # fmt: skip
    """Draw a metric against a setting as lines, with bands of one standard error over repetitions.

    Repetitions are seeds within class splits (:func:`zsl.report.statistics.summarise`). Nothing else is averaged over:
    where runs differ in another setting as well, ``by`` makes a line of each of its values, or ``where`` selects one.

    Parameters
    ----------
    runs : folder above runs, sequence of runs, DataFrame of records, or mapping
        A mapping has a line's name -> values (n,) of the setting and results (n, R), a column for each repetition.
    key : str
        The setting, such as ``model.lam``; for a mapping its name in the label.
    metric : str
        Metrics other than times are drawn in percent.
    by : str, optional
        The setting that tells lines apart.
    where : mapping, optional
        Settings and the values that runs must have to be drawn.
    label : str, optional
        What stands under the axis; ``key`` unless given.

    Raises
    ------
    UserError
        If no run has the setting as a number, or runs differ in a setting that neither ``by`` nor ``where`` names.

    Examples
    --------
    >>> ax = sensitivity({"coupled": (np.array([0.1, 1, 10]), np.array([[0.4, 0.6], [0.7, 0.7], [0.5, 0.5]]))}, "lam")
    >>> ax.lines[0].get_xydata().tolist(), ax.get_xscale()
    ([[0.1, 50.0], [1.0, 70.0], [10.0, 50.0]], 'log')
    """
    if isinstance(runs, Mapping) and not is_run(runs):
        points = pd.concat([_points(name, *arrays) for name, arrays in runs.items()])
    else:
        points = _swept(frame_of(runs), key, metric, by, dict(where or {}))
    percent = not metric.rpartition("/")[2].startswith(("time_", "objective", "nll", "lasso", "peak"))
    ax = axes(ax)
    names = list(points["line"].unique())
    x = np.sort(points["value"].unique())
    logarithmic = bool(x[0] > 0 and x[-1] / x[0] >= 20)
    for i, name in enumerate(names):
        line = points[points["line"] == name].sort_values("value")
        _line(ax, line, i, name, scale=100 if percent else 1, bands=len(names) <= _BANDS)
    _ticks(ax, x, logarithmic=logarithmic)
    ax.set_xlabel(label or key)
    ax.set_ylabel(f"{_words(metric)} (%)" if percent else metric)
    ax.grid(alpha=0.25, linewidth=0.6)
    if points["error"].notna().any():
        what = "bands" if len(names) <= _BANDS else "bars"
        ax.set_title(f"{what}: one standard error, {from_to(points['n'])} repetitions", fontsize=SMALL, loc="right")
    if len(names) > 1:
        legend_under(ax, below=2.6)
    return ax


def learning_curve(
    runs: Run | Sequence[Run] | pd.DataFrame | Arrays, key: str = "subset.images", metric: str = "acc_class", *,
    by: str | None = "model.name", where: Mapping[str, Any] | None = None, ax: Axes | None = None,
) -> Axes:  # fmt: skip
    """Draw a metric against the amount of training data, a line for each model.

    Parameters
    ----------
    runs, metric, by, where
        As for :func:`sensitivity`.
    key : {"subset.images", "subset.classes"}
        Training images of each seen class, or seen classes.

    Raises
    ------
    UserError
        As :func:`sensitivity`.

    Examples
    --------
    >>> ax = learning_curve({"eszsl": (np.array([5, 10, 20]), np.array([[0.3], [0.4], [0.5]]))})
    >>> ax.get_xlabel(), ax.lines[0].get_ydata().tolist()
    ('training images of each seen class', [30.0, 40.0, 50.0])
    """
    label = {"subset.images": "training images of each seen class", "subset.classes": "seen classes"}.get(key, key)
    return sensitivity(runs, key, metric, by=by, where=where, label=label, ax=ax)


def objective(run: Run | Mapping[str, Sequence[float]], *, ax: Axes | None = None) -> Axes:
    """Draw the objectives of training against iterations, each divided by its first value.

    Parameters
    ----------
    run : run, or mapping
        A run's folder or record, or an objective's name -> its values.

    Raises
    ------
    UserError
        If the run has no objective, such as that of a model in closed form.

    Examples
    --------
    >>> ax = objective({"visual": [4.0, 2.0, 1.0]})
    >>> ax.lines[0].get_xydata().tolist()
    [[0.0, 1.0], [1.0, 0.5], [2.0, 0.25]]
    """
    curves = dict(record_of(run).get("curves", {}) if is_run(run) else cast(Mapping[str, Any], run))
    if not curves:
        raise UserError("the run has no objective by iteration; its model is not fitted by iterations.")
    words = {"objective_x": "visual dictionary", "objective_z": "attribute dictionary", "objective": "objective"}
    ax = axes(ax, height=2.2)
    for i, (name, values) in enumerate(curves.items()):
        known = np.array([np.nan if v is None else v for v in values], dtype=float)
        first = known[0] if known[0] > 0 else 1.0
        ax.plot(
            np.arange(len(known)), known / first, linewidth=1.4, markersize=3, label=words.get(name, name), **style(i)
        )
    ax.set(xlabel="iteration", ylabel="objective (first value = 1)")
    ax.grid(alpha=0.25, linewidth=0.6)
    if ax.lines and all((np.asarray(line.get_ydata()) > 0).all() for line in ax.lines):
        ax.set_yscale("log")
        ax.yaxis.set_major_formatter("{x:g}")
        ax.yaxis.set_minor_formatter("{x:g}")
        ax.tick_params(which="minor", labelsize=SMALL - 1)
    legend_under(ax, below=2.6)
    return ax


def panels(points: pd.DataFrame, logarithmic: Mapping[str, bool], title: str, *, chance: float | None) -> Figure:
    """Accuracy in percent against each setting, one panel per setting; the figure says what its bands or bars are.

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
    figure = Figure(figsize=(max(2.4 * n_columns, 4.8), 2.2 * n_rows + 0.8), layout="constrained")
    grid = figure.subplots(n_rows, n_columns, squeeze=False, sharey=True).ravel()
    bands = len(names) <= _BANDS
    for ax, setting in zip(grid, settings):
        ax.tick_params(labelsize=SMALL)
        of_setting = points[points["setting"] == setting]
        for i, name in enumerate(names):
            line = of_setting[of_setting["line"] == name].sort_values("value")
            if len(line):
                _line(ax, line, i, name, scale=100, bands=bands)
        _ticks(ax, np.sort(of_setting["value"].unique()), logarithmic=logarithmic[setting])
        if chance is not None:
            ax.axhline(100 * chance, color="0.35", linewidth=1.2, linestyle=(0, (1, 2)), label="chance")
        ax.set_xlabel(setting, fontsize=TEXT)
        ax.grid(alpha=0.25, linewidth=0.6)
        ax.spines[["top", "right"]].set_visible(False)
    for ax in grid[len(settings) :]:
        ax.remove()
    for ax in grid[: len(settings) : n_columns]:
        ax.set_ylabel("mean per-class accuracy (%)", fontsize=TEXT)
    width = int(figure.get_figwidth() * 15)  # letters at this size
    about = (title, *_of_bars(points, "bands" if bands else "bars"))
    figure.suptitle("\n".join(t for s in about for t in textwrap.wrap(s, width)), fontsize=TEXT)
    # A line may have points in one panel only.
    known = {word: handle for ax in grid[: len(settings)] for handle, word in zip(*ax.get_legend_handles_labels())}
    words = [word for word in (*names, "chance") if word in known]
    legend_below(figure, [known[word] for word in words], words, columns=5)
    return figure


def _words(metric: str) -> str:
    stage, _, plain = metric.rpartition("/")
    words = {"acc_class": "mean per-class accuracy", "hit_1": "accuracy", "gzsl_h": "harmonic mean H"}
    return words.get(plain, plain) + (f", {stage}" if stage else "")


def _line(ax: Axes, line: pd.DataFrame, i: int, name: str, *, scale: float, bands: bool) -> None:
    """One curve with a band or bars of one standard error; no accuracy is outside 0 to 100 %."""
    x, y = line["value"].to_numpy(float), scale * line["mean"].to_numpy(float)
    error = np.nan_to_num(scale * line["error"].to_numpy(float))
    top = 100 if scale == 100 else np.inf
    low, high = np.maximum(y - error, 0), np.minimum(y + error, top)
    look = {**style(i), "linestyle": LINES[i % len(LINES)], "markersize": 4, "linewidth": 1.4}
    if not error.any() or bands:
        ax.plot(x, y, label=name, **look)
        if error.any():
            ax.fill_between(x, low, high, color=look["color"], alpha=0.18, linewidth=0)
        return
    ax.errorbar(x, y, yerr=[y - low, high - y], capsize=2, elinewidth=0.8, label=name, **look)


def _ticks(ax: Axes, values: Array, *, logarithmic: bool) -> None:
    """A tick at each value, as many as have room."""
    if logarithmic:
        ax.set_xscale("log")
    place = np.log10(values) if logarithmic else values
    least = np.ptp(place) / 9
    shown: list[int] = []
    for k in range(len(values)):
        if not shown or place[k] - place[shown[-1]] >= least:
            shown.append(k)
    ax.set_xticks(values[shown], [f"{values[k]:g}" for k in shown])
    ax.set_xticks([], minor=True)


def _of_bars(points: pd.DataFrame, what: str) -> list[str]:
    """What the bands are, and over how many repetitions; nothing where there are none."""
    single = points["n_splits"] == 1
    counts = {
        "class splits": points.loc[~single, "n_splits"],
        "seeds on one class split": points.loc[single & (points["n_seeds"] > 1), "n_seeds"],
    }
    words = [f"{from_to(n)} {kind}" for kind, n in counts.items() if len(n)]
    return [f"{what}: one standard error over {' or '.join(words)}, within 0 and 100 %"] if words else []


def _points(name: str, x: Array, Y: Array) -> pd.DataFrame:
    """The points of one line of arrays."""
    x, Y = np.asarray(x, dtype=float), np.asarray(Y, dtype=float)
    if Y.ndim == 1:
        Y = Y[:, None]
    if x.ndim != 1 or Y.ndim != 2 or len(x) != len(Y) or not len(x):
        raise UserError(
            f"line {name} has values of shape {x.shape} and results of {Y.shape}; a row for each is needed."
        )
    n = Y.shape[1]
    error = Y.std(axis=1, ddof=1) / np.sqrt(n) if n > 1 else np.full(len(x), np.nan)
    return pd.DataFrame({"line": name, "value": x, "mean": Y.mean(axis=1), "error": error, "n": n})


def _swept(records: pd.DataFrame, key: str, metric: str, by: str | None, where: dict[str, Any]) -> pd.DataFrame:
    """The points of records, after nothing but the key and the lines is seen to vary."""
    flat = [{**settings_of(k), "seed": k["seed"]} for k in records["key"]]
    chosen = [
        all(text_of(s.get(k)) == text_of(v) for k, v in where.items())
        and isinstance(s.get(key), int | float) and not isinstance(s.get(key), bool)
        for s in flat
    ]  # fmt: skip
    records, flat = records[chosen], [s for s, kept in zip(flat, chosen) if kept]
    if metric not in records or not records[metric].notna().any():
        raise UserError(
            f"no run has the number {key} and the metric {metric}; name a key that was swept and a metric of runs."
        )
    others = [k for k in varying([{a: b for a, b in s.items() if a != "seed"} for s in flat]) if k not in (key, by)]
    for other in others:
        cells: dict[str, set[str]] = {}
        for s in flat:
            cells.setdefault(text_of([s[key], s.get(by) if by else None]), set()).add(text_of(s.get(other)))
        if any(len(values) > 1 for values in cells.values()):
            found = ", ".join(sorted({str(s.get(other)) for s in flat}))
            raise UserError(
                f"the runs differ in {other} too ({found}); make lines by it, or select one value with where."
            )
    word = "" if by in (None, "model.name") else f"{by} = "
    lines = [f"{word}{s.get(by)}" if by else "" for s in flat]
    points = summarise(records.assign(line=lines, value=[float(s[key]) for s in flat]), metric, ["line", "value"])
    points["n"] = points["n_splits"].where(points["n_splits"] > 1, points["n_seeds"])
    return points.reset_index()
