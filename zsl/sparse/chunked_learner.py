"""Dictionary learning from rows in chunks on a Dask cluster.

Workers code the chunks that they hold and keep the codes; the sums ``A'A`` and ``A'X`` over all chunks come to the
client, which updates the dictionary. The algorithm is that of :mod:`zsl.sparse.learner`.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np
import scipy.sparse as sp

from zsl.checks import Array
from zsl.sparse.chunks import Chunks, gathered, total
from zsl.sparse.learner import Encode, Learner, code_rows, draw_rows, piece_rows
from zsl.sparse.state import Sums
from zsl.sparse.statistics import accumulate


class ChunkedLearner(Learner):
    """The loop over rows in chunks: a step is a whole pass in batch learning, and one batch in online learning.

    The codes to start from lie with the chunks. A checkpoint does not hold them, so a fit that goes on from one starts
    its codes anew and reaches the same dictionaries to within the tolerance of the codes.
    """

    def __init__(self, chunks: Chunks, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.chunks, self.n_pieces = chunks, 1
        self.tasks = {k: chunks.share(self.task.part(rows)) for k, rows in enumerate(chunks.slices)}
        self.codes: dict[int, Any] = {}
        self._kept: list[Any] = []
        self._newest_rows: dict[int, Array] = {}

    def _code(self, batch: Array | None) -> None:
        s = self.state
        rows = dict.fromkeys(self.tasks) if batch is None else self.chunks.parts(batch)
        starts = self.codes if batch is None else {}
        keeps = batch is not None or self.batch_size is None
        coder = Coder(self.encode, s.rough, self.lam, keeps, with_products=self.last and batch is None)
        given = {k: (self.tasks[k], which, starts.get(k)) for k, which in rows.items()}
        sums, codes = self._split(self.chunks.submit(code_chunk, given, self._shared(s.D), coder), keeps)
        sums = gathered(sums)
        if keeps:
            self._newest_rows = {k: which for k, which in rows.items() if which is not None}
            if batch is None or not self.last:
                self.codes = codes
        s.add(sums.record)
        if batch is not None:
            keep, add = self._weights(len(batch))
            s.AtA, s.AtX = keep * s.AtA + add * sums.AtA, (keep * s.AtX + add * sums.AtX).astype(s.AtX.dtype)
            return
        s.AtA += sums.AtA / self.task.n_rows
        if self.last:
            s.products = s.products + sums.products
        else:
            s.AtX += (sums.AtX / self.task.n_rows).astype(s.AtX.dtype)

    def _split(self, coded: dict[int, Any], keeps: bool) -> tuple[Any, dict[int, Any]]:
        """A future of the sum of all statistics, and futures of the codes of each chunk.

        Nothing else is referred to when this returns, so that a worker gives up statistics once they are added.
        """
        client = self.chunks.client
        parts = [client.submit(itemgetter(1), part, key=f"statistics-{part.key}") for part in coded.values()]
        codes = {k: client.submit(itemgetter(0), part, key=f"codes-{part.key}") for k, part in coded.items()}
        return total(client, parts, add_statistics), codes if keeps else {}

    def _begin(self, online: bool) -> None:
        super()._begin(online)
        if not online and self.batch_size is not None:
            self.codes = {}  # those of the last online batch

    def _shared(self, D: Array) -> Any:
        """A future of the dictionary, kept until the end because Dask may have to compute older codes again."""
        self._kept.append(self.chunks.share(D))
        return self._kept[-1]

    def _move_codes(self, moved: sp.csr_array) -> None:
        if self.batch_size is None:
            client = self.chunks.client
            self.codes = {k: client.submit(move_codes, part, moved, pure=False) for k, part in self.codes.items()}

    def _residuals(self, n: int) -> Array:
        s = self.state
        D = self._shared(s.D)

        def arguments(chosen: dict[int, Array | None]) -> dict[int, Any]:
            return {k: (self.tasks[k], self._newest_rows.get(k), self.codes[k], chosen[k]) for k in chosen}

        squares = gathered(list(self.chunks.submit(residuals, arguments(dict.fromkeys(self.codes)), D).values()))
        chosen = draw_rows(np.concatenate(squares), n, s.rng)
        if chosen is None:
            return s.rng.standard_normal((n, s.D.shape[1])).astype(s.D.dtype)
        ends = np.cumsum([len(part) for part in squares])
        of_chunk = np.searchsorted(ends, chosen, side="right")
        wanted = {k: chosen[of_chunk == i] - (ends[i] - len(squares[i])) for i, k in enumerate(self.codes)}
        wanted = {k: which for k, which in wanted.items() if len(which)}
        out = np.empty((n, s.D.shape[1]), s.D.dtype)
        for k, part in zip(wanted, gathered(list(self.chunks.submit(residuals, arguments(wanted), D).values()))):
            out[of_chunk == list(self.codes).index(k)] = part
        return out

    def all_codes(self) -> Any:
        """The codes of all rows as a dask.array of CSR arrays, which stay on the workers; None in online learning."""
        if self.batch_size is not None:
            return None
        import dask.array as da
        from dask import delayed

        r, dtype = self.state.D.shape[0], self.state.D.dtype
        meta = sp.csr_array((0, 0), dtype=dtype)
        parts = [
            da.from_delayed(delayed(stacked)(self.codes[k]), (rows.stop - rows.start, r), dtype, meta=meta)
            for k, rows in enumerate(self.chunks.slices)
        ]
        return da.concatenate(parts)


@dataclass(frozen=True)
class Coder:
    """What a worker does with a chunk."""

    encode: Encode
    rough: float
    lam: float
    keeps_codes: bool
    with_products: bool
    """Whether this is the last pass, which needs the products of the task, but not ``A'X``"""


