"""Settings chosen on validation classes: seen classes held out in turn, as if they were unseen.

Nothing here reads an image, a label or the attributes of an unseen class: :func:`fold` leaves them behind.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from zsl.checks import Array, Count, Seed, check_arguments
from zsl.config import build
from zsl.data import splits
from zsl.data.dataset import ZeroShotData
from zsl.errors import UserError
from zsl.evaluation import class_accuracy
from zsl.experiment.search import Range, Settings, Space, optuna_trials, space_of, trials_of
from zsl.inference.statistics import seen_classes

if TYPE_CHECKING:
    from omegaconf import DictConfig

log = logging.getLogger(__name__)

SELECTED = "selected on validation classes"
# Said instead where somebody chooses among runs by their accuracy on the unseen classes.
ORACLE = "oracle: selected on test classes"
# Classes that a fold should hold at least: with two, half of all guesses are right.
_MIN_CLASSES = 3


@dataclass
class Selection:
    """What was chosen, and all that it was chosen from."""

    settings: Settings
    """The best trial's, by configuration key."""
    trials: list[dict[str, Any]]
    """Of every trial: settings, ``folds`` (mean per-class accuracy on each fold's held-out classes), ``acc_class``."""
    folds: list[list[str]]
    """Names of the classes held out in each fold."""


def select(
    cfg: DictConfig,
    data: ZeroShotData,
    *,
    resolve: Callable[[DictConfig], dict[str, Any]],
    transform: Callable[[Mapping[str, Any], ZeroShotData], ZeroShotData],
    infer: Callable[..., Sequence[Any]],
) -> Selection:
    """Try settings on every fold and choose those of best mean accuracy over folds (the first among equals).

    Parameters
    ----------
    cfg : DictConfig
        The configuration with ``tune=class_cv``; a trial is this one with a few keys changed.
    data : ZeroShotData
        Before pre-processing: each fold fits it anew on its own training rows.
    resolve, transform, infer
        The stages of :mod:`zsl.experiment.run`: configuration to dictionaries, pre-processing, scores of test images.

    Raises
    ------
    UserError
        For a grid that is empty or names keys that do not exist or may not vary.
    """
    plain = resolve(cfg)
    tune = {k: v for k, v in plain["tune"].items() if k != "name"}
    grid = tune["grid"] if tune["grid"] is not None else own_grid(plain["model"])
    given = {"grid": grid, **{k: tune[k] for k in ("search", "n_trials", "seed")}}
    check_arguments(trials_of, given, prefix="tune.")
    check_arguments(validation_folds, {k: tune[k] for k in ("n_folds", "repeats")}, prefix="tune.")
    space = space_of(grid)
    held = validation_folds(data, tune["n_folds"], tune["seed"], tune["repeats"])
    stages = (transform, infer)
    if tune["search"] == "optuna":
        changed(cfg, {key: _any_of(values) for key, values in space.items()})  # a wrong key is said before any work
        trials, accuracy = _one_by_one(
            optuna_trials(space, tune["n_trials"], tune["seed"]), lambda s: resolve(changed(cfg, s)), data, held, stages
        )
    else:
        trials = trials_of(**given)
        configurations = [resolve(changed(cfg, settings)) for settings in trials]
        accuracy = np.empty((len(trials), len(held)))
        for f, classes in enumerate(held):
            accuracy[:, f] = assess(fold(data, classes), configurations, *stages)
            log.info("tune: fold %d of %d, best accuracy %.3f", f + 1, len(held), accuracy[:, f].max())
    mean = accuracy.mean(axis=1)
    best = int(mean.argmax())
    _warn_at_edge(trials[best], space)
    log.info("tune: %d trials, chosen %s with %.3f on validation classes", len(trials), trials[best], mean[best])
    return Selection(
        settings=trials[best],
        trials=[
            {"settings": s, "folds": [float(v) for v in a], "acc_class": float(m)}
            for s, a, m in zip(trials, accuracy, mean)
        ],
        folds=[[data.class_names[data.seen[c]] for c in classes] for classes in held],
    )


def _one_by_one(
    trials: Generator[Settings, float, None],
    configuration: Callable[[Settings], dict[str, Any]],
    data: ZeroShotData,
    held: Sequence[Array],
    stages: tuple[Callable[..., Any], Callable[..., Any]],
) -> tuple[list[Settings], Array]:
    """Trials of which each depends on the values of those before; what is asked for again is not computed again."""
    tried: list[Settings] = []
    rows: list[list[float]] = []
    known: dict[str, list[float]] = {}
    settings = next(trials)
    while True:
        name = json.dumps(settings, sort_keys=True, default=str)
        if name not in known:
            one = [configuration(settings)]
            known[name] = [assess(fold(data, classes), one, *stages)[0] for classes in held]
        tried.append(settings)
        rows.append(known[name])
        value = float(np.mean(known[name]))
        log.info("tune: trial %d, accuracy %.3f with %s", len(tried), value, settings)
        try:
            settings = trials.send(value)
        except StopIteration:
            return tried, np.array(rows)


