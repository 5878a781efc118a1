r"""Statistics of the seen classes that some inference rules need: within-class whitening, class means, kappa.

The statistics are computed once from the training images and their attributes. They are a few matrices, so a fitted
classifier can be stored without any training image.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.optimize import minimize_scalar

from zsl.checks import Array, as_matrix
from zsl.inference.attributes import members
from zsl.linalg import class_sums, unit_rows
from zsl.sparse.chunks import Chunks, products_of_columns, sum_over

# Share of the mean variance that whitening adds to every direction. Chosen on validation classes of cifar_awa and
# digits (docs/defaults.md): from .1 to .6 nothing much changes, without any the directions of least variance take over.
_SHRINKAGE = 0.3
# Ridge on the side of features when class means are predicted from attributes, in units of the mean squared row.
_PROTOTYPE_RIDGE = 0.1
# Code-ESZSL: penalties on codes, in units of their mean squared norm, and on attributes.
_CODE_RIDGE, _ATTRIBUTE_RIDGE = 30.0, 1.0
# Images from which the concentration is estimated; more change its second digit.
_MAX_ROWS = 5000
_BLOCK = 4096
# Images that are whitened at once, which takes the memory of several copies of them.
_MANY = 16_384
# exp(6.2) is about 500: assignments are one-sided long before.
_LOG_CONCENTRATION = (0.0, 6.2)


class Reliability(NamedTuple):
    """How far inference may be believed, as seen classes show: :func:`zsl.inference.reliability.reliability`."""

    cluster_accuracy: float
    """Mean accuracy per class of clusters of held-out seen classes under their best names, by the Hungarian method"""
    inverse_temperature: float
    """The factor at which the softmax of standard scores gives calibrated probabilities; of the rule ``visual``"""


class SeenStatistics(NamedTuple):
    """What inference rules may know of the seen classes."""

    W: Array
    """(p, p) whitens what differs between images of one class: :func:`whitening`"""
    means: Array
    """(C, p) mean direction of the whitened images of each seen class"""
    attributes: Array
    """(C, q) attributes of the seen classes, pre-processed"""
    concentration: float
    """kappa of ``p(c|x) ~ pi_c exp(kappa <u, mu_c>)`` that fits the seen classes best, see :func:`concentration`"""
    V: Array | None = None
    """(K r, q) code-ESZSL, for models with K dictionaries: :func:`code_compatibility` of each, one below another"""
    H: Array | None = None
    """(K, r, r) of each dictionary the mean of ``a'a`` over the codes of seen images, for models with dictionaries"""
    reliability: Reliability | None = None
    """For rules that ask for ``reliability``; None for others, and with fewer than four seen classes"""

    @property
    def resultant(self) -> float:
        """Mean cosine of a seen image and the mean direction of its class, averaged over classes."""
        return float(np.linalg.norm(self.means, axis=1).mean())

    def without(self, held: Array) -> SeenStatistics:
        """The statistics with the means and attributes of the classes that are not in ``held`` only."""
        return self._replace(
            means=np.delete(self.means, held, axis=0), attributes=np.delete(self.attributes, held, axis=0)
        )

    def directions(self, X: Array) -> Array:
        """Whitened images (L, p), scaled to unit length, of images X (L, p)."""
        if len(X) > _MANY:
            out = np.empty((len(X), self.W.shape[1]))
            for i in range(0, len(X), _MANY):
                out[i : i + _MANY] = self.directions(X[i : i + _MANY])
            return out
        return unit_rows(as_matrix(X, "X", n_columns=len(self.W)) @ self.W)

    def prototypes(self, Z: Array) -> Array:
        r"""Directions (M, p) in which images of classes Z (M, q) are expected.

        They come from ridge regression over the means of the seen classes: :math:`Z S^\top (S S^\top + g\, t I)^{-1} M`
        with S the seen attributes, M the seen means and t the mean squared row of S.
        """
        Z = as_matrix(Z, "Z_unseen", n_columns=self.attributes.shape[1])
        K = self.attributes @ self.attributes.T
        K[np.diag_indices_from(K)] += _PROTOTYPE_RIDGE * (np.trace(K) / len(K) or 1.0)
        return unit_rows((Z @ self.attributes.T) @ np.linalg.solve(K, self.means))


