"""Handwritten digits: 1797 real images of 8 x 8 pixels that come with scikit-learn (UCI optdigits).

The semantic table below describes how each digit is usually drawn. It was written from the shapes of the
digits, before any accuracy was measured, and holds for people's handwriting in general, not for these images.
"""

from __future__ import annotations

import numpy as np

from zsl.data.table import ImageTable
from zsl.errors import UserError

# The bars of a seven-segment display, then strokes: number of closed loops, where they lie, straight and curved
# strokes, left-right symmetry, free ends of the pen line. 0.5 means that about half of the people draw it so.
ATTRIBUTES = (
    "top bar", "upper left bar", "upper right bar", "middle bar", "lower left bar", "lower right bar", "bottom bar",
    "closed loops", "loop above", "loop below", "one large loop", "straight vertical", "diagonal stroke",
    "round stroke", "left-right symmetric", "free ends",
)  # fmt: skip
TABLE = {
    "zero":  [1, 1, 1, 0, 1, 1, 1,  1.0, 0, 0, 1,  0.0, 0.0, 1.0, 1, 0.0],
    "one":   [0, 0, 1, 0, 0, 1, 0,  0.0, 0, 0, 0,  1.0, 0.0, 0.0, 1, 1.0],
    "two":   [1, 0, 1, 1, 1, 0, 1,  0.0, 0, 0, 0,  0.0, 1.0, 0.5, 0, 1.0],
    "three": [1, 0, 1, 1, 0, 1, 1,  0.0, 0, 0, 0,  0.0, 0.0, 1.0, 0, 1.0],
    "four":  [0, 1, 1, 1, 0, 1, 0,  0.0, 0, 0, 0,  1.0, 0.5, 0.0, 0, 1.5],
    "five":  [1, 1, 0, 1, 0, 1, 1,  0.0, 0, 0, 0,  0.0, 0.0, 0.5, 0, 1.0],
    "six":   [1, 1, 0, 1, 1, 1, 1,  0.5, 0, 1, 0,  0.0, 0.0, 1.0, 0, 0.5],
    "seven": [1, 0, 1, 0, 0, 1, 0,  0.0, 0, 0, 0,  0.5, 1.0, 0.0, 0, 1.0],
    "eight": [1, 1, 1, 1, 1, 1, 1,  1.0, 1, 1, 0,  0.0, 0.0, 1.0, 1, 0.0],
    "nine":  [1, 1, 1, 1, 0, 1, 1,  0.5, 1, 0, 0,  0.5, 0.0, 1.0, 0, 0.5],
}  # fmt: skip


def load(*, feature: str = "pixels", name: str = "digits") -> ImageTable:
    """Read the images as rows of 64 grey values (0..16); ten classes with the stroke table, three unseen by default.

    "closed loops" and "free ends" are counts divided by two, so that all attributes lie in 0..1.5.
    """
    if feature != "pixels":
        raise UserError(f"feature={feature} does not exist for dataset={name}; it has: pixels.")
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    return ImageTable(
        name=name,
        feature=feature,
        features=X,
        labels=y.astype(np.int64),
        class_names=tuple(TABLE),
        attributes=np.array(list(TABLE.values()), dtype=np.float64),
        n_unseen=3,
        provenance={"source": "sklearn.datasets.load_digits (UCI optdigits test set)"},
    )
