"""One run, from a configuration to a recorded result: the only place where the stages meet."""

from __future__ import annotations

import dataclasses
import logging
import math
import platform
import resource
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from zsl.checks import Array, Count, Seed, check_value
from zsl.config import build, resolve
from zsl.data.dataset import ZeroShotData
from zsl.data.preprocess import preprocess
from zsl.errors import UserError
from zsl.experiment import selection as tuning
from zsl.experiment.decision import Draw, Gate, gate, validate
from zsl.experiment.loading import load_preprocessing, read_data, transform_data
from zsl.experiment.metrics import certificates, confusion, generalized_metrics, per_class, summarise
from zsl.inference import rules
from zsl.inference.prediction import Stage, infer, needs_seen, without_transduction
from zsl.inference.statistics import Seen, seen_classes
from zsl.models.base import Model
from zsl.predict.pipeline import MODEL, CannotBeSaved, Pipeline
from zsl.runs import status as records

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from zsl.tracking import Session

log = logging.getLogger(__name__)

# Parts of a reader's provenance that say where, not what.
_PLACES = ("root", "missing_splits")


@dataclass
class Result:
    """What a run found, and everything needed to say what it is a result of."""

    key: dict[str, Any]
    """Dataset and content hash, feature, split, model, inference, seed, selection, information used."""
    metrics: dict[str, float]
    """The last stage's under plain names, every stage's as ``STAGE/NAME``, then timings."""
    per_class: list[dict[str, Any]]
    """One row per unseen class: name, images, times predicted, accuracy by stage."""
    curves: dict[str, list[float]]
    """Quantities per iteration, such as the objectives."""
    versions: dict[str, str]
    arrays: dict[str, Array]
    """The dictionaries, saved as ``dictionaries.npz``."""
    stages: list[Stage]
    """Scores and predicted attributes of the test images by pair of rules; in memory only."""
    trials: list[dict[str, Any]] = field(default_factory=list)
    """Every setting that was tried on validation classes, with its accuracy on each fold."""
    confusion: dict[str, dict[str, int]] = field(default_factory=dict)
    """Of the last stage: true class -> predicted class -> images, where there are any."""
    digest: str = ""
    """What determined the result, known before the fit: :func:`zsl.runs.status.digest`."""


def run(cfg: DictConfig, folder: Path | None = None) -> Result:
    """Compose, load, fit, predict, evaluate, record.

    Parameters
    ----------
    cfg : DictConfig
        From the command line or :func:`zsl.config.compose`.
    folder : Path, optional
        Where the run's files go, before anything is sent to the tracking store; ``None`` writes and tracks nothing.

    Returns
    -------
    Result
        With ``skip_existing=true`` and a finished run of the same digest under ``output_dir`` (or in the tracking
        store) that run's record, without ``stages``; nothing is fitted then.

    Raises
    ------
    UserError
        For whatever is wrong with the configuration or the data, in a sentence.
    """
    if folder is None:
        return _run(cfg, None, None)
    from zsl.tracking import Session

    session = Session(folder)
    try:
        return _run(cfg, folder, session)
    except BaseException as error:
        session.fail(error)
        raise


