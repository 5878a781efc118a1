"""Records of runs as a pandas table: one row per ``results.json``, and the rows that belong to each cell."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from zsl.config import options
from zsl.errors import UserError
from zsl.report.cells import Cell
from zsl.runs.result import flatten
from zsl.runs.status import RESULTS, SKIPPED, read, walk

log = logging.getLogger(__name__)

# These parts of a record's key are settings.
_PARTS = ("model", "inference", "feature", "evaluation")
# These keys of a model are found out by the run, read by tuning only, or about interruptions.
_NOT_SET = ("grid", "n_atoms_used", "n_dictionaries_used", "lam_used", "checkpoint", "checkpoint_minutes")
# These keys of a split say which repetition it is, or follow from the data.
_OF_ONE_SPLIT = ("name", "seed", "fold", "index", "rows", "unseen", "n_seen", "subset", "file", "path")


# The columns besides one for each metric, and where in a record's key each comes from.
_COLUMNS = {
    "experiment": "experiment", "cell": "cell", "seed": "seed", "dataset": "dataset.name",
    "content": "dataset.content", "feature": "feature.name", "split_name": "split.name", "rows": "split.rows",
    "n_seen": "split.n_seen",
}  # fmt: skip


def read_records(folder: Path, *, needed: bool = True) -> pd.DataFrame:
    """The records under a folder, and those of earlier runs for which its jobs were skipped.

    Parameters
    ----------
    folder : Path
        Any folder above the run folders.
    needed : bool
        Whether it is an error that there are no records.

    Returns
    -------
    DataFrame
        One row per record; of :func:`row`.

    Raises
    ------
    UserError
        If ``folder`` is a file, or if nothing is found that can be read.
    """
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; name the folder that holds the runs.")
    found: list[tuple[Path, dict[str, Any]]] = [(path, {}) for path in sorted(walk(folder, RESULTS))]
    present = set()
    # The note of a skipped run names a record by another path than the walk; records are told apart by their paths.
    walked = {path.resolve(): path for path, _ in found}
    for mark in sorted(walk(folder, SKIPPED)):
        about = read(mark)
        path = (mark.parent / str(about.get("record")) / RESULTS).resolve()
        path = walked.get(path, path)
        if path.is_file():
            found.append((path, {name: about.get(name) for name in ("experiment", "cell")}))
    rows = []
    for path, about in found:
        try:
            one = {**row(read(path), str(path.parent)), **about}
            json.dumps(one["record"], ensure_ascii=False).encode()  # text that no table could hold
            # A skipped job that names no other cell than the record itself is no further repetition.
            same = (path.resolve(), one["experiment"], one["cell"])
            if same not in present:
                present.add(same)
                rows.append(one)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            log.warning("%s is no complete record (%s) and is left out; run it again.", path, error)
    if needed and not rows:
        there = "holds no result that can be read" if Path(folder).is_dir() else "does not exist"
        raise UserError(f"{folder} {there}; name a folder of runs, such as multirun, or run something first (zsl run).")
    return as_frame(rows)


def warn_of_old_names(records: pd.DataFrame) -> None:
    """Say which records no table takes any more: those of the tables' earlier names.

    What is table1 was called table0, and what is table2 was table1, where cells are named after data and model.
    """
    models = set(options("model"))
    old = [
        experiment == "table0" or (experiment == "table1" and bool(models & set(str(cell).split("/")[1:])))
        for experiment, cell in zip(records["experiment"], records["cell"])
    ]
    if any(old):
        log.warning(
            "%d records are of the time when table1 was called table0 and table2 table1, and are in no table; "
            "--run takes over those whose settings are the same, without running them again.", sum(old),
        )  # fmt: skip


def as_frame(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Rows of :func:`row` as a DataFrame, with all columns where there are none."""
    more = ("folder", "simulated", "split", "n_unseen", "selection", "key", "record")
    return pd.DataFrame(rows) if rows else pd.DataFrame(columns=[*_COLUMNS, *more])


