"""Labels spread from the class prototypes over a graph of all test images (transductive; Eqs. 9-10)."""

from __future__ import annotations

import logging

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from zsl.checks import Array, Count, Positive, as_matrix, check_arguments
from zsl.inference.graph import gaussian_graph, normalised
from zsl.inference.labels import nearest, unit_rows
from zsl.inference.rules import uses

log = logging.getLogger(__name__)


@uses("attributes of unseen classes", "unlabelled test images")
def spread(
    Z_hat: Array,
    Z_unseen: Array,
    *,
    mu: Positive = 0.1,
    sigma: Positive | None = None,
    n_neighbors: Count = 15,
    unit: bool = True,
) -> Array:
    r"""Label spreading (Zhou et al. 2003) from the classes to all test images at once.

    The nodes are the M classes and the L images. Eq. (9) (``eq:zhou``), each pair counted once, is minimised by

    .. math:: F = \tfrac{\mu}{1 + \mu} \bigl(I - \tfrac{1}{1 + \mu} S\bigr)^{-1} Y

    (Eq. (10), with nodes as rows), solved by conjugate gradients.

    Parameters
    ----------
    Z_hat : (L, q)
        Predicted attributes of all test images.
    Z_unseen : (M, q)
        Attributes of the classes, the labelled nodes.
    mu : float > 0
        Pull towards the initial labels. Every mu > 0 gives the same solution up to how far labels travel.
    sigma : float > 0, optional
        Kernel width; ``None``: the median distance to the neighbours.
    n_neighbors : int
        Neighbours of each node in the graph.
    unit : bool
        Scale predictions and prototypes to unit length first. Predicted attributes are shrunken, about a quarter as
        long as prototypes on real images; without a common scale the prototypes are far from every image.

    Returns
    -------
    (L, M) scores. An image in a part of the graph that holds no class has no label to receive; it gets the scores of
    :func:`zsl.inference.labels.nearest`, and the number of such images is logged.
    """
    check_arguments(spread, locals())
    Z_unseen = as_matrix(Z_unseen, "Z_unseen").astype(np.float64, copy=False)
    Z_hat = as_matrix(Z_hat, "Z_hat", n_columns=Z_unseen.shape[1]).astype(np.float64, copy=False)
    if unit:
        Z_hat, Z_unseen = unit_rows(Z_hat), unit_rows(Z_unseen)
    M = len(Z_unseen)
    W = gaussian_graph(np.vstack([Z_unseen, Z_hat]), n_neighbors, sigma)
    F = spread_labels(normalised(W), np.eye(len(Z_hat) + M, M), mu)[M:]
    component = connected_components(W, directed=False)[1]
    stranded = ~np.isin(component[M:], component[:M])
    if stranded.any():
        log.info(
            "%d of %d test images are connected to no class and take the nearest one",
            stranded.sum(),
            len(Z_hat),
        )
        F[stranded] = nearest(Z_hat[stranded], Z_unseen)
    return F


def spread_labels(S: sp.csr_array, Y: Array, mu: float, *, tol: float = 1e-10, max_iter: int = 10_000) -> Array:
    """``mu / (1 + mu) (I - S / (1 + mu))^-1 Y`` (Eq. 10): S (n, n) symmetric with spectrum in [-1, 1], Y (n, M).

    Conjugate gradients on all columns at once; each stops at a residual of ``tol`` times its right-hand side. The
    matrix is positive definite with condition number at most ``(2 + mu) / mu``, so no preconditioner is needed.
    """
    alpha = 1 / (1 + mu)
    F = np.zeros_like(Y)
    R = (1 - alpha) * Y
    P = R.copy()
    rr = np.einsum("ij,ij->j", R, R)
    goal = tol**2 * rr
    for _ in range(max_iter):
        if (rr <= goal).all():
            break
        Q = P - alpha * (S @ P)
        curvature = np.einsum("ij,ij->j", P, Q)
        length = np.divide(rr, curvature, out=np.zeros_like(rr), where=curvature > 0)
        F += length * P
        R -= length * Q
        previous, rr = rr, np.einsum("ij,ij->j", R, R)
        P = R + np.divide(rr, previous, out=np.zeros_like(rr), where=previous > 0) * P
    return F
