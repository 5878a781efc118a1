"""Hubness: how unevenly test images choose their class."""

from __future__ import annotations

import numpy as np

from zsl.checks import Array


def first_choices(scores: Array) -> Array:
    """N_1 (M,): how many of the images (L, M) score each class highest; a tie is shared evenly. Sums to L."""
    winners = scores == scores.max(axis=1, keepdims=True)
    return (winners / winners.sum(axis=1, keepdims=True)).sum(axis=0)


def skewness(counts: Array) -> float:
    """``E[(N - mean)^3] / std^3`` of counts; 0 where all are equal. Imbalanced classes alone make it positive."""
    deviation = counts - counts.mean()
    spread = np.sqrt((deviation**2).mean())
    return float((deviation**3).mean() / spread**3) if spread > 0 else 0.0


def hubness_skew(scores: Array) -> float:
    """Skewness of N_1 for scores (L, M)."""
    return skewness(first_choices(scores))
