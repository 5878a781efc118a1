"""The result of a run, and the digest of everything that determines it."""

from __future__ import annotations

import hashlib
import json
import math
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from zsl.config import DATA, OF_A_MODEL, PLACES
from zsl.version import commit

SELECTED = "selected on validation classes"
"""How the settings of a result were chosen, where tuning chose them."""
ORACLE = "oracle: selected on test classes"
"""The word for a result that was chosen among others by its accuracy on the unseen classes."""


@dataclass
class Result:
    """The result of a run, and everything that says what it is a result of."""

    key: dict[str, Any]
    """Dataset and content hash, feature, split, model, inference, seed, selection, information used"""
    metrics: dict[str, float]
    """The answer's under plain names, every stage's as ``STAGE/NAME``, then timings"""
    per_class: list[dict[str, Any]]
    """One row per unseen class: name, images, times predicted, accuracy by stage"""
    curves: dict[str, list[float]]
    """Quantities per iteration, such as the objectives"""
    versions: dict[str, str]
    sizes: dict[str, int] = field(default_factory=dict)
    """How many images, classes, features, attributes and atoms the run had"""
    trials: list[dict[str, Any]] = field(default_factory=list)
    """Every setting that was tried on validation classes, with its accuracy on each fold"""
    warnings: list[str] = field(default_factory=list)
    """Signs that the result is not worth what it seems, a sentence each (:mod:`zsl.experiment.signs`)"""
    confusion: dict[str, dict[str, int]] = field(default_factory=dict)
    """Of the answer: true class -> predicted class -> number of images"""
    digest: str = ""
    """What determined the result, known before the fit: :func:`digest`"""
    prediction: Any = None
    """Scores and predicted attributes of the test images; in memory only"""

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Result:
        """The result that a ``results.json`` holds; ``null`` there is a number that is not finite."""
        known = {f.name: record[f.name] for f in fields(cls) if f.name not in NOT_RECORDED and f.name in record}
        metrics = {k: math.nan if v is None else v for k, v in record["metrics"].items()}
        return cls(**{"curves": {}, "versions": {}, **known, "metrics": metrics})


NOT_RECORDED = ("prediction",)
"""Fields of a result that ``results.json`` does not hold"""


NOT_INSTALLED = "not installed"
"""The version of a package that is not installed, such as zsl itself in a checkout"""


def digest(config: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    """The digest of everything that determines a result, known before anything is fitted: 16 hex digits of SHA-256.

    Parameters
    ----------
    config : mapping
        The resolved configuration. Keys that are places (:data:`zsl.config.PLACES`) are left out, so the same run in
        another folder or on another machine has the same digest.
    data : mapping
        ``ZeroShotData.identity``. It stands for the configuration of the data, which names files.
    """
    settings = {k: v for k, v in config.items() if k not in (*PLACES, *DATA)}
    settings["model"] = {k: v for k, v in config["model"].items() if k not in OF_A_MODEL}
    # A file of labels is a place, and what it says is in the data.
    settings["inference"] = {k: v for k, v in config["inference"].items() if k != "labelled"}
    tune = config["tune"]
    if tune["name"] != "none" and tune.get("grid") is None:
        settings["tune"] = {**tune, "grid": config["model"].get("grid")}
    dataset, split = config["dataset"], data.get("split", {})
    settings["data"] = {
        "name": dataset.get("name"),
        "semantics": dataset.get("semantics"),
        "shuffle_attributes": dataset.get("shuffle_attributes"),
        "content": data.get("content"),
        "read": data.get("semantics"),
        # By name too: a table looks for runs of the split that it names, and the same rows may have two names.
        "split": {"name": config["split"].get("name"), **{k: split.get(k) for k in ("rows", "unseen", "subset")}},
        "validation": data.get("validation"),
    }
    for name in ("labelled", "attribute_blocks"):
        if data.get(name):
            settings["data"][name] = data[name]
    part = config["subset"]
    if config["evaluation"].get("imbalance") is not None and part["seed"] != config["seed"]:
        # This seed draws the images of the unequal classes.
        settings["evaluation"] = {**config["evaluation"], "seed": part["seed"]}
    text = json.dumps(_canonical(settings), sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _canonical(value: Any) -> Any:
    """The same value for what is equal: 1 and 1.0 are the same number, tuples the same as lists."""
    if isinstance(value, Mapping):
        return {str(k): _canonical(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(v) for v in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Join the keys of nested mappings by dots; lists stay whole.

    Examples
    --------
    >>> flatten({"a": {"b": 1}, "c": [2, 3]})
    {'a.b': 1, 'c': [2, 3]}
    """
    out: dict[str, Any] = {}
    for key, value in config.items():
        out |= flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return out


def versions() -> dict[str, str]:
    """The versions of the packages that computed the result."""
    out = {"python": platform.python_version()}
    for package in ("zsl-cdl", "numpy", "scipy", "scikit-learn", "numba", "hydra-core", "mlflow"):
        try:
            out[package] = version(package)
        except PackageNotFoundError:
            out[package] = NOT_INSTALLED
    if commit():
        out["zsl-commit"] = commit()
    return out
