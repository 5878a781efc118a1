"""What is printed about class rows: which classes will be confused, and what tells each."""

from __future__ import annotations

import numpy as np

from zsl.checks import Array
from zsl.describe.rows import ClassRows

# Classes whose heaviest words are shown.
_SHOWN = 5
# Rows of the table of cosines that are computed at once, so that memory does not grow with the square of the classes.
_BLOCK = 512


def most_similar(rows: Array, n: int = 2) -> list[tuple[int, int, float]]:
    """The n pairs of rows (C, d) with the largest cosine, and it, largest first.

    Examples
    --------
    >>> most_similar(np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0]]), 1)
    [(0, 2, 1.0)]
    """
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = rows / np.where(length > 0, length, 1)
    found: list[tuple[int, int, float]] = []
    for start in range(0, len(unit), _BLOCK):
        cosines = unit[start : start + _BLOCK] @ unit.T
        i, j = np.nonzero(np.arange(len(unit)) > np.arange(start, start + len(cosines))[:, None])
        best = np.argsort(-cosines[i, j], kind="stable")[:n]
        found += [(int(i[k]) + start, int(j[k]), float(cosines[i[k], j[k]])) for k in best]
    return sorted(found, key=lambda pair: -pair[2])[:n]


def summary(rows: ClassRows) -> list[str]:
    """Lines for the terminal: counts, the most similar pairs of classes, and the heaviest words of tfidf."""
    names = rows.class_names
    blocks = ", ".join(f"{size} of {name}" for name, size in rows.blocks)
    n_texts = sum(len(own) for own in rows.texts)
    lines = [f"{len(names)} classes, {n_texts} texts, {rows.attributes.shape[1]} columns ({blocks})"]
    text = rows.text_rows
    compared, what = (text, "text") if text.size else (np.nan_to_num(rows.attributes), "attributes")
    for i, j, cosine in most_similar(compared):
        lines.append(f"most similar by {what}: {names[i]} and {names[j]}, cosine {cosine:.3f}")
    if rows.encoder.get("name") == "tfidf":
        terms = rows.attribute_names[-text.shape[1] :]
        for name, row in list(zip(names, text))[:_SHOWN]:
            heaviest = np.argsort(-row, kind="stable")[:3]
            lines.append(f"  {name}: {', '.join(terms[k] for k in heaviest if row[k] > 0)}")
    return lines
