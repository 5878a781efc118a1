"""One run, from a configuration to a recorded result: the only place where the stages meet."""

from __future__ import annotations

import logging
import platform
import resource
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from zsl import tuning
from zsl.checks import Array, Seed, check_value
from zsl.config import build, compose, options, resolve
from zsl.data.dataset import ZeroShotData
from zsl.data.load import check_missing, load_table, load_transforms
from zsl.data.transforms import preprocess
from zsl.errors import UserError
from zsl.evaluation import class_accuracy, evaluate, hubness_skew
from zsl.inference import agnostic, rules
from zsl.models.base import Model

if TYPE_CHECKING:
    from omegaconf import DictConfig

log = logging.getLogger(__name__)

# Parts of a reader's provenance that say where, not what.
_PLACES = ("root", "missing_splits")
# The paper's names for pairs of rules; any other pair is called by both.
_STAGE_NAMES = {("agnostic", "nearest"): "aag", ("aware", "nearest"): "aaw", ("aware", "spread"): "taaw"}


@dataclass
class Stage:
    """Scores of one pair of rules."""

    name: str
    scores: Array
    """(L, M)"""
    Z_hat: Array | None
    """(L, q) predicted attributes; None for native scores."""
    information: tuple[str, ...]
    gap: float = 0.0
    """Largest duality gap of the test images' codes, where there are any with a certificate."""


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


def run(cfg: DictConfig, folder: Path | None = None) -> Result:
    """Compose, load, fit, predict, evaluate, record.

    Parameters
    ----------
    cfg : DictConfig
        From the command line or :func:`zsl.config.compose`.
    folder : Path, optional
        Where the run's files go, before anything is sent to the tracking store; ``None`` writes and tracks nothing.

    Raises
    ------
    UserError
        For whatever is wrong with the configuration or the data, in a sentence.
    """
    plain = resolve(cfg)
    check_value(Seed, plain["seed"], "seed")
    _preprocessing(plain)  # what is wrong with it is said before anything is read
    model: Model = build(plain["model"], "model", allow_targets=plain["allow_targets"])
    _check_inference(plain, model)
    if folder is not None:
        _check_tracking(plain["tracking"])
    raw = read_data(plain)
    selection = None
    if plain["tune"]["name"] != "none":
        selected = time.perf_counter()
        selection = tuning.select(cfg, raw, resolve=resolve, transform=transform_data, infer=infer)
        plain = resolve(tuning.changed(cfg, selection.settings))
        model = build(plain["model"], "model", allow_targets=plain["allow_targets"])
        selected = time.perf_counter() - selected
    data = transform_data(plain, raw)

    start = time.perf_counter()
    model.fit(data.X, data.y, data.Z, data.Z_unseen)
    fitted = time.perf_counter()
    stages = infer(plain, model, data.X_unseen, data.Z_unseen)
    inferred = time.perf_counter()

    metrics = summarise(stages, data.y_unseen)
    metrics |= certificates(model, stages)
    metrics["time_fit_s"], metrics["time_infer_s"] = fitted - start, inferred - fitted
    if selection is not None:
        metrics["time_tune_s"] = selected
        metrics["tune_acc_class"] = max(trial["acc_class"] for trial in selection.trials)
    metrics["peak_rss_mb"] = _peak_rss_mb()
    result = Result(
        key=result_key(plain, data, model, stages, selection),
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
    )
    _warn_if_suspicious(metrics, data)
    if folder is not None:
        from zsl.report.run import show, write, write_predictions

        column, images = ("file", data.names_unseen) if data.names_unseen else ("row", data.rows_unseen)
        write_predictions(images, data.unseen_names, stages[-1].scores, data.y_unseen, folder, column=column)
        write(result, plain, folder)
        link = _track(result, plain, folder)
        show(result, folder, link)
    return result


def load_data(plain: Mapping[str, Any]) -> ZeroShotData:
    """Read, split, shuffle where asked, and pre-process, as the groups dataset, split and feature say."""
    _preprocessing(plain)  # what is wrong with it is said before anything is read
    return transform_data(plain, read_data(plain))


def read_data(plain: Mapping[str, Any]) -> ZeroShotData:
    """Read, split and shuffle where asked: the data before pre-processing."""
    dataset, feature, split = plain["dataset"], plain["feature"], plain["split"]
    allow = plain.get("allow_targets", ())
    _check_split(split, dataset["name"])
    chosen = dataset["semantics"]
    missing = chosen.get("missing", "mean")
    check_missing(missing)
    for node, group in ((dataset, "dataset"), (feature, "feature"), (split, "split")):
        if not isinstance(node.get("name"), str):
            raise UserError(f"{group}.name={node.get('name')!r} is not text; quote it: {group}.name=\"'...'\".")
    table = load_table(dataset, feature["name"], chosen.get("source"), allow)
    for doubt in table.doubts():
        log.warning("%s", doubt)
    data = ZeroShotData.from_table(table, build(split, "split", allow_targets=allow)(table), missing=missing)
    shuffle = dataset.get("shuffle_attributes")
    check_value(Seed | None, shuffle, "dataset.shuffle_attributes")
    if shuffle is not None:
        data = data.shuffle_attributes(shuffle)
    return data


