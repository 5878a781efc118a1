"""DeViSE: every class that comes too close costs."""

from __future__ import annotations

from dataclasses import dataclass

from zsl.checks import Array
from zsl.models.compatibility import Compatibility, excess, pull_own


@dataclass(eq=False, repr=False)
class DeViSE(Compatibility):
    r"""Deep visual-semantic embedding, its ranking layer (Frome et al., NIPS 2013).

    .. math:: \min_W \tfrac1n \sum_i \sum_{y \ne y_i} \max(0,\; m + x_i W s_y^\top - x_i W s_{y_i}^\top)

    with X (n, p) features and S (C, q) attributes of the seen classes; training and parameters as in
    :class:`zsl.models.compatibility.Compatibility`. The reference stops at the first violating class it meets, drawn at
    random; here all of them count, which is what its formula says. Scores are the products ``x W s'``.
    """

    def loss(self, F: Array, y: Array) -> tuple[float, Array]:
        E = excess(F, y, self.margin)
        return float(E.sum()), pull_own((E > 0).astype(F.dtype), y)
