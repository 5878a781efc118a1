"""SJE: the worst class that comes too close costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from zsl.checks import Array
from zsl.models.compatibility import Compatibility, excess, pull_own


@dataclass(eq=False, repr=False)
class SJE(Compatibility):
    r"""Structured joint embedding (Akata et al., CVPR 2015).

    .. math:: \min_W \tfrac1n \sum_i \max_y \bigl[\Delta(y_i, y) + x_i W s_y^\top - x_i W s_{y_i}^\top\bigr]_+,
        \qquad \Delta(y_i, y) = m \text{ for } y \ne y_i,\; 0 \text{ for } y = y_i

    with X (n, p) features and S (C, q) attributes of the seen classes; training and parameters as in
    :class:`zsl.models.compatibility.Compatibility`. Scores are the products ``x W s'``.
    """

    def loss(self, F: Array, y: Array) -> tuple[float, Array]:
        E = excess(F, y, self.margin)
        largest = E.max(axis=1, keepdims=True)
        # At the start all classes are equally bad: they share, or the first one in the table would be preferred.
        worst = (largest <= E) & (largest > 0)
        G = (worst / np.maximum(worst.sum(axis=1, keepdims=True), 1)).astype(F.dtype)
        return float(largest.sum()), pull_own(G, y)