def _run(cfg: DictConfig, folder: Path | None, session: Session | None) -> Result:
    """:func:`run`, with what tells the store about it."""
    plain = resolve(cfg)
    check_value(Seed, plain["seed"], "seed")
    check_value(Count | None, plain["threads"], "threads")
    for name in ("skip_existing", "save_model", "save_predictions"):
        check_value(bool, plain[name], name)
    load_preprocessing(plain)  # what is wrong with it is said before anything is read
    model: Model = build(plain["model"], "model", allow_targets=plain["allow_targets"])
    _check_inference(plain, model)
    if folder is not None:
        _check_tracking(plain["tracking"])
    raw = read_data(plain)
    validation = [[a.tolist() for a in division] for division in raw.validation]
    digest = records.digest(plain, {**raw.key, "validation": validation})
    if session is not None:
        found = _done_before(plain, digest) if plain["skip_existing"] else None
        if found is not None:
            session.skip(found[0], digest, found[1].metrics, {k: plain[k] for k in ("experiment", "cell")})
            return found[1]
        session.start(plain, digest, raw.key)
    selection = None
    if plain["tune"]["name"] != "none":
        selected = time.perf_counter()
        selection = tuning.select(cfg, raw, resolve=resolve, transform=transform_data, infer=infer)
        plain = resolve(tuning.changed(cfg, selection.settings))
        model = build(plain["model"], "model", allow_targets=plain["allow_targets"])
        selected = time.perf_counter() - selected
    transforms = load_preprocessing(plain)
    data = preprocess(raw, *transforms)

    start = time.perf_counter()
    model.fit(data.X, data.y, data.Z, data.Z_unseen)
    fitted = time.perf_counter()
    seen = cache(partial(seen_classes, model, data.X, data.y, data.Z))
    stages = infer(plain, model, data.X_unseen, data.Z_unseen, seen)
    inferred = time.perf_counter()
    decided, draws = _on_validation_classes(plain, raw, stages)
    if decided is not None and not decided.used:
        stages = without_transduction(stages)

    metrics = summarise(stages, data.y_unseen, data.Z_unseen)
    metrics |= generalized_metrics(plain, model, data, seen, draws, stages)
    metrics |= certificates(model, stages)
    metrics["time_fit_s"], metrics["time_infer_s"] = fitted - start, inferred - fitted
    if selection is not None:
        metrics["time_tune_s"] = selected
        metrics["tune_acc_class"] = max(trial["acc_class"] for trial in selection.trials)
    metrics["peak_rss_mb"] = _peak_rss_mb()
    result = Result(
        key=result_key(plain, data, model, stages, selection, decided),
        metrics=metrics,
        per_class=per_class(stages, data),
        curves={
            name: list(values)
            for name in ("objective", "objective_x", "objective_z")
            if (values := getattr(model, name + "_", None))
        },
        versions=versions(),
        arrays={
            name.rstrip("_"): value for name in ("Dx_", "Dz_") if (value := getattr(model, name, None)) is not None
        },
        stages=stages,
        trials=selection.trials if selection else [],
        confusion=confusion(stages[-1], data),
        digest=digest,
    )
    _warn_if_suspicious(metrics, data)
    if folder is not None and session is not None:
        from zsl.runs.files import show, write, write_points, write_predictions

        column, images = ("file", data.names_unseen) if data.names_unseen else ("row", data.rows_unseen)
        write_predictions(images, data.unseen_names, stages[-1].scores, data.y_unseen, folder, column=column)
        if plain["save_predictions"]:
            write_points(data.unseen_names, data.Z_unseen, data.y_unseen, stages, folder)
        (folder / MODEL).unlink(missing_ok=True)  # of a run before, in a folder of a fixed name
        if plain["save_model"]:
            _save_model(_without_gate(plain, decided, stages[-1]), raw, model, transforms, seen, result, folder / MODEL)
        write(result, plain, folder)
        link = session.finish(plain)
        show(result, folder, link)
    return result


def _on_validation_classes(
    plain: Mapping[str, Any], raw: ZeroShotData, stages: list[Stage]
) -> tuple[Gate | None, list[Draw]]:
    """What the gate decided, if there is one, and the draws of validation classes, if anything needs them."""
    settings, gated = plain["evaluation"], plain["inference"]["gate"]
    general = settings["calibrate"] and settings["generalized"] and len(raw.y_test_seen) > 0
    if not gated and not settings["calibrate"]:
        return None, []
    if gated and not stages[-1].transductive:
        raise UserError(
            "inference.gate=true decides on a transductive rule, and this one is not; set inference.gate=false."
        )
    draws = validate(plain, raw, transform_data, n_draws=settings["n_draws"], seed=plain["seed"], general=general)
    return (gate(draws) if gated else None), draws


