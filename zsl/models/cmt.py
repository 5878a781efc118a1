"""CMT: a small neural network predicts the attributes of an image."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from zsl.checks import Array, Count, Positive, Seed
from zsl.linalg import Conditioned, Spectrum, spectrum
from zsl.models.base import AttributePredictor, GridCache, Metric
from zsl.models.descent import descend


@dataclass(eq=False, repr=False)
class CMT(AttributePredictor):
    r"""Cross-modal transfer (Socher et al., NIPS 2013), without its detector of unseen classes.

    .. math:: \min_{T_1, T_2} \sum_i \|z_i - \tanh(x_i T_1) T_2\|^2 + \lambda (\|T_1\|^2 + \|T_2\|^2)

    X (n, p) are features, Z (n, q) are attributes of each image; T_1 (p, h) and T_2 (h, q) are learned. The problem is
    not convex; L-BFGS on all images starts from random values. An image gets the class most similar to its predicted
    attributes.

    Parameters
    ----------
    n_hidden : int >= 1
        h, the width of the hidden layer.
    lam : float > 0
    metric : "cosine", "nearest" or "dot"
        The reference has ``nearest``, which favours short attribute rows if attributes are centred.
    max_iter : int >= 1
    tol : float > 0
        L-BFGS ends when the gradient is ``tol`` times that at the start, or after ``max_iter`` iterations. On thousands
        of images it ends by ``max_iter``, and the log says so; ``max_iter`` then acts as early stopping, and features
        that are rounded to single precision can give other scores.
    seed : int >= 0
        Seed of the initial values.

    Attributes
    ----------
    T1_ : (p, h)
    T2_ : (h, q)
    residual_ : float
        Largest entry of the final gradient as a share of the largest at the start, in the scaled coordinates of the
        descent. It is above ``tol`` if ``max_iter`` or rounding ended the fit.

    Examples
    --------
    >>> import numpy as np
    >>> X, y, Z = np.eye(2), np.array([0, 1]), np.array([[1.0, -1.0], [-1.0, 1.0]])
    >>> CMT().fit(X, y, Z, Z_unseen=-Z).predict(X)
    array([1, 0])
    """

    n_hidden: Count = 50
    lam: Positive = 0.1
    metric: Metric = "cosine"
    max_iter: Count = 100
    tol: Positive = 1e-4
    seed: Seed = 0

    T1_: Array = field(init=False, repr=False)
    T2_: Array = field(init=False, repr=False)

    def objective(self, X: Array, Z: Array, T1: Array, T2: Array) -> tuple[float, Array, Array]:
        """The objective and its gradients in T1 and T2."""
        H = np.tanh(X @ T1)
        R = H @ T2 - Z
        value = np.vdot(R, R) + self.lam * (np.vdot(T1, T1) + np.vdot(T2, T2))
        back = (R @ T2.T) * (1 - H**2)
        return float(value), 2 * (X.T @ back + self.lam * T1), 2 * (H.T @ R + self.lam * T2)

    def _fit(self, X: Array, y: Array, Z: Array, shared: GridCache) -> None:
        what = (self.n_hidden, self.lam, self.max_iter, self.tol, self.seed)
        of = shared("X", lambda: spectrum(X))
        self.T1_, self.T2_, self.residual_ = shared(what, lambda: self._train(X, Z, of))

    def _train(self, X: Array, Z: Array, of: Spectrum) -> tuple[Array, Array, float]:
        rng = np.random.default_rng(self.seed)
        p, q, h, k = X.shape[1], Z.shape[1], self.n_hidden, len(of.values)
        # T2 gives the hidden layer a curvature of about 2 |T2|^2 / h, which is 2 q / h at the start.
        space = Conditioned(of, q / h / self.lam, X.dtype)
        T1, T2 = rng.standard_normal((p, h)) / np.sqrt(p), rng.standard_normal((h, q)) / np.sqrt(h)
        start = np.concatenate([space.coordinates(T1).ravel(), T2.ravel()])

        def unpack(theta: Array) -> tuple[Array, Array]:
            theta = theta.astype(X.dtype, copy=False)
            return space.weights(theta[: k * h].reshape(k, h)), theta[k * h :].reshape(h, q)

        def scaled(theta: Array) -> tuple[float, Array]:
            value, d1, d2 = self.objective(X, Z, *unpack(theta))
            return value / len(X), np.concatenate([space.slope(d1).ravel(), d2.ravel()]).astype(np.float64) / len(X)

        found = descend(scaled, start, tol=self.tol, max_iter=self.max_iter, who="cmt")
        return *unpack(found.x), found.residual

    def _attributes(self, X: Array) -> Array:
        return np.tanh(X @ self.T1_) @ self.T2_
