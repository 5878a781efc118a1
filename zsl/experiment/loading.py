"""From a configuration to data that a model can be fitted to."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zsl.checks import Seed, check_arguments, check_value
from zsl.config import build, compose, options, resolve
from zsl.data.dataset import ZeroShotData
from zsl.data.load import check_missing, load_table, load_transforms
from zsl.data.preprocess import preprocess
from zsl.data.subsets import subset
from zsl.data.table import ImageTable, Split
from zsl.errors import UserError

log = logging.getLogger(__name__)


def load_dataset(
    name: str,
    *,
    feature: str | None = None,
    split: str | None = None,
    overrides: tuple[str, ...] = (),
    **settings: Any,
) -> ZeroShotData:
    """The data that the command line would use: ``load_dataset("xlsa17", root=..., feature="lite0_pca128")``.

    Parameters
    ----------
    name : str
        An option of the group ``dataset``.
    feature : str, optional
        An option of the group ``feature``, or the name of a stored feature.
    split : str, optional
        An option of the group ``split``; ``None``: the dataset's own default.
    overrides : tuple of str
        Further overrides, as on the command line: ``("split.seed=3", "feature.pca=64")``.
    settings : keys of the dataset, such as ``root``.
    """
    arguments = [f"dataset={name}"]
    if feature is not None:
        arguments.append(f"feature={feature}" if feature in options("feature") else f"feature.name='{feature}'")
    if split is not None:
        arguments.append(f"split={split}")
    cfg = compose([*arguments, *overrides])
    for key, value in settings.items():
        keys = [str(k) for k in cfg.dataset]
        if key not in keys:  # `in cfg.dataset` is false for a key that still needs a value
            raise UserError(f"dataset.{key} does not exist; dataset={name} has: {', '.join(keys)}.")
        cfg.dataset[key] = str(value) if isinstance(value, Path) else value
    return load_data(resolve(cfg))


def load_data(plain: Mapping[str, Any]) -> ZeroShotData:
    """Read, split, shuffle where asked, and pre-process, as the groups dataset, split and feature say."""
    load_preprocessing(plain)  # what is wrong with it is said before anything is read
    return transform_data(plain, read_data(plain))


def read_data(plain: Mapping[str, Any]) -> ZeroShotData:
    """Read, split and shuffle where asked: the data before pre-processing."""
    dataset, feature, split = plain["dataset"], plain["feature"], plain["split"]
    allow = plain.get("allow_targets", ())
    _check_split(split, dataset["name"])
    chosen = dataset["semantics"]
    missing = chosen.get("missing", "mean")
    check_missing(missing)
    for node, group in ((dataset, "dataset"), (feature, "feature"), (split, "split")):
        if not isinstance(node.get("name"), str):
            raise UserError(f"{group}.name={node.get('name')!r} is not text; quote it: {group}.name=\"'...'\".")
    table = load_table(dataset, feature["name"], chosen.get("source"), allow)
    for doubt in table.doubts():
        log.warning("%s", doubt)
    data = ZeroShotData.from_table(table, split_table(plain, table), missing=missing)
    shuffle = dataset.get("shuffle_attributes")
    check_value(Seed | None, shuffle, "dataset.shuffle_attributes")
    if shuffle is not None:
        data = data.shuffle_attributes(shuffle)
    return data


def split_table(plain: Mapping[str, Any], table: ImageTable) -> Split:
    """The images of a table that the groups split and subset choose, by role."""
    part = plain.get("subset") or {}
    check_arguments(subset, part, prefix="subset.")
    return subset(table, build(plain["split"], "split", allow_targets=plain.get("allow_targets", ()))(table), **part)


def transform_data(plain: Mapping[str, Any], data: ZeroShotData) -> ZeroShotData:
    """Pre-process as the groups feature and dataset say, fitted on the training rows."""
    return preprocess(data, *load_preprocessing(plain))


def load_preprocessing(plain: Mapping[str, Any]) -> tuple[Any, Any]:
    """The transforms of features and of attributes."""
    return load_transforms(plain["dataset"], plain["feature"], plain.get("allow_targets", ()))


def _check_split(split: Mapping[str, Any], dataset: str) -> None:
    """Refuse a split that belongs to other datasets, naming those that go with this one."""
    belongs = split.get("datasets")
    if belongs is None or dataset in belongs:
        return
    # A dataset of the user's own is not listed anywhere; whatever its reader offers may be asked for.
    if dataset not in options("dataset"):
        return
    valid = []
    for name in options("split"):
        other = compose([f"split={name}"]).split.get("datasets")
        if other is None or dataset in other:
            valid.append(name)
    raise UserError(
        f"split={split['name']} belongs to dataset={', '.join(belongs)}; dataset={dataset} has: {', '.join(valid)}."
    )
