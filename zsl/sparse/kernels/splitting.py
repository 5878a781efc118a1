# numba's functions are typed by their arguments.
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
"""Rounds of ADMM for many rows, in matrix products: the inner loop of :mod:`zsl.sparse.solvers.admm`."""

from __future__ import annotations

import numpy as np

from zsl.checks import Array
from zsl.sparse.kernels.compiled import njit
from zsl.sparse.kernels.factor import FAST
from zsl.sparse.kernels.products import one_thread_each, strip_rows
from zsl.sparse.kernels.threads import spread

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
    number, strip = Z.dtype.type, strip_rows(len(Z), _STRIP)
    sums = np.zeros((-(-len(Z) // strip), 4))
    with one_thread_each():
        spread(_rounds, len(sums), 1, Q, Z, U, M, t, number(rho), number(relax), n_rounds, strip, sums)
    primal, change, codes, duals = np.sqrt(sums.sum(axis=0))
    return float(np.clip(primal * duals / max(rho * change * codes, 1e-300), 1e-3, 1e3))


@njit(nogil=True, fastmath=FAST)
def _rounds(first, step, Q, Z, U, M, t, rho, relax, n_rounds, strip, sums):
    n, r = Z.shape
    zero = rho * 0
    for w in range(first, len(sums), step):
        low, high = w * strip, min(n, (w + 1) * strip)
        z0 = Z[low:high].copy()
        right, a = np.empty_like(z0), np.empty_like(z0)
        for _ in range(n_rounds):
            for i in range(high - low):
                q, z, u, start, out = Q[low + i], Z[low + i], U[low + i], z0[i], right[i]
                for j in range(r):
                    out[j] = (q[j] - u[j]) + rho * (z[j] - start[j])
            np.dot(right, M, a)
            sums[w] = 0
            for i in range(high - low):
                z, u, start, move, limit = Z[low + i], U[low + i], z0[i], a[i], t[low + i]
                primal, change, codes, duals = zero, zero, zero, zero
                for j in range(r):
                    ridge, old = start[j] + move[j], z[j]
                    v = rho * (relax * ridge + (1 - relax) * old) + u[j]
                    dual = min(max(v, -limit), limit)
                    new = (v - dual) / rho
                    u[j], z[j] = dual, new
                    primal += (ridge - new) * (ridge - new)
                    change += (new - old) * (new - old)
                    codes += new * new
                    duals += dual * dual
                sums[w, 0] += primal
                sums[w, 1] += change
                sums[w, 2] += codes
                sums[w, 3] += duals
