r"""The soft assignment of Eq. (6) (``eq:softass``), its entropy and the entropy's gradient.

For predicted attributes :math:`\hat z` and classes :math:`z'_m`, with :math:`d_m = \|\hat z - z'_m\|^2`,

.. math:: p_m \propto (1 + d_m / \rho)^{-(\rho + 1) / 2}, \qquad H = -\sum_m p_m \log p_m .

With ``kernel="gaussian"`` the assignment is :math:`p_m \propto e^{-d_m / 2 \rho}`. In both kernels rho is the squared
width. All computations are in logarithms, so neither far classes nor one-sided assignments overflow.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from array_api_compat import array_namespace

from zsl.checks import Array, Positive, check_value
from zsl.device import current
from zsl.inference.blocks import row_blocks
from zsl.inference.labels import attribute_pair
from zsl.linalg import log_softmax, squared_distances

Kernel = Literal["student", "gaussian"]


def log_assignment(Z_hat: Array, Z_unseen: Array, rho: float, kernel: Kernel = "student") -> Array:
    """Logarithm (L, M) of :func:`soft_assignment`, of any library of the array API; its arguments are not checked."""
    return log_softmax(_logits(squared_distances(Z_hat, Z_unseen), rho, kernel))


def _check(rho: Any, kernel: Any) -> None:
    check_value(Positive, rho, "rho")
    check_value(Kernel, kernel, "kernel")


def soft_assignment(Z_hat: Array, Z_unseen: Array, rho: float, kernel: Kernel = "student") -> Array:
    """Probability of each class for each image, Eq. (6).

    Parameters
    ----------
    Z_hat : (L, q)
        Predicted attributes.
    Z_unseen : (M, q)
        Attributes of the classes.
    rho : float > 0
        Squared width of the kernel; the Student kernel's degrees of freedom too.
    kernel : "student" or "gaussian"

    Returns
    -------
    (L, M) probabilities; rows sum to 1

    Raises
    ------
    UserError
        For arguments that do not fit together or are out of range.

    Examples
    --------
    One class is at distance 0 and one at 1: their weights are 1 and 1/2.

    >>> soft_assignment(np.zeros((1, 1)), np.array([[0.0], [1.0]]), rho=1.0).round(3)
    array([[0.667, 0.333]])
    """
    _check(rho, kernel)
    return np.exp(log_assignment(*attribute_pair(Z_hat, Z_unseen), rho, kernel))


def entropy(Z_hat: Array, Z_unseen: Array, rho: float, kernel: Kernel = "student") -> Array:
    """Entropy (L,) of :func:`soft_assignment`, 0..log M in nats; the arguments and errors are the same.

    Examples
    --------
    >>> entropy(np.zeros((1, 1)), np.array([[1.0], [-1.0]]), rho=1.0).round(3)
    array([0.693])
    """
    _check(rho, kernel)
    return entropies(*attribute_pair(Z_hat, Z_unseen), rho, kernel)


def entropies(Z_hat: Array, Z_unseen: Array, rho: float, kernel: Kernel = "student") -> Array:
    """:func:`entropy` of no image or more; the arguments are not checked."""
    here = current()
    classes, parts = here.put(Z_unseen), row_blocks(len(Z_hat), len(Z_unseen)) or [slice(0)]
    found = (_entropy(log_assignment(here.put(Z_hat[rows]), classes, rho, kernel)) for rows in parts)
    return np.concatenate([here.get(values) for values in found])


def entropy_gradient(
    Z_hat: Array, Z_unseen: Array, rho: float, kernel: Kernel = "student", log_mean: Array | None = None
) -> tuple[Array, Array]:
    r"""Entropy (L,) and its gradient (L, q) in the predicted attributes.

    With logits :math:`l_m`, :math:`\partial H / \partial l_m = -p_m (\log p_m + H)` and
    :math:`\partial l_m / \partial \hat z = -k_m (\hat z - z'_m)`, where :math:`k_m = (\rho + 1) / (\rho + d_m)` for the
    Student and :math:`1 / \rho` for the Gaussian kernel.

    ``log_mean`` (M,), the logarithm of an assignment :math:`\bar p`, turns the entropy into
    :math:`-\mathrm{KL}(p, \bar p)`: with the mean of all images' assignments the sum of these is
    :math:`\sum_i H(p_i) - L H(\bar p)`, and their gradients are the gradient of that sum.

    Images are taken in blocks, so that many classes need little memory.
    """
    here = current()
    classes, mean = here.put(Z_unseen), None if log_mean is None else here.put(log_mean)
    found = []
    for rows in row_blocks(len(Z_hat), len(Z_unseen)) or [slice(0)]:
        pair = _entropy_gradient(here.put(Z_hat[rows]), classes, rho, kernel, mean)
        found.append([here.get(part) for part in pair])
    values, gradients = zip(*found)
    return np.concatenate(values), np.concatenate(gradients)


def _entropy_gradient(V: Any, Z: Any, rho: float, kernel: Kernel, log_mean: Any) -> tuple[Any, Any]:
    """:func:`entropy_gradient` of one block of images V (l, q), for arrays of any library of the array API."""
    xp = array_namespace(V)
    d = squared_distances(V, Z)
    log_p = log_softmax(_logits(d, rho, kernel))
    p = xp.exp(log_p)
    if log_mean is None:
        excess, value = log_p, _entropy(log_p)
    else:
        excess = log_p - log_mean
        value = -xp.vecdot(p, excess)
    w = p * (excess + value[:, None]) * ((rho + 1) / (rho + d) if kernel == "student" else 1 / rho)
    return value, xp.sum(w, axis=1, keepdims=True) * V - w @ xp.astype(Z, w.dtype, copy=False)


def log_mean_assignment(Z_hat: Array, Z_unseen: Array, rho: float, kernel: Kernel, weight: Array) -> Array:
    """Logarithm (M,) of the mean of the images' assignments, weighted by ``weight`` (L,); it is finite."""
    here = current()
    classes, sums = here.put(Z_unseen), np.zeros(len(Z_unseen))
    for rows in row_blocks(len(Z_hat), len(Z_unseen)):
        p = here.xp.exp(log_assignment(here.put(Z_hat[rows]), classes, rho, kernel))
        sums += here.get(
            here.put(weight[rows].astype(np.float64, copy=False)) @ here.xp.astype(p, here.xp.float64, copy=False)
        )
    return np.log(np.maximum(sums / weight.sum(), np.finfo(np.float64).tiny))


def _logits(d: Array, rho: float, kernel: Kernel) -> Array:
    return -(rho + 1) / 2 * array_namespace(d).log1p(d / rho) if kernel == "student" else -d / (2 * rho)


def _entropy(log_p: Array) -> Array:
    xp = array_namespace(log_p)
    value = -xp.vecdot(xp.exp(log_p), log_p)
    value[value < 0] = 0  # rounding can leave a one-sided assignment at minus one ulp
    return value
