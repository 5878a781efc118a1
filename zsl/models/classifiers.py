"""Regularised linear classifiers of the seen classes, many outputs at once, by L-BFGS on smooth convex losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logsumexp, softmax

from zsl.checks import Array

Loss = Callable[[Array], tuple[float, Array]]
"""Outputs F (n, k) -> the sum of losses and its gradient (n, k)."""


class Linear(NamedTuple):
    """Outputs ``X W + b``, and how far from optimal they are."""

    W: Array  # (p, k)
    b: Array  # (k,)
    residual: float
    """Largest entry of the gradient, as a share of the largest at zero."""

    def __call__(self, X: Array) -> Array:
        """(L, k) outputs for X (L, p)."""
        return X @ self.W.astype(X.dtype, copy=False) + self.b.astype(X.dtype, copy=False)


def fit_linear(
    X: Array, loss: Loss, k: int, C: float, *, bias: bool = True, tol: float, max_iter: int = 2000
) -> Linear:
    """``min 1/2 |W|^2 + C loss(X W + b)``, the bias free: X (n, p), k outputs; stops at a residual of ``tol``."""
    n, p = X.shape
    # Large gradients at zero would make the first step and the tolerance depend on C.
    scale = 1.0 / (C * n)

    def objective(theta: Array) -> tuple[float, Array]:
        W, b = theta[: p * k].reshape(p, k), theta[p * k :]
        F = (X @ W.astype(X.dtype, copy=False)).astype(np.float64, copy=False) + (b if bias else 0.0)
        value, dF = loss(F)
        dW = W + C * (X.T @ dF.astype(X.dtype, copy=False))
        db = C * dF.sum(axis=0) if bias else np.zeros(k)
        return scale * (0.5 * float(np.vdot(W, W)) + C * value), scale * np.concatenate([dW.ravel(), db])

    start = np.zeros(p * k + k)
    largest = float(np.abs(objective(start)[1]).max()) or 1.0
    found = minimize(
        objective, start, jac=True, method="L-BFGS-B",
        options={"maxiter": max_iter, "maxfun": 2 * max_iter, "gtol": tol * largest, "ftol": 0.0, "maxcor": 20},
    )  # fmt: skip
    theta, gradient = found.x, found.jac
    if np.abs(gradient).max() > tol * largest and found.nit < max_iter:
        theta, gradient = _polish(lambda t: objective(t)[1], theta, gradient, tol * largest)
    return Linear(theta[: p * k].reshape(p, k), theta[p * k :], float(np.abs(gradient).max()) / largest)


def _polish(
    slope: Callable[[Array], Array], x: Array, g: Array, goal: float, max_iter: int = 300
) -> tuple[Array, Array]:
    """Barzilai-Borwein steps from near the minimum; the best point, and its gradient.

    Values of the objective tell points apart down to the square root of rounding, where a line search ends; gradients
    go on to do so.
    """
    best, best_g = x, g
    step = 1e-3 / max(float(np.linalg.norm(g)), 1e-300) * max(float(np.linalg.norm(x)), 1e-300)
    step = min(step, 1.0)
    for _ in range(max_iter):
        new = x - step * g
        new_g = slope(new)
        s, d = new - x, new_g - g
        curvature = float(s @ d)
        if curvature <= 0:
            break
        x, g, step = new, new_g, float(s @ s) / curvature
        if np.abs(g).max() < np.abs(best_g).max():
            best, best_g = x, g
        if np.abs(g).max() <= goal:
            break
    return best, best_g


def logistic(targets: Array) -> Loss:
    """Binary logistic loss of every output for targets (n, k) that are true or false."""
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
    """``max(0, 1 - t f)^2`` of every output for targets (n, k) that are true or false."""
    T = np.where(targets, 1.0, -1.0)

    def loss(F: Array) -> tuple[float, Array]:
        slack = np.maximum(0, 1 - T * F)
        return float((slack**2).sum()), -2 * T * slack

    return loss


def multiclass_hinge(y: Array, cost: Array) -> Loss:
    """``sum_c max(0, cost[y, c] + f_c - f_y)^2`` over c other than y, for labels y (n,) and cost (k, k).

    Weston and Watkins's form, squared: the form of Crammer and Singer, with the worst class alone, has kinks where two
    classes are equally bad, so that no gradient could show that a minimum is reached.
    """
    rows = np.arange(len(y))

    def loss(F: Array) -> tuple[float, Array]:
        slack = np.maximum(0, cost[y] + F - F[rows, y][:, None])
        slack[rows, y] = 0
        G = 2 * slack
        G[rows, y] = -G.sum(axis=1)
        return float((slack**2).sum()), G

    return loss
