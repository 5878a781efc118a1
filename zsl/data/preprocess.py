"""Pre-processing of features and attributes, fitted on training images and seen classes only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils.validation import FLOAT_DTYPES, check_is_fitted, validate_data

from zsl.checks import Array, Count, NonNegative, Positive, check_fields, check_no_mask
from zsl.data.chunked_columns import deviations, known_means, largest, means, principal_axes
from zsl.data.dataset import ZeroShotData
from zsl.errors import UserError
from zsl.linalg import scaled_near_one, shares_of
from zsl.sparse.chunks import Chunks, by_rows, is_chunked, map_rows

# Computes a number for each column when it is called.
_Columns = Callable[[], Array]


class _SettingError(UserError):
    """A setting does not fit the data; the message begins with its name, before which a caller may put a key."""


@dataclass(eq=False, repr=False)
class Preprocess(TransformerMixin, BaseEstimator):
    """Fill missing values, take powers, centre, standardise, project on principal axes, scale rows to unit length.

    The steps are done in this order. The unit length comes last, so that lambda means the same whatever came before.
    Rows that are zero stay zero. With everything off, rows pass unchanged. A missing value (NaN) takes the mean of its
    column over the rows given to :meth:`fit`; a column without any value in these rows becomes zero. Nothing but the
    rows given to :meth:`fit` decides what happens to a row.

    Parameters
    ----------
    centre : bool
        Subtract the mean of the rows given to :meth:`fit`.
    l2 : bool
        Divide each row by its Euclidean length.
    standardise : bool
        Divide each column by its standard deviation over the rows given to :meth:`fit`; constant columns stay.
    power : float, optional
        ``sign(x) |x|^power`` for each value, after missing values are filled: 0.5 tempers the few large values of
        rectified features.
    pca : int, optional
        Keep this many principal components of the rows given to :meth:`fit` (needs ``centre``).
    dtype : "float64" or "float32"
        Precision of the result, and so of the sparse codes.
    block_weights : list of float, optional
        The share of each block of columns in the squared length of a row, where ``fit`` is given several ``blocks``,
        such as the features of two networks. All steps are done on each block by itself. The numbers are divided by
        their sum, and each block is multiplied by the square root of its number. Default: equal shares.

    Attributes
    ----------
    fill_, mean_, scale_, components_ : arrays or None
        What the steps learned: (p,), (p,), (p,) and (pca, p). Of several blocks only ``fill_`` is set.
    blocks_ : list of Preprocess
        The pre-processing of each block; empty where there is one.
    sizes_ : list of int
        The number of columns that each block has in the result.

    Examples
    --------
    >>> Preprocess(l2=False).fit_transform(np.array([[1.0, 4.0], [3.0, np.nan]]))
    array([[-1.,  0.],
           [ 1.,  0.]])
    """

    centre: bool = True
    l2: bool = True
    standardise: bool = False
    power: Positive | None = None
    pca: Count | None = None
    dtype: Literal["float64", "float32"] = "float64"
    block_weights: list[NonNegative] | None = None

    fill_: Array = field(init=False)
    mean_: Array | None = field(init=False)
    scale_: Array | None = field(init=False)
    components_: Array | None = field(init=False)
    blocks_: list[Preprocess] = field(init=False)
    sizes_: list[int] = field(init=False)

    def __post_init__(self) -> None:
        check_fields(self)

    def fit(self, X: Array, y: Any = None, blocks: Sequence[int] = ()) -> Preprocess:
        """Learn from the training rows X (n, p); ``y`` is not used.

        Parameters
        ----------
        blocks : sequence of int
            The sizes of the blocks of columns, where there are several.

        Raises
        ------
        UserError
            If ``pca`` is larger than the rows allow, ``block_weights`` has not one number for each block, or the blocks
            do not make up the columns.
        """
        check_fields(self)
        X = self._rows(X, reset=True)
        if blocks and (min(blocks) < 1 or sum(blocks) != X.shape[1]):
            raise UserError(f"blocks of {' + '.join(map(str, blocks))} columns do not make the {X.shape[1]} of X.")
        self.mean_ = self.scale_ = self.components_ = None
        weights = self._weights(max(len(blocks), 1))
        self.blocks_ = []
        if len(weights) > 1:
            alone = clone(self).set_params(block_weights=None)
            self.blocks_ = [clone(alone).fit(part) for part in _split(X, blocks)]
            self.fill_ = np.concatenate([part.fill_ for part in self.blocks_])
            self.sizes_ = [part.sizes_[0] for part in self.blocks_]
            return self
        if is_chunked(X):
            return self._fit_chunks(Chunks(X, "X", allow_nan=True))
        missing = np.isnan(X)
        if missing.any():
            known = [X[~missing[:, a], a] for a in range(X.shape[1])]
            self.fill_ = np.array([v.mean() if len(v) else np.nan for v in known])
        else:
            self.fill_ = X.mean(axis=0, dtype=np.float64)
        given, X = X, self._powered(self.filled(X))
        self._set_scales(partial(X.mean, axis=0), partial(X.std, axis=0), lambda: np.abs(X).max(axis=0))
        if self.pca is not None:
            self._check_pca(X.shape)
            X = self._scaled(X if X is not given else X.copy())
            from sklearn.decomposition import PCA

            # The covariance solver is exact and deterministic, and cheap where images outnumber features.
            solver = "covariance_eigh" if X.shape[0] > X.shape[1] else "full"
            self.components_ = PCA(self.pca, svd_solver=solver).fit(X).components_
        self.sizes_ = [self.pca or X.shape[1]]
        return self

    def _fit_chunks(self, X: Chunks) -> Preprocess:
        """Learn from one block of columns, whose rows lie in chunks on a Dask cluster."""
        # What goes to the workers changes no row in place, and knows nothing that is not learned yet.
        self.fill_ = known_means(X)
        prepare = copy(self)._prepared
        self._set_scales(*(partial(of, X, prepare) for of in (means, deviations, largest)))
        if self.pca is not None:
            self._check_pca(X.shape)
            self.components_ = principal_axes(X, copy(self)._prepared, self.pca)
        self.sizes_ = [self.pca or X.shape[1]]
        return self

    def _set_scales(self, mean: _Columns, deviation: _Columns, size: _Columns) -> None:
        """Keep of mean, standard deviation and largest size of the columns what the settings ask for."""
        self.mean_ = mean() if self.centre else None
        if self.standardise:
            found = deviation()
            # A column that varies by rounding only would be blown up to noise.
            self.scale_ = np.where(found <= 1e-12 * np.maximum(size(), 1e-300), 1.0, found)
        if not all(np.isfinite(v).all() for v in (self.mean_, self.scale_) if v is not None):
            raise UserError(
                f"values as large as {size().max():.0e} have no mean or deviation in float64; divide them, or mark "
                "missing values by NaN."
            )

    def _check_pca(self, shape: tuple[int, ...]) -> None:
        assert self.pca is not None
        if not self.centre:
            raise _SettingError("pca needs centre=true: principal axes are those of centred data.")
        if self.pca > min(shape):
            raise _SettingError(
                f"pca={self.pca} is more than the {min(shape)} components that the training data allow; choose at most "
                f"{min(shape)}."
            )

    def _rows(self, X: Any, *, reset: bool = False) -> Any:
        """X as a checked array, or as a ``dask.array``, whose chunks are checked where they lie."""
        if not is_chunked(X):
            check_no_mask(X, "X", "mark missing values by NaN, as X.filled(numpy.nan) does")
            return validate_data(
                self, X, dtype=FLOAT_DTYPES, ensure_all_finite="allow-nan", reset=reset,
                ensure_min_samples=int(reset),
            )  # fmt: skip
        X = by_rows(X, "X")
        if reset:
            self.__dict__.pop("feature_names_in_", None)
            self.n_features_in_ = X.shape[1]
        elif X.shape[1] != self.n_features_in_:
            raise UserError(f"X has {X.shape[1]} columns where {self.n_features_in_} are needed.")
        return X

    def _prepared(self, X: Array) -> Array:
        """Filled, with the power taken, centred and scaled, as far as :meth:`fit` has come."""
        return self._scaled(self._powered(self.filled(X), copy=True))

    def _weights(self, n: int) -> Array:
        """The share of each of n blocks, of sum 1."""
        given = [1.0] * n if self.block_weights is None else self.block_weights
        if len(given) != n or not any(given):
            there = "is one block" if n == 1 else f"are {n} blocks"
            raise _SettingError(
                f"block_weights={self.block_weights} does not fit: there {there} of columns, and each needs a number, "
                "not all zero."
            )
        return shares_of(given)

    def transform(self, X: Array) -> Array:
        """The same map for any rows X (m, p); every row on its own."""
        check_is_fitted(self)
        X = self._rows(X)
        if is_chunked(X):
            return map_rows(self.transform, X, np.empty((1, sum(self.sizes_)), self.dtype))
        if self.blocks_:
            sizes = [part.n_features_in_ for part in self.blocks_]
            shares = np.sqrt(self._weights(len(sizes))).astype(self.dtype)
            parts = zip(shares, self.blocks_, _split(X, sizes))
            return np.hstack([share * block.transform(part) for share, block, part in parts])
        X = self._prepared(X)
        if self.components_ is not None:
            X = X @ self.components_.T
        if self.l2:
            with np.errstate(over="ignore"):
                norms = np.linalg.norm(X, axis=1, keepdims=True)
            if not np.isfinite(norms).all():  # else rows would become zero without a word
                X = scaled_near_one(X)
                norms = np.linalg.norm(X, axis=1, keepdims=True)
            np.divide(X, norms, out=X, where=norms > 0)
        return X.astype(self.dtype, copy=False)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        return replace(tags, input_tags=replace(tags.input_tags, allow_nan=True))

    def filled(self, X: Array) -> Array:
        """X (m, p) with the missing values filled, and nothing else done."""
        without = np.isnan(self.fill_)
        if not without.any() and not np.isnan(X).any():
            return X
        return np.where(without, 0.0, np.where(np.isnan(X), self.fill_, X))

    def _powered(self, X: Array, *, copy: bool = False) -> Array:
        X = X.astype(np.float64, copy=copy)
        if self.power is None:
            return X
        return np.sign(X) * np.abs(X) ** self.power

    def _scaled(self, X: Array) -> Array:
        """Centred and divided by the columns' scale, in place."""
        if self.mean_ is not None:
            X -= self.mean_
        if self.scale_ is not None:
            X /= self.scale_
        return X


