r"""The optimisers of attribute-aware codes, Eq. (7) (``eq:attrAware``), which start from the attribute-agnostic codes.

.. math:: \min_a \tfrac1p \|x - a D_x\|^2 + \gamma H(s\, a D_z) + \tfrac\lambda r |a|_1

is solved for every image on its own; ``s`` is 1 in the paper. The entropy makes the problem non-convex, so descent is
promised, not a minimum: no row ends above its start. An optimiser takes ``(problem, A, tol, max_iter)`` and returns the
codes and the number of iterations of each row. With ``mm`` a row stops once an iteration lowers its objective by at
most ``tol * |x|^2 / p``; ``subgradient`` makes all iterations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from zsl.checks import Array
from zsl.inference.entropy import Kernel, entropies, entropy_gradient, log_mean_assignment
from zsl.sparse.problem import row_objectives, scale
from zsl.sparse.stacked import StackedCoder

# Times that the curvature is raised fourfold in one round of majorise-minimise; a row that still rises keeps its code.
_MAX_RAISES = 12
# The first guess of the curvature, times gamma s^2 (and 1/rho for the Gaussian kernel). It is small because entropy is
# concave where an image is undecided; backtracking raises it elsewhere.
_FIRST_CURVATURE = 0.25
# A LASSO within a round is solved to this share of its data term, or to the caller's tol where that is smaller: the
# descent is checked on the objective of Eq. (7) after every round.
_INNER_TOL = 1e-6
# Batch form: iterations with the mean assignment held fixed, then halvings on the way back towards the last codes.
_FROZEN = 5
_BATCH_HALVINGS = 20


@dataclass(frozen=True)
class AwareProblem:
    """Eq. (7) for L images: features X (L, p), dictionaries Dx (r, p), Dz (r, q), classes Z_unseen (M, q)."""

    X: Array
    Dx: Array
    Dz: Array
    Z_unseen: Array
    lam: float
    weight: Array
    """(L,) gamma of each image."""
    rho: float
    kernel: Kernel
    stretch: Array
    """(L,) factor s of each image's prediction inside the entropy."""
    log_mean: Array | None = None
    """(M,) logarithm of a fixed mean assignment: H becomes H minus the cross-entropy with it (batch form)."""
    coder: StackedCoder | None = None
    """The solver of the LASSO in each round of majorise-minimise."""
    C: Array | None = None
    """(L, r) ``X Dx'``, which the coder needs."""

    def prepared(self, coder: StackedCoder | None = None) -> AwareProblem:
        """The problem with all products that the rounds of majorise-minimise share."""
        if self.coder is not None:
            return self
        coder = coder or StackedCoder(self.Dx, self.Dz, self.lam)
        return replace(self, coder=coder, C=coder.correlations(self.X))

    def rows(self, which: Array) -> AwareProblem:
        """The problem of some of the images."""
        C = None if self.C is None else self.C[which]
        return replace(self, X=self.X[which], weight=self.weight[which], stretch=self.stretch[which], C=C)

    def lasso(self, A: Array) -> Array:
        """(L,) the objective without the entropy."""
        return row_objectives(self.X, self.Dx, A, self.lam)

    def objective(self, A: Array) -> Array:
        """(L,) the objective at codes A (L, r)."""
        return self.lasso(A) + self.term(A @ self.Dz)[0]

    def batch_objective(self, A: Array) -> Array:
        """(L,) each image's share of the batch objective: its LASSO and ``gamma_i (H(p_i) - H(mean p))``."""
        if not (self.weight > 0).any():
            return self.lasso(A)
        log_mean = self.log_mean_at(A)
        return self.lasso(A) + self.weight * (self.entropy(A) + float(np.exp(log_mean) @ log_mean))

    def entropy(self, A: Array) -> Array:
        """(L,) the entropy at codes A (L, r)."""
        return entropies(self.stretch[:, None] * (A @ self.Dz), self.Z_unseen, self.rho, self.kernel)

    def log_mean_at(self, A: Array) -> Array:
        """(M,) logarithm of the weighted mean assignment at codes A (L, r)."""
        Z_hat = self.stretch[:, None] * (A @ self.Dz)
        return log_mean_assignment(Z_hat, self.Z_unseen, self.rho, self.kernel, self.weight)

    def term(self, V: Array) -> tuple[Array, Array]:
        """The weighted entropy (L,) at predictions V = a Dz (L, q), and its gradient (L, q) in V."""
        value, gradient = entropy_gradient(
            self.stretch[:, None] * V, self.Z_unseen, self.rho, self.kernel, self.log_mean
        )
        return self.weight * value, (self.weight * self.stretch)[:, None] * gradient

    def curvature(self) -> Array:
        """(L,) the size of the weighted entropy's second derivative in V, to begin with: backtracking does the rest."""
        return _FIRST_CURVATURE * self.weight * self.stretch**2 * (1.0 if self.kernel == "student" else 1 / self.rho)


