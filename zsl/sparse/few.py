# numba's functions are typed by their arguments.
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
"""The active set for a few rows, such as one image at test time: no Gram matrix of all atoms.

Each problem is solved on a working set of atoms, which grows by those that violate the conditions. What takes the time
is to read the dictionary; a row does that twice, once for its correlations and once for the certificate.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from zsl.checks import Array, as_matrix
from zsl.sparse.certificate import gap_of_residual
from zsl.sparse.factor import FAST
from zsl.sparse.gram import blas, solve_in

# For up to this many rows and from this many atoms on, the Gram matrix costs more than it saves.
_FEW, _MANY_ATOMS = 4, 256
# Atoms in the first working set.
_WORK = 64
# From this tolerance on float32 is precise enough to search in.
LOOSE = 1e-5


def is_few(n: int, r: int) -> bool:
    """Whether ``n`` rows and ``r`` atoms are a case for this module."""
    return n <= _FEW and r >= _MANY_ATOMS


def solve_few(X: Array, D: Array, lam: float, A: Array, tol: float, max_iter: int) -> tuple[Array, int]:
    """Improve the codes ``A`` in place; their gaps and the largest number of rounds.

    Raises
    ------
    UserError
        If D holds NaN or inf, which its products with a sample show at no cost.
    """
    # Threads would wait for each other longer than they work.
    with blas().limit(limits=1, user_api="blas"):
        found = [_solve_one(x, D, lam, a, tol, max_iter) for x, a in zip(X, A)]
    return np.array([gap for gap, _ in found]), max(n for _, n in found)


@njit(cache=True, fastmath=FAST, error_model="numpy")
def _products(D, x, q, squares):
    """``q = D x`` and the squared length of every atom, in one pass over D."""
    for j in range(len(D)):
        d = D[j]
        product, square = x[0] * 0, x[0] * 0
        for m in range(len(d)):
            product += d[m] * x[m]
            square += d[m] * d[m]
        q[j] = product
        squares[j] = square


def _solve_one(x: Array, D: Array, lam: float, a: Array, tol: float, max_iter: int) -> tuple[float, int]:
    """Improve the code ``a`` of one sample; its gap and the rounds."""
    r, p = D.shape
    t = lam * p / (2 * r)
    x64 = x.astype(np.float64, copy=False)
    xx = float(x64 @ x64)
    search: type = np.float32 if tol >= LOOSE else D.dtype.type
    work, total, gap = np.flatnonzero(a), 0, np.inf
    q, squares = np.empty(r, D.dtype), np.empty(r, D.dtype)
    _products(D, x - a[work] @ D[work] if work.size else x, q, squares)
    if not np.isfinite(squares).all():
        as_matrix(D, "D")
    # Rounding of a product of D with the residual, by atom and per unit of the residual.
    error = np.finfo(D.dtype).eps * (16 + p**0.5) * np.sqrt(squares)
    while True:
        # As many again as there are, at least a batch: those with the steepest correlations.
        steep = np.abs(q)
        steep[work] = -1
        batch = min(max(_WORK, len(work)), r)
        new = np.argpartition(steep, r - batch)[r - batch :]
        work = np.concatenate([work, new[steep[new] > t]])
        if 2 * len(work) > r:
            gaps, n = solve_in(D.dtype.type, x[None], D, lam, a[None], tol, max_iter)
            return float(gaps[0]), total + n
        part, code = D[work], a[work][None]
        # The penalty is lam / r whatever the number of atoms.
        _, n = solve_in(search, x[None], part, lam * len(work) / r, code, 0.5 * tol, max_iter)
        a[work], total = code[0], total + n
        used = np.flatnonzero(code[0])
        residual = x64 - code[0][used].astype(np.float64) @ part[used].astype(np.float64)
        q = D @ residual.astype(D.dtype)
        rr, rx = float(residual @ residual), float(residual @ x64)
        slack = error * rr**0.5
        candidates = np.flatnonzero(np.abs(q) + slack >= (np.abs(q) - slack).max())
        steepest = float(np.abs(D[candidates].astype(np.float64) @ residual).max())
        before = gap
        gap = gap_of_residual(rr, rx, t, steepest, float(np.abs(code).sum(dtype=np.float64))) * 2 / p
        if gap <= tol * xx / p or total >= max_iter or gap >= before:
            return gap, total