def transform_data(plain: Mapping[str, Any], data: ZeroShotData) -> ZeroShotData:
    """Pre-process as the groups feature and dataset say, fitted on the training rows."""
    return preprocess(data, *_preprocessing(plain))


def _preprocessing(plain: Mapping[str, Any]) -> tuple[Any, Any]:
    """The transforms of features and of attributes."""
    return load_transforms(plain["dataset"], plain["feature"], plain.get("allow_targets", ()))


def load_dataset(
    name: str,
    *,
    feature: str | None = None,
    split: str | None = None,
    overrides: tuple[str, ...] = (),
    **settings: Any,
) -> ZeroShotData:
    """The data that the command line would use: ``load_dataset("xlsa17", root=..., feature="lite0_pca128")``.

    Parameters
    ----------
    name : str
        An option of the group ``dataset``.
    feature : str, optional
        An option of the group ``feature``, or the name of a stored feature.
    split : str, optional
        An option of the group ``split``; ``None``: the dataset's own default.
    overrides : tuple of str
        Further overrides, as on the command line: ``("split.seed=3", "feature.pca=64")``.
    settings : keys of the dataset, such as ``root``.
    """
    arguments = [f"dataset={name}"]
    if feature is not None:
        arguments.append(f"feature={feature}" if feature in options("feature") else f"feature.name='{feature}'")
    if split is not None:
        arguments.append(f"split={split}")
    cfg = compose([*arguments, *overrides])
    for key, value in settings.items():
        keys = [str(k) for k in cfg.dataset]
        if key not in keys:  # `in cfg.dataset` is false for a key that still needs a value
            raise UserError(f"dataset.{key} does not exist; dataset={name} has: {', '.join(keys)}.")
        cfg.dataset[key] = str(value) if isinstance(value, Path) else value
    return load_data(resolve(cfg))


def infer(plain: Mapping[str, Any], model: Model, X: Array, Z: Array) -> list[Stage]:
    """Scores of images X (L, p) for classes Z (C, q) by the pair of rules asked for, and by those on the way to it.

    A pair (attributes, labels) passes through (agnostic, nearest) and, if the attributes are aware, (aware, nearest).
    """
    settings, allow = plain["inference"], tuple(plain.get("allow_targets", ()))
    attributes, labels = settings["attributes"], settings["labels"]
    trained_with = tuple(getattr(model, "information", ()))
    if attributes == "own":
        return [Stage("own", np.asarray(model.scores(X, Z)), None, trained_with)]
    given: dict[str, Any] = {"model": model, "X": X, "Z_unseen": Z, "start": None}
    predicted = {"agnostic": agnostic(model, X)}  # type: ignore[arg-type]
    if attributes != "agnostic":
        given["start"] = predicted["agnostic"]
        predicted[attributes] = rules.call(rules.find("attributes", attributes, allow), given, settings)
    pairs = [("agnostic", "nearest"), (attributes, "nearest"), (attributes, labels)]
    stages = []
    for pair in dict.fromkeys(pairs):
        rule = rules.find("labels", pair[1], allow)
        scores = rules.call(
            rule, {**given, "Z_hat": predicted[pair[0]].Z_hat, "attributes": predicted[pair[0]]}, settings
        )
        used = trained_with + rules.information(rules.find("attributes", pair[0], allow)) + rules.information(rule)
        codes = predicted[pair[0]].codes
        # Aware codes have no certificate (NaN); the agnostic ones they start from do, and are a stage too.
        gap = 0.0 if codes is None or np.isnan(codes.gap).any() else float(codes.gap.max())
        name = _STAGE_NAMES.get(pair, "_".join(pair))
        stages.append(Stage(name, np.asarray(scores), predicted[pair[0]].Z_hat, tuple(dict.fromkeys(used)), gap))
    return stages


def summarise(stages: list[Stage], y: Array) -> dict[str, float]:
    """Every stage's metrics as ``STAGE/NAME``, the last one's also under plain names.

    Images of unknown class (``y`` -1) count for hubness only; without any other there is no accuracy.
    """
    metrics: dict[str, float] = {}
    known = y >= 0
    for stage in stages:
        accuracy = evaluate(stage.scores[known], y[known]) if known.any() else {}
        found = {**accuracy, "hubness_skew": hubness_skew(stage.scores)}
        metrics |= {f"{stage.name}/{k}": v for k, v in found.items()}
    return {**found, **metrics}


