"""Coupled dictionary learning (the paper's Algorithm 1)."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import annotated_types as at
import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator

from zsl.checks import Array, Count, NonNegative, Positive, Seed, as_matrix, check_fields, need_squares
from zsl.errors import UserError
from zsl.linalg import squared_distances
from zsl.models.base import PredictMixin, check_training, need_fitted
from zsl.models.coupling import Attributes, Joint, Visual, semantic_atoms
from zsl.sparse import Codes, Encoder, lambda_max, objective, sparse_encode
from zsl.sparse.checkpoint import Checkpoint, check_name, fingerprint
from zsl.sparse.dictionary import unit_atoms
from zsl.sparse.learning import State, learn

# Above this, learning a dictionary is no longer a matter of minutes on two cores; n_atoms=... goes beyond.
MAX_ATOMS = 2560
# Rows looked at together where nothing else decides.
_BLOCK = 4096


@dataclass(eq=False, repr=False)
class CoupledDictionaries(PredictMixin, BaseEstimator):
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
    n_iter : int >= 0
        Alternations for each dictionary. 0: ``Dx`` stays as ``init`` has it, and ``Dz`` is fitted to the seen codes.
    coupling : "sequential" or "joint"
        Algorithm 1; or Eq. (2) minimised over A, B, Dx and Dz in turn, the codes A estimated from images and
        attributes at once (:class:`zsl.models.coupling.Joint`). Test images are coded by Eq. (5) either way, without
        attributes: other codes than those ``"joint"`` fitted both dictionaries to. See the note below.
    atoms : "unit_ball" or "ridge"
        Atoms of both dictionaries confined to the unit ball (Eqs. 1-2), or only penalised by beta (Eqs. 3-4).
    update : "exact" or "gradient"
        ``Dx`` after each coding: minimised exactly, in closed form (``atoms="ridge"``) or atom by atom in one pass
        (``"unit_ball"``); or moved by a few projected gradient steps (:func:`zsl.sparse.dictionary.gradient_atoms`).
        Neither raises the objective.
    unseen_weight : "eq2", "eq4" or "none"
        Weight of the unseen classes in ``F_z``: 1/M as above; 1/N as Eq. (4) has it; no B term at all.
    init : "samples", "random" or "pca"
        ``Dx`` starts from training images drawn without replacement, from Gaussian atoms as Algorithm 1 says, or from
        the leading right singular vectors of X. Gaussian atoms fill up what the first and the last do not have.
    solver : callable, optional
        ``solver(X, D, lam, init=...) -> Codes``; default :func:`zsl.sparse.sparse_encode`.
    seed : int
        Everything random follows it.
    batch_size : int, optional
        Images per update in online learning (:mod:`zsl.sparse.learning`), for data that memory does not hold:
        ``n_iter`` passes over the images in random order, then one that codes them all. ``None``: batch learning,
        one update of the dictionary per pass.
    forgetting : float >= 0
        Online: at 1 the statistics reach back about one pass, at more less far; 0 forgets nothing, not even what
        earlier passes saw, which keeps the dictionary near their codes.
    checkpoint : path, optional
        The beginning of the name of a file that keeps, every ``checkpoint_minutes``, all that is needed to go on after
        a kill: the same ``fit`` then ends at the same dictionaries, to the bit. Each problem (data and settings) has a
        file of its own, ``ck-1a2b3c4d.npz`` for ``ck``, so that the fits of a sweep or of tuning may share the setting.
        Removed when ``fit`` is done.

    Notes
    -----
    ``"joint"`` minimises Eq. (2) well and recognises no better for it, often worse. On data drawn by
    :func:`zsl.data.readers.synthetic.draw` (60 classes, 15 of them unseen; means over six seeds, no B term):

    ============= ============ ======== ======== ==================
    p, q          measure      "joint"  the same "sequential"
                               10 iter. 60 iter.
    ============= ============ ======== ======== ==================
    100, 10       Eq. (2)      0.0187   0.0168   0.0240
    \             accuracy     0.23     0.08     0.70
    40, 20        Eq. (2)      0.0323   0.0284   0.0303
    \             accuracy     0.87     0.77     0.84
    ============= ============ ======== ======== ==================

    In these two, 60 iterations lower the objective and the accuracy: the codes see the attributes, which a test image
    does not have. A training image coded by Eq. (5) has only 53 and 58 % of the support of its joint code. In three
    more settings (20, 60; and both above with attributes scaled down to 0.09 and 0.21) it has 88 to 98 %, and all
    three columns agree within 0.04. Fitting ``Dz`` again to the codes by Eq. (5) regains part of the loss (0.26 to 0.37
    at 100, 10, ten seeds with B); ``"sequential"`` started from the joint ``Dx`` regains most (0.63). Neither would
    still be Eq. (2).

    Attributes
    ----------
    Dx_, Dz_ : (r, p), (r, q)
        The dictionaries.
    codes_ : (n, r) scipy.sparse.csr_array
        Codes of the seen images; None with ``batch_size``. ``A_`` is a dense copy.
    B_ : (M, r)
        Codes of the unseen classes' attributes, empty with ``unseen_weight="none"``.
    lam_ : float
        The lambda used.
    objective_x_, objective_z_ : list of float
        The objectives after the codes of each alternation (``n_iter + 1`` values). With ``atoms="ridge"`` F_x has its
        own penalty ``beta / p |Dx|^2`` added. They never rise by more than the certified gaps, see ``gap_x_``. With
        ``batch_size`` all values of F_x but the last are means over a pass with a changing dictionary.
    objective_, gap_ : list of float
        With ``coupling="joint"``, instead of the four: the same of Eq. (2).
    gap_x_, gap_z_ : list of float
        Certified suboptimality of the codes behind each value: the mean of the solver's gaps.
    lasso_gap_max_ : float
        Largest gap of any row of the final ``A_`` and ``B_``.
    redrawn_ : list of int
        Atoms replaced before each alternation because no image used them or because they repeated another
        (``|cos| > 1 - 1e-6``); the objective may step up there, where only unused atoms of the unit ball were
        replaced it does not.
    """

    n_atoms: Count | None = None
    lam: Positive | None = None
    lam_relative: Positive = 0.1
    beta: Positive = 1e-3
    n_iter: Annotated[int, at.Ge(0)] = 10
    coupling: Literal["sequential", "joint"] = "sequential"
    atoms: Literal["unit_ball", "ridge"] = "unit_ball"
    update: Literal["exact", "gradient"] = "exact"
    unseen_weight: Literal["eq2", "eq4", "none"] = "eq2"
    init: Literal["samples", "random", "pca"] = "samples"
    solver: Encoder | None = None
    seed: Seed = 0
    batch_size: Count | None = None
    forgetting: NonNegative = 1.0
    checkpoint: str | Path | None = None
    checkpoint_minutes: Positive = 5.0

    # Not needed for scores, and as large as the data.
    training_only: ClassVar[tuple[str, ...]] = ("codes_", "B_")

    Dx_: Array = field(init=False, repr=False)
    Dz_: Array = field(init=False, repr=False)
    codes_: sp.csr_array | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_fields(self)
        if self.checkpoint is not None:
            check_name(self.checkpoint)

    @property
    def information(self) -> tuple[str, ...]:
        """What training used beyond the seen images and their attributes."""
        return () if self.unseen_weight == "none" else ("attributes of unseen classes in training",)

    def fit(self, X: Array, y: Array, Z: Array, Z_unseen: Array) -> CoupledDictionaries:
        """Learn both dictionaries; shapes as in :class:`zsl.models.base.Model`. ``y`` tells which rows of Z repeat.

        With ``batch_size``, X may be anything that gives rows for a slice: a memory map, an HDF5 dataset.

        Raises
        ------
        UserError
            On arguments that do not fit together, see :func:`zsl.models.base.check_training`; on a checkpoint that
            cannot be written, or is damaged.
        """
        check_fields(self)
        X, y, Z, Z_unseen = check_training(X, y, Z, Z_unseen, in_pieces=self.batch_size is not None)
        checkpoint = self._checkpoint(X, y, Z, Z_unseen)
        rng = np.random.default_rng(self.seed)
        r = self.n_atoms or default_n_atoms(len(X), X.shape[1], Z.shape[1])
        Dx = initial_atoms(X, r, self.init, rng)
        self.lam_ = self.lam if self.lam is not None else self.lam_relative * _mean_lambda_max(X, Dx)
        if self.lam_ <= 0:
            raise UserError(
                "every training image is zero after pre-processing, so lam_relative gives lambda = 0; set lam."
            )
        self.Z_unseen_ = Z_unseen
        attributes = Attributes(Z, y)
        if self.coupling == "joint":
            self._learn_jointly(X, attributes, Z_unseen, Dx, rng, checkpoint)
        else:
            state = self._learn(Visual(X, attributes, self._ridge, self.update == "gradient"), Dx, rng, checkpoint)
            self.Dx_, self.objective_x_, self.gap_x_ = state.D, state.objectives, state.gaps
            self._learn_semantic(
                len(X), state.AtA, attributes.mean_products(state.products), attributes.mean_square, Z_unseen
            )
        if checkpoint:
            checkpoint.remove()
        return self

    @property
    def A_(self) -> Array:
        """(n, r) dense copy of ``codes_``."""
        codes = getattr(self, "codes_", None)
        if codes is None:
            raise AttributeError("A_: the codes of the training images are not kept with batch_size; use codes(X)")
        return codes.toarray()

    def codes(self, X: Array) -> Codes:
        """Sparse codes of images X (L, p) under the visual dictionary, Eq. (5) (``eq:attrAgn``)."""
        need_fitted(self, "Dz_")
        X = as_matrix(X, "X", n_columns=self.Dx_.shape[1])
        need_squares(X, "X")
        return self._encode(X, self.Dx_)

    def predict_attributes(self, X: Array) -> Array:
        """Attribute-agnostic attributes ``a Dz`` (L, q) of images X (L, p)."""
        A = self.codes(X).A
        return A @ self.Dz_

    def scores(self, X: Array, class_attributes: Array | None = None) -> Array:
        """Negative squared distance (L, C) from the predicted attributes to each class's (Eq. 8, ``nearest``)."""
        need_fitted(self, "Dz_")
        Z = self.Z_unseen_ if class_attributes is None else as_matrix(class_attributes, "class_attributes")
        need_squares(Z, "class_attributes")
        return -squared_distances(self.predict_attributes(X), Z)

    def _encode(self, X: Array, D: Array, init: Array | None = None) -> Codes:
        return (self.solver or sparse_encode)(X, D, self.lam_, init=init)

    @property
    def _ridge(self) -> float:
        return self.beta if self.atoms == "ridge" else 0.0

    def _checkpoint(self, X: Array, y: Array, Z: Array, Z_unseen: Array) -> Checkpoint | None:
        if self.checkpoint is None:
            return None
        names = [f.name for f in dataclasses.fields(self) if f.init]
        about = {name: getattr(self, name) for name in names if name not in ("checkpoint", "checkpoint_minutes")}
        # What a state consists of too: that of another version belongs to another problem.
        about["state"] = [f.name for f in dataclasses.fields(State)]
        pieces = (V[i : i + _BLOCK] for V in (X, y, Z, Z_unseen) for i in range(0, len(V), _BLOCK))
        return Checkpoint(self.checkpoint, fingerprint(about, pieces), self.checkpoint_minutes)

    def _learn(
        self, task: Visual, D: Array, rng: np.random.Generator, checkpoint: Checkpoint | None, B: Array | None = None
    ) -> State:
        """Alternate over codes and dictionary, and keep what both couplings report."""
        state = learn(
            task, D, self._encode, self.lam_, self.n_iter, rng,
            B=B, batch_size=self.batch_size, forgetting=self.forgetting, checkpoint=checkpoint,
        )  # fmt: skip
        self.codes_ = sp.vstack(state.codes, format="csr") if state.codes else None
        self.redrawn_, self.lasso_gap_max_ = state.redrawn, state.gap_max
        return state

    def _learn_jointly(
        self, X: Array, attributes: Attributes, Z_unseen: Array, Dx: Array, rng: np.random.Generator,
        checkpoint: Checkpoint | None,
    ) -> None:  # fmt: skip
        """Eq. (2) over A, B, Dx and Dz in turn; Dz starts from the codes of the images alone."""
        task = Joint(
            X, attributes, Z_unseen, self._ridge, self.beta, self._unseen_weight(len(X)), self._encode, self.lam_,
            self.update == "gradient",
        )  # fmt: skip
        n_first = min(len(X), self.batch_size or 2 * _BLOCK)
        D = task.start(Dx, np.linspace(0, len(X) - 1, n_first).astype(np.int64))
        B = np.zeros((len(Z_unseen) if task.weight else 0, len(D)), X.dtype)
        state = self._learn(task, D, rng, checkpoint, B)
        self.Dx_, self.Dz_ = task.split(state.D)
        self.B_, self.objective_, self.gap_ = state.B, state.objectives, state.gaps

    def _unseen_weight(self, n: int) -> float:
        return {"eq2": 1 / len(self.Z_unseen_), "eq4": 1 / n, "none": 0.0}[self.unseen_weight]

    def _learn_semantic(self, n: int, AtA: Array, AtZ: Array, ZZ: float, Z_unseen: Array) -> None:
        """Eq. (4) with A held fixed: Dz from A alone, then Dz and the unseen classes' codes B in turn.

        The seen images enter through ``A'A/n`` (r, r), ``A'Z/n`` (r, q) and ``|Z|^2/n`` in double precision.
        """
        r, q = AtZ.shape
        weight = self._unseen_weight(n)
        Dz = semantic_atoms(AtA, AtZ, np.zeros((r, q)), self.beta, self.atoms == "unit_ball")
        B = np.zeros((len(Z_unseen) if weight else 0, r), Z_unseen.dtype)
        self.objective_z_, self.gap_z_, worst = [], [], 0.0
        for iteration in range(self.n_iter + 1 if weight else 1):
            if iteration:
                H, C = AtA + weight * B.T @ B, AtZ + weight * B.T @ Z_unseen
                Dz = semantic_atoms(H, C, Dz, self.beta, self.atoms == "unit_ball")
            Dz = Dz.astype(Z_unseen.dtype, copy=False)
            left = ZZ - 2 * float(np.vdot(Dz, AtZ)) + float(np.vdot(Dz, AtA @ Dz))
            value, gaps = (left + self.beta * float(np.vdot(Dz, Dz))) / q, 0.0
            if weight:
                B, gap, _ = self._encode(Z_unseen, Dz, B)
                value += weight * float(objective(Z_unseen, Dz, B, self.lam_).sum())
                gaps = weight * float(gap.sum())
                worst = float(gap.max())
            self.objective_z_.append(value)
            self.gap_z_.append(gaps)
        self.Dz_, self.B_, self.lasso_gap_max_ = Dz, B, max(self.lasso_gap_max_, worst)


