"""Images of unseen classes that the user has named: what is refused, and how they join the test images."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from zsl.checks import Array
from zsl.data.dataset import ZeroShotData
from zsl.data.readers.columns import read_csv
from zsl.data.readers.features import class_places
from zsl.errors import UserError, did_you_mean

Labelled: TypeAlias = tuple[Array, list[Any]]
"""Features (k, p) before pre-processing, and the class name of each image"""

# Columns of a file of labels, the first that it has; and answers that name no class.
_IMAGE, _CLASS = ("image", "file", "row"), ("class", "answer")
_NO_CLASS = {"", "-", "?", "none", "none of these", "unknown"}


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
        Names of the classes without and with training images, in this order.

    Raises
    ------
    UserError
        If ``labelled`` is no pair of equal length, names a class that is not unseen, or gives one image two classes.
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


def read_answers(path: Path, images: Sequence[str | int], unseen: Sequence[Any], seen: Sequence[Any]) -> dict[int, int]:
    """The labels that a CSV gives to test images: their rows, and the position of each one's class in ``unseen``.

    Parameters
    ----------
    path : Path
        Columns ``image`` and ``class`` (or ``answer``). An empty field, and ``none``, is no label.
    images : sequence
        What test images are called, in their order: file names or numbers, as in ``predictions.csv``.

    Raises
    ------
    UserError
        For images and classes that do not exist, and one image with two classes.
    """
    texts = read_csv(path, lambda header, _: range(len(header))).texts
    columns = [next((texts[name] for name in names if name in texts), None) for names in (_IMAGE, _CLASS)]
    if None in columns:
        raise UserError(f"{path} needs a column image and a column class (or answer); it has: {', '.join(texts)}.")
    names = {str(name) for name in (*unseen, *seen)}
    pairs = [(i.strip(), c.strip()) for i, c in zip(*columns, strict=True)]
    pairs = [(image, name) for image, name in pairs if name in names or name.lower() not in _NO_CLASS]
    rows = {str(image): i for i, image in enumerate(images)}
    for image, _ in pairs:
        if image not in rows:
            hint = did_you_mean(image, rows)
            raise UserError(f"{path}: there is no test image {image}{hint}; name images as predictions.csv does.")
    places = {name: place_of(name, unseen, seen, path) for _, name in pairs}
    check_agreement([i for i, _ in pairs], [str(unseen[places[c]]) for _, c in pairs], str(path), [i for i, _ in pairs])
    return {rows[image]: places[name] for image, name in pairs}


def place_of(name: str, unseen: Sequence[Any], seen: Sequence[Any], where: Path) -> int:
    """The position in ``unseen`` of a name as somebody writes it: exact, or with other capitals and blanks.

    Raises
    ------
    UserError
        If it is not the name of one unseen class.
    """
    names = [str(c) for c in (*unseen, *seen)]
    place = int(class_places([name], names, where)[0])
    if not 0 <= place < len(unseen):
        check_names([name if place < 0 else names[place]], names[: len(unseen)], names[len(unseen) :], str(where))
    return place


def set_aside(data: ZeroShotData, path: Path) -> tuple[ZeroShotData, Labelled | None]:
    """The data without the test images that a CSV labels, and these images with their classes.

    The data's key holds their number and a hash of the labels.

    Raises
    ------
    UserError
        As :func:`read_answers` does, and if no test image is left.
    """
    seen = [data.class_names[c] for c in data.seen]
    images = data.names_unseen or data.rows_unseen
    answers = read_answers(path, images, data.unseen_names, seen)
    rows = sorted(answers)
    kept = np.setdiff1d(np.arange(len(data.X_unseen)), rows)
    if not kept.size:
        raise UserError(f"{path} labels every test image, so none is left to test; label some of them only.")
    if not rows:
        return data, None
    names = [data.unseen_names[answers[i]] for i in rows]
    text = json.dumps([[str(images[i]), str(name)] for i, name in zip(rows, names)])
    about = {"images": len(rows), "hash": hashlib.sha256(text.encode()).hexdigest()[:16]}
    left = replace(
        data,
        X_unseen=data.X_unseen[kept], y_unseen=data.y_unseen[kept],
        names_unseen=tuple(data.names_unseen[i] for i in kept) if data.names_unseen else (),
        rows_unseen=tuple(data.rows_unseen[i] for i in kept),
        key={**data.key, "labelled": about},
    )  # fmt: skip
    return left, (data.X_unseen[rows], names)


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
