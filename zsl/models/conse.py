"""ConSE: the attributes of an image are a convex combination of those of the likeliest seen classes."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.special import softmax

from zsl.checks import Array, Count, Positive
from zsl.linalg import class_means
from zsl.models.base import AttributePredictor, GridCache, Metric
from zsl.models.one_vs_rest import Linear, fit_shared, multinomial


@dataclass(eq=False, repr=False)
class ConSE(AttributePredictor):
    r"""Convex combination of semantic embeddings (Norouzi et al., ICLR 2014).

    .. math:: f(x) = \frac{\sum_{t \le T} p(y_t | x)\, s_{y_t}}{\sum_{t \le T} p(y_t | x)}

    The sum is over the T likeliest seen classes by a softmax classifier of X (n, p). An image gets the class whose
    attributes are most similar to f(x). The reference takes the softmax of a deep network; here the classifier is
    linear,

    .. math:: \min_{W, b} \tfrac12 \|W\|^2 - C \sum_i \log p(y_i | x_i).

    In the generalised setting an unseen class is hardly ever predicted, because f(x) is a combination of seen classes.

    Parameters
    ----------
    T : int >= 1
        Number of classes in the combination, at most all of them.
    C : float > 0
        Weight of the loss. It also calibrates: an overconfident softmax makes every T act like 1.
    metric : "cosine", "nearest" or "dot"
        The reference has the cosine, which needs centred attributes.
    tol : float > 0
        Residual at which the fit of the classifier stops.

    Attributes
    ----------
    classifier_ : Linear
    S_ : (C_seen, q)

    Examples
    --------
    >>> import numpy as np
    >>> X, y, Z = np.eye(2), np.array([0, 1]), np.array([[1.0, -1.0], [-1.0, 1.0]])
    >>> ConSE().fit(X, y, Z, Z_unseen=-Z).predict(X)
    array([1, 0])
    """

    T: Count = 10
    C: Positive = 10.0
    metric: Metric = "cosine"
    tol: Positive = 1e-3

    classifier_: Linear = field(init=False, repr=False)
    S_: Array = field(init=False, repr=False)

    def _fit(self, X: Array, y: Array, Z: Array, shared: GridCache) -> None:
        self.S_ = shared("S", lambda: class_means(Z, y).astype(X.dtype))
        k = len(self.S_)
        self.classifier_ = fit_shared(shared, "softmax", X, multinomial(y, k), k, self.C, self.tol)

    def _attributes(self, X: Array) -> Array:
        p = softmax(self.classifier_(X), axis=1)
        if p.shape[1] > self.T:
            smallest = np.partition(p, -self.T, axis=1)[:, -self.T, None]
            p = np.where(p >= smallest, p, 0)
        return p / p.sum(axis=1, keepdims=True) @ self.S_