def default_n_atoms(n: int, p: int, q: int) -> int:
    """The rule behind ``n_atoms=None``."""
    return min(math.ceil(1.25 * max(p, q)), n, MAX_ATOMS)


def initial_atoms(X: Array, r: int, how: str, rng: np.random.Generator) -> Array:
    """(r, p) unit atoms: rows of X without replacement, or its singular vectors; Gaussian ones where it has no more."""
    D = rng.standard_normal((r, X.shape[1])).astype(X.dtype)
    if how == "samples":
        nonzero = np.concatenate([np.any(X[i : i + _BLOCK] != 0, axis=1) for i in range(0, len(X), _BLOCK)])
        candidates = rng.permutation(np.flatnonzero(nonzero))[:r]
        order = np.argsort(candidates)
        D[order] = X[candidates[order]]
    elif how == "pca":
        # From the products of the features, so that rows may come in pieces.
        XtX = sum(X[i : i + _BLOCK].astype(np.float64).T @ X[i : i + _BLOCK] for i in range(0, len(X), _BLOCK))
        vectors = np.linalg.eigh(XtX)[1][:, ::-1].T[: min(r, len(X))]
        D[: len(vectors)] = vectors
    return unit_atoms(D)


def _mean_lambda_max(X: Array, D: Array) -> float:
    return sum(float(lambda_max(X[i : i + _BLOCK], D).sum()) for i in range(0, len(X), _BLOCK)) / len(X)
