"""Settings chosen on validation classes: seen classes held out in turn, as if they were unseen.

Nothing here reads an image, a label or the attributes of an unseen class: :func:`fold` leaves them behind.
"""

from __future__ import annotations

import itertools
import json
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from zsl.checks import Array, Count, Seed, check_arguments
from zsl.config import build
from zsl.data import splits
from zsl.data.dataset import ZeroShotData
from zsl.errors import UserError
from zsl.evaluation import class_accuracy

if TYPE_CHECKING:
    from omegaconf import DictConfig

log = logging.getLogger(__name__)

SELECTED = "selected on validation classes"
# What a trial may not change: the classes and images that the folds are made of.
_FIXED = ("split", "dataset", "tune", "tracking", "data_dir", "output_dir", "allow_targets")
# Classes that a fold should hold at least: with two, half of all guesses are right.
_MIN_CLASSES = 3

Settings = dict[str, Any]


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
    """Try every setting on every fold and choose the one of best mean accuracy over folds (the first among equals).

    Parameters
    ----------
    cfg : DictConfig
        The configuration with ``tune=class_cv``; a trial is this one with a few keys changed.
    data : ZeroShotData
        Before pre-processing: each fold fits it anew on its own training rows.
    resolve, transform, infer
        The stages of :mod:`zsl.experiment`: configuration to dictionaries, pre-processing, scores of test images.

    Raises
    ------
    UserError
        For a grid that is empty or names keys that do not exist or may not vary.
    """
    plain = resolve(cfg)
    tune = {k: v for k, v in plain["tune"].items() if k != "name"}
    grid = tune["grid"] if tune["grid"] is not None else own_grid(plain["model"])
    check_arguments(trials_of, {**tune, "grid": grid}, prefix="tune.")
    check_arguments(validation_folds, {"n_folds": tune["n_folds"]}, prefix="tune.")
    trials = trials_of(grid, search=tune["search"], n_trials=tune["n_trials"], seed=tune["seed"])
    configurations = [resolve(changed(cfg, settings)) for settings in trials]
    held = validation_folds(data, tune["n_folds"], tune["seed"])
    accuracy = np.empty((len(trials), len(held)))
    for f, classes in enumerate(held):
        accuracy[:, f] = assess(fold(data, classes), configurations, transform, infer)
        log.info("tune: fold %d of %d, best accuracy %.3f", f + 1, len(held), accuracy[:, f].max())
    mean = accuracy.mean(axis=1)
    best = int(mean.argmax())
    _warn_at_edge(trials[best], grid)
    log.info("tune: %d trials, chosen %s with %.3f on validation classes", len(trials), trials[best], mean[best])
    return Selection(
        settings=trials[best],
        trials=[
            {"settings": s, "folds": [float(v) for v in a], "acc_class": float(m)}
            for s, a, m in zip(trials, accuracy, mean)
        ],
        folds=[[data.class_names[data.seen[c]] for c in classes] for classes in held],
    )


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
                stages = infer(configurations[alike[0]], model, ready.X_unseen, ready.Z_unseen)
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


def trials_of(
    grid: Mapping[str, Any],
    *,
    search: Literal["grid", "random"] = "grid",
    n_trials: Count = 20,
    seed: Seed = 0,
) -> list[Settings]:
    """The points of a grid, last key fastest; with ``random``, ``n_trials`` different ones under ``seed``."""
    for key, values in grid.items():
        if isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise UserError(f"tune.grid: {key} has {values!r}; a list with at least one value is needed.")
        if key.split(".")[0] in _FIXED and not key.startswith("dataset.semantics."):
            raise UserError(f"tune.grid: {key} decides what the folds are made of and cannot be tuned.")
    sizes = [len(v) for v in grid.values()]
    total = math.prod(sizes)
    if search == "grid":
        return [dict(zip(grid, point)) for point in itertools.product(*grid.values())]
    chosen = np.sort(np.random.default_rng(seed).choice(total, min(n_trials, total), replace=False))
    points = np.unravel_index(chosen, sizes)
    return [{k: v[int(p[i])] for (k, v), p in zip(grid.items(), points)} for i in range(len(chosen))]


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


def _warn_at_edge(chosen: Settings, grid: Mapping[str, Sequence[Any]]) -> None:
    """A best value at the end of a range of numbers says that the range may be too narrow."""
    for key, values in grid.items():
        numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
        if len(numbers) == len(values) > 2 and chosen[key] in (min(numbers), max(numbers)):
            log.info("tune: %s=%s is at the edge of its grid", key, chosen[key])


# --- folds -----------------------------------------------------------------------------------------------


def validation_folds(data: ZeroShotData, n_folds: Count, seed: Seed) -> list[Array]:
    """Seen classes (positions in ``data.seen``) held out in turn, see :func:`zsl.data.splits.validation_folds`.

    Where no division is published, fewer than ``n_folds`` if one would have fewer than three classes, but at least two.
    """
    n = len(data.seen)
    if n < 2:
        raise UserError(f"tune=class_cv needs at least two seen classes; {data.name} ({data.split}) has {n}.")
    k = max(2, min(n_folds, n // _MIN_CLASSES))
    return [held for _, held in splits.validation_folds(data, k, seed)]


def fold(data: ZeroShotData, held: Array) -> ZeroShotData:
    """Seen classes ``held`` (positions in ``data.seen``) as if unseen, the other seen ones as the seen ones.

    The class table shrinks to the seen classes and the images to the training images: the unseen classes' images,
    labels and attributes are not in the result.
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
        validation=(),
        names_unseen=(),
        rows_unseen=(),
    )
