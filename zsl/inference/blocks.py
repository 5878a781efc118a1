"""Scores of many images for many classes by blocks of images, so that memory need not hold all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from zsl.checks import Array
from zsl.errors import UserError
from zsl.system import machine_memory

MOST_SCORES = 2**23
"""Scores in one block (64 MiB in double precision); a rule holds up to ten arrays of this size"""
MOST_IMAGES = 8192
"""Images in one block, whose predicted attributes and codes are computed together"""
WHOLE = 2**24
"""Scores up to which a rule that looks at all images has them whole: it then computes its base scores only once"""

# Arrays of all scores that a rule without blocks holds at least: its base scores, their standard scores, its own.
_ARRAYS = 3


class Scores:
    """Scores (L, M) that are computed for some of the images each time that somebody asks for them.

    Parameters
    ----------
    shape : (L, M)
    rows : callable
        Maps a slice of the images to their scores (l, M).

    Examples
    --------
    >>> scores = Scores.of(np.eye(3))
    >>> [(rows.start, rows.stop, block.shape) for rows, block in scores.blocks()]
    [(0, 3, (3, 3))]
    """

    def __init__(self, shape: tuple[int, int], rows: Callable[[slice], Array]) -> None:
        self.shape, self.rows, self.whole = shape, rows, False

    @classmethod
    def of(cls, scores: Array | Scores) -> Scores:
        """Scores that are in memory, which are one block; or those given."""
        if isinstance(scores, Scores):
            return scores
        scores = np.asarray(scores)
        found = cls(scores.shape, lambda rows: scores[rows])
        found.whole = True
        return found

    def __len__(self) -> int:
        return self.shape[0]

    def map(self, function: Callable[[slice, Array], Array]) -> Scores:
        """The scores (l, M) that ``function(rows, scores)`` makes of each block, when the block is asked for."""
        found = Scores(self.shape, lambda rows: function(rows, self.rows(rows)))
        found.whole = self.whole
        return found

    def kept(self) -> Scores:
        """The same scores, computed now where they are one block, which later calls then do not compute again."""
        return Scores.of(self.rows(slice(0, len(self)))) if self.whole else self

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""
        return 1 if self.whole else len(row_blocks(*self.shape, MOST_IMAGES))

    def in_memory(self, rule: str) -> Array:
        """All scores (L, M), for a rule that needs them at once; raises as :func:`check_fits` does."""
        if not self.whole:
            check_fits(*self.shape, rule)
        blocks = [block for _, block in self.blocks()]
        return blocks[0] if len(blocks) == 1 else np.vstack(blocks)

    def blocks(self) -> Iterator[tuple[slice, Array]]:
        """The slices of the images one after another, each with its scores."""
        for rows in [slice(0, len(self))] if self.whole else row_blocks(*self.shape, MOST_IMAGES):
            yield rows, self.rows(rows)


class Prepared:
    """Images (L, p) that are pre-processed when a slice of them is asked for: a copy of many images takes much memory.

    Parameters
    ----------
    X : (L, p)
        Before pre-processing.
    prepare : callable
        Pre-processing of rows, each by itself.
    """

    def __init__(self, X: Array, prepare: Callable[[Array], Array]) -> None:
        self.X, self.prepare = X, prepare

    def __len__(self) -> int:
        return len(self.X)

    def __getitem__(self, rows: slice) -> Array:
        return self.prepare(self.X[rows])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(self.prepare(self.X), dtype)


def row_blocks(n: int, n_classes: int, most: int | None = None) -> list[slice]:
    """Slices of n images with at most :data:`MOST_SCORES` scores each, and at most ``most`` images.

    Examples
    --------
    >>> [rows.stop - rows.start for rows in row_blocks(1000, n_classes=20_000)]
    [419, 419, 162]
    """
    size = max(1, MOST_SCORES // max(n_classes, 1))
    size = size if most is None else min(size, most)
    return [slice(i, min(i + size, n)) for i in range(0, n, size)]


def check_fits(n: int, n_classes: int, rule: str) -> None:
    """Refuse a rule that needs all scores at once where the machine has too little memory for them.

    Raises
    ------
    UserError
        With the sizes and with what would fit.
    """
    needed, there = _ARRAYS * 8 * n * n_classes, machine_memory()
    if 0 < there < needed:
        raise UserError(
            f"inference.labels={rule} holds all scores at once, {needed / 2**30:.0f} GiB for {n} images and "
            f"{n_classes} classes, and the machine has {there / 2**30:.0f} GiB; predict for fewer images, or use a run "
            "with inference=inductive or inference.labels=mixture, which take them in blocks."
        )
