"""Statistics of the columns of features that lie in chunks on a Dask cluster, as sums over the chunks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from zsl.checks import Array
from zsl.sparse.chunks import Chunks, products_of_columns

Prepare = Callable[[Array], Array]


def known_means(X: Chunks) -> Array:
    """(p,) means of the values of each column that are not missing; NaN where all are."""
    total, n = X.sum(_sums_of_known)
    with np.errstate(invalid="ignore"):
        return total / n


def means(X: Chunks, prepare: Prepare) -> Array:
    """Mean (p,) of each column of the prepared rows."""
    return X.sum(_sum_of, None, prepare) / len(X)


def deviations(X: Chunks, prepare: Prepare) -> Array:
    """Standard deviation (p,) of each column of the prepared rows."""
    return np.sqrt(X.sum(_squares_around, None, prepare, means(X, prepare)) / len(X))


def largest(X: Chunks, prepare: Prepare) -> Array:
    """Largest size (p,) in each column of the prepared rows."""
    return np.max(X.each(_largest, None, prepare), axis=0)


def principal_axes(X: Chunks, prepare: Prepare, n: int) -> Array:
    """(n, p) the first principal axes of the prepared rows, whose columns have the mean zero.

    The sign of each axis makes its largest entry by size positive, as in scikit-learn.
    """
    vectors = np.linalg.eigh(X.sum(_products, None, prepare) / (len(X) - 1))[1][:, ::-1].T[:n]
    signs = np.sign(vectors[np.arange(n), np.abs(vectors).argmax(axis=1)])
    return vectors * signs[:, None]


def _sums_of_known(X: Array, _: None) -> Array:
    known = ~np.isnan(X)
    return np.stack([np.where(known, X, 0).sum(axis=0, dtype=np.float64), known.sum(axis=0)])


def _sum_of(X: Array, _: None, prepare: Prepare) -> Array:
    return prepare(X).sum(axis=0, dtype=np.float64)


def _squares_around(X: Array, _: None, prepare: Prepare, mean: Array) -> Array:
    return np.square(prepare(X) - mean).sum(axis=0)


def _largest(X: Array, _: None, prepare: Prepare) -> Array:
    return np.abs(prepare(X)).max(axis=0)


def _products(X: Array, _: None, prepare: Prepare) -> Array:
    return products_of_columns(prepare(X))
