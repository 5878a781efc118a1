"""Attribute rules of the paper: attribute-agnostic prediction (Eq. 5) and attribute-aware prediction (Eq. 7)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from zsl.checks import Array, Count, NonNegative, Positive, as_matrix, check_arguments
from zsl.errors import UserError
from zsl.inference.blocks import row_blocks
from zsl.inference.entropy import Kernel
from zsl.inference.labels import attribute_pair
from zsl.inference.optimisers import OPTIMISERS, AwareProblem, descend_together
from zsl.inference.rules import TRANSDUCTIVE, attribute_rule
from zsl.linalg import squared_distances
from zsl.sparse.problem import Codes
from zsl.sparse.problem import scale as data_scale
from zsl.sparse.stacked import StackedCoder

# Images whose codes are descended together.
_BLOCK = 2048
# Classes up to which every pair is compared by differences; above, the expanded square says which one is the nearest.
_FEW_CLASSES = 2048


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


def members(model: HasDictionaries) -> list[HasDictionaries]:
    """The models whose codes ``model.codes`` has side by side: those that it averages, or itself alone."""
    return getattr(model, "members_", [model])


@dataclass
class Attributes:
    """Predicted attributes with the codes behind them."""

    Z_hat: Array
    """(L, q) predicted attributes"""
    codes: Codes | None = None
    """The sparse codes of the images, where the model has dictionaries"""
    report: dict[str, Any] = field(default_factory=dict)
    """Quantities (L,) by name; :func:`aware` has those that :func:`aware_codes` reports"""

    def rows(self, rows: slice) -> Attributes:
        """The attributes and codes of some of the images, without the report."""
        codes = self.codes and Codes(self.codes.A[rows], self.codes.gap[rows], self.codes.n_iter)
        return Attributes(self.Z_hat[rows], codes)


@attribute_rule()
def agnostic(model: PredictsAttributes | HasDictionaries, X: Array) -> Attributes:
    """Attributes predicted from the features alone: ``a Dz`` with the code a of Eq. (5), or what the model predicts.

    Parameters
    ----------
    model : fitted model with ``predict_attributes``
    X : (L, p)
        Images.

    Returns
    -------
    Attributes

    Raises
    ------
    UserError
        For a model that predicts no attributes.

    Examples
    --------
    >>> import zsl
    >>> data = zsl.load_dataset("digits")
    >>> model = zsl.CoupledDictionaries(n_atoms=40, n_iter=1).fit(data.X, data.y, data.Z, data.Z_unseen)
    >>> agnostic(model, data.X_unseen).Z_hat.shape == (len(data.X_unseen), data.Z_unseen.shape[1])
    True
    """
    if not hasattr(model, "predict_attributes"):
        raise UserError(
            f"inference.attributes=agnostic needs a model that predicts attributes, and {type(model).__name__} "
            "does not; use inference=own, its native scores."
        )
    if isinstance(model, HasDictionaries):
        codes = model.codes(X)
        return Attributes(codes.A @ model.Dz_, codes)
    return Attributes(model.predict_attributes(X))


@attribute_rule("attributes of unseen classes", when={"batch": TRANSDUCTIVE})
def aware(
    model: HasDictionaries,
    X: Array,
    Z_unseen: Array,
    start: Attributes | None = None,
    *,
    gamma: NonNegative | None = None,
    gamma_relative: NonNegative = 0.1,
    rho: Positive = 1.0,
    kernel: Kernel = "student",
    scale: Literal["prototype", "raw"] = "raw",
    batch: bool = False,
    optimiser: Literal["mm", "subgradient"] = "mm",
    tol: Positive = 1e-5,
    max_iter: Count = 200,
) -> Attributes:
    r"""Attributes from codes that minimise the LASSO objective plus an entropy penalty, Eq. (7) (``eq:attrAware``).

    .. math:: \min_a \tfrac1p \|x - a D_x\|^2 + \gamma H(s\, a D_z) + \tfrac\lambda r |a|_1

    Algorithm 2 of the paper prints the entropy with the opposite sign; Eq. (7) is meant, so entropy is minimised. The
    problem is not convex. The optimiser descends from the attribute-agnostic code, see :func:`aware_codes`. Where a
    model averages several dictionaries, each has codes of its own under its own lambda; the attributes are averaged.

    Parameters
    ----------
    model : fitted model with dictionaries
    X : (L, p)
        Images.
    Z_unseen : (M, q)
        Attributes of the classes.
    start : Attributes, optional
        The result of :func:`agnostic`, if it is at hand.
    gamma : float >= 0, optional
        Weight of the entropy. Where it is given, ``gamma_relative`` is not used.
    gamma_relative : float >= 0
        gamma in units of each image's own data term at the zero code, ``|x|^2 / p``.
    rho : float > 0
        Squared width of the kernel in Eq. (6), and the degrees of freedom of the Student kernel. Because rho is both,
        the Student kernel cannot be sharp: an image that lies on its class gives the class at most twice the
        probability of another one at distance 1, for any rho from 1.
    kernel : "student" or "gaussian"
        What turns distances to the classes into probabilities (:mod:`zsl.inference.entropy`).
    scale : "prototype" or "raw"
        The scale of predictions inside the entropy. ``raw`` is the paper's, ``s = 1``: predictions are shrunken, so
        every assignment is near uniform and codes hardly move. ``prototype`` does not depend on scale, see
        :func:`prototype_scale`.
    batch : bool
        Use ``gamma (mean H(p_i) - H(mean p))`` over all images in place of ``gamma H(p_i)``: every image should be
        decided, but not all images for the same class. This form is transductive and favours balanced classes.
    optimiser : "mm" or "subgradient"
        Majorise-minimise, or the plain subgradient steps that the paper used; :mod:`zsl.inference.optimisers`.
    tol : float > 0
        A row stops once an iteration lowers its objective by at most ``tol * |x|^2 / p``.
    max_iter : int >= 1
        Iterations at most.

    Returns
    -------
    Attributes
        ``Z_hat = a Dz``, without the factor s: at gamma = 0 they are those of :func:`agnostic`. ``report`` is that of
        :func:`aware_codes`; of several dictionaries it has the means, and the most iterations.

    Raises
    ------
    UserError
        For a model without dictionaries, and for arguments out of range.

    Examples
    --------
    >>> import zsl
    >>> data = zsl.load_dataset("digits")
    >>> model = zsl.CoupledDictionaries(n_atoms=40, n_iter=1).fit(data.X, data.y, data.Z, data.Z_unseen)
    >>> codes = aware(model, data.X_unseen[:20], data.Z_unseen)
    >>> bool((codes.report["objective_after"] <= codes.report["objective_before"]).all())
    True
    """
    if not isinstance(model, HasDictionaries):
        raise UserError(
            f"inference.attributes=aware needs dictionaries, and {type(model).__name__} has none; "
            "use inference.attributes=agnostic, or model=coupled."
        )
    check_arguments(aware, locals())
    X = as_matrix(X, "X", n_columns=model.Dx_.shape[1])
    start = start or agnostic(model, X)
    assert start.codes is not None
    as_matrix(start.codes.A, "start.codes", n_rows=len(X), n_columns=len(model.Dx_))
    _, Z_unseen = attribute_pair(start.Z_hat, Z_unseen)
    # Per image, so that no image's code depends on which others are tested with it.
    weight = gamma_relative * data_scale(X) if gamma is None else np.full(len(X), gamma)
    found, parts = [], members(model)
    for member, A in zip(parts, np.split(start.codes.A, len(parts), axis=1)):
        stretch, unit = prototype_scale(A @ member.Dz_, Z_unseen) if scale == "prototype" else (np.ones(len(X)), 1.0)
        found.append(
            aware_codes(
                X,
                member.Dx_,
                member.Dz_,
                Z_unseen / unit,
                A,
                member.lam_,
                weight,
                rho,
                kernel=kernel,
                stretch=stretch / unit,
                batch=batch,
                optimiser=optimiser,
                tol=tol,
                max_iter=max_iter,
            )
        )
    A = np.hstack([codes for codes, _ in found])
    report = {name: np.mean([values[name] for _, values in found], axis=0) for name in found[0][1]}
    report["n_iter"] = np.max([values["n_iter"] for _, values in found], axis=0)
    # Eq. (7) has no certificate, and that of Eq. (5) does not apply: NaN says so.
    codes = Codes(A, np.full(len(X), np.nan), int(report["n_iter"].max(initial=0)))
    return Attributes(A @ model.Dz_, codes, report)


def prototype_scale(Z_hat: Array, Z_unseen: Array) -> tuple[Array, float]:
    """The factors that make Eq. (7) independent of the scales of Z_hat (L, q) and Z_unseen (M, q).

    Returns
    -------
    stretch : (L,)
        The factor that brings each prediction to the mean length of the prototypes; 1 for a zero prediction.
    unit : float
        The root of the mean squared distance from a prototype to the nearest other one, in which lengths are
        measured: rho = 1 is then a kernel as wide as classes are apart. 1 where no two prototypes differ.
    """
    length = np.linalg.norm(Z_hat, axis=1)
    target = float(np.linalg.norm(Z_unseen, axis=1).mean())
    known = (length > 0) & (target > 0)
    stretch = np.divide(target, length, out=np.ones(len(Z_hat)), where=known)
    if len(Z_unseen) < 2:
        return stretch, 1.0
    return stretch, float(np.sqrt(np.mean(_to_nearest_other(Z_unseen)))) or 1.0


def _to_nearest_other(Z: Array) -> Array:
    """(M,) squared distance of each row of Z (M, q) to the nearest other row; exactly zero for equal rows."""
    # Differences, not the expanded square: equal prototypes must be at distance zero exactly.
    if len(Z) <= _FEW_CLASSES:
        return np.array([((np.delete(Z, m, axis=0) - z) ** 2).sum(axis=1).min() for m, z in enumerate(Z)])
    found = np.empty(len(Z))
    for rows in row_blocks(len(Z), len(Z)):
        D = squared_distances(Z[rows], Z)
        D[np.arange(len(D)), np.arange(rows.start, rows.stop)] = np.inf
        found[rows] = ((Z[rows] - Z[D.argmin(axis=1)]) ** 2).sum(axis=1)
    return found


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
    kernel: Kernel = "student",
    stretch: float | Array = 1.0,
    batch: bool = False,
    optimiser: str = "mm",
    tol: float,
    max_iter: int,
) -> tuple[Array, dict[str, Array]]:
    """Descend Eq. (7) from codes ``A`` (L, r).

    No image's objective rises; in the batch form their sum does not rise.

    Parameters
    ----------
    gamma : float or (L,)
        Weight of the entropy, for all images or for each.
    stretch : float or (L,)
        The factor s of predictions inside the entropy.

    Returns
    -------
    A : (L, r)
        The new codes; the argument is not modified. If the start has a certified gap, the entropy of an image rises by
        no more than ``gap / gamma`` (per-image form).
    report : dict
        Of each image ``objective_before``, ``objective_after``, ``entropy_before``, ``entropy_after`` and ``n_iter``.
        In the batch form the objectives hold each image's share, ``gamma_i (H(p_i) - H(mean p))`` for the entropy.
    """
    weight, factor = (np.broadcast_to(np.asarray(v, dtype=np.float64), len(X)) for v in (gamma, stretch))
    problem = AwareProblem(X, Dx, Dz, Z_unseen, lam, weight, rho, kernel, factor)
    descend = OPTIMISERS[optimiser]
    if batch:
        new, n_iter = descend_together(descend, problem, A, tol, max_iter)
    else:
        new, n_iter = np.empty_like(A), np.empty(len(A), np.int64)
        coder = StackedCoder(Dx, Dz, lam) if optimiser == "mm" and weight.any() else None
        # Images do not depend on each other, so memory need not grow with their number.
        for i in range(0, len(A), _BLOCK):
            rows = np.arange(i, min(i + _BLOCK, len(A)))
            part = problem.rows(rows)
            new[rows], n_iter[rows] = descend(part.prepared(coder) if coder else part, A[rows], tol, max_iter)
    report = {"n_iter": n_iter}
    for name, codes in (("before", A), ("after", new)):
        report[f"objective_{name}"] = problem.batch_objective(codes) if batch else problem.objective(codes)
        report[f"entropy_{name}"] = problem.entropy(codes)
    return new, report
