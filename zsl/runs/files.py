"""The files of a run folder, and the table that ends a run."""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from zsl.checks import Array
from zsl.runs.status import RESULTS

if TYPE_CHECKING:
    from zsl.experiment.run import Result
    from zsl.inference.prediction import Stage

CONFIG, PER_CLASS, DICTIONARIES = "config.yaml", "per_class.csv", "dictionaries.npz"
PREDICTIONS, POINTS = "predictions.csv", "predictions.npz"


# Metrics that the table after a run shows; all are in results.json.
_SHOWN = ("hit_", "acc_class", "gzsl_")


def write(result: Result, config: Mapping[str, Any], folder: Path) -> None:
    """Write ``results.json``, ``config.yaml`` (resolved), ``per_class.csv`` and ``dictionaries.npz`` to ``folder``.

    Each file appears whole or not at all: a run killed half-way leaves no half-written record.
    """
    from omegaconf import OmegaConf

    folder.mkdir(parents=True, exist_ok=True)
    record = {f.name: getattr(result, f.name) for f in fields(result) if f.name not in ("arrays", "stages")}
    _replace(folder / CONFIG, OmegaConf.to_yaml(OmegaConf.create(dict(config))))
    with (folder / (PER_CLASS + ".part")).open("w", newline="", encoding="utf-8") as f:
        rows = csv.DictWriter(f, list(result.per_class[0]))
        rows.writeheader()
        rows.writerows(result.per_class)
    (folder / (PER_CLASS + ".part")).replace(folder / PER_CLASS)
    if result.arrays:
        with (folder / (DICTIONARIES + ".part")).open("wb") as binary:
            np.savez(binary, **result.arrays)  # type: ignore[arg-type]
        (folder / (DICTIONARIES + ".part")).replace(folder / DICTIONARIES)
    # Last, because its presence says that the run is complete.
    _replace(folder / RESULTS, json.dumps(_json(record), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_predictions(
    images: Sequence[str | int], classes: Sequence[str], scores: Array, y: Array, folder: Path, *,
    column: str = "file", best: int = 3,
) -> None:  # fmt: skip
    """``predictions.csv``: of each test image its file (or row), the best classes in order, the true one if known."""
    order = np.argsort(-scores, axis=1, kind="stable")[:, :best]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / (PREDICTIONS + ".part")).open("w", newline="", encoding="utf-8") as f:
        rows = csv.writer(f)
        rows.writerow([column, *(["predicted", "second", "third"][: order.shape[1]]), "true"])
        for i, image in enumerate(images):
            rows.writerow([image, *(classes[m] for m in order[i]), classes[y[i]] if y[i] >= 0 else ""])
    (folder / (PREDICTIONS + ".part")).replace(folder / PREDICTIONS)


def write_points(classes: Sequence[str], Z_unseen: Array, y: Array, stages: Sequence[Stage], folder: Path) -> None:
    """``predictions.npz``: class names and attributes, true classes, and by stage scores and predicted attributes."""
    arrays = {"classes": np.array(classes), "Z_unseen": Z_unseen, "y": y}
    for stage in stages:
        arrays[f"{stage.name}/scores"] = stage.scores
        if stage.Z_hat is not None:
            arrays[f"{stage.name}/Z_hat"] = stage.Z_hat
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / (POINTS + ".part")).open("wb") as binary:
        np.savez(binary, **arrays)  # type: ignore[arg-type]
    (folder / (POINTS + ".part")).replace(folder / POINTS)


def show(result: Result, folder: Path, link: str | None) -> None:
    """Print the stages' metrics as a table, and where everything is."""
    from rich.console import Console
    from rich.table import Table

    key = result.key
    stages = list(dict.fromkeys(name.split("/")[0] for name in result.metrics if "/" in name))
    known = dict.fromkeys(name.split("/")[1] for name in result.metrics if "/" in name)
    columns = [name for name in known if name.startswith(_SHOWN)]
    n = len(result.per_class)
    images = sum(row["predicted"] for row in result.per_class)
    unknown = images - sum(row["images"] for row in result.per_class)
    drawn = key["split"].get("seed")
    split = key["split"]["name"] + ("" if drawn in (None, key["seed"]) else f" (split.seed {drawn})")
    heading = f"{key['dataset']['name']} / {key['feature']['name']} / {split} / seed {key['seed']}"
    table = Table("stage")
    for column in columns:
        table.add_column(column, justify="right")
    for stage in stages:
        values = [result.metrics.get(f"{stage}/{column}", math.nan) for column in columns]
        table.add_row(stage, *(f"{v:.3f}" for v in values))
    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = Console(width=140)  # a pipe or a log file has no width of its own
    console.print(
        f"[bold]{heading}[/bold]: {n} unseen classes, {images} test images"
        + (f" ({unknown} of unknown class)" if unknown else "")
        + f", chance {1 / n:.3f}",
        highlight=False,
    )
    console.print(table)
    if key["dataset"].get("shuffle_attributes") is not None:
        console.print("[bold]Control:[/bold] the attribute table is shuffled over classes.")
    console.print(f"uses     {'; '.join(key['information_used'])}", soft_wrap=True, highlight=False)
    console.print(f"settings {settings(key)}", soft_wrap=True, highlight=False)
    if key.get("gate"):
        used = "used" if key["gate"]["used"] else "not used, the inductive rule stands"
        console.print(f"gate     transductive step {used}: {key['gate']['reason']}", soft_wrap=True, highlight=False)
    console.print(
        f"time     fit {result.metrics['time_fit_s']:.2f} s, inference {result.metrics['time_infer_s']:.2f} s",
        highlight=False,
    )
    console.print(f"folder   {folder}", soft_wrap=True, highlight=False)
    if link:
        console.print(f"tracking {link}", soft_wrap=True, highlight=False)


def settings(key: Mapping[str, Any]) -> str:
    """How a result's settings were chosen, in a line: the rule, what was tried, what was chosen."""
    tune = key.get("tune")
    if not tune:
        return str(key["selection"])
    search = {"grid": "a grid", "random": "random search", "optuna": "Optuna"}.get(tune["search"], tune["search"])
    chosen = ", ".join(f"{k}={v}" for k, v in tune["chosen"].items())
    return f"{key['selection']} ({search}, {len(tune['folds'])} folds): {chosen}"


def _replace(path: Path, text: str) -> None:
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def _json(value: Any) -> Any:
    """NumPy scalars and paths as JSON has them; a number that is not finite is null, since JSON has no other word."""
    if isinstance(value, Mapping):
        return {str(k): _json(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
