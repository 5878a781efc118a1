"""DeViSE: a bilinear score whose loss sums all violations of the margin."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from zsl.checks import Array
from zsl.models.compatibility import Compatibility


@dataclass(eq=False, repr=False)
class DeViSE(Compatibility):
    r"""Deep visual-semantic embedding, its ranking layer (Frome et al., NIPS 2013).

    .. math:: \min_W \tfrac1n \sum_i \sum_{y \ne y_i} \max(0,\; m + x_i W s_y^\top - x_i W s_{y_i}^\top)

    X (n, p) are features and S (C, q) are attributes of the seen classes. The reference draws classes and stops at the
    first that violates the margin; here all of them count, as in its formula. Scores are the products ``x W s'``.
    Training and parameters are those of :class:`zsl.models.compatibility.Compatibility`.

    Examples
    --------
    >>> import numpy as np
    >>> X, y, Z = np.eye(2), np.array([0, 1]), np.array([[1.0, -1.0], [-1.0, 1.0]])
    >>> DeViSE().fit(X, y, Z, Z_unseen=-Z).predict(X)
    array([1, 0])
    """

    def weights(self, n_classes: int) -> Array:
        return np.ones(n_classes + 1)
