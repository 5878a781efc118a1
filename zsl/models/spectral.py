"""Eigendecompositions of Gram matrices: one serves the ridge solutions for every penalty."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import DTypeLike

from zsl.checks import Array

# Rows converted to double precision at a time: float32 features need no second copy of themselves.
_BLOCK = 4096


class Spectrum(NamedTuple):
    """``X'X = V diag(e) V'`` without the directions in which X is zero to rounding."""

    values: Array  # (k,) e > 0
    vectors: Array  # (p, k) V


def gram(X: Array) -> Array:
    """X'X (p, p) of X (n, p) in double precision."""
    if X.dtype == np.float64:
        return X.T @ X
    G = np.zeros((X.shape[1], X.shape[1]))
    for start in range(0, len(X), _BLOCK):
        block = X[start : start + _BLOCK].astype(np.float64)
        G += block.T @ block
    return G


def spectrum(X: Array) -> Spectrum:
    """The decomposition of X'X for X (n, p), from the smaller of X'X and XX'.

    Without the null directions it is exact for ``(X'X + g I)^-1 X'R``, which has no part in them; with them, a
    quotient of two rounding errors would be (centred attributes of C classes have rank C - 1).
    """
    wide = X.shape[0] < X.shape[1]
    e, V = scipy.linalg.eigh(gram(X.T if wide else X), driver="evd", check_finite=False)
    keep = e > max(X.shape) * np.finfo(np.float64).eps * max(float(e[-1]), 0.0)
    e, V = e[keep], V[:, keep]
    return Spectrum(e, X.T.astype(np.float64) @ V / np.sqrt(e) if wide else V)


class Conditioned:
    """Coordinates U (k, m) of weights ``W = V diag(d) U`` (p, m), ``d = 1 / sqrt(1 + strength e)``, V and e of X'X.

    A loss of X W with a penalty ``1/2 |W|^2``, whose second derivative in W is about ``strength X'X + I``, has one near
    the identity in U: descent takes tens of steps in place of hundreds. W has no part outside the rows of X; nor has
    the minimiser.
    """

    def __init__(self, of: Spectrum, strength: float, dtype: DTypeLike) -> None:
        self.vectors = of.vectors.astype(dtype, copy=False)
        self.shrink = (1 / np.sqrt(1 + strength * of.values)).astype(dtype)[:, None]

    def weights(self, U: Array) -> Array:
        """W (p, m) at U (k, m)."""
        return self.vectors @ (self.shrink * U)

    def slope(self, G: Array) -> Array:
        """Gradient in U (k, m) from the one in W (p, m)."""
        return self.shrink * (self.vectors.T @ G)

    def coordinates(self, W: Array) -> Array:
        """U (k, m) of the part of W (p, m) in the rows of X."""
        return (self.vectors.T @ W) / self.shrink


def ridge(of: Spectrum, R: Array, gamma: float) -> Array:
    """``(X'X + gamma I)^-1 R`` (p, k) for R (p, k) in the range of X'."""
    return of.vectors @ ((of.vectors.T @ R) / (of.values + gamma)[:, None])
