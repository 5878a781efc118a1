"""Experiments of our own: ``ablation`` and ``clip_or_not`` as tables, the others as curves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from zsl.report.cells import Cell, cells, layout
from zsl.report.formats import MISSING, NONE, Table, number, percent
from zsl.report.records import common_splits, of_cells, selection_of
from zsl.report.statistics import Difference, difference, repetitions, summarise
from zsl.report.tables import RULES, finish

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METRIC = "acc_class"
TITLES = {
    "ablation": "Ablation",
    "clip_or_not": "CLIP alone, with seen images, and with unlabelled test images",
    "sensitivity": "Sensitivity to the settings",
    "learning_curve": "Accuracy against what is seen in training",
    "imbalance": "Transductive rules on unseen classes of unequal size",
}


GENERALIZED = "gzsl_h"


def variants(name: str, records: pd.DataFrame, extra: Sequence[str] = ()) -> list[Table]:
    """One table per block of data: every variant of an experiment, and its paired difference to the first one.

    Where runs have it, a column shows the harmonic mean of the generalised setting. Arguments as for
    :func:`zsl.report.tables.table1`.
    """
    found = cells(name, extra)
    filled = of_cells(found, records)
    out = []
    for data in dict.fromkeys(one.data for one in found):
        mine = [one for one in found if one.data == data]
        every = filled[filled["data"] == data]
        compared, dropped = common_splits(every, ["cell"])
        means = summarise(compared, METRIC, ["cell"])
        harmonic = summarise(compared, GENERALIZED, ["cell"])  # empty where no run has it
        more = [GENERALIZED] if len(harmonic) else []
        table = Table(
            f"{name}_{data}", f"{TITLES[name]}, {mine[0].title}: mean per-class accuracy in percent",
            selection_of(every), ["part", "variant", METRIC, "difference", "95 % interval", "p", *more, "repetitions"],
            left=2, ours={METRIC: [], **{column: [] for column in more}},
        )  # fmt: skip
        runs = dict([*compared.groupby("cell")])
        for one in mine:
            if one.id not in means.index:
                table.rows.append([one.group, one.variant, MISSING, NONE, NONE, NONE, *(NONE for _ in more), ""])
                continue
            row = means.loc[one.id]
            base = runs.get(mine[0].id)
            paired = None if one is mine[0] or base is None else difference(runs[one.id], base, METRIC)
            count = repetitions(row["n_splits"], row["n_seeds"])
            last = [percent(harmonic.loc[one.id])] if more else []
            table.rows.append([one.group, one.variant, percent(row), *columns_of(paired), *last, count])
        table.notes = [
            "Only class splits that every row has. Difference: to the first row, in points, paired over class splits "
            "with the Nadeau-Bengio correction for their overlap, over the classes by bootstrap (no p) where there is "
            "one split; never over dictionary seeds. p is for one comparison: with many rows some fall below 0.05 by "
            "chance.",
            *(f"{one}: harmonic mean of the accuracies on seen and on unseen classes, among all." for one in more),
            *dropped,
        ]
        finish(table, mine, every)
        out.append(table)
    return out


def columns_of(d: Difference | None) -> list[Any]:
    """A difference in points, its interval and its p as three columns."""
    if d is None:
        return [NONE, NONE, NONE]
    interval = NONE if np.isnan(d.low) else f"{100 * d.low:+.1f} to {100 * d.high:+.1f}"
    return [number(100 * d.mean, 1, sign=True), interval, number(d.p, 3)]


def curves(name: str, records: pd.DataFrame, extra: Sequence[str] = ()) -> tuple[list[Table], dict[str, Figure]]:
    """One table per block of data, and one figure per block that has runs."""
    from zsl.report.figures import panels

    found = cells(name, extra)
    filled = of_cells(found, records)
    logarithmic = {curve["name"]: curve.get("log", False) for curve in layout()[name]["curves"]}
    tables, figures = [], {}
    for data in dict.fromkeys(one.data for one in found):
        mine = [one for one in found if one.data == data]
        every = filled[filled["data"] == data]
        points, dropped = _points(name, mine, every)
        table = Table(
            f"{name}_{data}", f"{TITLES[name]}, {mine[0].title}: mean per-class accuracy in percent",
            selection_of(every), ["setting", "value", *_lines(name, mine), "repetitions"], left=1,
            ours={line: [] for line in _lines(name, mine)},
        )  # fmt: skip
        for setting, value in dict.fromkeys((one.group, float(v)) for one in mine for v in one.values):
            here = points[(points["setting"] == setting) & (points["value"] == value)].set_index("line")
            row: list[Any] = [setting, number(value, 3 if value < 1 else 0)]
            for line in _lines(name, mine):
                row.append(percent(here.loc[line]) if line in here.index else MISSING)
            table.rows.append([*row, repetitions(*here[["n_splits", "n_seeds"]].max()) if len(here) else ""])
        table.notes = [
            "Mean ± standard deviation over class splits (over seeds where there is one split). The points of a curve "
            "are on the same splits: how they differ is surer than these deviations suggest.",
            *dropped,
        ]
        finish(table, mine, every)
        tables.append(table)
        if len(points):
            n_unseen = every["n_unseen"].unique()
            figures[table.name] = panels(
                points, logarithmic, f"{mine[0].title}; {table.selection}",
                chance=1 / n_unseen[0] if len(n_unseen) == 1 else None,
            )  # fmt: skip
    return tables, figures


def _lines(name: str, mine: Sequence[Cell]) -> list[str]:
    """The lines of a figure: the paper's three rules of one model, or several models."""
    return [*RULES.values()] if name == "sensitivity" else list(dict.fromkeys(one.variant for one in mine))


def _points(name: str, mine: Sequence[Cell], every: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The points of all curves of one block: setting, line, value and the columns of :func:`summarise`."""
    metrics = {f"{stage}/{METRIC}": line for stage, line in RULES.items()} if name == "sensitivity" else {METRIC: ""}
    names = {one.id: one.variant for one in mine}
    found, dropped = [], []
    for setting in dict.fromkeys(one.group for one in mine):
        ids = [one.id for one in mine if one.group == setting]
        compared, sentences = common_splits(every[every["cell"].isin(ids)], ["cell", "value"], seeds=True)
        dropped += [f"{setting}: {sentence}" for sentence in sentences]
        for metric, line in metrics.items():
            points = summarise(compared, metric, ["cell", "value"]).reset_index()
            lines = [line or names[cell] for cell in points["cell"]]
            found.append(points.assign(setting=setting, line=lines))
    return pd.concat(found, ignore_index=True), dropped
