"""JLSEStyle: codes of images and classes in two dictionaries, and a learned score of their match."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from zsl.checks import Array, Count, Positive
from zsl.linalg import class_means, spectrum
from zsl.models.base import GridCache, InductiveModel
from zsl.models.eszsl import ESZSL
from zsl.models.sse import onto_simplex, simplex_codes
from zsl.sparse.dictionary import unit_ball_atoms


class State(NamedTuple):
    """What training alternates over."""

    H: Array  # (C, k_s) codes of the classes, each on the simplex
    V: Array  # (n, k_t) codes of the images
    B: Array  # (k_s, q) dictionary of attributes
    D: Array  # (k_t, p) dictionary of features
    W: Array  # (k_s, k_t) the match score of codes h and v is h W v'


@dataclass(eq=False, repr=False)
class JLSEStyle(InductiveModel):
    r"""Joint latent similarity embedding, in the style of Zhang and Saligrama (CVPR 2016).

    .. math:: J = \tfrac nC \sum_c \bigl[ \tfrac{\lambda_1}2 \|h_c\|^2 + \tfrac{\lambda_2}2 \|s_c - h_c B\|^2 \bigr]
        + \sum_i \bigl[ \tfrac{\lambda_3}2 \|v_i\|^2 + \tfrac{\lambda_4}2 \|x_i - v_i D\|^2 \bigr]
        + \tfrac{\lambda_5}2 \|W\|_F^2 + \sum_{ic} w_{ic} \bigl[1 - t_{ic} h_c W v_i^\top\bigr]_+

    x_i (p,) are images and s_c (q,) attributes of the C seen classes; t_ic is 1 if c is the class of image i, else -1.
    Codes h_c of the classes lie on the simplex, codes v_i of the images are free, and atoms of B and D have at most
    length one. W, v, h, B and D are improved in turn; each step lowers J or leaves it as it is. The hinges of W and v
    are met in the dual, by accelerated projected gradient; h by projected gradient.

    Parameters
    ----------
    n_components : int >= 1
        k_t, the atoms of D; at most the rank of X. B has an atom for each seen class.
    lam1, lam2, lam3, lam4, lam5 : float > 0
        The weights of J, in its order.
    rule : "separate" or "joint"
        ``separate``: the code h_u of a class and v of an image are those without the hinge, and the score is ``h_u W
        v'``. ``joint``: for each class the code v of the image minimises the image's terms of J with t = 1, and the
        score is minus this minimum, up to a constant of the image. Classes with a margin above one tie.
    n_iter : int >= 1
        Rounds over the blocks.

    Attributes
    ----------
    state_ : State
        At the end of training; V is not kept.
    objective_ : list of float
        J at the start and after every block.

    Notes
    -----
    Certain of the published method are two latent codes, dictionaries on both sides and the alternation. What differs,
    or is unknown:

    * the weights of J, and those of the pairs: here 1 for the pair of an image and its class, 1 / (C - 1) for others;
      the terms of the classes are multiplied by n / C, so that they keep their share of J with more images;
    * the loss of the match, here the hinge, and which of the two rules gives the published numbers;
    * the start: here principal directions of the images, attributes of the seen classes, and the W of ESZSL on the
      codes (Romera-Paredes and Torr, 2015).

    The published numbers are with VGG19 features on the standard splits.

    Examples
    --------
    >>> X, y, Z = np.eye(2), np.array([0, 1]), np.array([[1.0, -1.0], [-1.0, 1.0]])
    >>> JLSEStyle().fit(X, y, Z, Z_unseen=-Z).predict(X)
    array([1, 0])
    """

    n_components: Count = 50
    lam1: Positive = 0.1
    lam2: Positive = 1.0
    lam3: Positive = 0.1
    lam4: Positive = 1.0
    lam5: Positive = 1.0
    rule: Literal["separate", "joint"] = "separate"
    n_iter: Count = 5

    state_: State = field(init=False, repr=False)

    def _fit(self, X: Array, y: Array, Z: Array, shared: GridCache) -> None:
        dtype = X.dtype
        S, of_X = shared("S", lambda: class_means(Z, y)), shared("X", lambda: spectrum(X))
        X = X.astype(np.float64, copy=False)
        self.signs_ = np.where(y[:, None] == np.arange(len(S)), 1.0, -1.0)
        self.weights_ = np.where(self.signs_ > 0, 1.0, 1 / max(len(S) - 1, 1))
        at = self.start(X, y, S, of_X.vectors)
        self.objective_ = [self.objective(X, S, at)]
        alpha = {"W": np.zeros_like(self.signs_), "V": np.zeros_like(self.signs_)}
        for _ in range(self.n_iter):
            W, alpha["W"] = match(at.H, at.V, self.signs_, self.weights_, self.lam5, alpha["W"])
            at = self._better(X, S, at, W=W)
            V, alpha["V"] = self._image_codes(X, at, alpha["V"])
            at = self._better(X, S, at, V=V)
            at = self._better(X, S, at, H=self._class_codes(S, at))
            at = self._better(X, S, at, B=unit_ball_atoms(at.H.T @ at.H, at.H.T @ S, at.B))
            at = self._better(X, S, at, D=unit_ball_atoms(at.V.T @ at.V, at.V.T @ X, at.D))
        del self.signs_, self.weights_
        self.state_ = at._replace(V=np.zeros((0, at.V.shape[1])))
        self.dtype_ = dtype

    def start(self, X: Array, y: Array, S: Array, directions: Array) -> State:
        """The start; ``directions`` (p, k) are those of X with the largest variance last."""
        if not directions.size:
            raise FloatingPointError("there are no principal directions of zeros")
        D = directions[:, ::-1][:, : self.n_components].T
        B = S / np.maximum(np.linalg.norm(S, axis=1, keepdims=True), 1)
        H, V = simplex_codes(S, B, self.lam1 / self.lam2), self._codes(X, D)
        W = ESZSL(gamma=self.lam5, lam=1.0, y_negative=-1).fit(V, y, H[y], H).V_.T
        return State(H, V, B, D, W)

    def _better(self, X: Array, S: Array, at: State, **block: Array) -> State:
        """The state with a new block, unless rounding or an unfinished search made it worse."""
        new = at._replace(**block)
        value = self.objective(X, S, new)
        at, value = (new, value) if value <= self.objective_[-1] else (at, self.objective_[-1])
        self.objective_.append(value)
        return at

    def objective(self, X: Array, S: Array, at: State) -> float:
        """J."""
        of_classes = self.lam1 * (at.H**2).sum() + self.lam2 * ((S - at.H @ at.B) ** 2).sum()
        of_images = self.lam3 * (at.V**2).sum() + self.lam4 * ((X - at.V @ at.D) ** 2).sum()
        hinges = self.weights_ * np.maximum(0, 1 - self.signs_ * (at.V @ at.W.T @ at.H.T))
        rest = of_images + self.lam5 * (at.W**2).sum()
        return float(0.5 * len(X) / len(S) * of_classes + 0.5 * rest + hinges.sum())

    def _precision(self, D: Array) -> Array:
        """``lam3 I + lam4 D D'``, the second derivative of an image's terms in its code."""
        return self.lam3 * np.eye(len(D)) + self.lam4 * D @ D.T

    def _codes(self, X: Array, D: Array) -> Array:
        """Codes (n, k_t) of images without the hinge."""
        return np.linalg.solve(self._precision(D), self.lam4 * D @ X.T).T

    def _image_codes(self, X: Array, at: State, alpha: Array) -> tuple[Array, Array]:
        A, free = at.H @ at.W, self._codes(X, at.D)
        back = np.linalg.solve(self._precision(at.D), A.T).T  # (C, k_t)

        def codes(alpha: Array) -> Array:
            return free + (self.signs_ * alpha) @ back

        largest = float(np.linalg.eigvalsh(A @ back.T)[-1])
        alpha = hinge_dual(lambda a: codes(a) @ A.T, largest, self.signs_, self.weights_, alpha)
        return codes(alpha), alpha

    def _class_codes(self, S: Array, at: State, n_steps: int = 30) -> Array:
        """Codes of the classes after projected gradient steps; a step that would raise a class's part is shortened."""
        G, R, P = at.B @ at.B.T, S @ at.B.T, at.V @ at.W.T  # P (n, k_s): the score of h is P h'
        share = len(P) / len(S)

        def value(H: Array) -> Array:
            smooth = self.lam1 * (H**2).sum(axis=1) + self.lam2 * ((H @ G - 2 * R) * H).sum(axis=1)
            return 0.5 * share * smooth + (self.weights_ * np.maximum(0, 1 - self.signs_ * (P @ H.T))).sum(axis=0)

        H, now = at.H, value(at.H)
        step = np.full((len(S), 1), 1 / (share * (self.lam1 + self.lam2 * float(np.linalg.eigvalsh(G)[-1]))))
        for _ in range(n_steps):
            active = self.weights_ * self.signs_ * (self.signs_ * (P @ H.T) < 1)
            slope = share * (self.lam1 * H + self.lam2 * (H @ G - R)) - active.T @ P
            new = onto_simplex(H - step * slope)
            then = value(new)
            lower = then < now
            H, now = np.where(lower[:, None], new, H), np.where(lower, then, now)
            step *= np.where(lower, 2.0, 0.25)[:, None]
        return H

    def _scores(self, X: Array, S: Array) -> Array:
        at, X, S = self.state_, X.astype(np.float64), S.astype(np.float64)
        A = simplex_codes(S, at.B, self.lam1 / self.lam2) @ at.W
        scores = self._codes(X, at.D) @ A.T
        if self.rule == "joint":
            # The dual of one hinge has one variable: how far the code moves towards the class.
            reach = np.einsum("ij,ji->i", A, np.linalg.solve(self._precision(at.D), A.T))
            move = np.clip((1 - scores) / np.maximum(reach, 1e-300), 0, 1)
            scores = -(0.5 * move**2 * reach + np.maximum(0, 1 - scores - move * reach))
        return scores.astype(self.dtype_)


