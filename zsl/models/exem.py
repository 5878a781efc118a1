"""EXEM: exemplars of the unseen classes, predicted from attributes one visual dimension at a time."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from zsl.checks import Array, Count, Fraction, Positive
from zsl.linalg import class_means, principal_directions, ridge, squared_distances, unit_rows
from zsl.models.base import GridCache, InductiveModel
from zsl.models.gaussian_mixture import class_variances, within_scale
from zsl.models.kernel_ridge import decompose, kernel

# A dimension without spread within classes would outweigh all others.
_LEAST_DEVIATION = 1e-3
# libsvm takes some hundreds of steps for tens of classes; extreme settings would take for ever.
_MAX_STEPS = 20_000
_TOL = 1e-5


@dataclass(eq=False, repr=False)
class EXEM(InductiveModel):
    r"""Predicting visual exemplars of unseen classes (Changpinyo, Chao and Sha, ICCV 2017), the nearest exemplar wins.

    A principal component analysis of the training images gives d directions. For each of them a nu support vector
    regression with the kernel ``exp(-gamma |a - b|^2)`` predicts the mean of a class from its attributes, which are
    scaled to unit length and then divided by the median distance between two seen classes. The score is

    .. math:: -\sum_j \frac{(x_j - \hat m_{uj})^2}{\bar\sigma_j^2}

    where x and m are in the d directions and :math:`\bar\sigma_j` is the standard deviation within a seen class,
    averaged over seen classes (``standardise=true``, the authors' ``acc_seu``), or 1 (``acc_eu``).

    The support vector regression depends on the unit of the features. The authors use features of GoogLeNet and
    ResNet101 as they are (``model.scale_features=false feature.centre=false feature.l2=false
    dataset.semantics.centre=false``). By five folds of classes they choose C in 2^-5..2^5, nu in 2^-8..1, gamma in
    2^-4..2^4 and d in {500, 1000}. ``regression="ridge"`` is ours.

    Parameters
    ----------
    regression : "nu_svr" or "ridge"
        ``ridge`` is kernel ridge regression with the penalty 1 / C: one system of equations for all dimensions.
    n_components : int >= 1
        d, at most the rank of the centred training images.
    C : float > 0
        Weight of the errors against the norm of the regression function.
    nu : float, 0 < nu <= 1
        Bound on the share of seen classes whose error exceeds the width up to which errors cost nothing (``nu_svr``).
    gamma : float > 0
        Of the kernel, in the inverse of the squared median distance between seen classes.
    standardise : bool
    scale_features : bool
        Whether features are divided by the square root of the mean within-class variance; the authors do not.

    Attributes
    ----------
    mean_ : (p,)
    components_ : (p, d)
        Directions, divided by the deviations and by the scale.
    coefficients_ : (C, d)

    Examples
    --------
    >>> import numpy as np
    >>> X, y, Z = np.eye(2), np.array([0, 1]), np.array([[1.0, -1.0], [-1.0, 1.0]])
    >>> EXEM().fit(X, y, Z, Z_unseen=-Z).predict(X)
    array([1, 0])
    """

    regression: Literal["nu_svr", "ridge"] = "nu_svr"
    n_components: Count = 500
    C: Positive = 10.0
    nu: Fraction = 0.5
    gamma: Positive = 1.0
    standardise: bool = True
    scale_features: bool = True

    mean_: Array = field(init=False, repr=False)
    components_: Array = field(init=False, repr=False)
    coefficients_: Array = field(init=False, repr=False)

    def _fit(self, X: Array, y: Array, Z: Array, shared: GridCache) -> None:
        S, self.median_ = shared("S", lambda: _scaled(class_means(Z, y)))
        self.S_ = S
        self.mean_ = X.mean(axis=0, dtype=np.float64)
        directions = shared("PCA", lambda: principal_directions(X - self.mean_))
        V = directions[:, -self.n_components :]
        P = shared("projected", lambda: (X - self.mean_) @ directions)[:, -self.n_components :]
        variances = class_variances(P, y)
        scale = within_scale(P, variances) if self.scale_features else 1.0
        M = class_means(P, y) / scale
        K = shared(("K", self.gamma), lambda: kernel(S, S, "rbf", self.gamma))
        if self.regression == "ridge":
            self.coefficients_ = ridge(decompose(K), M, 1 / self.C)
            self.intercepts_ = np.zeros(V.shape[1])
        else:
            self.coefficients_, self.intercepts_ = support_vectors(K, M, self.C, self.nu)
        deviation = np.ones(V.shape[1])
        if self.standardise:
            deviation = np.sqrt(variances).mean(axis=0) / scale
            deviation = np.maximum(deviation, _LEAST_DEVIATION * (deviation.mean() or 1.0))
        self.components_, self.deviation_ = V / (scale * deviation), deviation

    def exemplars(self, S: Array) -> Array:
        """Predicted exemplars (C, d) of classes with attributes S (C, q), in the scaled directions."""
        K = kernel(unit_rows(S) / self.median_, self.S_, "rbf", self.gamma)
        return (K @ self.coefficients_ + self.intercepts_) / self.deviation_

    def _scores(self, X: Array, S: Array) -> Array:
        D = squared_distances((X - self.mean_) @ self.components_, self.exemplars(S.astype(np.float64)))
        return -D.astype(X.dtype)


def _scaled(S: Array) -> tuple[Array, float]:
    """Rows of unit length, divided by the median of the distances between them, and this median."""
    S = unit_rows(S)
    distances = np.sqrt(squared_distances(S, S))[np.triu_indices(len(S), 1)]
    median = (float(np.median(distances)) if distances.size else 0.0) or 1.0
    return S / median, median


def support_vectors(K: Array, M: Array, C: float, nu: float) -> tuple[Array, Array]:
    """Nu support vector regressions on a kernel K (C, C): coefficients (C, d) and intercepts (d,) for targets M (C, d).

    A prediction is ``kernel(new, seen)`` times the coefficients, plus the intercept.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import NuSVR

    W, b = np.zeros(M.shape), M.mean(axis=0)
    for j in np.flatnonzero(np.ptp(M, axis=0) > 0):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            machine = NuSVR(kernel="precomputed", C=C, nu=nu, tol=_TOL, max_iter=_MAX_STEPS).fit(K, M[:, j])
        W[machine.support_, j] = machine.dual_coef_[0]
        b[j] = machine.intercept_[0]
    return W, b
