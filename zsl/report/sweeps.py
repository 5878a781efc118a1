"""Two sweeps beside each other: ``python -m zsl.report diff BEFORE AFTER``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from zsl.errors import UserError
from zsl.report.document import Table, number, text
from zsl.report.matching import flat
from zsl.report.numbers import summarise
from zsl.report.paired import difference
from zsl.report.variants import against

Record = Mapping[str, Any]


def settings_of(key: Mapping[str, Any]) -> dict[str, Any]:
    """Everything in a record's key that is a setting and no repetition, flat."""
    out = {"dataset": key["dataset"]["name"], "split": key["split"]["name"], "selection": key["selection"]}
    chosen = (key.get("tune") or {}).get("chosen", {})
    for part in ("model", "inference", "feature"):
        # A seed that follows the run's is a repetition.
        out |= {
            k: v for k, v in flat(part, key[part]).items()
            if k not in chosen and not (k.endswith(".seed") and v == key["seed"])
        }  # fmt: skip
    out |= {f"subset.{k}": v for k, v in key["split"].get("subset", {}).items() if k != "seed"}
    shuffled = key["dataset"].get("shuffle_attributes")
    return out if shuffled is None else {**out, "control": "attributes shuffled"}


def grouped(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Records with the same settings, by a text of them."""
    out: dict[str, list[Record]] = {}
    for record in records:
        out.setdefault(json.dumps(settings_of(record["key"]), sort_keys=True, default=str), []).append(record)
    return out


def varying(all_settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """The keys that tell settings apart: those that all have and that vary, and those that vary within one model.

    What differs only because each model has its own settings is left out, and so is a ``_target_`` beside a ``name``
    that says as much.
    """
    keys = list(dict.fromkeys(k for s in all_settings for k in s))
    by_model: dict[str, list[Mapping[str, Any]]] = {}
    for s in all_settings:
        by_model.setdefault(str(s.get("model.name")), []).append(s)

    def varies(key: str, among: Sequence[Mapping[str, Any]]) -> bool:
        return len({json.dumps(s.get(key), default=str) for s in among}) > 1

    def of_a_model(key: str) -> bool:
        return key.startswith("model.") and key != "model.name"

    def says_no_more(key: str) -> bool:
        name = key.removesuffix("_target_") + "name"
        pairs = {(s.get(name), s.get(key)) for s in all_settings}
        return key.endswith("._target_") and name in keys and len(pairs) == len({a for a, _ in pairs})

    return [
        k for k in keys
        if not says_no_more(k)
        and ((not of_a_model(k) and varies(k, all_settings) and all(k in s for s in all_settings))
             or any(varies(k, mine) for mine in by_model.values()))
    ]  # fmt: skip


def names(groups: Mapping[str, Sequence[Record]]) -> dict[str, str]:
    """Each group by what sets it apart from the others."""
    all_settings = {g: json.loads(g) for g in groups}
    varied = varying(list(all_settings.values()))
    out = {}
    for g, s in all_settings.items():
        same = [other for other in all_settings.values() if other.get("model.name") == s.get("model.name")]
        # A model's own setting is said of a model of which several settings were run.
        said = [k for k in varied if not k.startswith("model.") or k == "model.name" or k in varying(same)]
        words = (f"{k.removeprefix('model.name')}{'=' if k != 'model.name' else ''}{s.get(k)}" for k in said)
        out[g] = ", ".join(words) or str(s["model.name"])
    return out


def diff(before: Sequence[Record], after: Sequence[Record], metric: str = "acc_class") -> Table:
    """Settings that both sweeps ran, with the paired difference; those that only one did below.

    Raises
    ------
    UserError
        If no settings are in both, though the sweeps may share splits: then there is nothing to set side by side.
    """
    old, new = grouped(before), grouped(after)
    both = [g for g in new if g in old]
    if not both:
        # The same single model before and after a change of its settings is one line as well.
        if len(old) == len(new) == 1:
            return _one(next(iter(old.items())), next(iter(new.items())), metric)
        raise UserError("the two sweeps have no settings in common; compare single settings, or `report compare`.")
    called = names({**old, **new})
    rules = dict.fromkeys(r["key"]["selection"].removeprefix("none: ") for r in (*before, *after))
    out = Table("diff", f"Difference of two sweeps: {metric} in percent", "; ".join(rules),
                ["settings", "before", "after", "difference", "95 % interval", "p"])  # fmt: skip
    for g in both:
        out.rows.append([text(called[g]), *_sides(old[g], new[g], metric)])
    for g in [*(g for g in old if g not in new), *(g for g in new if g not in old)]:
        sides = [summarise(side.get(g, []), metric) for side in (old, new)]
        out.rows.append([text(called[g]), *_means(sides), *against(None)])
    out.notes = ["After minus before, paired over the class splits that both ran (Nadeau-Bengio), over classes by "
                 "bootstrap where there is one split."]  # fmt: skip
    return out


def _one(old: tuple[str, list[Record]], new: tuple[str, list[Record]], metric: str) -> Table:
    (a, before), (b, after) = old, new
    first, second = json.loads(a), json.loads(b)
    changed = [f"{k}: {first.get(k)} -> {second.get(k)}" for k in {**first, **second} if first.get(k) != second.get(k)]
    rules = dict.fromkeys(r["key"]["selection"].removeprefix("none: ") for r in (*before, *after))
    out = Table("diff", f"Difference of two sweeps: {metric} in percent", "; ".join(rules),
                ["what changed", "before", "after", "difference", "95 % interval", "p"])  # fmt: skip
    out.rows.append([text("; ".join(changed)), *_sides(before, after, metric)])
    return out


def _sides(before: Sequence[Record], after: Sequence[Record], metric: str) -> list[Any]:
    return [*_means([summarise(before, metric), summarise(after, metric)]), *against(difference(after, before, metric))]


def _means(sides: Sequence[Any]) -> list[Any]:
    return [number(100 * s.mean, 1, 100 * s.std) if s else number(None) for s in sides]
