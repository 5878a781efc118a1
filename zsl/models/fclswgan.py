"""FCLSWGAN: a generator of features from attributes, trained against a critic and a classifier of the seen classes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from zsl.checks import Array, Count, Fraction, NonNegative, Positive, Seed
from zsl.errors import UserError, raise_if_interrupted
from zsl.linalg import class_means, principal_directions, spectrum, squared_distances
from zsl.models.base import GridCache, InductiveModel
from zsl.models.generated import LEAK, generator, inputs, whitening
from zsl.models.one_vs_rest import fit_linear, multinomial

# Weight of the gradient penalty, deviation of the initial weights, and Adam's decay rates, all as published.
PENALTY = 10.0
DEVIATION = 0.02
BETAS = (0.5, 0.999)


@dataclass(eq=False, repr=False)
class FCLSWGAN(InductiveModel):
    r"""Feature generating network f-CLSWGAN (Xian, Lorenz, Schiele and Akata, CVPR 2018).

    .. math:: \min_G \max_D \; \mathbb E\, D(x, s) - \mathbb E\, D(\tilde x, s)
        - 10\, \mathbb E \bigl( \|\nabla_{\hat x} D(\hat x, s)\| - 1 \bigr)^2
        - \beta\, \mathbb E \log p(y | \tilde x), \qquad \tilde x = G(s, e), \qquad
        \hat x = u x + (1 - u) \tilde x

    x (d,) is a seen image of class y with attributes s (q,), e is standard normal noise (q,), and u is uniform on [0,
    1]. The first two terms estimate the Wasserstein distance of real and generated images of the same attributes; p is
    a softmax classifier of the seen classes, fitted to real images beforehand and frozen. Generator G and critic D have
    one hidden layer of leaky rectifiers (slope 0.2), and the output of G is rectified. Weights start normal with the
    deviation 0.02. Adam with the decay rates 0.5 and 0.999 takes ``n_critic`` steps for D, then one for G. An epoch has
    as many steps of G as there are batches of training images.

    Images are first reduced to ``n_components`` principal components; the reference takes all 2048 features. Each
    component is then scaled to 0..1. Both are fitted to the training images.

    Training needs torch, an extra: install its build for the CPU first, as for images of your own
    (docs/own-images.md), then ``pip install -e '.[torch]'``. Scores are computed without it.

    Parameters
    ----------
    hidden : int >= 1
        Hidden units of G and of D. The reference has 4096 (``model.hidden=4096 model.n_components=null``), which takes
        hours on a CPU.
    n_components : int >= 1, optional
        Principal components to keep; ``None`` takes the features as they are.
    n_epochs : int >= 1
        Passes over the training images, to be chosen on validation classes. The reference has 30 for AWA, 70 for CUB
        and 54 for SUN.
    learning_rate : float > 0
        Of Adam; the reference has 1e-5 for AWA, 1e-4 for CUB and 2e-4 for SUN. Fewer hidden units, and fewer images,
        which make fewer steps in an epoch, need a larger one.
    batch_size : int >= 1
    n_critic : int >= 1
        Steps of the critic for one step of the generator.
    n_generated : int >= 1
        Generated images per class from which scores are made.
    classification_weight : float >= 0
        The factor :math:`\beta`.
    shrinkage : float, 0 < shrinkage <= 1
        Of the covariance of generated images towards a multiple of the identity.
    seed : int >= 0
        Seed of weights, batches and noise.

    Attributes
    ----------
    weights_ : list of arrays
        W and b of the generator: (2 q, hidden), (hidden,), (hidden, d), (d,).
    distance_ : list of float
        The critic's estimate of the Wasserstein distance, the mean over the steps of every epoch.

    Notes
    -----
    Losses, networks and the order of the steps are those of public implementations. What differs:

    * The number of epochs. Those implementations report the best epoch on the *test* classes, for the GAN and for the
      last classifier. Here it is a setting, and ``tune=class_cv`` chooses it on validation classes.
    * The last classifier. The reference trains a linear softmax on generated images of all classes at once, so that a
      score depends on the other classes. Here it is the log-density of a Gaussian with the mean of the class's
      generated images, up to a constant for each image. All classes have one covariance, that of the generated images
      of the seen classes about their means. But for that constant such scores are linear in the image, as those of
      the softmax are.
    * The frozen classifier has a ridge penalty ``|W|^2 / 2`` beside the sum of its losses and is fitted to the end.
    * The output of the generator starts at the mean image and not at 0. The published features are 0 for most images;
      principal components never are, and with the published start many outputs stay 0, where the rectifier is flat.
    * Sizes, see ``hidden`` and ``n_components``.

    The published features are not centred (``feature.centre=false feature.l2=false dataset.semantics.centre=false``).
    Scores are the same for a seed, on one machine with one number of threads; others round differently.

    Examples
    --------
    >>> FCLSWGAN(hidden=0)
    Traceback (most recent call last):
    zsl.errors.UserError: FCLSWGAN: hidden=0 is not accepted: it should be greater than or equal to 1.
    """

    hidden: Count = 512
    n_components: Count | None = 256
    n_epochs: Count = 100
    learning_rate: Positive = 5e-4
    batch_size: Count = 64
    n_critic: Count = 5
    n_generated: Count = 300
    classification_weight: NonNegative = 0.01
    shrinkage: Fraction = 0.5
    seed: Seed = 0

    weights_: list[Array] = field(init=False, repr=False)
    distance_: list[float] = field(init=False, repr=False)

    def _fit(self, X: Array, y: Array, Z: Array, shared: GridCache) -> None:
        torch = _torch()
        S = shared("S", lambda: class_means(Z, y))
        self.dtype_ = X.dtype
        scaling, U = shared(("scaling", self.n_components), lambda: scale(X, self.n_components))
        self.mean_, self.components_, self.low_, self.width_ = scaling
        classifier = shared(("classifier", self.n_components), lambda: seen_classifier(U, y, len(S)))
        rng = np.random.default_rng(self.seed)
        # A generator of its own: torch's global one, as the number of its threads, belongs to the caller.
        draw = torch.Generator().manual_seed(int(rng.integers(2**63)))
        try:
            weights = self._train(U, y, S, classifier, draw)
        except RuntimeError as error:
            # torch refuses a step that no number in single precision can express.
            if "overflow" not in str(error):
                raise
            raise FloatingPointError from error
        self.weights_ = [w.detach().numpy().astype(np.float64) for w in weights]
        self.noise_ = rng.standard_normal((self.n_generated, S.shape[1]))
        self.whiten_ = whitening((self.generate(s) for s in S), self.shrinkage, 1e-12)

    def _train(self, U: Array, y: Array, S: Array, classifier: list[Array], draw: Any) -> list[Any]:
        torch = _torch()
        X, T, W, b = (torch.tensor(a, dtype=torch.float32) for a in (U, S, *classifier))
        labels, (n, d), q = torch.tensor(y, dtype=torch.int64), U.shape, S.shape[1]

        def noise(k: int) -> Any:
            return torch.randn(k, q, generator=draw, dtype=torch.float32)

        G = start(2 * q, self.hidden, X.mean(dim=0), draw)
        D = start(d + q, self.hidden, torch.zeros(1, dtype=torch.float32), draw)
        of_G, of_D = (torch.optim.Adam(w, lr=self.learning_rate, betas=BETAS) for w in (G, D))
        self.distance_ = []
        for _ in range(self.n_epochs):
            raise_if_interrupted()
            total, n_steps = torch.zeros(()), -(-n // self.batch_size)
            for _ in range(n_steps):
                for _ in range(self.n_critic):
                    rows = torch.randperm(n, generator=draw)[: self.batch_size]
                    x, c = X[rows], labels[rows]
                    with torch.no_grad():
                        made = generate(G, T[c], noise(len(c)))
                    share = torch.rand(len(c), 1, generator=draw, dtype=torch.float32)
                    distance, penalty = critic_terms(D, x, made, T[c], share)
                    _step(of_D, PENALTY * penalty - distance)
                    total += distance.detach()
                made = generate(G, T[c], noise(len(c)))
                _step(of_G, generator_loss(D, made, T[c], c, W, b, self.classification_weight))
            if not torch.stack([total, *(w.detach().sum() for w in G)]).isfinite().all():
                raise FloatingPointError
            self.distance_.append(float(total) / (n_steps * self.n_critic))
        return G

    def generate(self, s: Array) -> Array:
        """Scaled images (n_generated, d) of a class with attributes s (q,), from the same noise for every class."""
        network = generator(self.weights_, rectify=True)
        return network.forward(inputs(s.astype(np.float64), self.noise_))

    def _scores(self, X: Array, S: Array) -> Array:
        U = Scaling(self.mean_, self.components_, self.low_, self.width_)(X)
        M = np.array([self.generate(s).mean(axis=0) for s in S])
        return (-0.5 * squared_distances(U @ self.whiten_, M @ self.whiten_)).astype(self.dtype_)


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise UserError(
            "model=fclswgan is trained by torch, which is not installed; install its build for the CPU first "
            "(see docs/own-images.md), then: pip install -e '.[torch]'."
        ) from None
    return torch


# --- before training ------------------------------------------------------------------------------------------


class Scaling(NamedTuple):
    """Principal components, each scaled so that the training images fill 0..1."""

    mean: Array  # (p,)
    components: Array | None  # (p, d), or None: the features themselves
    low: Array  # (d,)
    width: Array  # (d,)

    def __call__(self, X: Array) -> Array:
        """Scaled images (L, d) in double precision for X (L, p)."""
        P = X - self.mean
        return ((P if self.components is None else P @ self.components) - self.low) / self.width


def scale(X: Array, n_components: int | None) -> tuple[Scaling, Array]:
    """The scaling that training images X (n, p) define, and the scaled images (n, d)."""
    mean = X.mean(axis=0, dtype=np.float64)
    components = None if n_components is None else principal_directions(X - mean)[:, -n_components:]
    P = X - mean if components is None else (X - mean) @ components
    low, width = P.min(axis=0), np.ptp(P, axis=0)
    scaling = Scaling(mean, components, low, np.where(width > 0, width, 1))
    return scaling, scaling(X)


def seen_classifier(U: Array, y: Array, k: int) -> list[Array]:
    """W (d, k) and b (k,) of a softmax classifier of images U (n, d) into k seen classes."""
    mean = U.mean(axis=0)
    found = fit_linear(U - mean, multinomial(y, k), k, 1.0, of=spectrum(U - mean), tol=1e-3)
    return [found.W, found.b - mean @ found.W]


# --- training, on tensors of torch ----------------------------------------------------------------------------


def start(n_in: int, hidden: int, middle: Any, draw: Any) -> list[Any]:
    """W and b of two linear layers before training, drawn by a ``torch.Generator``; outputs are near middle (k,)."""
    torch = _torch()
    weights: list[Any] = []
    for size, b in ((n_in, torch.zeros(hidden, dtype=torch.float32)), (hidden, middle)):
        weights += [DEVIATION * torch.randn(size, len(b), generator=draw, dtype=torch.float32), b.clone()]
    return [w.requires_grad_() for w in weights]


def network(weights: list[Any], *parts: Any) -> Any:
    """Outputs (b, k) of two linear layers, a leaky rectifier between them, for parts of the input side by side."""
    torch = _torch()
    W1, b1, W2, b2 = weights
    return torch.nn.functional.leaky_relu(torch.cat(parts, dim=1) @ W1 + b1, LEAK) @ W2 + b2


def generate(G: list[Any], s: Any, noise: Any) -> Any:
    """Images (b, d) of the generator for attributes s (b, q) and noise (b, q)."""
    return network(G, s, noise).relu()


def critic_terms(D: list[Any], x: Any, made: Any, s: Any, share: Any) -> tuple[Any, Any]:
    """The critic's estimate of the Wasserstein distance, and the mean of ``(|gradient| - 1)^2`` between the images.

    The images are real ones x (b, d) and generated ones (b, d), both of the attributes s (b, q); the gradient is that
    by the image at ``share x + (1 - share) made``, share (b, 1).
    """
    torch = _torch()
    between = (share * x + (1 - share) * made).requires_grad_()
    (gradient,) = torch.autograd.grad(network(D, between, s).sum(), between, create_graph=True)
    penalty = ((torch.linalg.vector_norm(gradient, dim=1) - 1) ** 2).mean()
    return network(D, x, s).mean() - network(D, made, s).mean(), penalty


def generator_loss(D: list[Any], made: Any, s: Any, y: Any, W: Any, b: Any, weight: float) -> Any:
    """Minus the critic's mean over generated images (b, d), plus the weighted loss of the softmax of ``x W + b``."""
    torch = _torch()
    return weight * torch.nn.functional.cross_entropy(made @ W + b, y) - network(D, made, s).mean()


def _step(optimiser: Any, loss: Any) -> None:
    """One step down the loss of the parameters that the optimiser has; others keep no gradient."""
    parameters = [w for group in optimiser.param_groups for w in group["params"]]
    for w, slope in zip(parameters, _torch().autograd.grad(loss, parameters)):
        w.grad = slope
    optimiser.step()
