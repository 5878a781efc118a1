"""What the rest of the project asks of a model."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from zsl.checks import Array, as_matrix
from zsl.errors import UserError


class Model(Protocol):
    """A zero-shot classifier. No unseen image or unseen label is an argument of ``fit``, so none can leak."""

    def fit(self, X: Array, y: Array, Z: Array, Z_unseen: Array) -> Model:
        """X (n, p), y (n,) 0..C_seen-1, Z (n, q) attributes of each image, Z_unseen (M, q). Returns self."""
        ...

    def scores(self, X: Array, class_attributes: Array | None = None) -> Array:
        """(L, C) larger is likelier, for the classes given; ``None``: the unseen ones of ``fit``."""
        ...


def check_training(X: Array, y: Array, Z: Array, Z_unseen: Array) -> tuple[Array, Array, Array, Array]:
    """The arguments of ``fit`` as float matrices and integer labels that fit together.

    Raises
    ------
    UserError
        On NaN, shapes that disagree, labels that are not 0..C_seen-1 or classes without images.
    """
    X = as_matrix(X, "X")
    Z = as_matrix(Z, "Z", n_rows=len(X)).astype(X.dtype, copy=False)
    Z_unseen = as_matrix(Z_unseen, "Z_unseen", n_columns=Z.shape[1]).astype(X.dtype, copy=False)
    y = np.asarray(y)
    if y.shape != (len(X),) or not np.issubdtype(y.dtype, np.integer):
        raise UserError(
            f"y has shape {y.shape} and type {y.dtype}; one integer for each of the {len(X)} rows of X is needed."
        )
    if y.min() != 0 or len(np.unique(y)) != y.max() + 1:
        raise UserError("y must number the seen classes 0..C-1, each with at least one image.")
    return X, y, Z, Z_unseen


def need_fitted(model: object, attribute: str) -> None:
    """Raise UserError unless ``fit`` has set ``attribute``."""
    if getattr(model, attribute, None) is None:
        raise UserError(f"{type(model).__name__} is not fitted; call fit(X, y, Z, Z_unseen) first.")
