"""The interface of a zero-shot model, and the base classes of the models.

Derive a model of your own from :class:`InductiveModel`: it is a dataclass of settings with two methods, ``_fit`` and
``_scores``. The base class checks arguments and data, so that the two methods hold the method's formulas alone.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, Protocol, Self, TypeVar

import joblib
import numpy as np
from sklearn.base import BaseEstimator

from zsl.checks import Array, as_matrix, check_fields, check_no_overflow
from zsl.errors import UserError
from zsl.linalg import cosines, squared_distances
from zsl.models.by_chunk import by_chunk
from zsl.models.rows import check_training

T = TypeVar("T")
Metric = Literal["cosine", "nearest", "dot"]


class Model(Protocol):
    """Interface of a zero-shot model: ``fit`` takes attributes of unseen classes, never their images or labels."""

    def fit(self, X: Array, y: Array, Z: Array, Z_unseen: Array) -> Model:
        """Learn from seen images.

        Parameters
        ----------
        X : (n, p)
            Features of the training images.
        y : (n,) int
            Their classes, 0..C-1.
        Z : (n, q)
            Attributes of every image, usually those of its class.
        Z_unseen : (M, q)
            Attributes of the unseen classes.

        Returns
        -------
        self
        """
        ...

    def scores(self, X: Array, class_attributes: Array | None = None) -> Array:
        """Scores (L, C) of images X (L, p) for classes (C, q); ``None`` stands for the unseen classes of ``fit``."""
        ...

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments, as for every scikit-learn estimator."""
        ...


class PredictMixin:
    """Adds ``predict`` to a class with ``scores``."""

    @by_chunk
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
        (L,) int
            Row numbers of ``class_attributes``.
        """
        return self.scores(X, class_attributes).argmax(axis=1)  # type: ignore[attr-defined]


def check_fitted(model: object, attribute: str) -> None:
    """Raise UserError unless ``fit`` has set ``attribute``."""
    if getattr(model, attribute, None) is None:
        raise UserError(f"{type(model).__name__} is not fitted; call fit(X, y, Z, Z_unseen) first.")


class GridCache:
    """Cache of the values that the fits of one grid share: ``shared(key, compute)`` computes a value only once.

    A model that is fitted alone gets an empty cache, so its code is the same.

    Examples
    --------
    >>> shared = GridCache()
    >>> shared("two", lambda: 2), shared("two", lambda: 3)
    (2, 2)
    """

    def __init__(self) -> None:
        self._kept: dict[Hashable, Any] = {}

    def __call__(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return the value under ``key``, computed the first time; the key must name everything it depends on."""
        if key not in self._kept:
            self._kept[key] = compute()
        return self._kept[key]


@contextmanager
def _in_range(model: object) -> Iterator[None]:
    """Turn an overflow, as from a penalty of 1e300, into a UserError."""
    try:
        yield
    except (ArithmeticError, np.linalg.LinAlgError, ValueError) as error:
        # SciPy reports numbers that are not finite as a ValueError; a UserError, which is one too, has its sentence.
        numeric = isinstance(error, ArithmeticError | np.linalg.LinAlgError)
        if isinstance(error, UserError) or not (numeric or re.search("infs or NaNs|invalid numeric", str(error))):
            raise
        raise UserError(
            f"{model} leaves the range of floating point on these data; "
            "scale features and attributes to length 1 and choose settings nearer to the defaults."
        ) from error


def _shares_fits(kind: type) -> bool:
    """Whether a class has ``fit_grid``, and no subclass has overridden ``fit`` alone."""
    by = [next((c for c in kind.__mro__ if name in vars(c)), None) for name in ("fit", "fit_grid")]
    return by[1] is not None and by[0] is by[1]


def fit_all(models: Sequence[Any], X: Array, y: Array, Z: Array, Z_unseen: Array) -> Iterator[Any]:
    """Fit models to the same data one after another; models of one class share computations.

    Parameters
    ----------
    models : sequence of models
    X, y, Z, Z_unseen
        As in :meth:`Model.fit`.

    Yields
    ------
    the fitted models, in order
    """
    kinds = {type(model) for model in models}
    if len(models) > 1 and len(kinds) == 1 and _shares_fits(type(models[0])):
        yield from kinds.pop().fit_grid(models, X, y, Z, Z_unseen)
    else:
        yield from (model.fit(X, y, Z, Z_unseen) for model in models)


def alike(members: Iterable[int], parts: Callable[[int], Iterable[Any]]) -> list[list[int]]:
    """Group members whose parts are estimators of one class with equal settings, in the order of the first ones."""
    groups: dict[Hashable, list[int]] = {}
    for i in members:
        groups.setdefault(tuple(settings_key(part) for part in parts(i)), []).append(i)
    return list(groups.values())


