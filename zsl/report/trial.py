"""Whether inference rules go with a model, by asking them: once each, on a little simulated data."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

from zsl.config import build, compose, resolve
from zsl.errors import UserError
from zsl.experiment.loading import load_data
from zsl.inference.prediction import infer
from zsl.inference.statistics import seen_classes

# Few images of many simulated classes: enough for every rule to have neighbours.
_DATA = ("dataset=synthetic", "dataset.noise=0.1", "subset.images=5")


@lru_cache
def applies(overrides: tuple[str, ...], labels: str) -> bool:
    """Whether the label rule ``labels`` can be used with the model and the other rules that ``overrides`` name.

    No record and no table sees what comes out: only whether the rule refuses the model matters.
    """
    plain, model, data = _fitted(overrides)
    plain = {**plain, "inference": {**plain["inference"], "labels": labels}}
    try:
        infer(plain, model, data.X_unseen, data.Z_unseen, partial(seen_classes, model, data.X, data.y, data.Z))
    except UserError:
        return False
    return True


@lru_cache
def _fitted(overrides: tuple[str, ...]) -> tuple[dict[str, Any], Any, Any]:
    plain = resolve(compose([*_DATA, *overrides]))
    data = load_data(plain)
    return plain, build(plain["model"], "model").fit(data.X, data.y, data.Z, data.Z_unseen), data
