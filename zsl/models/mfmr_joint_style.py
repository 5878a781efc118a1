"""MFMRJointStyle: MFMR's test stage, in which images that are neighbours get similar labels."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from zsl.checks import Array, Count, NonNegative, Positive
from zsl.graph import neighbour_laplacian, solve_smooth
from zsl.models.base import GridCache
from zsl.models.mfmr_style import projection
from zsl.models.transductive import TransductiveModel


@dataclass(eq=False, repr=False)
class MFMRJointStyle(TransductiveModel):
    r"""Matrix tri-factorisation with a graph of the test images, in the style of Xu et al. (CVPR 2017); transductive.

    Training is that of :class:`zsl.models.MFMRStyle`. For test images T (L, p) and prototypes G (M, p) of the classes,

    .. math:: \min_V \|T - V G\|_F^2 + \lambda_t \operatorname{tr}(V^\top L_t V) + \gamma_t \|V\|_F^2

    gives soft labels V (L, M), the scores: ``(lam_t L_t + gamma_t I) V + V G G' = T G'``. L_t is the Laplacian of the
    graph of neighbours among the test images. An image gets the class of its largest entry. Copies of an image are one
    node of the graph and have the same scores.

    Parameters
    ----------
    lam_features, lam_attributes, gamma, n_neighbors
        As in :class:`zsl.models.MFMRStyle`; test images have ``n_neighbors`` neighbours, too.
    lam_test : float >= 0
        Weight of the graph of test images, relative to the mean diagonal of GG'.
    gamma_test : float > 0
        Penalty on V, relative to the mean diagonal of GG'.

    Attributes
    ----------
    U_ : (p, q)

    Notes
    -----
    What differs from the published method, or is unknown, in addition to the list of :class:`zsl.models.MFMRStyle`:

    * constraints on V; the reference may ask for non-negative labels;
    * whether U is estimated again on training and test images together; here it is not.

    The published numbers (VGG19, standard splits) are most likely of this stage, so they are transductive.

    Examples
    --------
    >>> X, y, Z = np.eye(2), np.array([0, 1]), np.array([[1.0, -1.0], [-1.0, 1.0]])
    >>> MFMRJointStyle().fit(X, y, Z, Z_unseen=-Z).predict(np.array([[1.0, 0.1], [0.9, 0.0], [0.0, 1.0], [0.1, 0.9]]))
    array([1, 1, 0, 0])
    """

    lam_features: NonNegative = 1.0
    lam_attributes: NonNegative = 1.0
    gamma: Positive = 1.0
    n_neighbors: Count = 10
    lam_test: NonNegative = 1.0
    gamma_test: Positive = 1.0

    U_: Array = field(init=False, repr=False)

    def _fit(self, X: Array, y: Array, Z: Array, shared: GridCache) -> None:
        U = projection(X, y, Z, shared, self.lam_features, self.lam_attributes, self.gamma, self.n_neighbors)
        self.U_ = U.astype(X.dtype)

    def _scores(self, X: Array, S: Array) -> Array:
        # In this order of rows ties between neighbours do not depend on that of the images.
        T, of_image = np.unique(X.astype(np.float64), axis=0, return_inverse=True)
        G = (S @ self.U_.T).astype(np.float64)
        A = G @ G.T
        scale = float(np.trace(A)) / len(A) or 1.0
        A[np.diag_indices_from(A)] += scale * self.gamma_test
        L_t = neighbour_laplacian(T, self.n_neighbors)
        V = solve_smooth(scale * self.lam_test * L_t, A, T @ G.T)
        return V[of_image.ravel()].astype(self.U_.dtype)
