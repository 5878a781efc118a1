"""What generators of features share: the network, its inputs, and a metric from the images that it generates."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from zsl.checks import Array
from zsl.models.network import Layer, Linear, Network, Rectifier

LEAK = 0.2
"""Slope of the leaky rectifier of the hidden layer"""


def generator(weights: list[Array], *, rectify: bool = False) -> Network:
    """The generator with these W and b of its two linear layers; ``rectify`` makes its images non-negative."""
    W1, b1, W2, b2 = weights
    layers: list[Layer] = [Linear(W1, b1), Rectifier(LEAK), Linear(W2, b2)]
    return Network([*layers, Rectifier()] if rectify else layers)


def inputs(s: Array, noise: Array) -> Array:
    """Inputs (G, q + d) of the generator for one class s (q,) and noise (G, d)."""
    return np.hstack([np.broadcast_to(s, (len(noise), len(s))), noise])


def whitening(generated: Iterable[Array], shrinkage: float, least: float) -> Array:
    """A map W (p, p) such that distances of ``X W`` are Mahalanobis distances by the covariance within classes.

    Parameters
    ----------
    generated : images (G, p) of each class in turn
    shrinkage : float
        Of the covariance towards the multiple of the identity with the same trace.
    least : float
        Mean variance up to which the images count as being without any spread; distances then stay Euclidean.

    Examples
    --------
    >>> one, other = np.array([[0.0], [4.0]]), np.array([[9.0], [13.0]])
    >>> abs(whitening([one, other], shrinkage=0.5, least=1e-12))
    array([[0.5]])
    """
    scatter, n = np.zeros(()), 0
    for G in generated:
        R = G - G.mean(axis=0)
        scatter, n = scatter + R.T @ R, n + len(R)
    e, V = np.linalg.eigh(scatter / n)
    e = (1 - shrinkage) * e + shrinkage * e.mean()
    return V / np.sqrt(e if e.mean() > least else np.ones_like(e))