@dataclass
class Statistics:
    """Sums over the rows of some chunks."""

    record: Sums
    AtA: Array
    AtX: Array | None
    products: Array


def code_chunk(X: Array, given: tuple[Any, Array | None, list[sp.csr_array] | None], D: Array, coder: Coder) -> Any:
    """Run in a worker: codes of a chunk, a CSR array for each piece of its rows, and their sums.

    ``given`` are the task, the rows of an online batch or None for all rows, and codes to start from or None.
    """
    task, which, start = given
    rows = task.over(X).rows(slice(None) if which is None else which)
    r, codes, sums = len(D), [], None
    AtA, AtX = np.zeros((r, r)), None if coder.with_products else np.zeros_like(D)
    products, step = np.zeros(()), piece_rows(D)
    for number, i in enumerate(range(0, len(rows), step)):
        x = rows[i : i + step]
        A, record = code_rows(x, D, start[number].toarray() if start else None, coder.encode, coder.rough, coder.lam)
        accumulate(A, x, AtA, AtX, keep=1.0, add=1.0)
        if coder.with_products:
            products = products + task.products(slice(i, i + step), A)
        if coder.keeps_codes:
            codes.append(A)
        sums = record if sums is None else sums.plus(record)
    assert sums is not None
    return codes, Statistics(sums, AtA, AtX, products)


def add_statistics(parts: list[Statistics]) -> Statistics:
    """Run in a worker: the sums over several chunks."""
    out = parts[0]
    for part in parts[1:]:
        AtX = None if out.AtX is None or part.AtX is None else out.AtX + part.AtX
        out = Statistics(out.record.plus(part.record), out.AtA + part.AtA, AtX, out.products + part.products)
    return out


def move_codes(codes: list[sp.csr_array], moved: sp.csr_array) -> list[sp.csr_array]:
    """Run in a worker: codes whose atoms were put together."""
    return [sp.csr_array(A @ moved) for A in codes]


def residuals(X: Array, given: tuple[Any, Array | None, list[sp.csr_array], Array | None], D: Array) -> Array:
    """Run in a worker: squared residuals of the coded rows, or the residuals of the chosen ones."""
    task, which, codes, chosen = given
    rows = task.over(X).rows(slice(None) if which is None else which)
    A = stacked(codes)
    if chosen is not None:
        return rows[chosen] - A[chosen] @ D
    R = rows - A @ D
    return np.einsum("ij,ij->i", R, R)


def stacked(codes: list[sp.csr_array]) -> sp.csr_array:
    """The codes of a chunk as one array."""
    return codes[0] if len(codes) == 1 else sp.csr_array(sp.vstack(codes, format="csr"))
