"""The choice among a few methods on validation classes, and the accuracy that it may be expected to have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from zsl.checks import Array
from zsl.config import compose
from zsl.experiment.loading import load
from zsl.experiment.selection import accuracies
from zsl.experiment.setup import checked
from zsl.model_selection.holdout import held_out, random_sets
from zsl.model_selection.one_standard_error import choose
from zsl.progress import Bar

if TYPE_CHECKING:
    from omegaconf import DictConfig

# How many sets of seen classes are held out: more make the choice surer, and take longer.
N_SETS = 8


class Method(NamedTuple):
    """A model with a rule, as a person and as the command line name them."""

    title: str
    words: tuple[str, ...]


METHODS = (
    Method("ESZSL", ("model=eszsl", "inference=own")),
    Method("ESZSL, attribute and feature space", ("model=eszsl", "inference=inductive")),
    Method("coupled dictionaries", ("model=coupled", "inference=inductive")),
    Method("ESZSL, clusters of the images to be recognised", ("model=eszsl", "inference.labels=mixture")),
    Method(
        "coupled dictionaries, clusters of the images to be recognised", ("model=coupled", "inference=transductive")
    ),
)
"""What is compared, the simplest first; where two are equally good, the first one is chosen"""
IN_ONE_SPACE = (
    Method("CLIP's own rule", ("model=clip", "inference=own")),
    Method("CLIP's rule with an adapter", ("model=clip_adapter", "inference=own")),
    Method(
        "CLIP's rule with an adapter, clusters of the images to be recognised",
        ("model=clip_adapter", "inference=transductive"),
    ),
)
"""What is compared first where one network embeds images and classes"""


@dataclass
class Chosen:
    """What was chosen, and from what."""

    methods: Sequence[Method]
    accuracy: Array
    """(T, J) mean per-class accuracy of each of T methods on each of J sets of held-out seen classes; J may be 0"""
    n_held: int
    """How many classes were held out at a time"""
    best: int
    """Which method was chosen"""
    expected: Array
    """(J,) accuracy on each set of the method that the other sets choose; sets share classes, so it is a little high"""


def configuration(features: Path, classes: Path, *words: str, seed: int = 0) -> DictConfig:
    """The configuration of a run on files of features and of class rows, whatever their paths are made of."""
    from omegaconf import OmegaConf

    cfg = compose(["dataset=tabular", "tracking=none", "figures=false", f"seed={seed}", *words])
    for key, value in (("features", features), ("attributes", classes), ("cache", "off")):
        # ${...} in a path is no reference to another key.
        OmegaConf.update(cfg, f"dataset.{key}", str(value).replace("${", "\\${"))
    return cfg


def choose_method(features: Path, classes: Path, methods: Sequence[Method], seed: int = 0) -> Chosen:
    """Choose a method on seen classes that are held out as if they were unseen.

    The first method stays unless another one is better by more than the standard error
    (:func:`zsl.model_selection.one_standard_error.choose`).

    Parameters
    ----------
    features, classes : Path
        The files of features and of class rows.
    seed : int
        Draws the sets of classes.

    Raises
    ------
    UserError
        For data that cannot be read.
    """
    setups = [checked(configuration(features, classes, *method.words, seed=seed)) for method in methods]
    data = load(setups[0])
    sets = random_sets(len(data.seen), len(data.unseen), N_SETS, seed)
    classifiers = [setup.classifier for setup in setups]
    found = []
    with Bar(f"comparing {len(methods)} methods on held-out seen classes", len(sets) * len(methods)) as bar:
        for part in held_out(data, sets):
            found.append([of_classes.mean() for of_classes in accuracies(classifiers, part, bar)])
    accuracy = np.array(found).T.reshape(len(methods), len(sets))
    n_held = len(sets[0]) if sets else 0
    n_folds = len(data.seen) / n_held if n_held else 1.0
    others = [np.delete(accuracy, j, axis=1) for j in range(len(sets))] if len(sets) > 2 else []
    expected = [accuracy[_best(rest, n_folds), j] for j, rest in enumerate(others)]
    return Chosen(methods, accuracy, n_held, _best(accuracy, n_folds), np.array(expected))


def _best(accuracy: Array, n_folds: float) -> int:
    if not accuracy.shape[1]:
        return 0
    distance = np.arange(len(accuracy), dtype=np.float64)  # the simpler, the nearer
    return choose(accuracy, distance, 0, n_folds).chosen
