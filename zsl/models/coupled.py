"""Coupled dictionary learning (the paper's Algorithm 1): visual and semantic dictionaries that share codes."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import annotated_types as at
import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator

from zsl.checks import Array, Count, NonNegative, Positive, Seed, as_matrix, check_fields, check_no_overflow
from zsl.errors import UserError
from zsl.linalg import squared_distances
from zsl.models.base import PredictMixin, check_fitted
from zsl.models.by_chunk import by_chunk
from zsl.models.coupling import ImageAttributes, Joint, SemanticAtoms, Visual, forget_history
from zsl.models.initial_atoms import default_n_atoms, initial_atoms, mean_lambda_max
from zsl.models.rows import check_training
from zsl.sparse import Codes, Encoder, objective, sparse_encode
from zsl.sparse.checkpoint import Checkpoint, check_name, fingerprint
from zsl.sparse.chunks import Chunks, hashed, in_chunks, is_chunked
from zsl.sparse.encode import Coding
from zsl.sparse.learning import learn
from zsl.sparse.state import State

# Settings that change neither the problem nor its solution.
_NO_CHANGE = ("checkpoint", "checkpoint_minutes", "backend")
# Rows that are read at once.
_BLOCK = 4096


@dataclass(eq=False, repr=False)
class CoupledDictionaries(PredictMixin, BaseEstimator):
    r"""Visual and semantic dictionaries ``Dx`` and ``Dz`` that share the sparse codes of the seen images.

    With N seen images, M unseen classes and one atom per row, training minimises

    .. math::
        F_x &= \tfrac1N \sum_i \bigl( \tfrac1p \|x_i - a_i D_x\|^2 + \tfrac\lambda r |a_i|_1 \bigr) \\
        F_z &= \tfrac1{Nq} \|Z - A D_z\|_F^2
               + \tfrac1M \sum_m \bigl( \tfrac1q \|z'_m - b_m D_z\|^2 + \tfrac\lambda r |b_m|_1 \bigr)
               + \tfrac\beta q \|D_z\|_F^2

    by alternation: F_x over ``A, Dx`` first (Eq. 3, ``eq:opt1``) and then, for fixed ``A``, F_z over ``B, Dz`` (Eq. 4,
    ``eq:opt2``). The weights are those of the joint problem (Eq. 2, ``eq:maineq``), which the alternation approximates.

    Parameters
    ----------
    n_atoms : int, optional
        r, the number of atoms. ``None``: 1.25 max(p, q), since the paper asks for r > max(p, q), but at most the number
        of images and at most 2560.
    lam : float > 0, optional
        The penalty lambda of Eqs. (2) to (5), before the 1/r. If ``lam`` is given, ``lam_relative`` is not used.
    lam_relative : float > 0
        lambda as a share of the mean lambda at which the codes of the training images (of 4096 of them, if there are
        more) vanish under the initial dictionary (:func:`zsl.sparse.lambda_max`). A share means the same for all
        features and all r.
    beta : float > 0
        Ridge penalty on ``Dz``, and with ``atoms="ridge"`` also on ``Dx``.
    n_iter : int >= 0
        Alternations for each dictionary. With 0, ``Dx`` stays at its initial value and ``Dz`` is fitted to the codes.
    tol : float >= 0
        Batch learning ends before ``n_iter`` once an alternation lowers the objective by a smaller share; 0: never.
    coupling : "sequential" or "joint"
        ``"sequential"`` is Algorithm 1. ``"joint"`` minimises Eq. (2) over A, B, Dx and Dz in turn, with codes A that
        see images and attributes at once (:class:`zsl.models.coupling.Joint`). Test images have no attributes and are
        coded by Eq. (5) either way, so ``"joint"`` fits both dictionaries to other codes than it uses later; see Notes.
    atoms : "unit_ball" or "ridge"
        Whether atoms of both dictionaries are confined to the unit ball (Eqs. 1-2), or penalised by beta (Eqs. 3-4).
    update : "exact" or "gradient"
        Minimise exactly over ``Dx`` after each coding, in closed form (``atoms="ridge"``) or by one pass over the atoms
        (``"unit_ball"``); or take a few projected gradient steps (:func:`zsl.sparse.dictionary.gradient_atoms`).
        Neither raises the objective.
    unseen_weight : "eq2", "eq4" or "none"
        Weight of the unseen classes' attributes in training: 1/M as in Eq. (2), 1/N as in Eq. (4), or zero.
    init : "samples", "random" or "pca"
        ``Dx`` starts from training images drawn without replacement, from Gaussian atoms as in Algorithm 1, or from the
        leading right singular vectors of X. Gaussian atoms fill up what ``"samples"`` and ``"pca"`` lack.
    solver : callable, optional
        ``solver(X, D, lam, init=...) -> Codes``; default :func:`zsl.sparse.sparse_encode`.
    seed : int >= 0
        Seed of everything random.
    batch_size : int, optional
        Images per update of online learning (:mod:`zsl.sparse.learning`), for data that do not fit in memory:
        ``n_iter`` passes over the images in random order, then one that codes them all. ``None``: batch learning.
    forgetting : float >= 0
        Online learning: with 1 the statistics remember about one pass, with more they remember less. With 0 they forget
        nothing, not even codes under much older dictionaries.
    checkpoint : path, optional
        Beginning of the name of a file that is written every ``checkpoint_minutes``. After a kill the same ``fit`` goes
        on from the file and ends at the same dictionaries to the bit (with rows on a Dask cluster, to within the
        tolerance of the codes, which start anew). Every problem (data and settings) has a file of
        its own, ``ck-1a2b3c4d.npz`` for ``ck``, which ``fit`` removes when it is done.
    checkpoint_minutes : float > 0
        Minutes between two writes of the checkpoint.
    backend : "numpy" or "dask"
        Where learning takes place: in this process, or on the workers of the Dask client that was made last. Images
        that are a ``dask.array`` are learned from on the workers either way (docs/dask.md).

    Attributes
    ----------
    Dx_, Dz_ : (r, p), (r, q)
        The dictionaries.
    codes_ : (n, r) scipy.sparse.csr_array
        Codes of the seen images; None with ``batch_size``. ``A_`` is a dense copy. Of rows on a Dask cluster ``codes_``
        is a ``dask.array`` of such arrays, which the workers hold as long as the model exists.
    B_ : (M, r)
        Codes of the unseen classes' attributes; no rows with ``unseen_weight="none"``.
    lam_ : float
        The lambda that was used.
    objective_x_, objective_z_ : list of float
        The objectives after the coding of each alternation (``n_iter + 1`` values). With ``atoms="ridge"`` F_x includes
        the penalty ``beta / p |Dx|^2``. The values never rise by more than the certified gaps. With ``batch_size`` all
        values of F_x but the last are means over a pass with a changing dictionary.
    gap_x_, gap_z_ : list of float
        Certified suboptimality of the codes behind each value: the mean of the solver's gaps.
    objective_, gap_ : list of float
        Replace the four lists above for ``coupling="joint"``: the values of Eq. (2).
    lasso_gap_max_ : float
        Largest gap of any row of the final ``A_`` and ``B_``.
    density_ : float
        Share of non-zero entries in the codes of the seen images.
    redrawn_ : list of int
        Number of atoms that were replaced before each alternation because no image used them or because they repeated
        another atom (``|cos| > 1 - 1e-6``). The objective may rise there, unless all of them were unused atoms of the
        unit ball.

    Notes
    -----
    ``"joint"`` minimises Eq. (2) well, but often recognises fewer images than ``"sequential"``: its codes see the
    attributes, which a test image does not have. ``docs/sparse-coding.md`` has the measurements.

    Examples
    --------
    >>> X, y, Z = np.eye(3), np.array([0, 1, 2]), np.eye(3)
    >>> model = CoupledDictionaries(n_atoms=3, lam=0.1, n_iter=2)
    >>> model.fit(X, y, Z, Z_unseen=Z[::-1]).predict(X)
    array([2, 1, 0])
    """

    n_atoms: Count | None = None
    lam: Positive | None = None
    lam_relative: Positive = 0.1
    beta: Positive = 1e-3
    n_iter: Annotated[int, at.Ge(0)] = 10
    tol: NonNegative = 0.0
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
    backend: Literal["numpy", "dask"] = "numpy"

    # Fitted attributes that scores do not need and that are as large as the data.
    training_only: ClassVar[tuple[str, ...]] = ("codes_", "B_")

    # Where a model that has this one as a member collects checkpoints, which it removes itself.
    _checkpoints: list[Checkpoint] | None = field(init=False, repr=False, default=None)

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
        """Learn both dictionaries from images X (n, p) of classes y (n,), with attributes Z (n, q) of each image.

        ``Z_unseen`` (M, q) has a row for each unseen class. With ``batch_size``, X may be anything that returns rows
        for a slice, such as a memory map or an HDF5 dataset.

        Raises
        ------
        UserError
            For arguments that do not fit together, see :func:`zsl.models.base.check_training`, and for a checkpoint
            that is damaged or cannot be written.
        """
        check_fields(self)
        forget_history(self)
        X, y, Z, Z_unseen = self._checked(X, y, Z, Z_unseen)
        checkpoint = self._checkpoint(X, y, Z, Z_unseen)
        rng = np.random.default_rng(self.seed)
        r, _ = self.size(len(X), X.shape[1], Z.shape[1])
        Dx = initial_atoms(X, r, self.init, rng)
        self.lam_ = self.lam if self.lam is not None else self.lam_relative * mean_lambda_max(X, Dx)
        if self.lam_ <= 0:
            raise UserError(
                "every training image is zero after pre-processing, so lam_relative gives lambda = 0; set lam."
            )
        self.Z_unseen_ = Z_unseen
        attributes = ImageAttributes(Z, y)
        if self.coupling == "joint":
            self._learn_jointly(X, attributes, Z_unseen, Dx, rng, checkpoint)
        else:
            state = self._learn(Visual(X, attributes, self._ridge, self.update == "gradient"), Dx, rng, checkpoint)
            self.Dx_, self.objective_x_, self.gap_x_ = state.D, state.objectives, state.gaps
            self._learn_semantic(
                len(X), state.AtA, attributes.mean_products(state.products), attributes.mean_square, Z_unseen
            )
        if checkpoint:
            checkpoint.remove() if self._checkpoints is None else self._checkpoints.append(checkpoint)
        return self

    def size(self, n: int, p: int, q: int) -> tuple[int, int]:
        """Atoms, and dictionaries, which is one, given n images, p features and q attributes."""
        return self.n_atoms or default_n_atoms(n, p, q), 1

    @property
    def A_(self) -> Array:
        """(n, r) dense copy of ``codes_``."""
        codes: Any = getattr(self, "codes_", None)
        if codes is None:
            raise AttributeError("A_: the codes of the training images are not kept with batch_size; use codes(X)")
        return (codes.compute() if is_chunked(codes) else codes).toarray()

    def codes(self, X: Array) -> Codes:
        """Sparse codes of images X (L, p) under the visual dictionary, by Eq. (5) (``eq:attrAgn``)."""
        check_fitted(self, "Dz_")
        if not is_chunked(X):
            X = as_matrix(X, "X", n_columns=self.Dx_.shape[1])
            check_no_overflow(X, "X")
        return self._encode(X, self.Dx_)

    @by_chunk
    def predict_attributes(self, X: Array) -> Array:
        """Attribute-agnostic prediction ``a Dz`` (L, q) for images X (L, p)."""
        return self.codes(X).A @ self.Dz_

    @by_chunk
    def scores(self, X: Array, class_attributes: Array | None = None) -> Array:
        """Score every image for every class by Eq. (8) (``nearest``).

        Parameters
        ----------
        X : (L, p)
        class_attributes : (C, q), optional
            The classes; by default the unseen classes of ``fit``.

        Returns
        -------
        (L, C)
            Negative squared distances from the predicted attributes to those of the classes.
        """
        check_fitted(self, "Dz_")
        Z = self.Z_unseen_ if class_attributes is None else class_attributes
        Z = as_matrix(Z, "class_attributes", n_columns=self.Dz_.shape[1])
        check_no_overflow(Z, "class_attributes")
        return -squared_distances(self.predict_attributes(X), Z)

    def _encode(self, X: Array, D: Array, init: Array | None = None, rough: float = 0.0) -> Codes:
        return self._coding(X, D, init, rough)

    @property
    def _coding(self) -> Coding:
        """The solver and its penalty alone, which is what workers of a cluster need of the model."""
        return Coding(self.solver or sparse_encode, self.lam_)

    def _checked(self, X: Any, y: Array, Z: Array, Z_unseen: Array) -> tuple[Array, Array, Array, Array]:
        """The arguments of ``fit``, checked, with the images where learning takes place."""
        if self.backend == "dask" and not isinstance(X, Chunks) and not is_chunked(X):
            X = in_chunks(as_matrix(X, "X"))
        return check_training(X, y, Z, Z_unseen, in_pieces=self.batch_size is not None, in_chunks=True)

    @property
    def _ridge(self) -> float:
        return self.beta if self.atoms == "ridge" else 0.0

    def _checkpoint(self, X: Array, y: Array, Z: Array, Z_unseen: Array) -> Checkpoint | None:
        if self.checkpoint is None:
            return None
        about = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.init and f.name not in _NO_CHANGE}
        # The fields of the state count too, so a checkpoint of another version belongs to another problem.
        about["state"] = [f.name for f in dataclasses.fields(State)]
        arrays = [*X.each(hashed), y, Z, Z_unseen] if isinstance(X, Chunks) else [X, y, Z, Z_unseen]
        pieces = (V[i : i + _BLOCK] for V in arrays for i in range(0, len(V), _BLOCK))
        return Checkpoint(self.checkpoint, fingerprint(about, pieces), self.checkpoint_minutes)

    def _learn(
        self, task: Visual, D: Array, rng: np.random.Generator, checkpoint: Checkpoint | None, B: Array | None = None
    ) -> State:
        """Alternate between codes and dictionary, and set the attributes that both couplings have."""
        chunks = task.X if isinstance(task.X, Chunks) else None
        state = learn(
            task, D, self._encode if chunks is None else self._coding, self.lam_, self.n_iter, rng,
            tol=self.tol, B=B, batch_size=self.batch_size, forgetting=self.forgetting, checkpoint=checkpoint,
            chunks=chunks,
        )  # fmt: skip
        self.codes_ = sp.vstack(state.codes, format="csr") if state.codes else state.chunked_codes
        self.redrawn_, self.lasso_gap_max_ = state.redrawn, state.gap_max
        self.density_ = state.n_nonzero / (state.n_seen * len(state.D))
        return state

    def _learn_jointly(
        self, X: Array, attributes: ImageAttributes, Z_unseen: Array, Dx: Array, rng: np.random.Generator,
        checkpoint: Checkpoint | None,
    ) -> None:  # fmt: skip
        """Minimise Eq. (2) over A, B, Dx and Dz in turn; Dz starts from the codes of the images alone."""
        task = Joint(
            X, attributes, Z_unseen, self._ridge, self.beta, self._unseen_weight(len(X)), self._coding, self.lam_,
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
        """Minimise Eq. (4) for fixed A: Dz from A alone, then Dz and the unseen classes' codes B in turn.

        The seen images enter through ``A'A/n`` (r, r), ``A'Z/n`` (r, q) and ``|Z|^2/n`` in double precision.
        """
        (r, q), weight = AtZ.shape, self._unseen_weight(n)
        best = SemanticAtoms(AtA, AtZ, self.beta, self.atoms == "unit_ball")
        Dz, B = np.zeros((r, q)), np.zeros((len(Z_unseen) if weight else 0, r), Z_unseen.dtype)
        self.objective_z_, self.gap_z_, worst = [], [], 0.0
        for iteration in range(self.n_iter + 1 if weight else 1):
            Dz = best.atoms(Dz, B, Z_unseen, weight if iteration else 0.0).astype(Z_unseen.dtype, copy=False)
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