Optimiser = Callable[[AwareProblem, Array, float, int], tuple[Array, Array]]


def mm(problem: AwareProblem, A: Array, tol: float, max_iter: int) -> tuple[Array, Array]:
    r"""Majorise-minimise: a LASSO with a changed Gram matrix in each round, warm-started.

    With g the gradient of the weighted entropy in ``v = a Dz`` at ``v0`` and a curvature c large enough, the entropy is
    at most ``const + g (v - v0) + c/2 |v - v0|^2``, so the objective is at most that of the LASSO with the stacked
    dictionary ``[Dx, sqrt(c p / 2) Dz]`` and the targets ``[x, sqrt(c p / 2) (v0 - g / c)]``. Each row has its own c,
    found by backtracking; each c is rounded up to a power of four, and rows of equal c are solved together.
    """
    limit, n_iter = tol * scale(problem.X), np.zeros(len(A), dtype=np.int64)
    A = A.copy()
    todo = np.flatnonzero(problem.weight > 0)
    if not todo.size:
        return A, n_iter
    now = problem.prepared().rows(todo)
    curvature = now.curvature()
    lasso = now.lasso(A[todo])
    V = A[todo] @ problem.Dz
    H, g = now.term(V)
    for _ in range(max_iter):
        if not todo.size:
            break
        lasso_new, V_new, H_new = lasso.copy(), V.copy(), H.copy()
        trying = np.arange(len(todo))
        for _ in range(_MAX_RAISES):
            c = _rounded_up(curvature[trying], problem.Dz)
            part = now if len(trying) == len(todo) else now.rows(trying)
            z = _codes(part, V[trying] - g[trying] / c[:, None], c, A[todo[trying]], min(tol, _INNER_TOL))
            v, value = z @ problem.Dz, part.lasso(z)
            h = part.term(v)[0]
            move = v - V[trying]
            ok = h <= H[trying] + _dot(g[trying], move) + c / 2 * _dot(move, move) + 1e-12 * np.abs(H[trying])
            ok &= value + h <= lasso[trying] + H[trying]
            good = trying[ok]
            A[todo[good]], lasso_new[good], V_new[good], H_new[good] = z[ok], value[ok], v[ok], h[ok]
            trying = trying[~ok]
            if not trying.size:
                break
            curvature[trying] *= 4
        gain = lasso + H - lasso_new - H_new
        n_iter[todo] += 1
        alive = gain > limit[todo]
        todo, curvature, now = todo[alive], curvature[alive] / 2, now.rows(alive)
        lasso, V = lasso_new[alive], V_new[alive]
        H, g = now.term(V)
    return A, n_iter


