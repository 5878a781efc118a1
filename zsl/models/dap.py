"""DAP: one probabilistic classifier per attribute."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
from scipy.special import expit

from zsl.checks import Array, Positive
from zsl.linalg import class_means, spectrum
from zsl.models.base import AttributePredictor, GridCache
from zsl.models.one_vs_rest import Linear, fit_linear, logistic

# Probabilities stay this far from 0 and 1: one attribute must not decide alone.
_MARGIN = 1e-3
# Share of an attribute's largest value that rounding, of single precision at worst, may add to a difference.
_ROUNDING = 1e-6


class Binary(NamedTuple):
    """Real attributes as yes or no: above the mean of the seen classes, by more than rounding, or not."""

    threshold: Array  # (q,) the mean and a tolerance
    used: Array  # (q,) False: the same for every seen class, so nothing can be learned about it
    prior: Array  # (q,) share of the seen classes that have it
    low: Array  # (q,) mean attribute of the seen classes without it
    high: Array  # (q,) and of those with it

    def __call__(self, S: Array) -> Array:
        """(C, q) whether classes S (C, q) have each attribute."""
        return self.threshold < S


def binary(S: Array) -> Binary:
    """The binary attributes that seen classes S (C, q) define."""
    # A value equal to the mean, as in a constant column, may differ from it by rounding.
    mean = S.mean(axis=0)
    threshold = mean + _ROUNDING * np.abs(S).max(axis=0)
    has = threshold < S
    used = has.any(axis=0) & ~has.all(axis=0)
    n = np.maximum(has.sum(axis=0), 1), np.maximum((~has).sum(axis=0), 1)
    high, low = np.where(has, S, 0).sum(axis=0) / n[0], np.where(has, 0, S).sum(axis=0) / n[1]
    return Binary(threshold, used, has.mean(axis=0), np.where(used, low, mean), np.where(used, high, mean))


def log_posterior(P: Array, has: Array, prior: Array) -> Array:
    """``sum_m log p(a_m = a_m^c | x) - log p(a_m^c)``: P (L, m), has (C, m), prior (m,) -> (L, C)."""
    P, prior = np.clip(P, _MARGIN, 1 - _MARGIN), np.clip(prior, _MARGIN, 1 - _MARGIN)
    yes, no = np.log(P) - np.log(prior), np.log1p(-P) - np.log1p(-prior)
    return yes @ has.T + no @ (1.0 - has).T


@dataclass(eq=False, repr=False)
class DAP(AttributePredictor):
    r"""Direct attribute prediction (Lampert, Nickisch and Harmeling, CVPR 2009, TPAMI 2014).

    .. math:: \text{score}_c(x) = \sum_m \log \frac{p(a_m = a_m^c | x)}{p(a_m^c)}

    with one logistic regression per binary attribute,
    ``min 1/2 |w_m|^2 + C sum_i log(1 + exp(-t_im (x_i w_m + b_m)))``, t_im = 1
    where image i's attributes (Z, (n, q)) exceed the mean of the seen classes (by more than rounding), else -1.
    The references train kernel SVMs with Platt scaling; linear logistic regression is an interpretation. Attributes
    that all seen classes share, or that none has, are left out. Both probabilities are clipped to [0.001, 0.999] in
    the scores, so that no attribute decides alone (not in the references).

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
    ``predict_attributes`` gives the expected attribute: the mean over the seen classes with and without it, weighted
    by the probability (our addition, so that label rules apply).
    """

    C: Positive = 1.0
    prior: Literal["empirical", "half"] = "empirical"
    tol: Positive = 1e-3

    classifier_: Linear = field(init=False, repr=False)
    binary_: Binary = field(init=False, repr=False)

    def _fit(self, X: Array, y: Array, Z: Array, shared: GridCache) -> None:
        self.binary_ = shared("binary", lambda: binary(class_means(Z, y)))
        targets = self.binary_(Z)[:, self.binary_.used]
        of = shared("X", lambda: spectrum(X))
        self.classifier_ = shared(
            ("logistic", self.C, self.tol),
            lambda: fit_linear(X, logistic(targets), targets.shape[1], self.C, of=of, tol=self.tol),
        )

    def _attributes(self, X: Array) -> Array:
        b = self.binary_
        Z_hat = np.repeat(b.low[None], len(X), axis=0)
        Z_hat[:, b.used] += expit(self.classifier_(X)) * (b.high - b.low)[b.used]
        return Z_hat.astype(X.dtype, copy=False)

    def _scores(self, X: Array, S: Array) -> Array:
        used = self.binary_.used
        prior = self.binary_.prior[used] if self.prior == "empirical" else np.full(used.sum(), 0.5)
        return log_posterior(expit(self.classifier_(X)), self.binary_(S)[:, used], prior)
