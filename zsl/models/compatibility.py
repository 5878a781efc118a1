"""What the compatibility learners share: a bilinear score trained by ranking, in mini-batches."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from zsl.checks import Array, Count, Positive, Seed
from zsl.errors import raise_if_interrupted
from zsl.linalg import class_means
from zsl.models.base import GridCache, InductiveModel


@dataclass(eq=False, repr=False)
class Compatibility(InductiveModel):
    r"""Scores ``F(x, s) = x W s'`` that rank an image's own class first; subclasses say what a wrong ranking costs.

    Stochastic subgradient descent on ``1/n sum_i loss(F(x_i, .), y_i)``: in every epoch the images are permuted, every
    batch of them makes one step of ``lr`` times its mean subgradient, as matrix products. The references take one image
    at a time; a batch is the same method with less noise. W starts at zero, so that it stays in the span of the seen
    classes' attributes and no part of it is left over from a random start. There is no penalty: ``lr`` times the number
    of epochs bounds W. As the losses are homogeneous, only ``lr / margin`` matters.

    Parameters
    ----------
    margin : float > 0
        By how much the own class should lead.
    lr : float > 0
        Step length; images and attributes are taken to have unit length.
    n_epochs, batch_size : int
    average : bool
        Return the mean of W over the second half of the epochs rather than the last W.
    seed : int
        Of the permutations.

    Attributes
    ----------
    W_ : (p, q)
    objective_ : list of float
        Mean loss over the batches of each epoch, before their steps.
    """

    margin: Positive = 1.0
    lr: Positive = 1.0
    n_epochs: Count = 20
    batch_size: Count = 64
    average: bool = True
    seed: Seed = 0

    W_: Array = field(init=False, repr=False)

    def loss(self, F: Array, y: Array) -> tuple[float, Array]:
        """Sum of the losses of scores F (b, C) for labels y (b,), and its subgradient (b, C)."""
        raise NotImplementedError

    def _fit(self, X: Array, y: Array, Z: Array, shared: GridCache) -> None:
        S = shared("S", lambda: class_means(Z, y).astype(X.dtype))
        # W = V Q' with Q spanning the rows of S: the products are as large as the rank of S, not as q.
        Q = shared("Q", lambda: row_space(S))
        rng = np.random.default_rng(self.seed)
        self.W_ = self._descend(X, y, S @ Q, (self._start(X.shape[1], S.shape[1], rng) @ Q).astype(X.dtype), rng) @ Q.T

    def _start(self, p: int, q: int, rng: np.random.Generator) -> Array:
        """W before training, (p, q); a subclass may have more of them, (..., p, q)."""
        return np.zeros((p, q))

    def _step(self, X: Array, y: Array, S: Array, W: Array) -> tuple[float, Array]:
        """Sum of the losses of a batch, and its subgradient in W."""
        value, G = self.loss((X @ W) @ S.T, y)
        return value, X.T @ (G @ S)

    def _descend(self, X: Array, y: Array, S: Array, W: Array, rng: np.random.Generator) -> Array:
        n = len(X)
        mean, averaged = np.zeros_like(W), 0
        self.objective_ = []
        for epoch in range(self.n_epochs):
            raise_if_interrupted()
            order, total = rng.permutation(n), 0.0
            for first in range(0, n, self.batch_size):
                rows = order[first : first + self.batch_size]
                value, gradient = self._step(X[rows], y[rows], S, W)
                gradient *= self.lr / len(rows)
                W -= gradient
                total += value
            self.objective_.append(total / n)
            if self.average and 2 * (epoch + 1) > self.n_epochs:
                averaged += 1
                mean += (W - mean) / averaged
        return mean if averaged else W

    def _scores(self, X: Array, S: Array) -> Array:
        return (X @ self.W_) @ S.T


def row_space(S: Array) -> Array:
    """(q, k) orthonormal columns that span the rows of S (C, q)."""
    _, sizes, Vt = np.linalg.svd(S, full_matrices=False)
    keep = sizes > max(S.shape) * np.finfo(S.dtype).eps * sizes[0]
    # A table of zeros spans nothing; one direction keeps the shapes valid.
    return Vt[: max(int(keep.sum()), 1)].T


def excess(F: Array, y: Array, margin: float) -> Array:
    """(b, C) by how much each class comes within ``margin`` of the own one or above it; 0 for the own class."""
    rows = np.arange(len(y))
    E = F - (F[rows, y] - margin)[:, None]
    np.maximum(E, 0, out=E)
    E[rows, y] = 0
    return E


def pull_own(G: Array, y: Array) -> Array:
    """Complete a subgradient (b, C) over the other classes by the own class's entry: each row sums to zero."""
    rows = np.arange(len(y))
    G[rows, y] = -G.sum(axis=1)
    return G
