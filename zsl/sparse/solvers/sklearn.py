"""scikit-learn's coordinate descent as a solver: independent of ours, therefore the oracle."""

from __future__ import annotations

import numpy as np

from zsl.checks import Array
from zsl.sparse.problem import Codes, duality_gap


def solve(X: Array, D: Array, lam: float, *, init: Array | None, tol: float, max_iter: int) -> Codes:
    """``sklearn.linear_model.Lasso(alpha=lam / (2 r))`` row after row, warm-started from ``init``.

    scikit-learn stops at a duality gap of ``tol' |x|^2`` of its own objective, which is ``p / 2`` times ours,
    hence ``tol' = tol / 2``. It divides by alpha, so ``lam = 0`` is not for this solver: use another.
    Arguments and result as in :func:`zsl.sparse.sparse_encode`.
    """
    import warnings

    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import Lasso

    r = len(D)
    # Coordinate descent on each row's regression problem x ~ D' a, of p samples.
    model = Lasso(lam / (2 * r), fit_intercept=False, precompute=D @ D.T, warm_start=True)
    model.set_params(tol=tol / 2, max_iter=max_iter)
    A = np.zeros((len(X), r), X.dtype)
    columns = np.asfortranarray(D.T)
    n_iter = 0
    with warnings.catch_warnings():
        # Not converging is not an error here: the gap says so.
        warnings.simplefilter("ignore", ConvergenceWarning)
        if lam == 0:
            warnings.simplefilter("ignore", UserWarning)
        for i, x in enumerate(X):
            model.coef_ = np.zeros(r, X.dtype) if init is None else init[i].copy()
            model.fit(columns, x)
            A[i] = model.coef_
            n_iter = max(n_iter, int(np.max(model.n_iter_)))
    return Codes(A, duality_gap(X, D, A, lam), n_iter)
