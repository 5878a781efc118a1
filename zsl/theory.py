r"""The bounds and costs of the paper's section on theory (``sec:analysis``), corrected.

The paper argues in three steps. If a prediction is close enough to the true attributes, the true class is the nearest
one (:func:`epsilon_max`). With enough training images the dictionaries predict that closely (Theorem 1,
:func:`images_needed`). The sparse code of a test image is recovered (Theorem 2, :func:`recovery_probability`).
:func:`label_probability` is the product of the three probabilities. Where the printed formula is wrong, the functions
return the corrected one, and ``as_printed=True`` returns the printed one. ``docs/theory.md`` explains the corrections;
``zsl report theory`` evaluates the formulas for a dataset.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Annotated, NamedTuple

import annotated_types as at
import numpy as np
from scipy.spatial.distance import pdist

from zsl.checks import Array, Count, Fraction, NonNegative, Positive, Share, as_matrix, check_arguments, check_no_mask
from zsl.errors import UserError
from zsl.evaluation.hubness import nearest_other

AtLeastThree = Annotated[int, at.Ge(3)]
BelowOne = Annotated[float, at.Ge(0), at.Lt(1)]


def class_distances(Z: Array) -> Array:
    """Distances (M (M-1) / 2,) between all pairs of classes, in ascending order.

    Their empirical distribution replaces the paper's R(t), the distribution of the distances from a predicted
    attribute, which is unknown before prediction.

    Parameters
    ----------
    Z : (M, q)
        Pre-processed attributes of at least two classes.

    Examples
    --------
    >>> class_distances(np.array([[0.0], [1.0], [3.0]]))
    array([1., 2., 3.])
    """
    return np.sort(pdist(_classes(Z)))


def safe_radius(Z: Array) -> Array:
    """Half the distance (M,) from each class to the nearest other one; a smaller error cannot change the label.

    The bound follows from the triangle inequality without any probability; it is not in the paper.

    Parameters
    ----------
    Z : (M, q)
        Attributes of at least two classes.

    Examples
    --------
    >>> safe_radius(np.array([[0.0], [1.0], [3.0]]))
    array([0.5, 0.5, 1. ])
    """
    return nearest_other(_classes(Z)) / 2


def _classes(Z: Array) -> Array:
    Z = as_matrix(Z, "Z")
    if len(Z) < 2:
        raise UserError("one class has no distance to another; at least two are needed.")
    return Z


def nearest_distance_cdf(R: Share, n_points: Count) -> float:
    r"""Probability that the nearest of n points is within t: :math:`W = 1 - (1 - R)^n`, Eq. (12) (``eq:distNN``).

    Parameters
    ----------
    R : float, 0..1
        Probability that one point is within t. The points are assumed to be independent draws.
    n_points : int >= 1

    Examples
    --------
    >>> nearest_distance_cdf(0.5, 3)
    0.875
    """
    check_arguments(nearest_distance_cdf, locals())
    return 1.0 if R == 1 else -math.expm1(n_points * math.log1p(-R))


def epsilon_max(distances: Array, zeta: BelowOne, n_points: Count) -> float:
    r"""The error of a prediction below which another class is nearer with probability at most zeta.

    The value is :math:`\sup\{t : W(t) \le \zeta\}` under the empirical R of the distances, and is one of them.

    Parameters
    ----------
    distances : (m,)
        From :func:`class_distances`.
    zeta : float, 0 <= zeta < 1
        Accepted probability of a wrong label. With m distances every zeta below W(1/m) acts like 0.
    n_points : int >= 1
        Number of competing classes, M - 1.

    Examples
    --------
    >>> epsilon_max(np.array([1.0, 2.0, 3.0, 4.0]), zeta=0.5, n_points=1)
    3.0
    """
    check_arguments(epsilon_max, locals())
    if np.ndim(distances) != 1:
        raise UserError(
            f"distances has shape {np.shape(distances)}; one list is needed, as zsl.theory.class_distances makes it."
        )
    check_no_mask(distances, "distances")
    distances = np.sort(as_matrix(np.asarray(distances)[None], "distances")[0])
    if distances[0] < 0:
        raise UserError("distances are needed that are not negative; make them with zsl.theory.class_distances.")
    level = -math.expm1(math.log1p(-zeta) / n_points)
    # The margin covers levels that are a multiple of 1/m up to rounding.
    allowed = math.floor(level * len(distances) * (1 + 1e-12))
    return float(distances[min(allowed, len(distances) - 1)])


def mean_square_needed(radius: NonNegative, share: Share, *, as_printed: bool = False) -> float:
    r"""Mean squared error at which all but a share of the predictions are within a radius: ``share * radius**2``.

    The bound is Markov's inequality :math:`P(d > \tau) \le E\,d^2 / \tau^2`. The paper compares the mean *squared*
    error with the radius itself.

    Parameters
    ----------
    radius : float >= 0
    share : float, 0..1

    Examples
    --------
    >>> mean_square_needed(radius=2.0, share=0.25)
    1.0
    """
    check_arguments(mean_square_needed, locals())
    return float(radius) if as_printed else share * radius**2


def n_parameters(p: Count, q: Count, r: Count, *, as_printed: bool = False) -> int:
    """Number of entries of both dictionaries, (p + q) r; the paper counts the visual one alone, p r.

    Examples
    --------
    >>> n_parameters(10, 5, 2), n_parameters(10, 5, 2, as_printed=True)
    (30, 20)
    """
    check_arguments(n_parameters, locals())
    return p * r if as_printed else (p + q) * r


def deviation_bound(n_images: AtLeastThree, parameters: Count, delta: Fraction, lipschitz: Positive = 1.0) -> float:
    r"""Right side of Eq. (13) (``eq:distNN1``), Theorem 1.

    .. math:: 3 \sqrt{c \log N / N} + \sqrt{(c + \log(2 / \delta) / 8) / N}, \quad
              c = \text{parameters} / 8 \cdot \max(1, \log(6 \sqrt 8 L))

    With probability 1 - delta, the mean loss on N images differs from its expectation by at most this bound, for every
    dictionary at once. For images of unit length the zero code has a loss of 1, so a bound of 1 or more says nothing.

    Parameters
    ----------
    n_images : int >= 3
        N. For N below e the expression rises with N and is not a bound.
    parameters : int >= 1
        From :func:`n_parameters`.
    delta : float, 0 < delta <= 1
    lipschitz : float > 0
        Lipschitz constant L of the loss as a function of the dictionary; the paper gives no value.

    Examples
    --------
    >>> round(deviation_bound(10_000, parameters=100, delta=0.1), 2)
    0.6
    """
    check_arguments(deviation_bound, locals())
    c = parameters / 8 * max(1.0, math.log(6 * math.sqrt(8) * lipschitz))
    # The logarithms allow numbers of images beyond the range of a float.
    log_n = math.log(n_images)
    first = 3 * math.exp((math.log(c) + math.log(log_n) - log_n) / 2)
    return first + math.exp((math.log(c + math.log(2 / delta) / 8) - log_n) / 2)


def images_needed(deviation: Positive, parameters: Count, delta: Fraction, lipschitz: Positive = 1.0) -> int:
    """Smallest number of images at which :func:`deviation_bound` is at most ``deviation``: Eq. (13) solved for N.

    Examples
    --------
    >>> images_needed(0.61, parameters=100, delta=0.1) <= 10_000
    True
    """
    check_arguments(images_needed, locals())

    def enough(n: int) -> bool:
        return deviation_bound(n, parameters, delta, lipschitz) <= deviation

    high = 3
    while not enough(high):
        high *= 2
    low = max(high // 2, 2)  # fewer images than needed, or 2, which the bound does not allow
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def recovery_probability(p: Count, xi: Positive, *, as_printed: bool = False) -> float:
    r"""Probability that a LASSO recovers a sparse code: :math:`1 - e^{-p \xi}`, Theorem 2.

    The probability is over the draw of a Gaussian matrix with p rows, for codes with at most :func:`sparsity_limit`
    entries. The paper prints :math:`1 - e^{p \xi}`, which is negative.

    Parameters
    ----------
    p : int >= 1
    xi : float > 0
        A constant for which the theorem gives no value.

    Examples
    --------
    >>> round(recovery_probability(10, xi=0.1), 3)
    0.632
    """
    check_arguments(recovery_probability, locals())
    if not as_printed:
        return -math.expm1(-p * xi)
    return -math.expm1(p * xi) if p * xi < 700 else -math.inf


def sparsity_limit(p: Count, r: Count, constant: Positive = 1.0, *, as_printed: bool = False) -> float:
    """Number of entries of a code that Theorem 2 allows: ``constant * p / log(r / p)``, at most p.

    More atoms make recovery harder, so the limit falls with r. The paper prints ``constant * p * log(r / p)``, which
    rises with r.

    Parameters
    ----------
    p, r : int
        Features and atoms; the theorem needs r > p.
    constant : float > 0
        A constant for which the theorem gives no value.

    Raises
    ------
    UserError
        Unless r > p.

    Examples
    --------
    >>> round(sparsity_limit(100, 400), 1)
    72.1
    """
    check_arguments(sparsity_limit, locals())
    if r <= p:
        raise UserError(f"Theorem 2 needs more atoms than features, not r={r} and p={p}.")
    return constant * p * math.log(r / p) if as_printed else min(constant * p / math.log(r / p), float(p))


def label_probability(delta: Share, recovery: Share, zeta: Share, share: Share = 0.0) -> float:
    r"""Probability of a right label: :math:`(1 - \delta) P_\text{recovery} (1 - \zeta)`, Eq. (14), times ``1 - share``.

    The product (``eq:finalprobe1``) holds only with at least :func:`images_needed` images.

    Parameters
    ----------
    delta, recovery, zeta : float, 0..1
    share : float, 0..1
        Share of the predictions with an error beyond :func:`epsilon_max` although the mean squared error is small
        enough, see :func:`mean_square_needed`; the paper leaves it out.

    Examples
    --------
    >>> label_probability(delta=0.5, recovery=1.0, zeta=0.5)
    0.25
    """
    check_arguments(label_probability, locals())
    return (1 - delta) * recovery * (1 - zeta) * (1 - share)


class Cost(NamedTuple):
    """Number of multiplications for one test image, up to constants."""

    code: float
    attributes: float
    label: float

    @property
    def total(self) -> float:
        """Sum of the three parts."""
        return sum(self)


def dictionary_cost(
    p: Count, q: Count, r: Count, n_classes: Count, n_active: Count, *, as_printed: bool = False
) -> Cost:
    """Cost of attribute-agnostic prediction by an active-set solver.

    With a stored Gram matrix, a code of k entries costs the correlations of all atoms (``p r``) and, for each entry,
    their change (``k r``) and a row of a Cholesky factor (``k^2``). The paper's ``r^3`` is the cost if all atoms are
    active.

    Parameters
    ----------
    p, q, r, n_classes : int >= 1
        Features, attributes, atoms, classes.
    n_active : int, 1..min(p, r)
        k, the number of entries of the code.

    Examples
    --------
    >>> dictionary_cost(p=10, q=2, r=20, n_classes=3, n_active=1).total
    229
    """
    check_arguments(dictionary_cost, locals())
    k = n_active
    if k > min(p, r):
        raise UserError(f"n_active={k} is too large; a code has at most min(p, r) = {min(p, r)} entries.")
    if as_printed:
        return Cost(float(r) ** 3, q * r, q * n_classes)
    return Cost(p * r + k**2 * r + k**3, k * q, q * n_classes)


def network_cost(p: Count, hidden: Sequence[Count], q: Count, n_classes: Count, *, as_printed: bool = False) -> Cost:
    """Cost of a forward pass from p features through ``hidden`` widths to q attributes.

    The cost is a sum over the layers; the paper prints the product of all widths.

    Parameters
    ----------
    p, q, n_classes : int >= 1
    hidden : sequence of int >= 1

    Examples
    --------
    >>> network_cost(10, [5], 2, n_classes=3).total
    66.0
    """
    check_arguments(network_cost, locals())
    if as_printed:
        return Cost(math.prod(map(float, (p, q, *hidden))), 0.0, q * n_classes)
    layers = [a * b for a, b in itertools.pairwise((p, *hidden, q))]
    return Cost(float(sum(layers[:-1])), layers[-1], q * n_classes)
