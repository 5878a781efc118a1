"""SynC: the classifier of a class is synthesised from those of phantom classes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from scipy.special import softmax

from zsl.checks import Array, Positive
from zsl.linalg import class_means, squared_distances
from zsl.models.base import GridCache, InductiveModel
from zsl.models.one_vs_rest import Linear, fit_shared, multiclass_hinge, squared_hinge


@dataclass(eq=False, repr=False)
class SynC(InductiveModel):
    r"""Synthesised classifiers (Changpinyo, Chao, Gong and Sha, CVPR 2016).

    .. math:: w_c = \sum_r s_{cr} v_r, \qquad
        s_{cr} \propto \exp\bigl(-|a_c - b_r|^2 / 2 \sigma^2\bigr), \quad \sum_r s_{cr} = 1

    a_c (q,) are attributes of class c, and b_r are phantom classes with bases v_r (p,). The bases minimise

    .. math:: \tfrac1n \sum_i \ell(x_i, y_i; w_1 \dots w_C) + \tfrac\lambda2 \sum_c \|w_c\|^2 .

    As in the main experiments of the reference, there is one phantom at each seen class, b = a. The similarities of the
    seen classes then form a square matrix, any w_c can be reached, and the problem decouples: the w_c are fitted
    directly, and ``V = s^-1 W``.

    Parameters
    ----------
    lam : float > 0
        Weight of the penalty.
    sigma : float > 0
        Width of the similarity, in units of the median distance between seen classes.
    loss : "one_vs_other", "multiclass" or "struct"
        ``sum_c max(0, 1 - t_ic x w_c)^2``; or ``sum_c max(0, Delta(c, y) + x w_c - x w_y)^2`` with Delta = 1, or with
        Delta = ``|a_c - a_y|``. In the latter two the reference has only the largest term, not squared; the sum of
        squares is smooth, and an interpretation. We do not know whether its Delta is the distance or its square.
    tol : float > 0
        Residual at which the fit stops.

    Attributes
    ----------
    classifier_ : Linear
        Classifiers of the seen classes, without a bias.
    V_ : (p, C_seen)
        Bases of the phantoms.

    Examples
    --------
    >>> import numpy as np
    >>> X, y, Z = np.eye(2), np.array([0, 1]), np.array([[1.0, -1.0], [-1.0, 1.0]])
    >>> SynC().fit(X, y, Z, Z_unseen=-Z).predict(X)
    array([1, 0])
    """

    lam: Positive = 1e-3
    sigma: Positive = 1.0
    loss: Literal["one_vs_other", "multiclass", "struct"] = "one_vs_other"
    tol: Positive = 1e-3

    classifier_: Linear = field(init=False, repr=False)
    V_: Array = field(init=False, repr=False)
    S_: Array = field(init=False, repr=False)

    def _fit(self, X: Array, y: Array, Z: Array, shared: GridCache) -> None:
        S = self.S_ = shared("S", lambda: class_means(Z, y).astype(X.dtype))
        k = len(S)
        distance = shared("distance", lambda: np.sqrt(squared_distances(S, S)).astype(np.float64))
        np.fill_diagonal(distance, 0)
        apart = distance[~np.eye(k, dtype=bool)]
        self.width_ = self.sigma * (float(np.median(apart)) if apart.size else 1.0) or 1.0
        cost = distance if self.loss == "struct" else 1.0 - np.eye(k)
        loss = squared_hinge(y[:, None] == range(k)) if self.loss == "one_vs_other" else multiclass_hinge(y, cost)
        C = 1 / (self.lam * len(X))
        self.classifier_ = fit_shared(shared, self.loss, X, loss, k, C, self.tol, bias=False)
        # Classes with the same attributes have the same row, so the matrix may be singular; V has least norm then.
        similarity = self._similarity(S.astype(np.float64))
        self.V_ = np.linalg.lstsq(similarity, self.classifier_.W.T, rcond=1e-10)[0].T.astype(X.dtype)

    def _similarity(self, S: Array) -> Array:
        """(C, R) normalised similarities of classes S (C, q) to the phantoms."""
        return softmax(-squared_distances(S, self.S_.astype(S.dtype)) / (2 * self.width_**2), axis=1)

    def _scores(self, X: Array, S: Array) -> Array:
        return (X @ self.V_) @ self._similarity(S).T
