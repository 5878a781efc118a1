"""ALE: a bilinear score whose loss weights violations by the rank of the image's own class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from zsl.checks import Array
from zsl.models.compatibility import Compatibility


@dataclass(eq=False, repr=False)
class ALE(Compatibility):
    r"""Attribute label embedding (Akata et al., CVPR 2013, TPAMI 2016).

    .. math:: \min_W \tfrac1n \sum_i \frac{\ell_{r_i}}{r_i} \sum_{y \ne y_i}
        \max(0,\; m + x_i W s_y^\top - x_i W s_{y_i}^\top), \qquad \ell_r = \sum_{j=1}^{r} \tfrac1j

    X (n, p) are features, S (C, q) are attributes of the seen classes, and r_i is the number of classes within the
    margin of the image's own class, so the first ranks count most. The reference estimates r_i by drawing classes until
    one violates the margin; here r_i is counted. Scores are the products ``x W s'``. Training and parameters are those
    of :class:`zsl.models.compatibility.Compatibility`.

    Examples
    --------
    >>> import numpy as np
    >>> X, y, Z = np.eye(2), np.array([0, 1]), np.array([[1.0, -1.0], [-1.0, 1.0]])
    >>> ALE().fit(X, y, Z, Z_unseen=-Z).predict(X)
    array([1, 0])
    """

    def weights(self, n_classes: int) -> Array:
        ranks = np.arange(1, n_classes + 1)
        return np.concatenate([[0.0], np.cumsum(1 / ranks) / ranks])
