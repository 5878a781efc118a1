"""SJE: a bilinear score whose loss counts only the largest violation of the margin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from zsl.checks import Array
from zsl.models.compatibility import Compatibility


@dataclass(eq=False, repr=False)
class SJE(Compatibility):
    r"""Structured joint embedding (Akata et al., CVPR 2015).

    .. math:: \min_W \tfrac1n \sum_i \max_y \bigl[\Delta(y_i, y) + x_i W s_y^\top - x_i W s_{y_i}^\top\bigr]_+,
        \qquad \Delta(y_i, y) = m \text{ for } y \ne y_i,\; 0 \text{ for } y = y_i

    X (n, p) are features and S (C, q) are attributes of the seen classes. Scores are the products ``x W s'``. Training
    and parameters are those of :class:`zsl.models.compatibility.Compatibility`.

    Examples
    --------
    >>> import numpy as np
    >>> X, y, Z = np.eye(2), np.array([0, 1]), np.array([[1.0, -1.0], [-1.0, 1.0]])
    >>> SJE().fit(X, y, Z, Z_unseen=-Z).predict(X)
    array([1, 0])
    """

    # Equally bad classes, as at the start, share the loss; otherwise the first class in the table would be preferred.
    only_worst: ClassVar[bool] = True

    def weights(self, n_classes: int) -> Array:
        return 1 / np.maximum(np.arange(n_classes + 1), 1)
