"""From predicted attributes to classes, one image at a time (inductive rules)."""

from __future__ import annotations

import numpy as np

from zsl.checks import Array, as_matrix, need_squares
from zsl.inference.rules import label_rule
from zsl.linalg import cosines, scaled_near_one, squared_distances


@label_rule()
def nearest(Z_hat: Array, Z_unseen: Array) -> Array:
    """Negative squared distance to each class, Eq. (8) (``nearest``): Z_hat (L, q), Z_unseen (M, q) -> (L, M)."""
    Z_hat, Z_unseen = attribute_pair(Z_hat, Z_unseen)
    return -squared_distances(Z_hat, Z_unseen)


@label_rule()
def cosine(Z_hat: Array, Z_unseen: Array) -> Array:
    """Cosine of the angle to each class, -1..1 (0 for a zero row): Z_hat (L, q), Z_unseen (M, q) -> (L, M)."""
    Z_hat, Z_unseen = attribute_pair(Z_hat, Z_unseen)
    return cosines(Z_hat, Z_unseen)


@label_rule()
def dot(Z_hat: Array, Z_unseen: Array) -> Array:
    """Inner product with each class: Z_hat (L, q), Z_unseen (M, q) -> (L, M).

    Unlike :func:`nearest` it does not favour classes with short attribute rows where predictions are shrunken; it
    favours those with long ones instead.
    """
    Z_hat, Z_unseen = attribute_pair(Z_hat, Z_unseen)
    return Z_hat @ Z_unseen.T


def standard_scores(scores: Array) -> Array:
    """(L, M) scores of each image with mean 0 and standard deviation 1 over the classes (0 where all are equal).

    Makes scores of different kinds addable, and leaves every image's ranking as it is.
    """
    scores = scaled_near_one(scores)
    scores = scores - scores.mean(axis=1, keepdims=True)
    deviation = np.sqrt((scores**2).mean(axis=1, keepdims=True))
    # A difference that rounding made is none.
    flat = deviation <= 1e-12
    return np.where(flat, 0, scores) / np.where(flat, 1, deviation)


def confident_images(scores: Array, share: float) -> list[Array]:
    """Of each class, the ``share`` of the images it wins that have the largest margin to the second (at least one).

    Scores (L, M); the result holds M arrays of rows, empty for a class that wins no image.
    """
    M = scores.shape[1]
    winner = scores.argmax(axis=1)
    two = np.partition(scores, max(M - 2, 0), axis=1)[:, -min(M, 2) :]
    margin = two[:, -1] - two[:, 0]
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
        On other shapes, NaN or inf, and on numbers whose squares do not fit.
    """
    Z_unseen = as_matrix(Z_unseen, "Z_unseen")
    Z_hat = as_matrix(Z_hat, "Z_hat", n_columns=Z_unseen.shape[1])
    need_squares(Z_unseen, "Z_unseen")
    # Predictions of nearly nothing are harmless beside the classes.
    if np.abs(Z_hat).max() > 1:
        need_squares(Z_hat, "Z_hat")
    return Z_hat, Z_unseen
