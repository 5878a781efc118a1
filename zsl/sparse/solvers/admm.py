"""ADMM for all rows at once: alternate between a ridge problem with a cached inverse and a soft threshold."""

from __future__ import annotations

import numpy as np

from zsl.checks import Array
from zsl.sparse.problem import Codes, duality_gap, scale, soft_threshold

# The certificate costs as much as some iterations, so it is computed only this often; rho may change then.
_CHECK_EVERY = 20
# Rows that are iterated together, which bounds the work space to a few (_BLOCK, r) arrays.
_BLOCK = 4096
# Over-relaxation (Eckstein & Bertsekas 1992): 1.5 to 1.8 is faster than 1.
_RELAX = 1.6


def solve(X: Array, D: Array, lam: float, *, init: Array | None, tol: float, max_iter: int) -> Codes:
    r"""Alternating directions (Boyd et al. 2011); arguments and result as in :func:`zsl.sparse.sparse_encode`.

    The problem is ``1/2 aGa' - ca' + t |z|_1`` subject to ``a = z``, with ``t = lam p / 2r``. The codes are ``z``,
    which is sparse. The penalty rho follows the ratio of the residuals; one eigendecomposition gives the inverse of ``G
    + rho I`` for every rho.
    """
    A = np.zeros((len(X), len(D)), X.dtype) if init is None else init.copy()
    gap = duality_gap(X, D, A, lam)
    spectrum, V = np.linalg.eigh(D @ D.T)
    spectrum = np.maximum(spectrum, 0)
    n_iter = 0
    for start in range(0, len(X), _BLOCK):
        rows = slice(start, start + _BLOCK)
        used = _solve_block(X[rows], D, lam, A[rows], gap[rows], spectrum, V, tol, max_iter)
        n_iter = max(n_iter, used)
    return Codes(A, gap, n_iter)


def _solve_block(
    X: Array, D: Array, lam: float, A: Array, gap: Array, spectrum: Array, V: Array, tol: float, max_iter: int
) -> int:
    """Improve ``A`` and ``gap`` in place; return the iterations used."""
    r, p = D.shape
    dtype = X.dtype.type
    t = dtype(lam * p / (2 * r))
    limit = tol * scale(X)
    todo = np.flatnonzero(gap > limit)
    if not todo.size:
        return 0
    if not spectrum[-1] > 0:  # a dictionary of zeros
        A[todo] = 0
        gap[todo] = duality_gap(X[todo], D, A[todo], lam)
        return 0

    def inverse(rho: Array) -> Array:
        return (V / (spectrum + rho)) @ V.T

    C = X[todo] @ D.T
    z = A[todo]
    # At the solution the dual variable equals the correlations, which lie within [-t, t].
    rho = dtype(spectrum.mean())
    M = inverse(rho)
    dual = np.clip(C - z @ (D @ D.T), -t, t) / rho
    n_iter = 0
    while todo.size and n_iter < max_iter:
        steps = min(_CHECK_EVERY, max_iter - n_iter)
        for _ in range(steps):
            a = (C + rho * (z - dual)) @ M
            mixed = dtype(_RELAX) * a + dtype(1 - _RELAX) * z
            before, z = z, soft_threshold(mixed + dual, t / rho).astype(X.dtype, copy=False)
            dual += mixed - z
        n_iter += steps
        # ADMM does not descend, so a z is kept only if its gap is smaller.
        now = duality_gap(X[todo], D, z, lam)
        better = now < gap[todo]
        A[todo[better]], gap[todo[better]] = z[better], now[better]
        alive = gap[todo] > limit[todo]
        primal, change = float(np.linalg.norm(a - z)), float(rho * np.linalg.norm(z - before))
        todo, C, z, dual = todo[alive], C[alive], z[alive], dual[alive]
        if primal > 10 * change or change > 10 * primal:
            factor = dtype(2 if primal > change else 0.5)
            # An extreme rho would spoil the inverse by rounding, and convergence needs that rho stops changing.
            if 1e-6 * spectrum[-1] < rho * factor < 1e3 * spectrum[-1] and n_iter < 1000:
                rho, dual = rho * factor, dual / factor
                M = inverse(rho)
    return n_iter
