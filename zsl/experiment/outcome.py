"""What a run found as a :class:`zsl.runs.result.Result`: its key, its metrics, its tables."""

from __future__ import annotations

import dataclasses
import logging
import time
from typing import Any

from zsl.classifier import ZeroShotClassifier
from zsl.data.dataset import ZeroShotData
from zsl.experiment import metrics
from zsl.experiment.loading import unequal_rows
from zsl.experiment.selection import Selection
from zsl.experiment.setup import Setup
from zsl.experiment.signs import of_run
from zsl.inference import Prediction
from zsl.inference.attributes import members
from zsl.progress import compilation
from zsl.runs.result import SELECTED, Result, versions

log = logging.getLogger(__name__)

# Parts of a reader's provenance that say where the data lies, not what the data is.
_PLACES = ("root", "missing_splits")


class Clock:
    """Measures the steps of a run in seconds, without the time that compiling kernels takes."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last, self._compiled = time.perf_counter(), compilation.seconds

    def lap(self, step: str) -> None:
        """Record as the time of a step what passed since the last call."""
        now, compiled = time.perf_counter(), compilation.seconds - self._compiled
        self.seconds[f"time_{step}_s"] = now - self._last - compiled
        if compiled:
            self.seconds["time_compile_s"] = self.seconds.get("time_compile_s", 0.0) + compiled
        self._last, self._compiled = now, compilation.seconds


def evaluate(
    setup: Setup,
    data: ZeroShotData,
    fitted: ZeroShotClassifier,
    prediction: Prediction,
    selection: Selection | None,
    clock: Clock,
) -> Result:
    """The result of a run: metrics of ``prediction``, and everything needed to say what it is a result of."""
    found = metrics.metrics(fitted, prediction, data, generalized=setup.generalized)
    if setup.imbalance is not None:
        found |= metrics.of_imbalanced(fitted, data, unequal_rows(setup, data))
    found |= {name: s for name, s in clock.seconds.items() if selection is not None or name != "time_tune_s"}
    found["peak_rss_mb"] = metrics.peak_rss_mb()
    if "labelled" in data.key:
        found["labelled_images"] = data.key["labelled"]["images"]
    if selection is not None:
        found["tune_acc_class"] = selection.acc_class
    warnings = of_run(fitted, prediction, data)
    for sentence in warnings:
        log.warning("%s", sentence)
    return Result(
        key=result_key(setup, data, fitted, prediction, selection),
        metrics=found,
        per_class=metrics.per_class(prediction, data),
        curves=metrics.curves(fitted.model_),
        versions=versions(),
        sizes=sizes(data, fitted.model_),
        trials=selection.trials if selection else [],
        confusion=metrics.confusion(prediction.chosen, data),
        prediction=prediction,
        warnings=warnings,
    )


def _dictionaries(model: Any) -> tuple[int | None, int | None]:
    """How many visual dictionaries a model has, and how many atoms each; None for other models."""
    parts = members(model) if hasattr(model, "Dx_") else []
    return (len(parts), len(parts[0].Dx_)) if parts else (None, None)


def sizes(data: ZeroShotData, model: Any) -> dict[str, int]:
    """How many images, classes, features, attributes, dictionaries and atoms of each a run has."""
    n, r = _dictionaries(model)
    atoms = {} if n is None or r is None else {"dictionaries": n, "atoms": r}
    return {
        "training_images": len(data.X), "seen_classes": len(data.seen), "test_images": len(data.X_unseen),
        "unseen_classes": len(data.unseen), "features": data.X.shape[1], "attributes": data.attributes.shape[1],
        **atoms,
    }  # fmt: skip


def result_key(
    setup: Setup,
    data: ZeroShotData,
    fitted: ZeroShotClassifier,
    prediction: Prediction,
    selection: Selection | None = None,
) -> dict[str, Any]:
    """What the result is a result of. Two results with the same key are repetitions of one experiment."""
    config, model = setup.config, fitted.model_
    n, r = _dictionaries(model)
    information = [
        "images and attributes of seen classes",
        "attributes of unseen classes",
        *(["attributes of each training image; class rows are means over images"] if data.Z_images is not None else []),
        *prediction.chosen.information,
        *(
            ["unlabelled test images: the mean spread of their scores, in the calibrated offset"]
            if setup.generalized and fitted.calibrate
            else []
        ),
    ]
    decided = fitted.decision_ if fitted.inference_.fallback else None
    return {
        "experiment": config.get("experiment"),
        "cell": config.get("cell"),
        "dataset": {
            "name": data.name,
            "content": data.key.get("content"),
            # Where the files lie is in the configuration; the same data in another folder is the same data.
            "provenance": {k: v for k, v in data.key.get("provenance", {}).items() if k not in _PLACES},
            "semantics": {**config["dataset"]["semantics"], **data.key.get("semantics", {})},
            "shuffle_attributes": setup.shuffle_attributes,
        },
        "feature": config["feature"],
        "split": {"name": data.split, **data.key.get("split", {})},
        "model": {
            **{k: v for k, v in config["model"].items() if k != "grid"},
            "n_atoms_used": r,
            "n_dictionaries_used": n,
            "lam_used": getattr(model, "lam_", None),
        },
        "inference": fitted.inference_.record(model),
        **({"labelled": data.key["labelled"]} if "labelled" in data.key else {}),
        "decision": None if decided is None else dataclasses.asdict(decided),
        "evaluation": config["evaluation"],
        "seed": config["seed"],
        "selection": SELECTED if selection else "none: settings as given",
        "tune": {**config["tune"], "chosen": selection.settings, "folds": selection.folds} if selection else None,
        "information_used": list(dict.fromkeys(information)),
    }
