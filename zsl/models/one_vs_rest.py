"""Regularised linear classifiers with many outputs, fitted by L-BFGS on smooth convex losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, logsumexp, softmax

from zsl.checks import Array
from zsl.linalg import Conditioned, Spectrum, spectrum
from zsl.models.base import GridCache
from zsl.models.descent import descend

Loss = Callable[[Array], tuple[float, Array]]
"""Maps outputs F (n, k) to the sum of the losses and its gradient (n, k)."""


class Linear(NamedTuple):
    """A fitted linear map ``X W + b``."""

    W: Array  # (p, k)
    b: Array  # (k,)
    residual: float
    """Largest entry of the final gradient as a share of the largest at zero, in the coordinates of the fit."""
    n_iter: int = 0

    def __call__(self, X: Array) -> Array:
        """Outputs (L, k) for X (L, p)."""
        return X @ self.W.astype(X.dtype, copy=False) + self.b.astype(X.dtype, copy=False)


def fit_linear(
    X: Array,
    loss: Loss,
    k: int,
    C: float,
    *,
    of: Spectrum,
    bias: bool = True,
    curvature: float = 0.1,
    tol: float,
    max_iter: int = 2000,
) -> Linear:
    """Minimise ``1/2 |W|^2 + C loss(X W + b)`` over W (p, k) and an unpenalised bias b (k,).

    Parameters
    ----------
    X : (n, p)
    loss : Loss
    k : int
        Number of outputs.
    C : float > 0
        Weight of the loss.
    of : Spectrum
        Spectrum of X (:func:`zsl.linalg.spectrum`). In its scaled directions the problem is well conditioned for any C.
    bias : bool
        Whether b is learned or zero.
    curvature : float > 0
        Order of magnitude of the loss's second derivative.
    tol : float > 0
        Residual at which the fit stops, see :class:`Linear`.
    max_iter : int >= 1

    Returns
    -------
    Linear
    """
    n = len(X)
    space = Conditioned(of, C * curvature, X.dtype)
    m, shrink_b = len(of.values), 1 / np.sqrt(C * curvature * n)
    # With this scale neither the value at zero nor its gradient depends on C, nor do the first step and the tolerance.
    scale = 1.0 / (C * n)

    def unpack(theta: Array) -> tuple[Array, Array]:
        U = theta[: m * k].reshape(m, k).astype(X.dtype, copy=False)
        return space.weights(U), shrink_b * theta[m * k :] * bias

    def objective(theta: Array) -> tuple[float, Array]:
        W, b = unpack(theta)
        F = (X @ W).astype(np.float64, copy=False) + b
        value, dF = loss(F)
        dU = space.slope(W + C * (X.T @ dF.astype(X.dtype, copy=False))).astype(np.float64, copy=False)
        slope = np.concatenate([dU.ravel(), bias * shrink_b * C * dF.sum(axis=0)])
        return scale * (0.5 * float(np.vdot(W, W)) + C * value), scale * slope

    found = descend(objective, np.zeros(m * k + k), tol=tol, max_iter=max_iter, memory=20)
    return Linear(*unpack(found.x), found.residual, found.n_iter)


def fit_shared(shared: GridCache, name: str, X: Array, loss: Loss, k: int, C: float, tol: float, **more: Any) -> Linear:
    """:func:`fit_linear` with the ``shared`` spectrum of X, once for each C and tol; ``name`` says which loss it is."""
    of = shared("X", lambda: spectrum(X))
    return shared((name, C, tol), lambda: fit_linear(X, loss, k, C, of=of, tol=tol, **more))


def logistic(targets: Array) -> Loss:
    """Binary logistic loss of every output, for boolean targets (n, k)."""
    T = np.where(targets, 1.0, -1.0)

    def loss(F: Array) -> tuple[float, Array]:
        return float(np.logaddexp(0, -T * F).sum()), -T * expit(-T * F)

    return loss


def multinomial(y: Array, k: int) -> Loss:
    """Cross-entropy of the softmax over k classes for labels y (n,)."""
    Y = y[:, None] == np.arange(k)

    def loss(F: Array) -> tuple[float, Array]:
        return float((logsumexp(F, axis=1) - F[Y]).sum()), softmax(F, axis=1) - Y

    return loss


def squared_hinge(targets: Array) -> Loss:
    """Squared hinge ``max(0, 1 - t f)^2`` of every output, for boolean targets (n, k)."""
    T = np.where(targets, 1.0, -1.0)

    def loss(F: Array) -> tuple[float, Array]:
        slack = np.maximum(0, 1 - T * F)
        return float((slack**2).sum()), -2 * T * slack

    return loss


def multiclass_hinge(y: Array, cost: Array) -> Loss:
    """``sum_c max(0, cost[y, c] + f_c - f_y)^2`` over c other than y, for labels y (n,) and cost (k, k).

    This is the squared form of Weston and Watkins. The form of Crammer and Singer counts only the worst class; it has
    kinks where two classes are equally bad, so no gradient could show that the minimum is reached.
    """
    rows = np.arange(len(y))

    def loss(F: Array) -> tuple[float, Array]:
        slack = np.maximum(0, cost[y] + F - F[rows, y][:, None])
        slack[rows, y] = 0
        G = 2 * slack
        G[rows, y] = -G.sum(axis=1)
        return float((slack**2).sum()), G

    return loss
