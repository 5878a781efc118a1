# numba's functions are typed by their arguments.
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
r"""Dictionary updates from the sufficient statistics of fixed codes.

For codes ``A`` (n, r) and samples ``X`` (n, p) with weights that sum to one, both updates see the data only
through ``AtA = A' W A`` (r, r) and ``AtX = A' W X`` (r, p). They minimise, over the dictionary ``D`` (r, p),

.. math:: \langle D, AtA\,D \rangle - 2 \langle D, AtX \rangle + \beta \|D\|_F^2 ,

which is the data term of Eqs. (3)-(4) up to a constant, subject to unit atoms where asked for (Eqs. 1-2).
"""

from __future__ import annotations

import warnings

import numpy as np
import scipy.linalg
from numba import njit

from zsl.checks import Array
from zsl.errors import UserError
from zsl.sparse.kernels.products import product

# Atoms whose products with all others are formed together, and of these the ones that are moved one by one.
_BLOCK, _STEP = 256, 64
# Atoms compared with all others at once.
_MANY = 256


def ridge_atoms(AtA: Array, AtX: Array, beta: float) -> Array:
    """The exact minimiser without a constraint, ``(AtA + beta I)^-1 AtX`` (r, p); ``beta > 0``.

    Raises
    ------
    UserError
        Where beta is lost in rounding beside the codes, as with features of length 1e-12.
    """
    # In double precision whatever the atoms are in: codes may be long.
    H = AtA.astype(np.float64)
    H[np.diag_indices_from(H)] += beta
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", scipy.linalg.LinAlgWarning)
            D = scipy.linalg.solve(H, AtX, assume_a="pos", overwrite_a=True)
        return D.astype(AtX.dtype, copy=False)
    except (np.linalg.LinAlgError, scipy.linalg.LinAlgWarning):
        raise UserError(
            f"beta={beta:g} is lost in rounding beside codes whose mean squared length is {np.trace(AtA):.3g}; "
            "bring features to unit length (feature.l2=true) or set a larger beta (model.beta)."
        ) from None


def unit_ball_atoms(AtA: Array, AtX: Array, D: Array, beta: float = 0.0, *, n_passes: int = 1) -> Array:
    """Block-coordinate descent over the atoms, each confined to the unit ball; never raises the objective.

    With the other atoms fixed, the objective in atom j is ``(AtA[j, j] + beta) |d - u|^2`` plus a constant, ``u``
    the unconstrained minimiser, so the projection of ``u`` on the ball is exact. ``D`` (r, p) must lie in the
    ball; it is not modified. Atoms that no code uses stay as they are.
    """
    D = D.copy()
    used = np.flatnonzero(np.diag(AtA) > 0)
    for _ in range(n_passes):
        for start in range(0, len(used), _BLOCK):
            block = used[start : start + _BLOCK]
            # One matrix product for the whole block; within it the products follow the atoms' moves.
            G = AtA[np.ix_(block, block)]
            descent = AtX[block] - product(AtA[block], D)
            moves = np.empty_like(descent)
            for k in range(0, len(block), _STEP):
                few = slice(k, k + _STEP)
                if k:
                    descent[few] -= product(G[few, :k].copy(), moves[:k])
                _move(G[few, few], descent[few], D, block[few], D.dtype.type(beta), moves[few])
    return D


def gradient_atoms(
    AtA: Array, AtX: Array, D: Array, beta: float = 0.0, *, in_ball: bool = True, n_steps: int = 1
) -> Array:
    r"""Projected gradient steps for all atoms at once; never raise the objective.

    Atom j steps by one over :math:`\sum_k |AtA_{jk}| + \beta`. The diagonal of these sums exceeds ``AtA + beta I``
    (their difference is diagonally dominant), so that each step minimises a bound that touches the objective at ``D``;
    as it has one factor per atom, the projection on the unit ball (``in_ball``, where ``D`` must lie) is exact. ``D``
    (r, p) is not modified. Atoms that no code uses stay as they are.
    """
    used = np.diag(AtA) > 0
    steps = np.zeros((len(D), 1), D.dtype)
    steps[used, 0] = 1 / (np.abs(AtA[used]).sum(axis=1) + beta)
    for _ in range(n_steps):
        D = D - steps * (AtA @ D - AtX + D.dtype.type(beta) * D)
        if in_ball:
            D /= np.maximum(np.linalg.norm(D, axis=1, keepdims=True), 1)
    return D


