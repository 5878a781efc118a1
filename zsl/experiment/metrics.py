"""What a run found, in numbers: metrics by stage and class, of the generalised setting, and what proves the fit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from zsl.checks import Array
from zsl.data.dataset import ZeroShotData
from zsl.evaluation import class_accuracy, evaluate, hubness_report
from zsl.evaluation.calibration import calibration_report, fit_temperature, nll
from zsl.evaluation.generalized import ausuc, best_offset, gzsl
from zsl.experiment.decision import Draw, infer_generalized
from zsl.inference.prediction import Stage
from zsl.inference.statistics import Seen
from zsl.models.base import Model

log = logging.getLogger(__name__)

# Share of the NLL of equal probabilities, log C, from which scores on validation classes say nothing.
_SAYS_NOTHING = 0.98


def summarise(stages: list[Stage], y: Array, Z: Array) -> dict[str, float]:
    """Every stage's metrics as ``STAGE/NAME``, the last one's also under plain names; Z (M, q) are the classes.

    Images of unknown class (``y`` -1) count for hubness only; without any other there is no accuracy.
    """
    metrics: dict[str, float] = {}
    known = y >= 0
    for stage in stages:
        accuracy = evaluate(stage.scores[known], y[known]) if known.any() else {}
        found = {**accuracy, **hubness_report(stage.scores, y, stage.Z_hat, None if stage.Z_hat is None else Z)}
        metrics |= {f"{stage.name}/{k}": v for k, v in found.items()}
    return {**found, **metrics}


def generalized_metrics(
    plain: Mapping[str, Any],
    model: Model,
    data: ZeroShotData,
    seen: Callable[[], Seen],
    draws: list[Draw],
    stages: list[Stage],
) -> dict[str, float]:
    """Metrics of the generalised setting, where there are test images of seen classes, and of calibration."""
    settings = plain["evaluation"]
    metrics: dict[str, float] = {}
    known = data.y_unseen >= 0
    if settings["calibrate"] and draws and known.any():
        temperature = common_temperature([(_called(stages[-1].name, draw.stages).scores, draw.y) for draw in draws])
        metrics |= calibration_report(stages[-1].scores[known], data.y_unseen[known], temperature)
    if not settings["generalized"] or not len(data.y_test_seen) or not known.any():
        return metrics
    everything, y = infer_generalized(plain, model, data, seen)
    is_seen = np.arange(len(data.seen) + len(data.unseen)) < len(data.seen)
    for stage in stages:
        scores = _called(stage.name, everything).scores
        offset = 0.0
        if draws and draws[0].general:
            # In units of the scores' spread, which differs between fits to more and to fewer classes; the median,
            # because of a few draws one with odd classes would move the mean.
            relative = [_best_offset(stage.name, draw) for draw in draws]
            offset = float(np.median(relative)) * spread(scores)
        values = gzsl(scores, y, is_seen, offset) | {"gzsl_ausuc": ausuc(scores, y, is_seen)}
        if draws:
            values["gzsl_offset"] = offset
        metrics |= {f"{stage.name}/{k}": v for k, v in values.items()}
    return {**metrics, **values}


def common_temperature(found: list[tuple[Array, Array]]) -> float:
    """The temperature with the least mean NLL over the images of all draws: scores (L, C) and labels (L,) of each.

    One for all of them, for a draw that is told apart without a mistake has none of its own, and one that is not told
    apart at all would make all probabilities equal. If they come out so, it is said.
    """
    scores, y = np.vstack([scores for scores, _ in found]), np.concatenate([y for _, y in found])
    temperature = fit_temperature(scores, y)
    if nll(scores, y, temperature) > _SAYS_NOTHING * np.log(scores.shape[1]):
        log.warning(
            "the scores of validation classes hardly tell them apart, so that calibrated probabilities are near equal "
            "(temperature %.3g); the true ones may be surer if test classes are easier.", temperature,
        )  # fmt: skip
    return temperature


def _best_offset(name: str, draw: Draw) -> float:
    is_seen = np.arange(draw.n_kept + len(draw.classes)) < draw.n_kept
    scores = _called(name, draw.general).scores
    return best_offset(scores, draw.y_general, is_seen) / spread(scores)


def spread(scores: Array) -> float:
    """Mean over images of the standard deviation of their scores (L, C) over classes; 1 where all scores are equal.

    Of what the test images have, the calibrated offset uses this one number, and no label.
    """
    return float(np.asarray(scores, dtype=np.float64).std(axis=1).mean()) or 1.0


def _called(name: str, stages: list[Stage]) -> Stage:
    return next(stage for stage in stages if stage.name == name)


def certificates(model: Model, stages: list[Stage]) -> dict[str, float]:
    """What proves the fit: the largest gap of any code, seen or test, and the final objective, for models with codes"""
    # Of both dictionaries where they are learned together, else of the visual one.
    curve = getattr(model, "objective_", None) or getattr(model, "objective_x_", None)
    if not curve:
        return {}
    if not hasattr(model, "lasso_gap_max_"):  # a loss over epochs, of a model without codes
        return {"objective": float(curve[-1])}
    gap = max([float(model.lasso_gap_max_), *(stage.gap for stage in stages)])
    return {"lasso_gap_max": gap, "objective": float(curve[-1])}


def per_class(stages: list[Stage], data: ZeroShotData) -> list[dict[str, Any]]:
    """One row per unseen class; accuracies are absent for a class without images."""
    known = data.y_unseen >= 0
    y = data.y_unseen[known]
    accuracy = {s.name: class_accuracy(s.scores[known], y) if known.any() else {} for s in stages}
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


def confusion(stage: Stage, data: ZeroShotData) -> dict[str, dict[str, int]]:
    """Images by true class and predicted class, without the empty cells: no more of them than images."""
    known, names = data.y_unseen >= 0, data.unseen_names
    both = np.stack([data.y_unseen[known], stage.scores[known].argmax(axis=1)])
    pairs, counts = np.unique(both, axis=1, return_counts=True)
    out: dict[str, dict[str, int]] = {}
    for (true, predicted), count in zip(pairs.T.tolist(), counts.tolist()):
        out.setdefault(names[true], {})[names[predicted]] = count
    return out
