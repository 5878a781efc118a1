r"""Dictionary learning in pieces: codes of some rows at a time, dictionary updates from sufficient statistics.

*Batch*: every iteration codes all rows, warm-started from the codes of the last one, then updates the dictionary
once; the objective never rises by more than the gaps. *Online* (``batch_size``; Mairal et al., JMLR 2010): the
dictionary is updated after every batch of rows from running averages of the statistics, in which batch s of t has
the weight ``(s / t)^forgetting``, nearly, as long as t is within the first pass. From then on every batch multiplies
what is older by ``(1 - 1/m)^forgetting``, m the batches of a pass: about one pass is remembered, as in batch learning,
which ``m = 1`` is. Nothing is kept per row, so that memory does not depend on their number. Either way a last pass
codes all rows under the final dictionary.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Protocol

import numpy as np
import scipy.sparse as sp

from zsl.checks import Array
from zsl.errors import raise_if_interrupted
from zsl.sparse.checkpoint import Checkpoint
from zsl.sparse.dictionary import duplicate_atoms
from zsl.sparse.problem import Codes
from zsl.sparse.progress import Bar
from zsl.sparse.statistics import accumulate, compressed, total_objective

log = logging.getLogger(__name__)

# Bytes of dense codes that are held at once, several times over, where codes are made piece by piece.
_PIECE_BYTES = 2**28
# An online batch is made of so many runs of neighbouring rows: cheap to read, and mixed even if rows are sorted.
_RUNS = 64


class Task(Protocol):
    """What is learned: rows, and what the objective has besides ``mean_i 1/p |x_i - a_i D|^2 + lam/r |a_i|_1``."""

    n_rows: int

    def rows(self, which: slice | Array) -> Array:
        """Some of the rows (m, p), contiguous."""
        ...

    def extra(self, D: Array, B: Array) -> tuple[float, float, Codes]:
        """The rest of the objective at ``D``, its gap, and the codes in it, started from ``B``."""
        ...

    def update(self, AtA: Array, AtX: Array, D: Array, B: Array) -> Array:
        """A dictionary at which the objective for these codes is no larger than at ``D``."""
        ...

    def fresh(self, D: Array, which: Array, new: Array) -> Array:
        """Atoms in place of ``which`` of D, made from rows ``new``, one each."""
        ...

    def products(self, which: slice, A: sp.csr_array) -> Array:
        """Something to be summed over the last pass; A are the codes of the rows ``which``."""
        ...


@dataclass
class State:
    """Where learning stands: all that the rest of it depends on, and in the end its result."""

    D: Array
    """(r, p) the dictionary."""
    AtA: Array
    """(r, r) float64 mean of a'a over the rows of this iteration so far; online, a running average."""
    AtX: Array
    """(r, p) the same of a'x."""
    B: Array
    """Codes in the rest of the objective."""
    used: Array
    """(r,) which atoms some row of this iteration uses."""
    rng: np.random.Generator
    products: Array = field(default_factory=lambda: np.zeros(()))
    """Sum of ``Task.products`` over the last pass."""
    order: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    """Online: the order in which runs of rows are visited."""
    iteration: int = 0
    piece: int = 0
    n_batches: int = 0
    weight: float = 0.0
    value: float = 0.0
    gap: float = 0.0
    gap_max: float = 0.0
    n_nonzero: int = 0
    n_seen: int = 0
    objectives: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    redrawn: list[int] = field(default_factory=list)
    codes: list[sp.csr_array] = field(default_factory=list)
    """Batch: codes by piece."""

    def arrays(self) -> dict[str, Array]:
        out = {f.name: np.asarray(getattr(self, f.name)) for f in fields(self) if f.name not in ("rng", "codes")}
        out["rng"] = np.array(json.dumps(self.rng.bit_generator.state))
        out["n_codes"] = np.array(len(self.codes))
        for k, A in enumerate(self.codes):
            out |= {f"data_{k}": A.data, f"indices_{k}": A.indices, f"indptr_{k}": A.indptr}
        return out

    def restore(self, arrays: dict[str, Array]) -> None:
        for f in fields(self):
            if f.name in ("rng", "codes"):
                continue
            value, now = arrays[f.name], getattr(self, f.name)
            setattr(self, f.name, value if isinstance(now, np.ndarray) else value.tolist())
        self.rng.bit_generator.state = json.loads(str(arrays["rng"]))
        parts = ((arrays[f"data_{k}"], arrays[f"indices_{k}"], arrays[f"indptr_{k}"]) for k in range(arrays["n_codes"]))
        self.codes = [sp.csr_array(part, shape=(len(part[2]) - 1, len(self.D))) for part in parts]


