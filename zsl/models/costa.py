"""COSTA: the classifier of an unseen class is a mixture of the classifiers of the seen classes."""

from __future__ import annotations

from dataclasses import dataclass, field

from scipy.special import softmax

from zsl.checks import Array, Positive
from zsl.linalg import class_means, cosines
from zsl.models.base import GridCache, InductiveModel
from zsl.models.one_vs_rest import Linear, fit_shared, squared_hinge


@dataclass(eq=False, repr=False)
class COSTA(InductiveModel):
    r"""Co-occurrence statistics for zero-shot classification (Mensink, Gavves and Snoek, CVPR 2014).

    .. math:: w_u = \sum_k \beta_{uk} w_k, \qquad
        \beta_{uk} = \frac{\exp(\cos(s_u, s_k) / \tau)}{\sum_l \exp(\cos(s_u, s_l) / \tau)}

    w_k (p,) are one-versus-rest linear SVMs of the seen classes, ``min 1/2 |w|^2 + C sum_i max(0, 1 - t_i (x_i w +
    b))^2``. The reference takes beta from the co-occurrence of labels, because its images have several labels. Ours
    have one, so beta is a softmax of the similarity of attributes, which is an interpretation.

    Parameters
    ----------
    C : float > 0
        Weight of the SVM's loss.
    temperature : float > 0
        tau: a small value copies the most similar seen class, a large one averages all classes.
    tol : float > 0
        Residual at which the fit of the SVMs stops.

    Examples
    --------
    >>> import numpy as np
    >>> X, y, Z = np.eye(2), np.array([0, 1]), np.array([[1.0, -1.0], [-1.0, 1.0]])
    >>> COSTA().fit(X, y, Z, Z_unseen=-Z).predict(X)
    array([1, 0])
    """

    C: Positive = 1.0
    temperature: Positive = 0.2
    tol: Positive = 1e-3

    classifier_: Linear = field(init=False, repr=False)
    S_: Array = field(init=False, repr=False)

    def _fit(self, X: Array, y: Array, Z: Array, shared: GridCache) -> None:
        self.S_ = shared("S", lambda: class_means(Z, y).astype(X.dtype))
        k = len(self.S_)
        self.classifier_ = fit_shared(shared, "svm", X, squared_hinge(y[:, None] == range(k)), k, self.C, self.tol)

    def _scores(self, X: Array, S: Array) -> Array:
        beta = softmax(cosines(S, self.S_) / self.temperature, axis=1)
        return self.classifier_(X) @ beta.T
