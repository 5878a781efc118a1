"""Methods of fitted models on images that lie in chunks on a Dask cluster."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np

from zsl.sparse.chunks import by_rows, is_chunked, map_rows

F = TypeVar("F", bound=Callable[..., Any])


def by_chunk(method: F) -> F:
    """Let a method that takes images X (L, p), each on its own, also take a ``dask.array``, and then return one.

    Nothing is computed yet but the result of one row, which tells shape and type. The result has a task for each chunk
    of rows, with the fitted model in it, but without its training data.
    """

    @wraps(method)
    def applied(self: Any, X: Any, *others: Any, **named: Any) -> Any:
        if not is_chunked(X):
            return method(self, X, *others, **named)
        if hasattr(self, "check_by_chunk"):
            self.check_by_chunk()
        light = _without_training_data(self)
        example = method(light, np.ones((1, X.shape[1]), X.dtype), *others, **named)
        return map_rows(Applied(method.__name__, light, others, named), X, example)

    return cast(F, applied)


def each_chunk(method: F) -> F:
    """Let a method that yields blocks of images X (L, p), each on its own, also take a ``dask.array``.

    Its chunks come to this process one after another.
    """

    @wraps(method)
    def applied(self: Any, X: Any, *others: Any, **named: Any) -> Any:
        if not is_chunked(X):
            return method(self, X, *others, **named)
        self.check_by_chunk()
        X = by_rows(X, "X")
        chunks = (X.blocks[k].compute() for k in range(X.numblocks[0]))
        return (block for chunk in chunks if len(chunk) for block in method(self, chunk, *others, **named))

    return cast(F, applied)


def _without_training_data(fitted: Any) -> Any:
    light = copy(fitted)
    for name in getattr(fitted, "training_only", ()):
        vars(light).pop(name, None)
    if hasattr(fitted, "model_"):
        light.model_ = _without_training_data(fitted.model_)
    return light


class Applied:
    """A method of a fitted model with all arguments but the images."""

    def __init__(self, name: str, model: Any, others: tuple[Any, ...], named: dict[str, Any]) -> None:
        self.__name__, self.model, self.others, self.named = name, model, others, named

    def __call__(self, X: Any) -> Any:
        return getattr(self.model, self.__name__)(X, *self.others, **self.named)