@njit(cache=True, fastmath={"reassoc", "contract", "nsz", "arcp"})
def _move(G, descent, D, block, beta, moves):
    """Update the atoms ``block`` of D one after another.

    ``descent`` holds their negative gradients before the first moved; ``moves`` is work space.
    """
    for k in range(len(block)):
        d, u, g = D[block[k]], moves[k], descent[k]
        i = 0
        while i + 4 <= k:
            f0, f1, f2, f3 = G[k, i], G[k, i + 1], G[k, i + 2], G[k, i + 3]
            m0, m1, m2, m3 = moves[i], moves[i + 1], moves[i + 2], moves[i + 3]
            for m in range(len(g)):
                g[m] -= (f0 * m0[m] + f1 * m1[m]) + (f2 * m2[m] + f3 * m3[m])
            i += 4
        while i < k:
            f0, m0 = G[k, i], moves[i]
            for m in range(len(g)):
                g[m] -= f0 * m0[m]
            i += 1
        step, square = 1 / (G[k, k] + beta), 0.0
        for m in range(len(g)):
            u[m] = d[m] + step * (g[m] - beta * d[m])
            square += u[m] * u[m]
        shrink = 1 / max(1.0, np.sqrt(square))
        for m in range(len(g)):
            g[m] = shrink * u[m]
        for m in range(len(g)):
            u[m] = g[m] - d[m]
            d[m] = g[m]


def quadratic(AtA: Array, AtX: Array, D: Array, beta: float = 0.0) -> float:
    """The objective above at ``D``."""
    return float(np.vdot(D, AtA @ D) - 2 * np.vdot(D, AtX) + beta * np.vdot(D, D))


def square(D: Array) -> float:
    """``|D|_F^2``; not by BLAS, whose threads would go on spinning (:mod:`zsl.sparse.kernels.products`)."""
    return float(np.einsum("ij,ij->", D, D))


def duplicate_atoms(D: Array, limit: float = 1 - 1e-6) -> tuple[Array, Array]:
    """Atoms whose ``|cos|`` with an atom at least as long exceeds ``limit``, and that atom, no duplicate itself.

    Zero atoms are none.
    """
    order = np.argsort(-np.linalg.norm(D, axis=1), kind="stable")
    # A coarse look in single precision, then the candidates in double.
    U: Array = unit_atoms(D).astype(np.float32, copy=False)[order]
    found: dict[int, int] = {}
    for start in range(0, len(U), _MANY):
        rows = U[start : start + _MANY]
        cosines = product(rows, U[: start + len(rows)].T)
        i, j = np.divmod(np.flatnonzero(np.abs(cosines, out=cosines) > limit - 1e-5), cosines.shape[1])
        i, j = i[j < i + start], j[j < i + start]
        for a, b in zip(i + start, j):
            u, v = D[order[a]].astype(np.float64), D[order[b]].astype(np.float64)
            # j comes first: whether it is a duplicate is known. Of one that is, this need be none.
            if order[b] not in found and abs(u @ v) > limit * np.linalg.norm(u) * np.linalg.norm(v):
                found.setdefault(int(order[a]), int(order[b]))
    atoms = np.array(sorted(found), np.int64)
    return atoms, np.array([found[a] for a in atoms], np.int64)


def unit_atoms(D: Array) -> Array:
    """Every atom scaled to length one; zero atoms stay zero."""
    norms = np.linalg.norm(D, axis=1, keepdims=True)
    return D / np.where(norms > 0, norms, 1)
