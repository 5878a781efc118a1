"""GMMNStyle: a generator of features from attributes, trained by the maximum mean discrepancy."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from zsl.checks import Array, Count, Fraction, Positive, Seed
from zsl.linalg import class_means, squared_distances
from zsl.models.base import GridCache, InductiveModel
from zsl.models.generated import generator, inputs, whitening
from zsl.models.network import Adam

# The bandwidths of the kernels as multiples of a typical distance.
_WIDTHS = np.array([0.25, 0.5, 1.0, 2.0, 4.0])


@dataclass(eq=False, repr=False)
class GMMNStyle(InductiveModel):
    r"""Generative moment matching network, in the style of Bucher, Herbin and Jurie (ICCV workshops 2017).

    .. math:: \min_g \sum_c \Bigl[ \tfrac1{N^2} \sum_{ij} k(x_i, x_j) + \tfrac1{G^2} \sum_{ij} k(g_i, g_j)
        - \tfrac2{N G} \sum_{ij} k(x_i, g_j) \Bigr], \qquad g_j = g(s_c, e_j), \qquad
        k(x, y) = \sum_w \exp \frac{-\|x - y\|^2}{2 w^2}

    In the brackets is the squared maximum mean discrepancy between N images x_i of seen class c and G generated ones.
    The generator g has one hidden layer of leaky rectifiers; its input are the attributes s_c (q,) and standard normal
    noise e (d,). Adam takes one step for each class in turn, on at most ``batch_size`` images of it and ``batch_size``
    generated ones. The bandwidths w are 1/4, 1/2, 1, 2 and 4 times the root mean square distance of training images.

    Parameters
    ----------
    n_hidden : int >= 1
        Hidden units.
    n_noise : int >= 1
        d.
    n_generated : int >= 1
        Generated images per class from which scores are made.
    n_epochs : int >= 1
        Rounds over the seen classes.
    batch_size : int >= 1
    learning_rate : float > 0
        Of Adam.
    shrinkage : float, 0 < shrinkage <= 1
        Of the covariance of generated images towards a multiple of the identity.
    seed : int >= 0
        Seed of weights, batches and noise.

    Attributes
    ----------
    weights_ : list of arrays
        (q + d, h), (h,), (h, p), (p,)
    discrepancy_ : list of float
        The mean of the brackets over the classes, as met in every epoch.

    Notes
    -----
    The loss is the standard one. What differs from the published method, or is unknown:

    * sizes of the network, bandwidths and training; of the reference's four generators only this one is here;
    * features are centred and of unit length, where the reference scales them to 0..1;
    * the classifier: the reference trains a softmax on generated images of all classes at once, so that a score depends
      on the other classes. Here the score is the log-density of a Gaussian with the mean of the class's generated
      images, up to a constant for each image. All classes have the same covariance, that of the generated images of
      the seen classes about their means, and the same noise.

    The paper's tables quote 55.3 for this method on AwA, which is most likely its number on aPY; another paper quotes
    77.1 for AwA1.

    Examples
    --------
    >>> X, y, Z = np.eye(2), np.array([0, 1]), np.array([[1.0, -1.0], [-1.0, 1.0]])
    >>> GMMNStyle().fit(X, y, Z, Z_unseen=-Z).predict(X)
    array([1, 0])
    """

    n_hidden: Count = 256
    n_noise: Count = 50
    n_generated: Count = 200
    n_epochs: Count = 50
    batch_size: Count = 64
    learning_rate: Positive = 1e-3
    shrinkage: Fraction = 0.5
    seed: Seed = 0

    weights_: list[Array] = field(init=False, repr=False)

    def _fit(self, X: Array, y: Array, Z: Array, shared: GridCache) -> None:
        S = shared("S", lambda: class_means(Z, y))
        self.dtype_ = X.dtype
        X = X.astype(np.float64, copy=False)
        # Twice the trace of the covariance is the mean square of all distances.
        typical = np.sqrt(2 * float(X.var(axis=0).sum())) or 1.0
        rng = np.random.default_rng(self.seed)
        (q, p), h, d = (S.shape[1], X.shape[1]), self.n_hidden, self.n_noise
        scale = 1 / np.sqrt(np.mean(np.einsum("ij,ij->i", S, S)) + d)
        self.weights_ = [scale * rng.standard_normal((q + d, h)), np.zeros(h),
                         typical / np.sqrt(2 * h * p) * rng.standard_normal((h, p)), X.mean(axis=0)]  # fmt: skip
        # Classes take turns in the order of their attributes, so that their numbers do not matter.
        classes = [(S[c], np.flatnonzero(y == c)) for c in np.lexsort(S.T)]
        adam, self.discrepancy_ = Adam(self.weights_, decay=0.0), []
        for _ in range(self.n_epochs):
            values = []
            for k in rng.permutation(len(classes)):
                s, rows = classes[k]
                batch = X[rng.choice(rows, min(self.batch_size, len(rows)), replace=False)]
                value, gradient = self.loss(self.weights_, s, rng.standard_normal((self.batch_size, d)), batch, typical)
                adam.step(gradient, self.learning_rate)
                values.append(value)
            self.discrepancy_.append(float(np.mean(values)))
        self.noise_ = rng.standard_normal((self.n_generated, d))
        self.whiten_ = whitening((self.generate(s) for s in S), self.shrinkage, 1e-12 * typical**2 / p)

    def loss(self, weights: list[Array], s: Array, noise: Array, X: Array, typical: float) -> tuple[float, list[Array]]:
        """The squared discrepancy between X (N, p) and images of the class s (q,), and its gradient in the weights."""
        network = generator(weights)
        value, slope = mmd2(X, network.forward(inputs(s, noise)), typical * _WIDTHS)
        return value, network.backward(slope)

    def generate(self, s: Array) -> Array:
        """Images (n_generated, p) of a class with attributes s (q,), from the same noise for every class."""
        return generator(self.weights_).forward(inputs(s.astype(np.float64), self.noise_))

    def _scores(self, X: Array, S: Array) -> Array:
        M = np.array([self.generate(s).mean(axis=0) for s in S])
        return (-0.5 * squared_distances(X @ self.whiten_, M @ self.whiten_)).astype(self.dtype_)


def mmd2(X: Array, G: Array, widths: Array) -> tuple[float, Array]:
    """The squared maximum mean discrepancy of X (N, p) and G (S, p) for Gaussian kernels, and its gradient in G.

    Examples
    --------
    >>> mmd2(np.ones((2, 3)), np.ones((4, 3)), np.array([1.0]))[0]
    0.0
    """
    n, m = len(X), len(G)
    of_X, of_G, between = squared_distances(X, X), squared_distances(G, G), squared_distances(G, X)
    value, own, other = 0.0, np.zeros((m, m)), np.zeros((m, n))
    for w in widths:
        K, L = np.exp(of_G / (-2 * w * w)), np.exp(between / (-2 * w * w))
        value += float(np.exp(of_X / (-2 * w * w)).mean() + K.mean() - 2 * L.mean())
        own += K * (-2 / (m * m * w * w))
        other += L * (2 / (n * m * w * w))
    # sum_j k(g_i, y_j) (g_i - y_j), over the generated and the real images
    slope = (own.sum(axis=1) + other.sum(axis=1))[:, None] * G - own @ G - other @ X
    return value, slope