def learn(
    task: Task,
    D: Array,
    encode: Callable[[Array, Array, Array | None], Codes],
    lam: float,
    n_iter: int,
    rng: np.random.Generator,
    *,
    B: Array | None = None,
    batch_size: int | None = None,
    forgetting: float = 1.0,
    checkpoint: Checkpoint | None = None,
    last_pass: bool = True,
) -> State:
    """Alternate codes and dictionary ``n_iter`` times from ``D`` (r, p); ``encode(X, D, init)`` at penalty ``lam``.

    Returns
    -------
    State
        With ``n_iter + 1`` objectives and mean gaps. Online, the first ``n_iter`` are means over the batches
        of one pass, each under the dictionary of its time; the last is exact, and absent without ``last_pass``.
    """
    r = len(D)
    state = State(D, np.zeros((r, r)), np.zeros_like(D), np.zeros((0, r), D.dtype) if B is None else B,
                  np.zeros(r, bool), rng)  # fmt: skip
    if checkpoint and (saved := checkpoint.load()) is not None:
        state.restore(saved)
        log.info("going on from %s: iteration %d of %d", checkpoint.path, state.iteration, n_iter)
    learner = _Learner(task, encode, lam, n_iter, batch_size, forgetting, state, last_pass)
    with Bar("learning a dictionary", learner.n_steps, learner.n_done) as bar:
        while not learner.finished:
            raise_if_interrupted()
            learner.step()
            bar.step(
                iteration=state.iteration,
                objective=state.value / max(state.n_seen, 1) if state.n_seen else state.objectives[-1],
                density=state.n_nonzero / max(state.n_seen * r, 1),
                gap=state.gap / max(state.n_seen, 1),
            )
            if checkpoint and checkpoint.due():
                checkpoint.save(state.arrays())
    if checkpoint:
        checkpoint.save(state.arrays())
    return state


