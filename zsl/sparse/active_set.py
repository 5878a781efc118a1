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

import numpy as np

from zsl.checks import Array
from zsl.sparse.few import LOOSE, is_few, solve_few
from zsl.sparse.gram import solve_in
from zsl.sparse.lasso import Codes, scale


def solve(X: Array, D: Array, lam: float, *, init: Array | None, tol: float, max_iter: int) -> Codes:
    """Block active set with an updated Cholesky factor. Arguments and result as in
    :func:`zsl.sparse.sparse_encode`.

    In float64 with a loose ``tol`` the search is made in float32; the gaps are those of the float64 problem
    all the same, and a row that missed ``tol`` is searched again in float64.
    """
    A = np.zeros((len(X), len(D)), X.dtype) if init is None else init.copy()
    if is_few(len(X), len(D)):
        gap, n_iter = solve_few(X, D, lam, A, tol, max_iter)
        return Codes(A, gap, n_iter)
    if X.dtype == np.float32 or tol < LOOSE:
        gap, n_iter = solve_in(X.dtype.type, X, D, lam, A, tol, max_iter)
        return Codes(A, gap, n_iter)
    gap, n_iter = solve_in(np.float32, X, D, lam, A, tol, max_iter)
    missed = np.flatnonzero(~(gap <= tol * scale(X)))
    if missed.size:
        again = np.nan_to_num(A[missed], posinf=0.0, neginf=0.0)
        gap[missed], more = solve_in(np.float64, X[missed], D, lam, again, tol, max_iter)
        A[missed], n_iter = again, max(n_iter, more)
    return Codes(A, gap, n_iter)


# For a few rows the dictionary need not be looked at before, see sparse_encode.
solve.checks_dictionary = is_few  # type: ignore[attr-defined]
