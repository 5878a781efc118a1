"""Experiments of our own: ``ablation`` as a table, ``sensitivity``, ``learning_curve`` and ``imbalance`` as curves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from zsl.report.cells import Cell, blocks, cell, check_given, layout, share_splits, variants
from zsl.report.document import Table, missing, number, text
from zsl.report.matching import doubts, fill
from zsl.report.numbers import summarise
from zsl.report.paired import Difference, difference
from zsl.report.printed import commands_of, selection, used_settings
from zsl.report.running import absent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METRIC = "acc_class"
# The metric of each curve of an experiment; sensitivity shows each of the paper's rules.
_STAGES = {"aag": "AAg", "aaw": "AAw", "taaw": "TAAw"}
TITLES = {
    "ablation": "Ablation",
    "sensitivity": "Sensitivity to the settings",
    "learning_curve": "Accuracy against what is seen in training",
    "imbalance": "Transductive rules on unseen classes of unequal size",
}


def cells(name: str, extra: Sequence[str] = ()) -> list[Cell]:
    """What the experiment consists of, on every block of data."""
    node, out = layout()[name], []
    for data in blocks(name, extra):
        if name == "ablation":
            base = (str(node["base"]["name"]), tuple(node["base"]["overrides"]))
            for group, (variant, more) in [
                ("", base),
                *((g["name"], v) for g in node["groups"] for v in variants(g["variants"])),
            ]:
                out.append(cell(name, data, variant, more, extra, group=group))
            continue
        models = variants(node["models"]) if "models" in node else [("coupled", ("model=coupled", "inference=taaw"))]
        for curve in node["curves"]:
            values = curve["values"][data] if isinstance(curve["values"], dict) else curve["values"]
            for variant, more in models:
                for value in values:
                    point = (curve["key"], value)
                    out.append(cell(name, data, variant, more, extra, point=point, group=curve["name"]))
    check_given(out, extra)
    return out


def ablation(records: Iterable[Any], extra: Sequence[str] = ()) -> list[Table]:
    """One table per block of data: every variant, and its paired difference to the settings as given."""
    found = cells("ablation", extra)
    fill(found, records)
    out = []
    for data in dict.fromkeys(c.data for c in found):
        mine = [c for c in found if c.data == data]
        fill_in = commands_of(mine)  # before splits are left out
        dropped = share_splits(mine)
        base = mine[0]
        table = Table(
            f"ablation_{data}", f"Ablation on {base.title}: mean per-class accuracy in percent", selection(mine),
            ["part", "variant", "acc_class", "difference", "95 % interval", "p", "repetitions"], left=2,
        )  # fmt: skip
        for one in mine:
            summary = summarise(one.records, METRIC)
            line = [text(one.group), text(one.variant)]
            if summary is None:
                table.rows.append([*line, missing(), *(number(None) for _ in range(3)), text("")])
                continue
            line.append(number(100 * summary.mean, 1, 100 * summary.std))
            line += against(difference(one.records, base.records, METRIC) if one is not base else None)
            table.rows.append([*line, text(summary.repetitions)])
        table.notes = [
            "Only class splits that every row has. Difference: to the first row, in points, paired over class splits "
            "with the Nadeau-Bengio correction for their overlap, over the classes by bootstrap (no p) where there is "
            "one split; never over dictionary seeds. p is for one comparison: with many rows some fall below 0.05 by "
            "chance."
        ]
        _say_more(table, mine, fill_in, [dropped])
        out.append(table)
    return out


def against(d: Difference | None) -> list[Any]:
    """Difference, interval and p as three cells."""
    if d is None:
        return [number(None), text("-"), number(None)]
    return [number(100 * d.mean, 1, sign=True), text(f"{100 * d.low:+.1f} to {100 * d.high:+.1f}"), number(d.p, 3)]


def curves(name: str, records: Iterable[Any], extra: Sequence[str] = ()) -> tuple[list[Table], dict[str, Figure]]:
    """One table and one figure per block of data with runs; tables alone where there are none."""
    from zsl.report.figures import panels

    found = cells(name, extra)
    fill(found, records)
    tables, figures = [], {}
    for data in dict.fromkeys(c.data for c in found):
        mine = [c for c in found if c.data == data]
        fill_in = commands_of(mine)  # before splits are left out
        dropped = [
            share_splits((c for c in mine if c.group == setting), seeds=True)
            for setting in dict.fromkeys(c.group for c in mine)
        ]
        lines = _lines(name, mine)
        table = Table(
            f"{name}_{data}", f"{TITLES[name]}, {mine[0].title}: mean per-class accuracy in percent", selection(mine),
            ["setting", "value", *dict.fromkeys(line for _, line, _, _ in lines), "repetitions"], left=1,
        )  # fmt: skip
        columns = table.columns[2:-1]
        for key in dict.fromkeys(c.group for c in mine):
            for value in dict.fromkeys(c.point[1] for c in mine if c.group == key and c.point):
                here = {line: s for k, line, v, s in lines if (k, v) == (key, value)}
                known = [s for s in here.values() if s]
                places = [number(100 * s.mean, 1, 100 * s.std) if (s := here.get(c)) else missing() for c in columns]
                table.rows.append([text(key), number(value, 3 if value < 1 else 0), *places,
                                   text(known[0].repetitions if known else "")])  # fmt: skip
        table.notes = [
            "Mean ± standard deviation over class splits (over seeds where there is one split). The points of a curve "
            "are on the same splits: how they differ is surer than these deviations suggest."
        ]
        _say_more(table, mine, fill_in, dropped)
        tables.append(table)
        if any(s for *_, s in lines):
            logarithmic = {c["name"]: c.get("log", False) for c in layout()[name]["curves"]}
            figures[f"{name}_{data}"] = panels(
                lines, logarithmic, mine[0].title, chance=_chance(mine), selection=table.selection
            )
    return tables, figures


def _lines(name: str, mine: Sequence[Cell]) -> list[tuple[str, str, float, Any]]:
    """(setting, line, value, summary or None) of every point."""
    out = []
    for one in mine:
        assert one.point is not None
        stages = _STAGES if name == "sensitivity" else {"": one.variant}
        for stage, label in stages.items():
            out.append(
                (
                    one.group,
                    label,
                    float(one.point[1]),
                    summarise(one.records, f"{stage}/{METRIC}" if stage else METRIC),
                )
            )
    return out


def _chance(mine: Sequence[Cell]) -> float | None:
    numbers = {1 / len(r["key"]["split"]["unseen"]) for c in mine for r in c.records}
    return numbers.pop() if len(numbers) == 1 else None


def _say_more(table: Table, mine: Sequence[Cell], fill_in: list[str], dropped: Iterable[str | None]) -> None:
    """Under a table: what was left out, the settings used, what is missing and how it is filled."""
    table.commands, table.n_records = fill_in, sum(len(c.records) for c in mine)
    table.notes += [*filter(None, dropped), *used_settings(mine), *doubts(mine)]
    if table.commands and not any(c.records for c in mine) and (why := absent(mine[0])):
        table.notes.append(why)
