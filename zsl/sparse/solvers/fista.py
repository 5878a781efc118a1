"""Monotone FISTA with restart for all rows at once: a reliable first-order solver."""

from __future__ import annotations

import numpy as np

from zsl.checks import Array
from zsl.sparse.problem import Codes, duality_gap, scale, soft_threshold

# The certificate costs about as much as an iteration, so it is computed only this often.
_CHECK_EVERY = 20
# Rows that are iterated together, which bounds the work space to a few (_BLOCK, r) arrays.
_BLOCK = 8192


def solve(X: Array, D: Array, lam: float, *, init: Array | None, tol: float, max_iter: int) -> Codes:
    r"""Accelerated proximal gradient (Beck & Teboulle 2009); arguments and result as in
    :func:`zsl.sparse.sparse_encode`.

    The step length is ``1/L`` with ``L = 2/p |D|_2^2``. The method is monotone (their MFISTA): a step that would raise
    a row's objective is not taken, so a warm start never becomes worse. The momentum of a row restarts whenever it
    points uphill (O'Donoghue & Candes 2015). A row that has reached its gap leaves the iteration.
    """
    A = np.zeros((len(X), len(D)), X.dtype) if init is None else init.copy()
    gap = np.empty(len(X))
    G = D @ D.T
    # Any step <= 1/L converges. The factor covers rounding in the largest eigenvalue, the floor a zero dictionary.
    top = float(np.linalg.eigvalsh(G)[-1]) * (1 + 1e-5)
    L = max(2.0 / D.shape[1] * top, 1e-30)
    n_iter = 0
    for start in range(0, len(X), _BLOCK):
        rows = slice(start, start + _BLOCK)
        gap[rows], used = _solve_block(X[rows], D, G, L, lam, A[rows], tol, max_iter)
        n_iter = max(n_iter, used)
    return Codes(A, gap, n_iter)


def _solve_block(
    X: Array, D: Array, G: Array, L: float, lam: float, A: Array, tol: float, max_iter: int
) -> tuple[Array, int]:
    """Improve ``A`` in place; return the gaps and the iterations used."""
    r, p = D.shape
    limit = tol * scale(X)
    gap = duality_gap(X, D, A, lam)
    todo = np.flatnonzero(gap > limit)
    if not todo.size:
        return gap, 0

    def value(a: Array, aG: Array) -> Array:
        """The objective P without its constant |x|^2 / p."""
        return np.einsum("ij,ij->i", aG - 2 * xd, a) / p + lam / r * np.abs(a).sum(axis=1)

    a, xd = A[todo], X[todo] @ D.T
    aG = a @ G
    y, yG, t, f = a, aG, np.ones(len(a), X.dtype), value(a, aG)
    n_iter = 0
    while todo.size and n_iter < max_iter:
        steps = min(_CHECK_EVERY, max_iter - n_iter)
        for _ in range(steps):
            z = soft_threshold(y - 2.0 / (p * L) * (yG - xd), lam / (r * L)).astype(X.dtype, copy=False)
            zG = z @ G  # the only matrix product of the iteration; the other products are linear in it
            fz = value(z, zG)
            worse = fz > f
            restart = worse | (np.einsum("ij,ij->i", y - z, z - a) > 0)
            z[worse], zG[worse], fz[worse] = a[worse], aG[worse], f[worse]
            t_next = (1 + np.sqrt(1 + 4 * t * t)) / 2
            momentum = np.where(restart, 0, (t - 1) / t_next)[:, None].astype(X.dtype)
            t = np.where(restart, 1, t_next).astype(X.dtype)
            y, yG = z + momentum * (z - a), zG + momentum * (zG - aG)
            a, aG, f = z, zG, fz
        n_iter += steps
        A[todo] = a
        gap[todo] = duality_gap(X[todo], D, a, lam)
        alive = gap[todo] > limit[todo]
        todo = todo[alive]
        a, aG, y, yG, t, f, xd = (v[alive] for v in (a, aG, y, yG, t, f, xd))
    return gap, n_iter
