r"""ADMM for many rows at once: the fast solver where codes have hundreds of non-zeros.

With :math:`t = \lambda p / 2r` the problem is ``1/2 aGa' - ca' + t |z|_1`` subject to ``a = z``. A round is a ridge
problem, whose inverse ``(G + rho I)^-1`` all rows share, and a soft threshold; it costs one matrix product. The codes
are ``z``, which is sparse. Rows are brought to unit length, so that one rho serves all of them.

Rounds run in single precision where ``tol`` allows. Between them the correlations of the residual are computed in
double precision (*iterative refinement*): they give each row its certificate, and the next rounds compute only a
correction, so that rounding does not limit the gap.

The number of rounds depends on rho, which is settled on the first block of rows: it balances the distance from a to z
with the change of z in a round, both relative (Wohlberg 2017).
"""

from __future__ import annotations

import math

import numpy as np
import scipy.linalg

from zsl.checks import Array
from zsl.sparse.kernels.products import gram, one_thread_each
from zsl.sparse.kernels.splitting import rounds
from zsl.sparse.problem import Codes, certificate, scale

# Numbers of rows: of a block, whose rows go through the rounds together, and of the first block, which settles rho.
BLOCK, _FIRST_BLOCK = 2048, 256
# Rounds between two certificates; a certificate costs as much as three or four rounds.
_FIRST, _FEWEST, MOST = 10, 5, 30
# A gap falls by at least this in a typical round, in natural logarithms.
_FALL = 0.2
# Over-relaxation (Eckstein & Bertsekas 1992); more than 1.8 makes the last digits slow.
RELAX = 1.8
# For this tolerance and larger ones, rounds run in single precision.
LOOSE = 1e-7
# The first rho is this multiple of t, the penalty, over the root mean square of the codes.
PENALTY = 0.8
# A code needs the fewest rounds if the balance (:func:`zsl.sparse.kernels.splitting.rounds`) is 0.3 to 1.5 after the
# first rounds; this was measured with 60 to 900 non-zeros, for atoms that are samples and for learned ones. Where the
# balance is off by more than NEAR at the first check, or by more than FAR later, rho is multiplied by the balance to
# the power POWER.
POWER, NEAR, FAR = 0.75, 1.3, 10.0


def solve(X: Array, D: Array, lam: float, *, init: Array | None, tol: float, max_iter: int) -> Codes:
    """Alternating directions (Boyd et al. 2011); arguments and result as in :func:`zsl.sparse.sparse_encode`."""
    A = np.zeros((len(X), len(D)), X.dtype) if init is None else init.copy()
    gap = np.zeros(len(X))
    if not D.any():
        A[:] = 0
        return Codes(A, gap, 0)
    splitting = _Splitting(D, lam, tol, max_iter)
    n_iter, start, size = 0, 0, _FIRST_BLOCK
    while start < len(X):
        rows = slice(start, start + size)
        n_iter = max(n_iter, splitting.improve(X[rows], A[rows], gap[rows]))
        start, size = start + size, BLOCK
    return Codes(A, gap, n_iter)


