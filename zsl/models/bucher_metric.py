"""BucherMetric: a metric between images and attributes, learned together with the prediction of attributes."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from zsl.checks import Array, Count, NonNegative, Positive
from zsl.linalg import Conditioned, class_means, spectrum, squared_distances
from zsl.models.base import AttributePredictor, GridCache
from zsl.models.compatibility import row_space
from zsl.models.descent import descend


@dataclass(eq=False, repr=False)
class BucherMetric(AttributePredictor):
    r"""Semantic consistency by metric learning (Bucher, Herbin and Jurie, ECCV 2016).

    .. math:: d^2(x, z) = \|(x W_X + b - z) W_A\|^2, \qquad
        \min \tfrac1n \sum_{i, c} w_{ic} \bigl[1 - t_{ic} (\tau - d^2(x_i, s_c))\bigr]_+^2
        + \tfrac{\lambda}{n} \sum_i \|x_i W_X + b - z_i\|^2 + \mu (\|W_X\|_F^2 + \|W_A\|_F^2)

    X (n, p) are features, z_i (q,) the attributes of image i, s_c those of the C seen classes; t is 1 for the image's
    own class and -1 for the others. W_X (p, q), b (q,), W_A (q, m) and tau are learned. Scores are ``-d^2``.

    Two parts are interpretations: the hinge is squared, which makes the objective smooth, and all pairs count, where
    the reference draws pairs. The weights w are 1/2 for the image's own class and 1 / (2 (C - 1)) for each other class.
    L-BFGS starts from the identity for W_A and from zero for W_X.

    Parameters
    ----------
    n_metric : int >= 1
        m, at most the rank of the seen classes' attributes.
    lam : float >= 0
    mu : float > 0
    max_iter : int >= 1
    tol : float > 0
        L-BFGS ends when the gradient is ``tol`` times that at the start, or after ``max_iter`` iterations. It mostly
        ends by ``max_iter``, far above ``tol``, and the log says so; ``max_iter`` then acts as early stopping.

    Attributes
    ----------
    WX_ : (p, q)
    b_ : (q,)
    WA_ : (q, m)
    tau_ : float
    residual_ : float
        Largest entry of the final gradient as a share of the largest at the start, in the scaled coordinates of the
        descent. It is above ``tol`` if ``max_iter`` or rounding ended the fit.

    Notes
    -----
    The problem is not convex and the descent rarely converges, so features that are rounded to single precision can
    give other scores, although all sums are in double precision.

    Examples
    --------
    >>> import numpy as np
    >>> X, y, Z = np.eye(2), np.array([0, 1]), np.array([[1.0, -1.0], [-1.0, 1.0]])
    >>> BucherMetric().fit(X, y, Z, Z_unseen=-Z).predict(X)
    array([1, 0])
    """

    n_metric: Count = 50
    lam: NonNegative = 1.0
    mu: Positive = 1e-3
    max_iter: Count = 150
    tol: Positive = 1e-4

    WX_: Array = field(init=False, repr=False)
    WA_: Array = field(init=False, repr=False)

    def objective(self, X: Array, y: Array, Z: Array, S: Array, theta: list[Array]) -> tuple[float, list[Array]]:
        """The objective at ``theta = [W_X, b, W_A, tau]`` and its gradient."""
        WX, b, WA, tau = theta
        n, C = len(X), len(S)
        rows = np.arange(n)
        Z_hat = X @ WX + b
        E, M = Z_hat @ WA, S @ WA
        sign = np.full((n, C), -1.0, X.dtype)
        sign[rows, y] = 1
        weight = np.full((n, C), 1 / (2 * max(C - 1, 1)) / n, X.dtype)
        weight[rows, y] = 1 / (2 * n)
        slack = np.maximum(0, 1 - sign * (tau[0] - squared_distances(E, M)))
        error = Z_hat - Z
        value = (
            np.vdot(weight, slack**2)
            + self.lam / n * np.vdot(error, error)
            + self.mu * (np.vdot(WX, WX) + np.vdot(WA, WA))
        )
        G = 2 * weight * slack * sign  # derivative in d^2
        dE = 2 * (G.sum(axis=1, keepdims=True) * E - G @ M)
        dM = 2 * (G.sum(axis=0)[:, None] * M - G.T @ E)
        dZ = dE @ WA.T + 2 * self.lam / n * error
        gradient = [
            X.T @ dZ + 2 * self.mu * WX,
            dZ.sum(axis=0),
            Z_hat.T @ dE + S.T @ dM + 2 * self.mu * WA,
            np.array([-G.sum()]),
        ]
        return float(value), gradient

    def _fit(self, X: Array, y: Array, Z: Array, shared: GridCache) -> None:
        dtype, X, Z = X.dtype, X.astype(np.float64, copy=False), Z.astype(np.float64, copy=False)
        S = shared("S", lambda: class_means(Z, y))
        # At the minimum W is zero in directions in which the seen classes do not differ, so these are not learned.
        # Images with attributes of their own may differ in any direction.
        of = Z if not (S[y] == Z).all() else S
        Q = shared("Q", lambda: row_space(of.astype(dtype)).astype(np.float64))
        Sq, Zq = S @ Q, Z @ Q
        space_of = shared("X", lambda: spectrum(X))
        space = Conditioned(space_of, (self.lam + 1) / (self.mu * len(X)), X.dtype)
        p, k = len(space_of.values), Q.shape[1]
        m = min(self.n_metric, k)
        shapes = [(p, k), (k,), (k, m), (1,)]
        start = [np.zeros((p, k)), np.zeros(k), np.eye(k, m), np.ones(1)]
        cuts = np.cumsum([int(np.prod(s)) for s in shapes])[:-1]

        def unpack(flat: Array) -> list[Array]:
            U, *others = (part.reshape(s).astype(X.dtype) for part, s in zip(np.split(flat, cuts), shapes))
            return [space.weights(U), *others]

        def flat_objective(flat: Array) -> tuple[float, Array]:
            value, (dWX, *others) = self.objective(X, y, Zq, Sq, unpack(flat))
            return value, np.concatenate([g.ravel() for g in (space.slope(dWX), *others)]).astype(np.float64)

        first = np.concatenate([a.ravel() for a in start])
        found = descend(flat_objective, first, tol=self.tol, max_iter=self.max_iter, who="bucher_metric")
        WX, b, WA, tau = unpack(found.x)
        self.WX_, self.b_, self.WA_ = (W.astype(dtype, copy=False) for W in (WX @ Q.T, b @ Q.T, Q @ WA))
        self.tau_ = float(tau[0])
        self.residual_ = found.residual

    def _attributes(self, X: Array) -> Array:
        return X @ self.WX_ + self.b_

    def _scores(self, X: Array, S: Array) -> Array:
        return -squared_distances(self._attributes(X) @ self.WA_, S @ self.WA_)
