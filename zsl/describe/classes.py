"""Class descriptions as they are read: names, sentences and named attributes, checked once for all formats."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from zsl.checks import Array
from zsl.describe.files import Written, read_csv_classes, read_yaml_classes
from zsl.errors import UserError, did_you_mean
from zsl.text import not_text

log = logging.getLogger(__name__)

_READERS: Mapping[str, Callable[[Path], list[Written]]] = {
    ".yaml": read_yaml_classes, ".yml": read_yaml_classes, ".csv": read_csv_classes,
}  # fmt: skip


@dataclass(frozen=True)
class Descriptions:
    """C classes in the order of their file."""

    names: tuple[str, ...]
    """C names as the file has them"""
    sentences: tuple[tuple[str, ...], ...]
    """The sentences of each class; none where its name is the only text"""
    attribute_names: tuple[str, ...]
    """q names; none where the file has no attributes"""
    attributes: Array
    """(C, q) float64; NaN is unknown"""
    has_text: bool
    """Whether there is anything to encode: not where the file has named attributes only"""


def spoken(name: str) -> str:
    """A class name as words: ``_`` and ``+`` are blanks.

    Examples
    --------
    >>> spoken("polar+bear")
    'polar bear'
    """
    return " ".join(name.replace("_", " ").replace("+", " ").split())


def read_descriptions(path: Path) -> Descriptions:
    """Read the classes of a YAML or CSV file; see docs/descriptions.md for what may stand in it.

    Raises
    ------
    UserError
        For a file that is neither, one without classes, a class without description, a class named twice (capitals and
        blanks do not count), and an attribute that some classes lack.
    """
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise UserError(f"{path}: descriptions of classes are read from .yaml or .csv; save them as one of these.")
    found = reader(path)
    if not found:
        raise UserError(f"{path} describes no class; write a line 'NAME: A sentence.' for each (CSV: a row).")
    _check_names([c.name for c in found], path)
    has_text = any(c.sentences for c in found) or not any(c.attributes for c in found)
    attribute_names = tuple(dict.fromkeys(a for c in found for a in c.attributes))
    for c in found:
        _check_complete(c, attribute_names, has_text, path)
    bare = [c.name for c in found if has_text and not c.sentences]
    if bare:
        which = "every class" if len(bare) == len(found) else f"{len(bare)} classes (first: {bare[0]})"
        log.info("%s: %s has no sentence, so that its name is its only text.", path, which)
    rows = [[c.attributes[a] for a in attribute_names] for c in found]
    return Descriptions(
        names=tuple(c.name for c in found),
        sentences=tuple(tuple(c.sentences or ()) for c in found),
        attribute_names=attribute_names,
        attributes=np.array(rows, dtype=np.float64).reshape(len(found), len(attribute_names)),
        has_text=has_text,
    )


def _check_names(names: Sequence[str], path: Path) -> None:
    """Refuse names that are nothing, no text, or alike; the readers leave none that occurs twice."""
    first: dict[str, str] = {}
    for i, name in enumerate(names, start=1):
        if not spoken(name):
            raise UserError(f"{path}: class {i} has no name; give it one.")
        if not_text([name]):
            raise UserError(f"{path}: the class name '{not_text([name])}' is not text in UTF-8; rename it.")
        other = first.setdefault(spoken(name).casefold(), name)
        if other != name:
            raise UserError(
                f"{path}: the classes {other!r} and {name!r} differ in capitals or blanks only; write one name."
            )


def _check_complete(c: Written, attribute_names: Sequence[str], has_text: bool, path: Path) -> None:
    if c.sentences == [] or (has_text and c.sentences is None and c.attributes):
        raise UserError(
            f"{path}: the class {c.name!r} has no description; write a sentence, or leave it out of the file."
        )
    lacking = next((a for a in attribute_names if a not in c.attributes), None)
    if lacking is not None:
        raise UserError(
            f"{path}: the class {c.name!r} lacks the attribute {lacking!r}, which other classes have"
            f"{did_you_mean(lacking, c.attributes)}; write it for each class, without a value where it is unknown."
        )
    if np.isinf(list(c.attributes.values())).any():
        raise UserError(f"{path}: the class {c.name!r} has an infinite attribute; give a number.")
    if not has_text and all(np.isnan(list(c.attributes.values()))):
        raise UserError(f"{path}: the class {c.name!r} has no attribute value at all; give it some, or leave it out.")
