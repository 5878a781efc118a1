r"""The paper's section on theory (``sec:analysis``) as functions: what it promises, corrected, and what that is worth.

The argument has three steps. A prediction close enough to the true attributes has the true class as its nearest one
(:func:`epsilon_max`); enough training images make dictionaries that predict that closely (Theorem 1,
:func:`images_needed`); the sparse code of a test image is recovered (Theorem 2, :func:`recovery_probability`).
:func:`label_probability` is their product. ``python -m zsl.report theory`` prints all of it for a dataset.

The section reuses letters of the method; here they are

====================  =======================  ==========================================================
here                  paper                    not to be taken for
====================  =======================  ==========================================================
``capacity``          :math:`\beta` of Eq. 13  ``beta``, the ridge penalty of Eqs. 3-4
``n_images``          :math:`M`                M, the number of unseen classes
``lipschitz``         :math:`L`                L, the number of test images
``nearest_law``       :math:`W`                W, the graph of Eq. 9
====================  =======================  ==========================================================

Two kinds of error are told apart by type, because the paper compares one with the other: a :data:`Distance` in
attribute space, and a :data:`MeanSquare`, the expectation of a squared one.

Three gaps no constant closes. The bounds are for images drawn like the training ones, which images of unseen classes
are not. Theorem 1 bounds how far the mean reconstruction error of *features* is from its expectation, not how large it
is, nor the error of *attributes*. Theorem 2 is about Gaussian random matrices, which learned dictionaries are not.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Sequence
from functools import wraps
from typing import NamedTuple, NewType, ParamSpec, TypeVar

import numpy as np
from scipy.spatial.distance import pdist

from zsl.checks import Array, Count, as_matrix, check_arguments
from zsl.errors import UserError

Distance = NewType("Distance", float)
"""Euclidean, between two points in attribute space."""
MeanSquare = NewType("MeanSquare", float)
"""Expected squared Euclidean error, over images."""


_P = ParamSpec("_P")
_T = TypeVar("_T")


def _of_numbers(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Look at the arguments before anything is computed with them: sizes, and numbers."""
    signature = inspect.signature(function)

    @wraps(function)
    def checked(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        check_arguments(function, signature.bind(*args, **kwargs).arguments)
        return function(*args, **kwargs)

    return checked


# --- how close is close enough ------------------------------------------------------------------------------


def class_distances(Z: Array) -> Array:
    """(M (M-1) / 2,) distances between all pairs of classes, ascending: the empirical distribution behind R(t).

    Z (M, q), pre-processed as the method sees them. Stands for the paper's distances from a predicted attribute, which
    is unknown before prediction: it assumes that predictions fall near prototypes. Pairs share classes, so they are no
    independent draws.
    """
    Z = as_matrix(Z, "Z")
    if len(Z) < 2:
        raise UserError("one class has no distance to another; at least two are needed.")
    return np.sort(pdist(Z))


@_of_numbers
def distance_distribution(distances: Array, t: Array | float) -> Array:
    """R(t): share of ``distances`` (m,) that are at most t, for t of any shape."""
    distances = _as_distances(distances)
    t = _as_numbers(t, "t", np.inf)
    return np.searchsorted(np.sort(distances), t, side="right") / len(distances)


def _as_distances(distances: Array) -> Array:
    distances = np.asarray(distances)
    if distances.ndim != 1 or not distances.size or distances.dtype.kind not in "iuf":
        raise UserError(f"distances have shape {distances.shape} and type {distances.dtype}; some numbers are needed.")
    if not (distances >= 0).all():  # NaN too
        raise UserError("distances hold NaN or negative numbers; make them with zsl.theory.class_distances.")
    return distances


def _as_numbers(values: Array | float, name: str, most: float) -> Array:
    values = np.asarray(values)
    if values.dtype.kind not in "iuf" or not ((values >= 0) & (values <= most)).all():
        limit = "" if most == np.inf else f" to {most:g}"
        raise UserError(f"{name}={values} is not accepted: it should be numbers from 0{limit}.")
    return values.astype(np.float64)


@_of_numbers
def nearest_law(R: Array | float, n_points: Count) -> Array:
    r"""Eq. (12) (``eq:distNN``): :math:`W(t) = 1 - (1 - R(t))^n`, the distribution of the distance to the nearest of n.

    Assumes n points drawn independently. Here they are the other unseen classes, n = M - 1, a fixed table: the law says
    what to expect of classes drawn like them.

    Parameters
    ----------
    R : any shape, 0..1
        Probability that one point is within t.
    n_points : int >= 1
    """
    with np.errstate(divide="ignore"):  # R = 1 gives W = 1 through log 0
        return -np.expm1(n_points * np.log1p(-_as_numbers(R, "R", 1)))


@_of_numbers
def epsilon_max(distances: Array, zeta: float, n_points: Count) -> Distance:
    r"""The largest error of a prediction at which another class is nearer with probability at most zeta.

    :math:`W^{-1}(\zeta) = \sup\{t : W(t) \le \zeta\}` under the empirical R of ``distances`` (m,). The paper's words
    ask that the nearest neighbour be *nearer* than the true class; meant, and computed, is that no other class be. W is
    a step function, so its argmax does not exist; the supremum does. It is one of the distances; errors below qualify.

    Parameters
    ----------
    distances : (m,)
        Such as :func:`class_distances`.
    zeta : float, 0 <= zeta < 1
        Accepted probability of a wrong label. Below :func:`finest_zeta` the answer is the smallest distance, whatever
        zeta.
    n_points : int >= 1
        Competitors: M - 1.
    """
    distances = _as_distances(distances)
    _need_probability(zeta, "zeta", below_one=True)
    level = -math.expm1(math.log1p(-zeta) / n_points)
    # The margin is for levels that are a multiple of 1/m but for rounding.
    allowed = math.floor(level * len(distances) * (1 + 1e-12))
    return Distance(float(np.sort(distances)[min(allowed, len(distances) - 1)]))


@_of_numbers
def finest_zeta(n_distances: Count, n_points: Count) -> float:
    """The smallest zeta that ``n_distances`` distances can tell from 0: ``W`` at ``R = 1 / n_distances``."""
    return float(nearest_law(1 / n_distances, n_points))


def safe_radius(Z: Array) -> Array:
    """(M,) half the distance from each class Z (M, q) to the nearest other: a smaller error *cannot* change the label.

    Needs no distribution and no probability, by the triangle inequality; not in the paper. 0 for twins.
    """
    Z = as_matrix(Z, "Z")
    if len(Z) < 2:
        raise UserError("one class has no distance to another; at least two are needed.")
    nearest = [np.delete(np.linalg.norm(Z - z, axis=1), m).min() for m, z in enumerate(Z)]
    return np.array(nearest) / 2


@_of_numbers
def mean_square_needed(radius: Distance, share: float) -> MeanSquare:
    r"""The mean squared error that puts all but a ``share`` of predictions within ``radius``: share x radius^2.

    Markov's inequality, :math:`P(d > \tau) \le E\,d^2 / \tau^2`. The paper demands :math:`E\,d^2 \le \tau` instead,
    which compares the square of a length with a length: :func:`mean_square_as_printed`.
    """
    _need_probability(share, "share")
    return MeanSquare(share * radius**2)


@_of_numbers
def mean_square_as_printed(radius: Distance) -> MeanSquare:
    """The paper's reading, ``E d^2 <= epsilon_max``: the number is taken over although its unit does not fit."""
    return MeanSquare(float(radius))


# --- Theorem 1: how many images -----------------------------------------------------------------------------


@_of_numbers
def n_parameters(p: Count, q: Count, r: Count) -> int:
    """(p + q) r, entries of both dictionaries; the paper counts p r, those of one, though errors are of attributes."""
    return (p + q) * r


@_of_numbers
def capacity(parameters: Count, lipschitz: float = 1.0) -> float:
    r"""The :math:`\beta` of Eq. (13): ``parameters / 8 max(1, log(6 sqrt(8) L))``."""
    _need_positive(lipschitz, "lipschitz")
    return parameters / 8 * max(1.0, math.log(6 * math.sqrt(8) * lipschitz))


@_of_numbers
def deviation_bound(n_images: Count, parameters: Count, delta: float, lipschitz: float = 1.0) -> MeanSquare:
    r"""Theorem 1, the right side of Eq. (13) (``eq:distNN1``) with c for the capacity and N for the images:

    .. math:: 3 \sqrt{c \log N / N} + \sqrt{(c + \log(2 / \delta) / 8) / N}

    With probability 1 - delta no dictionary's mean loss on N images is further than this from its expectation, after
    Gribonval et al. (2015).

    Assumes independent images of one distribution, rows of at most unit length, atoms of unit length, and a loss whose
    dependence on the dictionary has the constant ``lipschitz``, which the paper does not give. It bounds a *deviation*:
    the expected loss is at most the mean loss on the training images plus this. As zero codes reach a loss of
    :math:`|x|^2`, that is 1 for unit rows, a bound of 1 or more is **vacuous**: it excludes no outcome.

    Parameters
    ----------
    n_images : int >= 3
        Below e the expression rises with N, and it is no bound.
    parameters : int
        :func:`n_parameters`, or p r as in the paper.
    delta : float, 0 < delta <= 1
    lipschitz : float > 0
    """
    if n_images < 3:
        raise UserError(f"Theorem 1 says nothing about {n_images} images; at least 3 are needed.")
    if not 0 < delta <= 1:
        raise UserError(f"delta={delta} is not accepted: it should be above 0 and at most 1.")
    c = capacity(parameters, lipschitz)
    # Through logarithms, because the number of images may be any integer, beyond what a float holds.
    log_n = math.log(n_images)
    first = 3 * math.exp((math.log(c) + math.log(log_n) - log_n) / 2)
    return MeanSquare(first + math.exp((math.log(c + math.log(2 / delta) / 8) - log_n) / 2))


@_of_numbers
def images_needed(deviation: MeanSquare, parameters: Count, delta: float, lipschitz: float = 1.0) -> int:
    """Eq. (13) solved for the number of images: the fewest at which :func:`deviation_bound` is at most ``deviation``.

    (The paper says that its Eq. (12) can be solved for it; (13) is meant.) Assumptions and arguments as there;
    ``deviation`` > 0.
    """
    if not (math.isfinite(deviation) and deviation > 0):
        raise UserError(f"no number of images makes the deviation {deviation}; it must be a number above 0.")
    enough = 3
    while deviation_bound(enough, parameters, delta, lipschitz) > deviation:
        enough *= 2
    few = max(enough // 2, 2)  # 2: not allowed, or known to be too few
    while enough - few > 1:
        middle = (few + enough) // 2
        if deviation_bound(middle, parameters, delta, lipschitz) > deviation:
            few = middle
        else:
            enough = middle
    return enough


# --- Theorem 2: is the code recovered -----------------------------------------------------------------------


@_of_numbers
def recovery_probability(p: Count, xi: float) -> float:
    r"""Theorem 2, corrected: :math:`1 - e^{-p \xi}` with a constant :math:`\xi > 0`.

    Probability, over the draw of a Gaussian matrix with p rows, that a LASSO recovers a code with at most
    :func:`sparsity_limit` entries: exactly without noise, and with noise up to an error in proportion to it. The
    theorem gives no value of xi; p in the hundreds makes the probability 1 unless xi is tiny. The paper prints
    :math:`1 - e^{p \xi}`, see :func:`recovery_probability_as_printed`.
    """
    _need_positive(xi, "xi")
    return -math.expm1(-p * xi)


@_of_numbers
def recovery_probability_as_printed(p: Count, xi: float) -> float:
    r""":math:`1 - e^{p \xi}`: negative for every xi > 0, so no probability; minus infinity where a float ends."""
    _need_positive(xi, "xi")
    try:
        return -math.expm1(p * xi)
    except OverflowError:
        return -math.inf


@_of_numbers
def sparsity_limit(p: Count, r: Count, constant: float = 1.0) -> float:
    """How many entries of a code Theorem 2 allows, corrected: ``constant p / log(r / p)``, and never more than p.

    The theorem gives no value of the constant. More atoms make recovery harder, so the limit falls with r; the paper
    prints ``p log(r / p)``, which rises with r, see :func:`sparsity_limit_as_printed`.

    Raises
    ------
    UserError
        Unless r > p: the theorem is about dictionaries with more atoms than features.
    """
    _need_positive(constant, "constant")
    return min(constant * p / _log_ratio(p, r), float(p))


@_of_numbers
def sparsity_limit_as_printed(p: Count, r: Count, constant: float = 1.0) -> float:
    """``constant p log(r / p)``; beyond r = e p it allows codes with more entries than there are equations."""
    return constant * p * _log_ratio(p, r)


@_of_numbers
def label_probability(delta: float, recovery: float, zeta: float, share: float = 0.0) -> float:
    r"""Eq. (14) (``eq:finalprobe1``): :math:`(1 - \delta)\, P_{\text{recovery}}\, (1 - \zeta)`, and ``(1 - share)``.

    ``share``, which the paper leaves out, is that of predictions beyond ``epsilon_max`` although the mean squared error
    is small enough, see :func:`mean_square_needed`; 0 gives the paper's product. The factors are conditional, each on
    the events before it. ``1 - delta`` belongs in it only with :func:`images_needed` images: with fewer nothing is
    guaranteed.
    """
    for value, name in ((delta, "delta"), (recovery, "recovery"), (zeta, "zeta"), (share, "share")):
        _need_probability(value, name)
    return (1 - delta) * recovery * (1 - zeta) * (1 - share)


# --- section 4.1: what a test image costs -------------------------------------------------------------------


class Cost(NamedTuple):
    """Multiplications for one test image, up to constants."""

    code: float
    attributes: float
    label: float

    @property
    def total(self) -> float:
        return sum(self)


@_of_numbers
def dictionary_cost(p: Count, q: Count, r: Count, n_classes: Count, n_active: int) -> Cost:
    """Attribute-agnostic prediction (Eqs. 5 and 8) by an active-set solver; the code has ``n_active`` <= p entries.

    With k the entries and the Gram matrix of the atoms stored once: correlations of all atoms (``p r``), then for each
    entry their change (``k r``) and a row of a Cholesky factor (``k^2``), together ``p r + k^2 r + k^3``; entries that
    leave again come on top. The paper's r^3 is what a path with all r atoms active would cost, but at most p can be.
    Attributes need the active atoms alone, ``k q``. The iterations of Eq. (7) and the graph of Eq. (9) are not counted,
    here as there.
    """
    if not 0 <= n_active <= min(p, r):
        raise UserError(f"a code has 0 to min(p, r) = {min(p, r)} entries, not {n_active}.")
    return Cost(p * r + n_active**2 * r + n_active**3, n_active * q, q * n_classes)


@_of_numbers
def dictionary_cost_as_printed(q: Count, r: Count, n_classes: Count) -> Cost:
    """``r^3 + q r + q M``."""
    return Cost(float(r) ** 3, q * r, q * n_classes)


@_of_numbers
def network_cost(p: Count, hidden: Sequence[Count], q: Count, n_classes: Count) -> Cost:
    """A forward pass from p features through ``hidden`` widths to q attributes: ``p m_1 + sum m_i m_(i+1) + m_n q``.

    The paper prints the product of all widths, see :func:`network_cost_as_printed`.
    """
    widths = [p, *hidden, q]
    layers = [a * b for a, b in itertools.pairwise(widths)]
    return Cost(float(sum(layers[:-1])), layers[-1], q * n_classes)


@_of_numbers
def network_cost_as_printed(p: Count, hidden: Sequence[Count], q: Count, n_classes: Count) -> Cost:
    """``p q m_1 ... m_n + q M``: exponential in the number of layers, where a forward pass is linear in it."""
    return Cost(math.prod(map(float, (p, q, *hidden))), 0.0, q * n_classes)


def _log_ratio(p: int, r: int) -> float:
    if r <= p:
        raise UserError(f"Theorem 2 needs more atoms than features, not r={r} and p={p}.")
    return math.log(r / p)


def _need_positive(value: float, name: str) -> None:
    if not (math.isfinite(value) and value > 0):
        raise UserError(f"{name}={value} is not accepted: it should be a number above 0.")


def _need_probability(value: float, name: str, *, below_one: bool = False) -> None:
    if not 0 <= value <= 1 or (below_one and value == 1):
        raise UserError(
            f"{name}={value} is not accepted: it should be at least 0 and {'below' if below_one else 'at most'} 1."
        )
