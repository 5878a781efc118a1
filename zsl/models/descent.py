"""Minimising smooth functions to a gradient that is as good as zero."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from zsl.checks import Array

log = logging.getLogger(__name__)

Objective = Callable[[Array], tuple[float, Array]]
"""A point (m,) -> the value there and the gradient (m,)."""


class Descent(NamedTuple):
    """Where a descent ended, and how far from stationary that is."""

    x: Array  # (m,)
    residual: float
    """Largest entry of the gradient, as a share of the largest at the start."""
    n_iter: int


def descend(
    objective: Objective, start: Array, *, tol: float, max_iter: int, memory: int = 10, who: str | None = None
) -> Descent:
    """L-BFGS from ``start`` (m,) until the residual is at most ``tol``; what rounding stops goes on by gradients alone.

    It ends above ``tol`` after ``max_iter`` iterations, or where rounding allows no further step; if there is a
    ``who``, one line of the log says so.

    Raises
    ------
    FloatingPointError
        Where the objective, or the point that is reached, is not finite.
    """
    value, gradient = objective(start)
    largest = float(np.abs(gradient).max(initial=0))
    if not (np.isfinite(value) and np.isfinite(largest)):
        raise FloatingPointError("the objective is not finite at the start")
    if largest == 0:
        return Descent(start, 0.0, 0)
    found = minimize(
        objective, start, jac=True, method="L-BFGS-B",
        options={"maxiter": max_iter, "maxfun": 2 * max_iter, "gtol": tol * largest, "ftol": 0.0, "maxcor": memory},
    )  # fmt: skip
    x, gradient = found.x, found.jac
    if np.abs(gradient).max() > tol * largest and found.nit < max_iter:
        x, gradient = _polish(lambda t: objective(t)[1], x, gradient, tol * largest)
    if not np.isfinite(x).all():
        raise FloatingPointError("the descent left the finite numbers")
    residual = float(np.abs(gradient).max()) / largest
    if who and residual > tol:
        why = f"at the limit max_iter={max_iter}" if found.nit >= max_iter else "by rounding"
        log.info("%s: stopped %s with a residual of %.1e, above tol=%g", who, why, residual, tol)
    return Descent(x, residual, int(found.nit))


def _polish(
    slope: Callable[[Array], Array], x: Array, g: Array, goal: float, max_iter: int = 300
) -> tuple[Array, Array]:
    """Barzilai-Borwein steps from near the minimum; the best point, and its gradient.

    Values of the objective tell points apart down to the square root of rounding, where a line search ends; gradients
    go on to do so. No step is longer than a tenth of the start: where the curvature along a step is zero but for
    rounding, its quotient would lead out of the numbers.
    """
    best, best_g = x, g
    reach = 0.1 * float(np.linalg.norm(x))
    step = 1e-3 / max(float(np.linalg.norm(g)), 1e-300) * max(float(np.linalg.norm(x)), 1e-300)
    step = min(step, 1.0)
    for _ in range(max_iter):
        new = x - min(step, reach / max(float(np.linalg.norm(g)), 1e-300)) * g
        new_g = slope(new)
        s, d = new - x, new_g - g
        curvature = float(s @ d)
        if not curvature > 0:
            break
        x, g, step = new, new_g, float(s @ s) / curvature
        if np.abs(g).max() < np.abs(best_g).max():
            best, best_g = x, g
        if np.abs(g).max() <= goal:
            break
    return best, best_g
