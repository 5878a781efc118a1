"""Pre-processing of features and attributes, fitted on training rows only."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from zsl.checks import Array, Count, Positive, check_fields
from zsl.data.dataset import ZeroShotData
from zsl.errors import UserError


@dataclass
class Preprocess:
    """Power, centre, standardise, project on principal axes, scale each row to unit length; in this order.

    The unit length comes last so that lambda means the same whatever came before. Rows that are zero stay zero.
    With everything off, rows pass unchanged. Nothing but the rows given to :meth:`fit` decides what happens to a row.

    Parameters
    ----------
    centre : bool
        Subtract the mean of the rows given to :meth:`fit`.
    l2 : bool
        Divide each row by its Euclidean length.
    standardise : bool
        Divide each column by its standard deviation over the rows given to :meth:`fit`; constant columns stay.
    power : float, optional
        ``sign(x) |x|^power`` for each value, first of all: 0.5 tempers the few large values of rectified features.
    pca : int, optional
        Keep this many principal components of the rows given to :meth:`fit` (needs ``centre``).
    dtype : "float64" or "float32"
        Precision of the result, and so of the sparse codes.
    """

    centre: bool = True
    l2: bool = True
    standardise: bool = False
    power: Positive | None = None
    pca: Count | None = None
    dtype: Literal["float64", "float32"] = "float64"
    mean_: Array | None = field(default=None, init=False, repr=False)
    scale_: Array | None = field(default=None, init=False, repr=False)
    components_: Array | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        check_fields(self)

    def fit(self, X: Array) -> Preprocess:
        """Learn the mean and the axes from X (n, p), training rows only. Raises UserError if pca is too large."""
        given, X = X, self._powered(X)
        self.mean_ = X.mean(axis=0) if self.centre else None
        self.scale_ = None
        if self.standardise:
            deviation = X.std(axis=0)
            # A column that varies by rounding only would be blown up to noise.
            constant = deviation <= 1e-12 * np.maximum(np.abs(X).max(axis=0), 1e-300)
            self.scale_ = np.where(constant, 1.0, deviation)
        self.components_ = None
        self.check(X.shape)
        if self.pca is not None:
            X = self._scaled(X if X is not given else X.copy())
            from sklearn.decomposition import PCA

            # The covariance solver is exact and deterministic, and cheap where images outnumber features.
            solver = "covariance_eigh" if X.shape[0] > X.shape[1] else "full"
            self.components_ = PCA(self.pca, svd_solver=solver).fit(X).components_
        return self

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise the UserError that :meth:`fit` would raise for rows of this shape (n, p)."""
        if self.pca is None:
            return
        if not self.centre:
            raise UserError("pca needs centre=true: principal axes are those of centred data.")
        if self.pca > min(shape):
            raise UserError(f"pca={self.pca} is more than the training data allow: {min(shape)}.")

    def transform(self, X: Array) -> Array:
        """The same map for any rows (m, p); every row on its own."""
        X = self._scaled(self._powered(X, copy=True))
        if self.components_ is not None:
            X = X @ self.components_.T
        if self.l2:
            norms = np.linalg.norm(X, axis=1, keepdims=True)
            np.divide(X, norms, out=X, where=norms > 0)
        return X.astype(self.dtype, copy=False)

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


def preprocess(data: ZeroShotData, feature: Preprocess, semantics: Preprocess) -> ZeroShotData:
    """Features by ``feature`` fitted on the training images, attributes by ``semantics`` fitted on the seen classes."""
    feature.fit(data.X)
    semantics.fit(data.Z_seen)
    return replace(
        data,
        X=feature.transform(data.X),
        X_test_seen=feature.transform(data.X_test_seen),
        X_unseen=feature.transform(data.X_unseen),
        attributes=semantics.transform(data.attributes),
        Z_images=None if data.Z_images is None else semantics.transform(data.Z_images),
    )
