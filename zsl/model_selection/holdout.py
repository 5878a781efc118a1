"""Seen classes that are held out as if they were unseen, for tuning, for the fallback decision and for calibration.

Every user of validation classes takes them from :func:`held_out`. No image, label or attribute of an unseen class is in
what it yields.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import numpy as np

from zsl.checks import Array, Count, Seed
from zsl.data.dataset import ZeroShotData
from zsl.errors import UserError
from zsl.model_selection.class_fold import class_folds

log = logging.getLogger(__name__)

# With fewer classes to choose from, nearly every rule looks right; fewer than two seen classes are no training set.
_MIN_HELD, _MIN_KEPT = 3, 2


def folds(data: ZeroShotData, n_folds: Count, seed: Seed, repeats: Count = 1) -> list[Array]:
    """Sets of seen classes to hold out in turn; a drawn division holds each class out once.

    Published sets are used where the data have them. Otherwise the classes are divided into ``n_folds`` sets, or
    into fewer, so that each has three classes or more; two is the fewest sets.

    Parameters
    ----------
    repeats : int
        Divisions, each under a seed of its own: accuracy on a few classes is noisy.

    Returns
    -------
    list of arrays of positions in ``data.seen``

    Raises
    ------
    UserError
        If there are fewer than four seen classes: among the images of a single class every answer is right.
    """
    n = len(data.seen)
    if n < 4:
        raise UserError(
            f"tune=class_cv needs at least four seen classes, two in each fold, and {data.name} ({data.split}) has "
            f"{n}; set tune=none."
        )
    if data.validation:
        if repeats > 1:
            log.info("tune: the published division of the classes is used; tune.repeats changes nothing")
        return [held for _, held in data.validation]
    k = max(2, min(n_folds, n // _MIN_HELD))
    seeds = [seed, *(int(np.random.SeedSequence([seed, i]).generate_state(1)[0]) for i in range(1, repeats))]
    return [held for s in seeds for held in class_folds(n, k, s)]


def random_sets(n_classes: int, n_unseen: int, n_sets: int, seed: int) -> list[Array]:
    """Random sets of seen classes to hold out, all different.

    Each set has as many classes as are unseen, at most a quarter of the seen ones, but never below three.

    Returns
    -------
    list of arrays of positions among the seen classes; empty where fewer than two classes would stay

    Examples
    --------
    >>> [len(held) for held in random_sets(20, n_unseen=10, n_sets=3, seed=0)]
    [5, 5, 5]
    """
    size = max(_MIN_HELD, min(n_unseen, n_classes // 4))
    if n_classes - size < _MIN_KEPT:
        return []
    rng = np.random.default_rng(seed)
    found: dict[tuple[int, ...], None] = {}
    for _ in range(20 * n_sets):  # few classes have few different sets
        found[tuple(sorted(rng.permutation(n_classes)[:size].tolist()))] = None
        if len(found) == n_sets:
            break
    return [np.array(s) for s in found]


def held_out(data: ZeroShotData, sets: Sequence[Array]) -> Iterator[ZeroShotData]:
    """The data of each set of seen classes as if these classes were unseen, see :meth:`ZeroShotData.hold_out`."""
    for held in sets:
        yield data.hold_out(held)
