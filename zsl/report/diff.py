"""Two sweeps beside each other: ``zsl report diff BEFORE AFTER``."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pandas as pd

from zsl.errors import UserError
from zsl.report.experiments import columns_of
from zsl.report.formats import NONE, Table, percent
from zsl.report.records import groups, varying
from zsl.report.statistics import difference, summarise


def names_of(texts: Iterable[str]) -> dict[str, str]:
    """Name each text of :func:`zsl.report.records.groups` by the settings in which it differs from the other texts."""
    all_settings = {text: json.loads(text) for text in texts}
    varied = varying([*all_settings.values()])
    out = {}
    for text, s in all_settings.items():
        own = varying([other for other in all_settings.values() if other.get("model.name") == s.get("model.name")])
        chosen = [k for k in varied if not k.startswith("model.") or k == "model.name" or k in own]
        chosen.sort(key=lambda k: k != "model.name")
        words = (str(s.get(k)) if k == "model.name" else f"{k}={s.get(k)}" for k in chosen)
        out[text] = ", ".join(words) or str(s["model.name"])
    return out


def diff(before: pd.DataFrame, after: pd.DataFrame, metric: str = "acc_class") -> Table:
    """A row for each settings of two sweeps, with the paired difference where both ran them.

    One group of settings in each sweep makes one row, even where the settings differ: a single model before and after
    a change.

    Parameters
    ----------
    before, after : DataFrame
        Of :func:`zsl.report.records.read_records`.
    metric : str

    Raises
    ------
    UserError
        If the sweeps have no settings in common.
    """
    sides = (side.assign(settings=groups(side["key"])) for side in (before, after))
    old, new = (dict([*side.groupby("settings", sort=False)]) for side in sides)
    both = [text for text in new if text in old]
    called = names_of({**old, **new})
    rules = dict.fromkeys([*before["selection"], *after["selection"]])
    columns = ["settings", "before", "after", "difference", "95 % interval", "p"]
    out = Table("diff", f"Difference of two sweeps: {metric} in percent", "; ".join(rules), columns)
    if not both and len(old) == len(new) == 1:
        (a, mine), (b, theirs) = (next(iter(side.items())) for side in (old, new))
        first, second = json.loads(a), json.loads(b)
        changed = [k for k in {**first, **second} if first.get(k) != second.get(k)]
        name = "; ".join(f"{k}: {first.get(k)} -> {second.get(k)}" for k in changed)
        out.rows = [_row(name, mine, theirs, metric)]
    elif not both:
        raise UserError("the two sweeps have no settings in common; compare single settings, or `report compare`.")
    else:
        nothing = before.iloc[:0]
        order = [*both, *(text for text in {**old, **new} if text not in both)]
        out.rows = [_row(called[t], old.get(t, nothing), new.get(t, nothing), metric) for t in order]
    out.notes = ["After minus before, paired over the class splits that both ran (Nadeau-Bengio), over classes by "
                 "bootstrap where there is one split."]  # fmt: skip
    return out


def _row(name: str, before: pd.DataFrame, after: pd.DataFrame, metric: str) -> list[Any]:
    means = []
    for side in (before, after):
        summary = summarise(side.assign(one=0), metric, ["one"])
        means.append(percent(summary.iloc[0]) if len(summary) else NONE)
    return [name, *means, *columns_of(difference(after, before, metric))]
