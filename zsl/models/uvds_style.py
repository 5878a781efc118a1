"""UVDSStyle: visual prototypes of unseen classes by way of a latent space between attributes and features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp

from zsl.checks import Array, Count, NonNegative, Positive
from zsl.graph import conjugate_gradients, gaussian_weights, neighbour_laplacian, neighbours
from zsl.linalg import Spectrum, class_means, gram, ridge, spectrum
from zsl.models.base import GridCache, InductiveModel, Metric, compare
from zsl.models.ridge import cross

Smooth = Callable[[Array], Array]
"""Multiplies a matrix (n, r) with the Laplacian of the images"""


@dataclass(eq=False, repr=False)
class UVDSStyle(InductiveModel):
    r"""Unseen visual data synthesis, in the style of Long et al. (CVPR 2017, TPAMI 2018).

    .. math:: J = \|X - V Q\|_F^2 + \alpha \|V - Z P\|_F^2 + \beta \operatorname{tr}(V^\top L V)
        + \gamma (\|P\|_F^2 + \|Q\|_F^2)

    X (n, p) are features and Z (n, q) attributes of the images; V (n, r) are latent codes, P (q, r) and Q (r, p) maps.
    L (n, n) is half the sum of the Laplacians of two graphs of the images. Each block is minimised in turn, so J never
    rises. The start is the ridge regression from Z to X, cut to rank r. An image x gets the class u whose synthesised
    features ``s_u P Q`` are most similar to x.

    Parameters
    ----------
    n_components : int >= 1
        r; at most the rank of the attributes of the seen classes.
    alpha : float > 0
        Weight of the attributes' side. For large values without ``beta`` and ``gamma`` the prototypes are those of a
        regression from attributes to features.
    beta : float >= 0
        Weight of the graphs. With 0 none is built.
    gamma : float >= 0
        Penalty on both maps.
    orthogonal : bool
        Whether the rows of Q are orthonormal. It needs no more components than features.
    n_neighbors : int >= 1
        Neighbours of each image, and of each class.
    n_iter : int >= 1
        Rounds over the blocks.
    metric : "nearest", "cosine" or "dot"
        Similarity in feature space.

    Attributes
    ----------
    P_ : (q, r)
    Q_ : (r, p)
    objective_ : list of float
        J after every block: V, P and Q in turn.

    Notes
    -----
    The published objective is not known to us in full. Certain are the latent space between attributes and features,
    the dual graph (of features and of attributes), a rotation that spreads variance evenly over the dimensions, and
    that attributes of single images are used where a data set has them. What differs, or is unknown:

    * the rotation is applied after training, to P and Q (:func:`even_rotation`). It leaves J and all prototypes as they
      are, so it matters only to a method that then quantises or drops dimensions. ``orthogonal`` is another reading;
    * the graph of attributes has weights between classes, which the images of these classes share;
    * the weights and the latent dimension;
    * the classifier: the reference trains one on synthesised images, here prototypes take their place.

    The published numbers are with VGG19 features on the standard splits.

    Examples
    --------
    >>> X, y, Z = np.eye(2), np.array([0, 1]), np.array([[1.0, -1.0], [-1.0, 1.0]])
    >>> UVDSStyle().fit(X, y, Z, Z_unseen=-Z).predict(X)
    array([1, 0])
    """

    n_components: Count = 100
    alpha: Positive = 1.0
    beta: NonNegative = 0.1
    gamma: NonNegative = 1.0
    orthogonal: bool = False
    n_neighbors: Count = 10
    n_iter: Count = 20
    metric: Metric = "nearest"

    P_: Array = field(init=False, repr=False)
    Q_: Array = field(init=False, repr=False)

    def _fit(self, X: Array, y: Array, Z: Array, shared: GridCache) -> None:
        dtype, XtZ = X.dtype, shared("X'Z", lambda: cross(X, y, Z))
        X, Z = X.astype(np.float64, copy=False), Z.astype(np.float64, copy=False)
        of_Z = shared("Z", lambda: spectrum(Z))
        k = self.n_neighbors
        smooth = shared(("graph", k), lambda: dual_graph(X, y, Z, k)) if self.beta else None
        self.objective_: list[float] = []
        if not len(of_Z.values):  # without any attribute all prototypes are zero
            self.P_, self.Q_ = np.zeros((Z.shape[1], 1), dtype), np.zeros((1, X.shape[1]), dtype)
            return
        V, P, Q = self._start(of_Z, XtZ, Z)
        for _ in range(self.n_iter):
            V = self.latent(X, Z @ P, Q, V, smooth)
            self.objective_.append(self.objective(X, Z, V, P, Q, smooth))
            P = ridge(of_Z, Z.T @ V, self.gamma / self.alpha)
            self.objective_.append(self.objective(X, Z, V, P, Q, smooth))
            Q = self.decoder(X, V)
            self.objective_.append(self.objective(X, Z, V, P, Q, smooth))
        R = even_rotation(gram(V - V.mean(axis=0)))
        self.P_, self.Q_ = (P @ R).astype(dtype), (R.T @ Q).astype(dtype)

    def _start(self, of_Z: Spectrum, XtZ: Array, Z: Array) -> tuple[Array, Array, Array]:
        # P and Q start as the best product P Q for the ridge solution W, measured by the error of Z P Q. The singular
        # value decomposition gives it in coordinates in which Z'Z is the identity.
        root = np.sqrt(of_Z.values)
        W = (root / (of_Z.values + self.gamma))[:, None] * (of_Z.vectors.T @ XtZ.T)
        U, s, Vt = np.linalg.svd(W, full_matrices=False)
        r = min(self.n_components, len(s))
        P = (of_Z.vectors / root) @ U[:, :r]
        Q = Vt[:r]
        # Both maps share the singular values, unless Q is to be orthonormal.
        P, Q = (P * s[:r], Q) if self.orthogonal else (P * np.sqrt(s[:r]), np.sqrt(s[:r])[:, None] * Q)
        return Z @ P, P, Q

    def objective(self, X: Array, Z: Array, V: Array, P: Array, Q: Array, smooth: Smooth | None = None) -> float:
        """J."""
        graph = float(np.vdot(V, smooth(V))) if smooth else 0.0
        return (
            float(((X - V @ Q) ** 2).sum() + self.alpha * ((V - Z @ P) ** 2).sum())
            + self.beta * graph
            + self.gamma * float((P**2).sum() + (Q**2).sum())
        )

    def latent(self, X: Array, target: Array, Q: Array, V: Array, smooth: Smooth | None = None) -> Array:
        """The minimiser V (n, r): ``(alpha I + beta L) V + V Q Q' = X Q' + alpha target``; the search starts at V."""
        s, R = np.linalg.eigh(Q @ Q.T)
        s = np.maximum(s, 0) + self.alpha
        right = (X @ Q.T + self.alpha * target) @ R
        if smooth is None:
            return (right / s) @ R.T

        def times(F: Array) -> Array:
            return s * F + self.beta * smooth(F)

        start = V @ R
        # Every iterate lowers J, so J never rises even where a step is not exact; the next round corrects the rest.
        step = conjugate_gradients(times, right - times(start), tol=1e-4, max_iter=200).F
        return (start + step) @ R.T

    def decoder(self, X: Array, V: Array) -> Array:
        """The minimiser Q (r, p)."""
        if self.orthogonal:
            U, _, Wt = np.linalg.svd(V.T @ X, full_matrices=False)
            return U @ Wt
        return ridge(spectrum(V), V.T @ X, self.gamma)

    def _scores(self, X: Array, S: Array) -> Array:
        return compare(X, S @ self.P_ @ self.Q_, self.metric)


def dual_graph(X: Array, y: Array, Z: Array, n_neighbors: int) -> Smooth:
    """Multiplication with half the sum of the Laplacians of the images' graphs in features and in attributes.

    In the graph of attributes two images have the weight of their classes, divided by the root of the product of the
    classes' sizes, so that it does not take n^2 weights. A class is its own neighbour with weight one.
    """
    visual = neighbour_laplacian(X, n_neighbors)
    S, size = class_means(Z, y), np.sqrt(np.bincount(y))
    between = gaussian_weights(neighbours(S, n_neighbors), None).toarray() + np.eye(len(S))
    between /= np.outer(size, size)
    degree = (between @ size**2)[y]
    members = sp.csr_array((np.ones(len(y)), (np.arange(len(y)), y)))

    def times(V: Array) -> Array:
        semantic = degree[:, None] * V - members @ (between @ (members.T @ V))
        return 0.5 * (visual @ V + semantic / degree.mean())

    return times


def even_rotation(C: Array, tol: float = 1e-12) -> Array:
    """An orthogonal R (r, r) for which all diagonal entries of ``R' C R`` are the mean one, for C (r, r) symmetric.

    Each step turns one pair of columns, of which one has more and one less than the mean, until one of them has the
    mean. There are at most r - 1 steps.

    Examples
    --------
    >>> R = even_rotation(np.diag([1.0, 3.0]))
    >>> (R.T @ np.diag([1.0, 3.0]) @ R).diagonal().round(6)
    array([2., 2.])
    """
    C, R = C.copy(), np.eye(len(C))
    mean = float(np.trace(C)) / max(len(C), 1)
    for _ in range(len(C)):
        d = C.diagonal() - mean
        i, j = int(d.argmin()), int(d.argmax())
        if d[j] <= tol * abs(mean):
            break
        # With t = tan(angle) the new entry i is the mean where d_j t^2 + 2 c_ij t + d_i = 0, which has a real root.
        c = C[i, j]
        t = (-c - np.copysign(np.sqrt(c * c - d[i] * d[j]), c)) / d[j]
        t = t if abs(t) < 1 else d[i] / (d[j] * t)
        G = np.array([[1.0, -t], [t, 1.0]]) / np.hypot(1.0, t)
        C[:, [i, j]] = C[:, [i, j]] @ G
        C[[i, j]] = G.T @ C[[i, j]]
        R[:, [i, j]] = R[:, [i, j]] @ G
    return R