def _without_gate(plain: dict[str, Any], decided: Gate | None, left: Stage) -> dict[str, Any]:
    """The configuration of the rule that the gate left: a stored pipeline has nothing more to decide."""
    inference = {**plain["inference"], "gate": False}
    if decided is not None and not decided.used:
        inference["attributes"], inference["labels"] = left.pair
    return {**plain, "inference": inference}


def result_key(
    plain: Mapping[str, Any],
    data: ZeroShotData,
    model: Model,
    stages: list[Stage],
    selection: tuning.Selection | None = None,
    decided: Gate | None = None,
) -> dict[str, Any]:
    """What the result is a result of. Two results with the same key are repetitions of one experiment."""
    information = (
        "images and attributes of seen classes",
        "attributes of unseen classes",
        *(["attributes of each training image; class rows are means over images"] if data.Z_images is not None else []),
        *stages[-1].information,
        *(
            ["unlabelled test images: the mean spread of their scores, in the calibrated offset"]
            if _scaled(plain)
            else []
        ),
    )
    return {
        "experiment": plain["experiment"],
        "cell": plain["cell"],
        "dataset": {
            "name": data.name,
            "content": data.key.get("content"),
            # Where the files lie is in the configuration; the same data in another folder is the same data.
            "provenance": {k: v for k, v in data.key.get("provenance", {}).items() if k not in _PLACES},
            "semantics": {**plain["dataset"]["semantics"], **data.key.get("semantics", {})},
            "shuffle_attributes": plain["dataset"].get("shuffle_attributes"),
        },
        "feature": plain["feature"],
        "split": {"name": data.split, **data.key.get("split", {})},
        "model": {**{k: v for k, v in plain["model"].items() if k != "grid"},
                  "n_atoms_used": len(model.Dx_) if hasattr(model, "Dx_") else None,
                  "lam_used": getattr(model, "lam_", None)},
        "inference": plain["inference"],
        "gate": None if decided is None else dataclasses.asdict(decided),
        "evaluation": plain["evaluation"],
        "seed": plain["seed"],
        "selection": tuning.SELECTED if selection else "none: settings as given",
        "tune": {**plain["tune"], "chosen": selection.settings, "folds": selection.folds} if selection else None,
        "information_used": list(dict.fromkeys(information)),
    }  # fmt: skip


def _scaled(plain: Mapping[str, Any]) -> bool:
    return bool(plain["evaluation"]["generalized"] and plain["evaluation"]["calibrate"])


def versions() -> dict[str, str]:
    """Versions of what computed the result."""
    out = {"python": platform.python_version()}
    for package in ("zsl-cdl", "numpy", "scipy", "scikit-learn", "numba", "hydra-core", "mlflow"):
        try:
            out[package] = version(package)
        except PackageNotFoundError:
            out[package] = "not installed"
    return out


def _check_inference(plain: Mapping[str, Any], model: Model) -> None:
    """Refuse a pair that makes no sense before anything is fitted."""
    settings, allow = plain["inference"], tuple(plain.get("allow_targets", ()))
    attributes, labels = settings["attributes"], settings["labels"]
    for key in ("attributes", "labels", "attribute_scores", "anchors"):
        check_value(str, settings[key], f"inference.{key}")
    check_value(bool, settings["gate"], "inference.gate")
    for key in ("generalized", "calibrate"):
        check_value(bool, plain["evaluation"][key], f"evaluation.{key}")
    check_value(Count, plain["evaluation"]["n_draws"], "evaluation.n_draws")
    name = plain["model"].get("_target_", "").rpartition(".")[2]
    if attributes == "auto":
        attributes = "agnostic" if hasattr(model, "predict_attributes") else "own"
    for kind, chosen in (("attributes", attributes), ("labels", labels)):
        if chosen != "own":
            rules.check_settings(rules.find(kind, chosen, allow), settings)
    for key in ("attribute_scores", "anchors"):
        if settings[key] not in ("own", "auto"):
            rules.check_settings(rules.find("labels", settings[key], allow), settings)
    if labels == "own" and attributes != "own":
        raise UserError(
            f"inference.attributes={attributes} and inference.labels=own do not go together; own stands for "
            "a model's native scores and is chosen for both (inference=own)."
        )
    if attributes == "own":
        if labels != "own" and "Z_hat" in rules.asks_for(rules.find("labels", labels, allow)):
            raise UserError(
                f"inference.attributes=own and inference.labels={labels} do not go together; {labels} needs predicted "
                "attributes (inference.attributes=agnostic)."
            )
        return
    if not hasattr(model, "predict_attributes"):
        raise UserError(
            f"inference.attributes={attributes} needs predicted attributes, and {name} has none; use inference=own."
        )
    if "start" in rules.asks_for(rules.find("attributes", attributes, allow)) and not hasattr(model, "codes"):
        raise UserError(
            f"inference.attributes={attributes} needs dictionaries, and {name} has none; "
            "use inference.attributes=agnostic."
        )


