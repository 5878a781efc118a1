"""Kernel ridge regression from the attributes of classes to their statistics, such as mean features."""

from __future__ import annotations

from typing import Literal

import numpy as np
import scipy.linalg

from zsl.checks import Array
from zsl.linalg import Spectrum, squared_distances

Kernel = Literal["polynomial", "linear", "rbf"]


def kernel(A: Array, B: Array, kind: Kernel, gamma: float = 1.0) -> Array:
    """Kernel (L, C) between the attributes A (L, q) and B (C, q).

    ``polynomial`` is ``(1 + a.b)^2``, ``linear`` is ``a.b`` and ``rbf`` is ``exp(-gamma |a - b|^2)``.

    Examples
    --------
    >>> kernel(np.array([[1.0, 2.0]]), np.array([[1.0, 1.0]]), "polynomial")
    array([[16.]])
    """
    A, B = A.astype(np.float64), B.astype(np.float64)
    if kind == "rbf":
        return np.exp(-np.minimum(gamma * squared_distances(A, B), 700.0))
    return A @ B.T if kind == "linear" else (1 + A @ B.T) ** 2


def decompose(K: Array) -> Spectrum:
    """``K = U diag(e) U'`` for a kernel matrix K (C, C), without the directions in which K is zero to rounding.

    For targets T (C, k), ``linalg.ridge(decompose(K), T, gamma)`` is ``(K + gamma I)^-1 T``, the coefficients of kernel
    ridge regression; a prediction is ``kernel(new, seen)`` times them. With gamma = 0 they are those of least norm.
    """
    if not np.isfinite(K).all():
        raise FloatingPointError
    e, U = scipy.linalg.eigh(K, driver="evd")
    keep = e > len(K) * np.finfo(np.float64).eps * max(float(e[-1]), 0.0)
    return Spectrum(e[keep], U[:, keep])
