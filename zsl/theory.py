r"""The paper's section on theory (``sec:analysis``) as functions: its bounds and costs, corrected.

The argument has three steps. A prediction close enough to the true attributes has the true class as its nearest one
(:func:`epsilon_max`). Enough training images make dictionaries that predict that closely (Theorem 1,
:func:`images_needed`). The sparse code of a test image is recovered (Theorem 2, :func:`recovery_probability`).
:func:`label_probability` is the product of the three. Where the paper prints something else than what holds,
``as_printed=True`` gives the printed formula. ``docs/theory.md`` explains the corrections and what they say of the
benchmarks; ``python -m zsl.report theory`` puts in the numbers of a dataset.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Annotated, NamedTuple

import annotated_types as at
import numpy as np
from scipy.spatial.distance import pdist

from zsl.checks import Array, Count, Fraction, NonNegative, Positive, Share, as_matrix, check_arguments
from zsl.errors import UserError

AtLeastThree = Annotated[int, at.Ge(3)]
BelowOne = Annotated[float, at.Ge(0), at.Lt(1)]

# --- how close is close enough ------------------------------------------------------------------------------


def class_distances(Z: Array) -> Array:
    """(M (M-1) / 2,) distances between all pairs of classes, ascending.

    They stand for the paper's R(t), the distribution of the distances from a predicted attribute, which is unknown
    before prediction.

    Parameters
    ----------
    Z : (M, q)
        Attributes of at least two classes, pre-processed as the method sees them.
    """
    Z = as_matrix(Z, "Z")
    if len(Z) < 2:
        raise UserError("one class has no distance to another; at least two are needed.")
    return np.sort(pdist(Z))


def safe_radius(Z: Array) -> Array:
    """(M,) half the distance from each class to the nearest other: a smaller error cannot change the label.

    This follows from the triangle inequality; it needs no probability, and is not in the paper.

    Parameters
    ----------
    Z : (M, q)
        Attributes of at least two classes.
    """
    class_distances(Z)  # the same requirements
    nearest = [np.delete(np.linalg.norm(Z - z, axis=1), m).min() for m, z in enumerate(np.asarray(Z))]
    return np.array(nearest) / 2


def nearest_distance_cdf(R: Share, n_points: Count) -> float:
    r"""Eq. (12) (``eq:distNN``): :math:`W = 1 - (1 - R)^n`, the probability that the nearest of n points is within t.

    Parameters
    ----------
    R : float, 0..1
        The probability that one point is within t. The points are taken for independent draws.
    n_points : int >= 1

    Examples
    --------
    >>> nearest_distance_cdf(0.5, 3)
    0.875
    """
    check_arguments(nearest_distance_cdf, locals())
    return 1.0 if R == 1 else -math.expm1(n_points * math.log1p(-R))


def epsilon_max(distances: Array, zeta: BelowOne, n_points: Count) -> float:
    r"""The largest error of a prediction at which another class is nearer with probability at most zeta.

    It is :math:`\sup\{t : W(t) \le \zeta\}` under the empirical R of the distances, and itself one of them. Errors
    below it qualify.

    Parameters
    ----------
    distances : (m,)
        Of :func:`class_distances`.
    zeta : float, 0 <= zeta < 1
        Accepted probability of a wrong label. m distances cannot tell a zeta below W(1/m) from 0.
    n_points : int >= 1
        Number of competing classes, M - 1.
    """
    check_arguments(epsilon_max, locals())
    distances = np.sort(as_matrix(np.atleast_2d(np.asarray(distances)), "distances")[0])
    if not len(distances) or distances[0] < 0:
        raise UserError("distances are needed that are not negative; make them with zsl.theory.class_distances.")
    level = -math.expm1(math.log1p(-zeta) / n_points)
    # The margin is for levels that are a multiple of 1/m but for rounding.
    allowed = math.floor(level * len(distances) * (1 + 1e-12))
    return float(distances[min(allowed, len(distances) - 1)])


def mean_square_needed(radius: NonNegative, share: Share, *, as_printed: bool = False) -> float:
    r"""The mean squared error that puts all but a share of the predictions within a radius.

    By Markov's inequality :math:`P(d > \tau) \le E\,d^2 / \tau^2`, it is ``share * radius**2``. The paper compares the
    mean *squared* error with the radius itself.
    """
    check_arguments(mean_square_needed, locals())
    return float(radius) if as_printed else share * radius**2


# --- Theorem 1: how many images -----------------------------------------------------------------------------


def n_parameters(p: Count, q: Count, r: Count, *, as_printed: bool = False) -> int:
    """Entries of both dictionaries, (p + q) r; the paper counts those of one, p r, though errors are of attributes."""
    check_arguments(n_parameters, locals())
    return p * r if as_printed else (p + q) * r


def deviation_bound(n_images: AtLeastThree, parameters: Count, delta: Fraction, lipschitz: Positive = 1.0) -> float:
    r"""Theorem 1, the right side of Eq. (13) (``eq:distNN1``).

    .. math:: 3 \sqrt{c \log N / N} + \sqrt{(c + \log(2 / \delta) / 8) / N}, \quad
              c = \text{parameters} / 8 \cdot \max(1, \log(6 \sqrt 8 L))

    With probability 1 - delta no dictionary's mean loss on N images is further than this from its expectation. For
    images of unit length the zero code has a loss of 1: a bound of 1 or more excludes nothing.

    Parameters
    ----------
    n_images : int >= 3
        N; below e the expression rises with N, and it is no bound.
    parameters : int
        Of :func:`n_parameters`.
    delta : float, 0 < delta <= 1
    lipschitz : float > 0
        L, the constant of the loss as a function of the dictionary; the paper gives none.
    """
    check_arguments(deviation_bound, locals())
    c = parameters / 8 * max(1.0, math.log(6 * math.sqrt(8) * lipschitz))
    # Logarithms, because the number of images may be beyond what a float holds.
    log_n = math.log(n_images)
    first = 3 * math.exp((math.log(c) + math.log(log_n) - log_n) / 2)
    return first + math.exp((math.log(c + math.log(2 / delta) / 8) - log_n) / 2)


def images_needed(deviation: Positive, parameters: Count, delta: Fraction, lipschitz: Positive = 1.0) -> int:
    """The fewest images at which :func:`deviation_bound` is at most ``deviation``: Eq. (13) solved for N."""
    check_arguments(images_needed, locals())

    def enough(n: int) -> bool:
        return deviation_bound(n, parameters, delta, lipschitz) <= deviation

    high = 3
    while not enough(high):
        high *= 2
    low = max(high // 2, 2)  # 2 is not allowed, the others are too few
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


# --- Theorem 2: is the code recovered -----------------------------------------------------------------------


def recovery_probability(p: Count, xi: Positive, *, as_printed: bool = False) -> float:
    r"""Theorem 2: :math:`1 - e^{-p \xi}`, the probability that a LASSO recovers a sparse code.

    The probability is over the draw of a Gaussian matrix with p rows, for codes with at most :func:`sparsity_limit`
    entries. The theorem gives no value of xi. The paper prints :math:`1 - e^{p \xi}`, which is negative.
    """
    check_arguments(recovery_probability, locals())
    if not as_printed:
        return -math.expm1(-p * xi)
    return -math.expm1(p * xi) if p * xi < 700 else -math.inf


def sparsity_limit(p: Count, r: Count, constant: Positive = 1.0, *, as_printed: bool = False) -> float:
    """How many entries of a code Theorem 2 allows: ``constant * p / log(r / p)``, and never more than p.

    More atoms make recovery harder, so that the limit falls with r. The paper prints ``constant * p * log(r / p)``,
    which rises. The theorem gives no value of the constant.

    Raises
    ------
    UserError
        Unless r > p: the theorem is about dictionaries with more atoms than features.
    """
    check_arguments(sparsity_limit, locals())
    if r <= p:
        raise UserError(f"Theorem 2 needs more atoms than features, not r={r} and p={p}.")
    return constant * p * math.log(r / p) if as_printed else min(constant * p / math.log(r / p), float(p))


def label_probability(delta: Share, recovery: Share, zeta: Share, share: Share = 0.0) -> float:
    r"""Eq. (14) (``eq:finalprobe1``): :math:`(1 - \delta) P_\text{recovery} (1 - \zeta)`, times ``1 - share``.

    ``share`` is that of predictions beyond ``epsilon_max`` although their mean squared error is small enough, see
    :func:`mean_square_needed`; the paper leaves it out. The product holds only with :func:`images_needed` images.
    """
    check_arguments(label_probability, locals())
    return (1 - delta) * recovery * (1 - zeta) * (1 - share)


# --- section 4.1: what a test image costs -------------------------------------------------------------------


class Cost(NamedTuple):
    """Multiplications for one test image, up to constants."""

    code: float
    attributes: float
    label: float

    @property
    def total(self) -> float:
        """All three together."""
        return sum(self)


def dictionary_cost(
    p: Count, q: Count, r: Count, n_classes: Count, n_active: Count, *, as_printed: bool = False
) -> Cost:
    """Attribute-agnostic prediction by an active-set solver whose code has ``n_active`` entries, at most min(p, r).

    Once the Gram matrix is stored, k entries cost the correlations of all atoms (``p r``), and for each entry their
    change (``k r``) and a row of a Cholesky factor (``k^2``). The paper's ``r^3`` is the cost with all r atoms active.
    """
    check_arguments(dictionary_cost, locals())
    k = n_active
    if k > min(p, r):
        raise UserError(f"n_active={k} is too large; a code has at most min(p, r) = {min(p, r)} entries.")
    if as_printed:
        return Cost(float(r) ** 3, q * r, q * n_classes)
    return Cost(p * r + k**2 * r + k**3, k * q, q * n_classes)


def network_cost(p: Count, hidden: Sequence[Count], q: Count, n_classes: Count, *, as_printed: bool = False) -> Cost:
    """A forward pass from p features through ``hidden`` widths to q attributes: the sum over layers.

    The paper prints the product of all widths.
    """
    check_arguments(network_cost, locals())
    if as_printed:
        return Cost(math.prod(map(float, (p, q, *hidden))), 0.0, q * n_classes)
    layers = [a * b for a, b in itertools.pairwise((p, *hidden, q))]
    return Cost(float(sum(layers[:-1])), layers[-1], q * n_classes)
