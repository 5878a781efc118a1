"""MFMRStyle: class prototypes from attributes by a matrix factorisation with manifold regularisation."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from zsl.checks import Array, Count, NonNegative, Positive
from zsl.graph import neighbour_laplacian, solve_smooth
from zsl.linalg import class_means, gram
from zsl.models.base import GridCache, InductiveModel, Metric, compare
from zsl.models.ridge import cross


@dataclass(eq=False, repr=False)
class MFMRStyle(InductiveModel):
    r"""Matrix tri-factorisation with manifold regularisations, inductive, in the style of Xu et al. (CVPR 2017).

    .. math:: \min_U \|X - Y S U^\top\|_F^2 + \lambda_f \operatorname{tr}(U^\top L_f U)
        + \lambda_a \operatorname{tr}(U L_a U^\top) + \gamma \|U\|_F^2

    X (n, p) are features, Y (n, C) one-hot labels and S (C, q) attributes, so that ``Y S`` are the attributes Z of the
    images. L_f (p, p) and L_a (q, q) are Laplacians of graphs of neighbours among the p dimensions of the features and
    among the q attributes. The minimiser U (p, q) solves ``(lam_f L_f + gamma I) U + U (Z'Z + lam_a L_a) = X'Z``. An
    image x gets the class u whose prototype ``s_u U'`` is most similar to x.

    Parameters
    ----------
    lam_features, lam_attributes : float >= 0
        Weights of the two graphs, relative to the mean diagonal of Z'Z.
    gamma : float > 0
        Penalty on U, relative to the mean diagonal of Z'Z.
    n_neighbors : int >= 1
        Neighbours of each feature and of each attribute.
    metric : "nearest", "cosine" or "dot"
        Similarity in feature space.

    Attributes
    ----------
    U_ : (p, q)

    Notes
    -----
    Certain of the published method are the factorisation of the features into attributes and labels and graphs on
    features and semantic embeddings. What differs, or is unknown:

    * which graphs there are (features or images, attributes or classes); here a feature or an attribute is described by
      its means over the seen classes, and weights are Gaussian, as wide as the median distance of neighbours;
    * the normalisation of the Laplacians; here ``D - W`` with a mean degree of one;
    * all weights and the number of neighbours;
    * the test stage without a graph; here the most similar prototype, so that the score of a class does not depend on
      the other classes. :class:`zsl.models.MFMRJointStyle` has the test stage with a graph.

    The published numbers are with VGG19 features on the standard splits.

    Examples
    --------
    >>> X, y, Z = np.eye(2), np.array([0, 1]), np.array([[1.0, -1.0], [-1.0, 1.0]])
    >>> MFMRStyle().fit(X, y, Z, Z_unseen=-Z).predict(X)
    array([1, 0])
    """

    lam_features: NonNegative = 1.0
    lam_attributes: NonNegative = 1.0
    gamma: Positive = 1.0
    n_neighbors: Count = 10
    metric: Metric = "nearest"

    U_: Array = field(init=False, repr=False)

    def _fit(self, X: Array, y: Array, Z: Array, shared: GridCache) -> None:
        U = projection(X, y, Z, shared, self.lam_features, self.lam_attributes, self.gamma, self.n_neighbors)
        self.U_ = U.astype(X.dtype)

    def _scores(self, X: Array, S: Array) -> Array:
        return compare(X, S @ self.U_.T, self.metric)


def projection(
    X: Array, y: Array, Z: Array, shared: GridCache, lam_features: float, lam_attributes: float, gamma: float, k: int
) -> Array:
    """U (p, q) of :class:`MFMRStyle`, in double precision."""
    XtZ, ZtZ = shared("X'Z", lambda: cross(X, y, Z)), shared("Z'Z", lambda: gram(Z))
    L_f = shared(("L_f", k), lambda: neighbour_laplacian(class_means(X, y).T, k))
    L_a = shared(("L_a", k), lambda: neighbour_laplacian(class_means(Z, y).T, k))
    q = len(ZtZ)
    scale = float(np.trace(ZtZ)) / q or 1.0
    A = ZtZ + scale * (lam_attributes * L_a.toarray() + gamma * np.eye(q))

    return solve_smooth(scale * lam_features * L_f, A, XtZ)
