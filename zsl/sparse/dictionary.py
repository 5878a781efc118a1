# numba's functions are typed by their arguments.
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
r"""Dictionary updates for fixed codes: ridge atoms in closed form, unit-ball atoms by descent or gradient steps.

For codes ``A`` (n, r) and samples ``X`` (n, p) with weights ``W`` that sum to one, every update sees the data only
through the statistics ``AtA = A' W A`` (r, r) and ``AtX = A' W X`` (r, p). It lowers, over the dictionary ``D`` (r, p),

.. math:: \langle D, AtA\,D \rangle - 2 \langle D, AtX \rangle + \beta \|D\|_F^2 ,

which is the data term of Eqs. (3)-(4) up to a constant; atoms may be confined to the unit ball (Eqs. 1-2).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.linalg

from zsl.checks import Array
from zsl.device import Device, current
from zsl.errors import UserError
from zsl.sparse.kernels.compiled import njit
from zsl.sparse.kernels.products import product

# Products with all atoms are formed for _BLOCK atoms at a time; within a block _STEP atoms are moved one by one.
_BLOCK, _STEP = 256, 64
# Atoms that are compared with all others at once.
_COMPARED = 256
# A change of rank M is used for r >= _FEW M; with more rows a new factorisation is cheaper.
_FEW = 4


def ridge_atoms(AtA: Array, AtX: Array, beta: float) -> Array:
    """The exact minimiser without a constraint, ``(AtA + beta I)^-1 AtX``.

    Parameters
    ----------
    AtA : (r, r)
    AtX : (r, p)
    beta : float > 0

    Returns
    -------
    (r, p)

    Raises
    ------
    UserError
        If beta is lost in rounding because the codes are very long, as with features of length 1e-12.

    Examples
    --------
    >>> import numpy as np
    >>> ridge_atoms(np.array([[1.0]]), np.array([[2.0, 4.0]]), beta=1.0)
    array([[1., 2.]])
    """
    return RidgeAtoms(AtA, AtX, beta).atoms


class RidgeAtoms:
    """The atoms of :func:`ridge_atoms`, and from the same factorisation the atoms after some rows were added.

    Parameters
    ----------
    AtA : (r, r)
    AtX : (r, p)
    beta : float > 0

    Attributes
    ----------
    atoms : (r, p)
        ``(AtA + beta I)^-1 AtX``.

    Raises
    ------
    UserError
        If beta is lost in rounding, as in :func:`ridge_atoms`.
    """

    def __init__(self, AtA: Array, AtX: Array, beta: float) -> None:
        self._given = AtA, AtX, beta
        # Long codes need double precision, whatever the dtype of the atoms.
        H = AtA.astype(np.float64)
        H[np.diag_indices_from(H)] += beta
        try:
            self._solve = _on_cpu(H) if current().is_cpu else _on_device(current(), H)
        except np.linalg.LinAlgError:
            raise UserError(
                f"beta={beta:g} is lost in rounding beside codes whose mean squared length is {np.trace(AtA):.3g}; "
                "bring features to unit length (feature.l2=true) or set a larger beta (model.beta)."
            ) from None
        self._exact = self._solve(AtX)
        self.atoms: Array = self._exact.astype(AtX.dtype, copy=False)

    def with_rows(self, B: Array, X: Array, weight: float) -> Array:
        """The atoms (r, p) for ``AtA + weight B'B`` and ``AtX + weight B'X``, given X (M, p) and codes B (M, r).

        The change of ``AtA`` has rank M, so its inverse follows by the formula of Sherman, Morrison and Woodbury.
        """
        AtA, AtX, beta = self._given
        B, X = B.astype(np.float64, copy=False), X.astype(np.float64, copy=False)
        if _FEW * len(B) > len(AtA):
            return RidgeAtoms(AtA + weight * B.T @ B, AtX + weight * B.T @ X, beta).atoms
        P = self._solve(B.T)
        D = self._exact + weight * P @ X
        S = B @ P
        S[np.diag_indices_from(S)] += 1 / weight
        D -= P @ scipy.linalg.solve(S, B @ D, assume_a="pos")
        return D.astype(AtX.dtype, copy=False)


def _on_cpu(H: Array) -> Callable[[Array], Array]:
    """Products with the inverse of H (r, r), which is overwritten; LinAlgError if it is singular to rounding."""
    size = float(np.abs(H).sum(axis=0).max())
    factor = scipy.linalg.cho_factor(H, lower=True, overwrite_a=True)
    (condition,) = scipy.linalg.get_lapack_funcs(("pocon",), (H,))
    if not condition(factor[0], size, uplo="L")[0] >= np.finfo(np.float64).eps:
        raise np.linalg.LinAlgError
    return lambda R: scipy.linalg.cho_solve(factor, R)


def _on_device(here: Device, H: Array) -> Callable[[Array], Array]:
    """What :func:`_on_cpu` does, on a GPU; H is factored in each call, since the standard has no triangular solver."""
    xp, there = here.xp, here.put(H)
    try:
        inverse = xp.linalg.inv(there)
    except Exception as error:
        # Each library has an exception of this name for a singular matrix.
        if "LinAlgError" not in type(error).__name__:
            raise
        raise np.linalg.LinAlgError from error
    condition = float(xp.linalg.matrix_norm(there, ord=1)) * float(xp.linalg.matrix_norm(inverse, ord=1))
    if not condition <= 1 / np.finfo(np.float64).eps:
        raise np.linalg.LinAlgError
    return lambda R: here.get(xp.linalg.solve(there, here.put(R.astype(np.float64, copy=False))))


def unit_ball_atoms(AtA: Array, AtX: Array, D: Array, beta: float = 0.0, *, n_passes: int = 1) -> Array:
    """Block-coordinate descent over the atoms, each confined to the unit ball; the objective never rises.

    With the other atoms fixed, the objective in atom j is ``(AtA[j, j] + beta) |d - u|^2`` plus a constant, where ``u``
    is the unconstrained minimiser; hence the projection of ``u`` on the ball is exact. Atoms that no code uses stay as
    they are.

    Parameters
    ----------
    AtA : (r, r)
    AtX : (r, p)
    D : (r, p)
        The current atoms, which must lie in the unit ball; not modified.
    beta : float >= 0
    n_passes : int >= 1

    Returns
    -------
    (r, p)

    Examples
    --------
    >>> import numpy as np
    >>> unit_ball_atoms(np.array([[1.0]]), np.array([[3.0, 4.0]]), np.zeros((1, 2))).round(3)
    array([[0.6, 0.8]])
    """
    D = D.copy()
    AtA, AtX = AtA.astype(D.dtype, copy=False), AtX.astype(D.dtype, copy=False)
    used = np.flatnonzero(np.diag(AtA) > 0)
    for _ in range(n_passes):
        for start in range(0, len(used), _BLOCK):
            block = used[start : start + _BLOCK]
            # One matrix product serves the whole block; within the block, moved atoms correct the products.
            G = AtA[np.ix_(block, block)]
            descent = AtX[block] - product(AtA[block], D)
            moves = np.empty_like(descent)
            for k in range(0, len(block), _STEP):
                step = slice(k, k + _STEP)
                if k:
                    descent[step] -= product(G[step, :k].copy(), moves[:k])
                _move(G[step, step], descent[step], D, block[step], D.dtype.type(beta), moves[step])
    return D


def gradient_atoms(
    AtA: Array, AtX: Array, D: Array, beta: float = 0.0, *, in_ball: bool = True, n_steps: int = 1
) -> Array:
    r"""Projected gradient steps for all atoms at once; the objective never rises.

    The step length of atom j is one over :math:`\sum_k |AtA_{jk}| + \beta`. The diagonal matrix of these sums exceeds
    ``AtA + beta I`` (their difference is diagonally dominant), so each step minimises an upper bound that touches the
    objective at ``D``. The bound has one factor per atom, so the projection on the unit ball is exact. Atoms that no
    code uses stay as they are.

    Parameters
    ----------
    AtA : (r, r)
    AtX : (r, p)
    D : (r, p)
        The current atoms; not modified. With ``in_ball`` they must lie in the unit ball.
    beta : float >= 0
    in_ball : bool
        Whether atoms are projected on the unit ball.
    n_steps : int >= 1

    Returns
    -------
    (r, p)

    Examples
    --------
    >>> import numpy as np
    >>> gradient_atoms(np.array([[2.0]]), np.array([[1.0, 0.0]]), np.zeros((1, 2)))
    array([[0.5, 0. ]])
    """
    AtA, AtX = AtA.astype(D.dtype, copy=False), AtX.astype(D.dtype, copy=False)
    used = np.diag(AtA) > 0
    steps = np.zeros((len(D), 1), D.dtype)
    steps[used, 0] = 1 / (np.abs(AtA[used]).sum(axis=1) + beta)
    for _ in range(n_steps):
        D = D - steps * (product(AtA, D) - AtX + D.dtype.type(beta) * D)
        if in_ball:
            D /= np.maximum(np.linalg.norm(D, axis=1, keepdims=True), 1)
    return D


@njit(fastmath={"reassoc", "contract", "nsz", "arcp"})
def _move(G, descent, D, block, beta, moves):
    """Update the atoms ``block`` of D one after another.

    ``descent`` holds the negative gradients of these atoms before the first one moves; ``moves`` is work space.
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


