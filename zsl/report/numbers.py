"""Numbers over the repetitions of a cell: dictionary seeds within class splits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass
class Summary:
    """A metric over the repetitions of a cell: dictionary seeds within class splits."""

    mean: float
    """Over splits, of the means over seeds"""
    std_splits: float
    """Between splits (of their means over seeds), n - 1; NaN for one split"""
    std_seeds: float
    """Within splits, pooled, n - 1; NaN where no split has two seeds"""
    n_splits: int
    n_seeds: int
    """Largest number on one split"""

    @property
    def std(self) -> float:
        """Between splits where there are two, else between seeds."""
        return self.std_splits if self.n_splits > 1 else self.std_seeds

    @property
    def error(self) -> float:
        """Standard error of the mean, over what :attr:`std` is over."""
        return float(self.std / np.sqrt(self.n_splits if self.n_splits > 1 else self.n_seeds))

    @property
    def repetitions(self) -> str:
        splits, seeds = (f"{n} {word}{'s' * (n > 1)}" for n, word in ((self.n_splits, "split"), (self.n_seeds, "seed")))
        return (
            f"{splits} x {seeds}" if self.n_splits > 1 and self.n_seeds > 1 else splits if self.n_splits > 1 else seeds
        )


def by_split(records: Iterable[Mapping[str, Any]], metric: str) -> dict[str, list[float]]:
    """The metric by class split, one value per seed; splits are told apart by their rows and unseen classes."""
    out: dict[str, list[float]] = {}
    for record in records:
        value = record["metrics"].get(metric)
        if value is not None:
            out.setdefault(split_of(record), []).append(float(value))
    return dict(sorted(out.items()))


def split_of(record: Mapping[str, Any]) -> str:
    split = record["key"]["split"]
    return "/".join(split["unseen"])


def summarise(records: Iterable[Mapping[str, Any]], metric: str) -> Summary | None:
    """None where no record has the metric."""
    values = by_split(records, metric)
    if not values:
        return None
    means = np.array([np.mean(v) for v in values.values()])
    within = [(np.var(v, ddof=1), len(v) - 1) for v in values.values() if len(v) > 1]
    pooled = float(np.sqrt(sum(v * n for v, n in within) / sum(n for _, n in within))) if within else float("nan")
    return Summary(
        float(means.mean()),
        float(means.std(ddof=1)) if len(means) > 1 else float("nan"),
        pooled,
        len(means),
        max(len(v) for v in values.values()),
    )
