# numba's functions are typed by their arguments.
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
"""Matrix products on numba's threads instead of BLAS's, or on a GPU (:mod:`zsl.device`).

OpenBLAS keeps its own threads spinning for a while after a product, on the cores that the next numba kernel wants,
which slows that kernel down. Here every strip of rows is one single-threaded BLAS call, and numba distributes the
strips over its threads. ``docs/sparse-coding.md`` has the measurements.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import numpy as np

# numba's products call scipy's BLAS, which must be loaded here so that ``blas`` finds its threads.
import scipy.linalg.cython_blas  # noqa: F401
from numba import prange
from numba.np.ufunc.parallel import threading_layer
from threadpoolctl import ThreadpoolController

from zsl.checks import Array
from zsl.device import current
from zsl.errors import UserError
from zsl.sparse.kernels.compiled import njit

# A product of up to this many multiplications is done before a second thread has woken up.
_SMALL = 1e8
# From this many multiplications on, a Gram matrix gains more from its symmetry, which BLAS uses, than it loses to
# spinning threads.
_LARGE = 1e10
# Approximate number of rows of a strip.
_STRIP = 256
# The limit on BLAS's threads belongs to the whole process: a second thread that entered while the first had set the
# limit would save the limited value and restore that value last.
_limited = threading.Lock()
_is_forked = False


def _after_fork() -> None:
    global _is_forked
    try:
        _is_forked = threading_layer() == "omp"
    except ValueError:  # no kernel has started threads yet
        return


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def check_not_forked() -> None:
    """Raise UserError in a process that was forked after threads of GNU OpenMP had run in its parent.

    OpenMP would end such a process without an exception in Python.
    """
    if _is_forked:
        raise UserError(
            "this process was forked after OpenMP had started threads, which does not work; start workers by spawn "
            '(multiprocessing.get_context("spawn")), or with joblib.'
        )


@lru_cache(maxsize=1)
def blas() -> ThreadpoolController:
    """The controller of this process's thread pools, for ``with blas().limit(limits=1, user_api="blas")``."""
    return ThreadpoolController()


def strip_rows(n: int, about: int) -> int:
    """Rows of a strip if ``n`` rows are divided into strips of at most ``about`` rows, an even number for two cores.

    Examples
    --------
    >>> strip_rows(600, about=256)
    150
    """
    return -(-n // (2 * -(-n // (2 * about))))


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Give BLAS one thread while numba's threads call it, each for a strip of rows."""
    with _limited, blas().limit(limits=1, user_api="blas"):
        yield


def product(A: Array, B: Array) -> Array:
    """The product ``A B``, on the CPU the same to the bit for any number of threads.

    Parameters
    ----------
    A : (n, p)
        Contiguous.
    B : (p, m)
        Contiguous or the transpose of a contiguous matrix, in the dtype of A.

    Returns
    -------
    (n, m)

    Examples
    --------
    >>> import numpy as np
    >>> product(np.array([[1.0, 2.0]]), np.array([[3.0], [4.0]]))
    array([[11.]])
    """
    n = len(A)
    is_small = n * B.size <= _SMALL
    here = current()
    if not (is_small or here.is_cpu):
        return here.get(here.put(A) @ here.put(B))
    out: Array = np.empty((n, B.shape[1]), A.dtype)
    with one_thread_each():
        if is_small:
            return np.matmul(A, B, out=out)
        _strips(A, B, out, strip_rows(n, _STRIP))
    return out


def gram(A: Array) -> Array:
    """``A A'`` (n, n), products of the rows of a contiguous A (n, p), in the type of A."""
    return A @ A.T if len(A) * A.size > _LARGE and current().is_cpu else product(A, A.T)


@njit(parallel=True)
def _strips(A, B, out, step):
    n = len(A)
    for w in prange((n + step - 1) // step):
        low = w * step
        high = min(n, low + step)
        np.dot(A[low:high], B, out[low:high])
