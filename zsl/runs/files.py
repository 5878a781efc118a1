"""Writes the files of a finished run: configuration, result, predictions and model."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from zsl.checks import Array
from zsl.errors import atomic
from zsl.runs import status
from zsl.runs.model_file import MODEL, CannotBeSaved
from zsl.runs.result import NOT_RECORDED, Result
from zsl.runs.status import RESULTS
from zsl.text import as_cell

log = logging.getLogger(__name__)

CONFIG, PER_CLASS = "config.yaml", "per_class.csv"
PREDICTIONS, POINTS = "predictions.csv", "predictions.npz"
FIGURES = "figures"
"""The folder of a run's figures"""


def write(result: Result, fitted: Any, data: Any, config: Mapping[str, Any], folder: Path) -> None:
    """Write every file of a run, each whole or not at all.

    ``results.json`` comes last, so that its presence says that the run is complete.

    Parameters
    ----------
    result : Result
    fitted : ZeroShotClassifier
        Saved with ``save_model``; its dictionaries are nowhere else.
    data : ZeroShotData
        Names and labels of the test images.
    config : mapping
        The resolved configuration.
    """
    from omegaconf import OmegaConf

    prediction, names = result.prediction, data.unseen_names
    column, images = ("file", data.names_unseen) if data.names_unseen else ("row", data.rows_unseen)
    write_predictions(images, names, prediction.scores, data.y_unseen, folder, column=column)
    # An earlier run may have left these in a folder of a fixed name.
    left = (folder / POINTS, folder / MODEL, folder / "dictionaries.npz", *folder.glob(f"{FIGURES}/*.png"))
    for earlier in left:
        earlier.unlink(missing_ok=True)
    if config["save_predictions"]:
        Z = fitted.semantics_.transform(data.Z_unseen)
        write_points(names, Z, data.y_unseen, prediction.stages, folder, attributes=data.attribute_names)
    if config["save_model"]:
        fitted.about_ = _about(result, data, config)
        try:
            fitted.save(folder / MODEL, config["save_precision"])
        except CannotBeSaved as error:
            log.warning("%s", error)
    with atomic(folder / CONFIG) as part:
        part.write_text(OmegaConf.to_yaml(OmegaConf.create(dict(config))), encoding="utf-8")
    with atomic(folder / PER_CLASS) as part:
        _cells(pd.DataFrame(result.per_class)).to_csv(part, index=False)
    record = {f.name: getattr(result, f.name) for f in fields(result) if f.name not in NOT_RECORDED}
    status.write(folder / RESULTS, _json(record))


def _about(result: Result, data: Any, config: Mapping[str, Any]) -> dict[str, Any]:
    """What a stored classifier says of its origin."""
    return {
        "dataset": data.name,
        "feature": data.feature,
        "split": data.split,
        "network": data.key.get("provenance", {}).get("network") or "",
        "column_order": data.key.get("provenance", {}).get("column_order") or "",
        "encoder": data.key.get("provenance", {}).get("encoder") or {},
        "digest": result.digest,
        "versions": result.versions,
        "allow_targets": list(config["allow_targets"]),
    }


def write_predictions(
    images: Sequence[str | int], classes: Sequence[str], scores: Array, y: Array, folder: Path, *,
    column: str = "file", best: int = 3,
) -> None:  # fmt: skip
    """Write ``predictions.csv``: of each test image its file (or row), the best classes, the true class if known.

    ``margin`` is the score of the best class minus that of the second: the larger, the more certain is the answer.
    """
    order = np.argsort(-scores, axis=1, kind="stable")[:, :best].T
    names = np.array([*classes, ""], dtype=object)
    best_classes = {word: names[c] for word, c in zip(("predicted", "second", "third"), order)}
    with atomic(folder / PREDICTIONS) as part:
        ranked = np.take_along_axis(scores, order.T, axis=1)
        margin = {"margin": np.round(ranked[:, 0] - ranked[:, 1], 6)} if len(order) > 1 else {}
        found = {column: images, **best_classes, **margin, "true": names[np.where(y < 0, -1, y)]}
        _cells(pd.DataFrame(found)).to_csv(part, index=False)


def _cells(frame: pd.DataFrame) -> pd.DataFrame:
    """A table without texts that spreadsheets take for formulas."""
    return frame.map(lambda value: as_cell(value) if isinstance(value, str) else value)


def write_points(
    classes: Sequence[str], Z_unseen: Array, y: Array, stages: Sequence[Any], folder: Path, *,
    attributes: Sequence[str] = (),
) -> None:  # fmt: skip
    """Write ``predictions.npz``: class names and attributes, true classes, scores and predicted attributes by stage.

    ``attributes`` are the names of the attributes, if they have any.
    """
    arrays = {"classes": np.array(classes), "Z_unseen": Z_unseen, "y": y}
    if attributes:
        arrays["attributes"] = np.array(attributes)
    for stage in stages:
        arrays[f"{stage.name}/scores"] = stage.scores
        if stage.Z_hat is not None:
            arrays[f"{stage.name}/Z_hat"] = stage.Z_hat
    with atomic(folder / POINTS) as part:
        np.savez(part, **arrays)  # type: ignore[arg-type]


def _json(value: Any) -> Any:
    """A value as JSON has it: text for paths, null for a number that is not finite."""
    if isinstance(value, Mapping):
        return {str(k): _json(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
