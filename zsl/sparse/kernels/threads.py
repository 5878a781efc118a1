# numba's functions are typed by their arguments.
# mypy: allow-untyped-calls
"""Compiled kernels on several cores, by threads of Python: each kernel releases the interpreter's lock.

numba can make such threads itself (``parallel=True``), but then compiling takes two to four times as long, every kernel
that may also get a single row has to be compiled twice, and GNU OpenMP ends a process that is forked later.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache
from typing import Any

import numba

# Waking a thread up takes about a tenth of a millisecond. A thread therefore gets codes of at least this size: the
# number of rows times the number of atoms.
_WORTH = 2048


def in_forked_child(action: Callable[[], None]) -> Callable[[], None]:
    """Let every process that is forked from this one call ``action`` first: it has none of its parent's threads."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=action)
    return action


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(numba.config.NUMBA_NUM_THREADS, "zsl-kernel")  # type: ignore[attr-defined]


in_forked_child(_threads.cache_clear)


def few_rows(r: int) -> int:
    """The fewest rows with codes of ``r`` atoms that are worth waking up a thread."""
    return max(1, _WORTH // max(r, 1))


def spread(kernel: Callable[..., Any], n_tasks: int, fewest: int, *args: Any) -> None:
    """Call ``kernel(first, step, *args)`` on as many threads as numba may use, each for a part of the tasks.

    Parameters
    ----------
    kernel : callable
        It does the tasks ``range(first, n_tasks, step)`` and must release the interpreter's lock.
    n_tasks : int
    fewest : int
        A thread gets at least so many tasks.

    Examples
    --------
    >>> found = [0] * 8
    >>> def square(first, step, out):
    ...     for i in range(first, len(out), step):
    ...         out[i] = i * i
    >>> spread(square, 8, 4, found)
    >>> found
    [0, 1, 4, 9, 16, 25, 36, 49]
    """
    step = max(1, min(numba.get_num_threads(), n_tasks // fewest))
    if step == 1:
        kernel(0, 1, *args)
        return
    others: list[Future[None]] = []
    try:
        others += (_threads().submit(kernel, first, step, *args) for first in range(1, step))
        kernel(0, step, *args)
    finally:
        _wait(others)
    for other in others:
        other.result()


def _wait(others: list[Future[None]]) -> None:
    """Wait for all, whatever ends one of them: they write to the caller's arrays, also while that is interrupted."""
    try:
        wait(others)
    except BaseException:
        _wait(others)
        raise
