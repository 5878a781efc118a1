"""The files of a run folder, and the table that ends a run."""

from __future__ import annotations

import csv
import json
import logging
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from zsl.checks import Array
from zsl.runs.model_file import MODEL, CannotBeSaved
from zsl.runs.result import NOT_RECORDED, Result
from zsl.runs.status import RESULTS

log = logging.getLogger(__name__)

CONFIG, PER_CLASS, DICTIONARIES = "config.yaml", "per_class.csv", "dictionaries.npz"
PREDICTIONS, POINTS = "predictions.csv", "predictions.npz"

# Metrics that the table after a run shows; all metrics are in results.json.
_SHOWN = ("hit_", "acc_class", "gzsl_")


def write(result: Result, fitted: Any, data: Any, config: Mapping[str, Any], folder: Path) -> None:
    """Write every file of a run.

    Each file appears whole or not at all. ``results.json`` comes last: its presence says that the run is complete.

    Parameters
    ----------
    result : Result
    fitted : ZeroShotClassifier
        Saved with ``save_model``.
    data : ZeroShotData
        Names and labels of the test images.
    config : mapping
        The resolved configuration.
    """
    from omegaconf import OmegaConf

    folder.mkdir(parents=True, exist_ok=True)
    prediction, names = result.prediction, data.unseen_names
    column, images = ("file", data.names_unseen) if data.names_unseen else ("row", data.rows_unseen)
    write_predictions(images, names, prediction.scores, data.y_unseen, folder, column=column)
    if config["save_predictions"]:
        write_points(names, fitted.semantics_.transform(data.Z_unseen), data.y_unseen, prediction.stages, folder)
    (folder / MODEL).unlink(missing_ok=True)  # of a run before, in a folder of a fixed name
    if config["save_model"]:
        fitted.about_ = _about(result, data, config)
        try:
            fitted.save(folder / MODEL)
        except CannotBeSaved as error:
            log.warning("%s", error)
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
    record = {f.name: getattr(result, f.name) for f in fields(result) if f.name not in NOT_RECORDED}
    _replace(folder / RESULTS, json.dumps(_json(record), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def _about(result: Result, data: Any, config: Mapping[str, Any]) -> dict[str, Any]:
    """What a stored classifier says of its origin."""
    return {
        "dataset": data.name,
        "feature": data.feature,
        "split": data.split,
        "network": data.key.get("provenance", {}).get("network") or "",
        "digest": result.digest,
        "versions": result.versions,
        "allow_targets": list(config["allow_targets"]),
    }


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


def write_points(classes: Sequence[str], Z_unseen: Array, y: Array, stages: Sequence[Any], folder: Path) -> None:
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
    if key.get("decision"):
        used = "is used" if key["decision"]["use_transductive"] else "is not used, the inductive rule stands"
        reason = key["decision"]["reason"]
        console.print(f"fallback the transductive rule {used}: {reason}", soft_wrap=True, highlight=False)
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
