"""Checks a configuration and builds the objects that it names, once; nothing is read or fitted here."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from zsl.checks import Count, Seed, check_arguments, check_value
from zsl.classifier import ZeroShotClassifier
from zsl.config import check_nodes, compose, inference_arguments, options, resolve
from zsl.config.objects import build, locate
from zsl.data.load import load_table, load_transforms
from zsl.data.subsets import AtLeastOne, subset
from zsl.data.table import ImageTable, Split
from zsl.device import check_device
from zsl.errors import UserError
from zsl.experiment.search import Tuning
from zsl.inference import Inference
from zsl.inference.prediction import stage_name
from zsl.model_selection.decision import check_splits
from zsl.runs.folder import Tracker

if TYPE_CHECKING:
    from omegaconf import DictConfig


@dataclass(frozen=True)
class Setup:
    """A configuration as objects."""

    config: dict[str, Any]
    """The resolved configuration: what is recorded and hashed"""
    read: Callable[[], ImageTable]
    """Reads every image of the dataset"""
    split: Callable[[ImageTable], Split]
    """Divides the images by role, and takes the part that ``subset`` asks for"""
    missing: Literal["mean", "drop", "keep"]
    """What becomes of missing attributes"""
    shuffle_attributes: int | None
    """Seed of the control that permutes the class rows of the attribute table, or None"""
    classifier: ZeroShotClassifier
    """Pre-processing, model and inference, not fitted"""
    inference: Inference
    """The classifier's"""
    labelled: Path | None
    """Names the classes of some test images, which leave the test, or None"""
    tuning: Tuning | None
    """How settings are chosen on validation classes, or None"""
    generalized: bool
    """Whether seen and unseen classes are tested together"""
    imbalance: float | None
    """Evaluate on unseen classes of unequal size besides: the ratio of the largest to the smallest class"""
    tracker: Tracker
    """Tells the tracking store about the run"""
    source: DictConfig
    """The configuration before it was resolved, for :meth:`with_settings`"""

    def run_name(self, split: str | None) -> str:
        """Model, dataset, split and seed; rules that were asked for, too. ``split`` is the split that was drawn."""
        config = self.config
        named = config["split"]["name"]
        # The seed of a split that was drawn; a dataset's own split may have replaced it.
        drawn = config["split"].get("seed") if split in (None, named) else None
        of_split = "" if drawn in (None, config["seed"]) else f"split.seed {drawn}"
        asked = {config["inference"]["attributes"], config["inference"]["labels"]} - {"auto"}
        words = [
            config["model"].get("name", type(self.classifier.model).__name__),
            stage_name(*self.inference.resolved(self.classifier.model)) if asked else "",
            config["dataset"]["name"],
            split or named,
            of_split,
            f"seed {config['seed']}",
        ]
        return " ".join(filter(None, words))

    def values(self, keys: Iterable[str]) -> dict[str, Any]:
        """What the configuration has under these keys, or the default of the component that takes them."""
        found = {}
        for key in keys:
            *parents, leaf = key.split(".")
            node: Any = self.config
            for name in parents:
                node = node.get(name, {})
            rule = self.inference.own_rule(parents[-1]) if parents[:1] == ["inference"] and len(parents) == 2 else None
            if leaf in node:
                found[key] = node[leaf]
            elif rule is not None:
                found[key] = self.inference.setting(rule).get(leaf)
            else:
                found[key] = getattr(self.classifier.model, leaf, None)
        return found

    def with_settings(self, settings: Mapping[str, Any]) -> Setup:
        """The setup with a few keys of the configuration changed."""
        return checked(_changed(self.source, settings))