class _Learner:
    """The loop of :func:`learn`, one piece of rows per step, so that it can stop and go on between any two."""

    def __init__(
        self,
        task: Task,
        encode: Callable[[Array, Array, Array | None], Codes],
        lam: float,
        n_iter: int,
        batch_size: int | None,
        forgetting: float,
        state: State,
        last_pass: bool = True,
    ) -> None:
        self.task, self.encode, self.lam, self.n_iter, self.state = task, encode, lam, n_iter, state
        self.batch_size, self.forgetting, self.last_pass = batch_size, forgetting, last_pass
        n, D = task.n_rows, state.D
        self.size = min(n, batch_size or self.piece_rows(D))
        self.n_pieces = -(-n // self.size)
        self.run = max(1, self.size // _RUNS)
        self.n_runs = -(-n // self.run)
        self.n_batches = -(-self.n_runs // -(-self.size // self.run))

    @staticmethod
    def piece_rows(D: Array) -> int:
        """Rows whose codes are held at once in batch learning."""
        return max(1024, _PIECE_BYTES // (len(D) * D.itemsize))

    @property
    def last(self) -> bool:
        return self.state.iteration == self.n_iter

    @property
    def finished(self) -> bool:
        return self.state.iteration >= self.n_iter + self.last_pass

    @property
    def n_steps(self) -> int:
        return self.n_iter * self._pieces_of(0) + self.n_pieces * self.last_pass

    @property
    def n_done(self) -> int:
        return min(self.state.iteration * self._pieces_of(0) + self.state.piece, self.n_steps)

    def step(self) -> None:
        """Code one piece; at the end of an iteration close it."""
        s = self.state
        online = self.batch_size is not None and not self.last
        if s.piece == 0:
            self._begin(online)
        which = self._batch(s.piece) if online else slice(s.piece * self.size, (s.piece + 1) * self.size)
        X = self.task.rows(which)
        start = s.codes[s.piece].toarray() if s.piece < len(s.codes) else None
        dense, gap, _ = self.encode(X, s.D, start)
        A = compressed(dense)
        del dense, start
        s.value += total_objective(X, s.D, A, self.lam)
        s.gap += float(gap.sum())
        s.gap_max = max(s.gap_max, float(gap.max()))
        s.n_nonzero += A.nnz
        s.n_seen += len(X)
        s.used[A.indices] = True
        if online:
            self._average(A, X)
            # Before every update, or a single pass would end before the rest of the objective was seen.
            self._add_extra(len(X))
            s.D = self.task.update(s.AtA, s.AtX, s.D, s.B)
        else:
            # Statistics of the last pass but a'a are of no use.
            accumulate(A, X, s.AtA, None if self.last else s.AtX, keep=1.0, add=1 / self.task.n_rows)
            if self.last:
                s.products = s.products + self.task.products(which, A)  # type: ignore[arg-type]
            if self.batch_size is None:
                s.codes[s.piece : s.piece + 1] = [A]
        s.piece += 1
        if s.piece == self._pieces_of(s.iteration):
            self._close(X, A)

    def _pieces_of(self, iteration: int) -> int:
        return self.n_batches if self.batch_size is not None and iteration < self.n_iter else self.n_pieces

    def _begin(self, online: bool) -> None:
        s = self.state
        s.value = s.gap = s.gap_max = 0.0
        s.n_nonzero = s.n_seen = 0
        s.used[:] = False
        if online:
            s.order = s.rng.permutation(self.n_runs)
        else:
            s.AtA[:] = 0
            s.AtX[:] = 0

    def _batch(self, k: int) -> Array:
        per_batch = -(-self.size // self.run)
        runs = np.sort(self.state.order[k * per_batch : (k + 1) * per_batch])
        rows = (runs[:, None] * self.run + np.arange(self.run)).ravel()
        return rows[rows < self.task.n_rows]

    def _average(self, A: sp.csr_array, X: Array) -> None:
        s = self.state
        s.n_batches += 1
        # No more than one pass is remembered: what a row's codes were under a dictionary that is long gone holds
        # the next one back, with ridge atoms most of all, whose lengths and with them the codes' drift.
        remembered = min(s.n_batches, self.n_batches)
        old = s.weight * (1 - 1 / remembered) ** self.forgetting
        s.weight = old + len(X)
        accumulate(A, X, s.AtA, s.AtX, keep=old / s.weight, add=1 / s.weight)

    def _close(self, X: Array, A: sp.csr_array) -> None:
        """The end of an iteration: its objective, the next dictionary, other atoms for useless ones."""
        s = self.state
        if self.batch_size is None or self.last:
            self._add_extra(s.n_seen)
        s.objectives.append(s.value / s.n_seen)
        s.gaps.append(s.gap / s.n_seen)
        if not self.last:
            if self.batch_size is None:
                s.D = self.task.update(s.AtA, s.AtX, s.D, s.B)
            self._replace(X, A)
        s.iteration, s.piece = s.iteration + 1, 0

    def _add_extra(self, n: int) -> None:
        """The rest of the objective at the dictionary under which ``n`` rows were coded, and new codes in it."""
        s = self.state
        value, gap, codes = self.task.extra(s.D, s.B)
        s.B = codes.A
        s.value += n * value
        s.gap += n * gap
        s.gap_max = max(s.gap_max, float(codes.gap.max(initial=0.0)))

    def _replace(self, X: Array, A: sp.csr_array) -> None:
        s = self.state
        dead = np.flatnonzero(~s.used)
        # Among the used: an atom that is as good as an unused one is not to go with it.
        used = np.flatnonzero(s.used)
        twins, kept = (used[found] for found in duplicate_atoms(s.D[used]))
        which = np.concatenate([dead, twins])
        s.redrawn.append(len(which))
        if not which.size:
            return
        if twins.size and s.codes:
            # The longer atom takes over what its duplicate stood for, with no larger a code.
            share = np.einsum("ij,ij->i", s.D[twins], s.D[kept]) / np.einsum("ij,ij->i", s.D[kept], s.D[kept])
            keep = np.ones(len(s.D), s.D.dtype)
            keep[twins] = 0
            moved = sp.csr_array((share, (twins, kept)), shape=(len(s.D), len(s.D))) + sp.diags_array(keep).tocsr()
            s.codes = [sp.csr_array(codes @ moved) for codes in s.codes]
        new = self.task.fresh(s.D, which, self._residuals(len(which), X, A))
        s.D = s.D.copy()
        s.D[which] = new
        log.info("drawn again of %d atoms: %d that no image used, %d duplicates", len(s.D), len(dead), len(twins))
        if self.batch_size is not None:
            s.AtA[which], s.AtA[:, which], s.AtX[which] = 0, 0, 0

    def _residuals(self, n: int, X: Array, A: sp.csr_array) -> Array:
        """What is left of ``n`` rows drawn in proportion to that (online: of the last batch); noise if too few."""
        s = self.state
        pieces = list(enumerate(s.codes)) or [(0, A)]

        def piece(k: int, codes: sp.csr_array) -> Array:
            rows = self.task.rows(slice(k * self.size, (k + 1) * self.size)) if s.codes else X
            return rows - codes @ s.D

        left = np.concatenate([np.einsum("ij,ij->i", R, R) for R in (piece(*k) for k in pieces)])
        if np.count_nonzero(left) < n:
            return s.rng.standard_normal((n, s.D.shape[1])).astype(s.D.dtype)
        chosen = s.rng.choice(len(left), n, replace=False, p=left / left.sum())
        out = np.empty((n, s.D.shape[1]), s.D.dtype)
        for k, codes in pieces:
            here = np.flatnonzero(chosen // self.size == k) if s.codes else np.arange(n)
            if here.size:
                out[here] = piece(k, codes)[chosen[here] - k * self.size]
        return out
