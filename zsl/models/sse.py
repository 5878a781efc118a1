"""SSE: images and classes are described by their similarity to the seen classes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from zsl.checks import Array, Count, Positive, Seed
from zsl.linalg import class_means
from zsl.models.base import GridCache, InductiveModel
from zsl.models.descent import descend
from zsl.models.one_vs_rest import multiclass_hinge


@dataclass(eq=False, repr=False)
class SSE(InductiveModel):
    r"""Semantic similarity embedding (Zhang and Saligrama, ICCV 2015).

    A class is a histogram h over the K seen classes; an image has a vector pi_k for each of them,

    .. math:: h(s) = \arg\min_{a \ge 0,\, \sum a = 1} \tfrac\gamma2 \|a\|^2 + \tfrac12 \|s - a S\|^2, \qquad
        \pi_k(x) = \max(0, x - v_k) \text{ or } \min(x, v_k), \qquad
        f_s(x) = \sum_k h_k(s)\, w \cdot \pi_k(x)

    S (K, q) are attributes of the seen classes and v_k (p,) is a visual word for each. Here v_k is the mean of the
    images of the class, and w (p,) minimises ``1/2 |w|^2 + C/n sum_i sum_{c != y_i} max(0, 1 + f_c(x_i) -
    f_{y_i}(x_i))^2``. The reference also learns the v_k, with margin constraints that we cannot state with confidence,
    so this part is an interpretation. ``min`` needs non-negative features, so the training minimum of each feature is
    subtracted first; ``max`` is not affected.

    Parameters
    ----------
    gamma : float > 0
        A small value makes histograms of few classes.
    C : float > 0
        Weight of the loss.
    mapping : "relu" or "intersection"
        ``max(0, x - v)``, or ``min(x, v)``.
    max_images : int >= 1
        If there are more images, w is fitted to a draw of this many, with equal numbers of each class where possible.
    max_iter : int >= 1
    tol : float > 0
        L-BFGS ends when the gradient is ``tol`` times that at zero, or after ``max_iter`` iterations, which the log
        says.
    seed : int >= 0
        Seed of the draw.

    Attributes
    ----------
    w_ : (p,)
    v_ : (K, p)
    S_ : (K, q)

    Examples
    --------
    >>> import numpy as np
    >>> X, y, Z = np.eye(2), np.array([0, 1]), np.array([[1.0, -1.0], [-1.0, 1.0]])
    >>> SSE().fit(X, y, Z, Z_unseen=-Z).predict(X)
    array([1, 0])
    """

    gamma: Positive = 0.1
    C: Positive = 100.0
    mapping: Literal["relu", "intersection"] = "relu"
    max_images: Count = 1000
    max_iter: Count = 50
    tol: Positive = 1e-3
    seed: Seed = 0

    w_: Array = field(init=False, repr=False)
    v_: Array = field(init=False, repr=False)

    def _fit(self, X: Array, y: Array, Z: Array, shared: GridCache) -> None:
        self.S_ = shared("S", lambda: class_means(Z, y).astype(X.dtype))
        self.low_ = X.min(axis=0)
        X = X - self.low_
        self.v_ = class_means(X, y).astype(X.dtype)
        rows = self._draw(y)
        X, y = X[rows], y[rows]
        K = len(self.S_)
        H = simplex_codes(self.S_, self.S_, self.gamma)
        loss = multiclass_hinge(y, np.ones((K, K)))

        def objective(w: Array) -> tuple[float, Array]:
            w = w.astype(X.dtype)
            value, dF = loss((self._features(X, w) @ H.T).astype(np.float64))
            dG = (dF @ H).astype(X.dtype)
            slope = sum((self._pi(X, k).T @ dG[:, k] for k in range(K)), np.zeros(X.shape[1], X.dtype))
            share = self.C / len(X)
            return 0.5 * float(w @ w) + share * value, (w + share * slope).astype(np.float64)

        found = descend(objective, np.zeros(X.shape[1]), tol=self.tol, max_iter=self.max_iter, who="sse")
        self.w_ = found.x.astype(X.dtype)
        self.residual_ = found.residual

    def _draw(self, y: Array) -> Array:
        if len(y) <= self.max_images:
            return np.arange(len(y))
        # The draw takes the first image of each class in a random order, then the second of each class, and so on.
        order = np.random.default_rng(self.seed).permutation(len(y))
        turn = np.empty(len(y), dtype=np.int64)
        for c in range(int(y.max()) + 1):
            own = order[y[order] == c]
            turn[own] = np.arange(len(own))
        return np.sort(order[np.argsort(turn[order], kind="stable")][: self.max_images])

    def _pi(self, X: Array, k: int) -> Array:
        """(n, p) vectors pi_k of the images for seen class k."""
        return np.maximum(0, X - self.v_[k]) if self.mapping == "relu" else np.minimum(X, self.v_[k])

    def _features(self, X: Array, w: Array) -> Array:
        """(n, K) ``w . pi_k(x)``."""
        return np.column_stack([self._pi(X, k) @ w for k in range(len(self.v_))])

    def _scores(self, X: Array, S: Array) -> Array:
        return self._features(X - self.low_, self.w_) @ simplex_codes(S, self.S_, self.gamma).T


def simplex_codes(S: Array, basis: Array, gamma: float, *, tol: float = 1e-9, max_iter: int = 5000) -> Array:
    """Codes (C, K): ``argmin gamma/2 |a|^2 + 1/2 |s - a basis|^2`` over the simplex for each row s of S (C, q).

    Accelerated projected gradient runs until the gap ``max_v <gradient, a - v>`` over the simplex, an upper bound on
    the distance from the minimum, is at most ``tol`` times the scale of the problem in every row.
    """
    S, basis = S.astype(np.float64), basis.astype(np.float64)
    G = basis @ basis.T + gamma * np.eye(len(basis))
    R = S @ basis.T
    e = np.linalg.eigvalsh(G)
    # The problem is strongly convex, so the condition number determines the momentum.
    momentum = (1 - np.sqrt(gamma / e[-1])) / (1 + np.sqrt(gamma / e[-1]))
    A = B = np.full((len(S), len(basis)), 1 / len(basis))
    goal = tol * (float(e[-1]) + float(np.abs(R).max()))
    for _ in range(max_iter):
        slope = A @ G - R
        if (np.einsum("ij,ij->i", slope, A) - slope.min(axis=1)).max() <= goal:
            break
        new = onto_simplex(B - (B @ G - R) / e[-1])
        A, B = new, new + momentum * (new - A)
    return A


def onto_simplex(V: Array) -> Array:
    """Project the rows of V (C, K) on the simplex.

    Examples
    --------
    >>> import numpy as np
    >>> onto_simplex(np.array([[2.0, 0.0]]))
    array([[1., 0.]])
    """
    ordered = -np.sort(-V, axis=1)
    excess = np.cumsum(ordered, axis=1) - 1
    count = (ordered * np.arange(1, V.shape[1] + 1) > excess).sum(axis=1)
    return np.maximum(V - (excess[np.arange(len(V)), count - 1] / count)[:, None], 0)
