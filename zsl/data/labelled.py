"""Images of unseen classes that the user has named: what is refused, and how they join the test images."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from zsl.checks import Array, check_no_mask
from zsl.data.dataset import ZeroShotData
from zsl.data.readers.columns import read_csv
from zsl.data.readers.features import class_places, simple_name
from zsl.errors import UserError, did_you_mean

Labelled: TypeAlias = tuple[Array, list[Any]]
"""Features (k, p) before pre-processing, and the class name of each image"""

# Answers that name no class, unless a class is called so.
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
    n = int((_shape(labelled[0]) or (-1,))[0])
    if _shape(labelled[1]) != (n,):
        each = "each of its images" if n < 0 else "its image" if n == 1 else f"each of its {n} images"
        raise UserError(f"labelled should be a pair (X, y) with a class in y for {each}.")
    if not n:
        return None
    check_no_mask(labelled[1], "labelled", "leave these images out")
    try:
        # A copy, because the caller may change its own.
        X = np.array(features(labelled[0]))
    except UserError as error:
        raise UserError(f"labelled: {str(error).rstrip('.')}; correct the features of labelled.") from None
    seen = [*seen]
    names = [
        unseen[place_of(name, unseen, seen, "labelled")] for name in np.asarray(labelled[1], dtype=object).tolist()
    ]
    _, first, which = np.unique(X, axis=0, return_index=True, return_inverse=True)
    for i, at in enumerate(first[which.ravel()]):
        if names[at] != names[i]:
            raise UserError(
                f"labelled calls one image, in row {at} and in row {i}, both {names[at]!r} and {names[i]!r}; leave one "
                "class."
            )
    return X, names


def _shape(values: Any) -> tuple[int, ...]:
    """The shape of an array, a table or a list; of a list of unlike lists its length only."""
    try:
        return tuple(values.shape) if hasattr(values, "shape") else np.shape(values)
    except ValueError:
        return (len(values), 0)


def read_answers(
    path: Path,
    images: Sequence[str | int],
    rows: Sequence[int],
    unseen: Sequence[Any],
    seen: Sequence[Any],
    taken: Container[str] = (),
) -> dict[int, int]:
    """The labels that a CSV gives to test images: their places, and the position of each one's class in ``unseen``.

    Parameters
    ----------
    path : Path
        Columns ``image`` (or ``file``) and ``class`` (or ``answer``, or both). An empty field, and ``none``, is no
        label. A column ``row`` tells images of one name apart, and may stand in place of ``image``.
    images : sequence
        What test images are called, in their order: file names or numbers, as in ``predictions.csv``.
    rows : sequence of int
        Their rows in the data, from 1.
    taken : container of str
        Names and rows of images that have a label already.

    Raises
    ------
    UserError
        If the file has no label, for images and classes that do not exist, a name that several images have, and one
        image with two classes.
    """
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise UserError(f"{path} {what}; give a CSV with columns image and class, as zsl ask RUN writes it.")
    texts = read_csv(path, lambda header, _: range(len(header)), may_be_empty=True).texts
    columns = {name.lower(): [field.strip() for field in fields] for name, fields in texts.items()}
    called = columns.get("image", columns.get("file"))
    numbers = columns.get("row")
    given = [columns[name] for name in ("class", "answer") if name in columns]
    if (called is None and numbers is None) or not given:
        raise UserError(f"{path} needs a column image and a column class (or answer); it has: {', '.join(texts)}.")
    names = [*unseen, *seen]
    labels: dict[int, tuple[int, str]] = {}
    find = _Places(path, images, rows, taken)
    for line, words in enumerate(zip(*given)):
        named = [word for word in words if not is_no_class(word, names)]
        if not named:
            continue
        name, row = (fields[line] if fields is not None else None for fields in (called, numbers))
        image = find(None if row and not name else name, row)
        for word in named:
            place = place_of(word, unseen, seen, str(path))
            before, _ = labels.setdefault(image, (place, word))
            if before != place:
                both = f"{str(unseen[before])!r} and {str(unseen[place])!r}"
                raise UserError(f"{path} calls the image {find.word(image)} both {both}; leave one class.")
    if not labels:
        if any(word for words in zip(*given) for word in words):
            raise UserError(f"{path} gives no label, since none of its answers is a class; name the class of an image.")
        column = "class" if "class" in columns else "answer"
        raise UserError(f"{path} has no answer yet; write class names into its column {column}.")
    return {image: place for image, (place, _) in labels.items()}


class _Places:
    """Finds test images by what a file of labels calls them."""

    def __init__(self, path: Path, images: Sequence[str | int], rows: Sequence[int], taken: Container[str]) -> None:
        self.path, self.images, self.rows, self.taken = path, images, rows, taken
        self.by_row = {str(row): i for i, row in enumerate(rows)}
        self.by_name: dict[str, list[int]] = {}
        for i, image in enumerate(images):
            self.by_name.setdefault(str(image), []).append(i)

    def __call__(self, name: str | None, row: str | None) -> int:
        at_row = [self.by_row[row]] if row in self.by_row else []
        found = self.by_name.get(name, []) if name is not None else at_row
        if not found:
            word = f"{name}" if name is not None else f"in row {row}"
            if (name if name is not None else row) in self.taken:
                raise UserError(f"{self.path}: the image {word} already has a label in this run; remove its line.")
            # A number like another one is no slip of the pen.
            hint = did_you_mean(word, (n for n in self.by_name if not n.isdecimal())) if name is not None else ""
            raise UserError(
                f"{self.path}: there is no test image {word} in this run{hint}; name images as predictions.csv does."
            )
        if len(found) > 1:
            found = [i for i in at_row if i in found] or found
        if len(found) > 1:
            numbers = ", ".join(str(self.rows[i]) for i in found[:5]) + (", ..." if len(found) > 5 else "")
            raise UserError(
                f"{self.path}: {len(found)} test images are called {name}; tell them apart by a column row (theirs are "
                f"{numbers}), or rename the files."
            )
        return found[0]

    def word(self, i: int) -> str:
        """What a message calls an image."""
        name = str(self.images[i])
        return name if len(self.by_name[name]) == 1 else f"{name} in row {self.rows[i]}"


def shared_names(images: Iterable[str | int]) -> set[str]:
    """The names that several images have."""
    return {name for name, n in Counter(map(str, images)).items() if n > 1}


def is_no_class(word: str, names: Iterable[Any]) -> bool:
    """Whether an answer says that there is no label; where a class is called ``none`` the word is that class."""
    if word.strip().lower() not in _NO_CLASS:
        return False
    return not word.strip() or simple_name(word) not in {simple_name(str(name)) for name in names}


def place_of(name: Any, unseen: Sequence[Any], seen: Sequence[Any], where: str) -> int:
    """The position in ``unseen`` of a name as somebody writes it: exact, or with other capitals and blanks.

    Parameters
    ----------
    where : str
        What messages call the labels, such as a file.

    Raises
    ------
    UserError
        If it is not the name of one unseen class.
    """
    classes = [*unseen, *seen]
    place = next((i for i, c in enumerate(classes) if c == name), -1)
    if place < 0 and isinstance(name, str):
        place = int(class_places([name.strip()], [str(c) for c in classes], Path(where))[0])
    if place >= len(unseen):
        raise UserError(
            f"{where} names the class {classes[place]!r}, which has training images; labels are for images of unseen "
            "classes."
        )
    if place < 0:
        hint = did_you_mean(str(name), map(str, unseen))
        raise UserError(f"{where} names the class {name!r}, which is no unseen class{hint}; correct the name.")
    return place


def rows_as_labelled(labelled: Labelled | None, X: Array) -> Array:
    """Which images X (L, p) have the features of an image that has a label, as a mask (L,).

    Numbers are compared in single precision, in which a classifier may have been stored.
    """
    known = set(_keys(labelled[0])) if labelled else set()
    return np.array([key in known for key in _keys(X)] if known else np.zeros(len(X)), dtype=bool)


def left_out(labelled: Labelled | None, X: Array) -> list[int]:
    """The rows of X (L, p) that are these labelled images, each taken once; fewer where an image is not there."""
    left = Counter(_keys(labelled[0]) if labelled else [])
    found = []
    for i, key in enumerate(_keys(X) if labelled else []):
        if left[key] > 0:
            left[key] -= 1
            found.append(i)
    return found


def _keys(X: Array) -> Iterator[bytes]:
    return (row.tobytes() for row in np.ascontiguousarray(X, dtype=np.float32) + np.float32(0))


def set_aside(data: ZeroShotData, path: Path) -> tuple[ZeroShotData, Labelled]:
    """The data without the test images that a CSV labels, and these images with their classes.

    The data's key holds their number and a hash of the labels.

    Raises
    ------
    UserError
        As :func:`read_answers` does, and if no test image is left.
    """
    seen = [data.class_names[c] for c in data.seen]
    images = data.names_unseen or data.rows_unseen
    answers = read_answers(path, images, data.rows_unseen, data.unseen_names, seen)
    rows = sorted(answers)
    if len(rows) == len(data.X_unseen):
        raise UserError(f"{path} labels every test image, so none is left to test; label some of them only.")
    names = [data.unseen_names[answers[i]] for i in rows]
    shared = shared_names(images)
    called = [data.rows_unseen[i] if str(images[i]) in shared else images[i] for i in rows]
    text = json.dumps([[str(image), str(name)] for image, name in zip(called, names)])
    about = {"images": len(rows), "hash": hashlib.sha256(text.encode()).hexdigest()[:16]}
    left = replace(without(data, rows), key={**data.key, "labelled": about})
    return left, (data.X_unseen[rows], names)


def without(data: ZeroShotData, rows: Sequence[int]) -> ZeroShotData:
    """The data without these test images."""
    kept = np.setdiff1d(np.arange(len(data.X_unseen)), rows)
    return replace(
        data,
        X_unseen=data.X_unseen[kept], y_unseen=data.y_unseen[kept],
        names_unseen=tuple(data.names_unseen[i] for i in kept) if data.names_unseen else (),
        rows_unseen=tuple(data.rows_unseen[i] for i in kept),
    )  # fmt: skip


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
