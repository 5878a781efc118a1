"""Sparse Gaussian neighbour graphs."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from zsl.checks import Array


def gaussian_graph(V: Array, n_neighbors: int, sigma: float | None) -> sp.csr_array:
    """Symmetric weights ``exp(-|v_i - v_j|^2 / 2 sigma^2)`` between nodes of which one is among the other's neighbours.

    Parameters
    ----------
    V : (n, d)
        Nodes, one per row.
    n_neighbors : int
        Nearest other nodes of each node (all of them if there are fewer); a node is never its own neighbour.
    sigma : float > 0, optional
        Kernel width; ``None``: the median distance to those neighbours (1 where that is zero).

    Returns
    -------
    (n, n) csr, zero diagonal. Edges whose weight underflows are absent.
    """
    from sklearn.neighbors import NearestNeighbors

    n = len(V)
    k = min(n_neighbors, n - 1)
    if k < 1:
        return sp.csr_array((n, n))
    # Without a query, a point is not its own neighbour, duplicates included.
    distance, index = NearestNeighbors(n_neighbors=k).fit(V).kneighbors()
    if sigma is None:
        sigma = float(np.median(distance)) or 1.0
    weight = np.exp(-((distance / sigma) ** 2) / 2)
    W = sp.csr_array((weight.ravel(), index.ravel(), np.arange(0, n * k + 1, k)), shape=(n, n))
    W = W.maximum(W.T).tocsr()
    W.eliminate_zeros()
    return W


def normalised(W: sp.csr_array) -> sp.csr_array:
    """``S = D^-1/2 W D^-1/2`` with degrees ``D``; rows of isolated nodes are zero."""
    degree = np.asarray(W.sum(axis=1)).ravel()
    with np.errstate(divide="ignore"):
        root = np.where(degree > 0, 1 / np.sqrt(degree), 0.0)
    return (sp.diags_array(root) @ W @ sp.diags_array(root)).tocsr()
