"""What every model offers, and the classes that a model of one's own derives from.

:class:`InductiveModel` is the class to derive from: a dataclass of settings with ``_fit`` and ``_scores``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, Protocol, Self, TypeVar, cast

import numpy as np
from sklearn.base import BaseEstimator

from zsl.checks import Array, Rows, as_matrix, check_fields, need_squares
from zsl.errors import UserError
from zsl.linalg import cosines, squared_distances

T = TypeVar("T")
Metric = Literal["cosine", "nearest", "dot"]


class Model(Protocol):
    """A zero-shot model. No unseen image and no unseen label is an argument of ``fit``, so none can leak."""

    def fit(self, X: Array, y: Array, Z: Array, Z_unseen: Array) -> Model:
        """Learn from X (n, p), labels y (n,) 0..C-1, image attributes Z (n, q) and Z_unseen (M, q); returns self."""
        ...

    def scores(self, X: Array, class_attributes: Array | None = None) -> Array:
        """Scores (L, C), larger is likelier, for the classes given; ``None``: for the unseen classes of ``fit``."""
        ...

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments, as of every scikit-learn estimator."""
        ...


class PredictMixin:
    """``predict`` for everything that has ``scores``."""

    def predict(self, X: Array, class_attributes: Array | None = None) -> Array:
        """The class with the highest score for each image.

        Parameters
        ----------
        X : (L, p)
            Images.
        class_attributes : (C, q), optional
            The classes to choose from; by default the unseen classes of ``fit``.

        Returns
        -------
        (L,) integers: rows of ``class_attributes``
        """
        return self.scores(X, class_attributes).argmax(axis=1)  # type: ignore[attr-defined]


def check_training(
    X: Array, y: Array, Z: Array, Z_unseen: Array, *, in_pieces: bool = False
) -> tuple[Array, Array, Array, Array]:
    """The arguments of ``fit`` as float matrices and integer labels that fit together.

    Parameters
    ----------
    X, y, Z, Z_unseen
        As in :class:`Model`.
    in_pieces : bool
        X may be anything that :class:`zsl.checks.Rows` reads; it stays where it is.

    Raises
    ------
    UserError
        On NaN, shapes that disagree, numbers whose squares overflow or underflow, labels that are not 0..C_seen-1
        or classes without images.
    """
    X = cast(Array, Rows(X, "X")) if in_pieces and hasattr(X, "shape") else as_matrix(X, "X")
    Z = as_matrix(Z, "Z", n_rows=len(X))
    Z_unseen = as_matrix(Z_unseen, "Z_unseen", n_columns=Z.shape[1])
    for what, name in ((X, "X"), (Z, "Z"), (Z_unseen, "Z_unseen")):
        need_squares(what, name, X.dtype)
    Z, Z_unseen = Z.astype(X.dtype, copy=False), Z_unseen.astype(X.dtype, copy=False)
    try:
        y = np.asarray(y)
    except ValueError:
        raise UserError("y has rows of different lengths; one integer for each row of X is needed.") from None
    if y.shape != (len(X),) or not np.issubdtype(y.dtype, np.integer):
        raise UserError(
            f"y has shape {y.shape} and type {y.dtype}; one integer for each of the {len(X)} rows of X is needed."
        )
    # As many classes as images at most: a stray label must not make a count of its size.
    if y.min() != 0 or y.max() >= len(y) or not np.bincount(y).all():
        raise UserError(
            f"y holds {y.min()} to {y.max()}; it must number the seen classes 0..C-1 without gaps, "
            "each with at least one image."
        )
    return X, y, Z, Z_unseen


def need_fitted(model: object, attribute: str) -> None:
    """Raise UserError unless ``fit`` has set ``attribute``."""
    if getattr(model, attribute, None) is None:
        raise UserError(f"{type(model).__name__} is not fitted; call fit(X, y, Z, Z_unseen) first.")


class GridCache:
    """Keeps what the fits of one grid have in common: ``shared(key, compute)`` computes a value only once.

    A model that is fitted alone gets an empty cache, so the same code serves both.
    """

    def __init__(self) -> None:
        self._kept: dict[Hashable, Any] = {}

    def __call__(self, key: Hashable, compute: Callable[[], T]) -> T:
        """The value under ``key``; ``compute()`` the first time. All that it depends on must be in the key."""
        if key not in self._kept:
            self._kept[key] = compute()
        return self._kept[key]


@contextmanager
def _in_range(model: object) -> Iterator[None]:
    """Settings and data that numbers cannot hold (a penalty of 1e300) end in a sentence."""
    try:
        yield
    except (ArithmeticError, np.linalg.LinAlgError) as error:
        raise UserError(
            f"{model} leaves the range of floating point on these data; "
            "scale features and attributes to length 1 and choose settings nearer to the defaults."
        ) from error


def _shares_fits(kind: type) -> bool:
    """Whether a model has ``fit_grid``, and no subclass replaced ``fit`` alone."""
    by = [next((c for c in kind.__mro__ if name in vars(c)), None) for name in ("fit", "fit_grid")]
    return by[1] is not None and by[0] is by[1]


