"""Visual structure constraints: predicted class centres agree with the clusters of the test images (transductive)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.special import log_softmax, xlogy

from zsl.checks import Array, Count, NonNegative, Positive, Seed
from zsl.errors import raise_if_interrupted
from zsl.linalg import class_means, ridge, sinkhorn, squared_distances, unit_rows
from zsl.models.base import GridCache
from zsl.models.kernel_ridge import decompose, kernel
from zsl.models.network import Adam, Linear, Network, Rectifier, UnitRows, uniform
from zsl.models.transductive import EQUAL_SIZES, EVERY_CLASS, TransductiveModel

_RATE, _DECAY = 1e-4, 5e-4


class Alternation(NamedTuple):
    """Predicted centres of the ridge form, and the objective after each half of a round; it never rises."""

    F: Array  # (M, p)
    objective: list[float]


@dataclass(eq=False, repr=False)
class VisualStructure(TransductiveModel):
    r"""Base of the methods of Wan et al., "Transductive ZSL with visual structure constraint" (NeurIPS 2019).

    A map f from attributes to features is fitted to the C seen classes and to the clusters of the test images,

    .. math:: \min_f \tfrac{1}{2C} \sum_c \|f(s_c) - b_c\|^2 + \lambda \sum_{u,k} P_{uk} \|f(a_u) - c_k\|^2

    b_c are the mean features of the seen classes and c_k the centres of k-means with as many clusters as there are
    classes to choose from, all scaled to unit length. The weights P (M, K) of classes and clusters depend on f; each of
    the three methods defines its own. Lambda = 0 is the method VCL of the paper, which does not look at the test
    images. The score is the product of the image with f(a_u), scaled to unit length, which ranks classes as their
    distance does.

    With ``form="network"``, f is the authors' perceptron: two hidden layers with leaky ReLU (0.2), outputs scaled to
    unit length, Xavier's uniform start, Adam at 1e-4 with a weight decay of 5e-4 and ``n_steps`` steps on all classes
    at once, the last third of them at a tenth of the rate. It takes minutes. The authors take features as they are and
    attributes without negative values (``feature.centre=false feature.l2=false dataset.semantics.centre=false``); they
    run k-means 50 times.

    With ``form="ridge"``, which is ours, f is kernel ridge regression with the kernel ``(1 + a.b)^2`` without the
    scaling to unit length, and P and f are improved in turn until P stays. Accuracies vary with the seed of k-means, as
    the authors say.

    If there are fewer test images than classes, each image is a cluster.

    Parameters
    ----------
    form : "ridge" or "network"
    lam : float >= 0, optional
        ``None``: 0.001 for the network, the authors' value for WDVSc; for the ridge form the value that gives an unseen
        class the weight of a seen one (for CDVSc, whose P sums to 2 M, twice that on the mean).
    gamma : float >= 0
        Penalty of the ridge form.
    max_iter : int >= 1
        Rounds of the ridge form at most.
    hidden, n_steps : int >= 1
        Units of each hidden layer and steps of the network.
    n_init : int >= 1
        Runs of k-means, the best of which counts.
    seed : int >= 0
        Of k-means and of the network's start.

    Attributes
    ----------
    S_ : (C, q)
    b_ : (C, p)
    """

    assumes: ClassVar[tuple[str, ...]] = (EVERY_CLASS,)
    total: ClassVar[Literal["one", "classes"]] = "classes"
    """Whether the entries of P sum to 1 or to the number of classes (at least)"""

    form: Literal["ridge", "network"] = "ridge"
    lam: NonNegative | None = None
    gamma: NonNegative = 1.0
    max_iter: Count = 50
    hidden: Count = 2048
    n_steps: Count = 6000
    n_init: Count = 10
    seed: Seed = 0

    S_: Array = field(init=False, repr=False)
    b_: Array = field(init=False, repr=False)

    def matching(self, D: Array) -> Array:
        """Weights P (M, K) of classes and clusters at squared distances D (M, K)."""
        raise NotImplementedError

    def _fit(self, X: Array, y: Array, Z: Array, shared: GridCache) -> None:
        self.S_, self.b_ = class_means(Z, y), unit_rows(class_means(X, y))

    def _scores(self, X: Array, S: Array) -> Array:
        S, centres = S.astype(np.float64), self.centres(X, len(S))
        F = self.network(S, centres) if self.form == "network" else self.alternate(S, centres).F
        return X @ unit_rows(F).astype(X.dtype).T

    def centres(self, X: Array, n: int) -> Array:
        """Centres (K, p) of n clusters of the images X (L, p), scaled to unit length."""
        from sklearn.cluster import KMeans
        from sklearn.exceptions import ConvergenceWarning

        X = X.astype(np.float64)
        # k-means++ draws images, so their order would matter.
        X = X[np.argsort(X @ np.random.default_rng(0).standard_normal(X.shape[1]), kind="stable")]
        with warnings.catch_warnings():
            # Where fewer images than clusters are distinct, centres coincide.
            warnings.simplefilter("ignore", ConvergenceWarning)
            found = KMeans(min(n, len(X)), n_init=self.n_init, random_state=self.seed).fit(X)
        return unit_rows(found.cluster_centers_)

    def weight(self, n_classes: int) -> float:
        """Lambda for this number of classes to choose from."""
        if self.lam is not None:
            return self.lam
        if self.form == "network":
            return 1e-3
        return (n_classes if self.total == "one" else 1) / (2 * len(self.S_))

    def entropy(self, P: Array) -> float:
        """What a subclass that regularises P adds to the objective, in units of lambda."""
        return 0.0

    def alternate(self, S: Array, centres: Array) -> Alternation:
        """The ridge form for classes with attributes S (M, q): P for fixed f, then f for fixed P."""
        seen, lam = len(self.S_), self.weight(len(S))
        A = np.vstack([self.S_, S])
        K = kernel(A, A, "polynomial")
        F = K[seen:, :seen] @ ridge(decompose(K[:seen, :seen]), self.b_, self.gamma)
        targets, weights = np.vstack([self.b_, np.zeros_like(F)]), np.ones(len(A))
        P: Array | None = None
        objective, rest = [], np.inf
        for _ in range(self.max_iter):
            raise_if_interrupted()
            D = squared_distances(F, centres)
            last, P = P, self.matching(D)
            objective.append(rest + lam * (float((P * D).sum()) + self.entropy(P)))
            if last is not None and np.allclose(P, last, rtol=0, atol=1e-9):
                break
            mass = P.sum(axis=1)
            weights[seen:] = 2 * seen * lam * mass
            targets[seen:] = P @ centres / np.where(mass > 0, mass, 1)[:, None]
            root = np.sqrt(weights)[:, None]
            alpha = root * ridge(decompose(root * K * root.T), root * targets, self.gamma)
            G = K @ alpha
            F = G[seen:]
            # Half a seen class's error for each class, and the norm of f.
            rest = (float(((G[:seen] - self.b_) ** 2).sum()) + self.gamma * float((alpha * G).sum())) / (2 * seen)
            D = squared_distances(F, centres)
            objective.append(rest + lam * (float((P * D).sum()) + self.entropy(P)))
        return Alternation(F, objective[1:])

    def loss(self, F: Array, centres: Array, lam: float) -> tuple[float, Array]:
        """The objective at the outputs F (C + M, p) for all classes, at its best P, and its derivative by F."""
        seen = len(self.S_)
        error, F = F[:seen] - self.b_, F[seen:]
        D = squared_distances(F, centres)
        # P is the minimiser, so its change counts for nothing in the derivative.
        P = self.matching(D)
        slope = 2 * lam * (P.sum(axis=1, keepdims=True) * F - P @ centres)
        value = float((error**2).sum()) / (2 * seen) + lam * (float((P * D).sum()) + self.entropy(P))
        return value, np.vstack([error / seen, slope])

    def network(self, S: Array, centres: Array) -> Array:
        """The network form for classes with attributes S (M, q): predicted centres (M, p)."""
        seen, lam = len(self.S_), self.weight(len(S))
        A = unit_rows(np.vstack([self.S_, S])).astype(np.float32)
        network = perceptron(A.shape[1], self.hidden, centres.shape[1], np.random.default_rng(self.seed))
        adam = Adam(network.parameters, _DECAY)
        for step in range(self.n_steps):
            raise_if_interrupted()
            slope = self.loss(network.forward(A, training=True), centres, lam)[1].astype(np.float32)
            adam.step(network.backward(slope), _RATE if 3 * step < 2 * self.n_steps else _RATE / 10)
        return network.forward(A)[seen:].astype(np.float64)


def perceptron(q: int, hidden: int, p: int, rng: np.random.Generator) -> Network:
    """The authors' map: two hidden layers with leaky ReLU, outputs of unit length, Xavier's uniform start."""
    sizes = [q, hidden, hidden, p]
    linear = [Linear(uniform(rng, m, n, np.sqrt(6 / (m + n))), np.zeros(n, np.float32)) for m, n in pairwise(sizes)]
    return Network([linear[0], Rectifier(0.2), linear[1], Rectifier(0.2), linear[2], UnitRows()])


@dataclass(eq=False, repr=False)
class CDVSc(VisualStructure):
    r"""Visual structure by the Chamfer distance (Wan et al., NeurIPS 2019); see :class:`VisualStructure`.

    Each class is drawn to its nearest cluster, and each cluster draws its nearest class:

    .. math:: \sum_{u,k} P_{uk} d_{uk} = \sum_u \min_k d_{uk} + \sum_k \min_u d_{uk}

    Several classes may share a cluster. The authors leave lambda to cross-validation; a comment in
    their code has 0.0003.

    Examples
    --------
    >>> import numpy as np
    >>> X, y, Z = np.eye(2), np.array([0, 1]), np.array([[1.0, -1.0], [-1.0, 1.0]])
    >>> CDVSc().fit(X, y, Z, Z_unseen=-Z).predict(X)
    array([1, 0])
    """

    def matching(self, D: Array) -> Array:
        P, (M, K) = np.zeros(D.shape), D.shape
        P[np.arange(M), D.argmin(axis=1)] += 1
        P[D.argmin(axis=0), np.arange(K)] += 1
        return P


@dataclass(eq=False, repr=False)
class BMVSc(VisualStructure):
    r"""Visual structure by a one-to-one matching (Wan et al., NeurIPS 2019); see :class:`VisualStructure`.

    P is the assignment of classes to clusters with the least sum of squared distances (the Hungarian algorithm).

    Examples
    --------
    >>> import numpy as np
    >>> X, y, Z = np.eye(2), np.array([0, 1]), np.array([[1.0, -1.0], [-1.0, 1.0]])
    >>> BMVSc().fit(X, y, Z, Z_unseen=-Z).predict(X)
    array([1, 0])
    """

    def matching(self, D: Array) -> Array:
        P = np.zeros(D.shape)
        P[linear_sum_assignment(D)] = 1
        return P


@dataclass(eq=False, repr=False)
class WDVSc(VisualStructure):
    r"""Visual structure by the Wasserstein distance (Wan et al., NeurIPS 2019); see :class:`VisualStructure`.

    P is the plan of entropic optimal transport between classes and clusters, all of which weigh the same,

    .. math:: P = \arg\min_P \langle P, D \rangle + \epsilon \sum_{u,k} P_{uk} \log P_{uk}, \qquad
        P 1 = 1/M, \quad P^\top 1 = 1/K

    Two things differ from the authors' network: they stop the iteration for P early, once a potential changes by less
    than 0.1 in sum, and they differentiate through it. Here it goes on until P has converged, for 1000 rounds at most,
    and P counts as constant. A small eps may need more rounds; classes then weigh the same, clusters only nearly.

    Parameters
    ----------
    eps : float > 0
        Weight of the entropy; the published value is 0.01.

    Examples
    --------
    >>> import numpy as np
    >>> X, y, Z = np.eye(2), np.array([0, 1]), np.array([[1.0, -1.0], [-1.0, 1.0]])
    >>> WDVSc().fit(X, y, Z, Z_unseen=-Z).predict(X)
    array([1, 0])
    """

    assumes = (EVERY_CLASS, EQUAL_SIZES)
    total = "one"

    eps: Positive = 0.01

    def matching(self, D: Array) -> Array:
        logits = -D.astype(np.float64) / self.eps
        if not np.isfinite(logits).all():
            raise FloatingPointError
        return np.exp(log_softmax(logits + sinkhorn(logits), axis=1)) / len(D)

    def entropy(self, P: Array) -> float:
        return self.eps * float(xlogy(P, P).sum())
