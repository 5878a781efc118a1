"""LatEm: the score is the largest of several bilinear scores."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from zsl.checks import Array, Count
from zsl.models.devise import DeViSE


@dataclass(eq=False, repr=False)
class LatEm(DeViSE):
    r"""Latent embeddings (Xian et al., CVPR 2016).

    .. math:: F(x, s) = \max_k x W_k s^\top, \qquad
        \min \tfrac1n \sum_i \sum_{y \ne y_i} \max(0,\; m + F(x_i, s_y) - F(x_i, s_{y_i}))

    X (n, p) are features, S (C, q) are attributes of the seen classes and W_k (p, q) are K matrices. A violation
    changes the matrix with the best score for the image's own class and the one with the best score for the violating
    class. The problem is not convex: the matrices start from small random values in the span of the seen classes'
    attributes, and results vary with the seed. The reference draws one violating class at a time and prunes matrices;
    here all violating classes count and K is given. Other parameters are those of
    :class:`zsl.models.compatibility.Compatibility`.

    Parameters
    ----------
    n_maps : int >= 1
        K, the number of matrices.

    Attributes
    ----------
    W_ : (K, p, q)

    Examples
    --------
    >>> import numpy as np
    >>> X, y, Z = np.eye(2), np.array([0, 1]), np.array([[1.0, -1.0], [-1.0, 1.0]])
    >>> LatEm().fit(X, y, Z, Z_unseen=-Z).predict(X)
    array([1, 0])
    """

    n_maps: Count = 2

    W_: Array = field(init=False, repr=False)

    def _start(self, p: int, q: int, rng: np.random.Generator) -> Array:
        # The scores of images and classes of unit length then have a spread of a tenth of the margin.
        return 0.1 * self.margin * rng.standard_normal((self.n_maps, p, q))

    def _scores(self, X: Array, S: Array) -> Array:
        return ((X @ self.W_) @ S.T).max(axis=0)
