r"""Dictionary learning: alternate between the codes of the rows and the dictionary, a piece of the rows at a time.

*Batch learning* codes all rows in every iteration, warm-started from their last codes, and then updates the dictionary
once. The objective never rises by more than the gaps of the codes.

*Online learning* (``batch_size``; Mairal et al., JMLR 2010) updates the dictionary after every batch of rows, from
running averages of the statistics. During the first pass over the data batch s of t has a weight of about
``(s / t)^forgetting``. After the first pass every new batch multiplies the weight of the older ones by
``(1 - 1/m)^forgetting``, where m is the number of batches in a pass; the averages then remember about one pass, and
``m = 1`` is batch learning. Nothing is kept per row, so memory does not depend on the number of rows.

Both ways end with one more pass that codes all rows under the final dictionary.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Protocol

import numpy as np
import scipy.sparse as sp

from zsl.checks import Array
from zsl.errors import raise_if_interrupted
from zsl.progress import Bar
from zsl.sparse.checkpoint import Checkpoint
from zsl.sparse.dictionary import duplicate_atoms
from zsl.sparse.kernels.residuals import compressed
from zsl.sparse.outlook import announce, say_if_dense
from zsl.sparse.problem import Codes, row_objectives, scale
from zsl.sparse.state import State
from zsl.sparse.statistics import accumulate

log = logging.getLogger(__name__)

# Bytes of the dense codes of one piece of rows; several arrays of this size are held at once.
_PIECE_BYTES = 2**28
# Codes on the way have this tolerance at first, later a multiple of the objective's last fall: the gap of a rough code
# overstates its distance from the minimum about a hundredfold. Codes with a mean gap of at most _EXACT count as exact.
_ROUGH, _SHARE, _EXACT = 1e-2, 2.0, 1e-6
# An online batch consists of this many runs of neighbouring rows, which are cheap to read from a file and mix the
# classes even if the rows are sorted.
_RUNS = 64

# X, D, codes to start from, and a tolerance that may replace a smaller one.
Encode = Callable[[Array, Array, "Array | None", float], Codes]


class Task(Protocol):
    """The learning problem: its rows, and the terms that its objective adds to the mean of Eq. (5) over the rows."""

    n_rows: int
    n_features: int

    def rows(self, which: slice | Array) -> Array:
        """Return the rows ``which`` (m, p), contiguous."""
        ...

    def extra(self, D: Array, B: Array) -> tuple[float, float, Codes]:
        """Return the added terms at ``D``, their duality gap, and the codes that they contain, started from ``B``."""
        ...

    def update(self, AtA: Array, AtX: Array, D: Array, B: Array) -> Array:
        """Return a dictionary at which the objective for fixed codes is no larger than at ``D``."""
        ...

    def new_atoms(self, D: Array, which: Array, sources: Array) -> Array:
        """Return atoms that replace ``which`` in D, one made from each row of ``sources``."""
        ...

    def products(self, which: slice, A: sp.csr_array) -> Array:
        """Return an array that is summed over the last pass; A are the codes of the rows ``which``."""
        ...


def learn(
    task: Task,
    D: Array,
    encode: Encode,
    lam: float,
    n_iter: int,
    rng: np.random.Generator,
    *,
    tol: float = 0.0,
    B: Array | None = None,
    batch_size: int | None = None,
    forgetting: float = 1.0,
    checkpoint: Checkpoint | None = None,
    last_pass: bool = True,
) -> State:
    """Learn a dictionary by alternating ``n_iter`` times between codes and dictionary.

    Parameters
    ----------
    task : Task
    D : (r, p)
        Initial dictionary.
    encode : callable
        ``encode(X, D, init, rough) -> Codes`` at the penalty ``lam``; ``rough`` is a tolerance that may replace a
        smaller one.
    lam : float > 0
    n_iter : int >= 0
    rng : Generator
        Draws the batches and the replacements of useless atoms.
    tol : float >= 0
        Batch learning ends before ``n_iter`` once an alternation lowers the objective by less than this share.
    B : (m, r), optional
        Initial codes of the terms that the task adds.
    batch_size : int, optional
        Rows of an online batch; ``None`` is batch learning.
    forgetting : float >= 0
        Online: how fast the weight of older batches falls.
    checkpoint : Checkpoint, optional
        Read at the start, and written when it is due and at the end.
    last_pass : bool
        Whether to code all rows under the final dictionary.

    Returns
    -------
    State
        With ``n_iter + 1`` objectives and mean gaps. In online learning the first ``n_iter`` are means over the batches
        of one pass, each batch under the dictionary of its time. The last one is exact; it is absent without
        ``last_pass``.
    """
    r = len(D)
    state = State(D, np.zeros((r, r)), np.zeros_like(D), np.zeros((0, r), D.dtype) if B is None else B,
                  np.zeros(r, bool), rng)  # fmt: skip
    if checkpoint and (saved := checkpoint.load()) is not None:
        state.restore(saved)
        log.info("going on from %s: iteration %d of %d", checkpoint.path, state.iteration, n_iter)
    else:
        announce(task.rows, task.n_rows, D, lambda X, D, rough: encode(X, D, None, rough), n_iter + last_pass)
    learner = _Learner(task, encode, lam, n_iter, tol, batch_size, forgetting, state, last_pass)
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
    """The loop of :func:`learn`; one step codes one piece of rows, so the loop can stop and resume between pieces."""

    def __init__(
        self,
        task: Task,
        encode: Encode,
        lam: float,
        n_iter: int,
        tol: float,
        batch_size: int | None,
        forgetting: float,
        state: State,
        last_pass: bool = True,
    ) -> None:
        self.task, self.encode, self.lam, self.n_iter, self.tol, self.state = task, encode, lam, n_iter, tol, state
        self.batch_size, self.forgetting, self.last_pass = batch_size, forgetting, last_pass
        n, D = task.n_rows, state.D
        self.size = min(n, batch_size or self.piece_rows(D))
        self.n_pieces = -(-n // self.size)
        self.run = max(1, self.size // _RUNS)
        self.n_runs = -(-n // self.run)
        self.n_batches = -(-self.n_runs // -(-self.size // self.run))

    @staticmethod
    def piece_rows(D: Array) -> int:
        """Number of rows of a piece in batch learning."""
        return max(1024, _PIECE_BYTES // (len(D) * D.itemsize))

    @property
    def last(self) -> bool:
        """Whether this is the last pass, which codes all rows under the final dictionary."""
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
        """Code one piece of rows; after its last piece, end the iteration."""
        s = self.state
        online = self.batch_size is not None and not self.last
        if s.piece == 0:
            self._begin(online)
        which = self._batch(s.piece) if online else slice(s.piece * self.size, (s.piece + 1) * self.size)
        X = self.task.rows(which)
        start = s.codes[s.piece].toarray() if s.piece < len(s.codes) else None
        dense, gap, _ = self.encode(X, s.D, start, s.rough)
        A = compressed(dense)
        del dense, start
        s.value += float(row_objectives(X, s.D, A, self.lam).sum())
        s.gap += float(gap.sum())
        s.gap_max = max(s.gap_max, float(gap.max()))
        s.square += float(scale(X).sum())
        s.n_nonzero += A.nnz
        s.n_seen += len(X)
        s.used[A.indices] = True
        if online:
            self._average(A, X)
            # The added terms enter before every update; otherwise a single pass would end without them.
            self._add_extra(len(X))
            s.D = self.task.update(s.AtA, s.AtX, s.D, s.B)
        else:
            # The last pass needs a'a alone.
            accumulate(A, X, s.AtA, None if self.last else s.AtX, keep=1.0, add=1 / self.task.n_rows)
            if self.last:
                s.products = s.products + self.task.products(which, A)  # type: ignore[arg-type]
            if self.batch_size is None:
                s.codes[s.piece : s.piece + 1] = [A]
        s.piece += 1
        if s.piece == self._pieces_of(s.iteration):
            self._end_iteration(X, A)

    def _pieces_of(self, iteration: int) -> int:
        return self.n_batches if self.batch_size is not None and iteration < self.n_iter else self.n_pieces

    def _begin(self, online: bool) -> None:
        s = self.state
        s.value = s.gap = s.gap_max = s.square = 0.0
        s.n_nonzero = s.n_seen = 0
        s.used[:] = False
        if online:
            s.order = s.rng.permutation(self.n_runs)
        else:
            s.AtA[:] = 0
            s.AtX[:] = 0
        if self.batch_size is None and not s.objectives and not self.last:
            s.rough = _ROUGH

    def _batch(self, k: int) -> Array:
        """Row numbers of online batch k of this pass."""
        per_batch = -(-self.size // self.run)
        runs = np.sort(self.state.order[k * per_batch : (k + 1) * per_batch])
        rows = (runs[:, None] * self.run + np.arange(self.run)).ravel()
        return rows[rows < self.task.n_rows]

    def _average(self, A: sp.csr_array, X: Array) -> None:
        """Add an online batch to the running averages of the statistics."""
        s = self.state
        s.n_batches += 1
        # The averages remember at most one pass. Older codes belong to older dictionaries and would slow learning down,
        # especially with ridge atoms, whose lengths drift and make the codes drift.
        remembered = min(s.n_batches, self.n_batches)
        old = s.weight * (1 - 1 / remembered) ** self.forgetting
        s.weight = old + len(X)
        accumulate(A, X, s.AtA, s.AtX, keep=old / s.weight, add=1 / s.weight)

    def _end_iteration(self, X: Array, A: sp.csr_array) -> None:
        """Record the objective, update the dictionary (in batch learning) and replace useless atoms."""
        s = self.state
        s.piece = 0
        if self.batch_size is None or self.last:
            self._add_extra(s.n_seen)
        value = s.value / s.n_seen
        fall = s.objectives[-1] - value if s.objectives else math.inf
        if s.rough and s.gap > _EXACT * s.square and fall < 0 and not s.redrawn[-1]:
            # The codes were too rough for this small a step: code the rows once more, from where they are.
            s.rough = s.rough / 10 if s.rough > _EXACT else 0.0
            return
        if s.iteration == min(1, self.n_iter):  # initial atoms that are samples make codes sparser than learned ones
            say_if_dense(s.n_nonzero / s.n_seen, self.task.n_features)
        s.objectives.append(value)
        s.gaps.append(s.gap / s.n_seen)
        if not self.last:
            if self.batch_size is None:
                s.D = self.task.update(s.AtA, s.AtX, s.D, s.B)
            self._replace_atoms(X, A)
        s.iteration += 1
        if self.batch_size is None and not self.finished:
            if self.tol and fall < self.tol * value and not s.redrawn[-1]:
                s.iteration = self.n_iter
            # Exact codes of a dictionary that is about to change are wasted; the last pass is solved to the end.
            s.rough = 0.0 if self.last else min(s.rough, max(_SHARE * fall, 0.0) * s.n_seen / s.square)

    def _add_extra(self, n: int) -> None:
        """Add the task's terms to the objective of ``n`` rows coded under the current dictionary, and renew B."""
        s = self.state
        value, gap, codes = self.task.extra(s.D, s.B)
        s.B = codes.A
        s.value += n * value
        s.gap += n * gap
        s.gap_max = max(s.gap_max, float(codes.gap.max(initial=0.0)))

    def _replace_atoms(self, X: Array, A: sp.csr_array) -> None:
        """Replace atoms that no row used, and duplicates, by residuals of badly coded rows."""
        s = self.state
        unused = np.flatnonzero(~s.used)
        # Duplicates are sought among the used atoms only: a used atom that equals an unused one must stay.
        used = np.flatnonzero(s.used)
        duplicates, kept = (used[found] for found in duplicate_atoms(s.D[used]))
        which = np.concatenate([unused, duplicates])
        s.redrawn.append(len(which))
        if not which.size:
            return
        if duplicates.size and s.codes:
            # The kept atom is at least as long as its duplicate, so it takes over the code without a larger |a|_1.
            share = np.einsum("ij,ij->i", s.D[duplicates], s.D[kept]) / np.einsum("ij,ij->i", s.D[kept], s.D[kept])
            keep = np.ones(len(s.D), s.D.dtype)
            keep[duplicates] = 0
            moved = sp.csr_array((share, (duplicates, kept)), shape=(len(s.D), len(s.D))) + sp.diags_array(keep).tocsr()
            s.codes = [sp.csr_array(codes @ moved) for codes in s.codes]
        new = self.task.new_atoms(s.D, which, self._residuals(len(which), X, A))
        s.D = s.D.copy()
        s.D[which] = new
        log.info("of %d atoms %d unused ones and %d duplicates are drawn again", len(s.D), len(unused), len(duplicates))
        if self.batch_size is not None:
            s.AtA[which], s.AtA[:, which], s.AtX[which] = 0, 0, 0

    def _residuals(self, n: int, X: Array, A: sp.csr_array) -> Array:
        """Residuals of n rows, drawn with a probability proportional to the squared residual.

        Online learning draws from the last batch. Gaussian noise replaces the residuals if fewer than n are non-zero.
        """
        s = self.state
        pieces = list(enumerate(s.codes)) or [(0, A)]

        def residuals(k: int, codes: sp.csr_array) -> Array:
            rows = self.task.rows(slice(k * self.size, (k + 1) * self.size)) if s.codes else X
            return rows - codes @ s.D

        squares = np.concatenate([np.einsum("ij,ij->i", R, R) for R in (residuals(*piece) for piece in pieces)])
        if np.count_nonzero(squares) < n:
            return s.rng.standard_normal((n, s.D.shape[1])).astype(s.D.dtype)
        chosen = s.rng.choice(len(squares), n, replace=False, p=squares / squares.sum())
        out = np.empty((n, s.D.shape[1]), s.D.dtype)
        for k, codes in pieces:
            of_piece = np.flatnonzero(chosen // self.size == k) if s.codes else np.arange(n)
            if of_piece.size:
                out[of_piece] = residuals(k, codes)[chosen[of_piece] - k * self.size]
        return out
