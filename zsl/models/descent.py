"""Minimisation of smooth functions by L-BFGS, until the gradient is nearly zero."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from zsl.checks import Array

log = logging.getLogger(__name__)

Objective = Callable[[Array], tuple[float, Array]]
"""Maps a point (m,) to the value and the gradient (m,) there."""


class Descent(NamedTuple):
    """End point of a descent."""

    x: Array  # (m,)
    residual: float
    """Largest entry of the gradient as a share of the largest at the start."""
    n_iter: int


def descend(
    objective: Objective, start: Array, *, tol: float, max_iter: int, memory: int = 10, who: str | None = None
) -> Descent:
    """Minimise by L-BFGS; if rounding stops the line search, gradient steps alone continue.

    Parameters
    ----------
    objective : Objective
    start : (m,)
    tol : float > 0
        Residual at which the descent stops.
    max_iter : int >= 1
    memory : int
        Number of corrections that L-BFGS keeps.
    who : str, optional
        Name for the line of the log that tells when the descent ended above ``tol``; without a name there is no line.

    Returns
    -------
    Descent

    Raises
    ------
    FloatingPointError
        If the objective at the start, or the end point, is not finite.

    Examples
    --------
    >>> import numpy as np
    >>> descend(lambda x: (float(x @ x), 2 * x), np.array([3.0]), tol=1e-6, max_iter=50).x.round(3) + 0
    array([0.])
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
        x, gradient = polish(lambda t: objective(t)[1], x, gradient, tol * largest)
    if not np.isfinite(x).all():
        raise FloatingPointError("the descent left the finite numbers")
    residual = float(np.abs(gradient).max()) / largest
    if who and residual > tol:
        why = f"at the limit max_iter={max_iter}" if found.nit >= max_iter else "by rounding"
        log.info("%s: stopped %s with a residual of %.1e, above tol=%g", who, why, residual, tol)
    return Descent(x, residual, int(found.nit))


def polish(
    slope: Callable[[Array], Array], x: Array, g: Array, goal: float, max_iter: int = 300
) -> tuple[Array, Array]:
    """Barzilai-Borwein steps from a point near the minimum; return the best point and its gradient.

    A line search ends at the square root of the rounding error, because it compares values of the objective. Gradients
    are more precise. No step is longer than a tenth of the start's length, because a curvature that is zero up to
    rounding would make the step unbounded.
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
