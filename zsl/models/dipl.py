"""DIPL: the semantic auto-encoder with pseudo-labels of the test images (transductive)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import scipy.linalg

from zsl.checks import Array, Count, NonNegative, Positive
from zsl.errors import raise_if_interrupted
from zsl.linalg import class_sums, gram, squared_distances
from zsl.models.base import GridCache
from zsl.models.ridge import cross
from zsl.models.transductive import TransductiveModel


class Alternation(NamedTuple):
    """Where the alternation ended; the objective after each solution for W never rises."""

    W: Array  # (p, q)
    labels: Array  # (L,)
    objective: list[float]


@dataclass(eq=False, repr=False)
class DIPL(TransductiveModel):
    r"""Domain-invariant projection learning (Zhao, Ding, Guan, Lu, Xiang and Wen, NeurIPS 2018), without superclasses.

    .. math:: \min_W \sum_i \|x_i W - z_i\|^2 + \gamma \|x_i - z_i W^\top\|^2
        + \lambda \sum_t \min_u \bigl( \|x_t W - a_u\|^2 + \gamma \|x_t - a_u W^\top\|^2 \bigr)

    i runs over the training images with attributes z, t over the test images and u over the classes to choose from,
    with attributes a. The minimum over u gives each test image a label; with fixed labels W (p, q) solves one Sylvester
    equation, that of the semantic auto-encoder for training and test images together. Both steps in turn lower the
    objective until no label changes. The score of class u is minus the last bracket with the final W. With lambda = 0 W
    is that of :class:`zsl.models.SAE` with its weight of the encoder at ``1 / gamma``.

    An interpretation: the abstract of the paper confirms a linear projection with self-reconstruction on seen and
    unseen data, an objective with a minimum over classes inside, an iterative solver and superclasses. The weights of
    the terms and the start, which is W of the training images, are a reading of it, and the superclasses are left out.

    Parameters
    ----------
    gamma : float > 0
        Weight of the reconstruction.
    lam : float >= 0
        Weight of a test image, where a training image has 1.
    max_iter : int >= 1
        Rounds of labels and W at most.

    Attributes
    ----------
    XX_ : (p, p)
    XZ_ : (p, q)
    ZZ_ : (q, q)
        Products of features X and attributes Z of the training images.

    Examples
    --------
    >>> import numpy as np
    >>> X, y, Z = np.eye(2), np.array([0, 1]), np.array([[1.0, -1.0], [-1.0, 1.0]])
    >>> DIPL().fit(X, y, Z, Z_unseen=-Z).predict(X)
    array([1, 0])
    """

    gamma: Positive = 1.0
    lam: NonNegative = 1.0
    max_iter: Count = 50

    XX_: Array = field(init=False, repr=False)
    XZ_: Array = field(init=False, repr=False)
    ZZ_: Array = field(init=False, repr=False)

    def _fit(self, X: Array, y: Array, Z: Array, shared: GridCache) -> None:
        self.XX_, self.ZZ_ = shared("X'X", lambda: gram(X)), shared("Z'Z", lambda: gram(Z))
        self.XZ_ = shared("X'Z", lambda: cross(X, y, Z))

    def costs(self, T: Array, S: Array, W: Array) -> Array:
        """The term (L, C) of each class with attributes S (C, q) for each image T (L, p)."""
        return squared_distances(T @ W, S) + self.gamma * squared_distances(T, S @ W.T)

    def alternate(self, T: Array, S: Array) -> Alternation:
        """Labels of the test images T (L, p) among classes with attributes S (C, q), and W, in turn."""
        start = self._solution(scipy.linalg.eigh(self.XX_), self.XZ_, self.ZZ_)
        W, labels = start, self.costs(T, S, start).argmin(axis=1)
        objective: list[float] = []
        if self.lam == 0:
            return Alternation(W, labels, objective)
        total = scipy.linalg.eigh(self.XX_ + self.lam * (T.T @ T))
        for _ in range(self.max_iter):
            raise_if_interrupted()
            sizes = np.bincount(labels, minlength=len(S))
            XZ = self.XZ_ + self.lam * (class_sums(T, labels, len(S)).T @ S)
            ZZ = self.ZZ_ + self.lam * (S.T * sizes) @ S
            W = self._solution(total, XZ, ZZ)
            costs = self.costs(T, S, W)
            objective.append(self._of_seen(W) + self.lam * float(costs[np.arange(len(T)), labels].sum()))
            last, labels = labels, costs.argmin(axis=1)
            if (labels == last).all():
                break
        return Alternation(W, labels, objective)

    def _solution(self, of_X: tuple[Array, Array], XZ: Array, ZZ: Array) -> Array:
        """W of least norm with ``X'X W + gamma W Z'Z = (1 + gamma) X'Z``."""
        (a, U), (b, V) = of_X, scipy.linalg.eigh(ZZ)
        divisor = np.maximum(a, 0)[:, None] + self.gamma * np.maximum(b, 0)
        least = max(divisor.shape) * np.finfo(np.float64).eps * divisor.max()
        # A direction that neither features nor attributes have stays out.
        inverse = np.where(divisor > least, 1 / np.maximum(divisor, max(least, np.finfo(np.float64).tiny)), 0)
        return U @ ((1 + self.gamma) * (U.T @ XZ @ V) * inverse) @ V.T

    def _of_seen(self, W: Array) -> float:
        """The part of the objective of the training images."""
        both = (1 + self.gamma) * float((W * self.XZ_).sum())
        squares = float((W * (self.XX_ @ W)).sum()) + self.gamma * float((W * (W @ self.ZZ_)).sum())
        return squares - 2 * both + float(np.trace(self.ZZ_)) + self.gamma * float(np.trace(self.XX_))

    def _scores(self, X: Array, S: Array) -> Array:
        T, A = X.astype(np.float64), S.astype(np.float64)
        return -self.costs(T, A, self.alternate(T, A).W).astype(X.dtype)
