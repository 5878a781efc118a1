"""Means over class splits, ranks, and whether one method is better than another on the same splits.

Seeds of training on one split tell nothing of other classes, so results are averaged over the seeds of a split first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from zsl.checks import Array

_LEVEL = 0.95


def summarise(records: pd.DataFrame, metric: str, by: Sequence[str]) -> pd.DataFrame:
    """A metric over the repetitions of each group: dictionary seeds within class splits.

    Parameters
    ----------
    records : DataFrame
        Of :func:`zsl.report.records.read_records`.
    metric : str
    by : sequence of str
        The columns that tell the groups apart.

    Returns
    -------
    DataFrame
        One row per group that has the metric: ``mean`` over splits of the means over seeds; ``std`` (with n - 1)
        between splits, or between seeds where there is one split; ``n_splits``, the largest ``n_seeds`` on a split;
        ``error``, the standard error of the mean.

    Examples
    --------
    >>> runs = pd.DataFrame({"cell": "a", "split": ["x", "x", "y"], "acc": [0.2, 0.4, 0.5]})
    >>> float(summarise(runs, "acc", ["cell"])["mean"].iloc[0])
    0.4
    """
    values = records.dropna(subset=[metric]) if metric in records else records.iloc[:0].assign(**{metric: 0.0})
    per_split = values.groupby([*by, "split"])[metric].agg(["mean", "std", "count"]).reset_index()
    groups = per_split.groupby([*by])
    out = groups.agg(
        mean=("mean", "mean"), between=("mean", "std"), within=("std", "first"), n_splits=("split", "size"),
        n_seeds=("count", "max"),
    )  # fmt: skip
    out["std"] = out["between"].where(out["n_splits"] > 1, out["within"])
    out["error"] = out["std"] / np.sqrt(out["n_splits"].where(out["n_splits"] > 1, out["n_seeds"]))
    return out.drop(columns=["between", "within"])


def mean_ranks(values: Array) -> Array:
    """Mean rank (methods,) of each method over the splits; splits with a missing value are left out, rank 1 is best."""
    from scipy.stats import rankdata

    complete = values[:, ~np.isnan(values).any(axis=0)]
    if not complete.size:
        return np.full(len(values), np.nan)
    return rankdata(-complete, axis=0).mean(axis=1)


@dataclass(frozen=True)
class Difference:
    """A paired difference, first minus second."""

    mean: float
    low: float
    high: float
    """95 % interval; NaN if all splits have the same difference other than 0"""
    p: float
    """Two-sided; NaN with such an interval, and for the bootstrap, which has none"""


def pooled(parts: Sequence[tuple[Array, float, float]]) -> Difference:
    r"""Test of paired differences over random splits that overlap (Nadeau and Bengio, Machine Learning 2003).

    On one data set the variance of the mean is :math:`(1/J + n_{test}/n_{train}) s^2`, with :math:`s^2` the variance of
    d. The usual :math:`1/J` would take splits that share their training classes for independent ones. Several data sets
    are independent, so the variance of the mean over K of them is the sum of their variances divided by K squared; the
    degrees of freedom follow Welch and Satterthwaite.

    Parameters
    ----------
    parts : sequence of (d (J,), n_test, n_train)
        Of each data set the differences, one per split, and the numbers of unseen and of seen classes, because classes
        are what is split.
    """
    from scipy import stats

    means = np.array([d.mean() for d, _, _ in parts])
    variances = np.array([d.var(ddof=1) * (1 / len(d) + n_test / n_train) for d, n_test, n_train in parts])
    mean, variance, K = float(means.mean()), float(variances.sum()), len(parts)
    error = np.sqrt(variance) / K
    freedom = variance**2 / max(float((variances**2 / [len(d) - 1 for d, _, _ in parts]).sum()), 1e-300)
    if error <= 1e-12:
        # Equal differences, as of few splits by chance, say nothing of the error; two equal methods do not differ.
        if abs(mean) <= 1e-12:
            return Difference(mean, mean, mean, 1.0)
        return Difference(mean, float("nan"), float("nan"), float("nan"))
    half = float(stats.t.ppf(0.5 + _LEVEL / 2, freedom)) * error
    p = float(2 * stats.t.sf(abs(mean) / error, freedom))
    return Difference(mean, mean - half, mean + half, p)


def critical_difference(n_methods: int, n_blocks: int) -> float:
    """How far two mean ranks over ``n_blocks`` must be apart to differ at the 5 % level (Nemenyi; Demsar, 2006).

    Examples
    --------
    >>> round(critical_difference(4, 14), 2)
    1.25
    """
    from scipy.stats import studentized_range

    q = float(studentized_range.ppf(_LEVEL, n_methods, np.inf)) / np.sqrt(2)
    return float(q * np.sqrt(n_methods * (n_methods + 1) / (6 * n_blocks)))


def bootstrap(d: Array, *, n_draws: int = 10_000, seed: int = 0) -> Difference:
    """Percentile bootstrap over classes of the differences d (M,) of per-class accuracies on one split."""
    draws = np.random.default_rng(seed).integers(len(d), size=(n_draws, len(d)))
    low, high = np.quantile(d[draws].mean(axis=1), [0.5 - _LEVEL / 2, 0.5 + _LEVEL / 2])
    return Difference(float(d.mean()), float(low), float(high), float("nan"))


def difference(first: pd.DataFrame, second: pd.DataFrame, metric: str = "acc_class") -> Difference | None:
    """The paired difference over the class splits that both have; on a single split, over its classes.

    Returns
    -------
    Difference or None
        None where nothing is paired, where the only split has one class, or where it has another metric than a
        per-class accuracy.
    """
    if metric not in first or metric not in second:
        return None
    a, b = (side.dropna(subset=[metric]).groupby("split")[metric].mean() for side in (first, second))
    d = (a - b).dropna()
    if len(d) > 1:
        return pooled([(d.to_numpy(), first["n_unseen"].iloc[0], first["n_seen"].iloc[0])])
    stage, _, name = metric.rpartition("/")
    if d.empty or name != "acc_class":
        return None
    split = d.index[0]
    classes = (_per_class(first, split, stage) - _per_class(second, split, stage)).dropna()
    return bootstrap(classes.to_numpy()) if len(classes) > 1 else None


def _per_class(records: pd.DataFrame, split: str, stage: str) -> pd.Series:
    """Accuracy of each class on one split, averaged over the seeds; of the last stage unless one is named."""
    rows = [
        (row["class"], row[f"{stage}/acc"] if stage else last_accuracy(row))
        for record in records.loc[records["split"] == split, "record"]
        for row in record["per_class"]
    ]
    return pd.DataFrame(rows, columns=["class", "acc"]).groupby("class")["acc"].mean()


def last_accuracy(row: dict[str, float | None]) -> float | None:
    """A class's accuracy at the last stage of inference."""
    return [value for key, value in row.items() if key.endswith("/acc")][-1]


def repetitions(n_splits: float, n_seeds: float) -> str:
    """``2 splits x 3 seeds`` in words; a single split is not mentioned."""
    splits, seeds = (f"{n:.0f} {word}{'s' if n > 1 else ''}" for n, word in ((n_splits, "split"), (n_seeds, "seed")))
    return " x ".join(([splits] if n_splits > 1 else []) + ([seeds] if n_seeds > 1 or n_splits == 1 else []))
