"""The loop of dictionary learning: one step codes one piece of the rows, so that learning can stop between pieces."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from zsl.checks import Array
from zsl.sparse.dictionary import duplicate_atoms
from zsl.sparse.kernels.residuals import compressed
from zsl.sparse.outlook import say_if_dense
from zsl.sparse.problem import Codes, row_objectives, scale
from zsl.sparse.state import State, Sums
from zsl.sparse.statistics import accumulate

if TYPE_CHECKING:
    from zsl.sparse.learning import Task

log = logging.getLogger(__name__)

# Bytes of the dense codes of one piece of rows; several arrays of this size are held at once.
_PIECE_BYTES = 2**28
# Codes on the way have the tolerance _ROUGH at first, later _SHARE times the objective's last fall, which is enough
# because the gap of a rough code overstates its distance from the minimum about a hundredfold. Codes with a mean gap of
# at most _EXACT count as exact.
_ROUGH, _SHARE, _EXACT = 1e-2, 2.0, 1e-6
# An online batch consists of this many runs of neighbouring rows, which are cheap to read from a file and mix the
# classes even if the rows are sorted.
_RUNS = 64

# X, D, codes to start from, and a tolerance that may replace a smaller one.
Encode = Callable[[Array, Array, "Array | None", float], Codes]


class Learner:
    """The loop of :func:`zsl.sparse.learning.learn`, whose arguments these are."""

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
        self.size = min(n, batch_size or piece_rows(D))
        self.n_pieces = -(-n // self.size)
        self.run = max(1, self.size // _RUNS)
        self.n_runs = -(-n // self.run)
        self.n_batches = -(-self.n_runs // -(-self.size // self.run))

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
        n = s.n_seen
        self._code(self._batch(s.piece) if online else None)
        if online:
            # The added terms enter before every update; otherwise a single pass would end without them.
            self._add_extra(s.n_seen - n)
            s.D = self.task.update(s.AtA, s.AtX, s.D, s.B)
        s.piece += 1
        if s.piece == self._pieces_of(s.iteration):
            self._end_iteration()

    def _code(self, batch: Array | None) -> None:
        """Code the rows of an online batch, or the next piece of rows, and add what they contribute to the sums."""
        s = self.state
        which = slice(s.piece * self.size, (s.piece + 1) * self.size) if batch is None else batch
        X = self.task.rows(which)
        start = s.codes[s.piece].toarray() if s.piece < len(s.codes) else None
        A, sums = code_rows(X, s.D, start, self.encode, s.rough, self.lam)
        s.add(sums)
        self._newest = X, A
        if batch is not None:
            keep, add = self._weights(len(X))
            accumulate(A, X, s.AtA, s.AtX, keep=keep, add=add)
            return
        # The last pass needs A'A alone.
        accumulate(A, X, s.AtA, None if self.last else s.AtX, keep=1.0, add=1 / self.task.n_rows)
        if self.last:
            s.products = s.products + self.task.products(which, A)  # type: ignore[arg-type]
        if self.batch_size is None:
            s.codes[s.piece : s.piece + 1] = [A]

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

    def _weights(self, n: int) -> tuple[float, float]:
        """The factors of the older statistics and of those of an online batch of ``n`` rows in the running averages."""
        s = self.state
        s.n_batches += 1
        # The averages remember at most one pass. Older codes belong to older dictionaries and would slow learning down,
        # especially with ridge atoms, whose lengths drift and make the codes drift.
        remembered = min(s.n_batches, self.n_batches)
        old = s.weight * (1 - 1 / remembered) ** self.forgetting
        s.weight = old + n
        return old / s.weight, 1 / s.weight

    def _end_iteration(self) -> None:
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
            self._replace_atoms()
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

    def _replace_atoms(self) -> None:
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
        if duplicates.size:
            # The kept atom is at least as long as its duplicate, so it takes over the code without a larger |a|_1.
            share = np.einsum("ij,ij->i", s.D[duplicates], s.D[kept]) / np.einsum("ij,ij->i", s.D[kept], s.D[kept])
            keep = np.ones(len(s.D), s.D.dtype)
            keep[duplicates] = 0
            moved = sp.csr_array((share, (duplicates, kept)), shape=(len(s.D), len(s.D))) + sp.diags_array(keep).tocsr()
            self._move_codes(moved)
        new = self.task.new_atoms(s.D, which, self._residuals(len(which)))
        s.D = s.D.copy()
        s.D[which] = new
        log.info("of %d atoms %d unused ones and %d duplicates are drawn again", len(s.D), len(unused), len(duplicates))
        if self.batch_size is not None:
            s.AtA[which], s.AtA[:, which], s.AtX[which] = 0, 0, 0

    def _move_codes(self, moved: sp.csr_array) -> None:
        """Multiply the codes to start from, where there are any, by ``moved`` (r, r)."""
        self.state.codes = [sp.csr_array(codes @ moved) for codes in self.state.codes]

    def _residuals(self, n: int) -> Array:
        """Residuals of n rows, drawn with a probability proportional to the squared residual.

        Online learning draws from the last batch. Gaussian noise replaces the residuals if fewer than n are non-zero.
        """
        s = self.state
        X, A = self._newest
        pieces = list(enumerate(s.codes)) or [(0, A)]

        def residuals(k: int, codes: sp.csr_array) -> Array:
            rows = self.task.rows(slice(k * self.size, (k + 1) * self.size)) if s.codes else X
            return rows - codes @ s.D

        squares = np.concatenate([np.einsum("ij,ij->i", R, R) for R in (residuals(*piece) for piece in pieces)])
        chosen = draw_rows(squares, n, s.rng)
        if chosen is None:
            return s.rng.standard_normal((n, s.D.shape[1])).astype(s.D.dtype)
        out = np.empty((n, s.D.shape[1]), s.D.dtype)
        for k, codes in pieces:
            of_piece = np.flatnonzero(chosen // self.size == k) if s.codes else np.arange(n)
            if of_piece.size:
                out[of_piece] = residuals(k, codes)[chosen[of_piece] - k * self.size]
        return out


def piece_rows(D: Array) -> int:
    """Number of rows that are coded at once in batch learning, with a dictionary D (r, p)."""
    return rows_of_a_piece(len(D), D.itemsize)


def rows_of_a_piece(r: int, itemsize: int) -> int:
    """:func:`piece_rows` for a dictionary of r atoms whose numbers have ``itemsize`` bytes."""
    return max(1024, _PIECE_BYTES // (r * itemsize))


def code_rows(
    X: Array, D: Array, start: Array | None, encode: Encode, rough: float, lam: float
) -> tuple[sp.csr_array, Sums]:
    """Codes of the rows X (n, p), started from ``start`` (n, r), and what they add to the record of a pass."""
    dense, gap, _ = encode(X, D, start, rough)
    A = compressed(dense)
    used = np.zeros(len(D), bool)
    used[A.indices] = True
    value = float(row_objectives(X, D, A, lam).sum())
    return A, Sums(value, float(gap.sum()), float(gap.max()), float(scale(X).sum()), A.nnz, len(X), used)


def draw_rows(squares: Array, n: int, rng: np.random.Generator) -> Array | None:
    """Numbers of n rows, drawn with a probability proportional to ``squares``; None if fewer are non-zero."""
    if np.count_nonzero(squares) < n:
        return None
    return rng.choice(len(squares), n, replace=False, p=squares / squares.sum())
