"""LESDStyle: a low-rank embedding of the features and a dictionary that links it to the attributes."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import scipy.linalg

from zsl.checks import Array, Count, Fraction, Positive, Seed
from zsl.linalg import class_means, gram, spectrum
from zsl.models.base import GridCache, InductiveModel, Metric, compare
from zsl.models.ridge import cross


@dataclass(eq=False, repr=False)
class LESDStyle(InductiveModel):
    r"""Low-rank embedded semantic dictionaries, in the spirit of LESD (Ding, Shao and Fu, CVPR 2017).

    .. math:: \min_{P, D} \|X P - Z D^\top\|_F^2 + \lambda \|D\|_F^2
        \quad \text{subject to} \quad P^\top (X^\top X + \alpha I) P = I

    X (n, p) are features and Z (n, q) attributes of the images, both centred on these images; P (p, r) is the embedding
    and D (r, q) the dictionary. With ``D' = (Z'Z + lam I)^-1 Z'X P`` the minimiser P has the r leading solutions of
    ``X'Z (Z'Z + lam I)^-1 Z'X a = kappa (X'X + alpha I) a`` as its columns: regularised canonical correlation. An image
    x gets the class u whose code ``s_u D'``, from its attributes s_u, is most similar to ``x P``. Each of ``n_members``
    pairs (P, D) is fitted to a random share of the seen classes. The scores of each pair are centred and divided by
    their standard deviation over the training images and seen classes; the scores of the model are the mean over the
    pairs.

    Parameters
    ----------
    n_components : int >= 1
        r; at most the rank of the attributes of a pair's classes.
    alpha : float > 0
        Regularisation of the embedding, relative to the mean diagonal of X'X.
    lam : float > 0
        Penalty on the dictionary, relative to the mean diagonal of Z'Z.
    n_members : int >= 1
        Number of pairs (P, D).
    share : float, 0 < share <= 1
        Share of the seen classes that each pair is fitted to. With 1 all pairs are the same and one is fitted.
    metric : "nearest", "cosine" or "dot"
        Similarity in the embedding.
    seed : int >= 0
        Seed of the draws of classes.

    Attributes
    ----------
    P_ : (E, p, r)
    D_ : (E, r, q)

    Notes
    -----
    The published objective is not known to us. Certain are the low-rank embedding, the dictionary between embedding and
    attributes, and the ensemble of dictionaries. What differs, or is unknown:

    * the constraint: ``P'P = I`` is plausible for the reference, but with the objective above the minimum would then
      choose directions without variance, so the constraint is on the embedded images;
    * the rank is a setting, in place of a penalty on the smallest singular values of P;
    * the dictionary has a ridge penalty, in place of atoms of length one at most;
    * the members of the ensemble differ in their classes; their scores are averaged.

    The published numbers are with VGG19 features on the standard splits.

    Examples
    --------
    >>> X, y, Z = np.eye(2), np.array([0, 1]), np.array([[1.0, -1.0], [-1.0, 1.0]])
    >>> LESDStyle(share=1.0).fit(X, y, Z, Z_unseen=-Z).predict(X)
    array([1, 0])
    """

    n_components: Count = 100
    alpha: Positive = 0.1
    lam: Positive = 0.1
    n_members: Count = 10
    share: Fraction = 0.8
    metric: Metric = "cosine"
    seed: Seed = 0

    P_: Array = field(init=False, repr=False)
    D_: Array = field(init=False, repr=False)

    def _fit(self, X: Array, y: Array, Z: Array, shared: GridCache) -> None:
        S = shared("S", lambda: class_means(Z, y))
        self.dtype_ = X.dtype
        X, Z = X.astype(np.float64, copy=False), Z.astype(np.float64, copy=False)
        kept = max(round(self.share * len(S)), 1)
        rng = np.random.default_rng(self.seed)
        # The draw is from the classes in the order of their attributes, so that their numbers do not matter.
        order = np.lexsort(S.T)
        members = [rng.permutation(order)[:kept] for _ in range(self.n_members if kept < len(S) else 1)]
        fits = [self._member(X[rows], y[rows], Z[rows]) for rows in (np.isin(y, members_) for members_ in members)]
        r = max(P.shape[1] for P, *_ in fits)
        self.P_ = np.array([np.pad(P, ((0, 0), (0, r - P.shape[1]))) for P, *_ in fits])
        self.D_ = np.array([np.pad(D, ((0, r - len(D)), (0, 0))) for _, D, *_ in fits])
        self.x_, self.z_ = (np.array([fit[k] for fit in fits]) for k in (2, 3))
        scores = [self._member_scores(e, X, S) for e in range(len(fits))]
        self.mean_ = np.array([F.mean() for F in scores])
        # A member whose scores are all alike has no say.
        self.scale_ = np.array([1 / F.std() if F.std() > 1e-12 * np.abs(F).max() else 0.0 for F in scores])

    def _member(self, X: Array, y: Array, Z: Array) -> tuple[Array, Array, Array, Array]:
        """Embedding (p, r), dictionary (r, q) and the means of features and attributes, from some of the images."""
        x, z = X.mean(axis=0), Z.mean(axis=0)
        n, p = X.shape
        of = spectrum(Z - z)
        lam = self.lam * float(of.values.sum()) / Z.shape[1]
        total = gram(X - x)
        total[np.diag_indices(p)] += self.alpha * (float(np.trace(total)) / p or 1.0)
        # With X'X + alpha I = L L' the problem is the singular value decomposition of L^-1 X'Z (Z'Z + lam I)^-1/2.
        half = of.vectors / np.sqrt(of.values + lam)
        L = scipy.linalg.cholesky(total, lower=True)
        XtZ = cross(X, np.unique(y, return_inverse=True)[1], Z) - n * np.outer(x, z)
        middle = scipy.linalg.solve_triangular(L, XtZ @ half, lower=True)
        U, kappa, Vt = np.linalg.svd(middle, full_matrices=False)
        r = min(self.n_components, len(kappa))
        P = scipy.linalg.solve_triangular(L, U[:, :r], lower=True, trans="T")
        return P, kappa[:r, None] * Vt[:r] @ half.T, x, z

    def _member_scores(self, e: int, X: Array, S: Array) -> Array:
        return compare((X - self.x_[e]) @ self.P_[e], (S - self.z_[e]) @ self.D_[e].T, self.metric)

    def _scores(self, X: Array, S: Array) -> Array:
        parts = (self.scale_[e] * (self._member_scores(e, X, S) - self.mean_[e]) for e in range(len(self.P_)))
        return (sum(parts, np.zeros((len(X), len(S)))) / len(self.P_)).astype(self.dtype_)
