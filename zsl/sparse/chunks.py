"""Rows that lie in chunks on the workers of a Dask cluster, and computations that go to the rows.

A chunk never comes to the client: a function is sent to the workers, and comes back with sums or with what lies in
another chunk of rows. Dask computes again what a lost worker held.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from operator import add
from typing import Any

import numba
import numpy as np
import scipy.sparse as sp

from zsl.checks import Array, check_no_overflow, check_real
from zsl.errors import UserError, raise_if_interrupted
from zsl.sparse.kernels.products import blas
from zsl.sparse.kernels.residuals import compressed
from zsl.sparse.problem import row_blocks

# Sums of this many chunks are added at once; the order is fixed by the number of chunks, so that the number of workers
# changes no digit.
_TOGETHER = 8
# Bytes of a chunk of rows that come from this process.
_CHUNK_BYTES = 2**26
# Seconds between two looks at whether the user has interrupted the program.
_LOOK = 0.2


def is_chunked(X: Any) -> bool:
    """Whether X is a collection of Dask, such as a ``dask.array``."""
    return hasattr(X, "__dask_graph__")


class Chunks:
    """A ``dask.array`` with one sample per row, as the workers' chunks of its rows.

    Parameters
    ----------
    X : (n, p) dask.array
        Divided by rows alone; columns that are divided are put together.
    name : str
        Name of the argument, for messages.
    allow_nan : bool
        Whether values may be missing (NaN) or infinite.

    Raises
    ------
    UserError
        If no Dask client has been made, or if X is no matrix of numbers with a known number of rows in each chunk.
    """

    def __init__(self, X: Any, name: str, *, allow_nan: bool = False) -> None:
        X = by_rows(X, name)
        if 0 in X.shape:
            raise UserError(f"{name} is empty (shape {X.shape}); at least one row and one column are needed.")
        self.client, self.allow_nan = _client(name), allow_nan
        self.name, self.shape = name, tuple(map(int, X.shape))
        self.dtype = _precision(X)
        self.starts = np.concatenate([[0], np.cumsum(X.chunks[0])]).astype(np.int64)
        self.blocks = list(X.to_delayed().ravel())

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def slices(self) -> list[slice]:
        """The rows of each chunk."""
        return [slice(int(a), int(b)) for a, b in zip(self.starts, self.starts[1:])]

    def __getitem__(self, which: Any) -> Array:
        """The rows ``which`` (m, p), on the client: for samples of rows alone."""
        rows, place = np.unique(np.arange(len(self))[which], return_inverse=True)
        if not len(rows):
            return np.empty((0, self.shape[1]), self.dtype)
        return np.concatenate(self.each(_take, self.parts(rows)))[place]

    def parts(self, rows: Array) -> dict[int, Array]:
        """Sorted row numbers as row numbers within each chunk that holds any of them."""
        of_chunk = np.searchsorted(self.starts, rows, side="right") - 1
        return {int(k): rows[of_chunk == k] - self.starts[k] for k in np.unique(of_chunk)}

    def submit(self, function: Callable[..., Any], arguments: dict[int, Any], *shared: Any) -> dict[int, Any]:
        """Futures of ``function(rows, argument, *shared)`` for the chunks that have an argument, by chunk.

        ``rows`` is the checked chunk; arguments may be futures. Tasks bear the name of the function.
        """
        from dask import delayed

        call = delayed(_on_chunk, name=f"{function.__name__.strip('_')}", pure=False)
        token = f"{function.__name__.strip('_')}-{np.random.default_rng().integers(2**62):x}"
        shared = tuple(value if hasattr(value, "key") else _Sealed(value) for value in shared)
        tasks = {}
        for k, argument in arguments.items():
            name = None if self.allow_nan else _from_row(self.name, self.starts[k])
            given = self.blocks[k], self.dtype, name, function, argument, shared
            tasks[k] = call(*given, dask_key_name=f"{token}-{k}")
        return dict(zip(tasks, self.client.compute(list(tasks.values()))))

    def each(self, function: Callable[..., Any], arguments: dict[int, Any] | None = None, *shared: Any) -> list[Any]:
        """The results of :meth:`submit` on the client, for results that are small; by default of every chunk."""
        given = dict.fromkeys(range(len(self.blocks))) if arguments is None else arguments
        return gathered(list(self.submit(function, given, *shared).values()))

    def sum(self, function: Callable[..., Any], of_rows: Array | None = None, *shared: Any) -> Any:
        """The sum over all chunks of ``function(rows, part, *shared)``; part are the chunk's rows of ``of_rows``."""
        given = {k: None if of_rows is None else of_rows[rows] for k, rows in enumerate(self.slices)}
        # The terms have no name here, so that a worker gives them up once they are added.
        return gathered(total(self.client, list(self.submit(function, given, *shared).values()), _sum))

    def share(self, value: Any) -> Any:
        """A future of ``value`` for tasks; unlike scattered data it survives the loss of a worker."""
        import dask

        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 GiB"}):
            return self.client.submit(_unchanged, value, pure=False)