class _Splitting:
    """What the blocks share: the dictionary, rho and the inverse that belongs to it."""

    inverse: Array

    def __init__(self, D: Array, lam: float, tol: float, max_iter: int) -> None:
        r, p = D.shape
        self.lam, self.tol, self.max_iter, self.t = lam, tol, max_iter, lam * p / (2 * r)
        self.dtype: type = np.float32 if tol >= LOOSE else np.float64
        self.D = D.astype(np.float64, copy=False)
        self.G = gram(D.astype(self.dtype, copy=False))
        self.mean = float(np.trace(self.G)) / r
        self.rho, self.steps, self.checks = 0.0, _FIRST, 0

    def improve(self, X: Array, A: Array, gap: Array) -> int:
        """Write better codes to A and their gaps to ``gap``; return the rounds used."""
        A[~(scale(X) > 0)] = 0  # the code of a zero row, whatever the start
        gap[:], Q = certificate(X, self.D, A, self.lam)
        limit = self.tol * scale(X)
        todo = np.flatnonzero(gap > limit)
        if not todo.size:
            return 0
        # From here on x, codes and penalty are those of rows of unit length.
        length = np.linalg.norm(X[todo].astype(np.float64, copy=False), axis=1)
        Q, z = Q[todo] / length[:, None], (A[todo] / length[:, None]).astype(self.dtype)
        t = self.t / length
        if not self.rho:
            # For codes that are zero the size of an entry is a guess, as if all atoms were used equally.
            size = float(np.sqrt(np.mean(np.square(z, dtype=np.float64)))) or 0.5 / math.sqrt(self.mean * len(self.G))
            self._set(PENALTY * float(t.mean()) / size)
        # The dual variables that belong to z: the penalty with the sign of z, or the correlation where z is zero.
        u = np.where(z != 0, np.sign(z) * t[:, None], np.clip(Q, -t[:, None], t[:, None])).astype(self.dtype)
        n_iter, since, steps, last = 0, 0, self.steps, gap[todo] / limit[todo]
        while todo.size and n_iter < self.max_iter:
            steps = min(steps, self.max_iter - n_iter)
            balance = rounds(Q.astype(self.dtype), z, u, self.inverse, t.astype(self.dtype), self.rho, RELAX, steps)
            n_iter, since, self.checks = n_iter + steps, since + steps, self.checks + 1
            codes = (z * length[:, None]).astype(A.dtype)
            now, Q = certificate(X[todo], self.D, codes, self.lam)
            # ADMM does not descend, so codes are kept only if their gap is smaller.
            better = now < gap[todo]
            A[todo[better]], gap[todo[better]] = codes[better], now[better]
            alive = gap[todo] > limit[todo]
            ratio = (now / limit[todo])[alive]
            steps, last = next_steps(steps, last[alive], ratio), ratio
            todo, z, u, t, length = todo[alive], z[alive], u[alive], t[alive], length[alive]
            Q = Q[alive] / length[:, None]
            if alive.mean() > 0.5:
                self.steps = min(since + steps, MOST)  # for the next block
            # Convergence needs that rho stops changing.
            if todo.size and n_iter < 1000 and max(balance, 1 / balance) > (NEAR if self.checks == 1 else FAR):
                self._set(self.rho * min(max(balance, 0.1), 10.0) ** POWER)
                since, steps = 0, min(steps, _FIRST)
        return n_iter

    def _set(self, rho: float) -> None:
        self.rho = min(max(rho, 1e-4 * self.mean), 1e4 * self.mean)
        self.inverse = _inverse(self.G, self.rho).astype(self.dtype, copy=False)


def _inverse(G: Array, rho: float) -> Array:
    """``(G + rho I)^-1``, the same to the bit for any number of threads.

    It is computed in double precision where G is too badly conditioned for its own.
    """
    if np.trace(G) * np.finfo(G.dtype).eps > 1e-2 * rho:
        G = G.astype(np.float64)
    H = G.copy()
    H[np.diag_indices_from(H)] += H.dtype.type(rho)
    with one_thread_each():
        factor = scipy.linalg.cholesky(H, lower=True, overwrite_a=True, check_finite=False)
        (potri,) = scipy.linalg.get_lapack_funcs(("potri",), (factor,))
        lower = np.tril(potri(factor, lower=1, overwrite_c=1)[0])
    return lower + np.tril(lower, -1).T


def next_steps(steps: int, before: Array, now: Array) -> int:
    """The rounds until four of five rows are done, if their gaps go on falling as that of the median row did."""
    if not len(now):
        return steps
    fall = float(np.median(np.log(np.maximum(before, 1e-300) / now))) / steps
    need = float(np.quantile(np.log(now), 0.8)) / max(fall, _FALL)
    return int(np.clip(math.ceil(need), _FEWEST, MOST))
