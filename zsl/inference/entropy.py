r"""The soft assignment of Eq. (6) (``eq:softass``), its entropy and the entropy's gradient.

For predicted attributes :math:`\hat z` and classes :math:`z'_m`, with :math:`d_m = \|\hat z - z'_m\|^2`,

.. math:: p_m \propto (1 + d_m / \rho)^{-(\rho + 1) / 2}, \qquad H = -\sum_m p_m \log p_m .

Everything goes through logarithms, so neither far classes nor one-sided assignments overflow.
"""

from __future__ import annotations

import numpy as np

from zsl.checks import Array
from zsl.inference.labels import squared_distances


def log_assignment(Z_hat: Array, Z_unseen: Array, rho: float) -> Array:
    """(L, M) logarithm of the soft assignment of each row of Z_hat (L, q) to the classes Z_unseen (M, q); rho > 0."""
    return _log_softmax(-(rho + 1) / 2 * np.log1p(squared_distances(Z_hat, Z_unseen) / rho))


def soft_assignment(Z_hat: Array, Z_unseen: Array, rho: float) -> Array:
    """(L, M) Eq. (6): probabilities, rows sum to 1."""
    return np.exp(log_assignment(Z_hat, Z_unseen, rho))


def entropy(Z_hat: Array, Z_unseen: Array, rho: float) -> Array:
    """(L,) entropy of the soft assignment, 0..log M."""
    return _entropy(log_assignment(Z_hat, Z_unseen, rho))


def entropy_gradient(Z_hat: Array, Z_unseen: Array, rho: float) -> tuple[Array, Array]:
    r"""Entropy (L,) and its gradient (L, q) in the predicted attributes.

    With logits :math:`l_m`, :math:`\partial H / \partial l_m = -p_m (\log p_m + H)` and
    :math:`\partial l_m / \partial \hat z = -(\rho + 1)(\hat z - z'_m) / (\rho + d_m)`.
    """
    d = squared_distances(Z_hat, Z_unseen)
    log_p = _log_softmax(-(rho + 1) / 2 * np.log1p(d / rho))
    H = _entropy(log_p)
    w = np.exp(log_p) * (log_p + H[:, None]) * (rho + 1) / (rho + d)
    return H, w.sum(axis=1, keepdims=True) * Z_hat - w @ Z_unseen


def _log_softmax(logits: Array) -> Array:
    logits = logits - logits.max(axis=1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def _entropy(log_p: Array) -> Array:
    # Rounding can leave a one-sided assignment at minus one ulp.
    return np.maximum(-np.einsum("ij,ij->i", np.exp(log_p), log_p), 0)