def row(record: Mapping[str, Any], folder: str = "") -> dict[str, Any]:
    """One record as a row: its metrics, what it is of, its ``key``, and the ``record`` itself.

    ``split`` names the unseen classes.

    Raises
    ------
    KeyError, TypeError, AttributeError, ValueError
        For a record that lacks a part, or whose metrics are no numbers.
    """
    key = {"experiment": None, "cell": None, **record["key"]}
    for one in record["per_class"]:
        one["class"], one["images"], one["predicted"]
    _check_kinds(key)
    if any(isinstance(value, float) and math.isinf(value) for value in record["metrics"].values()):
        raise ValueError("a metric is infinite")
    return {
        **{name: float("nan") if value is None else float(value) for name, value in record["metrics"].items()},
        **{name: _at(key, path) for name, path in _COLUMNS.items()},
        "folder": folder,
        "simulated": bool((key["dataset"].get("provenance") or {}).get("simulated")),
        "split": "/".join(key["split"]["unseen"]),
        "n_unseen": len(key["split"]["unseen"]),
        "selection": "not tuned" if key["selection"].startswith("none") else key["selection"],
        "key": key,
        "record": record,
    }


def _check_kinds(key: Mapping[str, Any]) -> None:
    """Raise unless the parts of a record's key that tables and pages read are of their kinds."""
    nodes = [*_PARTS, "dataset", "split"]
    nodes += [name for name in ("tune", "decision") if key.get(name) is not None]
    for name in nodes:
        if not isinstance(key[name], Mapping):
            raise TypeError(f"key.{name} is {key[name]!r}")
    texts = [key["model"]["name"], key["feature"]["name"], key["split"]["name"], key["dataset"]["name"],
             key["inference"]["attributes"], key["inference"]["labels"], key["selection"]]  # fmt: skip
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("a name in its key is no text")
    if not isinstance(key["information_used"], list) or not isinstance(key["dataset"]["semantics"], Mapping):
        raise TypeError("key.information_used or key.dataset.semantics is of another kind")


def _at(node: Any, path: str) -> Any:
    """The value at a dotted path."""
    for part in path.split("."):
        node = node[part]
    return node


# --- settings -----------------------------------------------------------------------------------------------


def settings_of(key: Mapping[str, Any]) -> dict[str, Any]:
    """Everything in a record's key that is a setting and no repetition, under dotted keys.

    What tuning chose, and a seed that follows the run's, are not settings.
    """
    tune = key.get("tune") or {}
    chosen = tune.get("chosen", {})
    semantics = {k: v for k, v in key["dataset"]["semantics"].items() if not isinstance(v, Mapping)}
    nodes = {
        **{part: key.get(part) or {} for part in _PARTS},
        "tune": {k: v for k, v in tune.items() if k not in ("name", "chosen", "folds")},
        "dataset": {"semantics": semantics},
        "split": {k: v for k, v in key["split"].items() if k not in _OF_ONE_SPLIT},
        "subset": {k: v for k, v in (key["split"].get("subset") or {}).items() if k != "seed"},
    }
    out = {"dataset": key["dataset"]["name"], "split": key["split"]["name"], "selection": key["selection"]}
    out |= {k: v for k, v in flatten(nodes).items() if not set(k.split(".")) & set(_NOT_SET)}
    if key["dataset"].get("shuffle_attributes") is not None:
        out["control"] = "attributes shuffled"
    if key.get("labelled"):
        out["labels"] = key["labelled"]["images"]
    return {k: v for k, v in out.items() if k not in chosen and not (k.endswith(".seed") and v == key["seed"])}


def text_of(value: Any) -> str:
    """A setting as text that tells values apart."""
    return json.dumps(value, sort_keys=True, default=str)


