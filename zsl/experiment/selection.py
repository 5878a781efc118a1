"""Settings chosen on validation classes: seen classes that are held out in turn, as if they were unseen."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from zsl.checks import Array
from zsl.classifier import ZeroShotClassifier
from zsl.data.dataset import ZeroShotData
from zsl.evaluation import class_accuracy
from zsl.experiment.search import Range, Settings, Space, optuna_trials
from zsl.experiment.setup import Setup
from zsl.model_selection.holdout import folds, held_out
from zsl.model_selection.one_standard_error import Choice, choose, distances
from zsl.progress import Bar

log = logging.getLogger(__name__)


@dataclass
class Selection:
    """What was chosen, and all that it was chosen from."""

    settings: Settings
    """The chosen settings, by configuration key"""
    trials: list[dict[str, Any]]
    """Of every trial: ``settings``, ``folds`` (mean per-class accuracy on each fold), ``acc_class`` (their mean)"""
    folds: list[list[str]]
    """Names of the classes held out in each fold"""
    acc_class: float
    """Mean accuracy of the chosen settings on validation classes"""


def select(setup: Setup, data: ZeroShotData) -> tuple[Setup, Selection | None]:
    """Try settings on every fold, and choose by the rule ``tune.rule``.

    Parameters
    ----------
    setup : Setup
        A trial is this setup with a few keys of its configuration changed. The setup's own settings are tried too.
        If ``setup.tuning`` is None, nothing is tried.
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
    given = setup.values(tuning.space)
    if tuning.search == "optuna":
        trials, found = _one_by_one(setup, data, sets, given)
    else:
        trials = tuning.trials()
        trials = trials if given in trials else [given, *trials]
        classifiers = [setup.with_settings(settings).classifier for settings in trials]
        by_fold = []
        with Bar(f"tuning {len(trials)} settings", len(trials) * len(sets)) as bar:
            for part in held_out(data, sets):
                by_fold.append(accuracies(classifiers, part, bar))
        found = [list(of_trial) for of_trial in zip(*by_fold)]
    accuracy = np.array([[one.mean() for one in of_trial] for of_trial in found])
    # With one published fold the classes take the place of folds.
    by_unit = accuracy if len(sets) > 1 else np.array([of_trial[0] for of_trial in found])
    choice = _choose(tuning.rule, trials, trials.index(given), by_unit, sets)
    chosen, mean = trials[choice.chosen], accuracy.mean(axis=1)
    _report(trials, choice, trials.index(given), mean, tuning.space)
    selection = Selection(
        settings=chosen,
        trials=[
            {"settings": s, "folds": [float(v) for v in a], "acc_class": float(m)}
            for s, a, m in zip(trials, accuracy, mean)
        ],
        folds=[[data.class_names[data.seen[c]] for c in held] for held in sets],
        acc_class=float(mean[choice.chosen]),
    )
    return setup.with_settings(chosen), selection


def _choose(rule: str, trials: Sequence[Settings], given: int, accuracy: Array, sets: Sequence[Array]) -> Choice:
    """The choice by the rule, from accuracies (T, J) by fold or, where there is one fold, by class."""
    n_folds = float(accuracy.shape[1])
    if len(sets) > 1:
        # Each division tests on every class once.
        n_folds *= len(np.unique(np.concatenate(sets))) / sum(map(len, sets))
    choice = choose(accuracy, distances(trials, given), given, n_folds)
    return choice if rule == "one_standard_error" else replace(choice, chosen=choice.best)


def _report(trials: Sequence[Settings], choice: Choice, given: int, mean: Array, space: Space) -> None:
    def words(i: int) -> str:
        return ", ".join(f"{key}={value}" for key, value in trials[i].items())

    if choice.chosen == given != choice.best:
        log.warning(
            "tuning keeps the settings as given (%s): the best of %d settings (%s) has accuracy %.3f on validation "
            "classes, the given ones %.3f, and the standard error of the difference is %.3f; with more seen classes it "
            "would be smaller.",
            words(given), len(trials), words(choice.best), mean[choice.best], mean[given], choice.error,
        )  # fmt: skip
        return
    log.info(
        "tuning chose %s of %d settings: accuracy %.3f on validation classes, as given %.3f, best %.3f (standard error "
        "of best minus given %.3f)",
        words(choice.chosen), len(trials), mean[choice.chosen], mean[given], mean[choice.best], choice.error,
    )  # fmt: skip
    if choice.chosen != given:
        _say_if_at_edge(trials[choice.chosen], space)


def accuracies(classifiers: Sequence[ZeroShotClassifier], data: ZeroShotData, bar: Bar) -> list[Array]:
    """Accuracy of each classifier on each class of one fold; what their fits share is computed once."""
    found: list[Array] = [np.empty(0)] * len(classifiers)
    for i, fitted in ZeroShotClassifier.fit_many(classifiers, data):
        scores = fitted.predict_stages(data.X_unseen).scores
        found[i] = np.array(list(class_accuracy(scores, data.y_unseen).values()))
        bar.step(accuracy=float(found[i].mean()))
    return found


def _one_by_one(
    setup: Setup, data: ZeroShotData, sets: Sequence[Array], given: Settings
) -> tuple[list[Settings], list[list[Array]]]:
    """Trials that depend on the values of the trials before; settings that are asked for again are not fitted again."""
    assert setup.tuning is not None
    known: dict[str, list[Array]] = {}
    tried: list[Settings] = []

    def try_out(settings: Settings, bar: Bar) -> float:
        name = json.dumps(settings, sort_keys=True, default=str)
        if name not in known:
            classifier = setup.with_settings(settings).classifier
            known[name] = [accuracies([classifier], part, bar)[0] for part in held_out(data, sets)]
            tried.append(settings)
        return float(np.mean([one.mean() for one in known[name]]))

    n = setup.tuning.n_trials
    trials = optuna_trials(setup.tuning.space, n, setup.tuning.seed)
    with Bar(f"tuning {n} settings", (n + 1) * len(sets)) as bar:
        try_out(given, bar)
        settings = next(trials)
        while True:
            try:
                settings = trials.send(try_out(settings, bar))
            except StopIteration:
                return tried, list(known.values())


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
