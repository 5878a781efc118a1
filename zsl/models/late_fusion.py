"""Late fusion: one model for each view of the data, whose scores are averaged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
from sklearn.base import clone

from zsl.checks import Array, NonNegative
from zsl.errors import UserError
from zsl.linalg import class_means, shares_of
from zsl.models.base import GridCache, InductiveModel, settings_key

Block = tuple[int, int | None]


@dataclass(eq=False, repr=False)
class LateFusion(InductiveModel):
    r"""The weighted mean of the scores of one model per view of the data, each brought to the same scale.

    A view is one network's features with one kind of attributes: two networks and one table of attributes are two
    views, as are one network with attributes and texts. The score of a class for an image is

    .. math:: \sum_v w_v \, f_v(x_v, s_v) / d_v \Big/ \sum_v w_v

    with f_v the model fitted to view v alone, and d_v the root mean square, over seen images, of the standard deviation
    of its scores over the seen classes. The score of a class does not depend on the other classes to choose from.

    Parameters
    ----------
    member : inductive model
        The model that each view gets its own copy of.
    weights : list of float, optional
        One weight for each view: the first network with each kind of attributes, then the second network. Default:
        equal weights.

    Attributes
    ----------
    members_ : list of models
        The fitted model of each view.
    deviations_ : (v,)
        d_v of each view.
    views_ : list of pairs of (start, stop)
        The columns of features and of attributes of each view. :class:`zsl.ZeroShotClassifier` sets them by
        :meth:`set_blocks`; without it, there is one view.

    Raises
    ------
    UserError
        In ``fit``, if ``weights`` are all zero or not one for each view, or if ``member`` is not inductive.

    Examples
    --------
    >>> import numpy as np
    >>> from zsl.models import Ridge
    >>> X, y, Z = np.eye(4)[:2], np.array([0, 1]), np.array([[1.0, -1.0], [-1.0, 1.0]])
    >>> model = LateFusion(Ridge()).set_blocks((2, 2), (2,)).fit(X, y, Z, Z_unseen=-Z)
    >>> len(model.members_), model.predict(X)
    (2, array([1, 0]))
    """

    member: Any
    weights: list[NonNegative] | None = None

    members_: list[Any] = field(init=False, repr=False)
    deviations_: Array = field(init=False, repr=False)
    views_: list[tuple[Block, Block]] = field(init=False, repr=False)

    def set_blocks(self, features: Sequence[int], attributes: Sequence[int]) -> LateFusion:
        """Divide the columns of features and attributes into blocks of these sizes, before ``fit``; returns self."""
        self.views_ = list(product(_blocks(features), _blocks(attributes)))
        return self

    def _fit(self, X: Array, y: Array, Z: Array, shared: GridCache) -> None:
        name = type(self.member).__name__
        if not isinstance(self.member, InductiveModel) or self.member.information:
            raise UserError(f"model.member={name} is not accepted: it should be an inductive model, such as eszsl.")
        if getattr(self.member, "one_space", False):
            raise UserError(
                f"model.member={name} compares images with classes in one space, and views are of several; take a "
                "model that learns how they go together, such as eszsl."
            )
        views = getattr(self, "views_", None) or [((0, None), (0, None))]
        self._shares(len(views))
        for what, matrix, of in (("features", X, 0), ("attributes", Z, 1)):
            widest = max(view[of][1] or matrix.shape[1] for view in views)
            if widest != matrix.shape[1]:
                raise UserError(
                    f"the blocks of {what} make {widest} columns, and there are {matrix.shape[1]}; call set_blocks."
                )
        fitted = []
        for columns, attributes in views:

            def fit(columns: Block = columns, attributes: Block = attributes) -> tuple[Any, float]:
                mine, images = _of(Z, attributes), _of(X, columns)
                seen = class_means(mine, y)
                member = clone(self.member, safe=False).fit(images, y, mine, seen)
                return member, float(np.sqrt(member.scores(images, seen).var(axis=1).mean())) or 1.0

            # A grid of weights needs each view's model once.
            fitted.append(shared((settings_key(self.member), columns, attributes), fit))
        self.views_ = views
        self.members_, self.deviations_ = [member for member, _ in fitted], np.array([d for _, d in fitted])

    def _scores(self, X: Array, S: Array) -> Array:
        parts = zip(self._shares(len(self.views_)) / self.deviations_, self.members_, self.views_)
        return sum(
            factor * member.scores(_of(X, columns), _of(S, attributes))
            for factor, member, (columns, attributes) in parts
        )  # fmt: skip

    def _shares(self, n: int) -> Array:
        given = [1.0] * n if self.weights is None else self.weights
        if len(given) != n or not any(given):
            raise UserError(
                f"model.weights={self.weights} does not fit {n} view{'s' * (n > 1)} of the data; give each view a "
                "number, not all zero."
            )
        return shares_of(given)


def _of(X: Array, block: Block) -> Array:
    return np.ascontiguousarray(X[:, slice(*block)])


def _blocks(sizes: Sequence[int]) -> list[Block]:
    ends = np.cumsum(sizes).tolist()
    return [(end - size, end) for size, end in zip(sizes, ends)]
