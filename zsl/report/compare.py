"""A table of methods from the records of their runs: ``python -m zsl.report.compare FOLDER [METRIC]``.

Mean and standard deviation over splits, mean rank, time, and how settings were chosen. Nothing but ``results.json``
files is read; runs of different data, features or splits are never put in one table.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from zsl.checks import Array
from zsl.errors import UserError, reason, unforeseen
from zsl.experiment.selection import SELECTED
from zsl.report.paired import Difference, difference
from zsl.runs.status import RESULTS, records_of

log = logging.getLogger(__name__)


@dataclass
class Row:
    """One method."""

    method: str
    values: Array
    """(splits,) the metric; NaN where a split was not run"""
    rank: float
    """Mean over the splits that every method has; 1 is best, ties share"""
    time_fit: float
    time_tune: float
    selection: str
    at_edge: dict[str, int]
    """Settings whose chosen value was the first or last tried, on how many splits: a range that may be too narrow"""
    to_best: Difference | None
    """Paired difference to the method with the best mean, corrected for overlapping splits; None for itself"""
    information: tuple[str, ...]
    """Beyond images and attributes of seen classes and the attributes of unseen ones"""

    @property
    def mean(self) -> float:
        return float(np.nanmean(self.values))

    @property
    def std(self) -> float:
        """Over splits, with n - 1; NaN for one split."""
        found = self.values[~np.isnan(self.values)]
        return float(found.std(ddof=1)) if len(found) > 1 else float("nan")


def read(folder: Path) -> list[dict[str, Any]]:
    """The complete records under ``folder``, and those that its jobs were skipped for (``skip_existing=true``).

    A file that is damaged or no record is left out with a warning.

    Raises
    ------
    UserError
        If nothing is left.
    """
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; name the folder that holds the runs.")
    records = []
    for path in records_of(folder):
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            log.warning("%s cannot be read (%s) and is left out; run it again.", path, reason(error))
            continue
        lacks = lacking(record)
        if lacks:
            log.warning("%s is no complete record (it lacks %s) and is left out; run it again.", path, lacks)
        else:
            records.append(record)
    if not records:
        raise UserError(f"{folder} holds no {RESULTS} that can be read; run something first, such as `make compare`.")
    return records


# Without these a record says neither what it is of nor what came out; null is a value.
_NEEDED = {
    "key": dict, "key.seed": int, "key.selection": str, "key.information_used": list, "key.dataset": dict,
    "key.dataset.name": str, "key.dataset.content": None, "key.dataset.semantics": dict,
    "key.dataset.shuffle_attributes": None, "key.feature": dict, "key.feature.name": str, "key.split": dict,
    "key.split.name": str, "key.split.rows": str, "key.split.unseen": list, "key.model": dict, "key.model.name": str,
    "key.inference": dict, "key.inference.attributes": str, "key.inference.labels": str, "metrics": dict,
    "metrics.time_fit_s": None, "per_class": list,
}  # fmt: skip


def lacking(record: Any) -> str | None:
    """The first part that a record lacks, or that is of another kind."""
    for name, kind in _NEEDED.items():
        node: Any = record
        for part in name.split("."):
            if not isinstance(node, Mapping) or part not in node:
                return name
            node = node[part]
        if kind is not None and not isinstance(node, kind):
            return name
    return None


def table(records: Sequence[Mapping[str, Any]], metric: str = "acc_class") -> list[Row]:
    """One row per method and inference rule, best mean first.

    Raises
    ------
    UserError
        If the runs do not belong to one dataset, feature and kind of split, or lack the metric; if one method was run
        twice on a split with different settings.
    """
    for what, of in (("dataset", _dataset), ("feature", _feature), ("split", _split)):
        different = {json.dumps(of(r["key"]), sort_keys=True) for r in records}
        if len(different) > 1:
            raise UserError(f"the runs differ in their {what} and make no table: {'; '.join(sorted(different))[:300]}.")
    missing = [r for r in records if r["metrics"].get(metric) is None]
    if missing:
        raise UserError(f"metric {metric} is not in every record; there is: {', '.join(missing[0]['metrics'])}.")
    splits = sorted({_which(r["key"]) for r in records})
    methods: dict[str, dict[str, Mapping[str, Any]]] = {}
    for record in records:
        runs = methods.setdefault(_method(record["key"]), {})
        before = runs.setdefault(_which(record["key"]), record)
        if before is not record and before["metrics"][metric] != record["metrics"][metric]:
            raise UserError(f"{_method(record['key'])} was run twice on one split, with different results.")
    values = np.array(
        [[runs[s]["metrics"][metric] if s in runs else np.nan for s in splits] for runs in methods.values()]
    )
    ranks = mean_ranks(values)
    best = list(methods)[int(np.nanmean(values, axis=1).argmax())]
    rows = []
    for (method, runs), line, rank in zip(methods.items(), values, ranks):
        keys = [r["key"] for r in runs.values()]
        rows.append(
            Row(
                method,
                line,
                float(rank),
                float(np.mean([r["metrics"]["time_fit_s"] for r in runs.values()])),
                float(np.mean([r["metrics"].get("time_tune_s") or 0.0 for r in runs.values()])),
                ", ".join(dict.fromkeys(k["selection"] for k in keys)),
                edges(runs.values()),
                None if method == best else difference([*runs.values()], [*methods[best].values()], metric),
                tuple(dict.fromkeys(i for k in keys for i in k["information_used"][2:])),
            )
        )
    return sorted(rows, key=lambda row: -row.mean)


def edges(records: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Of each tuned number, of how many records the chosen value is the smallest or the largest of three or more."""
    found: dict[str, int] = {}
    for record in records:
        chosen = (record["key"].get("tune") or {}).get("chosen") or {}
        for key, value in chosen.items():
            tried = {t["settings"].get(key) for t in record.get("trials", [])}
            numbers = [v for v in tried if isinstance(v, int | float) and not isinstance(v, bool)]
            if len(numbers) == len(tried) > 2 and value in (min(numbers), max(numbers)):
                found[key] = found.get(key, 0) + 1
    return found