def varying(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """The keys that tell settings apart: those that all have and that vary, and those that vary within one model.

    A key that only differs because each model has its own settings is left out, and so is a ``_target_`` beside a
    ``name`` that says as much.
    """
    keys = list(dict.fromkeys(k for s in settings for k in s))
    models: dict[str, list[Mapping[str, Any]]] = {}
    for s in settings:
        models.setdefault(str(s.get("model.name")), []).append(s)

    def varies(key: str, among: Sequence[Mapping[str, Any]]) -> bool:
        return len({text_of(s.get(key)) for s in among}) > 1

    def tells(key: str) -> bool:
        if key.endswith("._target_") and key.removesuffix("_target_") + "name" in keys:
            return False
        shared = all(key in s for s in settings) and (not key.startswith("model.") or key == "model.name")
        return (shared and varies(key, settings)) or any(varies(key, mine) for mine in models.values())

    return [key for key in keys if tells(key)]


# --- the records of cells -----------------------------------------------------------------------------------


def of_cells(found: Sequence[Cell], records: pd.DataFrame) -> pd.DataFrame:
    """The records that name one of these cells, each repetition once: that of the last folder by name.

    Simulated data is left out. ``data`` is the cell's block, ``value`` the value of the key that a curve sweeps.

    Raises
    ------
    UserError
        If the records of one cell differ in their settings, or those of one block in their data.
    """
    known = {(one.experiment, one.id): one for one in found}
    names = [known.get(name) for name in zip(records["experiment"], records["cell"])]
    chosen = records.assign(of=names)
    chosen = chosen[chosen["of"].notna() & ~chosen["simulated"].astype(bool)]
    chosen = chosen.assign(
        data=[one.data for one in chosen["of"]],
        value=[_swept(key, one.key) if one.key else None for one, key in zip(chosen["of"], chosen["key"])],
    )
    points = zip(chosen["of"], chosen["value"])
    chosen = chosen[np.array([not one.key or v in map(float, one.values) for one, v in points], dtype=bool)]
    for _, mine in chosen.groupby("cell", sort=False):
        _need_one_configuration(mine["of"].iloc[0], mine)
    for (data, feature), mine in chosen.groupby(["data", "feature"], sort=False):
        if mine["content"].nunique(dropna=False) > 1:
            first, second = mine.drop_duplicates("content")["folder"].iloc[:2]
            raise UserError(
                f"{first} and {second} are runs on different data, both called {data} with {feature} features; give "
                "each data its own output_dir."
            )
    return chosen.drop_duplicates(["cell", "value", "rows", "split", "seed"], keep="last")


def _swept(key: Mapping[str, Any], path: str) -> float | None:
    """The number that a record has for a swept key, or None."""
    try:
        value = _at({**key, "subset": key["split"].get("subset", {})}, path)
    except (KeyError, TypeError):
        return None
    return float(value) if isinstance(value, int | float) else None


def _need_one_configuration(one: Cell, mine: pd.DataFrame) -> None:
    """Refuse runs of one cell that differ in a setting, such as those of an earlier version with other defaults."""
    first, *others = (settings_of(key) for key in mine["key"])
    for folder, settings in zip(mine["folder"][1:], others):
        for name in {**first, **settings}:
            if name != one.key and text_of(settings.get(name)) != text_of(first.get(name)):
                raise UserError(
                    f"two runs of the cell {one.id} of {one.experiment} differ in {name}: {first.get(name)} in "
                    f"{mine['folder'].iloc[0]}, {settings.get(name)} in {folder}; remove one, or set output_dir."
                )


def common_splits(records: pd.DataFrame, by: Sequence[str], *, seeds: bool = False) -> tuple[pd.DataFrame, list[str]]:
    """Keep only the class splits that all of the compared cells have: accuracy differs more between splits than cells.

    Parameters
    ----------
    records : DataFrame
        Of :func:`of_cells`.
    by : sequence of str
        The columns that tell apart what is compared.
    seeds : bool
        Whether the dictionary seeds must agree as well, as they do along a curve. Among methods they need not, since
        some methods have no seed.

    Returns
    -------
    DataFrame
        The records that are left.
    list of str
        What was left out, in a sentence; empty if nothing was.
    """
    repetition = records["split"] + ("/" + records["seed"].astype(str) if seeds else "")
    n_cells = records.groupby([*by], dropna=False).ngroups
    having = records[[*by]].astype(str).agg("/".join, axis=1).groupby(repetition).nunique() if n_cells else repetition
    common = having.index[having == n_cells]
    if len(common) == len(having):
        return records, []
    what = "repetitions" if seeds else "class splits"
    n = f"{len(having) - len(common)} of {len(having)}"
    return records[repetition.isin(common)], [f"{n} {what} left out, because not all rows have them."]


def selection_of(records: pd.DataFrame) -> str:
    """How the settings behind records were chosen."""
    return "; ".join(dict.fromkeys(records["selection"])) or "no runs yet"


def groups(keys: Iterable[Mapping[str, Any]]) -> list[str]:
    """A text of each key's settings: equal for repetitions of one experiment."""
    return [text_of(settings_of(key)) for key in keys]