def _split(X: Array, sizes: Sequence[int]) -> list[Array]:
    """The blocks of columns of X (n, p)."""
    ends = np.cumsum(sizes)
    return [X[:, end - size : end] for end, size in zip(ends, sizes)]


def fit_both(data: ZeroShotData, feature: Preprocess, semantics: Preprocess) -> None:
    """Fit ``feature`` on the training images and ``semantics`` on the attributes of the seen classes.

    Raises
    ------
    UserError
        As :meth:`Preprocess.fit`; a setting is named by its whole key, since both have settings of the same names.
    """
    for key, transform, rows, blocks in (
        ("feature", feature, data.X, data.feature_blocks),
        ("dataset.semantics", semantics, data.Z_seen, data.attribute_blocks),
    ):
        try:
            transform.fit(rows, blocks=blocks)
        except _SettingError as error:
            raise UserError(f"{key}.{error}") from None


def preprocess(data: ZeroShotData, feature: Preprocess, semantics: Preprocess) -> ZeroShotData:
    """Pre-processed data: features by ``feature``, attributes by ``semantics``.

    ``feature`` is fitted on the training images, ``semantics`` on the attributes of the seen classes. An image without
    a value of its own for an attribute takes the value of its class.
    """
    fit_both(data, feature, semantics)
    own = data.Z_images
    if own is not None:
        own = np.where(np.isnan(own), semantics.filled(data.Z_seen)[data.y], own)
    return replace(
        data,
        X=feature.transform(data.X),
        X_test_seen=feature.transform(data.X_test_seen),
        X_unseen=feature.transform(data.X_unseen),
        attributes=semantics.transform(data.attributes),
        Z_images=None if own is None else semantics.transform(own),
    )
