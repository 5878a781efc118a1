"""DAP: one probabilistic classifier for each attribute."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
from scipy.special import expit

from zsl.checks import Array, Positive
from zsl.linalg import class_means
from zsl.models.base import AttributePredictor, GridCache
from zsl.models.one_vs_rest import Linear, fit_shared, logistic

# Probabilities stay this far from 0 and 1, so that no attribute decides alone.
_MARGIN = 1e-3
# Bound on the rounding error of a difference in single precision, as a share of an attribute's largest value.
_ROUNDING = 1e-6


class Binary(NamedTuple):
    """Binary attributes: a class has an attribute if its value exceeds the mean of the seen classes."""

    threshold: Array  # (q,) the mean plus a tolerance for rounding
    used: Array  # (q,) False if all seen classes have the attribute or none has it, so nothing can be learned
    prior: Array  # (q,) share of the seen classes that have the attribute
    low: Array  # (q,) mean value of the seen classes without the attribute
    high: Array  # (q,) mean value of the seen classes with the attribute

    def __call__(self, S: Array) -> Array:
        """Whether classes S (C, q) have each attribute: (C, q) bool."""
        return self.threshold < S


def binary(S: Array) -> Binary:
    """Define binary attributes from the seen classes S (C, q)."""
    # Without a tolerance, rounding could split the equal values of a constant column.
    mean = S.mean(axis=0)
    threshold = mean + _ROUNDING * np.abs(S).max(axis=0)
    has = threshold < S
    used = has.any(axis=0) & ~has.all(axis=0)
    n = np.maximum(has.sum(axis=0), 1), np.maximum((~has).sum(axis=0), 1)
    high, low = np.where(has, S, 0).sum(axis=0) / n[0], np.where(has, 0, S).sum(axis=0) / n[1]
    return Binary(threshold, used, has.mean(axis=0), np.where(used, low, mean), np.where(used, high, mean))


def log_posterior(P: Array, has: Array, prior: Array) -> Array:
    """``sum_m log p(a_m = a_m^c | x) - log p(a_m^c)`` (L, C) from P (L, m), has (C, m) and prior (m,)."""
    P, prior = np.clip(P, _MARGIN, 1 - _MARGIN), np.clip(prior, _MARGIN, 1 - _MARGIN)
    yes, no = np.log(P) - np.log(prior), np.log1p(-P) - np.log1p(-prior)
    return yes @ has.T + no @ (1.0 - has).T


@dataclass(eq=False, repr=False)
class DAP(AttributePredictor):
    r"""Direct attribute prediction (Lampert, Nickisch and Harmeling, CVPR 2009, TPAMI 2014).

    .. math:: \text{score}_c(x) = \sum_m \log \frac{p(a_m = a_m^c | x)}{p(a_m^c)}

    Each binary attribute has a logistic regression, ``min 1/2 |w_m|^2 + C sum_i log(1 + exp(-t_im (x_i w_m + b_m)))``,
    where t_im is 1 if attribute m of image i (Z, (n, q)) exceeds the mean of the seen classes, else -1. The references
    train kernel SVMs with Platt scaling; linear logistic regression is an interpretation. Attributes that all seen
    classes have, or none, are left out. Both probabilities are clipped to [0.001, 0.999] in the scores, so that no
    attribute decides alone; the references do not clip.

    Parameters
    ----------
    C : float > 0
        Weight of the loss.
    prior : "empirical" or "half"
        p(a_m): the share of seen classes that have the attribute, or 1/2.
    tol : float > 0
        Residual at which the fit stops.

    Notes
    -----
    ``predict_attributes`` returns expected values: the means over the seen classes with and without the attribute,
    weighted by the probability. This is our addition, so that label rules apply.

    Examples
    --------
    >>> import numpy as np
    >>> X, y, Z = np.eye(2), np.array([0, 1]), np.array([[1.0, -1.0], [-1.0, 1.0]])
    >>> DAP().fit(X, y, Z, Z_unseen=-Z).predict(X)
    array([1, 0])
    """

    C: Positive = 1.0
    prior: Literal["empirical", "half"] = "empirical"
    tol: Positive = 1e-3

    classifier_: Linear = field(init=False, repr=False)
    binary_: Binary = field(init=False, repr=False)

    def _fit(self, X: Array, y: Array, Z: Array, shared: GridCache) -> None:
        self.binary_ = shared("binary", lambda: binary(class_means(Z, y)))
        targets = self.binary_(Z)[:, self.binary_.used]
        k = targets.shape[1]
        self.classifier_ = fit_shared(shared, "logistic", X, logistic(targets), k, self.C, self.tol)

    def _attributes(self, X: Array) -> Array:
        b = self.binary_
        Z_hat = np.repeat(b.low[None], len(X), axis=0)
        Z_hat[:, b.used] += expit(self.classifier_(X)) * (b.high - b.low)[b.used]
        return Z_hat.astype(X.dtype, copy=False)

    def _scores(self, X: Array, S: Array) -> Array:
        used = self.binary_.used
        prior = self.binary_.prior[used] if self.prior == "empirical" else np.full(used.sum(), 0.5)
        return log_posterior(expit(self.classifier_(X)), self.binary_(S)[:, used], prior)
