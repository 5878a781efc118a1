"""IAP: the probabilities of the seen classes give those of the attributes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from scipy.special import softmax

from zsl.checks import Array, Positive
from zsl.linalg import class_means
from zsl.models.base import AttributePredictor, GridCache
from zsl.models.dap import Binary, binary, log_posterior
from zsl.models.one_vs_rest import Linear, fit_shared, multinomial


@dataclass(eq=False, repr=False)
class IAP(AttributePredictor):
    r"""Indirect attribute prediction (Lampert, Nickisch and Harmeling, CVPR 2009, TPAMI 2014).

    .. math:: p(a_m | x) = \sum_k p(a_m | y_k)\, p(y_k | x), \qquad
        \text{score}_c(x) = \sum_m \log \frac{p(a_m = a_m^c | x)}{p(a_m^c)}

    p(y | x) is a linear softmax classifier of the seen classes as in :class:`zsl.models.ConSE`. Attributes are binary,
    and both probabilities are clipped to [0.001, 0.999] in the scores, as in :class:`zsl.models.DAP`.

    Parameters
    ----------
    C : float > 0
        Weight of the classifier's loss.
    prior : "empirical" or "half"
        p(a_m): the share of seen classes that have the attribute, or 1/2.
    tol : float > 0
        Residual at which the fit stops.

    Examples
    --------
    >>> import numpy as np
    >>> X, y, Z = np.eye(2), np.array([0, 1]), np.array([[1.0, -1.0], [-1.0, 1.0]])
    >>> IAP().fit(X, y, Z, Z_unseen=-Z).predict(X)
    array([1, 0])
    """

    C: Positive = 10.0
    prior: Literal["empirical", "half"] = "empirical"
    tol: Positive = 1e-3

    classifier_: Linear = field(init=False, repr=False)
    binary_: Binary = field(init=False, repr=False)
    has_: Array = field(init=False, repr=False)

    def _fit(self, X: Array, y: Array, Z: Array, shared: GridCache) -> None:
        S = shared("S", lambda: class_means(Z, y))
        self.binary_ = binary(S)
        self.has_ = self.binary_(S)
        self.classifier_ = fit_shared(shared, "softmax", X, multinomial(y, len(S)), len(S), self.C, self.tol)

    def _probabilities(self, X: Array) -> Array:
        return softmax(self.classifier_(X), axis=1) @ self.has_.astype(X.dtype)

    def _attributes(self, X: Array) -> Array:
        """Expected attributes, as in DAP."""
        b = self.binary_
        return (b.low + self._probabilities(X) * (b.high - b.low)).astype(X.dtype, copy=False)

    def _scores(self, X: Array, S: Array) -> Array:
        used = self.binary_.used
        prior = self.binary_.prior[used] if self.prior == "empirical" else np.full(used.sum(), 0.5)
        return log_posterior(self._probabilities(X)[:, used], self.binary_(S)[:, used], prior)