def checked(cfg: DictConfig) -> Setup:
    """Check a configuration and turn it into objects; nothing is read or fitted.

    Raises
    ------
    UserError
        For whatever is wrong with the configuration, in a sentence that names the key.
    """
    config = resolve(cfg)
    check_nodes(config)
    check_value(Seed, config["seed"], "seed")
    check_value(Count | None, config["threads"], "threads")
    check_device(config["device"])
    for name in ("skip_existing", "save_model", "save_predictions", "figures"):
        check_value(bool, config[name], name)
    check_value(Literal["single", "double"], config["save_precision"], "save_precision")
    allow = config["allow_targets"]
    dataset, feature, split, evaluation = (config[k] for k in ("dataset", "feature", "split", "evaluation"))
    for node, group in ((dataset, "dataset"), (feature, "feature"), (split, "split")):
        if not isinstance(node.get("name"), str):
            raise UserError(f"{group}.name={node.get('name')!r} is not text; quote it: {group}.name=\"'...'\".")
    source, missing = (dataset["semantics"][k] for k in ("source", "missing"))
    check_value(Literal["mean", "drop", "keep"], missing, "dataset.semantics.missing")
    check_value(Seed | None, dataset["shuffle_attributes"], "dataset.shuffle_attributes")
    _check_split(split, dataset["name"])
    check_arguments(subset, config["subset"], prefix="subset.")
    divide = build(split, "split", allow_targets=allow)
    for key in ("generalized", "calibrate"):
        check_value(bool, evaluation[key], f"evaluation.{key}")
    check_value(Count, evaluation["n_validation_splits"], "evaluation.n_validation_splits")
    check_value(AtLeastOne | None, evaluation["imbalance"], "evaluation.imbalance")
    labelled = config["inference"].get("labelled")
    check_value(str | None, labelled, "inference.labelled")
    inference = _inference({k: v for k, v in config["inference"].items() if k != "labelled"}, allow)
    transforms = load_transforms(dataset, feature, allow)
    classifier = ZeroShotClassifier(
        model=build(config["model"], "model", allow_targets=allow),
        inference=inference,
        preprocess=transforms[0],
        semantics=transforms[1],
        calibrate=evaluation["calibrate"],
        n_validation_splits=evaluation["n_validation_splits"],
        seed=config["seed"],
    )
    inference.check(classifier.model)
    check_splits(inference.fallback, evaluation["n_validation_splits"])
    if labelled is not None:
        inference.check_labelled(classifier.model)
    tuning = Tuning.of(config["tune"], config["model"], vars(classifier.model))
    for used, why in ((tuning, "tune"), (evaluation["generalized"], "evaluation.generalized")):
        if used:
            inference.check_no_given_shares(why)
    return Setup(
        config=config,
        read=partial(load_table, dataset, feature["name"], source, allow),
        split=lambda table: subset(table, divide(table), **config["subset"]),
        missing=missing,
        shuffle_attributes=dataset["shuffle_attributes"],
        classifier=classifier,
        inference=inference,
        labelled=None if labelled is None else Path(labelled).expanduser(),
        tuning=tuning,
        generalized=evaluation["generalized"],
        imbalance=evaluation["imbalance"],
        tracker=build(config["tracking"], "tracking", allow_targets=allow, output_dir=config["output_dir"]),
        source=cfg,
    )


def _inference(node: dict[str, Any], allow: list[str]) -> Inference:
    arguments = inference_arguments(node)
    for kind in ("attributes", "labels"):
        check_value(str, arguments.setdefault(kind, "auto"), f"inference.{kind}")
        if "." in arguments[kind]:
            arguments[kind] = locate(arguments[kind], f"inference.{kind}", allow)
    return Inference(**arguments)


def _check_split(split: Mapping[str, Any], dataset: str) -> None:
    """Refuse a split that belongs to other datasets, naming those that go with this one."""
    belongs = split.get("datasets")
    # A dataset of the user's own is not listed anywhere; whatever its reader offers may be asked for.
    if belongs is None or dataset in belongs or dataset not in options("dataset"):
        return
    others = {name: compose([f"split={name}"]).split.get("datasets") for name in options("split")}
    valid = [name for name, of in others.items() if of is None or dataset in of]
    raise UserError(
        f"split={split['name']} belongs to dataset={', '.join(belongs)}; dataset={dataset} has: {', '.join(valid)}."
    )


def _settings_of(key: str, node: DictConfig, cfg: DictConfig) -> set[str]:
    """The keys of a node, and the parameters of what it builds."""
    if node.get("_target_") is None:
        return {str(k) for k in node}
    return {str(k) for k in node} | set(inspect.signature(locate(node["_target_"], key, cfg.allow_targets)).parameters)


def _changed(cfg: DictConfig, settings: Mapping[str, Any]) -> DictConfig:
    """A copy of the configuration with keys changed that exist already, or that a component of it takes."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    cfg = cfg.copy()
    for key, value in settings.items():
        parent, _, leaf = key.rpartition(".")
        node = OmegaConf.select(cfg, parent) if parent else cfg
        # A rule refuses settings that it does not have, once it is built.
        known = re.match(r"inference\.\w+\.\w+$", key) or (
            OmegaConf.is_dict(node) and leaf in _settings_of(parent, node, cfg)
        )
        if not known:
            raise UserError(f"tune.grid: {key} does not exist; `--cfg job` shows what does.")
        try:
            OmegaConf.update(cfg, key, value, force_add=True)
        except OmegaConfBaseException as error:
            raise UserError(f"tune.grid: {key}={value!r}: {' '.join(str(error).split())}") from error
    return cfg