def assess(
    data: ZeroShotData,
    configurations: Sequence[Mapping[str, Any]],
    transform: Callable[[Mapping[str, Any], ZeroShotData], ZeroShotData],
    infer: Callable[..., Sequence[Any]],
) -> list[float]:
    """Mean per-class accuracy of each configuration on one fold; what they share is computed once.

    Configurations with the same pre-processing share it, those with the same model share the fit, and models that
    offer ``fit_grid`` share what their fits have in common.
    """
    accuracy = [math.nan] * len(configurations)
    for group in _alike(range(len(configurations)), lambda i: _of(configurations[i], "feature", "dataset")):
        ready = transform(configurations[group[0]], data)
        by_model = _alike(group, lambda i: _of(configurations[i], "model", "allow_targets"))
        nodes = [configurations[g[0]] for g in by_model]
        models = [build(c["model"], "model", allow_targets=c["allow_targets"]) for c in nodes]
        for members, model in zip(by_model, _fitted(models, ready)):
            for alike in _alike(members, lambda i: _of(configurations[i], "inference")):
                stages = infer(
                    configurations[alike[0]],
                    model,
                    ready.X_unseen,
                    ready.Z_unseen,
                    partial(seen_classes, model, ready.X, ready.y, ready.Z),
                )
                value = float(np.mean(list(class_accuracy(stages[-1].scores, ready.y_unseen).values())))
                for i in alike:
                    accuracy[i] = value
    return accuracy


def _fitted(models: Sequence[Any], data: ZeroShotData) -> Iterable[Any]:
    given = (data.X, data.y, data.Z, data.Z_unseen)
    kinds = {type(model) for model in models}
    if len(kinds) == 1 and hasattr(models[0], "fit_grid"):
        return kinds.pop().fit_grid(models, *given)
    return (model.fit(*given) for model in models)


def _alike(members: Iterable[int], key: Callable[[int], str]) -> list[list[int]]:
    groups: dict[str, list[int]] = {}
    for i in members:
        groups.setdefault(key(i), []).append(i)
    return list(groups.values())


def _of(plain: Mapping[str, Any], *names: str) -> str:
    return json.dumps([plain.get(name) for name in names], sort_keys=True, default=str)


# --- what is tried ---------------------------------------------------------------------------------------


def own_grid(model: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The grid in a model's YAML file, with full keys."""
    grid = model.get("grid")
    if not grid:
        raise UserError(
            f"model={model.get('name')} has no grid; set tune.grid, such as tune.grid={{model.lam:[0.1,1]}}"
        )
    return {f"model.{k}": v for k, v in grid.items()}


def changed(cfg: DictConfig, settings: Mapping[str, Any]) -> DictConfig:
    """A copy of the configuration with some keys changed; they must be there already."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    cfg = cfg.copy()
    for key, value in settings.items():
        parent, _, leaf = key.rpartition(".")
        node = OmegaConf.select(cfg, parent) if parent else cfg
        if not OmegaConf.is_dict(node) or leaf not in list(node):
            raise UserError(f"tune.grid: {key} does not exist; `--cfg job` shows what does.")
        try:
            OmegaConf.update(cfg, key, value)
        except OmegaConfBaseException as error:
            raise UserError(f"tune.grid: {key}={value!r}: {' '.join(str(error).split())}") from error
    return cfg


def _any_of(values: Sequence[Any] | Range) -> Any:
    return values.low if isinstance(values, Range) else values[0]


def _warn_at_edge(chosen: Settings, space: Space) -> None:
    """A best value at the end of a range of numbers says that the range may be too narrow."""
    for key, values in space.items():
        if isinstance(values, Range):
            edge = values.at_edge(chosen[key])
        else:
            numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
            edge = len(numbers) == len(values) > 2 and chosen[key] in (min(numbers), max(numbers))
        if edge:
            log.info("tune: %s=%s is at the edge of its grid", key, chosen[key])


# --- folds -----------------------------------------------------------------------------------------------


def validation_folds(data: ZeroShotData, n_folds: Count, seed: Seed, repeats: Count = 1) -> list[Array]:
    """Seen classes (positions in ``data.seen``) held out in turn, see :func:`zsl.data.splits.validation_folds`.

    Where no division is published, fewer than ``n_folds`` if one would have fewer than three classes, but at least two;
    ``repeats`` divisions, each under a seed of its own, since accuracy on a few classes is noisy.
    """
    n = len(data.seen)
    if n < 2:
        raise UserError(f"tune=class_cv needs at least two seen classes; {data.name} ({data.split}) has {n}.")
    k = max(2, min(n_folds, n // _MIN_CLASSES))
    if data.validation and repeats > 1:
        log.info("tune: the published division of the classes is used; there is one, so tune.repeats changes nothing")
        repeats = 1
    seeds = [seed, *(int(np.random.SeedSequence([seed, i]).generate_state(1)[0]) for i in range(1, repeats))]
    return [held for s in seeds for _, held in splits.validation_folds(data, k, s)]


def fold(data: ZeroShotData, held: Array) -> ZeroShotData:
    """Seen classes ``held`` (positions in ``data.seen``) as if unseen, the other seen ones as the seen ones.

    The class table shrinks to the seen classes and the images to the training images: the unseen classes' images,
    labels and attributes are not in the result. What stands for missing attributes is imputed anew, because the held
    classes' values are in it.
    """
    kept = np.setdiff1d(np.arange(len(data.seen)), held)
    trains = np.isin(data.y, kept)
    return replace(
        data,
        attributes=data.attributes[data.seen],
        class_names=tuple(data.class_names[c] for c in data.seen),
        seen=kept,
        unseen=held,
        X=data.X[trains],
        y=np.searchsorted(kept, data.y[trains]),
        X_unseen=data.X[~trains],
        y_unseen=np.searchsorted(held, data.y[~trains]),
        X_test_seen=data.X[:0],
        y_test_seen=data.y[:0],
        Z_images=None if data.Z_images is None else data.Z_images[trains],
        imputed=None if data.imputed is None else data.imputed[data.seen],
        imputed_images=None if data.imputed_images is None else data.imputed_images[trains],
        validation=(),
        names_unseen=(),
        rows_unseen=(),
    ).impute_anew()
