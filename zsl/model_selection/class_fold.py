"""Cross-validation over classes for scikit-learn: every fold tests on classes that it does not train on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from zsl.checks import Array, check_no_mask
from zsl.errors import UserError


class ClassFold(BaseEstimator):
    """K folds over the classes of ``y``, for ``cross_val_score`` and ``GridSearchCV``.

    Parameters
    ----------
    n_splits : int
        Number of folds, at least 2 and at most the number of classes.
    random_state : int
        Seed of the permutation of the classes.

    Examples
    --------
    >>> y = np.array(["cat", "cat", "dog", "horse", "zebra"])
    >>> for train, test in ClassFold(2).split(None, y):
    ...     print(sorted(set(y[test].tolist())))
    ['cat', 'horse']
    ['dog', 'zebra']
    """

    def __init__(self, n_splits: int = 5, random_state: int = 0) -> None:
        self.n_splits = n_splits
        self.random_state = random_state

    def split(self, X: Any, y: Any, groups: Any = None) -> Iterator[tuple[Array, Array]]:
        """Rows that train and rows that test, for each fold; ``X`` and ``groups`` are not used.

        Raises
        ------
        UserError
            If there are fewer classes than folds.
        """
        check_no_mask(y, "y", "leave these images out")
        classes, codes = np.unique(np.asarray(y), return_inverse=True)
        if not 2 <= self.n_splits <= len(classes):
            raise UserError(
                f"n_splits={self.n_splits} does not fit {len(classes)} classes; it is at least 2 and at most their "
                "number."
            )
        for held in class_folds(len(classes), self.n_splits, self.random_state):
            test = np.isin(codes, held)
            yield np.flatnonzero(~test), np.flatnonzero(test)

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """The number of folds."""
        return self.n_splits


def class_folds(n_classes: int, n_splits: int, seed: int) -> list[Array]:
    """Near-equal sets of classes 0..n_classes-1 under a seed, each ascending."""
    parts = np.array_split(np.random.default_rng(seed).permutation(n_classes), n_splits)
    return [np.sort(part) for part in parts]