def settings_key(estimator: Any) -> Hashable:
    """A key that two estimators share if their class and settings are equal; an object without settings has its own."""
    if not hasattr(estimator, "get_params"):
        return id(estimator)
    settings = sorted(estimator.get_params().items())
    try:
        # repr leaves out the middle of long lists and arrays, and the last digits of numbers in arrays.
        return type(estimator), joblib.hash(settings)
    except Exception:  # whatever a function or a class without a place in a module raises
        with np.printoptions(threshold=sys.maxsize, floatmode="unique"):
            return type(estimator), repr(settings)


def check_model(model: Any) -> None:
    """Refuse what has no ``scores``, and a class in place of a model."""
    if isinstance(model, type) or not hasattr(model, "scores"):
        raise UserError(
            f"model={model!r} has no fit and scores as those of zsl.models have; give one, such as Ridge()."
        )


class InductiveModel(PredictMixin, BaseEstimator):
    """Base class of inductive models, which learn from seen images and their attributes alone.

    A subclass is a dataclass (``@dataclass(eq=False, repr=False)``) whose fields are its settings, with two methods:

    * ``_fit(X, y, Z, shared)`` sets the fitted attributes, whose names end in ``_``. Its arguments contain neither an
      unseen image nor an unseen class, so a subclass is inductive by construction. ``shared`` is a :class:`GridCache`.
    * ``_scores(X, S)`` returns the scores (L, C) of images X (L, p) for classes S (C, q).

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> from zsl.linalg import class_means
    >>> @dataclass(eq=False, repr=False)
    ... class NearestSeenClass(InductiveModel):
    ...     "Score a class by the similarity of its attributes to those of the nearest seen class."
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
        """What training used beyond the seen images and their attributes, which is nothing."""
        return ()

    def fit(self, X: Array, y: Array, Z: Array, Z_unseen: Array) -> Self:
        """Learn from seen images; arguments as in :meth:`Model.fit`. ``scores`` alone uses ``Z_unseen``.

        Raises
        ------
        UserError
            For arguments that do not fit together, see :func:`check_training`, and for settings with which the fit
            leaves the range of floating point.
        """
        return next(self.fit_grid([self], X, y, Z, Z_unseen))

    @classmethod
    def fit_grid(cls, models: Iterable[Self], X: Array, y: Array, Z: Array, Z_unseen: Array) -> Iterator[Self]:
        """Fit models with different settings to the same data, one after another, with a shared cache."""
        X, y, Z, Z_unseen = check_training(X, y, Z, Z_unseen)
        shared = GridCache()
        for model in models:
            # A field may have changed since the constructor checked it.
            check_fields(model)
            with _in_range(model):
                model._fit(X, y, Z, shared)
            model.Z_unseen_, model.n_features_ = Z_unseen, X.shape[1]
            yield model

    @by_chunk
    def scores(self, X: Array, class_attributes: Array | None = None) -> Array:
        """Score every image for every class; larger is likelier.

        Parameters
        ----------
        X : (L, p)
        class_attributes : (C, q), optional
            The classes; by default the unseen classes of ``fit``.

        Returns
        -------
        (L, C)

        Raises
        ------
        UserError
            Before ``fit``, for matrices that do not fit, and if scores leave the range of floating point.
        """
        X = self._images(X)
        Z = self.Z_unseen_ if class_attributes is None else class_attributes
        Z = as_matrix(Z, "class_attributes", n_columns=self.Z_unseen_.shape[1])
        check_no_overflow(Z, "class_attributes", self.Z_unseen_.dtype)
        with _in_range(self):
            scores = self._scores(X, Z.astype(self.Z_unseen_.dtype, copy=False))
            if not np.isfinite(scores).all():
                raise FloatingPointError
        return scores

    def _images(self, X: Array) -> Array:
        check_fitted(self, "Z_unseen_")
        X = as_matrix(X, "X", n_columns=self.n_features_)
        check_no_overflow(X, "X")
        return X

    def _fit(self, X: Array, y: Array, Z: Array, shared: GridCache) -> None:
        raise NotImplementedError

    def _scores(self, X: Array, S: Array) -> Array:
        raise NotImplementedError


class AttributePredictor(InductiveModel):
    """Base class of models that predict the attributes of an image, so that every label rule applies to them.

    A subclass defines ``_attributes(X)`` and a setting ``metric``, which compares predicted and class attributes in the
    scores, or scores of its own.
    """

    metric: Metric

    @by_chunk
    def predict_attributes(self, X: Array) -> Array:
        """Attributes (L, q) of images X (L, p)."""
        return self._attributes(self._images(X))

    def _attributes(self, X: Array) -> Array:
        raise NotImplementedError

    def _scores(self, X: Array, S: Array) -> Array:
        return compare(self._attributes(X), S, self.metric)


def compare(U: Array, V: Array, metric: Metric) -> Array:
    """Similarity (L, C) of the rows of U (L, k) and V (C, k): cosine, negative squared distance or inner product.

    Examples
    --------
    >>> compare(np.array([[3.0, 4.0]]), np.eye(2), "cosine")
    array([[0.6, 0.8]])
    """
    if metric == "dot":
        return U @ V.T
    return cosines(U, V) if metric == "cosine" else -squared_distances(U, V)
