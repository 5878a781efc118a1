r"""ADMM on a GPU, or on the CPU, by PyTorch: for codes with many non-zeros and many rows, all in matrix products.

The rounds and the choice of rho are those of :mod:`zsl.sparse.solvers.admm`, in single precision where ``tol`` allows;
residuals, their correlations and the gaps are in double precision. Once the signs of a row's code stand still, the
*exact finish* solves for the code with these signs,

.. math:: G_{SS}\, \delta = q_S - t s ,

where S is the support, s its signs and q the correlations of the residual, for many rows at once.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from zsl.checks import Array
from zsl.device import torch_device
from zsl.sparse.problem import Codes
from zsl.sparse.solvers.admm import BLOCK, FAR, LOOSE, MOST, NEAR, PENALTY, POWER, RELAX, next_steps

# Numbers of rows of a block on a GPU, and of the first block, which settles rho.
_GPU_BLOCK, _FIRST_BLOCK = 16384, 512
_FIRST_ROUNDS = 10
# The exact finish is tried for gaps below this multiple of the tolerance; Gram matrices take this many bytes at once.
_CLOSE, _FINISH_BYTES = 1e4, 2**28


def solve(
    X: Array, D: Array, lam: float, *, init: Array | None, tol: float, max_iter: int, rough: float = 0.0
) -> Codes:
    """Alternating directions on the chosen device (:mod:`zsl.device`); see :func:`zsl.sparse.sparse_encode`."""
    place = torch_device()
    import torch

    A = np.zeros((len(X), len(D)), X.dtype) if init is None else init.copy()
    gap = np.zeros(len(X))
    if not D.any():
        A[:] = 0
        return Codes(A, gap, 0)
    with torch.inference_mode():
        splitting = _Splitting(torch, place, D, lam, max(tol, rough), max_iter)
        n_iter, start, size = 0, 0, _FIRST_BLOCK
        while start < len(X):
            rows = slice(start, start + size)
            x, z = (torch.as_tensor(V[rows], device=place, dtype=torch.float64) for V in (X, A))
            codes, gaps, used = splitting.improve(x, z)
            # Rounding to the precision of X raises the gap, which is therefore that of the rounded codes.
            A[rows] = codes.cpu().numpy().astype(X.dtype, copy=False)
            if X.dtype == np.float32:
                gaps, _ = splitting.certificate(x, codes.float().double())
            gap[rows] = gaps.cpu().numpy()
            n_iter = max(n_iter, used)
            start, size = start + size, _GPU_BLOCK if place.type == "cuda" else BLOCK
    return Codes(A, gap, n_iter)


class _Splitting:
    """What the blocks share: the dictionary on the device, rho and the inverse that belongs to it."""

    def __init__(self, torch: Any, place: Any, D: Array, lam: float, tol: float, max_iter: int) -> None:
        r, p = D.shape
        self.torch, self.lam, self.tol, self.max_iter, self.t = torch, lam, tol, max_iter, lam * p / (2 * r)
        self.dtype = torch.float32 if tol >= LOOSE else torch.float64
        self.D = torch.as_tensor(D, device=place, dtype=torch.float64)
        self.G = self.D @ self.D.T
        self.small = self.G.to(self.dtype)
        self.mean = float(self.G.trace()) / r
        self.rho, self.steps, self.checks, self.inverse = 0.0, _FIRST_ROUNDS, 0, self.small

    def certificate(self, X: Any, A: Any) -> tuple[Any, Any]:
        """Duality gaps (n,) and the correlations (n, r) of the residuals, as :func:`zsl.sparse.problem.certificate`."""
        torch, (r, p) = self.torch, self.D.shape
        R = X - A @ self.D
        Q = R @ self.D.T
        RR, Rx, steepest = (R * R).sum(1), (R * X).sum(1), Q.abs().amax(1)
        limit = torch.where(steepest > 0, self.t / steepest, math.inf)
        top = torch.where(RR > 0, Rx / RR, 0.0)
        s = torch.minimum(torch.maximum(top, -limit), limit)
        gap = RR / p + self.lam / r * A.abs().sum(1) - (2 * s * Rx - s * s * RR) / p
        return gap.clamp(min=0.0), Q

    def improve(self, X: Any, A: Any) -> tuple[Any, Any, int]:
        """Better codes for the rows X, their gaps, and the rounds used."""
        torch = self.torch
        squares = (X * X).sum(1)
        A[squares == 0] = 0  # the code of a zero row, whatever the start
        gap, Q = self.certificate(X, A)
        limit = self.tol * squares / self.D.shape[1]
        todo = (gap > limit).nonzero()[:, 0]
        if not len(todo):
            return A, gap, 0
        # From here on x, codes and penalty are those of rows of unit length.
        length = squares[todo].sqrt()[:, None]
        Q, z, t = Q[todo] / length, (A[todo] / length).to(self.dtype), (self.t / length).to(self.dtype)
        if not self.rho:
            # For codes that are zero the size of an entry is a guess, as if all atoms were used equally.
            size = float(z.double().square().mean().sqrt()) or 0.5 / math.sqrt(self.mean * len(self.G))
            self._set(PENALTY * float(t.mean()) / size)
        u = torch.where(z != 0, z.sign() * t, torch.minimum(torch.maximum(Q.to(self.dtype), -t), t))
        n_iter, since, steps, last = 0, 0, self.steps, (gap[todo] / limit[todo]).cpu().numpy()
        while len(todo) and n_iter < self.max_iter:
            steps = min(steps, self.max_iter - n_iter)
            before = z.sign()
            z, u, balance = self._rounds(Q.to(self.dtype), z, u, t, steps)
            n_iter, since, self.checks = n_iter + steps, since + steps, self.checks + 1
            now, Q = self._keep(X, A, gap, todo, z.double() * length)
            alive = gap[todo] > limit[todo]
            still = alive & (z.sign() == before).all(1) & (now <= _CLOSE * limit[todo])
            if still.any():
                rows = still.nonzero()[:, 0]
                finished = self._finished(z[rows].double(), Q[rows] / length[rows], t[rows].double())
                self._keep(X, A, gap, todo[rows], finished * length[rows])
                alive = gap[todo] > limit[todo]
            ratio = (now / limit[todo])[alive].cpu().numpy()
            steps, last = next_steps(steps, last[alive.cpu().numpy()], ratio), ratio
            share = float(alive.double().mean())
            todo, z, u, t, length = todo[alive], z[alive], u[alive], t[alive], length[alive]
            Q = Q[alive] / length
            if share > 0.5:
                self.steps = min(since + steps, MOST)  # for the next block
            # Convergence needs that rho stops changing.
            if len(todo) and n_iter < 1000 and max(balance, 1 / balance) > (NEAR if self.checks == 1 else FAR):
                self._set(self.rho * min(max(balance, 0.1), 10.0) ** POWER)
                since, steps = 0, min(steps, _FIRST_ROUNDS)
        return A, gap, n_iter

    def _keep(self, X: Any, A: Any, gap: Any, which: Any, codes: Any) -> tuple[Any, Any]:
        """Write codes of the rows ``which`` where their gaps are smaller; return these gaps and the correlations."""
        now, Q = self.certificate(X[which], codes)
        better = now < gap[which]
        A[which[better]], gap[which[better]] = codes[better], now[better]
        return now, Q

    def _rounds(self, Q: Any, z: Any, u: Any, t: Any, n_rounds: int) -> tuple[Any, Any, float]:
        """The rounds of :func:`zsl.sparse.kernels.splitting.rounds`: codes, dual variables, and the balance."""
        torch, rho, start, change = self.torch, self.rho, z, z
        ridge = z
        for _ in range(n_rounds):
            ridge = start + (Q - u + rho * (z - start)) @ self.inverse
            v = rho * (RELAX * ridge + (1 - RELAX) * z) + u
            u = torch.minimum(torch.maximum(v, -t), t)
            old, z = z, (v - u) / rho
            change = z - old
        primal, moved, codes, duals = (float(V.double().norm()) for V in (ridge - z, change, z, u))
        return z, u, float(np.clip(primal * duals / max(rho * moved * codes, 1e-300), 1e-3, 1e3))

    def _finished(self, z: Any, Q: Any, t: Any) -> Any:
        """The codes with the supports and signs of z (n, r) at which the objective is least, for rows of length 1."""
        torch, out = self.torch, z.clone()
        sizes = (z != 0).sum(1)
        order = sizes.argsort()
        start = 0
        while start < len(order):
            # Rows with about as many non-zeros are solved together; a smaller matrix is filled up by the identity.
            most = int(sizes[order[start:]].amax())
            step = max(1, _FINISH_BYTES // max(1, most * most * self.small.element_size()))
            rows = order[start : start + step]
            k = int(sizes[rows[-1]])
            if k:
                support = (z[rows] != 0).to(self.dtype).topk(k, dim=1).indices
                there = z[rows].gather(1, support) != 0
                both = there[:, :, None] & there[:, None, :]
                H = torch.where(both, self.small[support[:, :, None], support[:, None, :]], 0.0)
                H.diagonal(dim1=1, dim2=2).add_((~there).to(self.dtype))
                wanted = torch.where(there, (Q[rows] - t[rows] * z[rows].sign()).gather(1, support), 0.0)
                factor, failed = torch.linalg.cholesky_ex(H)
                move = torch.cholesky_solve(wanted[:, :, None].to(self.dtype), factor)[:, :, 0]
                move = torch.where((failed == 0)[:, None] & there, move, 0.0).double()
                out[rows] = z[rows].scatter_add(1, support, move)
            start += step
        return out

    def _set(self, rho: float) -> None:
        self.rho = min(max(rho, 1e-4 * self.mean), 1e4 * self.mean)
        H = self.G.clone()
        H.diagonal().add_(self.rho)
        self.inverse = self.torch.cholesky_inverse(self.torch.linalg.cholesky(H)).to(self.dtype)
