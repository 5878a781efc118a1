"""Whether one method is better than another, from runs on the same class splits.

Dictionary seeds say how much a method varies by itself, not how it would do on other classes: they are averaged first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from zsl.checks import Array
from zsl.errors import UserError
from zsl.report.numbers import by_split

_LEVEL = 0.95


@dataclass
class Difference:
    """First minus second."""

    mean: float
    low: float
    high: float
    """95 % interval"""
    p: float
    """Two-sided; of the bootstrap none is given (NaN)"""
    how: str
    n: int
    """Splits, or classes"""


def corrected_t(d: Array, n_test: float, n_train: float) -> Difference:
    r"""Paired differences d (J,) over random splits that overlap (Nadeau and Bengio, Machine Learning 2003).

    The variance of the mean is :math:`(1/J + n_{test}/n_{train}) s^2`, with s^2 the variance of d: the plain 1/J takes
    splits that share their training classes for independent ones. t with J - 1 degrees of freedom.

    Parameters
    ----------
    n_test, n_train : numbers of unseen and of seen classes, because classes are what is split.
    """
    J, mean, s = len(d), float(d.mean()), float(d.std(ddof=1))
    error = s * np.sqrt(1 / J + n_test / n_train)
    half = float(stats.t.ppf(0.5 + _LEVEL / 2, J - 1)) * error
    p = float(2 * stats.t.sf(abs(mean) / error, J - 1)) if error > 0 else (1.0 if mean == 0 else 0.0)
    return Difference(mean, mean - half, mean + half, p, f"{J} splits, Nadeau-Bengio", J)


def bootstrap(d: Array, *, n_draws: int = 10_000, seed: int = 0) -> Difference:
    """Paired differences d (M,) of per-class accuracies on one split: percentile bootstrap over the classes."""
    rng = np.random.default_rng(seed)
    means = d[rng.integers(len(d), size=(n_draws, len(d)))].mean(axis=1)
    low, high = np.quantile(means, [0.5 - _LEVEL / 2, 0.5 + _LEVEL / 2])
    return Difference(
        float(d.mean()), float(low), float(high), float("nan"), f"bootstrap over {len(d)} classes", len(d)
    )


def difference(
    first: Iterable[Mapping[str, Any]], second: Iterable[Mapping[str, Any]], metric: str = "acc_class"
) -> Difference | None:
    """Paired over the class splits that both have; on a single one, over its classes (of per-class accuracy only).

    ``None`` where nothing is paired, or where the only split has one class.
    """
    first, second = list(first), list(second)
    a, b = by_split(first, metric), by_split(second, metric)
    common = [s for s in a if s in b]
    if len(common) > 1:
        d = np.array([np.mean(a[s]) - np.mean(b[s]) for s in common])
        n_test, n_train = _classes(first)
        return corrected_t(d, n_test, n_train)
    if not common or metric.rpartition("/")[2] != "acc_class":
        return None
    stage = metric.rpartition("/")[0]
    per_class = [_per_class(records, common[0], stage) for records in (first, second)]
    classes = [c for c in per_class[0] if c in per_class[1]]
    if len(classes) < 2:
        return None
    return bootstrap(np.array([per_class[0][c] - per_class[1][c] for c in classes]))


def _classes(records: Iterable[Mapping[str, Any]]) -> tuple[int, int]:
    """Numbers of unseen and of seen classes."""
    key = next(iter(records))["key"]["split"]
    if "n_seen" not in key:
        raise UserError("a record does not say how many classes were seen; run it again with this version of zsl.")
    return len(key["unseen"]), int(key["n_seen"])


def _per_class(records: Iterable[Mapping[str, Any]], split: str, stage: str) -> dict[str, float]:
    """Accuracy of each class, over the seeds on one split."""
    values: dict[str, list[float]] = {}
    for record in records:
        if "/".join(record["key"]["split"]["unseen"]) != split:
            continue
        for row in record["per_class"]:
            name = f"{stage}/acc" if stage else [k for k in row if k.endswith("/acc")][-1]
            if row.get(name) is not None:
                values.setdefault(row["class"], []).append(row[name])
    return {c: float(np.mean(v)) for c, v in values.items()}
