"""Simulated image features with the structure of classes, for measurements of time and memory."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from zsl.checks import Array
from zsl.linalg import unit_rows

N_CLASSES = 40


def sampler(p: int, rng: np.random.Generator) -> Callable[[Array], Array]:
    """A function from labels (m,) to unit ReLU features (m, p): a heavy common part, class means, and noise."""
    common = rng.gamma(1.0, 1.0, p) - 0.3
    means = 0.8 * rng.standard_normal((N_CLASSES, p))
    mixing = rng.standard_normal((64, p)) / 8

    def sample(labels: Array) -> Array:
        m = len(labels)
        F = common + means[labels]
        F += rng.standard_normal((m, 64)) @ mixing + 0.4 * rng.standard_normal((m, p))
        return unit_rows(np.maximum(F, 0))

    return sample
