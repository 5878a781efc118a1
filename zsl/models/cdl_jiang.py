"""CDLJiang: class prototypes whose structure a pair of dictionaries aligns with that of the attributes."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from zsl.checks import Array, Count, Positive, Seed
from zsl.linalg import class_means, class_sums
from zsl.models.base import GridCache, InductiveModel, Metric, compare
from zsl.sparse.dictionary import unit_ball_atoms


@dataclass(eq=False, repr=False)
class CDLJiang(InductiveModel):
    r"""Coupled dictionary learning by structure alignment (Jiang, Wang, Shan and Chen, ECCV 2018).

    .. math:: \min_{P, C, D_1, D_2} \|X - H P\|_F^2 + \alpha \|P - C D_1\|_F^2 + \beta \|S - C D_2\|_F^2
        + \epsilon \|C\|_F^2, \qquad \|d\| \le 1 \text{ for every atom}

    X (n, p) are features, H (n, K) one-hot labels, P (K, p) prototypes and S (K, q) attributes of the K seen classes; C
    (K, r) are their common codes, which are not sparse, and D_1 (r, p) and D_2 (r, q) are atoms. Each block is
    minimised in turn, in closed form or, for the atoms, by projected block descent, so the objective never rises. A
    class u has the code ``c_u = argmin |s_u - c D_2|^2 + (epsilon / beta) |c|^2`` and the prototype ``c_u D_1``; an
    image gets the class of the most similar prototype.

    The terms in alpha and beta are the published ones. The penalty on C is ours: without it the codes of classes
    outside the span of ``D_2`` are not determined. The reference's further adaptation to unseen classes is left out. We
    did not have the full text of the reference.

    Parameters
    ----------
    n_atoms : int, optional
        r; ``None`` takes the number of seen classes.
    alpha, beta, epsilon : float > 0
        ``alpha`` matters in relation to the number of images of a class.
    metric : "cosine", "nearest" or "dot"
        Similarity of images and prototypes; the reference has the cosine.
    n_iter : int >= 1
        Rounds over the blocks.
    seed : int >= 0
        Seed of the draw of the classes from which the atoms start.

    Attributes
    ----------
    D1_, D2_, C_, P_
    objective_ : list of float
        The objective after every round.

    Examples
    --------
    >>> import numpy as np
    >>> X, y, Z = np.eye(2), np.array([0, 1]), np.array([[1.0, -1.0], [-1.0, 1.0]])
    >>> CDLJiang().fit(X, y, Z, Z_unseen=-Z).predict(X)
    array([1, 0])
    """

    n_atoms: Count | None = None
    alpha: Positive = 100.0
    beta: Positive = 100.0
    epsilon: Positive = 1.0
    metric: Metric = "cosine"
    n_iter: Count = 30
    seed: Seed = 0

    D1_: Array = field(init=False, repr=False)
    D2_: Array = field(init=False, repr=False)

    def _fit(self, X: Array, y: Array, Z: Array, shared: GridCache) -> None:
        S, sums = shared("S", lambda: class_means(Z, y)), shared("sums", lambda: class_sums(X, y))
        counts = np.bincount(y)[:, None].astype(np.float64)
        constant = shared("within", lambda: float(((X - (sums / counts)[y]) ** 2).sum()))
        rng = np.random.default_rng(self.seed)
        P = sums / counts
        D1, D2 = self._start(P, S, rng)
        self.objective_ = []
        for _ in range(self.n_iter):
            C = self._codes(P, S, D1, D2)
            CtC = C.T @ C
            D1, D2 = unit_ball_atoms(CtC, C.T @ P, D1), unit_ball_atoms(CtC, C.T @ S, D2)
            P = (sums + self.alpha * C @ D1) / (counts + self.alpha)
            self.objective_.append(constant + self._objective(P, C, D1, D2, S, sums / counts, counts))
        self.P_, self.C_ = P.astype(X.dtype), C.astype(X.dtype)
        self.D1_, self.D2_ = D1.astype(X.dtype), D2.astype(X.dtype)

    def _start(self, P: Array, S: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        """Initial atoms: prototypes and attributes of the same classes, so that the first codes suit both."""
        r = self.n_atoms or len(S)
        order = rng.permutation(len(S))[:r]
        D1, D2 = P[order], S[order]
        if r > len(S):
            # Further atoms are mixtures of classes, with the same weights in both spaces.
            weights = rng.standard_normal((r - len(S), len(S))) / np.sqrt(len(S))
            D1, D2 = np.vstack([D1, weights @ P]), np.vstack([D2, weights @ S])
        return tuple(D / np.maximum(np.linalg.norm(D, axis=1, keepdims=True), 1) for D in (D1, D2))

    def _codes(self, P: Array, S: Array, D1: Array, D2: Array) -> Array:
        H = self.alpha * D1 @ D1.T + self.beta * D2 @ D2.T + self.epsilon * np.eye(len(D1))
        return np.linalg.solve(H, (self.alpha * P @ D1.T + self.beta * S @ D2.T).T).T

    def _objective(self, P: Array, C: Array, D1: Array, D2: Array, S: Array, means: Array, counts: Array) -> float:
        """The objective without the spread of the images about their class means, which no block changes."""
        return float(
            (counts * (means - P) ** 2).sum()
            + self.alpha * ((P - C @ D1) ** 2).sum()
            + self.beta * ((S - C @ D2) ** 2).sum()
            + self.epsilon * (C**2).sum()
        )

    def prototypes(self, S: Array) -> Array:
        """Prototypes (C, p) of classes with attributes S (C, q)."""
        H = self.D2_ @ self.D2_.T + self.epsilon / self.beta * np.eye(len(self.D2_), dtype=self.D2_.dtype)
        return np.linalg.solve(H, self.D2_ @ S.T).T @ self.D1_

    def _scores(self, X: Array, S: Array) -> Array:
        return compare(X, self.prototypes(S), self.metric)