def mean_ranks(values: Array) -> Array:
    """(methods,) mean rank over the columns without a gap of values (methods, splits); best is 1, ties share."""
    from scipy.stats import rankdata

    complete = values[:, ~np.isnan(values).any(axis=0)]
    if not complete.size:
        return np.full(len(values), np.nan)
    return rankdata(-complete, axis=0).mean(axis=1)


def show(rows: Sequence[Row], metric: str, heading: str) -> None:
    """Print the table."""
    from rich.console import Console
    from rich.table import Table

    selections = "; ".join(dict.fromkeys(row.selection for row in rows))
    out = Table("method", title=f"{heading}: {metric}; {selections}", title_justify="left")
    for column in ("mean", "std", "splits", "rank", "to best", "p", "fit s", "tune s"):
        out.add_column(column, justify="right")
    out.add_column("settings")
    out.add_column("at the edge of its grid")
    out.add_column("uses besides")
    for row in rows:
        out.add_row(
            row.method,
            f"{row.mean:.3f}",
            f"{row.std:.3f}",
            str(int((~np.isnan(row.values)).sum())),
            f"{row.rank:.1f}",
            f"{row.to_best.mean:+.3f}" if row.to_best else "-",
            f"{row.to_best.p:.2f}" if row.to_best and row.to_best.p is not None else "-",
            f"{row.time_fit:.2f}",
            f"{row.time_tune:.1f}",
            "tuned" if row.selection == SELECTED else row.selection.removeprefix("none: "),
            ", ".join(f"{key.removeprefix('model.')} {n}" for key, n in row.at_edge.items()) or "-",
            "; ".join(row.information) or "-",
        )
    console = Console(width=None if sys.stdout.isatty() else 170)
    console.print(out)
    console.print(
        "to best: paired over splits, p with the Nadeau-Bengio correction for their overlap, for one comparison. "
        "at the edge of its grid: on so many splits the value chosen was the first or last of those tried.",
        style="dim", highlight=False,
    )  # fmt: skip


def heading(key: Mapping[str, Any]) -> str:
    """Dataset, feature and split of a record in a few words."""
    return f"{key['dataset']['name']} / {key['feature']['name']} / {key['split']['name']} split"


def _dataset(key: Mapping[str, Any]) -> Any:
    # Where the files lie does not matter, their content does; pre-processing may be tuned, as that of features may.
    dataset = key["dataset"]
    source = dataset["semantics"].get("source", "continuous")
    return [dataset["name"], dataset["content"], source, dataset["shuffle_attributes"]]


def _feature(key: Mapping[str, Any]) -> Any:
    # Pre-processing may be tuned or belong to a method; the features themselves must be the same.
    return key["feature"]["name"]


def _split(key: Mapping[str, Any]) -> Any:
    return [key["split"]["name"], len(key["split"]["unseen"])]


def _which(key: Mapping[str, Any]) -> str:
    return f"{key['split'].get('seed')}/{key['split']['rows']}"


def _method(key: Mapping[str, Any]) -> str:
    rule = key["inference"]
    pair = (rule["attributes"], rule["labels"])
    parts = [key["model"]["name"]] + ([] if pair == ("own", "own") else ["+".join(pair)])
    if key["feature"].get("pca") is not None:
        parts.append(f"pca {key['feature']['pca']}")
    return ", ".join(parts)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if not 1 <= len(arguments) <= 2:
        print("usage: python -m zsl.report.compare FOLDER [METRIC]", file=sys.stderr)
        sys.exit(2)
    metric = arguments[1] if len(arguments) == 2 else "acc_class"
    try:
        records = read(Path(arguments[0]))
        show(table(records, metric), metric, heading(records[0]["key"]))
    except UserError as error:
        print(f"zsl: {error}", file=sys.stderr)
        sys.exit(1)
    except (OSError, MemoryError) as error:
        print(f"zsl: {unforeseen(error)}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
