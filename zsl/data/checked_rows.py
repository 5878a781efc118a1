"""Checks of the features and class names that an estimator is given in ``fit`` and ``predict``.

They are scikit-learn's for arrays; of a ``dask.array`` each chunk is checked where it is computed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from zsl.checks import Array, check_no_mask
from zsl.errors import UserError, reason
from zsl.sparse.chunks import is_chunked, without_missing

_FLOATS = [np.float64, np.float32]


def training_rows(estimator: Any, X: Any, y: Any) -> tuple[Any, Array]:
    """The features (n, p) and the class names (n,) that ``estimator`` is fitted to; a missing name is refused."""
    check_no_mask(X, "X")
    check_no_mask(y, "y", "leave these images out of fit")
    names = np.asarray(y, dtype=object)
    if names.ndim == 1 and pd.isna(names).any():
        row = int(pd.isna(names).argmax())
        raise UserError(f"y has no class name in row {row}; leave images of unknown class out of fit.")
    if is_chunked(X):
        # A dask.array has no names of columns; those of an earlier fit are not its own.
        vars(estimator).pop("feature_names_in_", None)
        X, y = without_missing(X, "X"), np.asarray(y)
        if y.shape != (len(X),):
            raise UserError(f"y has shape {y.shape} for the {len(X)} rows of X; one class name for each is needed.")
    else:
        X, y = validate_data(estimator, X, y, dtype=_FLOATS, ensure_min_samples=2)
    check_classification_targets(y)
    return X, y


def rows_like_training(estimator: Any, X: Any) -> Array:
    """The features (L, p) that the fitted ``estimator`` predicts from; raises UserError for others."""
    check_is_fitted(estimator)
    check_no_mask(X, "X")
    try:
        found: Array = validate_data(estimator, X, dtype=_FLOATS, reset=False)
    except ValueError as error:
        raise UserError(reason(error)) from error
    return found