def match(
    H: Array, V: Array, signs: Array, weights: Array, lam: float, alpha: Array, n_steps: int = 50
) -> tuple[Array, Array]:
    """W (k_s, k_t) that lowers ``lam/2 |W|^2 + sum_ic w_ic max(0, 1 - t_ic h_c W v_i')``, and its dual (n, C)."""

    def back(alpha: Array) -> Array:
        return H.T @ ((signs * alpha).T @ V) / lam

    largest = float(np.linalg.norm(H, 2) ** 2 * np.linalg.norm(V, 2) ** 2) / lam
    alpha = hinge_dual(lambda a: V @ back(a).T @ H.T, largest, signs, weights, alpha, n_steps)
    return back(alpha), alpha


def hinge_dual(
    scores: Callable[[Array], Array], largest: float, signs: Array, weights: Array, alpha: Array, n_steps: int = 50
) -> Array:
    """Accelerated projected gradient on the dual (n, C) of a quadratic with weighted hinges, from ``alpha``.

    Parameters
    ----------
    scores : callable
        The scores (n, C) of the primal point that belongs to a dual one: affine, with slope at most ``largest``.
    largest : float
    signs, weights : (n, C)
        The hinges are ``weights max(0, 1 - signs scores)``.
    alpha : (n, C)
    n_steps : int >= 1
    """
    ahead, t = alpha, 1.0
    for _ in range(n_steps):
        new = np.clip(ahead + (1 - signs * scores(ahead)) / max(largest, 1e-300), 0, weights)
        # Momentum that points against the last step is dropped.
        if np.vdot(ahead - new, new - alpha) > 0:
            t = 1.0
        t, before = 0.5 + np.sqrt(0.25 + t * t), t
        ahead, alpha = new + (before - 1) / t * (new - alpha), new
    return alpha
