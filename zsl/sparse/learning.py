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
from typing import Protocol

import numpy as np
import scipy.sparse as sp

from zsl.checks import Array
from zsl.errors import raise_if_interrupted
from zsl.progress import Bar
from zsl.sparse.checkpoint import Checkpoint
from zsl.sparse.chunked_learner import ChunkedLearner
from zsl.sparse.chunks import Chunks
from zsl.sparse.learner import Encode, Learner
from zsl.sparse.outlook import announce
from zsl.sparse.problem import Codes
from zsl.sparse.state import State

log = logging.getLogger(__name__)


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

    def part(self, which: slice) -> Task:
        """Return the same problem for the rows ``which`` alone, without the rows, which ``over`` adds on a worker."""
        ...

    def over(self, X: Array) -> Task:
        """Return the same problem with images X."""
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
    chunks: Chunks | None = None,
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
    chunks : Chunks, optional
        The rows, where they lie in chunks on a Dask cluster; workers then compute the codes.

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
    elif chunks is None:
        announce(task.rows, task.n_rows, D, lambda X, D, rough: encode(X, D, None, rough), n_iter + last_pass)
    arguments = task, encode, lam, n_iter, tol, batch_size, forgetting, state, last_pass
    learner = Learner(*arguments) if chunks is None else ChunkedLearner(chunks, *arguments)
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
    if isinstance(learner, ChunkedLearner):
        state.chunked_codes = learner.all_codes()
    return state
