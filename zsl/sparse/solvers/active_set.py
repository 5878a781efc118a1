r"""Exact codes by a block active set: the default solver, and the fast one.

With the Gram matrix :math:`G = DD^T`, :math:`c = xD^T` and :math:`t = \lambda p / 2r`, Eq. (5) is ``p/2``
times smaller than

.. math:: \min_a \; \tfrac12 aGa^T - ca^T + t \|a\|_1 ,

whose solution on a support S with signs s solves :math:`G_{SS}\, a_S = c_S - t s`. Each row keeps S, s and a
Cholesky factor of :math:`G_{SS}`. One round

1. computes the correlations :math:`q = c - aG`, and from them the duality gap: stop if it is small enough;
2. lets many of the atoms with ``|q| > t`` enter at once, at most a share of the support, largest first;
3. solves on S; atoms whose sign came out wrong leave, all at once, until every sign is right.

The factor is updated: columns are appended, and taken out by Givens rotations unless many go at once.
Few rounds are needed (2 or 3 for 20 non-zeros, 7 for 165), since nothing is followed along a path and no
coordinate is visited twice. Letting many atoms in and out at once need not lower the objective: a check
follows, and a round that failed is replaced by *careful* ones that let one atom in and stop at the first
sign change, a descent method that ends. A warm start begins with the support and the signs of ``init``.

No atoms are screened out (Gap Safe rules; Fercoq, Gramfort and Salmon, 2015), for there is nothing left to save. With
1200 atoms in 1024 dimensions the sphere removes, of codes with 165 non-zeros, no atom before the gap is near 1e-3 of
``|x|^2 / p``, one round before the end; of codes with 20 non-zeros 1 to 10 % after the first round, when nine rows in
ten end with the second. After a warm start it removes 85 to 94 % of the atoms from what is one pass of 1.2 of 43
microseconds. The passes read whole rows of G in order: to skip columns would cost them more.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from zsl.checks import Array, need_small
from zsl.sparse.kernels.few import LOOSE, is_few, solve_few
from zsl.sparse.kernels.gram import solve_in
from zsl.sparse.kernels.homotopy import follow
from zsl.sparse.problem import Codes, duality_gap, scale

# A gap in units of ``|x|^2 / p`` below which a row that missed a finer tol is left alone: rounding, not the search.
_FINE = 1e-9


def solve(X: Array, D: Array, lam: float, *, init: Array | None, tol: float, max_iter: int) -> Codes:
    """Block active set with an updated Cholesky factor. Arguments and result as in
    :func:`zsl.sparse.sparse_encode`.

    In float64 with a loose ``tol`` the search is made in float32; the gaps are those of the float64 problem
    all the same. A row that missed ``tol`` is searched again in float64, and if need be by homotopy.
    """
    A = np.zeros((len(X), len(D)), X.dtype) if init is None else init.copy()
    dtype: type = np.float32 if X.dtype == np.float32 or tol >= LOOSE else np.float64
    search = solve_few if is_few(len(X), len(D)) else partial(solve_in, dtype)
    gap, n_iter = search(X, D, lam, A, tol, max_iter)
    missed = np.flatnonzero(~(gap <= tol * scale(X)))
    if missed.size:
        n_iter = max(n_iter, _again(X, D, lam, A, gap, missed, tol, max_iter, n_iter >= max_iter))
    return Codes(A, gap, n_iter)


def _again(
    X: Array, D: Array, lam: float, A: Array, gap: Array, missed: Array, tol: float, max_iter: int, is_late: bool
) -> int:
    """Better codes, in place, for the rows that ``missed`` tol, where double precision or the path finds them."""
    x, d = X[missed].astype(np.float64, copy=False), D.astype(np.float64, copy=False)
    need_small(d, "D", np.float64)
    codes = np.nan_to_num(A[missed].astype(np.float64), posinf=0.0, neginf=0.0)
    # Rounding to single precision takes some of what is reached.
    aim = tol if A.dtype == codes.dtype else tol / 10
    gaps, n_iter = solve_in(np.float64, x, d, lam, codes, aim, max_iter)
    # Where even descent stalls, on atoms that nearly depend on each other, the path often does not.
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


# For a few rows the dictionary need not be looked at before, see sparse_encode.
solve.checks_dictionary = is_few  # type: ignore[attr-defined]
