"""LatEm: several bilinear maps, the best of which counts."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from zsl.checks import Array, Count
from zsl.models.compatibility import Compatibility, excess, pull_own


@dataclass(eq=False, repr=False)
class LatEm(Compatibility):
    r"""Latent embeddings (Xian et al., CVPR 2016).

    .. math:: F(x, s) = \max_k x W_k s^\top, \qquad
        \min \tfrac1n \sum_i \sum_{y \ne y_i} \max(0,\; m + F(x_i, s_y) - F(x_i, s_{y_i}))

    with X (n, p) features, S (C, q) attributes of the seen classes and K matrices W_k (p, q). A violation changes the
    matrix that is best for the own class and the one that is best for the violating class. The problem is not convex:
    the matrices start from random values (small, in the span of the seen classes' attributes), and results vary with
    the seed. The reference draws one violating class at a time and prunes matrices; here all count and K is
    given; the grid of ``conf/model/latem.yaml`` tunes ``lr`` alone. Other parameters as in
    :class:`zsl.models.compatibility.Compatibility`.

    Parameters
    ----------
    n_maps : int
        K.

    Attributes
    ----------
    W_ : (K, p, q)
    """

    n_maps: Count = 2

    W_: Array = field(init=False, repr=False)

    def loss(self, F: Array, y: Array) -> tuple[float, Array]:
        E = excess(F, y, self.margin)
        return float(E.sum()), pull_own((E > 0).astype(F.dtype), y)

    def _start(self, p: int, q: int, rng: np.random.Generator) -> Array:
        # Scores of unit images and classes then have a spread of a tenth of the margin.
        return 0.1 * self.margin * rng.standard_normal((self.n_maps, p, q))

    def _step(self, X: Array, y: Array, S: Array, W: Array) -> tuple[float, Array]:
        F = (X @ W) @ S.T  # (K, b, C)
        value, G = self.loss(F.max(axis=0), y)
        chosen = np.arange(self.n_maps)[:, None, None] == F.argmax(axis=0)
        return value, X.T @ ((G * chosen) @ S)

    def _scores(self, X: Array, S: Array) -> Array:
        return ((X @ self.W_) @ S.T).max(axis=0)