def certificates(model: Model, stages: list[Stage]) -> dict[str, float]:
    """What proves the fit: the largest gap of any code, seen or test, and the final objective, for models with codes"""
    # Of both dictionaries where they are learned together, else of the visual one.
    curve = getattr(model, "objective_", None) or getattr(model, "objective_x_", None)
    if not curve:
        return {}
    gap = max([float(model.lasso_gap_max_), *(stage.gap for stage in stages)])  # type: ignore[attr-defined]
    return {"lasso_gap_max": gap, "objective": float(curve[-1])}


def per_class(stages: list[Stage], data: ZeroShotData) -> list[dict[str, Any]]:
    """One row per unseen class; accuracies are absent for a class without images."""
    known = data.y_unseen >= 0
    accuracy = {stage.name: class_accuracy(stage.scores[known], data.y_unseen[known]) for stage in stages}
    predicted = np.bincount(stages[-1].scores.argmax(axis=1), minlength=len(data.unseen))
    return [
        {
            "class": name,
            "images": int((data.y_unseen == m).sum()),
            "predicted": int(predicted[m]),
            **{f"{stage}/acc": by_class.get(m) for stage, by_class in accuracy.items()},
        }
        for m, name in enumerate(data.unseen_names)
    ]


def result_key(
    plain: Mapping[str, Any],
    data: ZeroShotData,
    model: Model,
    stages: list[Stage],
    selection: tuning.Selection | None = None,
) -> dict[str, Any]:
    """What the result is a result of. Two results with the same key are repetitions of one experiment."""
    information = (
        "images and attributes of seen classes",
        "attributes of unseen classes",
        *(["attributes of each training image; class rows are means over images"] if data.Z_images is not None else []),
        *stages[-1].information,
    )
    return {
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
        "seed": plain["seed"],
        "selection": tuning.SELECTED if selection else "none: settings as given",
        "tune": {**plain["tune"], "chosen": selection.settings, "folds": selection.folds} if selection else None,
        "information_used": list(dict.fromkeys(information)),
    }  # fmt: skip


def versions() -> dict[str, str]:
    """Versions of what computed the result."""
    out = {"python": platform.python_version()}
    for package in ("zsl-cdl", "numpy", "scipy", "scikit-learn", "numba", "hydra-core", "mlflow"):
        try:
            out[package] = version(package)
        except PackageNotFoundError:
            out[package] = "not installed"
    return out


def _check_split(split: Mapping[str, Any], dataset: str) -> None:
    """Refuse a split that belongs to other datasets, naming those that go with this one."""
    belongs = split.get("datasets")
    if belongs is None or dataset in belongs:
        return
    # A dataset of the user's own is not listed anywhere; whatever its reader offers may be asked for.
    if dataset not in options("dataset"):
        return
    valid = []
    for name in options("split"):
        other = compose([f"split={name}"]).split.get("datasets")
        if other is None or dataset in other:
            valid.append(name)
    raise UserError(
        f"split={split['name']} belongs to dataset={', '.join(belongs)}; dataset={dataset} has: {', '.join(valid)}."
    )


def _check_inference(plain: Mapping[str, Any], model: Model) -> None:
    """Refuse a pair that makes no sense before anything is fitted."""
    settings, allow = plain["inference"], tuple(plain.get("allow_targets", ()))
    attributes, labels = settings["attributes"], settings["labels"]
    for kind in ("attributes", "labels"):
        check_value(str, settings[kind], f"inference.{kind}")
    if (attributes == "own") != (labels == "own"):
        raise UserError(
            f"inference.attributes={attributes} and inference.labels={labels} do not go together; own stands for "
            "a model's native scores and is chosen for both (inference=own)."
        )
    if attributes == "own":
        return
    for kind in ("attributes", "labels"):
        rules.check_settings(rules.find(kind, settings[kind], allow), settings)
    name = plain["model"].get("_target_", "").rpartition(".")[2]
    if not hasattr(model, "predict_attributes"):
        raise UserError(
            f"inference.attributes={attributes} needs predicted attributes, and {name} has none; use inference=own."
        )
    if "start" in rules.find("attributes", attributes, allow).__code__.co_varnames and not hasattr(model, "codes"):
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


def _warn_if_suspicious(metrics: Mapping[str, float], data: ZeroShotData) -> None:
    """The silent failure of zero-shot code: labels that do not match their table give less than chance."""
    chance = 1 / len(data.unseen)
    if metrics.get("acc_class", 1.0) < chance / 2 and len(data.X_unseen) >= 50:
        log.warning(
            "acc_class is %.3f, far below chance (%.3f): do labels, class names and attribute rows agree?",
            metrics["acc_class"], chance,
        )  # fmt: skip


def _track(result: Result, plain: Mapping[str, Any], folder: Path) -> str | None:
    """Send the run to the tracking store; whatever goes wrong there, the run folder is complete already."""
    if plain["tracking"]["name"] == "none":
        return None
    from zsl.tracking import log_run

    return log_run(result, plain, folder)


def _peak_rss_mb() -> float:
    """Peak resident memory of this process so far, in MB: of a sweep's jobs in one process, the largest so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024 * 1024 if sys.platform == "darwin" else 1024)
