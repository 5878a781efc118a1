r"""The work of a run as sums of terms with a physical meaning, whose rates :mod:`zsl.costs.calibration` measures.

Products are counted in seconds at the measured rate of products; all other terms in units of 1e9 operations. With n
rows, p dimensions, r atoms and k non-zeros of a code, a coding by the active set costs

.. math:: \theta_0 \frac{r^2 p + n p r}{P} + \theta_1 n r + \theta_2 n k (r + p) + \theta_3 n k^3 ,

which are the products with the atoms, one look at every correlation, the correlations of a support, and its factor.
ADMM multiplies every row with an (r, r) matrix in each round:
:math:`\theta_0 (r^2 p + n p r) / P + \theta_1 n r^2 / P + \theta_2 r^3 / P`. Both have two terms more: one with the
factor :math:`k / (p - k)`, because codes with nearly as many non-zeros as features need many more rounds, and a
constant. Every part of a run has such a constant for each pass or call, without which small runs would make large ones
look too long.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from zsl.checks import Array

GIGA = 1e-9
# Codes with more non-zeros than this share of the atoms are multiplied as dense matrices (zsl.sparse.kernels).
_DENSE = 0.12
# The largest share of the features that codes have non-zeros for, and of rows that are atoms, in these terms.
_FULL, _MOST_ATOMS = 0.95, 0.8
# Images whose lambda_max is computed, and neighbours of a node.
_SAMPLE = 4096


@dataclass(frozen=True)
class Shape:
    """The sizes and settings of a run that decide what it costs."""

    n: int
    """Training images"""
    p: int
    """Features"""
    r: int
    """Atoms of each dictionary"""
    q: int
    """Attributes"""
    L: int
    """Test images"""
    M: int
    """Classes to choose from"""
    share: float = 0.1
    """``model.lam_relative``, which gives ``k`` where a run on simulated features is measured"""
    n_iter: int = 2
    K: int = 1
    """Dictionaries"""
    single: bool = False
    """Whether features are float32"""
    batch_size: int | None = None
    k: float = math.nan
    """Non-zeros of the code of an image that is no atom, under the initial dictionary; NaN until they are counted"""

    @property
    def itemsize(self) -> int:
        return 4 if self.single else 8


def coding(
    n: float, p: int, r: int, k: float, product: float, product32: float, by_admm: bool, atoms: float = 0.0
) -> Array:
    """The terms of coding ``n`` rows; ``product`` is the rate of the features' type (multiplications per second).

    ``atoms`` is the share of the rows that are atoms themselves and have hardly a non-zero: the others have more.
    """
    products = (r**2 * p + n * p * r) / product
    others = 1 - min(atoms, _MOST_ATOMS)
    full = min(k / others / p, _FULL)
    if by_admm:
        rounds = n * r**2 / product32
        return np.array([products, rounds, r**3 / product, rounds * full / (1 - full), 1.0])
    steps = n * k * (r + p)
    terms = [products, GIGA * n * r, GIGA * steps, GIGA * n * k**3 / others**2,
             GIGA * steps * full / (1 - full), 1.0]  # fmt: skip
    return np.array(terms)


def densities(s: Shape, growth: Mapping[str, float]) -> list[float]:
    """Non-zeros of a training image's code in each of the ``n_iter + 1`` passes.

    Atoms that are training images code these images by one non-zero each; the others have ``k``. Learning then changes
    k by a measured factor, which depends on how dense codes are and on how many images there are for an atom.
    """
    share = min(s.r / max(s.n, 1), 1.0)
    first = s.k * (1 - share) + share
    x = growth["one"] + growth["k/p"] * math.log(s.k / s.p) + growth["n/r"] * math.log(max(s.n, 1) / s.r)
    found = [first]
    for t in range(1, s.n_iter + 1):
        found.append(float(np.clip(first * math.exp(x * (1 + growth["later"] * math.log(t))), 1.0, min(s.p, s.r))))
    return found


def test_density(s: Shape, growth: Mapping[str, float]) -> float:
    """Non-zeros of a test image's code under the learned dictionary."""
    x = growth["test one"] + growth["test k/p"] * math.log(s.k / s.p) + growth["test n/r"] * math.log(s.n / s.r)
    return float(np.clip(s.k * math.exp(x), 1.0, min(s.p, s.r)))


def rest(s: Shape, ks: list[float], product: float) -> Array:
    """The terms of a fit besides its codings: sums over codes, updates of the atoms, copies and checks."""
    n, p, r, q = s.n, s.p, s.r, s.q
    sparse = sum(n * k * (p + k) for k in ks if k <= _DENSE * r)
    dense = sum(n * r * (p + r) for k in ks if k > _DENSE * r)
    objective = sum(n * k * p for k in ks)
    updates = s.n_iter * (1 if s.batch_size is None else -(-n // s.batch_size))
    return np.array([
        GIGA * sparse,
        dense / product,
        GIGA * objective,
        GIGA * len(ks) * n * r,
        (updates * r**2 * p + min(n, _SAMPLE) * p * r) / product,
        GIGA * n * p,
        (r**3 + 10 * r**2 * q) / product,
        len(ks),
    ])  # fmt: skip


def agnostic(s: Shape, coded: float, product: float) -> Array:
    """The terms of AAg of one dictionary: its coding takes ``coded`` seconds."""
    return np.array([coded, GIGA * s.L * (s.r + s.p), (s.L * s.q * (s.r + s.M)) / product, GIGA * s.L * s.M, 1.0])


def aware(s: Shape, k: float, coded: float, product: float) -> Array:
    """The terms of AAw of one dictionary beyond AAg; ``coded`` seconds for one coding from warm starts."""
    width = s.p + s.q
    return np.array([
        coded, (s.r**2 * width + s.L * s.p * s.r) / product, GIGA * s.L * s.M * (1 + s.q / 20),
        GIGA * s.L * k * width, GIGA * s.L * s.r, 1.0,
    ])  # fmt: skip


def spreading(s: Shape, product: float) -> Array:
    """The terms of spreading labels over L images with exact neighbours."""
    nodes = s.L + s.M
    return np.array(
        [nodes**2 * s.q / product, GIGA * nodes**2, GIGA * nodes * s.M * math.log2(1 + s.M), GIGA * 1000 * nodes, 1.0]
    )
