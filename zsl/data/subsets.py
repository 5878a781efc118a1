"""Parts of a split: fewer images or classes to learn from, or unseen classes of unequal size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import annotated_types as at
import numpy as np

from zsl.checks import Array, Count, Seed
from zsl.data.table import ImageTable, Split
from zsl.errors import UserError

AtLeastOne = Annotated[float, at.Ge(1), at.Lt(float("inf"))]


def subset(
    table: ImageTable,
    split: Split,
    *,
    images: Count | None = None,
    classes: Count | None = None,
    imbalance: AtLeastOne | None = None,
    seed: Seed = 0,
) -> Split:
    """The part of ``split`` that the configuration's node ``subset`` describes; with nothing set, ``split`` itself.

    Under one seed, smaller parts lie within larger ones, so that a learning curve adds images and never exchanges them.

    Parameters
    ----------
    images : int, optional
        Training images of each seen class; a class that has fewer keeps all.
    classes : int, optional
        Seen classes; the others lose their images in training and among the seen test images.
    imbalance : float >= 1, optional
        How many test images the most frequent unseen class has for one image of the rarest class. The sizes of the
        classes between them fall geometrically, and the order of the classes is drawn. The most frequent class keeps
        as many images as the smallest class had.
    seed : int
        Draws classes, images and the order of the unseen classes.

    Raises
    ------
    UserError
        If there are fewer seen classes than ``classes``, or the ratio leaves a class without an image.
    """
    if images is None and classes is None and imbalance is None:
        return split
    # Each part has a generator of its own, so that setting one leaves what the others draw as it is.
    for_classes, for_images, _ = np.random.default_rng(seed).spawn(3)
    trainval, test_seen, test_unseen = split.trainval, split.test_seen, split.test_unseen
    seen = np.unique(table.labels[trainval])
    if classes is not None:
        if classes > len(seen):
            raise UserError(
                f"subset.classes={classes} is more than the {len(seen)} seen classes of {table.name}; lower it."
            )
        kept = for_classes.permutation(seen)[:classes]
        trainval = trainval[np.isin(table.labels[trainval], kept)]
        test_seen = test_seen[np.isin(table.labels[test_seen], kept)]
    if images is not None:
        drawn = {c: for_images.permutation(split.trainval[table.labels[split.trainval] == c])[:images] for c in seen}
        trainval = np.intersect1d(trainval, np.concatenate(list(drawn.values())))
    if imbalance is not None:
        labels, key = table.labels[test_unseen], f"subset.imbalance={imbalance:g}"
        test_unseen = test_unseen[thinned(labels, imbalance, seed, key, table.class_names)]
    settings = {"images": images, "classes": classes, "imbalance": imbalance, "seed": seed}
    origin = {**split.origin, "subset": {k: v for k, v in settings.items() if v is not None}}
    return replace(split, trainval=trainval, test_seen=test_seen, test_unseen=test_unseen, origin=origin)


def thinned(labels: Array, ratio: float, seed: int, key: str, names: Sequence[str]) -> Array:
    """Positions of the images that remain of unequal classes, as ``imbalance`` of :func:`subset` says.

    Parameters
    ----------
    labels : (L,)
        Classes of the images; those below 0 are unknown, and their images remain.
    ratio : float >= 1
    seed : int
        Draws the order of the classes and their images, by the third generator that it spawns in :func:`subset`.
    key : str
        The setting, for the message.
    names : sequence of str
        Name of each class, for the message.

    Raises
    ------
    UserError
        If the ratio leaves a class without an image.
    """
    rng = np.random.default_rng(seed).spawn(3)[2]
    present = rng.permutation(np.unique(labels[labels >= 0]))
    most = min(int((labels == c).sum()) for c in present) if len(present) else 0
    kept = [np.flatnonzero(labels < 0)]
    for place, c in enumerate(present):
        n = round(most * ratio ** (-place / max(len(present) - 1, 1)))
        if not n:
            raise UserError(
                f"{key} leaves {names[c]!r} without a test image: the smallest unseen class has {most}; choose a ratio "
                f"of at most {most}."
            )
        kept.append(rng.permutation(np.flatnonzero(labels == c))[:n])
    return np.sort(np.concatenate(kept))
