"""The settings that tuning tries: the points of a grid, random points, or those that Optuna's sampler asks for."""

from __future__ import annotations

import itertools
import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import annotated_types as at
import numpy as np

from zsl.checks import Count, Seed, check_arguments, check_value
from zsl.config import TUNABLE
from zsl.errors import UserError

Finite = Annotated[float, at.Gt(-math.inf), at.Lt(math.inf)]
_RANGE = {"low", "high", "log", "integer"}

Settings = dict[str, Any]
Search = Literal["grid", "random", "optuna"]


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``, both included; draws are uniform, with ``log`` in log scale."""

    low: float
    high: float
    log: bool = False
    integer: bool = False

    def draw(self, rng: np.random.Generator) -> float | int:
        """One number at random."""
        if self.integer and not self.log:
            return int(rng.integers(int(self.low), int(self.high), endpoint=True))
        # A whole number is a cell of width one, so that the ends are as likely as their neighbours.
        half = 0.5 if self.integer else 0.0
        low, high = self.low - half, self.high + half
        value = math.exp(rng.uniform(math.log(low), math.log(high))) if self.log else rng.uniform(low, high)
        value = min(max(value, self.low), self.high)
        return round(value) if self.integer else value

    def at_edge(self, value: float) -> bool:
        """Whether a value is among the outer twentieths of the range."""
        f = math.log if self.log else float
        share = (f(value) - f(self.low)) / (f(self.high) - f(self.low))
        return not 0.05 <= share <= 0.95


Space = dict[str, "Sequence[Any] | Range"]


def space_of(grid: Mapping[str, Any]) -> Space:
    """For each key what it is drawn from: values, or a :class:`Range`.

    Parameters
    ----------
    grid : mapping
        ``tune.grid``: key -> list of values, or ``{low, high, log, integer}``.

    Raises
    ------
    UserError
        For a key that may not be tuned, an empty list, or a range without numbers.
    """
    space: Space = {}
    for key, values in grid.items():
        if not key.startswith(tuple(f"{group}." for group in TUNABLE)) and key not in TUNABLE:
            raise UserError(
                f"tune.grid: {key} cannot be tuned, because it decides what the folds are made of or changes no "
                f"result; keys under these can: {', '.join(TUNABLE)}."
            )
        if isinstance(values, Mapping):
            space[key] = _range(key, values)
        elif isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise UserError(
                f"tune.grid: {key} has {values!r}; a list with at least one value is needed, or {{low: A, high: B}}."
            )
        else:
            space[key] = list(values)
    return space


def _range(key: str, values: Mapping[str, Any]) -> Range:
    unknown = set(values) - _RANGE
    if unknown or not {"low", "high"} <= set(values):
        raise UserError(
            f"tune.grid: {key} has {dict(values)!r}; a range has low and high, and may have log and integer."
        )
    for name in ("log", "integer"):
        check_value(bool, values.get(name, False), f"tune.grid.{key}.{name}")
    integer = bool(values.get("integer", False))
    for name in ("low", "high"):
        check_value(int if integer else Finite, values[name], f"tune.grid.{key}.{name}")
    found = Range(values["low"], values["high"], bool(values.get("log", False)), integer)
    if not found.low < found.high or (found.log and found.low <= 0):
        raise UserError(
            f"tune.grid: {key} goes from {found.low} to {found.high}; low must be less than high"
            + (", and with log above zero." if found.log else ".")
        )
    return found


def optuna_trials(space: Space, n_trials: int, seed: int) -> Generator[Settings, float, None]:
    """Settings that Optuna's default sampler (TPE) asks for, one after another.

    The caller sends the value of each setting to the generator; larger values are better.

    Raises
    ------
    UserError
        If Optuna is not installed.
    """
    try:
        import optuna
    except ImportError:
        raise UserError("tune.search=optuna needs Optuna; pip install -e '.[optuna]', or use random.") from None

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    for _ in range(n_trials):
        trial = study.ask()
        settings: Settings = {}
        for key, values in space.items():
            if not isinstance(values, Range):
                # By position, because values may be anything: null, text, lists.
                settings[key] = values[trial.suggest_categorical(key, range(len(values)))]
            elif values.integer:
                settings[key] = trial.suggest_int(key, int(values.low), int(values.high), log=values.log)
            else:
                settings[key] = trial.suggest_float(key, values.low, values.high, log=values.log)
        study.tell(trial, (yield settings))


@dataclass(frozen=True)
class Tuning:
    """How settings are chosen on validation classes: ``conf/tune/class_cv.yaml`` explains the fields."""

    grid: Mapping[str, Any]
    search: Search = "grid"
    n_trials: Count = 20
    n_folds: Annotated[int, at.Ge(2)] = 5
    repeats: Count = 8
    rule: Literal["one_standard_error", "best"] = "one_standard_error"
    seed: Seed = 0

    @classmethod
    def of(cls, node: Mapping[str, Any], model: Mapping[str, Any], settings: Mapping[str, Any]) -> Tuning | None:
        """The tuning that the configuration's nodes ``tune`` and ``model`` describe, or None.

        ``settings`` are the model's, for the example in a message.

        Raises
        ------
        UserError
            For values of a wrong type, a model without a grid, and a grid that :func:`space_of` refuses.
        """
        if node["name"] == "none":
            return None
        given = {k: v for k, v in node.items() if k != "name"}
        check_arguments(cls, {k: v for k, v in given.items() if k != "grid"}, prefix="tune.")
        if given["grid"] is None:
            grid = model.get("grid")
            if not grid:
                numbers = ((k, v) for k, v in settings.items() if type(v) in (int, float) and v and k != "seed")
                example = next((f"model.{k}:[{v:g},{2 * v:g}]" for k, v in numbers), "feature.l2:[true,false]")
                raise UserError(
                    f"model={model.get('name')} has no grid; set tune.grid, such as 'tune.grid={{{example}}}'."
                )
            given["grid"] = {f"model.{k}": v for k, v in grid.items()}
        check_value(dict[str, Any], given["grid"], "tune.grid")
        if not given["grid"]:
            raise UserError(
                "tune.grid is empty; name a key and its values, such as 'tune.grid={model.lam:[0.01,0.1]}'."
            )
        found = cls(**given)
        space_of(found.grid)
        if found.search == "grid":
            found.trials()  # a grid cannot cover a range
        return found

    @property
    def space(self) -> Space:
        """What can be drawn from."""
        return space_of(self.grid)

    def trials(self) -> list[Settings]:
        """The settings that a grid search or a random search tries.

        ``grid``: every point, the last key changing fastest. ``random``: ``n_trials`` settings under ``seed``:
        different points of a grid of lists, independent draws where there is a range.

        Examples
        --------
        >>> Tuning({"model.lam": [0.1, 1.0], "model.beta": [0.01]}).trials()
        [{'model.lam': 0.1, 'model.beta': 0.01}, {'model.lam': 1.0, 'model.beta': 0.01}]
        """
        space = self.space
        lists = {k: v for k, v in space.items() if not isinstance(v, Range)}
        if self.search == "grid":
            if len(lists) < len(space):
                key = next(k for k in space if k not in lists)
                raise UserError(
                    f"tune.grid: {key} is a range, which a grid cannot cover; use tune.search=random or optuna."
                )
            return [dict(zip(lists, point)) for point in itertools.product(*lists.values())]
        rng = np.random.default_rng(self.seed)
        if len(lists) < len(space):
            return [
                {k: v.draw(rng) if isinstance(v, Range) else v[int(rng.integers(len(v)))] for k, v in space.items()}
                for _ in range(self.n_trials)
            ]
        sizes = [len(v) for v in lists.values()]
        total = math.prod(sizes)
        chosen = np.sort(rng.choice(total, min(self.n_trials, total), replace=False))
        points = np.unravel_index(chosen, sizes)
        return [{k: v[int(p[i])] for (k, v), p in zip(lists.items(), points)} for i in range(len(chosen))]
