"""Codes for images and attribute targets at once: the same as a LASSO written out, in both regimes."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.linear_model import Lasso

from conftest import for_any_number_of_threads
from zsl.inference.attributes import aware_codes
from zsl.sparse import sparse_encode, stacked
from zsl.sparse.dictionary import unit_atoms
from zsl.sparse.stacked import StackedCoder


def problem(rng, n=12, p=20, r=30, q=6):
    Dx, Dz = unit_atoms(rng.standard_normal((r, p))), 0.5 * rng.standard_normal((r, q))
    return rng.standard_normal((n, p)), Dx, Dz, rng.standard_normal((n, q))


def objective(X, Dx, Dz, target, c, lam, A):
    fit = ((X - A @ Dx) ** 2).sum(axis=1) / X.shape[1] + c / 2 * ((A @ Dz - target) ** 2).sum(axis=1)
    return fit + lam / len(Dx) * np.abs(A).sum(axis=1)


@pytest.mark.parametrize("c", [1e-3, 0.4, 5.0])
def test_codes_are_those_of_scikit_learn(rng, c):
    X, Dx, Dz, target = problem(rng)
    (n, p), (r, q), lam = X.shape, Dz.shape, 0.8
    coder = StackedCoder(Dx, Dz, lam)
    coder.codes(X, coder.correlations(X), target, 2 * c, np.zeros((n, r)), 1e-10)  # another weight before
    A = coder.codes(X, coder.correlations(X), target, c, np.zeros((n, r)), 1e-12)
    D, u = np.hstack([Dx, np.sqrt(c * p / 2) * Dz]), np.sqrt(c * p / 2)
    model = Lasso(lam * p / (2 * r * (p + q)), fit_intercept=False, tol=1e-11, max_iter=100_000)
    expected = np.array([model.fit(D.T, row).coef_ for row in np.hstack([X, u * target])])
    assert_allclose(A, expected, atol=1e-6)
    assert 0 < np.count_nonzero(A) < A.size


def test_codes_where_the_search_stalls(rng, monkeypatch):
    X, Dx, Dz, target = problem(rng)
    coder, A = StackedCoder(Dx, Dz, 0.5), np.zeros((12, 30))
    right = coder.codes(X, coder.correlations(X), target, 0.3, A, 1e-10)
    monkeypatch.setattr(stacked, "search", lambda *args: np.full(12, np.inf))
    again = coder.codes(X, coder.correlations(X), target, 0.3, A, 1e-10)
    assert_allclose(again, right, atol=1e-6)


@pytest.mark.slow
def test_dense_codes_go_through_matrix_products(rng, monkeypatch):
    X, Dx, Dz, target = problem(rng, n=80, p=300, r=320)
    lam, c = 0.05, 0.3
    coder = StackedCoder(Dx, Dz, lam)
    start = sparse_encode(X, Dx, lam).A
    monkeypatch.setattr(stacked, "search", None)
    A = coder.codes(X, coder.correlations(X), target, c, start, 1e-8)
    monkeypatch.undo()
    monkeypatch.setattr(stacked, "prefers_admm", lambda n, r, k: False)
    exact = coder.codes(X, coder.correlations(X), target, c, start, 1e-10)
    low, high = (objective(X, Dx, Dz, target, c, lam, a) for a in (exact, A))
    assert (high <= low * (1 + 1e-7)).all()
    assert (high < 0.99 * objective(X, Dx, Dz, target, c, lam, start)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_aware_codes_are_the_same_for_any_number_of_threads_and_any_blocks(rng, dtype, monkeypatch):
    X, Dx, Dz, _ = (v.astype(dtype) for v in problem(rng, n=60))
    Z = rng.standard_normal((4, 6)).astype(dtype)
    A = sparse_encode(X, Dx, 0.5).A

    def descend():
        return aware_codes(X, Dx, Dz, Z, A, 0.5, 0.3, 0.5, kernel="gaussian", tol=1e-7, max_iter=40)

    for_any_number_of_threads(lambda: descend()[0])
    whole, report = descend()
    assert whole.dtype == dtype
    assert np.abs(whole - A).max() > 0.01
    monkeypatch.setattr("zsl.inference.attributes._BLOCK", 7)
    # Blocks round differently, and where the objective is flat, codes of one objective differ by more than rounding.
    blocks, blocks_report = descend()
    if dtype == np.float64:
        assert_allclose(blocks, whole, atol=1e-4)
    assert_allclose(blocks_report["objective_after"], report["objective_after"], rtol=20 * np.finfo(np.float32).eps)
