"""The one-standard-error rule: the given settings stay unless validation classes can tell that others are better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from zsl.checks import Array


@dataclass(frozen=True)
class Choice:
    """Which of several candidates the rule chose, and how the best one compares with the given one."""

    chosen: int
    best: int
    """The candidate with the highest mean accuracy"""
    gain: float
    """By how much the best candidate is better than the given one, on average over folds"""
    error: float
    """The standard error of that gain"""


def choose(accuracy: Array, distance: Array, given: int, n_folds: float) -> Choice:
    r"""Choose, of the candidates within one standard error of the best one, the one nearest to the given settings.

    A candidate is one set of settings. With :math:`d_{ij}` the accuracy of the best candidate on fold j less that of
    candidate i, candidate i is within one standard error if :math:`\bar d_i \le s_i / \sqrt{K}`. s_i is the standard
    deviation of d_ij over all folds, and K is the number of folds in one division of the classes. Several divisions
    make the means surer, but they test the same classes again, so K and not their number of folds is in the standard
    error. The rule is that of Breiman et al. (1984), with paired differences and with the given settings in the place
    of the simplest model.

    Parameters
    ----------
    accuracy : (T, J)
        Accuracy of each of T candidates on each of J folds; with a single fold, on each of its J classes.
    distance : (T,)
        Distance of each candidate to the given one, which has 0.
    given : int
        Which candidate has the given settings.
    n_folds : float
        K, the number of folds in one division; fewer where published validation sets overlap.

    Returns
    -------
    Choice
        Among equally near candidates the most accurate. With one column only, nothing is known of the error, and the
        best candidate is chosen.

    Examples
    --------
    In the first example candidate 1 is better on both folds and is chosen. In the second it is better by .1 on average
    but not reliably, so the given candidate 0 stays.

    >>> choose(np.array([[0.5, 0.5], [0.6, 0.7]]), np.array([0.0, 1.0]), given=0, n_folds=2).chosen
    1
    >>> choose(np.array([[0.5, 0.5], [0.3, 0.9]]), np.array([0.0, 1.0]), given=0, n_folds=2).chosen
    0
    """
    mean = accuracy.mean(axis=1)
    # Among equally good candidates the nearest stands for the best.
    best = min(range(len(mean)), key=lambda i: (-mean[i], distance[i]))
    behind = accuracy[best] - accuracy
    if accuracy.shape[1] < 2:
        return Choice(best, best, float(mean[best] - mean[given]), float("nan"))
    error = behind.std(axis=1, ddof=1) / np.sqrt(n_folds)
    # Rounding must not exclude a candidate that is exactly as good.
    near = np.flatnonzero(mean[best] - mean <= error + 1e-12)
    near = near[distance[near] == distance[near].min()]
    chosen = int(near[mean[near].argmax()])
    return Choice(chosen, best, float(mean[best] - mean[given]), float(error[given]))


def distances(settings: Sequence[Mapping[str, Any]], given: int) -> Array:
    """Distance (T,) of each candidate to the given one, in steps on the grid of values that were tried.

    For a number it is the number of steps between two values in the sorted list of the tried ones; anything else counts
    one step if it differs. The steps of all keys are added.

    Examples
    --------
    >>> tried = [{"lam": 0.1, "centre": True}, {"lam": 1.0, "centre": True}, {"lam": 10.0, "centre": False}]
    >>> distances(tried, given=0)
    array([0., 1., 3.])
    """
    total = np.zeros(len(settings))
    for key, origin in settings[given].items():
        values = [one[key] for one in settings]
        if all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
            place = np.unique(values, return_inverse=True)[1].ravel()
            total += np.abs(place - place[given])
        else:
            total += [float(value != origin) for value in values]
    return total
