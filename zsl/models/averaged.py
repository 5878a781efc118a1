"""Several coupled dictionaries with different initial atoms, whose predicted attributes are averaged."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import annotated_types as at
import numpy as np
import scipy.sparse as sp

from zsl.checks import Array, Count, Positive, check_fields
from zsl.models.base import check_fitted
from zsl.models.coupled import CoupledDictionaries
from zsl.models.coupling import HISTORY, forget_history
from zsl.models.initial_atoms import MAX_ATOMS, default_n_atoms
from zsl.sparse import Codes
from zsl.sparse.checkpoint import Checkpoint
from zsl.sparse.chunks import encode_chunks, is_chunked

# Chosen on classes held out of the seen ones (docs/defaults.md).
_DICTIONARIES, _MIN_ATOMS = 5, 64


@dataclass(eq=False, repr=False)
class AveragedDictionaries(CoupledDictionaries):
    r"""The average of the attributes that K coupled dictionaries with different initial atoms predict.

    The initial atoms change what a dictionary predicts at random, and averaging reduces this variance.
    Every member is a :class:`CoupledDictionaries` with the settings of this model and a seed of its own. That class
    documents all settings but these.

    Parameters
    ----------
    n_dictionaries : int, optional
        K. ``None``: 5, or fewer where 5 would have more than ``MAX_ATOMS`` atoms together, but at least one.
    n_atoms : int, optional
        r, the atoms of each dictionary. ``None``: 1.25 max(p, q), at least 64, at most ``MAX_ATOMS`` and at
        most the number of images.
    lam_relative, n_iter, unseen_weight
        The defaults differ from those of :class:`CoupledDictionaries`: a smaller penalty, so codes with more non-zeros;
        fewer alternations; and no use of the unseen classes' attributes in training.
    seed : int
        The first member's seed; those of the others are derived from it.
    checkpoint : path, optional
        Every member has a file of its own, which is removed when all members are learned. After a kill the same fit
        goes on with the member that was learning.

    Attributes
    ----------
    n_dictionaries_ : int
        K
    Dx_, Dz_ : (K r, p), (K r, q)
        The members' dictionaries one below another; ``Dz_`` is divided by K, so that ``codes(X).A @ Dz_`` is the mean
        of the members' predictions.
    members_ : list of CoupledDictionaries
        The members, for predictions.
    lams_ : list of float
        The lambda of each member; ``lam_`` is their mean.
    codes_, B_ : (n, K r), (M, K r)
        The members' codes side by side; ``codes_`` is None with ``batch_size`` and with rows on a Dask cluster.
    objective_x_, objective_z_, objective_, gap_x_, gap_z_, gap_ : list of float
        Means over the members; a member that ``tol`` ended earlier stays at its last value.
    lasso_gap_max_, density_, redrawn_
        The largest gap, the mean density, the sums of the numbers of redrawn atoms.

    Examples
    --------
    >>> X, y, Z = np.eye(3), np.array([0, 1, 2]), np.eye(3)
    >>> model = AveragedDictionaries(n_dictionaries=2, n_atoms=3, lam=0.1).fit(X, y, Z, Z_unseen=Z[::-1])
    >>> model.predict(X)
    array([2, 1, 0])
    >>> model.Dx_.shape
    (6, 3)
    """

    lam_relative: Positive = 0.05
    n_iter: Annotated[int, at.Ge(0)] = 2
    unseen_weight: Literal["eq2", "eq4", "none"] = "none"
    n_dictionaries: Count | None = None

    lams_: list[float] = field(init=False, repr=False)

    def fit(self, X: Array, y: Array, Z: Array, Z_unseen: Array) -> AveragedDictionaries:
        """Learn every member; arguments and errors as in :meth:`CoupledDictionaries.fit`."""
        check_fields(self)
        X, y, Z, Z_unseen = self._checked(X, y, Z, Z_unseen)
        r, K = self.size(len(X), X.shape[1], Z.shape[1])
        members, checkpoints = [], list[Checkpoint]()
        for seed in seeds(self.seed, K):
            members.append(member := self._member(n_atoms=r, seed=seed))
            # A member's file stays until all are learned: after a kill no member is learned again.
            member._checkpoints = checkpoints
            member.fit(X, y, Z, Z_unseen)
        self.Z_unseen_, self.n_dictionaries_ = members[0].Z_unseen_, K
        self.Dx_, self.Dz_ = (np.vstack([getattr(m, name) for m in members]) for name in ("Dx_", "Dz_"))
        self.Dz_ /= K
        self.lams_ = [m.lam_ for m in members]
        self.lam_ = float(np.mean(self.lams_))
        codes = [m.codes_ for m in members if sp.issparse(m.codes_)]
        self.codes_ = sp.hstack(codes, format="csr") if codes else None
        self.B_ = np.hstack([m.B_ for m in members])
        forget_history(self)
        for name in HISTORY:
            if hasattr(members[0], name):
                setattr(self, name, _together([getattr(m, name) for m in members]).mean(axis=0).tolist())
        self.redrawn_ = _together([m.redrawn_ for m in members], still=0).sum(axis=0).tolist()
        self.lasso_gap_max_ = max(m.lasso_gap_max_ for m in members)
        self.density_ = float(np.mean([m.density_ for m in members]))
        for checkpoint in checkpoints:
            checkpoint.remove()
        return self

    def size(self, n: int, p: int, q: int) -> tuple[int, int]:
        """Atoms of each dictionary, and dictionaries, given n images, p features and q attributes."""
        r, K = default_size(n, p, q) if self.n_atoms is None else (self.n_atoms, n_members(self.n_atoms))
        return r, self.n_dictionaries or K

    @property
    def members_(self) -> list[CoupledDictionaries]:
        """The members, with what predictions need."""
        check_fitted(self, "Dz_")
        K, members = self.n_dictionaries_, []
        for Dx, Dz, lam in zip(np.split(self.Dx_, K), np.split(self.Dz_ * K, K), self.lams_):
            members.append(member := self._member())
            member.Dx_, member.Dz_, member.lam_, member.Z_unseen_ = Dx, Dz, lam, self.Z_unseen_
        return members

    def codes(self, X: Array) -> Codes:
        """The members' codes of images X (L, p) side by side (L, K r), each by Eq. (5); gaps are the largest of any."""
        if is_chunked(X):
            check_fitted(self, "Dz_")
            return Codes(*encode_chunks(MemberCodes(self.members_), X, self.Dx_))
        return side_by_side(self.members_, X)

    def _member(self, **other: Any) -> CoupledDictionaries:
        settings = {f.name: getattr(self, f.name) for f in dataclasses.fields(CoupledDictionaries) if f.init}
        return CoupledDictionaries(**settings | other)


