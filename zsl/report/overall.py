"""Every method on several data sets and kinds of split: one table, and a diagram of mean ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from zsl.checks import Array
from zsl.report.compare import (
    check_one_kind,
    columns_of,
    comparable,
    kind_of_all,
    method_of,
    runs_by_split,
    uses_besides,
)
from zsl.report.formats import NONE, Table, number
from zsl.report.statistics import Difference, mean_ranks, pooled
from zsl.runs.result import SELECTED
from zsl.runs.summary import PROTOCOLS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# A second metric of the same runs, which gets a column of its own.
IMBALANCED = "imbalanced_acc_class"


def overall(records: pd.DataFrame, metric: str = "acc_class") -> tuple[list[Table], dict[str, Figure]]:
    """A table of all methods over blocks, a block being a data set with a kind of split, and rank diagrams.

    Inductive and transductive methods, and those with labels, are ranked apart. A method that lacks a block has no mean
    and no rank.
    ``to best`` is the mean over data sets of the paired differences to the best method.

    Parameters
    ----------
    records : DataFrame
        Of :func:`zsl.report.records.read_records`.
    metric : str

    Returns
    -------
    tables, figures
        One table for each protocol that has methods; a figure where at least two of them have all of several blocks.

    Raises
    ------
    UserError
        If a run lacks the metric, or if one method was run twice on a split with different results.
    """
    records = records.drop_duplicates("folder").assign(method=lambda r: r["key"].map(method_of))
    records["block"] = records["dataset"] + " " + records["split_name"]  # the column of the table
    # Where a method was run with settings as given first and tuned later, the tuned runs count.
    best_kind = records.groupby(["method", "block"])["selection"].transform(
        lambda s: SELECTED if (s == SELECTED).any() else ""
    )
    counted = (best_kind == "") | (records["selection"] == SELECTED)
    left_out = records[~counted].groupby("method").size().to_dict()
    records = records[counted]
    named = records[["dataset", "split_name", "block"]].drop_duplicates()
    named["other"] = named["split_name"] != "random"
    blocks = list(named.sort_values(["dataset", "other", "split_name"])["block"])
    every, values, sizes = {}, {}, {}
    for block, part in records.groupby("block"):
        check_one_kind(part)
        every[block] = runs_by_split(part, metric)
        values[block] = comparable(every[block])
        sizes[block] = part[["dataset", "n_unseen", "n_seen"]].iloc[0]
    groups = dict([*records.groupby("method")])
    kinds = {m: kind_of_all(part) for m, part in groups.items()}
    tables: list[Table] = []
    figures: dict[str, Figure] = {}
    for protocol in PROTOCOLS:
        methods = [m for m, kind in kinds.items() if kind == protocol]
        if not methods:
            continue
        means = pd.DataFrame({b: values[b].reindex(methods).mean(axis=1) for b in blocks})
        complete = means.dropna()
        ranks = dict(zip(complete.index, mean_ranks(complete.to_numpy())))
        order = means.mean(axis=1, skipna=False).sort_values(ascending=False, kind="stable")
        table = Table(
            f"methods_{protocol.replace(' ', '_')}", f"{protocol} methods: {metric}",
            "; ".join(dict.fromkeys(s for m in methods for s in groups[m]["selection"])),
            ["method", *blocks, "mean", "10:1", "rank", "to best", "p", "fit s", "tune s", "settings", "uses besides"],
        )  # fmt: skip
        for method, mean in order.items():
            mine = groups[method]
            paired = None if method == order.index[0] else _difference(method, order.index[0], values, sizes)
            uneven = mine.groupby("block")[IMBALANCED].mean() if IMBALANCED in mine else pd.Series(dtype=float)
            table.rows.append([
                method, *(number(means.loc[method, block], 3) for block in blocks), number(mean, 3),
                number(uneven.mean() if method in ranks and len(uneven) == len(blocks) else None, 3),
                number(ranks.get(method), 1),
                *columns_of(paired, mine),
                ", ".join(dict.fromkeys("tuned" if s == SELECTED else "as given" for s in mine["selection"])),
                "; ".join(u for u in uses_besides(mine) if not u.startswith("unlabelled test images")) or NONE,
            ])  # fmt: skip
        table.notes = _notes({b: every[b][values[b].columns] for b in blocks}, methods, complete, left_out)
        tables.append(table)
        if len(complete) > 1 and len(blocks) > 1:
            from zsl.report.figures import figure_of, rank_diagram

            n_data = records["dataset"].nunique()
            figures[table.name] = figure_of(rank_diagram(ranks, n_data, f"mean rank of {protocol} methods"))
    return tables, figures


def _difference(
    first: str, second: str, values: Mapping[str, pd.DataFrame], sizes: Mapping[str, pd.Series]
) -> Difference | None:
    """The paired difference of two methods, averaged over the data sets that both have.

    Kinds of split of one data set share its classes, so their splits count as splits of one data set.
    """
    parts: dict[str, list[Array]] = {}
    shares = {}
    for block, found in values.items():
        if first in found.index and second in found.index:
            data = str(sizes[block]["dataset"])
            parts.setdefault(data, []).append((found.loc[first] - found.loc[second]).dropna().to_numpy())
            shares[data] = float(sizes[block]["n_unseen"]), float(sizes[block]["n_seen"])
    pairs = [(np.concatenate(d), *shares[data]) for data, d in parts.items()]
    pairs = [pair for pair in pairs if len(pair[0]) > 1]
    return pooled(pairs) if pairs else None


def _notes(
    values: Mapping[str, pd.DataFrame], methods: Sequence[str], complete: pd.DataFrame, left_out: Mapping[str, int]
) -> list[str]:
    counts = {m: [int(v.reindex([m]).notna().sum(axis=1).iloc[0]) for v in values.values()] for m in methods}
    most = np.array([v.shape[1] for v in values.values()])
    short = [f"{m} ({sum(c)} of {most.sum()} runs)" for m, c in counts.items() if (np.array(c) < most).any()]
    notes = [
        f"Each column is the mean over {', '.join(map(str, dict.fromkeys(most)))} splits, those that most methods "
        "have; a method that lacks one of them has no value there. 10:1 is the mean over all "
        "columns of the same fits tested on a part of the images, in which the largest unseen class has ten times the "
        "images of the smallest. rank is the mean rank over the columns, among the methods that have all of them. "
        "to best is the mean over data sets of the differences split by split; p is two-sided for this one comparison, "
        "with the Nadeau-Bengio variance for overlapping splits of a data set. With many rows some p fall below 0.05 "
        "by chance.",
    ]
    if short:
        notes.append(f"Not complete: {', '.join(short)}.")
    if aside := [f"{n} of {m}" for m, n in left_out.items() if m in methods]:
        notes.append(
            f"Runs with settings as given are left out where others of the method were tuned: {', '.join(aside)}."
        )
    return notes if len(complete) else [*notes, "No method has all columns, so there are no ranks."]
