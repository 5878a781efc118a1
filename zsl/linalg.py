"""Linear algebra that several packages share: distances, unit rows, sums over classes, ridge regression, Sinkhorn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from array_api_compat import array_namespace, device
from numpy.typing import DTypeLike

from zsl.checks import Array

# Rows converted to double precision at a time, so that float32 features need no second copy of themselves.
_BLOCK = 4096
_MAX_SINKHORN = 1000


def squared_distances(A: Array, B: Array) -> Array:
    """Squared Euclidean distances (L, M), at least 0, between the rows of A (L, q) and of B (M, q).

    The arrays may be of any library of the array API standard. Those of whole numbers give double precision.

    Examples
    --------
    >>> squared_distances(np.array([[0.0, 0.0]]), np.array([[3.0, 4.0], [0.0, 1.0]]))
    array([[25.,  1.]])
    """
    xp = array_namespace(A, B)
    kind = xp.result_type(A, B)
    kind = kind if xp.isdtype(kind, "real floating") else xp.float64
    # Both are shifted by the mean of B: far from the origin the squares would swallow their difference.
    origin = xp.mean(xp.astype(B, xp.float64, copy=False), axis=0)
    A, B = A - origin, B - origin
    D = xp.vecdot(A, A)[:, None] - 2 * A @ B.T + xp.vecdot(B, B)
    D[D < 0] = 0
    return xp.astype(D, kind, copy=False)


def log_softmax(logits: Array) -> Array:
    """Logarithms (L, M) of the probabilities with these logits (L, M), of any library of the array API standard.

    Examples
    --------
    >>> log_softmax(np.log([[1.0, 3.0]])).round(3)
    array([[-1.386, -0.288]])
    """
    xp = array_namespace(logits)
    logits = logits - xp.max(logits, axis=1, keepdims=True)
    return logits - xp.log(xp.sum(xp.exp(logits), axis=1, keepdims=True))


def unit_rows(Z: Array) -> Array:
    """The rows of Z (n, q) scaled to unit length; zero rows stay zero.

    Examples
    --------
    >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    Z = scaled_near_one(Z)
    norms = np.linalg.norm(Z, axis=1, keepdims=True)
    return Z / np.where(norms > 0, norms, 1)


def scaled_near_one(Z: Array) -> Array:
    """Each row of Z times a power of two that brings its largest entry near 1, so that no square overflows.

    Multiplication by a power of two is exact. Whole numbers become double precision; NumPy would take half for bytes.
    """
    if Z.dtype.kind != "f":
        Z = Z.astype(np.float64)
    return np.ldexp(Z, -np.frexp(np.abs(Z).max(axis=1, keepdims=True, initial=0))[1])


def cosines(A: Array, B: Array) -> Array:
    """Cosine of the angle (L, M) between the rows of A (L, q) and of B (M, q); 0 for a zero row."""
    return unit_rows(A) @ unit_rows(B).T


def most_similar(A: Array, row: int, n: int) -> Array:
    """A row of A (C, q) and the n - 1 rows most similar to it by cosine, as ascending positions.

    Examples
    --------
    >>> most_similar(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.2], [-1.0, 0.0]]), row=0, n=2)
    array([0, 2])
    """
    order = np.argsort(-cosines(A, A[row : row + 1])[:, 0], kind="stable")
    # The row itself comes first even if it is zero.
    return np.sort(np.append(order[order != row][: n - 1], row))


def largest(scores: Array, k: int) -> Array:
    """Columns (L, k) of the k largest values of each row of scores (L, M), largest first; all where M is smaller.

    Of equal values the first column comes first, as in a stable sort of the row, which takes ten times as long.

    Examples
    --------
    >>> largest(np.array([[1.0, 3.0, 2.0, 3.0]]), 3)
    array([[1, 3, 2]])
    """
    M = scores.shape[1]
    if 8 * k >= M:
        return np.argsort(-scores, axis=1, kind="stable")[:, :k]
    least = np.partition(scores, M - k, axis=1)[:, M - k, None]
    above = scores >= least
    # More than k where values are tied with the k-th, fewer where there are NaN: these rows are sorted.
    odd = above.sum(axis=1) != k
    above[odd] = False
    above[odd, :k] = True
    columns = np.nonzero(above)[1].reshape(len(scores), k)
    order = np.argsort(-np.take_along_axis(scores, columns, axis=1), axis=1, kind="stable")
    columns = np.take_along_axis(columns, order, axis=1)
    if odd.any():
        columns[odd] = np.argsort(-scores[odd], axis=1, kind="stable")[:, :k]
    return columns


def class_sums(X: Array, y: Array, n_classes: int | None = None) -> Array:
    """Sums (C, k) in double precision of the rows of X (n, k) over each class of the labels y (n,).

    ``n_classes=None`` takes as many classes as ``y`` names.
    """
    size = int(y.max()) + 1 if n_classes is None else n_classes
    members = sp.csr_array((np.ones(len(y)), (y, np.arange(len(y)))), shape=(size, len(y)))
    return members @ X.astype(np.float64, copy=False)


def class_means(X: Array, y: Array) -> Array:
    """Means (C, k) of the rows of X (n, k) over each class of the labels y (n,), 0..C-1 without gaps.

    The means of the images' attributes are the attributes of the classes; where images have attributes of their own,
    they are the class means of these.

    Examples
    --------
    >>> class_means(np.array([[1.0], [3.0], [5.0]]), np.array([0, 0, 1]))
    array([[2.],
           [5.]])
    """
    return class_sums(X, y) / np.bincount(y)[:, None]