def sum_over(function: Callable[..., Array], X: Any, of_rows: Array | None = None, *shared: Any) -> Array:
    """The sum of ``function(rows, part, *shared)`` over blocks of an array or a file, or over :class:`Chunks`.

    ``part`` are the rows of ``of_rows`` that belong to a block.
    """
    if isinstance(X, Chunks):
        return X.sum(function, of_rows, *shared)
    terms = (function(X[rows], None if of_rows is None else of_rows[rows], *shared) for rows in row_blocks(len(X)))
    return reduce(np.add, terms)


def products_of_columns(X: Array, _: Any = None) -> Array:
    """``X'X`` (p, p) of rows X (n, p), in double precision."""
    X = X.astype(np.float64, copy=False)
    return X.T @ X


def by_rows(X: Any, name: str) -> Any:
    """X as a ``dask.array`` that is divided by rows alone, without empty chunks.

    Raises
    ------
    UserError
        If X is no matrix of numbers with a known number of rows in each chunk.
    """
    if getattr(X, "ndim", None) != 2 or not hasattr(X, "chunks"):
        raise UserError(f"{name} is no dask.array with one sample per row; make one with to_dask_array(lengths=True).")
    if np.isnan(X.shape).any():
        raise UserError(
            f"{name} has chunks of unknown size; compute them with X.compute_chunk_sizes(), or "
            "to_dask_array(lengths=True)."
        )
    check_real(X.dtype, name)
    return X.rechunk({0: tuple(n for n in X.chunks[0] if n) or (0,), 1: -1})


def first_rows(X: Any, n: int) -> Array:
    """The first n rows, in this process; Dask would give the tasks of a slice of X the names of other tasks."""
    return np.array(Chunks(X, "X")[:n] if is_chunked(X) else X[:n])


def without_missing(X: Any, name: str) -> Any:
    """X by rows (:func:`by_rows`); a chunk with NaN or infinite values raises UserError where it is computed."""
    import dask.array as da
    from dask import delayed

    X = by_rows(X, name)
    dtype = _precision(X)
    call = delayed(_checked, name="check", pure=False)
    starts = np.concatenate([[0], np.cumsum(X.chunks[0])])
    parts = [
        da.from_delayed(call(block, dtype, _from_row(name, start)), (int(n), X.shape[1]), dtype)
        for block, n, start in zip(X.to_delayed().ravel(), X.chunks[0], starts)
    ]
    return da.concatenate(parts)


def _from_row(name: str, start: int) -> str:
    return f"{name} (from row {start})"


def _precision(X: Any) -> Any:
    return np.dtype(np.float32 if X.dtype == np.float32 else np.float64)


def _checked(X: Array, dtype: Any, name: str | None) -> Array:
    X = np.ascontiguousarray(X, dtype=dtype)
    if name is not None:
        check_no_overflow(X, name, allow_tiny=True)
    return X


