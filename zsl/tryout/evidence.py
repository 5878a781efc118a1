"""What the answers of a classifier are based on: attributes, nearest seen classes, and how sure they are."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from zsl.checks import Array
from zsl.classifier import ZeroShotClassifier
from zsl.data.dataset import ZeroShotData
from zsl.errors import UserError
from zsl.linalg import class_means, cosines

_NUMBERED = re.compile(r":\d+$")
# How many attributes and classes are named.
_NAMED = 5


@dataclass
class Answers:
    """The answers for the test images."""

    best: Array
    """(L,) position of the answer among the unseen classes"""
    second: Array
    """(L,) that of the class with the second highest score"""
    margin: Array
    """(L,) score of the first class minus that of the second, in units of the standard deviation of all scores"""

    def most_certain(self, m: int, n: int) -> Array:
        """The rows of the n images with the largest margins among those that class m is the answer for."""
        mine = np.flatnonzero(self.best == m)
        return mine[np.argsort(-self.margin[mine], kind="stable")[:n]]

    def least_certain(self, n: int) -> Array:
        """The rows of the n images with the smallest margins."""
        return np.argsort(self.margin, kind="stable")[:n]


def answers(scores: Array) -> Answers:
    """The answers from scores (L, M) with at least two classes.

    Examples
    --------
    >>> answers(np.array([[0.0, 2.0], [1.0, 0.0]])).best
    array([1, 0])
    """
    order = np.argsort(-scores, axis=1, kind="stable")
    rows = np.arange(len(scores))
    margin = scores[rows, order[:, 0]] - scores[rows, order[:, 1]]
    deviation = scores.std()
    rounding = 1e-9 * np.abs(scores).max()  # less than this is no difference
    return Answers(order[:, 0], order[:, 1], np.where(margin <= rounding, 0, margin / (deviation or 1.0)))


def telling_attributes(classifier: ZeroShotClassifier, X: Array, m: int) -> list[str]:
    """Names of the attributes that speak most for class m in the images X (L, p), the strongest first.

    An attribute counts with its mean predicted value times how far the class's value lies above the mean of the unseen
    classes; attributes that the class lacks do not count. Empty where
    the model predicts no attributes, or the attributes have no names.
    """
    names, table = classifier.attributes_.columns, classifier.class_attributes()
    if not len(X) or not all(isinstance(name, str) for name in names):
        return []
    try:
        predicted = classifier.predict_attributes(X)
    except UserError:
        return []
    Z = classifier.semantics_.transform(table.to_numpy(np.float64))
    if predicted.shape[1] != len(names) or Z.shape[1] != len(names):
        return []  # principal components have no names
    weight = predicted.mean(axis=0) * np.maximum(Z[m] - Z.mean(axis=0), 0)
    # A column of a network or of hashed words is called encoder:number.
    strongest = [a for a in np.argsort(-weight, kind="stable") if weight[a] > 0 and not _NUMBERED.search(str(names[a]))]
    return [str(names[a]) for a in strongest[:_NAMED]]


def nearest_seen(classifier: ZeroShotClassifier, data: ZeroShotData, X: Array) -> list[tuple[str, float]]:
    """The seen classes whose mean image is most like the images X (L, p), with the mean cosine to it."""
    if not len(X):
        return []
    means = class_means(classifier.preprocess_.transform(data.X), data.y)
    near = cosines(classifier.preprocess_.transform(X), means).mean(axis=0)
    return _named(near, [data.class_names[c] for c in data.seen])


def nearest_described(classifier: ZeroShotClassifier, m: int) -> list[tuple[str, float]]:
    """The seen classes whose description is most like that of unseen class m, with the cosine."""
    seen, unseen = classifier.class_attributes("seen"), classifier.class_attributes()
    rows = classifier.semantics_.transform(unseen.to_numpy(np.float64)[m : m + 1])
    near = cosines(rows, classifier.semantics_.transform(seen.to_numpy(np.float64)))[0]
    return _named(near, list(map(str, seen.index)))


def _named(near: Array, names: list[str]) -> list[tuple[str, float]]:
    return [(names[c], float(near[c])) for c in np.argsort(-near, kind="stable")[:3]]
