"""Scores beyond the distance in attribute space, for one image at a time, and corrections for hubs."""

from __future__ import annotations

from typing import Any

import numpy as np

from zsl.checks import Array, Count, Positive, as_matrix, check_arguments
from zsl.errors import UserError
from zsl.inference.attributes import Attributes
from zsl.inference.labels import confident_images, standard_scores, unit_rows
from zsl.inference.rules import uses
from zsl.inference.statistics import Seen


def code_eszsl(attributes: Attributes, Z_unseen: Array, seen: Seen) -> Array:
    """``a V z'``: the compatibility of ESZSL, with sparse codes a (L, r) in place of features; (L, M).

    V in closed form from the codes of the seen images, :func:`zsl.inference.statistics.code_compatibility`.
    """
    if attributes is None or attributes.codes is None or seen.V is None:
        raise UserError("inference rule code_eszsl needs a model with dictionaries; use model=coupled, or cosine.")
    Z_unseen = as_matrix(Z_unseen, "Z_unseen", n_columns=seen.V.shape[1])
    return attributes.codes.A @ seen.V @ Z_unseen.T


def visual(X: Array, Z_unseen: Array, seen: Seen, model: Any, attributes: Attributes | None = None) -> Array:
    """Cosine, in within-class-whitened feature space, of each image and the prototype that attributes predict; (L, M).

    The image is the reconstruction ``a Dx`` where the model has dictionaries, which leaves out what no atom explains.
    Predicting features from attributes, not the reverse, keeps prototypes apart and hubs rare (Shigeto et al. 2015).
    """
    codes = None if attributes is None else attributes.codes
    images = X if codes is None else codes.A @ model.Dx_
    return seen.directions(images) @ seen.prototypes(Z_unseen).T


def bidirectional(
    attribute_scores: Array, X: Array, Z_unseen: Array, seen: Seen, model: Any, attributes: Attributes | None = None
) -> Array:
    """Sum of an image's standard scores in both directions: in attribute space and :func:`visual`; (L, M).

    ``attribute_scores`` (L, M) come from the rule named by ``inference.attribute_scores``.
    """
    of_images = visual(X, Z_unseen, seen, model, attributes)
    n, M = of_images.shape
    attribute_scores = as_matrix(attribute_scores, "attribute_scores", n_rows=n, n_columns=M)
    return standard_scores(attribute_scores) + standard_scores(of_images)


@uses("unlabelled test images")
def csls(anchors: Array, *, hub_neighbors: Count = 10) -> Array:
    """Cross-domain similarity local scaling (Conneau et al. 2018) of scores (L, M), for or against each class.

    ``2 s_im - r_i - r_m`` with ``r_m`` the mean of the ``hub_neighbors`` best scores that class m gets from any test
    image. (``r_i`` is the same for all classes of an image and left out.) Scores should be similarities on one scale
    over images; those of ``inference.anchors`` are brought to standard scores per image first.
    """
    check_arguments(csls, locals())
    S = standard_scores(as_matrix(anchors, "anchors"))
    k = min(hub_neighbors, len(S))
    best = np.partition(S, len(S) - k, axis=0)[len(S) - k :]
    return 2 * S - best.mean(axis=0)


@uses("unlabelled test images")
def inverted_softmax(anchors: Array, *, hub_temperature: Positive = 1.0) -> Array:
    """Probability of each image given the class (Smith et al. 2017): softmax over images, not over classes; (L, M).

    The logarithm of ``exp(s_im / T) / sum_j exp(s_jm / T)`` for standard scores s of ``inference.anchors``.
    """
    check_arguments(inverted_softmax, locals())
    S = standard_scores(as_matrix(anchors, "anchors")) / hub_temperature
    top = S.max(axis=0)
    return S - top - np.log(np.exp(S - top).sum(axis=0))


def confident_means(U: Array, scores: Array, share: float = 0.5) -> Array:
    """(M, p) mean direction of the more confident images U (L, p) of each class, by standard scores.

    A class that wins no image takes the one that scores it highest.
    """
    S = standard_scores(scores)
    rows = confident_images(S, share)
    return unit_rows(np.stack([U[r].mean(axis=0) if r.size else U[S[:, m].argmax()] for m, r in enumerate(rows)]))