def in_chunks(X: Array) -> Any:
    """Rows X (n, p) of this process as a ``dask.array``."""
    import dask.array as da

    return da.from_array(X, chunks=(max(1, _CHUNK_BYTES // (X.shape[1] * X.itemsize)), -1))


def map_rows(function: Callable[[Array], Any], X: Any, example: Array) -> Any:
    """``function`` applied to each chunk of the ``dask.array`` X, as a lazy ``dask.array``.

    ``example`` is the function's result for one row: it tells the shape and the type of the others.
    """
    import dask.array as da
    from dask import delayed

    X = by_rows(X, "X")
    shared = delayed(function, pure=False, traverse=False)
    call = delayed(_apply, name=function.__name__, pure=False)
    parts = [
        da.from_delayed(call(shared, block), (int(n), *example.shape[1:]), example.dtype)
        for block, n in zip(X.to_delayed().ravel(), X.chunks[0])
    ]
    return da.concatenate(parts)


def encode_chunks(coding: Callable[..., Any], X: Any, D: Array, init: Any = None) -> tuple[Any, Any, Any]:
    """Codes (n, r), gaps (n,) and the number of iterations of the rows of a ``dask.array`` X, all lazy.

    ``coding(X, D, init)`` returns the codes of a chunk. The chunks of codes are CSR arrays.
    """
    import dask.array as da
    from dask import delayed

    X = without_missing(X, "X")
    starts = [None] * X.numblocks[0] if init is None else list(init.rechunk((X.chunks[0], -1)).to_delayed().ravel())
    shared = delayed(D, pure=False, traverse=False)
    call = delayed(_encode, name="sparse_encode", pure=False)
    found = [call(coding, block, shared, start) for block, start in zip(X.to_delayed().ravel(), starts)]
    meta = sp.csr_array((0, 0), dtype=X.dtype)
    A = [da.from_delayed(part[0], (int(n), len(D)), X.dtype, meta=meta) for part, n in zip(found, X.chunks[0])]
    gap = [da.from_delayed(part[1], (int(n),), np.float64) for part, n in zip(found, X.chunks[0])]
    return da.concatenate(A), da.concatenate(gap), delayed(max)([part[2] for part in found])


def total(client: Any, parts: Sequence[Any], add: Callable[[list[Any]], Any]) -> Any:
    """A future of the sum of futures, added on the workers, always in the same order."""
    while len(parts) > 1:
        parts = [
            client.submit(add, list(parts[i : i + _TOGETHER]), pure=False) for i in range(0, len(parts), _TOGETHER)
        ]
    return parts[0]


def gathered(futures: Any) -> Any:
    """The values of futures, on the client.

    Raises
    ------
    UserError
        If a task failed, or if the workers that tried it died.
    """
    from distributed import KilledWorker, wait
    from distributed.client import FutureCancelledError, FuturesCancelledError
    from distributed.comm import CommClosedError

    single = not isinstance(futures, list)
    futures = [futures] if single else futures
    try:
        while True:
            raise_if_interrupted()
            try:
                wait(futures, timeout=_LOOK)
                break
            except TimeoutError:
                continue
        values = futures[0].client.gather(futures)
    except KilledWorker as error:
        raise UserError(
            f"the workers that worked on {error.task} died, {len(futures)} tasks in all were waited for; their memory "
            "was probably too small: give them more, or make the chunks of rows smaller (X.rechunk)."
        ) from error
    except (FutureCancelledError, FuturesCancelledError, CommClosedError) as error:
        raise UserError(
            "the Dask cluster lost its data, or its scheduler ended; start the fit again on a new client, where a fit "
            "with a checkpoint goes on from its last dictionary."
        ) from error
    return values[0] if single else values


@contextmanager
def one_thread() -> Iterator[None]:
    """Let a task use one thread: Dask runs as many tasks at a time as a worker has threads."""
    n = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        with blas().limit(limits=1, user_api="blas"):
            yield
    finally:
        numba.set_num_threads(n)


def hashed(X: Array, _: None = None) -> Array:
    """A hash of the rows X, as bytes."""
    return np.frombuffer(hashlib.sha256(X.tobytes()).digest(), np.uint8)


def _client(name: str) -> Any:
    from distributed import get_client

    try:
        return get_client()
    except ValueError:
        raise UserError(
            f"{name} is a dask.array, but there is no Dask client; make one first: from distributed import Client; "
            "client = Client(threads_per_worker=1)."
        ) from None


def _apply(function: Callable[[Array], Any], X: Array) -> Any:
    with one_thread():
        return function(X)


def _encode(coding: Callable[..., Any], X: Array, D: Array, init: Any) -> tuple[Any, Array, int]:
    with one_thread():
        codes = coding(X, D, init.toarray() if sp.issparse(init) else init)
        return compressed(codes.A), codes.gap, codes.n_iter


def _sum(parts: list[Any]) -> Any:
    return reduce(add, parts)


class _Sealed:
    """An argument into which Dask does not look for futures; it cannot take estimators apart."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _unchanged(value: Any) -> Any:
    return value


def _take(X: Array, rows: Array) -> Array:
    return X[rows]


def _on_chunk(
    X: Any, dtype: Any, name: str | None, function: Callable[..., Any], argument: Any, shared: tuple[Any, ...]
) -> Any:
    """Run in a worker: check a chunk and call ``function`` on it."""
    with one_thread():
        X = _checked(X, dtype, name)
        return function(X, argument, *(s.value if isinstance(s, _Sealed) else s for s in shared))