def subgradient(problem: AwareProblem, A: Array, tol: float, max_iter: int) -> tuple[Array, Array]:
    """Plain subgradient descent with steps falling as one over the root of the iteration, as the paper used.

    Neither monotone nor sparse: each row keeps the best code that it passed, and all ``max_iter`` steps are made.
    """
    r, p = problem.Dx.shape
    best, value = A.copy(), problem.objective(A)
    todo = np.flatnonzero(problem.weight > 0)
    now, a = problem.rows(todo), A[todo]
    first = 1.0 / max(2.0 / p * float(np.linalg.norm(problem.Dx, 2)) ** 2, 1e-30)
    for i in range(max_iter if todo.size else 0):
        gradient = 2.0 / p * (a @ problem.Dx - now.X) @ problem.Dx.T + now.term(a @ problem.Dz)[1] @ problem.Dz.T
        a = a - first / np.sqrt(i + 1) * (gradient + problem.lam / r * np.sign(a))
        reached = now.objective(a)
        better = reached < value[todo]
        best[todo[better]], value[todo[better]] = a[better], reached[better]
    n_iter = np.zeros(len(A), dtype=np.int64)
    n_iter[todo] = max_iter
    return best, n_iter


OPTIMISERS: dict[str, Optimiser] = {"mm": mm, "subgradient": subgradient}


def descend_together(
    optimise: Optimiser, problem: AwareProblem, A: Array, tol: float, max_iter: int
) -> tuple[Array, Array]:
    r"""The batch form: ``sum_i gamma_i H(p_i) - sum_i gamma_i H(mean p)`` in place of the entropies.

    The mean is weighted like the sum, so that the term is ``-sum_i gamma_i KL(p_i, mean p)``: images should be decided,
    and not all for the same class. ``optimise`` makes a few iterations with the mean held fixed; their direction is
    then searched for a point at which the sum of all objectives, with its own mean, has fallen. Monotone in that sum.
    """
    n_iter = np.zeros(len(A), dtype=np.int64)
    if not (problem.weight > 0).any():
        return A.copy(), n_iter
    limit = tol * float(scale(problem.X).sum())
    problem = problem.prepared() if optimise is mm else problem
    now, total = _with_mean(problem, A)
    frozen = _FROZEN
    while n_iter.max() < max_iter:
        target, used = optimise(now, A, tol, min(frozen, max_iter - int(n_iter.max())))
        n_iter += used
        if not used.any():
            break
        share, found = 1.0, False
        for _ in range(_BATCH_HALVINGS):
            trial = target if share == 1 else A + share * (target - A)
            then, reached = _with_mean(problem, trial)
            if reached < total:
                found = True
                break
            share /= 2
        gain = total - reached if found else 0.0
        if found:
            A, now, total = trial, then, reached
        if gain <= limit:
            if frozen == 1:
                break
            frozen = 1  # the direction of a single iteration is one of descent; of several it need not be
    return A.copy(), n_iter


def _with_mean(problem: AwareProblem, A: Array) -> tuple[AwareProblem, float]:
    """The problem with the mean assignment of codes A held fixed, and the batch objective there, summed."""
    now = replace(problem, log_mean=problem.log_mean_at(A))
    return now, float(now.objective(A).sum())


def _codes(problem: AwareProblem, target: Array, c: Array, A: Array, tol: float) -> Array:
    """Codes (L, r) that minimise ``1/p |x - a Dx|^2 + c/2 |a Dz - target|^2 + lam/r |a|_1``, started from A.

    ``target`` (L, q), ``c`` (L,). Rows of equal c are coded together.
    """
    assert problem.coder is not None
    assert problem.C is not None
    values = np.unique(c)
    if len(values) == 1:
        return problem.coder.codes(problem.X, problem.C, target, float(values[0]), A, tol)
    new = np.empty_like(A)
    for value in values:
        rows = np.flatnonzero(c == value)
        new[rows] = problem.coder.codes(problem.X[rows], problem.C[rows], target[rows], float(value), A[rows], tol)
    return new


def _rounded_up(c: Array, Dz: Array) -> Array:
    """The next power of four: few different values, so few different dictionaries, whose Gram matrices cost.

    In units of the size of Dz, so that attributes in other units give the same iterates.
    """
    unit = float((Dz**2).mean()) or 1.0
    return 4.0 ** np.ceil(np.log2(c * unit) / 2) / unit


def _dot(a: Array, b: Array) -> Array:
    return np.einsum("ij,ij->i", a, b)
