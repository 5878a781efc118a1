"""Class normalisation: a network from attributes to prototypes whose hidden units are standardised over classes."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.special import log_softmax

from zsl.checks import Array, Count, NonNegative, Positive, Seed
from zsl.errors import raise_if_interrupted
from zsl.linalg import class_means, unit_rows
from zsl.models.base import GridCache, InductiveModel
from zsl.models.network import Adam, ClassStandardisation, Layer, Linear, Network, Rectifier, uniform


@dataclass(eq=False, repr=False)
class ClassNorm(InductiveModel):
    r"""Class normalisation for zero-shot learning (Skorokhodov and Elhoseiny, ICLR 2021), the method CN-ZSL.

    A network g gives a prototype for the attributes of a class; scores are the products of image and prototype, both
    of length 5, so they are 25 times the cosine:

    .. math:: \min_g \tfrac1n \sum_i -\log
        \frac{\exp(25 \cos(x_i, g(s_{y_i})))}{\sum_c \exp(25 \cos(x_i, g(s_c)))}

    Attributes are scaled to the length sqrt(q). The layers of g are linear, ReLU, linear, class standardisation, ReLU,
    class standardisation, linear, and ReLU if ``rectify``. Class standardisation subtracts the mean over the classes of
    the batch, which are all seen classes, and divides by their variance, as the authors' code does, and not by its
    root; scores use running averages of both, so those of a class do not depend on the others. The last layer starts
    uniform with the variance 1 / (hidden p), the others and all b uniform up to 1 / sqrt(inputs). Adam minimises the
    loss; the rate falls to a tenth after half of the epochs.

    The authors take features as they are, which have no negative values, a final ReLU and 1024 units
    (``model.rectify=true model.hidden=1024 feature.centre=false feature.l2=false dataset.semantics.centre=false``). In
    the generalised setting they multiply the scores of seen classes by 0.95, chosen by hand. Here
    ``evaluation.calibrate=true`` chooses an offset on validation classes instead, which makes results transductive; by
    default there is none.

    Parameters
    ----------
    hidden : int >= 1
        Units of each hidden layer.
    rectify : bool
        Whether prototypes have no negative values, for features that have none.
    learning_rate : float > 0
        The default is the authors' value. Data sets with few images have few steps in an epoch and may need a larger
        one.
    decay : float >= 0
        Weight decay, added to derivatives as a penalty.
    n_epochs : int >= 1
    batch_size : int >= 1
    seed : int >= 0
        Of the start and of the order of images.

    Attributes
    ----------
    parameters_ : list of arrays
        W and b of the three linear layers.
    statistics_ : list of arrays
        Running mean and variance of the two standardisations.
    objective_ : list of float
        Mean loss of each epoch.

    Examples
    --------
    >>> import numpy as np
    >>> X, y, Z = np.eye(2), np.array([0, 1]), np.array([[1.0, -1.0], [-1.0, 1.0]])
    >>> ClassNorm(hidden=32, n_epochs=200).fit(X, y, Z, Z_unseen=-Z).predict(X)
    array([1, 0])
    """

    hidden: Count = 256
    rectify: bool = False
    learning_rate: Positive = 5e-4
    decay: NonNegative = 1e-4
    n_epochs: Count = 50
    batch_size: Count = 256
    seed: Seed = 0

    parameters_: list[Array] = field(init=False, repr=False)
    statistics_: list[Array] = field(init=False, repr=False)
    objective_: list[float] = field(init=False, repr=False)

    def _fit(self, X: Array, y: Array, Z: Array, shared: GridCache) -> None:
        S, rng = _scaled(class_means(Z, y)).astype(np.float32), np.random.default_rng(self.seed)
        U = 5 * unit_rows(X).astype(np.float32)
        network = build(S.shape[1], self.hidden, X.shape[1], rng, self.rectify)
        adam = Adam(network.parameters, self.decay)
        self.objective_ = []
        for epoch in range(self.n_epochs):
            raise_if_interrupted()
            rate = self.learning_rate * (1 if 2 * epoch < self.n_epochs else 0.1)
            order, total = rng.permutation(len(U)), 0.0
            for first in range(0, len(U), self.batch_size):
                rows = order[first : first + self.batch_size]
                value, slope = loss(network.forward(S, training=True), U[rows], y[rows])
                adam.step(network.backward(slope), rate)
                total += value * len(rows)
            if not np.isfinite(total):
                raise FloatingPointError
            self.objective_.append(total / len(U))
        self.parameters_ = [w.astype(np.float64) for w in network.parameters]
        layers = [layer for layer in network.layers if isinstance(layer, ClassStandardisation)]
        self.statistics_ = [a.astype(np.float64) for layer in layers for a in (layer.mean, layer.variance)]

    def prototypes(self, S: Array) -> Array:
        """Prototypes (C, p) of classes with attributes S (C, q)."""
        network = assemble(self.parameters_, self.statistics_, self.rectify)
        return network.forward(_scaled(S))

    def _scores(self, X: Array, S: Array) -> Array:
        return (25 * unit_rows(X) @ unit_rows(self.prototypes(S)).T).astype(X.dtype)


def _scaled(S: Array) -> Array:
    """Rows of length sqrt(q)."""
    return unit_rows(S.astype(np.float64)) * np.sqrt(S.shape[1])


def assemble(parameters: list[Array], statistics: list[Array], rectify: bool) -> Network:
    """The network with these W and b of its three linear layers, and these means and variances."""
    linear = [Linear(W, b) for W, b in zip(parameters[::2], parameters[1::2])]
    standard = [ClassStandardisation(mean, variance) for mean, variance in zip(statistics[::2], statistics[1::2])]
    layers: list[Layer] = [linear[0], Rectifier(), linear[1], standard[0], Rectifier(), standard[1], linear[2]]
    return Network([*layers, Rectifier()] if rectify else layers)


def build(q: int, hidden: int, p: int, rng: np.random.Generator, rectify: bool) -> Network:
    """The network before training: q attributes, p features."""
    parameters = []
    for n_in, n_out in ((q, hidden), (hidden, hidden), (hidden, p)):
        bound = 1 / np.sqrt(n_in)
        parameters += [uniform(rng, n_in, n_out, bound), uniform(rng, 1, n_out, bound)[0]]
    parameters[4] *= np.float32(np.sqrt(3 / p))
    mean, variance = np.zeros(hidden, np.float32), np.ones(hidden, np.float32)
    return assemble(parameters, [mean, variance, mean, variance], rectify)


def loss(G: Array, U: Array, y: Array) -> tuple[float, Array]:
    """Mean cross-entropy of images U (b, p) of length 5, labels y (b,), and its derivative by prototypes G (C, p)."""
    lengths = np.linalg.norm(G, axis=1, keepdims=True)
    # A prototype of zeros, as a final ReLU may give, has cosine 0.
    lengths = np.where(lengths > 0, lengths, 1)
    V = G / lengths
    logarithms = log_softmax(5 * U @ V.T, axis=1)
    error = np.exp(logarithms)
    error[np.arange(len(y)), y] -= 1
    by_V = 5 / len(y) * error.T @ U
    by_G = (by_V - V * (V * by_V).sum(axis=1, keepdims=True)) / lengths
    return float(-logarithms[np.arange(len(y)), y].mean()), by_G
