"""The state of dictionary learning, as an object and as the named arrays of a checkpoint."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import scipy.sparse as sp

from zsl.checks import Array

# Fields that a checkpoint holds in another form, or not at all.
_APART = ("rng", "codes", "chunked_codes")


@dataclass
class Sums:
    """What the codes of some rows add to the record of a pass."""

    value: float
    """The objective of Eq. (5), summed over the rows"""
    gap: float
    gap_max: float
    square: float
    """``|x|^2 / p``, summed over the rows: the unit of tolerances"""
    n_nonzero: int
    n_seen: int
    used: Array
    """(r,) whether any of the rows uses the atom"""

    def plus(self, other: Sums) -> Sums:
        """The record of the rows of both."""
        return Sums(
            self.value + other.value, self.gap + other.gap, max(self.gap_max, other.gap_max),
            self.square + other.square, self.n_nonzero + other.n_nonzero, self.n_seen + other.n_seen,
            self.used | other.used,
        )  # fmt: skip


@dataclass
class State:
    """State of learning: everything that the next steps depend on, and in the end the result."""

    D: Array
    """(r, p) the dictionary."""
    AtA: Array
    """(r, r) float64 mean of a'a over the rows of this iteration so far; online, the running average."""
    AtX: Array
    """(r, p) the same mean of a'x."""
    B: Array
    """Codes in the terms that :meth:`Task.extra` adds."""
    used: Array
    """(r,) whether any row of this iteration uses the atom."""
    rng: np.random.Generator
    products: Array = field(default_factory=lambda: np.zeros(()))
    """Sum of ``Task.products`` over the last pass."""
    order: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    """Order in which online learning visits the runs of rows."""
    iteration: int = 0
    piece: int = 0
    n_batches: int = 0
    weight: float = 0.0
    value: float = 0.0
    gap: float = 0.0
    square: float = 0.0
    """Sum of ``|x|^2 / p`` over the rows of this iteration so far, the unit of tolerances."""
    rough: float = 0.0
    """The tolerance of this iteration's codes, where it is larger than the solver's own."""
    gap_max: float = 0.0
    n_nonzero: int = 0
    n_seen: int = 0
    objectives: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    redrawn: list[int] = field(default_factory=list)
    codes: list[sp.csr_array] = field(default_factory=list)
    """Codes of each piece of rows, in batch learning."""
    chunked_codes: Any = None
    """The codes as a dask.array, in batch learning from chunks; no part of a checkpoint."""

    def add(self, sums: Sums) -> None:
        """Add what some more rows of this pass contribute."""
        before = Sums(*(getattr(self, f.name) for f in fields(Sums)))
        for name, value in vars(before.plus(sums)).items():
            setattr(self, name, value)

    def arrays(self) -> dict[str, Array]:
        """The state as named arrays, for a checkpoint."""
        out = {f.name: np.asarray(getattr(self, f.name)) for f in fields(self) if f.name not in _APART}
        out["rng"] = np.array(json.dumps(self.rng.bit_generator.state))
        out["n_codes"] = np.array(len(self.codes))
        for k, A in enumerate(self.codes):
            out |= {f"data_{k}": A.data, f"indices_{k}": A.indices, f"indptr_{k}": A.indptr}
        return out

    def restore(self, arrays: dict[str, Array]) -> None:
        """Set the state from the arrays of a checkpoint."""
        for f in fields(self):
            if f.name in _APART:
                continue
            value, now = arrays[f.name], getattr(self, f.name)
            setattr(self, f.name, value if isinstance(now, np.ndarray) else value.tolist())
        self.rng.bit_generator.state = json.loads(str(arrays["rng"]))
        parts = ((arrays[f"data_{k}"], arrays[f"indices_{k}"], arrays[f"indptr_{k}"]) for k in range(arrays["n_codes"]))
        self.codes = [sp.csr_array(part, shape=(len(part[2]) - 1, len(self.D))) for part in parts]
