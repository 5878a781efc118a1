"""Attributes of test images from coupled dictionaries: agnostic (Eq. 5) and aware (Eq. 7)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from zsl.checks import Array, Count, NonNegative, Positive, check_arguments
from zsl.errors import UserError
from zsl.inference.entropy import entropy, entropy_gradient
from zsl.inference.rules import uses
from zsl.sparse.lasso import Codes, scale, soft_threshold

# Halvings of the step after which a row counts as unable to descend: rounding, not geometry, is the limit then.
_MAX_HALVINGS = 40


@runtime_checkable
class PredictsAttributes(Protocol):
    """What :func:`agnostic` needs of a model."""

    def predict_attributes(self, X: Array) -> Array: ...


@runtime_checkable
class HasDictionaries(Protocol):
    """What :func:`aware` needs of a model."""

    Dx_: Array
    Dz_: Array
    lam_: float

    def codes(self, X: Array) -> Codes: ...


@dataclass
class Attributes:
    """Predicted attributes, and how they came about."""

    Z_hat: Array
    """(L, q)"""
    codes: Codes | None = None
    """Their codes, where the model has dictionaries."""
    report: dict[str, Any] = field(default_factory=dict)
    """Per-image quantities by name: ``objective_before``, ``..._after``, ``entropy_before``, ``..._after``."""


def agnostic(model: PredictsAttributes | HasDictionaries, X: Array) -> Attributes:
    """Attributes of X (L, p) from the features alone: ``a Dz`` with the code of Eq. (5), or what the model predicts."""
    if not hasattr(model, "predict_attributes"):
        raise UserError(
            f"inference.attributes=agnostic needs a model that predicts attributes, and {type(model).__name__} "
            "does not; use inference=own, its native scores."
        )
    if isinstance(model, HasDictionaries):
        codes = model.codes(X)
        return Attributes(codes.A @ model.Dz_, codes)
    return Attributes(model.predict_attributes(X))


@uses("attributes of unseen classes")
def aware(
    model: HasDictionaries,
    X: Array,
    Z_unseen: Array,
    *,
    start: Attributes | None = None,
    gamma: NonNegative | None = None,
    gamma_relative: NonNegative = 0.1,
    rho: Positive = 1.0,
    aware_tol: Positive = 1e-6,
    aware_max_iter: Count = 200,
) -> Attributes:
    r"""Attributes of X (L, p) from codes that also pay for an undecided assignment, Eq. (7) (``eq:attrAware``).

    .. math:: \min_a \tfrac1p \|x - a D_x\|^2 + \gamma H(a D_z) + \tfrac\lambda r |a|_1

    (Algorithm 2 prints the entropy with the opposite sign; Eq. (7) is meant: entropy is minimised.) The problem is
    not convex; it is descended from the attribute-agnostic code, see :func:`aware_codes`.

    Parameters
    ----------
    start : Attributes, optional
        Result of :func:`agnostic`, if it is at hand.
    gamma : float >= 0, optional
        Weight of the entropy. Where it is given, ``gamma_relative`` is not used.
    gamma_relative : float >= 0
        gamma in units of each image's own data term at the zero code, ``|x|^2 / p``.
    rho : float > 0
        Degrees of freedom and squared scale of the Student kernel, Eq. (6).
    aware_tol, aware_max_iter
        A row stops once a step lowers its objective by at most ``aware_tol * |x|^2 / p``.
    """
    if not isinstance(model, HasDictionaries):
        raise UserError(
            f"inference.attributes=aware needs dictionaries, and {type(model).__name__} has none; "
            "use inference.attributes=agnostic, or model=coupled."
        )
    check_arguments(aware, locals())
    start = start or agnostic(model, X)
    assert start.codes is not None
    # Per image, so that no image's code depends on which others are tested with it.
    weight = gamma_relative * scale(X) if gamma is None else np.full(len(X), gamma)
    A, report = aware_codes(
        X,
        model.Dx_,
        model.Dz_,
        Z_unseen,
        start.codes.A,
        model.lam_,
        weight,
        rho,
        tol=aware_tol,
        max_iter=aware_max_iter,
    )
    # The certificate of Eq. (5) says nothing about Eq. (7), which has none: NaN, not a number that looks like one.
    codes = Codes(A, np.full(len(X), np.nan), int(report["n_iter"].max(initial=0)))
    return Attributes(A @ model.Dz_, codes, report)


def aware_objective(
    X: Array, Dx: Array, Dz: Array, Z_unseen: Array, A: Array, lam: float, gamma: float | Array, rho: float
) -> Array:
    """(L,) the objective of Eq. (7) at codes A (L, r)."""
    R = X - A @ Dx
    fit = np.einsum("ij,ij->i", R, R) / X.shape[1]
    return fit + gamma * entropy(A @ Dz, Z_unseen, rho) + lam / len(Dx) * np.abs(A).sum(axis=1)


def aware_codes(
    X: Array,
    Dx: Array,
    Dz: Array,
    Z_unseen: Array,
    A: Array,
    lam: float,
    gamma: float | Array,
    rho: float,
    *,
    tol: float,
    max_iter: int,
) -> tuple[Array, dict[str, Array]]:
    """Descend Eq. (7) from codes ``A`` (L, r) by proximal gradient steps, backtracking row by row.

    ``gamma`` is one weight for all images or one for each, (L,).

    A step is taken only if it satisfies the sufficient-decrease condition of the proximal gradient method and does
    not raise the row's objective, so the descent is monotone whatever the shape of the entropy.

    Returns
    -------
    A : (L, r)
        The new codes; the argument is not modified.
    report : dict
        Per image: ``objective_before``, ``objective_after``, ``entropy_before``, ``entropy_after``, ``n_iter``.
    """
    r, p = Dx.shape
    weight = np.broadcast_to(np.asarray(gamma, dtype=X.dtype), len(X))
    G = Dx @ Dx.T
    XD = X @ Dx.T
    A = A.copy()
    longest = 1.0 / max(2.0 / p * float(np.linalg.eigvalsh(G)[-1]), 1e-30)
    limit = tol * scale(X)
    constant = scale(X)

    def smooth(a: Array, rows: Array) -> tuple[Array, Array]:
        """g(a) of Eq. (7) and its gradient."""
        aG = a @ G
        H, dH = entropy_gradient(a @ Dz, Z_unseen, rho)
        value = np.einsum("ij,ij->i", aG - 2 * XD[rows], a) / p + constant[rows] + weight[rows] * H
        return value, 2.0 / p * (aG - XD[rows]) + weight[rows, None] * dH @ Dz.T

    def l1(a: Array) -> Array:
        return lam / r * np.abs(a).sum(axis=1)

    before = aware_objective(X, Dx, Dz, Z_unseen, A, lam, gamma, rho)
    report = {
        "objective_before": before,
        "entropy_before": entropy(A @ Dz, Z_unseen, rho),
        "n_iter": np.zeros(len(X), dtype=np.int64),
    }
    # Without an entropy the start, Eq. (5)'s code, is the answer.
    todo = np.flatnonzero(weight > 0)
    a, step = A[todo], np.full(len(todo), longest)
    g, dg = smooth(a, todo) if len(todo) else (np.empty(0), a)
    for _ in range(max_iter):
        if not todo.size:
            break
        new, g_new, dg_new = a.copy(), g.copy(), dg.copy()
        trying = np.arange(len(todo))
        for _ in range(_MAX_HALVINGS):
            t = step[trying, None]
            z = soft_threshold(a[trying] - t * dg[trying], t * lam / r)
            gz, dgz = smooth(z, todo[trying])
            move = z - a[trying]
            model = (
                g[trying]
                + np.einsum("ij,ij->i", dg[trying], move)
                + np.einsum("ij,ij->i", move, move) / (2 * step[trying])
            )
            ok = (gz <= model) & (gz + l1(z) <= g[trying] + l1(a[trying]))
            good = trying[ok]
            new[good], g_new[good], dg_new[good] = z[ok], gz[ok], dgz[ok]
            trying = trying[~ok]
            if not trying.size:
                break
            step[trying] /= 2
        gain = g + l1(a) - g_new - l1(new)
        A[todo] = new
        report["n_iter"][todo] += 1
        alive = gain > limit[todo]
        todo, step = todo[alive], np.minimum(2 * step[alive], longest)
        a, g, dg = new[alive], g_new[alive], dg_new[alive]
    report["objective_after"] = aware_objective(X, Dx, Dz, Z_unseen, A, lam, gamma, rho)
    report["entropy_after"] = entropy(A @ Dz, Z_unseen, rho)
    return A, report
