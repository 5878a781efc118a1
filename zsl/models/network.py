"""Small networks from attributes to features in plain NumPy: layers with their derivatives, and Adam.

The inputs are tens to hundreds of rows at a time, so a CPU is enough and no other library is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from zsl.checks import Array


class Layer(Protocol):
    """A differentiable step; ``backward`` refers to the last ``forward``."""

    def forward(self, X: Array, training: bool) -> Array:
        """Outputs (C, k') for inputs (C, k)."""
        ...

    def backward(self, G: Array) -> Array:
        """Derivative (C, k) by the inputs from the one by the outputs (C, k')."""
        ...


@dataclass(eq=False)
class Linear:
    """``X W + b``."""

    W: Array
    b: Array

    def forward(self, X: Array, training: bool) -> Array:
        self.X = X
        return X @ self.W + self.b

    def backward(self, G: Array) -> Array:
        self.slopes = [self.X.T @ G, G.sum(axis=0)]
        return G @ self.W.T


@dataclass(eq=False)
class Rectifier:
    """``max(x, slope x)``: ReLU with slope 0, leaky ReLU with a positive one."""

    slope: float = 0.0

    def forward(self, X: Array, training: bool) -> Array:
        self.factor = np.where(X > 0, X.dtype.type(1), X.dtype.type(self.slope))
        return X * self.factor

    def backward(self, G: Array) -> Array:
        return G * self.factor


@dataclass(eq=False)
class UnitRows:
    """Rows scaled to unit length; rows of zeros stay."""

    def forward(self, X: Array, training: bool) -> Array:
        lengths = np.linalg.norm(X, axis=1, keepdims=True)
        self.lengths = np.where(lengths > 0, lengths, 1)
        self.U = X / self.lengths
        return self.U

    def backward(self, G: Array) -> Array:
        return (G - self.U * (self.U * G).sum(axis=1, keepdims=True)) / self.lengths


@dataclass(eq=False)
class ClassStandardisation:
    """``(x - mean) / (variance + 1e-5)`` over the classes of the batch, as class normalisation has it.

    The divisor is the variance, not its root. In training, mean and unbiased variance are those of the rows; elsewhere
    they are running averages, to which each training pass adds a share of 0.1.
    """

    mean: Array
    variance: Array
    eps: float = field(default=1e-5)

    def forward(self, X: Array, training: bool) -> Array:
        if not training:
            return (X - self.mean) / (self.variance + self.eps)
        mean = X.mean(axis=0)
        self.centred = X - mean
        # A single class has no variance.
        self.freedom = max(len(X) - 1, 1)
        variance = (self.centred**2).sum(axis=0) / self.freedom
        self.mean = 0.9 * self.mean + 0.1 * mean
        self.variance = 0.9 * self.variance + 0.1 * variance
        self.divisor = variance + self.eps
        return self.centred / self.divisor

    def backward(self, G: Array) -> Array:
        by_variance = -(G * self.centred).sum(axis=0) / self.divisor**2
        by_centred = G / self.divisor + self.centred * (2 * by_variance / self.freedom)
        return by_centred - by_centred.mean(axis=0)


class Network:
    """Layers one after another.

    Examples
    --------
    >>> network = Network([Linear(np.array([[1.0, -1.0]]), np.zeros(2)), Rectifier()])
    >>> network.forward(np.array([[2.0]]))
    array([[ 2., -0.]])
    """

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.layers = list(layers)
        self.linear = [layer for layer in layers if isinstance(layer, Linear)]

    @property
    def parameters(self) -> list[Array]:
        """W and b of each linear layer."""
        return [parameter for layer in self.linear for parameter in (layer.W, layer.b)]

    def forward(self, X: Array, training: bool = False) -> Array:
        """Outputs for the rows of X."""
        for layer in self.layers:
            X = layer.forward(X, training)
        return X

    def backward(self, G: Array) -> list[Array]:
        """Derivatives by the parameters, from the one by the outputs of the last training pass."""
        for layer in reversed(self.layers):
            G = layer.backward(G)
        return [slope for layer in self.linear for slope in layer.slopes]


class Adam:
    """Adam (Kingma and Ba, ICLR 2015) with a penalty ``decay / 2 |w|^2``; it changes the parameters in place."""

    def __init__(self, parameters: Sequence[Array], decay: float) -> None:
        self.parameters, self.decay, self.n_steps = list(parameters), decay, 0
        self.first = [np.zeros_like(w) for w in parameters]
        self.second = [np.zeros_like(w) for w in parameters]

    def step(self, slopes: Sequence[Array], rate: float, beta1: float = 0.9, beta2: float = 0.999) -> None:
        """One step against these derivatives."""
        self.n_steps += 1
        rate = rate / (1 - beta1**self.n_steps)
        root = 1 / np.sqrt(1 - beta2**self.n_steps)
        for w, slope, m, v in zip(self.parameters, slopes, self.first, self.second):
            g = slope + self.decay * w
            m *= beta1
            m += (1 - beta1) * g
            v *= beta2
            v += (1 - beta2) * g**2
            w -= rate * m / (root * np.sqrt(v) + 1e-8)


def uniform(rng: np.random.Generator, n_in: int, n_out: int, bound: float) -> Array:
    """Weights (n_in, n_out) in single precision, uniform between -bound and bound."""
    return rng.uniform(-bound, bound, (n_in, n_out)).astype(np.float32)
