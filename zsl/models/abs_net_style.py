"""ABSNetStyle: pseudo features of a class, joined attribute by attribute from features of seen images."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from zsl.checks import Array, Fraction, Positive
from zsl.linalg import class_means
from zsl.models.base import GridCache, InductiveModel
from zsl.models.dap import binary
from zsl.models.one_vs_rest import Linear, fit_shared, logistic

# An attribute is present, or absent, with at least this probability, so that no attribute decides alone.
_MARGIN = 1e-3


@dataclass(eq=False, repr=False)
class ABSNetStyle(InductiveModel):
    r"""Attribute-based synthesis, in the spirit of ABS-Net (Lu, Li, Yan, Mei and Zhang, Pattern Recognition 2018).

    .. math:: \text{score}_u(x) = \sum_m \log \bigl[ a_{um}\, N(f_m(x);\, \mu_{m1}, \sigma_{m1}^2)
        + (1 - a_{um})\, N(f_m(x);\, \mu_{m0}, \sigma_{m0}^2) \bigr]

    f_m(x) is the logit of a logistic regression of the presence of attribute m. The repositories of an attribute are
    the values f_m of the training images with it and without it, with means mu_m1, mu_m0 and standard deviations. A
    pseudo image of class u takes the value of each attribute from the repository with it, with probability a_um, or
    else from the one without. The score is the log-density of the pseudo images of a class if the repositories are
    Gaussian, which is what a naive Bayes classifier reaches on infinitely many of them; so none are drawn.

    An attribute is present in a class if its value exceeds the mean over the seen classes. Attributes that all seen
    classes have, or none, are left out. The probability a_um is the attribute's value, with the range over the seen
    classes brought to 0..1 and cut to [0.001, 0.999].

    Parameters
    ----------
    C : float > 0
        Weight of the loss of the logistic regressions, ``min 1/2 |w|^2 + C sum_i log(1 + exp(-t_i (x_i w + b)))``.
    shrinkage : float, 0 < shrinkage <= 1
        Of the variances of an attribute, towards their mean: ``(1 - shrinkage) s^2 + shrinkage mean(s^2)``.
    tol : float > 0
        Residual at which the fit stops.

    Attributes
    ----------
    classifier_ : Linear
    mean_, variance_ : (2, m)
        Of the repositories without and with each attribute.

    Notes
    -----
    Certain of the published method is that pseudo features are joined from a repository of attributes and train a
    classifier. What differs, or is unknown:

    * the features of an attribute come from a network with a block of outputs for each attribute, trained on an
      auxiliary data set; here one number from the training images;
    * sizes, sampling and the classifier; here the limit of naive Bayes on Gaussian repositories;
    * the protocol of the published numbers.

    Examples
    --------
    >>> X, y, Z = np.eye(2), np.array([0, 1]), np.array([[1.0, -1.0], [-1.0, 1.0]])
    >>> ABSNetStyle().fit(X, y, Z, Z_unseen=-Z).predict(X)
    array([1, 0])
    """

    C: Positive = 1.0
    shrinkage: Fraction = 0.1
    tol: Positive = 1e-3

    classifier_: Linear = field(init=False, repr=False)
    mean_: Array = field(init=False, repr=False)
    variance_: Array = field(init=False, repr=False)

    def _fit(self, X: Array, y: Array, Z: Array, shared: GridCache) -> None:
        S = shared("S", lambda: class_means(Z, y))
        presence = shared("binary", lambda: binary(S))
        self.used_ = presence.used
        S = S[:, self.used_]
        self.low_, self.range_ = S.min(axis=0), np.ptp(S, axis=0)
        has = presence(Z)[:, self.used_]
        k = has.shape[1]
        self.classifier_ = fit_shared(shared, "logistic", X, logistic(has), k, self.C, self.tol)
        F = self.classifier_(X).astype(np.float64)
        members = np.array([~has, has])
        # An attribute may be absent from the images of every class although the classes' means differ.
        count = np.maximum(members.sum(axis=1), 1)
        self.mean_ = np.einsum("bnm,nm->bm", members, F) / count
        V = np.array([np.where(rows, F - mean, 0) ** 2 for rows, mean in zip(members, self.mean_)]).sum(axis=1) / count
        V = (1 - self.shrinkage) * V + self.shrinkage * V.mean(axis=0)
        # Without any spread, as of one image in each repository, the nearer mean counts.
        self.variance_ = np.where(1e-12 * np.ptp(self.mean_, axis=0) ** 2 < V, V, 1.0)

    def probabilities(self, S: Array) -> Array:
        """The probability a (C, m) of each attribute in classes S (C, q)."""
        share = (S[:, self.used_].astype(np.float64) - self.low_) / self.range_
        return np.clip(share, _MARGIN, 1 - _MARGIN)

    def _scores(self, X: Array, S: Array) -> Array:
        F, A = self.classifier_(X).astype(np.float64), self.probabilities(S)
        D = [-0.5 * ((F - m) ** 2 / v + np.log(2 * np.pi * v)) for m, v in zip(self.mean_, self.variance_)]
        scores = np.zeros((len(X), len(S)))
        for absent, present, a in zip(D[0].T, D[1].T, A.T):
            scores += np.logaddexp(np.log1p(-a) + absent[:, None], np.log(a) + present[:, None])
        return scores.astype(X.dtype, copy=False)
