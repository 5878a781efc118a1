"""The attribute rule ``self_trained``: the semantic dictionary learns from its confident predictions (transductive)."""

from __future__ import annotations

import numpy as np

from zsl.checks import Array, Count, Positive, Share, check_arguments
from zsl.errors import UserError
from zsl.inference.attributes import Attributes, HasDictionaries, agnostic, members
from zsl.inference.labels import attribute_pair, confident_images, cosine
from zsl.inference.rules import TRANSDUCTIVE, attribute_rule
from zsl.inference.statistics import SeenStatistics


@attribute_rule("attributes of unseen classes", TRANSDUCTIVE)
def self_trained(
    model: HasDictionaries,
    X: Array,
    Z_unseen: Array,
    statistics: SeenStatistics,
    start: Attributes | None = None,
    *,
    confident: Share = 0.5,
    n_rounds: Count = 3,
    weight: Positive = 0.1,
) -> Attributes:
    r"""Attributes from a semantic dictionary that is refitted with confident test images as further training data.

    In each round, the share ``confident`` of every class's images, by margin of their cosine, is taken to have the
    attributes of the class. With codes a and K such images the dictionary is

    .. math:: D = \arg\min_D \; \tfrac{w}{K} \|Z'_K - A_K D\|^2
              + \mathrm{tr}\, (D - D_z)^\top (H + \epsilon I) (D - D_z),

    with H the mean of ``a'a`` over seen images. This is ridge regression on seen and confident images together; the
    dictionary of the seen images stands for the seen images. The codes do not depend on ``Dz`` and stay as they are.
    Where a model averages several dictionaries, each is refitted with its own codes to the images of which the mean of
    their predictions is confident.

    Parameters
    ----------
    model : fitted model with dictionaries
    X : (L, p)
        Test images, pre-processed.
    Z_unseen : (M, q)
        Attributes of the classes.
    statistics : SeenStatistics
        Its ``H`` is used.
    start : Attributes, optional
        The result of :func:`zsl.inference.agnostic`, if it is at hand.
    confident : 0..1
        Share of each class's images that count as labelled.
    n_rounds : int
    weight : float > 0
        w, the weight of the confident images beside the seen ones.

    Returns
    -------
    Attributes

    Raises
    ------
    UserError
        For a model without dictionaries.

    Examples
    --------
    >>> import zsl
    >>> data = zsl.load_dataset("digits")
    >>> model = zsl.CoupledDictionaries(n_atoms=40, n_iter=1).fit(data.X, data.y, data.Z, data.Z_unseen)
    >>> from zsl.inference import seen_statistics
    >>> statistics = seen_statistics(model, data.X, data.y, data.Z)
    >>> found = self_trained(model, data.X_unseen, data.Z_unseen, statistics, n_rounds=1)
    >>> found.Z_hat.shape == (len(data.X_unseen), data.Z_unseen.shape[1])
    True
    """
    if not isinstance(model, HasDictionaries) or statistics.H is None:
        raise UserError(
            f"inference.attributes=self_trained needs dictionaries, and {type(model).__name__} has none; "
            "use inference.attributes=agnostic, or model=coupled."
        )
    check_arguments(self_trained, locals())
    start = start or agnostic(model, X)
    assert start.codes is not None
    _, Z_unseen = attribute_pair(start.Z_hat, Z_unseen)
    parts = members(model)
    codes = np.split(start.codes.A.astype(np.float64, copy=False), len(parts), axis=1)
    Dz = [np.asarray(member.Dz_, dtype=np.float64) for member in parts]
    # Files of earlier versions hold the matrix of their one dictionary alone.
    matrices = statistics.H.reshape(-1, *statistics.H.shape[-2:])
    H = [h + 1e-3 * (np.trace(h) / len(h) or 1.0) * np.eye(len(h)) for h in matrices]
    Z_hat = np.mean([A @ D for A, D in zip(codes, Dz)], axis=0)
    for _ in range(n_rounds):
        chosen = confident_images(cosine(Z_hat, Z_unseen), confident)
        rows, labels = np.concatenate(chosen), np.repeat(np.arange(len(chosen)), [len(r) for r in chosen])
        per_image, refitted = weight / len(rows), []
        for A, D, h in zip(codes, Dz, H):
            residual = Z_unseen[labels] - A[rows] @ D
            step = np.linalg.solve(h + per_image * A[rows].T @ A[rows], per_image * A[rows].T @ residual)
            refitted.append(A @ (D + step))
        Z_hat = np.mean(refitted, axis=0)
    return Attributes(Z_hat, start.codes, {})
