"""The numbers of a result: metrics by stage and by class, the generalised setting, and what certifies the fit."""

from __future__ import annotations

import resource
import sys
from typing import Any

import numpy as np

from zsl.checks import Array
from zsl.classifier import ZeroShotClassifier
from zsl.data.dataset import ZeroShotData
from zsl.evaluation import class_accuracy, evaluate, hubness_report
from zsl.evaluation.calibration import calibration_report
from zsl.evaluation.generalized import ausuc, gzsl
from zsl.inference import Prediction, Stage
from zsl.model_selection.decision import predict_generalized, spread


def metrics(
    fitted: ZeroShotClassifier, prediction: Prediction, data: ZeroShotData, *, generalized: bool
) -> dict[str, float]:
    """Every metric of a run by name.

    Parameters
    ----------
    fitted : ZeroShotClassifier
        With its decision.
    prediction : Prediction
        For ``data.X_unseen`` among the unseen classes.
    data : ZeroShotData
        Before pre-processing.
    generalized : bool
        Test seen and unseen classes together too, where the data has test images of seen classes.

    Returns
    -------
    dict
        Every stage's metrics as ``STAGE/NAME``, and the answer's under plain names.
    """
    Z = fitted.semantics_.transform(data.Z_unseen)
    found = of_stages(prediction, data.y_unseen, Z)
    known = data.y_unseen >= 0
    if known.any():
        if fitted.decision_.temperature is not None:
            scores = prediction.scores[known]
            found |= calibration_report(scores, data.y_unseen[known], fitted.decision_.temperature)
        if generalized and len(data.y_test_seen):
            found |= of_generalized(fitted, prediction, data)
    return found | certificates(fitted.model_, prediction)


def of_stages(prediction: Prediction, y: Array, Z: Array) -> dict[str, float]:
    """Metrics of every stage; Z (M, q) are the classes, pre-processed.

    Images of unknown class (``y`` is -1) count for hubness only; without any other image there is no accuracy.
    """
    known = y >= 0
    by_stage: dict[str, dict[str, float]] = {}
    before = None
    for stage in prediction.stages:
        accuracy = evaluate(stage.scores[known], y[known]) if known.any() else {}
        hubness = hubness_report(stage.scores, y, stage.Z_hat, None if stage.Z_hat is None else Z)
        expected = {"expected_hit_1": float(np.exp(stage.scores.max(axis=1)).mean())} if stage.calibrated else {}
        answer = stage.scores.argmax(axis=1)
        changed: dict[str, float] = {} if before is None else {"changed": float((answer != before).mean())}
        by_stage[stage.name], before = {**accuracy, **hubness, **expected, **changed}, answer
    out = dict(by_stage[prediction.chosen.name])
    for name, values in by_stage.items():
        out |= {f"{name}/{k}": v for k, v in values.items()}
    return out


def of_imbalanced(fitted: ZeroShotClassifier, data: ZeroShotData, rows: Array) -> dict[str, float]:
    """Accuracies of every stage on unseen classes of unequal size: ``imbalanced_NAME`` and ``STAGE/imbalanced_NAME``.

    ``rows`` are the test images that remain. Transductive rules predict again from these images alone.
    """
    prediction = fitted.predict_stages(data.X_unseen[rows])
    y, out = data.y_unseen[rows], dict[str, float]()
    known = y >= 0
    for stage in prediction.stages if known.any() else ():
        values = {f"imbalanced_{k}": v for k, v in evaluate(stage.scores[known], y[known]).items()}
        out |= {f"{stage.name}/{k}": v for k, v in values.items()}
        if stage is prediction.chosen:
            out |= values
    return out


def of_generalized(fitted: ZeroShotClassifier, prediction: Prediction, data: ZeroShotData) -> dict[str, float]:
    """Metrics of every stage where seen and unseen classes are tested together, at the calibrated offset if any."""
    everything, y = predict_generalized(fitted, data)
    is_seen = np.arange(len(data.seen) + len(data.unseen)) < len(data.seen)
    out: dict[str, float] = {}
    for stage in prediction.stages:
        scores = everything.stage(stage.name).scores
        offsets = fitted.decision_.offsets
        offset = offsets[stage.name] * spread(scores) if offsets else 0.0
        values = gzsl(scores, y, is_seen, offset) | {"gzsl_ausuc": ausuc(scores, y, is_seen)}
        if fitted.decision_.temperature is not None:
            values["gzsl_offset"] = offset
        out |= {f"{stage.name}/{k}": v for k, v in values.items()}
        if stage is prediction.chosen:
            out |= values
    return out


def certificates(model: Any, prediction: Prediction) -> dict[str, float]:
    """The final objective and, for models with codes, the largest duality gap of any code of a seen or a test image."""
    # The objective of both dictionaries where they are learned together, else that of the visual one.
    curve = getattr(model, "objective_", None) or getattr(model, "objective_x_", None)
    if not curve:
        return {}
    if not hasattr(model, "lasso_gap_max_"):  # a loss over epochs, of a model without codes
        return {"objective": float(curve[-1])}
    gap = max([float(model.lasso_gap_max_), *(stage.gap for stage in prediction.stages)])
    return {"lasso_gap_max": gap, "objective": float(curve[-1])}


def curves(model: Any) -> dict[str, list[float]]:
    """Objectives by iteration, where the model has them."""
    names = ("objective", "objective_x", "objective_z")
    return {name: list(values) for name in names if (values := getattr(model, name + "_", None))}


def per_class(prediction: Prediction, data: ZeroShotData) -> list[dict[str, Any]]:
    """One row per unseen class: name, images, times predicted, accuracy by stage (absent without images).

    Stages of calibrated rules also have the mean probability of the class over the images that got its name.
    """
    known = data.y_unseen >= 0
    y = data.y_unseen[known]
    accuracy = {s.name: class_accuracy(s.scores[known], y) if known.any() else {} for s in prediction.stages}
    certainty = {s.name: _certainty(s.scores) for s in prediction.stages if s.calibrated}
    predicted = np.bincount(prediction.scores.argmax(axis=1), minlength=len(data.unseen))
    return [
        {
            "class": name,
            "images": int((data.y_unseen == m).sum()),
            "predicted": int(predicted[m]),
            **{f"{stage}/acc": by_class.get(m) for stage, by_class in accuracy.items()},
            **{f"{stage}/certainty": by_class.get(m) for stage, by_class in certainty.items()},
        }
        for m, name in enumerate(data.unseen_names)
    ]


def _certainty(scores: Array) -> dict[int, float]:
    """By class: the mean probability of the class over the images that get its name, from log-probabilities (L, M)."""
    answer, best = scores.argmax(axis=1), np.exp(scores.max(axis=1))
    return {int(m): float(best[answer == m].mean()) for m in np.unique(answer)}


def confusion(stage: Stage, data: ZeroShotData) -> dict[str, dict[str, int]]:
    """Number of images by true and predicted class, without the empty cells."""
    known, names = data.y_unseen >= 0, data.unseen_names
    both = np.stack([data.y_unseen[known], stage.scores[known].argmax(axis=1)])
    pairs, counts = np.unique(both, axis=1, return_counts=True)
    out: dict[str, dict[str, int]] = {}
    for (true, predicted), count in zip(pairs.T.tolist(), counts.tolist()):
        out.setdefault(names[true], {})[names[predicted]] = count
    return out


def peak_rss_mb() -> float:
    """Peak memory of this process so far, in MB; earlier jobs of a sweep in the same process count as well."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024 * 1024 if sys.platform == "darwin" else 1024)