class Spectrum(NamedTuple):
    """``X'X = V diag(e) V'`` without the directions in which X is zero to rounding."""

    values: Array  # (k,) e > 0
    vectors: Array  # (p, k) V


def gram(X: Array) -> Array:
    """X'X (p, p), products of the columns of X (n, p), in double precision whatever the type of X."""
    if X.dtype == np.float64:
        return X.T @ X
    G = np.zeros((X.shape[1], X.shape[1]))
    for start in range(0, len(X), _BLOCK):
        block = X[start : start + _BLOCK].astype(np.float64)
        G += block.T @ block
    return G


def spectrum(X: Array) -> Spectrum:
    """The decomposition of X'X for X (n, p), from the smaller of X'X and XX'.

    Without the null directions it is exact for ``(X'X + g I)^-1 X'R``, which has no part in them; with them, a
    quotient of two rounding errors would be (centred attributes of C classes have rank C - 1).
    """
    wide = X.shape[0] < X.shape[1]
    e, V = scipy.linalg.eigh(gram(X.T if wide else X), driver="evd", check_finite=False)
    keep = e > max(X.shape) * np.finfo(np.float64).eps * max(float(e[-1]), 0.0)
    e, V = e[keep], V[:, keep]
    return Spectrum(e, X.T.astype(np.float64) @ V / np.sqrt(e) if wide else V)


def principal_directions(X: Array) -> Array:
    """Principal directions (p, k) of the centred rows of X (n, p), that of the largest variance last.

    If all rows are alike, they are so along any direction, and the first axis stands for all.
    """
    V = spectrum(X).vectors
    return V if V.size else np.eye(X.shape[1])[:, :1]


class Conditioned:
    """A change of variables that makes a penalised linear problem well conditioned.

    The coordinates U (k, m) stand for the weights ``W = V diag(d) U`` (p, m) with
    ``d = 1 / sqrt(1 + strength e)``, where V and e are the eigenvectors and eigenvalues of X'X.
    A loss of X W with a penalty ``1/2 |W|^2``, whose second derivative in W is about ``strength X'X + I``, has one near
    the identity in U: descent takes tens of steps in place of hundreds. W has no part outside the rows of X; nor has
    the minimiser.
    """

    def __init__(self, of: Spectrum, strength: float, dtype: DTypeLike) -> None:
        self.vectors = of.vectors.astype(dtype, copy=False)
        self.shrink = (1 / np.sqrt(1 + strength * of.values)).astype(dtype)[:, None]

    def weights(self, U: Array) -> Array:
        """W (p, m) at U (k, m)."""
        return self.vectors @ (self.shrink * U)

    def slope(self, G: Array) -> Array:
        """Gradient in U (k, m) from the one in W (p, m)."""
        return self.shrink * (self.vectors.T @ G)

    def coordinates(self, W: Array) -> Array:
        """U (k, m) of the part of W (p, m) in the rows of X."""
        return (self.vectors.T @ W) / self.shrink


def ridge(of: Spectrum, R: Array, gamma: float) -> Array:
    """``(X'X + gamma I)^-1 R`` (p, k) for R (p, k) in the range of X'."""
    return of.vectors @ ((of.vectors.T @ R) / (of.values + gamma)[:, None])


def sinkhorn(logits: Array, shares: Array | None = None, tol: float = 1e-9) -> Array:
    """Offsets (M,) with which the mean posterior of the images of ``logits`` (L, M) is ``shares`` (M,), of sum 1.

    ``None`` gives every class the same share. A share of zero counts as 1e-12. The logits may be of any library of the
    array API standard, and the offsets are of the same.

    Examples
    --------
    >>> sinkhorn(np.zeros((3, 2)), np.array([0.8, 0.2])).round(3)
    array([ 0.693, -0.693])
    """
    L, M = logits.shape
    xp = array_namespace(logits)
    target = np.log(L * np.maximum(np.full(M, 1 / M) if shares is None else shares, 1e-12))
    v, target = xp.zeros_like(logits[0, :]), xp.asarray(target, device=device(logits))
    for _ in range(_MAX_SINKHORN):
        rows = log_softmax(logits + v)
        peak = xp.max(rows, axis=0)
        change = target - peak - xp.log(xp.sum(xp.exp(rows - peak), axis=0))
        v = v + change
        if xp.max(xp.abs(change)) <= tol:
            break
    return v - xp.mean(v)


def shares_of(weights: Sequence[float] | Array) -> Array:
    """Weights, of which one is above zero, divided by their sum, also where the sum would overflow.

    Examples
    --------
    >>> shares_of([1e308, 1e308, 0.0])
    array([0.5, 0.5, 0. ])
    """
    given = np.array(weights, dtype=np.float64)
    given = given / given.max()
    return given / given.sum()


def standard_scores(scores: Array) -> Array:
    """Z-scores: the scores (L, M) of each image with mean 0 and standard deviation 1 over the classes.

    Scores of different kinds can then be added, and every image's ranking stays as it is. The scores of an image are 0
    where they are all equal.

    Examples
    --------
    >>> standard_scores(np.array([[1.0, 3.0], [5.0, 5.0]]))
    array([[-1.,  1.],
           [ 0.,  0.]])
    """
    scores = scaled_near_one(scores)
    scores = scores - scores.mean(axis=1, keepdims=True)
    deviation = np.sqrt((scores**2).mean(axis=1, keepdims=True))
    # A difference that rounding made does not count.
    flat = deviation <= 1e-12
    return np.where(flat, 0, scores) / np.where(flat, 1, deviation)
