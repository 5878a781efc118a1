"""One run, from a configuration to a recorded result."""

from __future__ import annotations

import dataclasses
import time
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zsl.classifier import ZeroShotClassifier
from zsl.data.dataset import ZeroShotData
from zsl.experiment import metrics
from zsl.experiment.loading import load
from zsl.experiment.selection import Selection, select
from zsl.experiment.setup import Setup, checked
from zsl.inference import Prediction
from zsl.runs.folder import run_folder
from zsl.runs.result import SELECTED, Result, digest, versions

if TYPE_CHECKING:
    from omegaconf import DictConfig

# Parts of a reader's provenance that say where the data lies, not what the data is.
_PLACES = ("root", "missing_splits")


def run(cfg: DictConfig, folder: Path | None = None) -> Result:
    """Check a configuration, load, choose settings, fit, predict, decide, evaluate, write.

    Parameters
    ----------
    cfg : DictConfig
        From the command line or :func:`zsl.compose`.
    folder : Path, optional
        Where the run's files go, before anything is sent to the tracking store; ``None`` writes and tracks nothing.

    Returns
    -------
    Result
        With ``skip_existing=true`` and a finished run of the same digest under ``output_dir`` (or in the tracking
        store) the record of that run, without its prediction; nothing is fitted then.

    Raises
    ------
    UserError
        For whatever is wrong with the configuration or the data, in a sentence.
    """
    with run_folder(folder) as out:
        setup = checked(cfg)
        data = load(setup)
        existing = out.start(
            setup.config, setup.tracker, digest(setup.config, data.identity), setup.run_name(data.split)
        )
        if existing is not None:
            return existing
        clock = [time.perf_counter()]
        setup, selection = select(setup, data)
        clock.append(time.perf_counter())
        fitted = setup.classifier.fit_data(data)
        clock.append(time.perf_counter())
        prediction = fitted.predict_stages(data.X_unseen)
        clock.append(time.perf_counter())
        decision = fitted.decide(data, generalized=setup.generalized and len(data.y_test_seen) > 0)
        if decision.use_transductive is False:
            prediction = prediction.inductive
        found = metrics.metrics(fitted, prediction, data, generalized=setup.generalized)
        found |= timings(clock, selection) | {"peak_rss_mb": metrics.peak_rss_mb()}
        metrics.warn_below_chance(found, data)
        result = Result(
            key=result_key(setup, data, fitted, prediction, selection),
            metrics=found,
            per_class=metrics.per_class(prediction, data),
            curves=metrics.curves(fitted.model_),
            versions=versions(),
            trials=selection.trials if selection else [],
            confusion=metrics.confusion(prediction.chosen, data),
            digest=out.digest,
            arrays=dictionaries(fitted.model_),
            prediction=prediction,
        )
        out.finish(result, fitted, data)
    return result


def timings(clock: list[float], selection: Selection | None) -> dict[str, float]:
    """Seconds of the fit, of the inference and, where settings were chosen, of tuning."""
    tuned, fitted, inferred = (b - a for a, b in pairwise(clock))
    out = {"time_fit_s": fitted, "time_infer_s": inferred}
    return out if selection is None else {**out, "time_tune_s": tuned, "tune_acc_class": selection.acc_class}


def dictionaries(model: Any) -> dict[str, Any]:
    """The dictionaries of a model that has some."""
    found = {name.rstrip("_"): getattr(model, name, None) for name in ("Dx_", "Dz_")}
    return {name: array for name, array in found.items() if array is not None}


def result_key(
    setup: Setup,
    data: ZeroShotData,
    fitted: ZeroShotClassifier,
    prediction: Prediction,
    selection: Selection | None = None,
) -> dict[str, Any]:
    """What the result is a result of. Two results with the same key are repetitions of one experiment."""
    config, model = setup.config, fitted.model_
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
            "n_atoms_used": len(model.Dx_) if hasattr(model, "Dx_") else None,
            "lam_used": getattr(model, "lam_", None),
        },
        "inference": fitted.inference_.record(model),
        "decision": None if decided is None else dataclasses.asdict(decided),
        "evaluation": config["evaluation"],
        "seed": config["seed"],
        "selection": SELECTED if selection else "none: settings as given",
        "tune": {**config["tune"], "chosen": selection.settings, "folds": selection.folds} if selection else None,
        "information_used": list(dict.fromkeys(information)),
    }
