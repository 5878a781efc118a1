"""Our results beside the paper's printed numbers: ``table1``, ``table2`` and ``table3``, as the paper prints them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from zsl.report.cells import Cell, cells, command_of, key_of, layout, value_of
from zsl.report.formats import MISSING, NONE, Table, marked, number, percent
from zsl.report.records import common_splits, of_cells, selection_of
from zsl.report.statistics import repetitions, summarise

RULES = {"aag": "AAg", "aaw": "AAw", "taaw": "TAAw"}
# Marks of the footnotes that say how a row's settings were chosen, where rows differ.
_SELECTION_MARKS = "vwxyz"


def table1(records: pd.DataFrame, extra: Sequence[str] = ()) -> Table:
    """Coupled dictionaries by data, feature, split and rule: ours beside the paper's, in percent.

    Parameters
    ----------
    records : DataFrame
        Of :func:`zsl.report.records.read_records`.
    extra : sequence of str
        The user's overrides, as for :func:`zsl.report.cells.cells`.
    """
    found = cells("table1", extra)
    mine = of_cells(found, records)
    paper = layout("paper.yaml")
    columns = ["data", "feature", "split", "rule"]
    for k in (1, 3, 5):
        columns += [f"hit@{k} paper", f"hit@{k} ours", f"diff.@{k}"]
    title = "Coupled dictionaries beside the paper's Table 1: flat hit@K per image in percent"
    out = Table("table1", title, selection_of(mine), [*columns, "acc_class", "repetitions"], left=4, together=3,
                footnotes=paper["footnotes"],
                ours={columns[i]: columns[i - 1 : i + 2] for i in (5, 8, 11)} | {"acc_class": []})  # fmt: skip
    metrics = [f"{stage}/{name}" for stage in RULES for name in ("hit_1", "hit_3", "hit_5", "acc_class")]
    ours = {metric: summarise(mine, metric, ["cell"]) for metric in metrics}
    for one in found:
        printed = paper["table1"].get(one.group, {}).get(one.variant)
        theirs = dict(zip(paper["table1"]["columns"], printed or ()))
        title = marked(one.title, layout()["data"][one.data].get("marks", ""))
        for stage, rule in RULES.items():
            feature = one.variant or value_of(one.overrides, "feature.name") or value_of(one.overrides, "feature") or ""
            name = marked(feature, paper["features"].get(one.variant, ""))
            row: list[Any] = [title, name, value_of(one.overrides, "split"),
                              marked(rule, "k" if stage == "taaw" else "")]  # fmt: skip
            means = ours[f"{stage}/acc_class"]
            ran = one.id in means.index
            for k in (1, 3, 5):
                row += _beside(theirs.get(f"{stage}_hit{k}"), ours[f"{stage}/hit_{k}"], one.id, ran)
            row += [percent(means.loc[one.id]) if ran else MISSING]
            row += [repetitions(*means.loc[one.id, ["n_splits", "n_seeds"]]) if ran else ""]
            out.rows.append(row)
    out.notes = [
        "Mean ± standard deviation over class splits, over dictionary seeds where there is one split. The paper prints "
        "no deviations. hit@K needs more than K unseen classes. acc_class: mean accuracy of the unseen classes."
    ]
    finish(out, found, mine)
    return out


def methods(name: str, records: pd.DataFrame, extra: Sequence[str] = ()) -> Table:
    """``table2`` or ``table3``: methods by data, hit@1 in percent, run here beside the printed numbers."""
    found = cells(name, extra)
    mine = of_cells(found, records)
    paper, columns = layout("paper.yaml"), layout()[name]["columns"]
    blocks = layout()["data"]
    titles = {c["data"]: blocks[c["data"]]["title"] for c in columns}
    shared, over = [], []
    for data, mine_here in mine.groupby("data", sort=False):
        kept, sentences = common_splits(mine_here, ["cell"])
        shared.append(kept)
        most = repetitions(kept["split"].nunique(), kept.groupby(["cell", "split"]).size().max() if len(kept) else 0)
        over.append(" ".join([f"{titles[data]}: means over {most}.", *sentences]))
    compared = pd.concat([mine.iloc[:0], *shared])
    rules = dict(zip(dict.fromkeys(mine["selection"]), _SELECTION_MARKS))
    rules = rules if len(rules) > 1 else {}
    says = {mark: f"Settings of this row: {rule}." for rule, mark in rules.items()}
    head, beside = ["method"], {}
    for column in columns:
        data = titles[column["data"]]
        marks = blocks[column["data"]].get("marks", "")
        beside_paper = [marked(f"{data} paper", marks), f"{data} ours", f"{data} diff."]
        names = beside_paper if "paper" in column else [marked(data, marks)]
        beside[names[len(names) // 2]] = names
        head += names
    feature = columns[0]["feature"]
    title = f"Methods beside the paper's Table {name[-1]}: flat hit@1 per image in percent; its columns with {feature}"
    out = Table(name, title, selection_of(mine), head, together=3, footnotes=paper["footnotes"] | says, ours=beside)
    ours = {stage: summarise(compared, f"{stage}hit_1", ["cell"]) for stage in ("", *(f"{rule}/" for rule in RULES))}
    for method in paper[name]:
        if method not in paper["methods"]:
            continue
        about = paper["methods"][method]
        variant, stage = ("coupled", f"{about['rule']}/") if "rule" in about else (about.get("model"), "")
        by_data = {one.data: one.id for one in found if one.variant == variant}
        used = mine.loc[mine["cell"].isin([*by_data.values()]), "selection"]
        marks = about.get("marks", "") + (paper["features"][feature] if "rule" in about else "")
        marks += "".join(mark for rule, mark in rules.items() if rule in set(used))
        row: list[Any] = [marked(about["title"] + (" †" if method in paper[name]["quoted"] else ""), marks)]
        for column in columns:
            printed = paper[name][method][paper[name]["columns"].index(column["paper"])] if "paper" in column else None
            places = _beside(printed, ours[stage], by_data.get(column["data"]), False)
            row += places if "paper" in column else places[1:2]
        out.rows.append(row)
    out.notes = [
        "† The paper took these numbers from other papers; rows are in its order. Ours: every method run here on the "
        "same features, splits and metric; mean ± standard deviation over class splits, over seeds where there is one "
        "split; of each column the splits that all its methods have. A method without anything random is run once per "
        "split. The columns without a paper's number are other data: compare within a column only. not run: too "
        "little is known of the method to implement it.",
        *over,
    ]
    finish(out, found, mine)
    return out


def finish(table: Table, found: Sequence[Cell], mine: pd.DataFrame) -> None:
    """Add to a table the settings that its data had, how many runs it has, and the commands for its empty cells.

    Parameters
    ----------
    found : sequence of Cell
    mine : DataFrame
        All records of these cells.
    """
    used = {one.title: " ".join(one.settings) for one in reversed(found)
            if one.given or any("." in key_of(o) for o in one.settings)}  # fmt: skip
    table.notes += [f"{title}: {settings}." for title, settings in reversed(used.items())]
    table.n_records = len(mine)
    filled = mine.groupby("cell")["value"].nunique() if len(mine) else {}
    full = {one.id for one in found if one.id in filled and filled[one.id] >= len(one.values)}
    table.empty = [one for one in found if one.id not in full]
    table.commands = [command_of(one) for one in table.empty]


def _beside(printed: float | str | None, ours: pd.DataFrame, cell: str | None, ran: bool) -> list[Any]:
    """Printed, ours, difference. ``ran``: whether the cell has runs, which may lack a metric such as hit@5 of three."""
    theirs, _, marks = str(printed).partition(" ") if printed is not None else ("nan", "", "")
    shown = number(float(theirs), 2, marks=marks)
    if cell not in ours.index:
        return [shown, "not run" if cell is None else NONE if ran else MISSING, NONE]
    row = ours.loc[cell]
    return [shown, percent(row), number(100 * row["mean"] - float(theirs), 1, sign=True)]
