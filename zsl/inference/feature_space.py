"""Label rules that look at images in feature space, alone or together with attribute space (inductive)."""

from __future__ import annotations

from typing import Any

import numpy as np

from zsl.checks import Array, Share, as_matrix
from zsl.errors import UserError
from zsl.inference.attributes import Attributes
from zsl.inference.blocks import Scores
from zsl.inference.labels import confident_images
from zsl.inference.rules import label_rule
from zsl.inference.statistics import SeenStatistics
from zsl.linalg import class_sums, standard_scores, unit_rows


@label_rule()
def code_eszsl(attributes: Attributes, Z_unseen: Array, statistics: SeenStatistics) -> Array:
    """Compatibility ``a V z'`` of ESZSL, with the sparse codes in the place of the features.

    Parameters
    ----------
    attributes : Attributes
        The prediction with its codes a (L, r).
    Z_unseen : (M, q)
        Attributes of the classes.
    statistics : SeenStatistics
        Its ``V`` (r, q) comes in closed form from the codes of the seen images, see
        :func:`zsl.inference.statistics.code_compatibility`. The scores of several dictionaries are added.

    Returns
    -------
    (L, M) scores

    Raises
    ------
    UserError
        For a model without dictionaries.

    Examples
    --------
    >>> from zsl.sparse import Codes
    >>> attributes = Attributes(np.eye(2)[:1], Codes(np.array([[2.0, 0.0]]), gap=np.zeros(1), n_iter=1))
    >>> statistics = SeenStatistics(np.eye(2), np.eye(2), np.eye(2), concentration=10.0, V=np.eye(2))
    >>> code_eszsl(attributes, np.eye(2), statistics)
    array([[2., 0.]])
    """
    if attributes is None or attributes.codes is None or statistics.V is None:
        raise UserError("the inference rule code_eszsl needs a model with dictionaries; use model=coupled, or cosine.")
    Z_unseen = as_matrix(Z_unseen, "Z_unseen", n_columns=statistics.V.shape[1])
    return attributes.codes.A @ statistics.V @ Z_unseen.T


@label_rule()
def visual(
    X: Array, Z_unseen: Array, statistics: SeenStatistics, model: Any, attributes: Attributes | None = None
) -> Array:
    """Cosine, in whitened feature space, of each image and of the prototype that the class attributes predict.

    The image is the reconstruction ``a Dx`` where the model has dictionaries: it leaves out what no atom explains.
    Predicting features from attributes, not the reverse, keeps prototypes apart and hubs rare (Shigeto et al. 2015).

    Returns
    -------
    (L, M) cosines for images X (L, p) and classes Z_unseen (M, q)

    Examples
    --------
    >>> statistics = SeenStatistics(W=np.eye(2), means=np.eye(2), attributes=np.eye(2), concentration=10.0)
    >>> visual(np.array([[3.0, 4.0]]), np.eye(2), statistics, model=None)
    array([[0.6, 0.8]])
    """
    codes = None if attributes is None else attributes.codes
    images = X if codes is None else codes.A @ model.Dx_
    return statistics.directions(images) @ statistics.prototypes(Z_unseen).T


@label_rule(base="auto")
def bidirectional(
    base_scores: Array,
    X: Array,
    Z_unseen: Array,
    statistics: SeenStatistics,
    model: Any,
    attributes: Attributes | None = None,
    *,
    weight: Share | None = None,
) -> Array:
    r"""Standard scores of the base rule and of :func:`visual`: :math:`2 (1 - w) s_{base} + 2 w s_{visual}`.

    Parameters
    ----------
    base_scores : (L, M)
        Scores in attribute space. The base rule ``auto`` is ``code_eszsl`` for models with dictionaries, else the
        model's native scores.
    weight : float in 0..1, optional
        Weight w of the scores in feature space. Default: 0.25 for models that compare images and classes in one space
        (``clip`` and ``clip_adapter``), else 0.5.

    Returns
    -------
    (L, M) scores

    Examples
    --------
    >>> statistics = SeenStatistics(W=np.eye(2), means=np.eye(2), attributes=np.eye(2), concentration=10.0)
    >>> bidirectional(np.array([[5.0, 4.0]]), np.array([[3.0, 4.0]]), np.eye(2), statistics, model=None).round(6)
    array([[0., 0.]])
    """
    in_feature_space = visual(X, Z_unseen, statistics, model, attributes)
    n, M = in_feature_space.shape
    base_scores = as_matrix(base_scores, "base_scores", n_rows=n, n_columns=M)
    if weight is None:
        weight = 0.25 if getattr(model, "one_space", False) else 0.5
    # Twice the mean, so that equal weights make the plain sum.
    return 2 * (1 - weight) * standard_scores(base_scores) + 2 * weight * standard_scores(in_feature_space)


def spherical_k_means(U: Array, means: Array, max_iter: int = 1000) -> Array:
    """Mean directions (M, p) of the clusters of unit rows U (L, p) that k-means by cosine finds from ``means`` (M, p).

    A cluster without images, or whose images cancel, keeps its mean.
    """
    labels = None
    for _ in range(max_iter):
        found = (U @ means.T).argmax(axis=1)
        if labels is not None and (found == labels).all():
            break
        labels = found
        sums = class_sums(U, labels, len(means))
        means = np.where(np.abs(sums).max(axis=1, keepdims=True) > 0, unit_rows(sums), means)
    return means


def confident_means(U: Array, scores: Array | Scores, share: float = 0.5) -> Array:
    """Mean direction (M, p) of the more confident images of each class, by standard scores.

    Parameters
    ----------
    U : (L, p)
        Unit rows, one for each image.
    scores : (L, M)
        The scores that say which class an image belongs to. A class that wins no image takes the image that scores
        the class highest.
    share : float in 0..1
        Share of each class's images that count as confident.
    """
    M = scores.shape[1]
    best, image = np.full(M, -np.inf), np.zeros(M, dtype=np.int64)

    def standard(rows: slice, block: Array) -> Array:
        S = standard_scores(block)
        first = S.argmax(axis=0)
        value = S[first, np.arange(M)]
        image[value > best] = first[value > best] + rows.start
        np.maximum(best, value, out=best)
        return S

    chosen = confident_images(Scores.of(scores).map(standard), share)
    return unit_rows(np.stack([U[r].mean(axis=0) if r.size else U[image[m]] for m, r in enumerate(chosen)]))
