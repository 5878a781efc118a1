"""Base class of the compatibility models: a bilinear score, trained by ranking in mini-batches."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from zsl.checks import Array, Count, Positive, Seed
from zsl.errors import raise_if_interrupted
from zsl.linalg import class_means
from zsl.models.base import GridCache, InductiveModel


@dataclass(eq=False, repr=False)
class Compatibility(InductiveModel):
    r"""Learn scores ``F(x, s) = x W s'`` that rank an image's own class first; subclasses define the loss.

    Training is stochastic subgradient descent on ``1/n sum_i loss(F(x_i, .), y_i)``. Every epoch permutes the images,
    and every batch makes one step of ``lr`` times its mean subgradient. The references take one image at a time; a
    batch is the same method with less noise. W starts at zero and therefore stays in the span of the seen classes'
    attributes. There is no penalty: ``lr`` times the number of epochs bounds W. The losses are homogeneous, so only
    ``lr / margin`` matters.

    Parameters
    ----------
    margin : float > 0
        Required lead of the image's own class.
    lr : float > 0
        Step length, for images and attributes of unit length.
    n_epochs, batch_size : int >= 1
    average : bool
        Whether W_ is the mean of W over the second half of the epochs or the last W.
    seed : int >= 0
        Seed of the permutations.

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
        # W = V Q', where Q spans the rows of S, so the products have the size of the rank of S and not of q.
        Q = shared("Q", lambda: row_space(S))
        rng = np.random.default_rng(self.seed)
        self.W_ = self._descend(X, y, S @ Q, (self._start(X.shape[1], S.shape[1], rng) @ Q).astype(X.dtype), rng) @ Q.T

    def _start(self, p: int, q: int, rng: np.random.Generator) -> Array:
        """W before training, (p, q); a subclass may return several matrices, (..., p, q)."""
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
    """Orthonormal columns (q, k) that span the rows of S (C, q)."""
    _, sizes, Vt = np.linalg.svd(S, full_matrices=False)
    keep = sizes > max(S.shape) * np.finfo(S.dtype).eps * sizes[0]
    # A table of zeros has rank 0; one direction keeps the shapes valid.
    return Vt[: max(int(keep.sum()), 1)].T


def excess(F: Array, y: Array, margin: float) -> Array:
    """(b, C) amount by which each class violates the margin of the image's own class; 0 for the own class itself."""
    rows = np.arange(len(y))
    E = F - (F[rows, y] - margin)[:, None]
    np.maximum(E, 0, out=E)
    E[rows, y] = 0
    return E


def pull_own(G: Array, y: Array) -> Array:
    """Set the own class's entry of a subgradient (b, C) so that each row sums to zero."""
    rows = np.arange(len(y))
    G[rows, y] = -G.sum(axis=1)
    return G