def seen_statistics(model: Any, X: Array, y: Array, Z: Array) -> SeenStatistics:
    """Statistics of the seen classes, for rules that ask for ``statistics``.

    Parameters
    ----------
    model : fitted model
        The codes of a model with dictionaries enter too.
    X : (n, p) array or Chunks
        Training images, pre-processed.
    y : (n,)
        Labels 0..C-1.
    Z : (n, q)
        Attributes of each image, pre-processed.

    Examples
    --------
    >>> X, y = np.array([[1.0, 0.1], [1.0, -0.1], [0.1, 1.0], [-0.1, 1.0]]), np.array([0, 0, 1, 1])
    >>> found = seen_statistics(None, X, y, np.eye(2)[y])
    >>> (found.directions(X) @ found.prototypes(np.eye(2)).T).argmax(axis=1)
    array([0, 0, 1, 1])
    """
    W = whitening(X, y)
    n = np.bincount(y)
    attributes = class_sums(Z, y, len(n)) / n[:, None]
    sums = sum_over(direction_sums, X, y, W, len(n))
    keep = np.unique(np.linspace(0, len(X) - 1, min(len(X), _MAX_ROWS)).astype(int))
    kappa = concentration(unit_rows(X[keep] @ W), y[keep], sums, n)
    V = H = None
    if hasattr(model, "Dx_"):
        r = len(model.Dx_) // len(members(model))
        if isinstance(X, Chunks):
            found = [X.sum(code_products, y, member, len(n)) for member in members(model)]
            products, of_classes = zip(*[(part[:r], part[r:]) for part in found])
        else:
            A = getattr(model, "codes_", None)
            A = sp.csr_array(model.codes(X).A) if A is None else A
            parts = [sp.csr_array(A[:, i : i + r]) for i in range(0, A.shape[1], r)]
            products = [np.asarray((part.T @ part).todense(), dtype=np.float64) for part in parts]
            of_classes = [code_sums(part, y, len(n)) for part in parts]
        H = np.stack(products) / len(X)
        V = np.vstack([code_compatibility(part, h, len(X), attributes) for part, h in zip(of_classes, H)])
    return SeenStatistics(W, sums / n[:, None], attributes, kappa, V, H)


def whitening(X: Array, y: Array) -> Array:
    r"""The whitening (p, p) :math:`W` with :math:`W W^\top = \Sigma^{-1}`, :math:`\Sigma` the within-class covariance.

    :math:`\Sigma` is shrunken towards its mean variance, because it often has more entries than there are images. W is
    the identity where there is no variance inside classes, as with one image each.
    """
    n = np.bincount(y)
    p = X.shape[1]
    gram = sum_over(products_of_columns, X, y)
    sums = X.sum(class_sums, y, len(n)) if isinstance(X, Chunks) else class_sums(X, y, len(n))
    variance, axes = np.linalg.eigh((gram - (sums / n[:, None]).T @ sums) / len(X))
    variance = np.maximum(variance, 0)
    # Where classes have no variance, rounding leaves a small part of the total variance.
    if variance.mean() <= 1e-12 * np.trace(gram) / len(X) / p:
        return np.eye(p)
    return axes / np.sqrt((1 - _SHRINKAGE) * variance + _SHRINKAGE * variance.mean())


def concentration(U: Array, y: Array, sums: Array, n: Array) -> float:
    """The kappa that maximises the likelihood of the labels of unit rows U (n, p) under ``softmax(kappa <u, mu_c>)``.

    ``mu_c`` are the mean directions of the classes. The mean of an image's own class leaves this image out; otherwise
    more dimensions than images would make any kappa look too good. ``sums`` (C, p) and ``n`` (C,) are the sums and
    numbers of all images of each class.
    """
    several = n[y] > 1
    if len(n) < 2 or not several.any():
        return float(np.exp(np.mean(_LOG_CONCENTRATION)))
    U, y = U[several], y[several]
    C = U @ unit_rows(sums).T
    C[np.arange(len(y)), y] = np.einsum("ij,ij->i", unit_rows(sums[y] - U), U)

    def loss(log_kappa: float) -> float:
        L = np.exp(log_kappa) * C
        top = L.max(axis=1)
        return float((top + np.log(np.exp(L - top[:, None]).sum(axis=1)) - L[np.arange(len(y)), y]).mean())

    return float(np.exp(minimize_scalar(loss, bounds=_LOG_CONCENTRATION, method="bounded").x))


def code_compatibility(sums: Array, H: Array, n: int, S: Array) -> Array:
    r"""ESZSL on sparse codes: :math:`V = (A^\top A + g I)^{-1} A^\top Y S (S^\top S + l I)^{-1}`, (r, q).

    ``sums`` (C, r) are the sums of the codes A of each class, :math:`Y^\top A`, and S (C, q) are the attributes of the
    seen classes. H (r, r) is the mean of ``a'a`` over n images; g is in units of the mean squared code.
    """
    AtA = n * H + _CODE_RIDGE * (np.trace(H) or 1.0) * np.eye(len(H))
    left = np.linalg.solve(AtA, sums.T @ S)
    return np.linalg.solve(S.T @ S + _ATTRIBUTE_RIDGE * np.eye(S.shape[1]), left.T).T


def direction_sums(X: Array, y: Array, W: Array, n_classes: int) -> Array:
    """(C, p) sums over classes of the whitened rows X (m, p), scaled to unit length."""
    return class_sums(unit_rows(X @ W), y, n_classes)


def code_products(X: Array, y: Array, model: Any, n_classes: int) -> Array:
    """``A'A`` (r, r) of the codes A of rows X (m, p), and below it the sums (C, r) of the codes of each class."""
    A = sp.csr_array(model.codes(X).A.astype(np.float64, copy=False))
    return np.vstack([(A.T @ A).toarray(), code_sums(A, y, n_classes)])


def code_sums(A: sp.csr_array, y: Array, n_classes: int) -> Array:
    """(C, r) sums of the codes A (m, r) of each class."""
    sums: sp.csr_array = class_sums(A, y, n_classes)
    return sums.toarray()
