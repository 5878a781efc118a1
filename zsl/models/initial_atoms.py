"""The dictionary that learning starts from, and the penalty at which its codes vanish."""

from __future__ import annotations

import math

import numpy as np

from zsl.checks import Array
from zsl.sparse import lambda_max
from zsl.sparse.chunks import Chunks, products_of_columns, sum_over
from zsl.sparse.dictionary import unit_atoms

# The default number of atoms stays below this limit, so that learning takes minutes and not hours on two cores.
MAX_ATOMS = 2560
# Rows that are read at once, and images whose lambda_max is computed.
_BLOCK = 4096


def default_n_atoms(n: int, p: int, q: int) -> int:
    """Number of atoms for ``n_atoms=None``, given n images, p features and q attributes.

    Examples
    --------
    >>> default_n_atoms(10_000, 64, 16)
    80
    """
    return min(math.ceil(1.25 * max(p, q)), n, MAX_ATOMS)


def initial_atoms(X: Array, r: int, how: str, rng: np.random.Generator) -> Array:
    """Initial visual dictionary (r, p) of unit atoms from X (n, p), by the ``init`` of :class:`CoupledDictionaries`."""
    D = rng.standard_normal((r, X.shape[1])).astype(X.dtype)
    if how == "samples":
        if isinstance(X, Chunks):
            nonzero = np.concatenate(X.each(any_nonzero))
        else:
            nonzero = np.concatenate([any_nonzero(X[i : i + _BLOCK]) for i in range(0, len(X), _BLOCK)])
        candidates = rng.permutation(np.flatnonzero(nonzero))[:r]
        order = np.argsort(candidates)
        D[order] = X[candidates[order]]
    elif how == "pca":
        # The singular vectors come from X'X, so X may be read in pieces.
        vectors = np.linalg.eigh(sum_over(products_of_columns, X))[1][:, ::-1].T[: min(r, len(X))]
        D[: len(vectors)] = vectors
    return unit_atoms(D)


def mean_lambda_max(X: Array, D: Array) -> float:
    """The mean of :func:`zsl.sparse.lambda_max` over the images, or over as many as a block has, spread evenly."""
    n = len(X)
    few = None if n <= _BLOCK else np.linspace(0, n - 1, _BLOCK).astype(np.int64)
    if isinstance(X, Chunks):
        which = np.arange(n) if few is None else few
        return float(np.concatenate(X.each(lambda_max_of, X.parts(which), D)).mean())
    return float(lambda_max(X[:] if few is None else X[few], D).mean())


def any_nonzero(X: Array, _: None = None) -> Array:
    """(n,) whether a row of X (n, p) has an entry that is not zero."""
    return np.any(X != 0, axis=1)


def lambda_max_of(X: Array, rows: Array, D: Array) -> Array:
    """:func:`zsl.sparse.lambda_max` of some rows of X."""
    return lambda_max(X[rows], D)
