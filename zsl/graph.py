"""Sparse Gaussian neighbour graphs, their Laplacians, and linear systems in them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp

from zsl.checks import Array
from zsl.device import CPU, Device, current
from zsl.linalg import squared_distances

log = logging.getLogger(__name__)

# Up to here neighbours are found by comparing every pair: seconds on one core.
EXACT_UP_TO = 20_000
# Pairs that a GPU compares at once.
_PAIRS = 2**26
# Zelnik-Manor & Perona (2004): a node's own scale is its distance to its seventh neighbour.
_LOCAL = 7
# Nodes on which the approximate search is compared with the exact one, and the seed of both.
_SAMPLE = 500
_SEED = 0


class Neighbours(NamedTuple):
    """The nearest other nodes of every node, and how far they can be trusted."""

    distance: Array
    """(n, k) ascending; inf where the approximate search found fewer."""
    nodes: Array
    """(n, k) which they are; where the distance is inf, any."""
    recall: float
    """Share of the neighbours of a random sample of nodes that are true ones, 0..1; 1 for the exact search."""
    exact: bool


def neighbours(V: Array, n_neighbors: int, *, exact_up_to: int = EXACT_UP_TO) -> Neighbours:
    """The ``n_neighbors`` nearest other rows of each row of V (n, d), or all there are if these are fewer.

    Above ``exact_up_to`` rows by nearest-neighbour descent (pynndescent), always from the same seed, with the recall
    measured on a random sample of rows against the exact search.
    """
    n = len(V)
    k = min(n_neighbors, n - 1)
    if k < 1:
        return Neighbours(np.empty((n, 0)), np.empty((n, 0), dtype=np.int64), 1.0, True)
    if n <= exact_up_to:
        if not current().is_cpu:
            return Neighbours(*_compared(V, k), 1.0, True)
        from sklearn.neighbors import NearestNeighbors

        # Without a query, a point is not its own neighbour, duplicates included.
        distance, index = NearestNeighbors(n_neighbors=k).fit(V).kneighbors()
        return Neighbours(distance, index, 1.0, True)
    return _approximate(V, k)


def _compared(V: Array, k: int) -> tuple[Array, Array]:
    """Distances (n, k) to the k nearest other rows of each row of V, and which they are, from all pairs on a GPU."""
    here = current()
    xp, nodes = here.xp, here.put(V.astype(np.float64, copy=False))
    index = np.empty((len(V), k), np.int64)
    numbers = xp.arange(len(V), device=here.place)
    for start in range(0, len(V), size := max(1, _PAIRS // len(V))):
        rows = slice(start, min(start + size, len(V)))
        D = squared_distances(nodes[rows, :], nodes)
        D[numbers[rows, None] == numbers[None, :]] = xp.inf
        index[rows] = here.get(here.smallest(D, k))
    distance = _distances(V, index)
    order = np.argsort(distance, axis=1, kind="stable")
    return np.take_along_axis(distance, order, axis=1), np.take_along_axis(index, order, axis=1)


def _distances(V: Array, index: Array) -> Array:
    """Distances (n, k) in double precision of each row of V to the rows ``index`` (n, k)."""
    distance = np.empty(index.shape)
    for start in range(0, len(V), 1024):
        rows = slice(start, start + 1024)
        distance[rows] = np.linalg.norm(V[index[rows]] - V[rows, None], axis=2)
    return distance


def _approximate(V: Array, k: int) -> Neighbours:
    from pynndescent import NNDescent

    n = len(V)
    # Each node comes first among its own neighbours, so one more is asked for; among duplicates it may come anywhere.
    index, found = NNDescent(V.astype(np.float32), n_neighbors=k + 1, random_state=_SEED).neighbor_graph
    distance = np.where(index >= 0, found, np.inf).astype(np.float64)
    index = np.where(index >= 0, index, 0).astype(np.int64)
    distance[index == np.arange(n)[:, None]] = np.inf
    order = np.argsort(distance, axis=1, kind="stable")[:, :k]
    index = np.take_along_axis(index, order, axis=1)
    missing = np.isinf(np.take_along_axis(distance, order, axis=1))
    distance = _distances(V, index)  # the search has rounded its own distances to single precision
    distance[missing] = np.inf
    recall = _recall(V, distance)
    log.info("%d approximate neighbours of each of %d nodes, recall %.4f on a sample", k, n, recall)
    return Neighbours(distance, index, recall, False)


def _recall(V: Array, distance: Array) -> float:
    """Share of ``distance`` (n, k) that is within the true k-th distance, on a sample: ties count as found."""
    from sklearn.neighbors import NearestNeighbors

    k = distance.shape[1]
    sample = np.random.default_rng(_SEED).choice(len(V), min(_SAMPLE, len(V)), replace=False)
    exact = NearestNeighbors(n_neighbors=k + 1, algorithm="brute").fit(V)
    farthest = exact.kneighbors(V[sample])[0][:, -1]  # the node itself is one of the k + 1
    return float((distance[sample] <= farthest[:, None] * (1 + 1e-6) + 1e-9).mean())


def gaussian_weights(found: Neighbours, sigma: float | Literal["self_tuning"] | None) -> sp.csr_array:
    """Symmetric weights between nodes of which one is among the other's neighbours.

    Parameters
    ----------
    found : Neighbours
        The n nodes' neighbours. A node is never its own.
    sigma : float > 0, "self_tuning" or None
        Weights are ``exp(-|v_i - v_j|^2 / 2 sigma^2)``. ``None``: sigma is the median distance to those neighbours (1
        where that is zero). ``self_tuning``: ``exp(-|v_i - v_j|^2 / (sigma_i sigma_j))`` with each node's distance to
        its seventh neighbour (Zelnik-Manor & Perona 2004), so that sparse and dense regions are joined alike.

    Returns
    -------
    (n, n) csr, zero diagonal. Edges whose weight underflows are absent.
    """
    distance, index = found.distance, found.nodes
    n, k = distance.shape
    if not k:
        return sp.csr_array((n, n))
    if sigma == "self_tuning":
        own = distance[:, min(_LOCAL, k) - 1]
        usable = (own > 0) & np.isfinite(own)
        # A node among its own duplicates has no scale; it takes a typical one.
        own = np.where(usable, own, float(np.median(own[usable])) if usable.any() else 1.0)
        weight = np.exp(-(distance**2) / (own[:, None] * own[index]))
    else:
        if sigma is None:
            sigma = float(np.median(distance[np.isfinite(distance)])) or 1.0
        weight = np.exp(-((distance / sigma) ** 2) / 2)
    here, there = np.nonzero(np.isfinite(distance))
    W = sp.csr_array((weight[here, there], (here, index[here, there])), shape=(n, n))
    W = W.maximum(W.T).tocsr()
    W.eliminate_zeros()
    return W


def normalised(W: sp.csr_array) -> sp.csr_array:
    """``S = D^-1/2 W D^-1/2`` with degrees ``D``; rows of isolated nodes are zero."""
    degree = np.asarray(W.sum(axis=1)).ravel()
    with np.errstate(divide="ignore"):
        root = np.where(degree > 0, 1 / np.sqrt(degree), 0.0)
    return (sp.diags_array(root) @ W @ sp.diags_array(root)).tocsr()


def laplacian(W: sp.csr_array) -> sp.csr_array:
    """``D - W`` with degrees D, divided by the mean degree, so that its scale is that of the identity."""
    degree = np.asarray(W.sum(axis=1)).ravel()
    L = (sp.diags_array(degree) - W).tocsr()
    return L / float(degree.mean()) if degree.any() else L


class Spread(NamedTuple):
    """A solution of Eq. (10) and its certificate."""

    F: Array
    """(n, M)"""
    residual: Array
    """(M,) ``|(1 + mu) F - S F - mu Y| / |mu Y|`` by column: F is off by at most ``|Y|`` times that, in norm."""
    n_iter: int


def solve_spreading(S: sp.csr_array, Y: Array, mu: float, *, tol: float = 1e-10, max_iter: int = 10_000) -> Spread:
    """Solve Eq. (10), ``mu / (1 + mu) (I - S / (1 + mu))^-1 Y``, by conjugate gradients on all columns at once.

    S (n, n) is symmetric with its spectrum in [-1, 1], and Y is (n, M). A column stops at a residual of ``tol`` times
    its right-hand side. The matrix is positive definite with a condition number of at most ``(2 + mu) / mu``, so no
    preconditioner is needed.
    """
    alpha, here = 1 / (1 + mu), current()
    there = here.sparse(S)
    return conjugate_gradients(lambda P: P - alpha * (there @ P), (1 - alpha) * Y, tol=tol, max_iter=max_iter, on=here)


def conjugate_gradients(
    times: Callable[[Any], Any], R: Array, *, tol: float = 1e-10, max_iter: int = 10_000, on: Device = CPU
) -> Spread:
    """Solve a positive definite system for every column of R (n, M) at once; ``times`` multiplies with its matrix.

    Each column may have a matrix of its own. A column stops at a residual of ``tol`` times its right-hand side.
    ``times`` gets and returns arrays of the device ``on``.

    Examples
    --------
    >>> conjugate_gradients(lambda P: 2 * P, np.array([[1.0], [3.0]])).F
    array([[0.5],
           [1.5]])
    """
    xp, B = on.xp, on.put(R)

    def dots(a: Any, b: Any) -> Any:
        """Inner products of the columns; einsum, which is not in the standard, needs no array in between."""
        return np.einsum("ij,ij->j", a, b) if on.is_cpu else xp.sum(a * b, axis=0)

    F = xp.zeros_like(B)
    rest = xp.asarray(B, copy=True)
    P = xp.asarray(B, copy=True)
    rr = dots(rest, rest)
    size = xp.sqrt(rr)
    goal = tol**2 * rr
    n_iter = 0
    while n_iter < max_iter and xp.any(rr > goal):
        Q = times(P)
        length = _quotient(xp, rr, dots(P, Q))
        F += length * P
        rest -= length * Q
        previous, rr = rr, dots(rest, rest)
        P *= _quotient(xp, rr, previous)
        P += rest
        n_iter += 1
    # The recurrence drifts from the true residual, so the certificate is computed from the solution.
    left = xp.linalg.vector_norm(B - times(F), axis=0)
    return Spread(on.get(F), on.get(_quotient(xp, left, size)), n_iter)


def _quotient(xp: Any, a: Any, b: Any) -> Any:
    """``a / b``, and 0 where b is not above 0."""
    return xp.where(b > 0, a / xp.where(b > 0, b, 1.0), 0.0)


def solve_smooth(L: sp.csr_array, A: Array, R: Array, *, tol: float = 1e-12, max_iter: int = 1000) -> Array:
    """V (n, M) with ``L V + V A = R``, for a Laplacian L (n, n), A (M, M) positive definite and R (n, M).

    The solution minimises ``tr(V' L V) + tr(V A V') - 2 tr(V' R)``. In the eigenvectors of A every column has a system
    of its own.

    Raises
    ------
    FloatingPointError
        If a column of the solution has a residual above 0.001: the Laplacian is far larger than A.

    Examples
    --------
    >>> solve_smooth(sp.csr_array((2, 2)), np.diag([1.0, 2.0]), np.ones((2, 2)))
    array([[1. , 0.5],
           [1. , 0.5]])
    """
    s, Q = np.linalg.eigh(A)
    # Rounding can make the least eigenvalues of a large matrix negative.
    s = np.maximum(s, np.finfo(np.float64).eps * s[-1])
    F = R @ Q
    if not L.count_nonzero():
        return (F / s) @ Q.T
    found = conjugate_gradients(lambda P: L @ P + s * P, F, tol=tol, max_iter=max_iter)
    # A column in the noise of the others may have any residual.
    if (found.residual > 1e-3)[np.linalg.norm(F, axis=0) > 1e-12 * np.linalg.norm(F)].any():
        raise FloatingPointError("the Laplacian is too large")
    return found.F @ Q.T


def neighbour_laplacian(V: Array, n_neighbors: int) -> sp.csr_array:
    """The :func:`laplacian` of the rows of V (n, d), each joined to its neighbours by :func:`gaussian_weights`."""
    return laplacian(gaussian_weights(neighbours(V, n_neighbors), None))