def side_by_side(members: Sequence[CoupledDictionaries], X: Array) -> Codes:
    """The codes of images X (L, p) by several dictionaries side by side (L, K r), and the largest gap of any."""
    found = [member.codes(X) for member in members]
    gap, n_iter = np.max([c.gap for c in found], axis=0), max(c.n_iter for c in found)
    return Codes(np.hstack([c.A for c in found]), gap, n_iter)


@dataclass(frozen=True)
class MemberCodes:
    """The codes of :meth:`AveragedDictionaries.codes` for one chunk of images."""

    members: list[CoupledDictionaries]

    def __call__(self, X: Array, D: Array, init: None) -> Codes:
        """The codes of images X (m, p); D and ``init`` are not used."""
        return side_by_side(self.members, X)


def seeds(seed: int, n: int) -> list[int]:
    """Seeds of n members; the first is ``seed`` itself."""
    return [seed, *(int(np.random.SeedSequence([seed, k]).generate_state(1)[0]) for k in range(1, n))]


def n_members(r: int) -> int:
    """Number of dictionaries of r atoms for ``n_dictionaries=None``.

    Examples
    --------
    >>> n_members(160), n_members(1600)
    (5, 1)
    """
    return max(1, min(_DICTIONARIES, MAX_ATOMS // r))


def default_size(n: int, p: int, q: int) -> tuple[int, int]:
    """Atoms of each dictionary, and dictionaries, by default, given n images, p features and q attributes.

    Examples
    --------
    >>> default_size(4000, 128, 85), default_size(1000, 16, 16), default_size(20_000, 2048, 85)
    ((160, 5), (64, 5), (2560, 1))
    """
    r = min(max(default_n_atoms(n, p, q), _MIN_ATOMS), n)
    return r, n_members(r)


def _together(curves: Sequence[Sequence[float]], still: float | None = None) -> Array:
    """Curves of one length or several as the rows of a matrix; ends are filled with ``still``, or the last value."""
    n = max(map(len, curves))
    return np.array([[*c, *[c[-1] if still is None else still] * (n - len(c))] for c in curves])
