"""Label rules that compare predicted attributes with those of the classes, one image at a time (inductive)."""

from __future__ import annotations

from typing import Any

import numpy as np

from zsl.checks import Array, as_matrix, check_no_mask, check_no_overflow
from zsl.errors import UserError
from zsl.inference.blocks import Scores
from zsl.inference.rules import label_rule
from zsl.linalg import cosines, squared_distances


@label_rule()
def nearest(Z_hat: Array, Z_unseen: Array) -> Array:
    """Negative squared Euclidean distance to each class, Eq. (8) (``nearest``).

    Parameters
    ----------
    Z_hat : (L, q)
        Predicted attributes.
    Z_unseen : (M, q)
        Attributes of the classes.

    Returns
    -------
    (L, M) scores, at most 0

    Examples
    --------
    >>> nearest(np.array([[0.0, 0.0]]), np.array([[3.0, 4.0], [1.0, 0.0]]))
    array([[-25.,  -1.]])
    """
    Z_hat, Z_unseen = attribute_pair(Z_hat, Z_unseen)
    return -squared_distances(Z_hat, Z_unseen)


@label_rule()
def cosine(Z_hat: Array, Z_unseen: Array) -> Array:
    """Cosine of the angle to each class; 0 for a zero row.

    Parameters
    ----------
    Z_hat : (L, q)
        Predicted attributes.
    Z_unseen : (M, q)
        Attributes of the classes.

    Returns
    -------
    (L, M) scores in -1..1

    Examples
    --------
    >>> cosine(np.array([[2.0, 0.0]]), np.array([[1.0, 0.0], [0.0, 1.0], [-3.0, 0.0]]))
    array([[ 1.,  0., -1.]])
    """
    Z_hat, Z_unseen = attribute_pair(Z_hat, Z_unseen)
    return cosines(Z_hat, Z_unseen)


@label_rule()
def dot(Z_hat: Array, Z_unseen: Array) -> Array:
    """Inner product with each class.

    Predicted attributes are shrunken, so :func:`nearest` favours classes with short attribute rows; the inner product
    favours classes with long rows instead.

    Parameters
    ----------
    Z_hat : (L, q)
        Predicted attributes.
    Z_unseen : (M, q)
        Attributes of the classes.

    Returns
    -------
    (L, M) scores

    Examples
    --------
    >>> dot(np.array([[1.0, 2.0]]), np.array([[1.0, 0.0], [1.0, 1.0]]))
    array([[1., 3.]])
    """
    Z_hat, Z_unseen = attribute_pair(Z_hat, Z_unseen)
    return Z_hat @ Z_unseen.T


def confident_images(scores: Array | Scores, share: float) -> list[Array]:
    """The images of each class that win by the largest margin over the second class.

    Parameters
    ----------
    scores : (L, M)
    share : float in 0..1
        Share of the images that a class wins, but at least one image.

    Returns
    -------
    list of M arrays of rows; empty for a class that wins no image
    """
    scores = Scores.of(scores)
    M = scores.shape[1]
    found = []
    for _, block in scores.blocks():
        two = np.partition(block, max(M - 2, 0), axis=1)[:, -min(M, 2) :]
        found.append((block.argmax(axis=1), two[:, -1] - two[:, 0]))
    winner, margin = (np.concatenate(parts) for parts in zip(*found))
    chosen = []
    for m in range(M):
        mine = np.flatnonzero(winner == m)
        best = mine[np.argsort(-margin[mine], kind="stable")]
        chosen.append(best[: max(1, int(np.ceil(share * mine.size)))])
    return chosen


def attribute_pair(Z_hat: Array, Z_unseen: Array) -> tuple[Array, Array]:
    """Predicted attributes (L, q) and those of the classes (M, q) as float matrices that go together.

    Raises
    ------
    UserError
        For shapes that do not fit, NaN or inf, and numbers whose squares overflow.
    """
    Z_unseen = as_matrix(Z_unseen, "Z_unseen")
    Z_hat = as_matrix(Z_hat, "Z_hat", n_columns=Z_unseen.shape[1])
    check_no_overflow(Z_unseen, "Z_unseen")
    # Predictions of nearly nothing are harmless beside the classes.
    if np.abs(Z_hat).max() > 1:
        check_no_overflow(Z_hat, "Z_hat")
    return Z_hat, Z_unseen


def checked_labels(labelled: Any, n: int, M: int) -> Array:
    """Labels of n test images as integers: a class 0..M-1, or -1 where there is none; ``None`` is no label at all.

    Raises
    ------
    UserError
        For anything else.
    """
    if labelled is None:
        return np.full(n, -1)
    check_no_mask(labelled, "labelled", "give -1 where there is no label")
    found = np.asarray(labelled)
    if found.shape != (n,) or found.dtype.kind not in "iu" or (n and (found.min() < -1 or found.max() >= M)):
        raise UserError(
            f"labelled should have a whole number for each of the {n} test images: a class from 0 to {M - 1}, or -1 "
            "where there is no label."
        )
    return found.astype(np.int64)
