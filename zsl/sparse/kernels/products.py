"""Matrix products on the threads of the compiled kernels instead of BLAS's, or on a GPU (:mod:`zsl.device`).

OpenBLAS keeps its own threads spinning for a while after a product, on the cores that the next kernel wants, which
slows that kernel down. Here every strip of rows is one single-threaded BLAS call. ``docs/sparse-coding.md`` has the
measurements.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import numpy as np

# Products in compiled kernels call scipy's BLAS, which must be loaded here so that ``blas`` finds its threads.
import scipy.linalg.cython_blas  # noqa: F401
from threadpoolctl import ThreadpoolController

from zsl.checks import Array
from zsl.device import current
from zsl.sparse.kernels.threads import in_forked_child, spread

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


@in_forked_child
def _unlock() -> None:
    """Replace the lock, which a thread of the parent may have held when it forked this process."""
    global _limited
    _limited = threading.Lock()


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
    """Give BLAS one thread while several threads call it, each for a strip of rows."""
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
        strip = strip_rows(n, _STRIP)
        spread(_strips, -(-n // strip), 1, A, B, out, strip)
    return out


def gram(A: Array) -> Array:
    """``A A'`` (n, n), products of the rows of a contiguous A (n, p), in the type of A."""
    return A @ A.T if len(A) * A.size > _LARGE and current().is_cpu else product(A, A.T)


def _strips(first: int, step: int, A: Array, B: Array, out: Array, strip: int) -> None:
    for low in range(first * strip, len(A), step * strip):
        np.matmul(A[low : low + strip], B, out=out[low : low + strip])
