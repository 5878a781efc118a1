r"""Exact codes by a block active set: the default solver, and the fastest one for sparse codes.

With the Gram matrix :math:`G = DD^T`, :math:`c = xD^T` and :math:`t = \lambda p / 2r`, Eq. (5) is ``p/2``
times smaller than

.. math:: \min_a \; \tfrac12 aGa^T - ca^T + t \|a\|_1 ,

whose solution on a support S with signs s solves :math:`G_{SS}\, a_S = c_S - t s`. Each row keeps S, s and a
Cholesky factor of :math:`G_{SS}`. One round

1. computes the correlations :math:`q = c - aG`, and from them the duality gap; the row is done if the gap is small;
2. lets many of the atoms with ``|q| > t`` enter at once, the largest first, at most a share of the support;
3. solves on S and lets all atoms with a wrong sign leave at once, until every sign is right.

The factor is updated by appending columns and by Givens rotations, and it is computed again if many atoms leave. Few
rounds are needed, since no path is followed and no coordinate is visited twice. Letting many atoms enter or leave at
once need not lower the objective. A check therefore follows every round, and a failed round is replaced by *careful*
ones, which let one atom enter and stop at the first sign change; they are a descent method that ends. A warm start
begins with the support and the signs of ``init``.

Screening rules (Gap Safe; Fercoq, Gramfort and Salmon, 2015) are not used: they remove few atoms before the last round,
and the passes read whole rows of G in order, so skipping columns would make them slower. ``docs/sparse-coding.md`` has
the measurements.
"""

from __future__ import annotations

import numpy as np

from zsl.checks import Array, check_no_overflow
from zsl.sparse.kernels.gram import solve_in
from zsl.sparse.kernels.homotopy import follow
from zsl.sparse.kernels.small_batch import LOOSE, is_small_batch, solve_small_batch
from zsl.sparse.problem import Codes, duality_gap, scale

# A row that missed a finer tol is left alone if its gap is below this share of ``|x|^2 / p``: rounding is the reason.
_FINE = 1e-9


def solve(X: Array, D: Array, lam: float, *, init: Array | None, tol: float, max_iter: int) -> Codes:
    """Block active set with an updated Cholesky factor; arguments and result as in :func:`zsl.sparse.sparse_encode`.

    With a loose ``tol`` the search runs in float32 even if X is float64; the gaps are those of the float64 problem. A
    row that missed ``tol`` is searched again in float64, and then by homotopy.
    """
    A = np.zeros((len(X), len(D)), X.dtype) if init is None else init.copy()
    dtype: type = np.float32 if X.dtype == np.float32 or tol >= LOOSE else np.float64
    if is_small_batch(len(X), len(D)):
        gap, n_iter = solve_small_batch(X, D, lam, A, tol, max_iter)
    else:
        check_no_overflow(D, "D", allow_tiny=True)
        gap, n_iter = solve_in(dtype, X, D, lam, A, tol, max_iter)
    missed = np.flatnonzero(~(gap <= tol * scale(X)))
    if missed.size:
        n_iter = max(n_iter, _search_again(X, D, lam, A, gap, missed, tol, max_iter, n_iter >= max_iter))
    return Codes(A, gap, n_iter)


def _search_again(
    X: Array, D: Array, lam: float, A: Array, gap: Array, missed: Array, tol: float, max_iter: int, is_late: bool
) -> int:
    """Improve, in place, the codes of the rows that ``missed`` tol, in double precision or by homotopy."""
    x, d = X[missed].astype(np.float64, copy=False), D.astype(np.float64, copy=False)
    check_no_overflow(d, "D", allow_tiny=True)
    codes = np.nan_to_num(A[missed].astype(np.float64), posinf=0.0, neginf=0.0)
    # Rounding the codes to single precision raises the gap again, so the search aims lower.
    aim = tol if A.dtype == codes.dtype else tol / 10
    gaps, n_iter = solve_in(np.float64, x, d, lam, codes, aim, max_iter)
    # Descent may stall on atoms that nearly depend on each other, where following the path often succeeds.
    left = np.flatnonzero(~(gaps <= max(aim, _FINE) * scale(x)))
    if left.size and lam > 0 and not is_late and n_iter < max_iter:
        path, _ = follow(x[left], d, lam, max_iter)
        reached = duality_gap(x[left], d, path, lam)
        better = reached < gaps[left]
        codes[left[better]], gaps[left[better]] = path[better], reached[better]
    if A.dtype != codes.dtype:
        codes = codes.astype(A.dtype)
        gaps = duality_gap(x, d, codes, lam)
    better = ~(gap[missed] <= gaps)
    A[missed[better]], gap[missed[better]] = codes[better], gaps[better]
    return n_iter
