"""Methods on the same splits: ``zsl report compare FOLDER [METRIC]``, and the sweeps that ``--run`` makes before.

The table takes runs of one data set, feature and kind of split; :mod:`zsl.report.overall` joins several.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from zsl.config import is_sweep, without_package
from zsl.errors import UserError
from zsl.report import cells, filling
from zsl.report.formats import NONE, Table, number
from zsl.report.statistics import Difference, difference, mean_ranks
from zsl.runs.result import SELECTED
from zsl.runs.summary import PROTOCOLS, kind_of, n_labelled

Sweep = tuple[str, list[str]]

# Models without a grid to tune over; the rules of cells.yaml run them.
_DICTIONARIES = ("coupled", "coupled_paper")
# Models for images and classes in one space, and for several networks: the compared data have neither.
_OTHER_DATA = ("clip", "clip_adapter", "late_fusion")


# --- what is run ---------------------------------------------------------------------------------------------


def comparison(extra: Sequence[str] = ()) -> tuple[list[Sweep], dict[str, str]]:
    """The sweeps that ``make compare`` runs, in the order in which it runs them.

    Parameters
    ----------
    extra : sequence of str
        The user's overrides. ``stage=NAME`` chooses a stage of ``cells.yaml`` (default ``standard``), ``data=NAME``
        some of its data, ``model=NAME`` one model; ``dataset=...`` replaces all data by one set.

    Returns
    -------
    sweeps, lacking
        Of each sweep a title and the arguments of ``zsl.main``; and why data, or a model whose package is missing, is
        left out, by name.

    Raises
    ------
    UserError
        For a stage or data that does not exist, and an empty ``model=``.
    """
    node = cells.layout()["compare"]
    name = cells.value_of(extra, "stage") or "standard"
    if name not in node["stages"]:
        raise UserError(f"stage={name} does not exist; there is: {', '.join(node['stages'])}.")
    stage = node["stages"][name]
    data = (cells.value_of(extra, "data") or "").split(",")
    for one in filter(None, data):
        if one not in stage["data"]:
            raise UserError(
                f"data={one} does not exist in stage {name} of compare; there is: {', '.join(stage['data'])}."
            )
    model = cells.value_of(extra, "model")
    if model == "":
        raise UserError("model= names no model; name some, as in model=ridge,eszsl, or leave it out for all.")
    named = {cells.key_of(o) for o in extra}
    chosen = [""] if "dataset" in named else [one for one in stage["data"] if one in data or data == [""]]
    found: list[Sweep] = []
    lacking: dict[str, str] = {}
    extra = [o for o in extra if cells.key_of(o) not in ("stage", "data", "model")]
    absent: dict[str, str] = {} if model else without_package("model")
    for block in chosen:
        for split in [""] if "split" in named else stage["splits"]:
            known = cells.layout()["data"][block]["overrides"] if block else []
            words = [f"split={split}" if cells.key_of(o) == "split" and split else o for o in known
                     if cells.key_of(o) not in named]  # fmt: skip
            fixed = [o for o in extra if not is_sweep(o)]
            if why := lacking.get(block) or filling.cannot_read(["experiment=compare", *words, *fixed]):
                lacking[block] = why
                continue
            for sweep in _sweeps(stage["sweeps"], model, absent):
                mine = [o for o in sweep if cells.key_of(o) == "model" or cells.key_of(o) not in named]
                found.append((f"{block} {split}".strip(), ["experiment=compare", *words, *mine, *extra]))
    # Data comes first: if all of it is missing, that is what ends the command.
    for one, package in absent.items():
        lacking[one] = f"it needs {package}, and {package} is not installed; pip install -e '.[{package}]'."
    return found, lacking


def _sweeps(parts: Sequence[str], model: str | None, absent: Collection[str]) -> list[list[str]]:
    """The overrides of each sweep over models and rules: those that the user names, or all but the absent ones."""
    node = cells.layout()["compare"]
    slow = [one for one in node["slow"] if one not in absent]
    fast = f"model=glob(*,exclude=[{','.join(dict.fromkeys([*_DICTIONARIES, *_OTHER_DATA, *node['slow'], *absent]))}])"
    rules = [[*rule, "tune=none"] for rule in node["rules"]]
    if model and not model.startswith("glob("):
        named = model.removeprefix("choice(").removesuffix(")").split(",")
        fast = f"model={','.join(one for one in named if one not in (*node['slow'], *_DICTIONARIES))}"
        slow = [one for one in slow if one in named]
        rules = [rule for rule in rules if rule[0].removeprefix("model=") in named]
    elif model:
        fast, slow, rules = f"model={model}", [], []
    names = f"model={','.join(slow)}"
    known = {"fast": [[fast]], "slow": [[names, "tune=none"]], "tuned": [[names]], "rules": rules}
    return [sweep for part in parts for sweep in known[part] if sweep[0] != "model="]


# --- the table -----------------------------------------------------------------------------------------------


def compare(records: pd.DataFrame, metric: str = "acc_class") -> Table:
    """One row per method and inference rule: inductive, transductive, with labels, each with the best mean first.

    A transductive method uses all test images at once, so its rank and its difference are among such methods only; so
    are those of methods that were given labels.

    Parameters
    ----------
    records : DataFrame
        Of :func:`zsl.report.records.read_records`.
    metric : str

    Raises
    ------
    UserError
        If the runs do not belong to one dataset, feature and kind of split, if a run lacks the metric, or if one method
        was run twice on a split with different results.
    """
    records = records.drop_duplicates("folder").assign(method=lambda r: r["key"].map(method_of))
    check_one_kind(records)
    every = runs_by_split(records, metric)
    values = comparable(every)
    runs = dict([*records.groupby("method")])
    kinds = pd.Series({m: kind_of_all(runs[m]) for m in values.index})
    ranks: dict[str, float] = {}
    best: dict[str, str] = {}
    order: list[tuple[str, float]] = []
    for group in (values[kinds == kind] for kind in PROTOCOLS):
        means = group.mean(axis=1).sort_values(ascending=False, kind="stable")
        complete = group.dropna()
        ranks |= dict(zip(complete.index, mean_ranks(complete.to_numpy())))
        best |= dict.fromkeys(means.index, means.index[0] if len(means) else "")
        order += list(means.items())
    heading = " / ".join(map(str, records[["dataset", "feature", "split_name"]].iloc[0]))
    selections = "; ".join(dict.fromkeys(records["selection"]))
    out = Table("compare", f"{heading} split: {metric}", selections,
                ["method", "protocol", "mean", "std", "splits", "rank", "to best", "p", "fit s", "tune s", "settings",
                 "at the edge of its grid", "uses besides"])  # fmt: skip
    for method, mean in order:
        mine = runs[method]
        paired = None if method == best[method] else difference(mine, runs[best[method]], metric)
        edge = edges(mine["record"])
        out.rows.append([
            method, kinds[method],
            number(mean, 3), number(values.loc[method].std(), 3), number(every.loc[method].count(), 0),
            number(ranks.get(method), 1), *columns_of(paired, mine),
            ", ".join("tuned" if s == SELECTED else s for s in dict.fromkeys(mine["selection"])),
            ", ".join(f"{key.removeprefix('model.')} {n}" for key, n in edge.items()) or NONE,
            "; ".join(uses_besides(mine)) or NONE,
        ])  # fmt: skip
    out.notes = [
        "mean, std and rank are over the splits that most methods have; a method that lacks one of them has none. "
        "rank and to best are among the methods of one protocol: a transductive method uses all test images at once, "
        "and one with labels was told the classes of some. "
        "to best is paired over splits, and p has the Nadeau-Bengio correction for their overlap, for one comparison. "
        "at the edge of its grid: on so many splits the value chosen was the first or last of those tried."
    ]
    return out


def comparable(values: pd.DataFrame) -> pd.DataFrame:
    """The splits (columns) that most of the methods (rows) have; a method that lacks one of them has no value at all.

    Means over different splits would rank a method first that has the easy ones only.

    Examples
    --------
    >>> comparable(pd.DataFrame({"a": [0.5, 0.6, 0.7], "b": [0.1, 0.2, None], "c": [None, None, 0.9]}))
         a    b
    0  0.5  0.1
    1  0.6  0.2
    2  NaN  NaN
    """
    most = values.loc[:, values.notna().mean() > 0.5]
    return most.dropna().reindex(values.index)


def columns_of(paired: Difference | None, mine: pd.DataFrame) -> list[Any]:
    """The columns ``to best``, ``p``, ``fit s`` and ``tune s`` of a method with these runs."""
    tuned = mine["time_tune_s"].fillna(0).mean() if "time_tune_s" in mine else 0.0
    return [number(paired.mean if paired else None, 3, sign=True), number(paired.p if paired else None, 2),
            number(mine["time_fit_s"].mean(), 2), number(tuned, 1)]  # fmt: skip


def kind_of_all(mine: pd.DataFrame) -> str:
    """The protocol of the run that used most: with ``inference.fallback`` the runs of a method may differ in theirs."""
    return max((kind_of(key["information_used"]) for key in mine["key"]), key=PROTOCOLS.index)


def uses_besides(mine: pd.DataFrame) -> list[str]:
    """What runs used besides images and attributes of classes."""
    return list(dict.fromkeys(use for key in mine["key"] for use in key["information_used"][2:]))


def check_one_kind(records: pd.DataFrame) -> None:
    """Refuse runs of different data, features or kinds of split, whose results do not stand in one column.

    Raises
    ------
    UserError
        With what differs.
    """
    semantics = [key["dataset"]["semantics"].get("source") for key in records["key"]]
    shuffled = [key["dataset"].get("shuffle_attributes") for key in records["key"]]
    for what, parts in (
        ("dataset", (records["dataset"], records["content"], semantics, shuffled)),
        ("feature", (records["feature"],)),
        ("split", (records["split_name"], records["n_unseen"])),
    ):
        different = sorted({" ".join(map(str, values)) for values in zip(*parts)})
        if len(different) > 1:
            raise UserError(f"the runs differ in their {what} and make no table: {'; '.join(different)[:300]}.")


def runs_by_split(records: pd.DataFrame, metric: str) -> pd.DataFrame:
    """The metric with a row for each method (the column ``method``) and a column for each split; NaN where none ran.

    Raises
    ------
    UserError
        If a run lacks the metric, or if one method was run twice on a split with different results.
    """
    if metric not in records or records[metric].isna().any():
        has = records["record"].iloc[0]["metrics"]
        raise UserError(f"metric {metric} is not in every record; there is: {', '.join(has)}.")
    which = records["rows"] + [f"/{key['split'].get('seed')}" for key in records["key"]]
    for (method, _), same in records.groupby(["method", which]):
        if same["seed"].nunique() > 1:
            seeds = " and ".join(map(str, sorted(same["seed"].unique())[:2]))
            raise UserError(f"{method} has runs with the seeds {seeds} on one split; name a folder with one seed.")
        if same[metric].nunique() > 1:
            raise UserError(
                f"{method} was run twice on one split, with different results, in {' and '.join(same['folder'][:2])}; "
                "remove one of both, or name a folder that holds one of them."
            )
    return records.groupby(["method", which], sort=False)[metric].first().unstack()


def method_of(key: Mapping[str, Any]) -> str:
    """A method's name: the model, the rules where they are not its own, the numbers of labels and components."""
    rules = (key["inference"]["attributes"], key["inference"]["labels"])
    parts = [key["model"]["name"], *(["+".join(rules)] if rules != ("own", "own") else [])]
    parts += [f"{n} label{'s' if n > 1 else ''}"] if (n := n_labelled(key["information_used"])) else []
    return ", ".join(parts + ([f"pca {pca}"] if (pca := key["feature"].get("pca")) is not None else []))


def edges(records: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Count, for each tuned number, the records whose chosen value is the least or the largest of three or more."""
    found: dict[str, int] = {}
    for record in records:
        chosen = (record["key"].get("tune") or {}).get("chosen") or {}
        for key, value in chosen.items():
            tried = {trial["settings"].get(key) for trial in record.get("trials", [])}
            numbers = [v for v in tried if isinstance(v, int | float) and not isinstance(v, bool)]
            if len(numbers) == len(tried) > 2 and value in (min(numbers), max(numbers)):
                found[key] = found.get(key, 0) + 1
    return found
