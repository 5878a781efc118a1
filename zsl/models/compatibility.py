"""Base class of the compatibility models: a bilinear score, trained by ranking in mini-batches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from zsl.checks import Array, Count, Positive, Seed
from zsl.errors import raise_if_interrupted
from zsl.linalg import class_means
from zsl.models.base import GridCache, InductiveModel
from zsl.models.ranking import small_steps, subgradients

# Batches of fewer images share their products.
_BLOCK = 64
# If fewer than this share of a block's images have a subgradient, only those images are copied and multiplied.
_MOST = 0.8


@dataclass(eq=False, repr=False)
class Compatibility(InductiveModel):
    r"""Learn scores ``F(x, s) = x W s'`` that rank an image's own class first; subclasses define the loss.

    Training is stochastic subgradient descent on ``1/n sum_i loss(F(x_i, .), y_i)``. Every epoch permutes the images,
    and every batch makes one step of ``lr`` times its mean subgradient. The references take one image at a time; a
    batch is the same method with less noise. W starts at zero and therefore stays in the span of the seen classes'
    attributes. There is no penalty: the number of epochs, and for all but SJE also ``lr``, limit how far W goes
    (docs/methods.md). The losses are homogeneous, so only ``lr / margin`` matters.

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

    # Whether only the worst class within the margin counts.
    only_worst: ClassVar[bool] = False

    def weights(self, n_classes: int) -> Array:
        """(C + 1,) factor of the sum of violations where 0, ..., C classes count."""
        raise NotImplementedError

    def loss(self, F: Array, y: Array) -> tuple[float, Array]:
        """Sum of the losses of scores F (b, C) for labels y (b,), and its subgradient (b, C)."""
        G = F.copy()
        return self._loss(G, y), G

    def _loss(self, F: Array, y: Array) -> float:
        """Turn scores F (..., b, C), the largest of which count, into the subgradient; return the sum of the losses."""
        return float(subgradients(F.reshape(-1, *F.shape[-2:]), y, *self._settings(F)))

    def _settings(self, F: Array) -> tuple[Any, Array, bool]:
        kind = F.dtype.type
        return kind(self.margin), self.weights(F.shape[-1]).astype(kind), self.only_worst

    def _fit(self, X: Array, y: Array, Z: Array, shared: GridCache) -> None:
        S = shared("S", lambda: class_means(Z, y).astype(X.dtype))
        # W = V Q', where Q spans the rows of S, so the products have the size of the rank of S and not of q.
        Q = shared("Q", lambda: row_space(S))
        rng = np.random.default_rng(self.seed)
        self.W_ = self._descend(X, y, S @ Q, (self._start(X.shape[1], S.shape[1], rng) @ Q).astype(X.dtype), rng) @ Q.T

    def _start(self, p: int, q: int, rng: np.random.Generator) -> Array:
        """W before training, (p, q); a subclass may return several matrices, (..., p, q)."""
        return np.zeros((p, q))

    def _step(
        self, X: Array, y: Array, S: Array, W: Array, rate: float = 1.0, out: Array | None = None
    ) -> tuple[float, Array]:
        """Sum of the losses of a batch, and ``rate`` times its subgradient in W."""
        F = (X @ W) @ S.T
        value = self._loss(F, y)
        F *= rate
        return value, _product(X, F @ S, out)

    def _small_steps(self, X: Array, y: Array, S: Array, W: Array, out: Array) -> tuple[float, Array]:
        """The same for one batch of ``batch_size`` after another: sum of the losses, and what to add to W."""
        H, T, lr = X @ W, np.ascontiguousarray(S.T), X.dtype.type(self.lr)
        value = small_steps(H.reshape(-1, *H.shape[-2:]), X @ X.T, S, T, y, self.batch_size, lr, *self._settings(T))
        return float(value), _product(X, H, out)

    def _descend(self, X: Array, y: Array, S: Array, W: Array, rng: np.random.Generator) -> Array:
        n, size = len(X), self.batch_size
        block = size * max(1, _BLOCK // size)
        S = np.ascontiguousarray(S)
        # Fresh memory for every block would cost as much as a product.
        images, change = np.empty((min(block, n), X.shape[1]), X.dtype), np.empty_like(W)
        mean, averaged = np.zeros_like(W), 0
        self.objective_ = []
        for epoch in range(self.n_epochs):
            raise_if_interrupted()
            order, total = rng.permutation(n), 0.0
            for first in range(0, n, block):
                rows = order[first : first + block]
                x = np.take(X, rows, axis=0, out=images[: len(rows)], mode="clip")
                if len(rows) > size:
                    value, change = self._small_steps(x, y[rows], S, W, change)
                else:
                    value, change = self._step(x, y[rows], S, W, -self.lr / len(rows), change)
                W += change
                total += value
            self.objective_.append(total / n)
            if self.average and 2 * (epoch + 1) > self.n_epochs:
                averaged += 1
                mean += (W - mean) / averaged
        return mean if averaged else W

    def _scores(self, X: Array, S: Array) -> Array:
        return (X @ self.W_) @ S.T


def _product(X: Array, H: Array, out: Array | None) -> Array:
    """``X'H`` for X (b, p) and H (..., b, k).

    Images whose margin no class violates have rows of zeros in H and cost nothing.
    """
    moved = np.flatnonzero(H.any(axis=-1).reshape(-1, len(X)).any(axis=0))
    if len(moved) < _MOST * len(X):
        X, H = X[moved], H[..., moved, :]
    return np.matmul(X.T, H, out=out)


def row_space(S: Array) -> Array:
    """Orthonormal columns (q, k) that span the rows of S (C, q)."""
    _, sizes, Vt = np.linalg.svd(S, full_matrices=False)
    keep = sizes > max(S.shape) * np.finfo(S.dtype).eps * sizes[0]
    # A table of zeros has rank 0; one direction keeps the shapes valid.
    return Vt[: max(int(keep.sum()), 1)].T
