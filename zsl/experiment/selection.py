"""Settings chosen on validation classes: seen classes that are held out in turn, as if they were unseen."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from zsl.checks import Array
from zsl.classifier import ZeroShotClassifier
from zsl.data.dataset import ZeroShotData
from zsl.evaluation import class_accuracy
from zsl.experiment.search import Range, Settings, Space
from zsl.experiment.setup import Setup
from zsl.model_selection.holdout import folds, held_out
from zsl.progress import Bar

log = logging.getLogger(__name__)


@dataclass
class Selection:
    """What was chosen, and all that it was chosen from."""

    settings: Settings
    """The best trial's settings, by configuration key"""
    trials: list[dict[str, Any]]
    """Of every trial: ``settings``, ``folds`` (mean per-class accuracy on each fold), ``acc_class`` (their mean)"""
    folds: list[list[str]]
    """Names of the classes held out in each fold"""

    @property
    def acc_class(self) -> float:
        """The best trial's mean accuracy on validation classes."""
        return max(trial["acc_class"] for trial in self.trials)


def select(setup: Setup, data: ZeroShotData) -> tuple[Setup, Selection | None]:
    """Try settings on every fold, and take those of the best mean accuracy over folds (the first among equals).

    Parameters
    ----------
    setup : Setup
        A trial is this setup with a few keys of its configuration changed. Without ``tuning`` nothing is tried.
    data : ZeroShotData
        Before pre-processing, which every fold fits anew on its own training images.

    Returns
    -------
    The setup with the chosen settings, and the selection or None.

    Raises
    ------
    UserError
        For a grid that is empty or names keys that do not exist or may not vary.
    """
    tuning = setup.tuning
    if tuning is None:
        return setup, None
    sets = folds(data, tuning.n_folds, tuning.seed, tuning.repeats)
    # A wrong key ends here, before any work.
    setup.with_settings({key: v.low if isinstance(v, Range) else v[0] for key, v in tuning.space.items()})
    if tuning.search == "optuna":
        trials, accuracy = _one_by_one(setup, data, sets)
    else:
        trials = tuning.trials()
        classifiers = [setup.with_settings(settings).classifier for settings in trials]
        accuracy = np.empty((len(trials), len(sets)))
        with Bar(f"tuning {len(trials)} settings", len(trials) * len(sets)) as bar:
            for f, part in enumerate(held_out(data, sets)):
                accuracy[:, f] = accuracies(classifiers, part, bar)
    mean = accuracy.mean(axis=1)
    error = accuracy[int(mean.argmax())].std(ddof=1) / np.sqrt(len(sets)) if len(sets) > 1 else np.nan
    best = trials[int(mean.argmax())]
    _say_if_at_edge(best, tuning.space)
    log.info(
        "tuning chose %s of %d settings: accuracy %.3f on validation classes, standard error %.3f over %d folds",
        ", ".join(f"{k}={v}" for k, v in best.items()), len(trials), mean.max(), error, len(sets),
    )  # fmt: skip
    selection = Selection(
        settings=best,
        trials=[
            {"settings": s, "folds": [float(v) for v in a], "acc_class": float(m)}
            for s, a, m in zip(trials, accuracy, mean)
        ],
        folds=[[data.class_names[data.seen[c]] for c in held] for held in sets],
    )
    return setup.with_settings(best), selection


def accuracies(classifiers: Sequence[ZeroShotClassifier], data: ZeroShotData, bar: Bar) -> list[float]:
    """Mean per-class accuracy of each classifier on one fold; what their fits share is computed once."""
    found = [0.0] * len(classifiers)
    for i, fitted in ZeroShotClassifier.fit_many(classifiers, data):
        scores = fitted.predict_stages(data.X_unseen).scores
        found[i] = float(np.mean(list(class_accuracy(scores, data.y_unseen).values())))
        bar.step(accuracy=found[i])
    return found


def _one_by_one(setup: Setup, data: ZeroShotData, sets: Sequence[Array]) -> tuple[list[Settings], Array]:
    """Trials that depend on the values of the trials before; settings that are asked for again are not fitted again."""
    assert setup.tuning is not None
    tried: list[Settings] = []
    rows: list[list[float]] = []
    known: dict[str, list[float]] = {}
    trials = setup.tuning.suggestions()
    settings = next(trials)
    with Bar(f"tuning {setup.tuning.n_trials} settings", setup.tuning.n_trials * len(sets)) as bar:
        while True:
            name = json.dumps(settings, sort_keys=True, default=str)
            if name not in known:
                classifier = setup.with_settings(settings).classifier
                known[name] = [accuracies([classifier], part, bar)[0] for part in held_out(data, sets)]
            tried.append(settings)
            rows.append(known[name])
            try:
                settings = trials.send(float(np.mean(known[name])))
            except StopIteration:
                return tried, np.array(rows)


def _say_if_at_edge(chosen: Settings, space: Space) -> None:
    """A best value at the end of a range of numbers says that the range may be too narrow."""
    for key, values in space.items():
        if isinstance(values, Range):
            edge = values.at_edge(chosen[key])
        else:
            numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
            edge = len(numbers) == len(values) > 2 and chosen[key] in (min(numbers), max(numbers))
        if edge:
            log.info(
                "tuning: the chosen %s=%s is at the edge of its grid; a wider grid may be better", key, chosen[key]
            )