def square(D: Array) -> float:
    """``|D|_F^2`` without BLAS, whose threads would go on spinning (:mod:`zsl.sparse.kernels.products`)."""
    return float(np.einsum("ij,ij->", D, D))


def duplicate_atoms(D: Array, limit: float = 1 - 1e-6) -> tuple[Array, Array]:
    """Find atoms that repeat another atom, up to sign and length.

    Parameters
    ----------
    D : (r, p)
    limit : float
        An atom is a duplicate if its ``|cos|`` with an atom that is at least as long, and not itself a duplicate,
        exceeds this limit. Zero atoms are never duplicates.

    Returns
    -------
    duplicates : (k,) int
    kept : (k,) int
        The atom that each duplicate repeats.

    Examples
    --------
    >>> import numpy as np
    >>> duplicate_atoms(np.array([[0.5, 0.0], [0.0, 1.0], [-1.0, 0.0]]))
    (array([0]), array([2]))
    """
    order = np.argsort(-np.linalg.norm(D, axis=1), kind="stable")
    # Single precision finds the candidates; double precision decides.
    U: Array = unit_atoms(D).astype(np.float32, copy=False)[order]
    found: dict[int, int] = {}
    for start in range(0, len(U), _COMPARED):
        rows = U[start : start + _COMPARED]
        cosines = product(rows, U[: start + len(rows)].T)
        i, j = np.divmod(np.flatnonzero(np.abs(cosines, out=cosines) > limit - 1e-5), cosines.shape[1])
        i, j = i[j < i + start], j[j < i + start]
        for a, b in zip(i + start, j):
            u, v = D[order[a]].astype(np.float64), D[order[b]].astype(np.float64)
            # Atoms are visited longest first, so the status of b is final; b is skipped if it is a duplicate itself.
            if order[b] not in found and abs(u @ v) > limit * np.linalg.norm(u) * np.linalg.norm(v):
                found.setdefault(int(order[a]), int(order[b]))
    atoms = np.array(sorted(found), np.int64)
    return atoms, np.array([found[a] for a in atoms], np.int64)


def unit_atoms(D: Array) -> Array:
    """Scale every atom (row) to length one; zero atoms stay zero.

    Examples
    --------
    >>> import numpy as np
    >>> unit_atoms(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    norms = np.linalg.norm(D, axis=1, keepdims=True)
    return D / np.where(norms > 0, norms, 1)
