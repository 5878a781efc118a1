"""Images of unseen classes that the user has named: what is refused, and how they join the test images."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from zsl.checks import Array
from zsl.errors import UserError, did_you_mean

Labelled: TypeAlias = tuple[Array, list[Any]]
"""Features (k, p) before pre-processing, and the class name of each image"""


def check_labelled(
    labelled: Any, features: Callable[[Any], Array], unseen: Sequence[Hashable], seen: Iterable[Hashable]
) -> Labelled | None:
    """A pair (X, y) of images and their class names as the classifier keeps it; ``None`` where there are no images.

    Parameters
    ----------
    labelled : pair, optional
        Features (k, p) and k class names.
    features : callable
        Checks the features.
    unseen, seen : sequence
        Names of the classes with and without training images.

    Raises
    ------
    UserError
        For something else, names that are not of unseen classes, and one image with two classes.
    """
    if labelled is None:
        return None
    if not isinstance(labelled, tuple | list) or len(labelled) != 2:
        raise UserError("labelled should be a pair (X, y): features of images of unseen classes, and their classes.")
    names: list[Any] = np.asarray(labelled[1], dtype=object).tolist()
    if np.ndim(labelled[1]) != 1 or len(names) != len(labelled[0]):
        raise UserError(f"labelled should have a class for each of its {len(labelled[0])} images.")
    if not names:
        return None
    X = features(labelled[0])
    check_names(names, unseen, seen, "labelled")
    _, which = np.unique(X, axis=0, return_inverse=True)
    check_agreement(which.ravel().tolist(), names, "labelled", [f"in row {i}" for i in range(len(names))])
    return X, names


def check_names(names: Iterable[Any], unseen: Sequence[Any], seen: Iterable[Any], where: str) -> None:
    """Refuse class names that are not of unseen classes.

    Parameters
    ----------
    where : str
        What messages call the labels, such as a file.

    Raises
    ------
    UserError
        For the first such name.
    """
    known, trained = set(unseen), set(seen)
    for name in names:
        if name in trained:
            raise UserError(
                f"{where} names the class {name!r}, which has training images; labels are for images of unseen classes."
            )
        if name not in known:
            hint = did_you_mean(str(name), map(str, unseen))
            raise UserError(f"{where} names the class {name!r}, which is no unseen class{hint}; correct the name.")


def check_agreement(images: Sequence[Hashable], names: Sequence[Any], where: str, words: Sequence[str]) -> None:
    """Refuse labels by which one image has two classes; ``words`` say which image each label is for.

    Raises
    ------
    UserError
        For the first such image.
    """
    first: dict[Hashable, tuple[Any, str]] = {}
    for image, name, word in zip(images, names, words, strict=True):
        before, at = first.setdefault(image, (name, word))
        if before != name:
            both = f"the image {word}" if at == word else f"one image, {at} and {word},"
            raise UserError(f"{where} calls {both} both {before!r} and {name!r}; leave one class.")


def in_front(labelled: Labelled | None, X: Array, classes: Iterable[Hashable]) -> tuple[Array, Array | None]:
    """Test images X (L, p) behind the labelled images of these classes, and the position of each one's class, else -1.

    Examples
    --------
    >>> in_front((np.array([[1.0], [2.0]]), ["cat", "dog"]), np.array([[3.0]]), ["dog", "cow"])
    (array([[2.],
           [3.]]), array([ 0, -1]))
    """
    if labelled is None:
        return X, None
    place = {name: i for i, name in enumerate(classes)}
    found = np.array([place.get(name, -1) for name in labelled[1]], dtype=np.int64)
    rows = found >= 0
    return np.vstack([labelled[0][rows], X]), np.concatenate([found[rows], np.full(len(X), -1)])
