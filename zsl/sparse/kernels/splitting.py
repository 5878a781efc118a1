# numba's functions are typed by their arguments.
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
"""Rounds of ADMM for many rows, in matrix products: the inner loop of :mod:`zsl.sparse.solvers.admm`."""

from __future__ import annotations

import numpy as np
from numba import prange

from zsl.checks import Array
from zsl.sparse.kernels.compiled import njit
from zsl.sparse.kernels.factor import FAST
from zsl.sparse.kernels.products import one_thread_each

# Rows of a strip, about: one thread takes a strip through all rounds. BLAS reads all of M for each strip and round, so
# short strips would be slow.
_STRIP = 512


def rounds(Q: Array, Z: Array, U: Array, M: Array, t: Array, rho: float, relax: float, n_rounds: int) -> float:
    r"""Run ``n_rounds`` rounds in place, the same to the bit for any number of threads.

    The problem of a row is ``1/2 aGa' - ca' + t |z|_1`` subject to ``a = z``. A round is

    .. math::
        a = z_0 + (q_0 - u + \rho (z - z_0)) M, \quad v = \rho (\omega a + (1 - \omega) z) + u, \quad
        z = \operatorname{soft}(v, t) / \rho, \quad u = \operatorname{clip}(v, -t, t) .

    Because a is a correction of the code at the start, ``z_0``, whose correlations ``q_0`` may have been computed in
    double precision, rounding in single precision changes the correction alone.

    Parameters
    ----------
    Q : (n, r)
        Correlations ``c - z_0 G`` of the residual at the start.
    Z : (n, r)
        Codes.
    U : (n, r)
        Dual variables; at the minimum they are the correlations.
    M : (r, r)
        ``(G + rho I)^-1``.
    t : (n,)
        Penalties.
    rho : float > 0
    relax : float
        The over-relaxation, omega above.
    n_rounds : int >= 1

    Returns
    -------
    float
        The balance of the last round: ``|a - z| / |z|`` over ``rho |change of z| / |u|``. It is large where rho is too
        small.
    """
    number = Z.dtype.type
    n_strips = 2 * -(-len(Z) // (2 * _STRIP))  # an even number, for two cores
    with one_thread_each():
        sums = _rounds(Q, Z, U, M, t, number(rho), number(relax), n_rounds, -(-len(Z) // n_strips)).sum(axis=0)
    primal, change, codes, duals = np.sqrt(sums)
    return float(np.clip(primal * duals / max(rho * change * codes, 1e-300), 1e-3, 1e3))


@njit(parallel=True, fastmath=FAST)
def _rounds(Q, Z, U, M, t, rho, relax, n_rounds, strip):
    n, r = Z.shape
    n_strips = (n + strip - 1) // strip
    sums = np.zeros((n_strips, 4))
    for w in prange(n_strips):
        low, high = w * strip, min(n, (w + 1) * strip)
        z0 = Z[low:high].copy()
        right, a = np.empty_like(z0), np.empty_like(z0)
        for k in range(n_rounds):
            for i in range(high - low):
                q, z, u, start, out = Q[low + i], Z[low + i], U[low + i], z0[i], right[i]
                for j in range(r):
                    out[j] = (q[j] - u[j]) + rho * (z[j] - start[j])
            np.dot(right, M, a)
            for i in range(high - low):
                z, u, start, step, limit = Z[low + i], U[low + i], z0[i], a[i], t[low + i]
                if k == n_rounds - 1:
                    _last(z, u, start, step, limit, rho, relax, sums[w])
                    continue
                for j in range(r):
                    v = rho * (relax * (start[j] + step[j]) + (1 - relax) * z[j]) + u[j]
                    dual = min(max(v, -limit), limit)
                    u[j] = dual
                    z[j] = (v - dual) / rho
    return sums


@njit(fastmath=FAST)
def _last(z, u, start, step, limit, rho, relax, sums):
    """The last round of a row, which also adds up the squares of ``a - z``, the change of z, z and u."""
    primal, change, codes, duals = 0.0, 0.0, 0.0, 0.0
    for j in range(len(z)):
        a = start[j] + step[j]
        v = rho * (relax * a + (1 - relax) * z[j]) + u[j]
        dual = min(max(v, -limit), limit)
        new = (v - dual) / rho
        primal += (a - new) ** 2
        change += (new - z[j]) ** 2
        codes += new * new
        duals += dual * dual
        u[j], z[j] = dual, new
    sums[0] += primal
    sums[1] += change
    sums[2] += codes
    sums[3] += duals
