"""What the log says before a long fit: how long it is likely to take, and settings that make it long for nothing."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import cache

import numpy as np

from zsl.checks import Array
from zsl.progress import compilation, duration
from zsl.sparse.problem import Codes

log = logging.getLogger(__name__)

# A fit whose products with all atoms have fewer multiplications than this takes seconds; no row of it is coded for an
# estimate. Small fits with dense codes may take longer, and the progress bar alone speaks of them.
_SHORT = 3e10
# Rows that are coded to estimate the time of one row: a few, then more, since all rows share the products of D. Their
# tolerance is that of a pass in the middle. On the features of docs/costs.md a fit took 0.8 to 1.4 times the estimate.
_FEW, _PROBED, _TOL = 256, 1280, 1e-4
_A_MINUTE = 60.0
# The dictionary is called too large if it has this many times more atoms than rows.
_MANY = 2
# Share of the features from which codes are called dense, and the number of features from which that is slow. With
# default settings model=coupled has codes of half as many non-zeros as features.
_DENSE, _SMALL = 0.7, 32


def announce(
    rows: Callable[[Array], Array], n: int, D: Array, encode: Callable[[Array, Array, float], Codes], n_passes: int
) -> None:
    """Say in the log how long ``n_passes`` over ``n`` rows are likely to take, if that is more than a minute.

    Parameters
    ----------
    rows : callable
        Returns the rows of the given numbers.
    n : int
    D : (r, p)
        The initial dictionary.
    encode : callable
        ``encode(X, D, rough) -> Codes``; ``rough`` is a tolerance that may replace a smaller one.
    n_passes : int
    """
    r, p = D.shape
    if r > _MANY * n:
        _say_once(
            f"the dictionary has {r} atoms, more than {_MANY} for each training image, so most of its atoms cannot be "
            "learned; set model.n_atoms to at most the number of training images"
        )
    if float(n) * r * p * n_passes < _SHORT or n < 2 * _PROBED:
        return
    X = rows(np.linspace(0, n - 1, _PROBED).astype(np.int64))
    few = X[:: _PROBED // _FEW]
    shared, _ = _timed(encode, few, D)
    if shared * n / _FEW * n_passes < _A_MINUTE:
        return
    shared, _ = _timed(encode, few, D)  # threads and memory are there now
    seconds, codes = _timed(encode, X, D)
    likely = (shared + max(seconds - shared, 0.0) * (n - _FEW) / (_PROBED - _FEW)) * n_passes
    if likely >= _A_MINUTE:
        log.info(
            "learning the dictionary is likely to take %s: %d passes over %d images, whose codes have about %.0f "
            "non-zeros", duration(likely), n_passes, n, codes.density * r,
        )  # fmt: skip


@cache
def _say_once(sentence: str) -> None:
    """Say a warning once in a process: tuning, validation and averaged dictionaries fit many times with one setting."""
    log.warning("%s", sentence)


def _timed(encode: Callable[[Array, Array, float], Codes], X: Array, D: Array) -> tuple[float, Codes]:
    """The seconds of a coding without those of compiling kernels, and its codes."""
    start, compiled = time.perf_counter(), compilation.seconds
    codes = encode(np.ascontiguousarray(X), D, _TOL)
    return time.perf_counter() - start - (compilation.seconds - compiled), codes


def say_if_dense(n_nonzero: float, p: int) -> None:
    """Say in the log that codes are dense by nature, if they have more non-zeros than seven tenths of p features.

    Of fewer than 32 features it says nothing: their codes cost little, however dense they are.

    Examples
    --------
    >>> say_if_dense(12.0, p=64)
    """
    if n_nonzero > _DENSE * p and p >= _SMALL:
        _say_once(
            f"the codes of the training images have more non-zeros on average than {_DENSE:.0%} of the {p} features, "
            "so they are dense and slow to compute; a larger model.lam (or model.lam_relative) makes them sparse"
        )
