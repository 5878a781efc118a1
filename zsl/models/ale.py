"""ALE: violations cost by the rank that they give the own class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from zsl.checks import Array
from zsl.models.compatibility import Compatibility, excess, pull_own


@dataclass(eq=False, repr=False)
class ALE(Compatibility):
    r"""Attribute label embedding (Akata et al., CVPR 2013, TPAMI 2016).

    .. math:: \min_W \tfrac1n \sum_i \frac{\ell_{r_i}}{r_i} \sum_{y \ne y_i}
        \max(0,\; m + x_i W s_y^\top - x_i W s_{y_i}^\top), \qquad \ell_r = \sum_{j=1}^{r} \tfrac1j

    with r_i the number of classes that come within the margin of the own one, so that the first ranks count most. X
    (n, p) features, S (C, q) attributes of the seen classes; training and parameters as in
    :class:`zsl.models.compatibility.Compatibility`. The reference estimates r_i by drawing classes until one violates;
    here it is counted. Scores are the products ``x W s'``.
    """

    def loss(self, F: Array, y: Array) -> tuple[float, Array]:
        E = excess(F, y, self.margin)
        violates = E > 0
        rank = violates.sum(axis=1)
        harmonic = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, F.shape[1] + 1))])
        weight = (harmonic[rank] / np.maximum(rank, 1)).astype(F.dtype)[:, None]
        return float((weight * E).sum()), pull_own(weight * violates, y)
