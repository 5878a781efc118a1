"""Eigendecompositions of Gram matrices: one serves the ridge solutions for every penalty."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg

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


def ridge(of: Spectrum, R: Array, gamma: float) -> Array:
    """``(X'X + gamma I)^-1 R`` (p, k) for R (p, k) in the range of X'."""
    return of.vectors @ ((of.vectors.T @ R) / (of.values + gamma)[:, None])
