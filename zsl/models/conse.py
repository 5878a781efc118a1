"""ConSE: a convex combination of the attributes of the seen classes an image may be."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.special import softmax

from zsl.checks import Array, Count, Positive
from zsl.linalg import class_means, spectrum
from zsl.models.base import AttributePredictor, GridCache, Metric, compare
from zsl.models.one_vs_rest import Linear, fit_linear, multinomial


@dataclass(eq=False, repr=False)
class ConSE(AttributePredictor):
    r"""Convex combination of semantic embeddings (Norouzi et al., ICLR 2014).

    .. math:: f(x) = \frac{\sum_{t \le T} p(y_t | x)\, s_{y_t}}{\sum_{t \le T} p(y_t | x)}

    over the T likeliest seen classes of a softmax classifier of X (n, p); the unseen class whose attributes are most
    similar to f(x) is predicted. The reference takes the softmax of a deep network; here it is a linear one,

    .. math:: \min_{W, b} \tfrac12 \|W\|^2 - C \sum_i \log p(y_i | x_i).

    In the generalised setting predictions are combinations of seen classes and hardly ever leave them.

    Parameters
    ----------
    T : int
        Classes in the combination; more than there are counts as all of them.
    C : float > 0
        Weight of the loss. It also calibrates: an overconfident softmax makes every T act like 1.
    metric : "cosine", "nearest" or "dot"
        The cosine is the reference's; it needs centred attributes.
    tol : float > 0
        Residual at which the classifier's fit stops.

    Attributes
    ----------
    classifier_ : Linear, S_ : (C_seen, q)
    """

    T: Count = 10
    C: Positive = 10.0
    metric: Metric = "cosine"
    tol: Positive = 1e-3

    classifier_: Linear = field(init=False, repr=False)
    S_: Array = field(init=False, repr=False)

    def _fit(self, X: Array, y: Array, Z: Array, shared: GridCache) -> None:
        self.S_ = shared("S", lambda: class_means(Z, y).astype(X.dtype))
        of = shared("X", lambda: spectrum(X))
        self.classifier_ = shared(
            ("softmax", self.C, self.tol),
            lambda: fit_linear(X, multinomial(y, len(self.S_)), len(self.S_), self.C, of=of, tol=self.tol),
        )

    def _attributes(self, X: Array) -> Array:
        p = softmax(self.classifier_(X), axis=1)
        if p.shape[1] > self.T:
            smallest = np.partition(p, -self.T, axis=1)[:, -self.T, None]
            p = np.where(p >= smallest, p, 0)
        return p / p.sum(axis=1, keepdims=True) @ self.S_

    def _scores(self, X: Array, S: Array) -> Array:
        return compare(self._attributes(X), S, self.metric)