def _check_tracking(settings: Mapping[str, Any]) -> None:
    """Refuse bad settings before the work rather than after it."""
    if settings["name"] != "none":
        check_value(Literal["warn", "raise"], settings["on_error"], "tracking.on_error")
        check_value(str, settings["experiment"], "tracking.experiment")
        check_value(str | None, settings["uri"], "tracking.uri")
        check_value(bool, settings["model"], "tracking.model")
        check_value(str | None, settings["register"], "tracking.register")


def _warn_if_suspicious(metrics: Mapping[str, float], data: ZeroShotData) -> None:
    """The silent failure of zero-shot code: labels that do not match their table give less than chance."""
    chance = 1 / len(data.unseen)
    if metrics.get("acc_class", 1.0) < chance / 2 and len(data.X_unseen) >= 50:
        log.warning(
            "acc_class is %.3f, far below chance (%.3f): do labels, class names and attribute rows agree?",
            metrics["acc_class"], chance,
        )  # fmt: skip


def _done_before(plain: Mapping[str, Any], digest: str) -> tuple[str, Result] | None:
    """Where a finished run of this digest is, and its record; run folders first, then the tracking store."""
    from zsl.tracking import finished_elsewhere

    folder = records.find(Path(plain["output_dir"]), digest)
    if folder is not None:
        found: tuple[str, dict[str, Any]] | None = (str(folder), records.read(folder / records.RESULTS))
    else:
        found = finished_elsewhere(plain, digest)
    if found is None:
        return None
    where, record = found
    record["metrics"] = {k: math.nan if v is None else v for k, v in record["metrics"].items()}
    known = {f.name for f in fields(Result)} & record.keys()
    return where, Result(**{k: record[k] for k in known}, arrays={}, stages=[])


def _save_model(
    plain: Mapping[str, Any],
    raw: ZeroShotData,
    model: Model,
    transforms: tuple[Any, Any],
    seen: Callable[[], Seen],
    result: Result,
    path: Path,
) -> None:
    """The fitted pipeline to ``model.npz``; a model that holds more than arrays costs a sentence, not the run."""
    groups = ("model", "inference", "feature", "dataset", "allow_targets")
    known = [*raw.seen, *raw.unseen]
    provenance = raw.key.get("provenance", {})
    pipeline = Pipeline(
        config={k: plain[k] for k in groups},
        model=model,
        feature=transforms[0],
        semantics=transforms[1],
        class_names=[raw.class_names[c] for c in known],
        attributes=raw.attributes[known],
        n_seen=len(raw.seen),
        example=np.asarray(raw.X_unseen[:2]),
        attribute_names=list(raw.attribute_names),
        seen=seen() if needs_seen(plain["inference"], tuple(plain["allow_targets"])) else None,
        about={
            "dataset": raw.name,
            "feature": raw.feature,
            "split": raw.split,
            "n_features": raw.X.shape[1],
            "network": provenance.get("network") or "",
            "digest": result.digest,
            "versions": result.versions,
        },
    )
    try:
        pipeline.save(path)
    except CannotBeSaved as error:
        log.warning("%s", error)


def _peak_rss_mb() -> float:
    """Peak resident memory of this process so far, in MB: of a sweep's jobs in one process, the largest so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024 * 1024 if sys.platform == "darwin" else 1024)
