"""The one-standard-error rule: settings leave their defaults only as far as validation classes can tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from zsl.checks import Array


@dataclass(frozen=True)
class Choice:
    """Which of several settings the rule chose, and what it was chosen against."""

    chosen: int
    best: int
    """The settings with the highest mean accuracy"""
    gain: float
    """By how much the best settings are better than the given ones, on average over folds"""
    error: float
    """The standard error of that gain"""


def choose(accuracy: Array, distance: Array, given: int, n_folds: float) -> Choice:
    r"""Of the settings that are within one standard error of the best ones, those nearest to the given settings.

    With :math:`d_{ij}` the difference of the best settings' and settings i's accuracy on fold j, settings i are within
    one standard error if :math:`\bar d_i \le s_i / \sqrt{K}`, where s_i is the standard deviation of d_ij over all
    folds and K the number of folds in one division of the classes. More divisions make the mean surer, yet they test
    on the same classes again, so they do not shrink the standard error. The rule is that of Breiman et al. (1984) with
    paired differences, and with the given settings in the place of the simplest model.

    Parameters
    ----------
    accuracy : (T, J)
        Accuracy of each of T settings on each of J folds; with a single fold, on each of its J classes.
    distance : (T,)
        Distance of each settings to the given ones, 0 for themselves.
    given : int
        Which settings are the given ones.
    n_folds : float
        K. Folds of divisions that overlap count in part.

    Returns
    -------
    Choice
        Among the nearest settings the most accurate. With one column only, nothing is known of the error, and the best
        settings are chosen.

    Examples
    --------
    The second settings are better on both folds; the third are better by .1 on average, give or take .3.

    >>> choose(np.array([[0.5, 0.5], [0.6, 0.7]]), np.array([0.0, 1.0]), given=0, n_folds=2).chosen
    1
    >>> choose(np.array([[0.5, 0.5], [0.3, 0.9]]), np.array([0.0, 1.0]), given=0, n_folds=2).chosen
    0
    """
    mean = accuracy.mean(axis=1)
    # Among equally good settings the nearest stands for the best.
    best = min(range(len(mean)), key=lambda i: (-mean[i], distance[i]))
    behind = accuracy[best] - accuracy
    if accuracy.shape[1] < 2:
        return Choice(best, best, float(mean[best] - mean[given]), float("nan"))
    error = behind.std(axis=1, ddof=1) / np.sqrt(n_folds)
    # Rounding must not exclude settings that are exactly as good.
    near = np.flatnonzero(mean[best] - mean <= error + 1e-12)
    near = near[distance[near] == distance[near].min()]
    chosen = int(near[mean[near].argmax()])
    return Choice(chosen, best, float(mean[best] - mean[given]), float(error[given]))


def distances(settings: Sequence[Mapping[str, Any]], given: int) -> Array:
    """Distance (T,) of each settings to the given ones: the steps between them on the grid of values that were tried.

    A number is as many steps away as there are tried values up to it; anything else is one step away if it differs.

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
