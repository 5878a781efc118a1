"""VSOP: orthogonal projections of features and attributes into a common space (transductive by its centring)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from zsl.checks import Array, Count, Share
from zsl.linalg import class_means, squared_distances, unit_rows
from zsl.models.base import GridCache
from zsl.models.transductive import TransductiveModel

# Rounds end once one lowers the objective by less than this share.
_GAIN = 1e-10


@dataclass(eq=False, repr=False)
class VSOP(TransductiveModel):
    r"""VSOP (Wu et al., Knowledge-Based Systems, 2021): orthogonal projections of features and attributes.

    .. math:: \min_{P, Q} (1 - \gamma_x) \|X P\|_F^2 + (1 - \gamma_z) \|Z Q\|_F^2
        - 2\, \mathrm{tr}(P^\top X^\top Z Q), \qquad P^\top P = Q^\top Q = I

    X (n, p) are training images and Z (n, q) their attributes. Features are centred over all images, those of the test
    included, which makes the method transductive, and scaled to unit length; attributes are centred over all classes
    and scaled to unit length. The class whose projected attributes are nearest to the projected image wins. The
    authors' objective also has l1 tr(P'P) and l2 tr(Q'Q), which are constant.

    With gamma_x = gamma_z = 1, the default, P and Q are the leading singular vectors of X'Z: a closed form. The weights
    and starting matrices of the authors are unknown to us, and they say that these matter. With other weights, rounds
    from the closed form improve P and Q in turn, each by the polar factor of the derivative of a bound, so the
    objective never rises; the start and this step, in place of the authors' ten rounds of another method, are ours.

    The training images are centred anew for each set of test images, so the fitted model, and its file, hold them.

    Parameters
    ----------
    gamma_x, gamma_z : 0..1
        1: the covariance of the projections alone counts; below 1: long projections cost.
    n_components : int >= 1
        Columns of P and Q, at most the rank of X'Z, since further singular vectors are arbitrary.
    max_iter : int >= 1
        Rounds at most, where gamma_x or gamma_z is below 1.

    Attributes
    ----------
    X_ : (n, p)
        The training images.
    y_ : (n,)
    S_ : (C, q)

    Examples
    --------
    >>> import numpy as np
    >>> X, y, Z = np.eye(2), np.array([0, 1]), np.array([[1.0, -1.0], [-1.0, 1.0]])
    >>> VSOP().fit(X, y, Z, Z_unseen=-Z).predict(X)
    array([1, 0])
    """

    gamma_x: Share = 1.0
    gamma_z: Share = 1.0
    n_components: Count = 100
    max_iter: Count = 200

    X_: Array = field(init=False, repr=False)
    y_: Array = field(init=False, repr=False)
    S_: Array = field(init=False, repr=False)

    def _fit(self, X: Array, y: Array, Z: Array, shared: GridCache) -> None:
        # A copy, because the caller may change its own.
        self.X_, self.y_, self.S_ = shared("X copied", X.copy), y, shared("S", lambda: class_means(Z, y))

    def _scores(self, X: Array, S: Array) -> Array:
        images = centred(np.vstack([self.X_, X]).astype(np.float64))
        n, C = len(self.X_), len(self.S_)
        # In the generalised setting the seen classes are among those to choose from, and count once.
        A = np.vstack([self.S_, S])
        classes = unit_rows(A - np.unique(A, axis=0).mean(axis=0))
        P, Q, _ = self.projections(images[:n], classes[:C][self.y_])
        return -squared_distances(images[n:] @ P, classes[C:] @ Q).astype(X.dtype)

    def projections(self, X: Array, Z: Array) -> tuple[Array, Array, list[float]]:
        """P (p, D), Q (q, D) and the objective after each round, for centred X (n, p) and Z (n, q)."""
        B = X.T @ Z
        U, sizes, Vt = np.linalg.svd(B, full_matrices=False)
        rank = int((sizes > max(B.shape) * np.finfo(np.float32).eps * sizes[0]).sum())
        d = max(min(self.n_components, rank), 1)
        P, Q = U[:, :d], Vt[:d].T
        A, G = (1 - self.gamma_x) * (X.T @ X), (1 - self.gamma_z) * (Z.T @ Z)
        # A matrix of which the largest eigenvalue is at most the shift.
        shifts = [float(np.linalg.eigvalsh(H)[-1]) if H.any() else 0.0 for H in (A, G)]
        objective = [float((P * (A @ P)).sum() + (Q * (G @ Q)).sum() - 2 * (P * (B @ Q)).sum())]
        for _ in range(self.max_iter if A.any() or G.any() else 0):
            P = polar(shifts[0] * P - A @ P + B @ Q)
            Q = polar(shifts[1] * Q - G @ Q + B.T @ P)
            objective.append(float((P * (A @ P)).sum() + (Q * (G @ Q)).sum() - 2 * (P * (B @ Q)).sum()))
            if objective[-2] - objective[-1] <= _GAIN * abs(objective[-1]):
                break
        return P, Q, objective


def centred(X: Array) -> Array:
    """Rows of X less their mean, scaled to unit length."""
    return unit_rows(X - X.mean(axis=0))


def polar(M: Array) -> Array:
    """The matrix with orthonormal columns that is nearest to M (p, D)."""
    U, _, Vt = np.linalg.svd(M, full_matrices=False)
    return U @ Vt
