"""Coupled dictionary learning (the paper's Algorithm 1)."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from zsl.checks import Array, Count, Positive, Seed, as_matrix, check_fields
from zsl.errors import UserError
from zsl.inference.labels import nearest
from zsl.models.base import check_training, need_fitted
from zsl.sparse import Codes, Encoder, lambda_max, objective, sparse_encode
from zsl.sparse.dictionary import ridge_atoms, unit_atoms, unit_ball_atoms

log = logging.getLogger(__name__)

# Above this, learning a dictionary is no longer a matter of minutes on two cores; n_atoms=... goes beyond.
MAX_ATOMS = 2560


@dataclass
class CoupledDictionaries:
    r"""Visual and semantic dictionaries ``Dx`` and ``Dz`` that share the sparse codes of the seen images.

    Training alternates, with N seen images, M unseen classes and one atom per row,

    .. math::
        F_x &= \tfrac1N \sum_i \bigl( \tfrac1p \|x_i - a_i D_x\|^2 + \tfrac\lambda r |a_i|_1 \bigr) \\
        F_z &= \tfrac1{Nq} \|Z - A D_z\|_F^2
               + \tfrac1M \sum_m \bigl( \tfrac1q \|z'_m - b_m D_z\|^2 + \tfrac\lambda r |b_m|_1 \bigr)
               + \tfrac\beta q \|D_z\|_F^2

    over ``A, Dx`` first (Eq. 3, ``eq:opt1``) and, with ``A`` held fixed, over ``B, Dz`` (Eq. 4, ``eq:opt2``), with
    the weights of the joint problem (Eq. 2, ``eq:maineq``) that the alternation stands for.

    Parameters
    ----------
    n_atoms : int, optional
        r. ``None``: a quarter more than max(p, q), as the paper asks r > max(p, q), but no more than there are
        images and no more than ``MAX_ATOMS``.
    lam : float > 0, optional
        lambda, before the 1/r. Where it is given, ``lam_relative`` is not used.
    lam_relative : float > 0
        lambda as a share of the mean over the training images of the lambda at which their codes vanish under the
        initial dictionary (:func:`zsl.sparse.lambda_max`): means the same for any features and any r.
    beta : float > 0
        Ridge penalty: on ``Dz`` always, on ``Dx`` with ``atoms="ridge"``.
    n_iter : int
        Alternations for each dictionary.
    coupling : "sequential"
        Algorithm 1.
    atoms : "unit_ball" or "ridge"
        Atoms of both dictionaries confined to the unit ball (Eqs. 1-2), or only penalised by beta (Eqs. 3-4).
    unseen_weight : "eq2", "eq4" or "none"
        Weight of the unseen classes in ``F_z``: 1/M as above; 1/N as Eq. (4) has it; no B term at all.
    init : "samples" or "random"
        ``Dx`` starts from training images drawn without replacement (random atoms fill up what is missing), or from
        Gaussian atoms as Algorithm 1 says.
    solver : callable, optional
        ``solver(X, D, lam, init=...) -> Codes``; default :func:`zsl.sparse.sparse_encode`.
    seed : int
        Everything random follows it.

    Attributes
    ----------
    Dx_, Dz_ : (r, p), (r, q)
        The dictionaries.
    A_, B_ : (n, r), (M, r)
        Codes of the seen images and (empty with ``unseen_weight="none"``) of the unseen classes' attributes.
    lam_ : float
        The lambda used.
    objective_x_, objective_z_ : list of float
        The objectives after the codes of each alternation (``n_iter + 1`` values). With ``atoms="ridge"`` F_x has its
        own penalty ``beta / p |Dx|^2`` added. They never rise by more than the certified gaps, see ``gap_x_``.
    gap_x_, gap_z_ : list of float
        Certified suboptimality of the codes behind each value: the mean of the solver's gaps.
    lasso_gap_max_ : float
        Largest gap of any row of the final ``A_`` and ``B_``.
    redrawn_ : list of int
        Atoms replaced before each alternation because no image used them; F_x may then step up with
        ``atoms="ridge"``, and only there.
    """

    n_atoms: Count | None = None
    lam: Positive | None = None
    lam_relative: Positive = 0.1
    beta: Positive = 1e-3
    n_iter: Count = 10
    coupling: Literal["sequential"] = "sequential"
    atoms: Literal["unit_ball", "ridge"] = "unit_ball"
    unseen_weight: Literal["eq2", "eq4", "none"] = "eq2"
    init: Literal["samples", "random"] = "samples"
    solver: Encoder | None = None
    seed: Seed = 0

    Dx_: Array = field(init=False, repr=False)
    Dz_: Array = field(init=False, repr=False)
    A_: Array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def information(self) -> tuple[str, ...]:
        """What training used beyond the seen images and their attributes."""
        return () if self.unseen_weight == "none" else ("attributes of unseen classes in training",)

    def fit(self, X: Array, y: Array, Z: Array, Z_unseen: Array) -> CoupledDictionaries:
        """Learn both dictionaries; shapes as in :class:`zsl.models.base.Model`. ``y`` is checked, not used.

        Raises
        ------
        UserError
            On arguments that do not fit together, see :func:`zsl.models.base.check_training`.
        """
        X, _, Z, Z_unseen = check_training(X, y, Z, Z_unseen)
        rng = np.random.default_rng(self.seed)
        r = self.n_atoms or default_n_atoms(len(X), X.shape[1], Z.shape[1])
        Dx = initial_atoms(X, r, self.init, rng)
        self.lam_ = self.lam if self.lam is not None else self.lam_relative * float(lambda_max(X, Dx).mean())
        if self.lam_ <= 0:
            raise UserError(
                "every training image is zero after pre-processing, so lam_relative gives lambda = 0; set lam."
            )
        self.Z_unseen_ = Z_unseen
        self._learn_visual(X, Dx, rng)
        self._learn_semantic(Z, Z_unseen)
        return self

    def codes(self, X: Array) -> Codes:
        """Sparse codes of images X (L, p) under the visual dictionary, Eq. (5) (``eq:attrAgn``)."""
        need_fitted(self, "Dz_")
        X = as_matrix(X, "X", n_columns=self.Dx_.shape[1])
        return self._encode(X, self.Dx_)

    def predict_attributes(self, X: Array) -> Array:
        """Attribute-agnostic attributes ``a Dz`` (L, q) of images X (L, p)."""
        A = self.codes(X).A
        return A @ self.Dz_

    def scores(self, X: Array, class_attributes: Array | None = None) -> Array:
        """Negative squared distance (L, C) from the predicted attributes to each class's (Eq. 8, ``nearest``)."""
        need_fitted(self, "Dz_")
        Z = self.Z_unseen_ if class_attributes is None else class_attributes
        return nearest(self.predict_attributes(X), Z)

    def _encode(self, X: Array, D: Array, init: Array | None = None) -> Codes:
        return (self.solver or sparse_encode)(X, D, self.lam_, init=init)

    def _learn_visual(self, X: Array, Dx: Array, rng: np.random.Generator) -> None:
        """Eq. (3): codes by LASSO, warm-started, and the dictionary from their sufficient statistics."""
        n, p = X.shape
        beta = self.beta if self.atoms == "ridge" else 0.0
        self.objective_x_, self.gap_x_, self.redrawn_ = [], [], []
        A = np.zeros((n, len(Dx)), X.dtype)
        for iteration in range(self.n_iter + 1):
            A, gap, _ = self._encode(X, Dx, A)
            self.objective_x_.append(float(objective(X, Dx, A, self.lam_).mean()) + beta / p * float(np.vdot(Dx, Dx)))
            self.gap_x_.append(float(gap.mean()))
            if iteration == self.n_iter:
                break
            AtA, AtX = A.T @ A / n, A.T @ X / n
            Dx = ridge_atoms(AtA, AtX, beta) if beta else unit_ball_atoms(AtA, AtX, Dx)
            dead = np.flatnonzero(np.diag(AtA) == 0)
            if dead.size:
                Dx[dead] = self._redraw(X, Dx, A, len(dead), rng)
                log.info("%d of %d atoms were used by no image and are drawn again", len(dead), len(Dx))
            self.redrawn_.append(len(dead))
        self.Dx_, self.A_, self.lasso_gap_max_ = Dx, A, float(gap.max())

    def _redraw(self, X: Array, Dx: Array, A: Array, n: int, rng: np.random.Generator) -> Array:
        """The residuals of ``n`` images drawn in proportion to what is left of them, as unit atoms."""
        R = X - A @ Dx
        left = np.einsum("ij,ij->i", R, R)
        drawable = np.count_nonzero(left)
        if drawable < n:
            return unit_atoms(rng.standard_normal((n, X.shape[1]))).astype(X.dtype)
        return unit_atoms(R[rng.choice(len(X), n, replace=False, p=left / left.sum())])

    def _learn_semantic(self, Z: Array, Z_unseen: Array) -> None:
        """Eq. (4) with A held fixed: Dz from A alone, then Dz and the unseen classes' codes B in turn."""
        A, n, q = self.A_, len(Z), Z.shape[1]
        weight = {"eq2": 1 / len(Z_unseen), "eq4": 1 / n, "none": 0.0}[self.unseen_weight]
        AtA, AtZ = A.T @ A / n, A.T @ Z / n
        r = A.shape[1]
        Dz = self._semantic_atoms(AtA, AtZ, np.zeros((r, q), Z.dtype))
        B = np.zeros((len(Z_unseen) if weight else 0, r), Z.dtype)
        self.objective_z_, self.gap_z_, worst = [], [], 0.0
        for iteration in range(self.n_iter + 1 if weight else 1):
            if iteration:
                Dz = self._semantic_atoms(AtA + weight * B.T @ B, AtZ + weight * B.T @ Z_unseen, Dz)
            R = Z - A @ Dz
            value = (float(np.vdot(R, R)) / n + self.beta * float(np.vdot(Dz, Dz))) / q
            gaps = 0.0
            if weight:
                B, gap, _ = self._encode(Z_unseen, Dz, B)
                value += weight * float(objective(Z_unseen, Dz, B, self.lam_).sum())
                gaps = weight * float(gap.sum())
                worst = float(gap.max())
            self.objective_z_.append(value)
            self.gap_z_.append(gaps)
        self.Dz_, self.B_, self.lasso_gap_max_ = Dz, B, max(self.lasso_gap_max_, worst)

    def _semantic_atoms(self, AtA: Array, AtZ: Array, Dz: Array) -> Array:
        """The minimiser over Dz: in closed form where that lies in the unit ball, else by descent from ``Dz``."""
        free = ridge_atoms(AtA, AtZ, self.beta)
        if self.atoms == "ridge" or np.linalg.norm(free, axis=1).max() <= 1:
            return free
        return unit_ball_atoms(AtA, AtZ, Dz, self.beta, n_passes=10)


def default_n_atoms(n: int, p: int, q: int) -> int:
    """The rule behind ``n_atoms=None``."""
    return min(math.ceil(1.25 * max(p, q)), n, MAX_ATOMS)


def initial_atoms(X: Array, r: int, how: str, rng: np.random.Generator) -> Array:
    """(r, p) unit atoms: rows of X without replacement, Gaussian ones where X has no more (non-zero) rows."""
    D = rng.standard_normal((r, X.shape[1])).astype(X.dtype)
    if how == "samples":
        candidates = rng.permutation(np.flatnonzero(np.any(X != 0, axis=1)))[:r]
        D[: len(candidates)] = X[candidates]
    return unit_atoms(D)
