"""scikit-learn's coordinate descent as a solver: an independent implementation, against which the others are tested."""

from __future__ import annotations

import numpy as np

from zsl.checks import Array
from zsl.sparse.problem import Codes, duality_gap


def solve(X: Array, D: Array, lam: float, *, init: Array | None, tol: float, max_iter: int) -> Codes:
    """Fit ``sklearn.linear_model.Lasso(alpha=lam / (2 r))`` row after row, warm-started from ``init``.

    Arguments and result are those of :func:`zsl.sparse.sparse_encode`, but scikit-learn divides by alpha, so use
    another solver for ``lam = 0``. scikit-learn stops at a duality gap of ``tol' |x|^2`` of its own objective, which is
    ``p / 2`` times ours; hence ``tol' = tol / 2``.
    """
    import warnings

    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import Lasso

    r = len(D)
    # Each row is a regression problem x ~ D' a with p samples.
    model = Lasso(lam / (2 * r), fit_intercept=False, precompute=D @ D.T, warm_start=True)
    model.set_params(tol=tol / 2, max_iter=max_iter)
    A = np.zeros((len(X), r), X.dtype)
    columns = np.asfortranarray(D.T)
    n_iter = 0
    with warnings.catch_warnings():
        # A row that has not converged is not an error; its gap shows the distance.
        warnings.simplefilter("ignore", ConvergenceWarning)
        if lam == 0:
            warnings.simplefilter("ignore", UserWarning)
        for i, x in enumerate(X):
            model.coef_ = np.zeros(r, X.dtype) if init is None else init[i].copy()
            model.fit(columns, x)
            A[i] = model.coef_
            n_iter = max(n_iter, int(np.max(model.n_iter_)))
    return Codes(A, duality_gap(X, D, A, lam), n_iter)
