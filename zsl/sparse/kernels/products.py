# numba's functions are typed by their arguments.
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
"""Matrix products on the threads that search the codes.

A BLAS keeps its own threads spinning for some 20 ms after a product (OpenBLAS, by default), on the cores that the next
kernel wants: the rows of 2000 samples took 64 ms after a product of two threads, 36 ms after one of these. Here every
strip of rows is one BLAS call of one thread, and the strips are shared out by numba.
"""

from __future__ import annotations

import os
import threading
from functools import lru_cache

import numpy as np

# numba's products call scipy's BLAS: loaded here, so that ``blas`` finds its threads.
import scipy.linalg.cython_blas  # noqa: F401
from numba import njit, prange
from numba.np.ufunc.parallel import threading_layer
from threadpoolctl import ThreadpoolController

from zsl.checks import Array
from zsl.errors import UserError

# Multiplications up to which a product is done before a second thread has woken up; on a busy machine long before.
_SMALL = 1e8
# Multiplications from which a Gram matrix gains more from its symmetry, which BLAS uses, than it loses to spinning.
_LARGE = 1e10
# About as many rows as a strip has.
_STRIP = 256
# The limit on BLAS is the process's: of two threads inside, the second would find it and leave it behind.
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


def need_threads() -> None:
    """Refuse to work where OpenMP would end the process without a word that Python sees.

    Raises
    ------
    UserError
        In a process that was forked after threads of GNU OpenMP had run in its parent.
    """
    if _is_forked:
        raise UserError(
            "this process was forked after OpenMP had started threads, which does not work; start workers by spawn "
            '(multiprocessing.get_context("spawn")), or with joblib.'
        )


@lru_cache(maxsize=1)
def blas() -> ThreadpoolController:
    """The thread pools of this process: ``with blas().limit(limits=1, user_api="blas")``."""
    return ThreadpoolController()


def product(A: Array, B: Array) -> Array:
    """``A B`` (n, m) of a contiguous A (n, p) and B (p, m) or its transpose, of one floating type; the same on any
    number of threads."""
    n = len(A)
    out: Array = np.empty((n, B.shape[1]), A.dtype)
    with _limited, blas().limit(limits=1, user_api="blas"):
        if out.size * len(B) <= _SMALL:
            return np.matmul(A, B, out=out)
        # An even number of strips, for two cores.
        _strips(A, B, out, -(-n // (2 * -(-n // (2 * _STRIP)))))
    return out


def gram(A: Array) -> Array:
    """``A A'`` (n, n) of a contiguous A (n, p)."""
    return A @ A.T if len(A) ** 2 * A.shape[1] > _LARGE else product(A, A.T)


@njit(cache=True, parallel=True)
def _strips(A, B, out, step):
    n = len(A)
    for w in prange((n + step - 1) // step):
        low = w * step
        high = min(n, low + step)
        np.dot(A[low:high], B, out[low:high])
