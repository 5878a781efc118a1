"""Loads and splits the data of one run."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from zsl.checks import Array
from zsl.config import compose, options
from zsl.data.dataset import ZeroShotData
from zsl.data.preprocess import Preprocess, preprocess
from zsl.data.space import check_one_space
from zsl.data.subsets import thinned
from zsl.errors import UserError
from zsl.experiment.setup import Setup, checked

log = logging.getLogger(__name__)


def load(setup: Setup) -> ZeroShotData:
    """Read the images, split them, and permute attribute rows if ``shuffle_attributes`` is set.

    Nothing is pre-processed; missing attributes are NaN or kept.
    """
    log.info("loading %s", setup.config["dataset"]["name"])
    table = setup.read()
    data = ZeroShotData.from_table(table, setup.split(table), missing=setup.missing)
    for message in data.notes:
        log.warning("%s", message)
    check_one_space(setup.classifier.model, data.key["provenance"], data.X.shape[1], data.attributes.shape[1])
    return data if setup.shuffle_attributes is None else data.shuffle_attributes(setup.shuffle_attributes)


def unequal_rows(setup: Setup, data: ZeroShotData) -> Array:
    """The test images that ``evaluation.imbalance`` leaves: those of ``subset.imbalance`` under the same seed."""
    assert setup.imbalance is not None
    key, names = f"evaluation.imbalance={setup.imbalance:g}", [data.class_names[c] for c in data.unseen]
    return thinned(data.y_unseen, setup.imbalance, setup.config["subset"]["seed"], key, names)


def load_dataset(
    name: str,
    *,
    feature: str | None = None,
    split: str | None = None,
    overrides: tuple[str, ...] = (),
    **settings: Any,
) -> ZeroShotData:
    """The pre-processed data that the command line would use.

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
    settings
        Keys of the dataset, such as ``root``.

    Returns
    -------
    ZeroShotData
        ``X`` (n, p), ``y`` (n,) and ``Z`` (n, q) of the training images, ``X_unseen`` (L, p) and ``y_unseen`` (L,) of
        the test images, ``Z_unseen`` (M, q) of the unseen classes, and names.

    Raises
    ------
    UserError
        For whatever is wrong with the arguments or with the data.

    Examples
    --------
    >>> data = load_dataset("digits")
    >>> data.X.shape, data.unseen_names
    ((1010, 64), ['two', 'four', 'six'])
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
    setup = checked(cfg)
    feature, semantics = setup.classifier.preprocess, setup.classifier.semantics
    return preprocess(load(setup), feature or Preprocess(), semantics or Preprocess())
