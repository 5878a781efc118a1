r"""The solver that suits the codes: the active set where they are sparse, ADMM where they have hundreds of non-zeros.

With k non-zeros of r atoms the active set factorises a Gram matrix of k atoms for every row, about :math:`k^3`
operations, while ADMM multiplies every row with an (r, r) matrix in each of some tens of rounds, about :math:`r^2`
operations each, at the speed of matrix products. ADMM also inverts one (r, r) matrix, which many rows share. The number
of non-zeros is that of the warm start, or of a few rows that are coded first.
"""

from __future__ import annotations

import numpy as np

from zsl.checks import Array, check_no_overflow
from zsl.sparse.kernels.small_batch import solve_small_batch
from zsl.sparse.problem import Codes, scale
from zsl.sparse.solvers import active_set, admm

# The active set solves problems with fewer rows or fewer atoms than this.
_MIN_ROWS, _MIN_ATOMS = 64, 256
# Rows that are coded first, to this tolerance, to learn how many non-zeros codes have.
_PROBED, _ROUGH = 4, 1e-2
# ADMM is the faster one where k^3 is more than this multiple of r^2 (measured for r from 80 to 2560: 5 to 19), and
# where its inverse, which costs as much as r / 8 rows, is shared by enough rows.
_SWITCH, _INVERSE = 8, 8
# The active set solves the rows that ADMM has not finished after this many rounds.
_MOST_ROUNDS = 200


def solve(
    X: Array, D: Array, lam: float, *, init: Array | None, tol: float, max_iter: int, rough: float = 0.0
) -> Codes:
    """The active set, or ADMM; arguments and result as in :func:`zsl.sparse.sparse_encode`."""
    if len(X) < _MIN_ROWS or len(D) < _MIN_ATOMS or not _is_dense(X, D, lam, init, max_iter):
        return active_set.solve(X, D, lam, init=init, tol=tol, max_iter=max_iter)
    check_no_overflow(D, "D", allow_tiny=True)
    tol = max(tol, rough)
    A, gap, n_iter = admm.solve(X, D, lam, init=init, tol=tol, max_iter=min(max_iter, _MOST_ROUNDS))
    missed = np.flatnonzero(~(gap <= tol * scale(X)))
    if missed.size and n_iter < max_iter:
        A[missed], gap[missed], more = active_set.solve(X[missed], D, lam, init=A[missed], tol=tol, max_iter=max_iter)
        n_iter = max(n_iter, more)
    return Codes(A, gap, n_iter)


def _is_dense(X: Array, D: Array, lam: float, init: Array | None, max_iter: int) -> bool:
    """Whether codes have so many non-zeros that ADMM is the faster solver."""
    n, r = len(X), len(D)
    if init is None or not init.any():
        rows = X[np.linspace(0, n - 1, _PROBED).astype(np.int64)]
        A = np.zeros((_PROBED, r), X.dtype)
        gap, _ = solve_small_batch(rows, D, lam, A, _ROUGH, max_iter)
        if not (gap <= _ROUGH * scale(rows)).all():
            return True  # these codes have more non-zeros than a working set may hold
    else:
        A = init
    return prefers_admm(n, r, np.count_nonzero(A) / len(A))


def prefers_admm(n: float, r: int, k: float) -> bool:
    """Whether ADMM codes ``n`` rows with ``r`` atoms and ``k`` non-zeros in a code sooner than the active set."""
    return admm_margin(n, r, k) > 1


def admm_margin(n: float, r: int, k: float) -> float:
    """How clearly ADMM (above one) is preferred to the active set (below one); arguments of :func:`prefers_admm`."""
    if n < _MIN_ROWS or r < _MIN_ATOMS:
        return 0.0
    return n * k**3 / (_SWITCH * r**2 * (n + r / _INVERSE))
