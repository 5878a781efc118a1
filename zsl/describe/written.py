"""One class as a file describes it."""

from __future__ import annotations

from typing import NamedTuple


class Written(NamedTuple):
    """A class, its sentences and its attributes; nothing is checked yet."""

    name: str
    sentences: list[str] | None
    """None: nothing is said, so that the name is the only text; an empty list: a description is missing"""
    attributes: dict[str, float]
    """NaN is unknown"""