def fit_all(models: Sequence[Any], X: Array, y: Array, Z: Array, Z_unseen: Array) -> Iterator[Any]:
    """Fit models to the same data, one after another, and share what fits of one kind have in common."""
    kinds = {type(model) for model in models}
    if len(models) > 1 and len(kinds) == 1 and _shares_fits(type(models[0])):
        yield from kinds.pop().fit_grid(models, X, y, Z, Z_unseen)
    else:
        yield from (model.fit(X, y, Z, Z_unseen) for model in models)


class InductiveModel(PredictMixin, BaseEstimator):
    """The class that an inductive model derives from.

    A subclass is a dataclass (``@dataclass(eq=False, repr=False)``) whose fields are its settings, with two methods:

    * ``_fit(X, y, Z, shared)`` sets the fitted attributes, whose names end in ``_``. It gets neither an unseen image
      nor an unseen class, so a subclass is inductive by construction. ``shared`` is a :class:`GridCache`.
    * ``_scores(X, S)`` returns the scores (L, C) of images X (L, p) for classes S (C, q).

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> from zsl.linalg import class_means
    >>> @dataclass(eq=False, repr=False)
    ... class NearestSeenClass(InductiveModel):
    ...     "Scores a class by how similar its attributes are to those of the nearest seen class."
    ...     def _fit(self, X, y, Z, shared):
    ...         self.means_, self.S_ = class_means(X, y), class_means(Z, y)
    ...     def _scores(self, X, S):
    ...         nearest = -squared_distances(X, self.means_)
    ...         return self.S_[nearest.argmax(axis=1)] @ S.T
    >>> X, y = np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([0, 1])
    >>> model = NearestSeenClass().fit(X, y, Z=np.eye(2), Z_unseen=np.array([[1.0, 0.1], [0.1, 1.0]]))
    >>> model.predict(np.array([[0.1, 0.9]]))
    array([0])
    """

    Z_unseen_: Array
    n_features_: int

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def information(self) -> tuple[str, ...]:
        """What training used beyond the seen images and their attributes: nothing."""
        return ()

    def fit(self, X: Array, y: Array, Z: Array, Z_unseen: Array) -> Self:
        """Learn from seen images; shapes as in :class:`Model`. ``Z_unseen`` is kept for ``scores`` alone.

        Raises
        ------
        UserError
            On arguments that do not fit together, see :func:`check_training`; on settings for which the fit is no
            finite number.
        """
        return next(self.fit_grid([self], X, y, Z, Z_unseen))

    @classmethod
    def fit_grid(cls, models: Iterable[Self], X: Array, y: Array, Z: Array, Z_unseen: Array) -> Iterator[Self]:
        """Fit models that differ in their settings to the same data, one after another, sharing what they can."""
        X, y, Z, Z_unseen = check_training(X, y, Z, Z_unseen)
        shared = GridCache()
        for model in models:
            # A field may have been set since the constructor looked.
            check_fields(model)
            with _in_range(model):
                model._fit(X, y, Z, shared)
            model.Z_unseen_, model.n_features_ = Z_unseen, X.shape[1]
            yield model

    def scores(self, X: Array, class_attributes: Array | None = None) -> Array:
        """(L, C) scores of images X (L, p), larger is likelier; ``None``: for the unseen classes of ``fit``."""
        X = self._images(X)
        Z = self.Z_unseen_ if class_attributes is None else class_attributes
        Z = as_matrix(Z, "class_attributes", n_columns=self.Z_unseen_.shape[1])
        need_squares(Z, "class_attributes", self.Z_unseen_.dtype)
        with _in_range(self):
            scores = self._scores(X, Z.astype(self.Z_unseen_.dtype, copy=False))
            if not np.isfinite(scores).all():
                raise FloatingPointError
        return scores

    def _images(self, X: Array) -> Array:
        need_fitted(self, "Z_unseen_")
        X = as_matrix(X, "X", n_columns=self.n_features_)
        need_squares(X, "X")
        return X

    def _fit(self, X: Array, y: Array, Z: Array, shared: GridCache) -> None:
        raise NotImplementedError

    def _scores(self, X: Array, S: Array) -> Array:
        raise NotImplementedError


class AttributePredictor(InductiveModel):
    """A baseline that predicts attributes of an image, so that it goes with any label rule."""

    def predict_attributes(self, X: Array) -> Array:
        """Attributes (L, q) of images X (L, p)."""
        return self._attributes(self._images(X))

    def _attributes(self, X: Array) -> Array:
        raise NotImplementedError


def compare(U: Array, V: Array, metric: Metric) -> Array:
    """(L, C) similarity of the rows of U (L, k) and of V (C, k): cosine, negative squared distance, or product."""
    if metric == "dot":
        return U @ V.T
    return cosines(U, V) if metric == "cosine" else -squared_distances(U, V)
