"""What is decided on validation classes after the settings: whether a transductive step helps, and calibration.

Seen classes are drawn to stand for unseen ones, at least three at a time; the model is fitted to the others. No image,
label or attribute of an unseen class is read: :func:`zsl.experiment.selection.fold` leaves them behind.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np

from zsl.checks import Array
from zsl.config import build
from zsl.data.dataset import ZeroShotData
from zsl.evaluation import class_accuracy
from zsl.experiment.selection import fold
from zsl.inference.prediction import Stage, infer, without_transduction
from zsl.inference.statistics import seen_classes

log = logging.getLogger(__name__)

# With fewer classes to choose from, nearly every rule looks right.
_MIN_HELD, _MIN_KEPT = 3, 2
# Of each class that stays seen, the share of images put aside as its test images, for the generalised setting.
_TEST_SHARE = 0.2


@dataclass
class Draw:
    """One draw of validation classes."""

    classes: list[str]
    """Names of the classes held out"""
    stages: list[Stage]
    """On images of held-out classes, to be told apart among these"""
    y: Array
    """(L,) their labels"""
    general: list[Stage]
    """On images of all classes, to be told apart among all: columns are kept classes, then held-out ones; or empty"""
    y_general: Array
    """(L',) labels for those columns"""
    n_kept: int
    """Columns of ``general`` that were seen in training"""


@dataclass
class Gate:
    """Whether a transductive rule is used, and why."""

    used: bool
    reason: str
    gains: list[float]
    """Accuracy of the transductive rule less that of the inductive one, by draw"""
    gain: float = 0.0
    standard_error: float = 0.0
    """Of the mean gain, see :func:`standard_error`"""


def draws_of(n_classes: int, n_unseen: int, n_draws: int, seed: int) -> list[Array]:
    """Different sets of seen classes to hold out: as many as are unseen, at most a quarter, at least three.

    Empty where fewer than two classes would stay.
    """
    size = max(_MIN_HELD, min(n_unseen, n_classes // 4))
    if n_classes - size < _MIN_KEPT:
        return []
    rng = np.random.default_rng(seed)
    found: dict[tuple[int, ...], None] = {}
    for _ in range(20 * n_draws):  # few classes have few different sets
        found[tuple(sorted(rng.permutation(n_classes)[:size].tolist()))] = None
        if len(found) == n_draws:
            break
    return [np.array(s) for s in found]


def validate(
    plain: Mapping[str, Any],
    data: ZeroShotData,
    transform: Callable[[Mapping[str, Any], ZeroShotData], ZeroShotData],
    *,
    n_draws: int,
    seed: int,
    general: bool = False,
) -> list[Draw]:
    """Fit and infer on every draw; ``data`` is before pre-processing, which each draw fits anew.

    ``general`` puts images of the kept classes aside as test images, and infers among all classes too.
    """
    out = []
    held_sets = draws_of(len(data.seen), len(data.unseen), n_draws, seed)
    for i, held in enumerate(held_sets):
        part = fold(data, held)
        if general:
            part = _put_aside(part, seed + i)
        ready = transform(plain, part)
        model = build(plain["model"], "model", allow_targets=plain["allow_targets"])
        model.fit(ready.X, ready.y, ready.Z, ready.Z_unseen)
        kept = cache(partial(seen_classes, model, ready.X, ready.y, ready.Z))
        stages = infer(plain, model, ready.X_unseen, ready.Z_unseen, kept)
        everything: list[Stage] = []
        y_all = np.empty(0, dtype=np.int64)
        if general:
            everything, y_all = infer_generalized(plain, model, ready, kept)
        names = [data.class_names[data.seen[c]] for c in held]
        out.append(Draw(names, stages, ready.y_unseen, everything, y_all, len(ready.seen)))
        log.info("validation: draw %d of %d", i + 1, len(held_sets))
    return out


def infer_generalized(
    plain: Mapping[str, Any], model: Any, data: ZeroShotData, seen: Callable[[], Any]
) -> tuple[list[Stage], Array]:
    """Stages on test images of seen and unseen classes together, among all classes (seen first), and their labels."""
    known = data.y_unseen >= 0
    X = np.vstack([data.X_test_seen, data.X_unseen[known]])
    y = np.concatenate([data.y_test_seen, data.y_unseen[known] + len(data.seen)])
    return infer(plain, model, X, np.vstack([data.Z_seen, data.Z_unseen]), seen), y


def gate(draws: list[Draw]) -> Gate:
    """Use the transductive rule if it gains more than one standard error on validation classes."""
    gains = []
    for draw in draws:
        inductive = without_transduction(draw.stages)[-1]
        gains.append(_accuracy(draw.stages[-1], draw.y) - _accuracy(inductive, draw.y))
    if len(gains) < 2:
        return Gate(False, "too few seen classes to hold three out twice", gains)
    gain, error = float(np.mean(gains)), standard_error(gains)
    used = gain > error
    reason = f"gain {gain:.3f} on validation classes, standard error {error:.3f}"
    log.info("gate: the transductive step is %s (%s)", "used" if used else "not used", reason)
    return Gate(used, reason, gains, gain, error)


def standard_error(values: list[float]) -> float:
    """Of a mean over draws. Draws share classes, so the true one is somewhat larger; the record keeps every gain."""
    return float(np.std(values, ddof=1) / np.sqrt(len(values)))


def _accuracy(stage: Stage, y: Array) -> float:
    return float(np.mean(list(class_accuracy(stage.scores, y).values())))


def _put_aside(data: ZeroShotData, seed: int) -> ZeroShotData:
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(data.y))
    aside = np.zeros(len(data.y), dtype=bool)
    for c in range(len(data.seen)):
        mine = order[data.y[order] == c]
        aside[mine[: int(_TEST_SHARE * len(mine))]] = True
    per_image = {
        name: value[~aside] for name in ("Z_images", "imputed_images") if (value := getattr(data, name)) is not None
    }
    return replace(
        data,
        X=data.X[~aside],
        y=data.y[~aside],
        X_test_seen=data.X[aside],
        y_test_seen=data.y[aside],
        **per_image,
    )
