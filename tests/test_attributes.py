"""Agnostic and aware attributes: descent, the bound that is a theorem, and where awareness corrects labels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from zsl.errors import UserError
from zsl.inference import agnostic, aware, nearest
from zsl.inference.attributes import aware_codes, aware_objective
from zsl.inference.entropy import entropy
from zsl.models import CoupledDictionaries
from zsl.sparse import duality_gap, sparse_encode
from zsl.sparse.dictionary import unit_atoms


def problem(seed, L=8, p=10, r=14, q=6, M=4):
    rng = np.random.default_rng(seed)
    Dx, Dz = unit_atoms(rng.standard_normal((r, p))), 0.5 * rng.standard_normal((r, q))
    return unit_atoms(rng.standard_normal((L, p))), Dx, Dz, unit_atoms(rng.standard_normal((M, q)))


@given(
    seed=st.integers(0, 10_000), gamma=st.floats(1e-3, 10), rho=st.floats(0.05, 5), tol=st.sampled_from([1e-2, 1e-8])
)
def test_descent_and_the_entropy_bound(seed, gamma, rho, tol):
    X, Dx, Dz, Z = problem(seed)
    lam = 0.3
    codes = sparse_encode(X, Dx, lam, tol=tol)
    A, report = aware_codes(X, Dx, Dz, Z, codes.A, lam, gamma, rho, tol=1e-8, max_iter=100)
    before = aware_objective(X, Dx, Dz, Z, codes.A, lam, gamma, rho)
    after = aware_objective(X, Dx, Dz, Z, A, lam, gamma, rho)
    assert_allclose(report["objective_before"], before)
    assert_allclose(report["objective_after"], after)
    assert (after <= before + 1e-12).all()
    # P(a) + gamma H(a) descends from a start whose P is within gap of the minimum: H falls by all but gap / gamma.
    gap = duality_gap(X, Dx, codes.A, lam)
    H_before, H_after = (entropy(a @ Dz, Z, rho) for a in (codes.A, A))
    assert (H_after <= H_before + gap / gamma + 1e-12).all()


def test_objective_by_hand():
    # One atom, x = (1, 0), a = 2: |x - a d|^2 / 2 = (1 - 2)^2 / 2, plus lam |a| / 1; two equal distances: gamma log 2.
    X, Dx, Dz = np.array([[1.0, 0.0]]), np.array([[1.0, 0.0]]), np.array([[0.0]])
    value = aware_objective(X, Dx, Dz, np.array([[1.0], [-1.0]]), np.array([[2.0]]), 0.3, 0.5, 1.0)
    assert_allclose(value, 0.5 + 0.6 + 0.5 * np.log(2))


def test_result_is_stationary():
    X, Dx, Dz, Z = problem(3)
    lam, gamma, rho = 0.3, 0.05, 0.5
    A = sparse_encode(X, Dx, lam, tol=1e-10).A
    A, _ = aware_codes(X, Dx, Dz, Z, A, lam, gamma, rho, tol=1e-15, max_iter=20_000)
    r = len(Dx)
    gradient = np.empty_like(A)
    for i in range(len(A)):
        for j in range(r):
            step = np.zeros((1, r))
            step[0, j] = 1e-6
            values = [
                aware_objective(X[i : i + 1], Dx, Dz, Z, A[i : i + 1] + s * step, 0.0, gamma, rho)[0] for s in (1, -1)
            ]
            gradient[i, j] = (values[0] - values[1]) / 2e-6
    # 0 in the subdifferential: -gradient = lam / r sign(a) on the support, at most lam / r off it.
    on = A != 0
    assert_allclose(gradient[on], -lam / r * np.sign(A[on]), atol=1e-5)
    assert (np.abs(gradient[~on]) <= lam / r + 1e-5).all()


def test_no_entropy_no_change():
    X, Dx, Dz, Z = problem(0)
    A = sparse_encode(X, Dx, 0.2).A
    B, report = aware_codes(X, Dx, Dz, Z, A, 0.2, 0.0, 1.0, tol=1e-8, max_iter=10)
    assert_array_equal(A, B)
    assert not report["n_iter"].any()


def test_one_class_has_nothing_to_decide():
    X, Dx, Dz, _ = problem(0)
    A = sparse_encode(X, Dx, 0.2, tol=1e-10).A
    B, report = aware_codes(X, Dx, Dz, np.ones((1, 6)), A, 0.2, 5.0, 1.0, tol=1e-8, max_iter=50)
    assert_allclose(report["entropy_after"], 0, atol=1e-12)
    assert_allclose(A, B, atol=1e-4)


def test_rows_do_not_see_each_other():
    X, Dx, Dz, Z = problem(1)
    A = sparse_encode(X, Dx, 0.2, tol=1e-10).A
    together, _ = aware_codes(X, Dx, Dz, Z, A, 0.2, 0.3, 0.5, tol=1e-8, max_iter=60)
    for i in range(len(X)):
        alone, _ = aware_codes(X[i : i + 1], Dx, Dz, Z, A[i : i + 1], 0.2, 0.3, 0.5, tol=1e-8, max_iter=60)
        assert_allclose(alone[0], together[i], atol=1e-9)


def test_awareness_decides_what_features_leave_open():
    # Two atoms reproduce the feature equally well; one leads to class 0, the other to nothing in particular.
    Dx = np.array([[1.0, 0.0], [1.0, 0.0]])
    Dz = np.array([[1.0, 0.0], [0.1, 0.1]])
    Z = np.array([[1.0, 0.0], [0.0, 1.0]])
    X = np.array([[1.0, 0.0]])
    A, report = aware_codes(X, Dx, Dz, Z, np.array([[0.0, 0.9]]), 0.1, 1.0, 0.1, tol=1e-12, max_iter=2000)
    assert_allclose(report["entropy_before"], np.log(2))  # the start is as far from one class as from the other
    assert report["entropy_after"][0] < 0.7 * report["entropy_before"][0]
    assert A[0, 0] > A[0, 1]


def fitted():
    X, Dx, Dz, Z = problem(5)
    m = CoupledDictionaries()
    m.Dx_, m.Dz_, m.lam_, m.Z_unseen_ = Dx, Dz, 0.2, Z
    return m, X, Z


def test_agnostic_gives_codes_and_attributes():
    m, X, Z = fitted()
    found = agnostic(m, X)
    assert_allclose(found.Z_hat, found.codes.A @ m.Dz_)
    assert_allclose(found.Z_hat, m.predict_attributes(X))
    assert_allclose(nearest(found.Z_hat, Z), m.scores(X))


def test_aware_settings():
    m, X, Z = fitted()
    start = agnostic(m, X)
    relative = aware(m, X, Z, start=start, gamma_relative=0.5, rho=0.5)
    # Unit rows: mean |x|^2 / p = 1 / p.
    absolute = aware(m, X, Z, gamma=0.5 / X.shape[1], gamma_relative=99.0, rho=0.5)
    assert_allclose(relative.Z_hat, absolute.Z_hat, atol=1e-6)
    assert np.isnan(relative.codes.gap).all()
    with pytest.raises(UserError, match="gamma=-1 is not accepted"):
        aware(m, X, Z, gamma=-1)


def test_an_image_does_not_depend_on_the_others_whatever_their_length():
    m, X, Z = fitted()
    X = X * np.linspace(0.2, 3, len(X))[:, None]  # not of unit length
    together = aware(m, X, Z, gamma_relative=0.5, rho=0.5).Z_hat
    for i in range(len(X)):
        assert_allclose(aware(m, X[i : i + 1], Z, gamma_relative=0.5, rho=0.5).Z_hat[0], together[i], atol=1e-6)


def test_models_without_the_means_are_refused_by_name():
    class Scores:
        pass

    class Regression:
        def predict_attributes(self, X):
            return X[:, :2]

    with pytest.raises(UserError, match="predicts attributes, and Scores does not; use inference=own"):
        agnostic(Scores(), np.eye(3))
    assert_array_equal(agnostic(Regression(), np.eye(3)).Z_hat, np.eye(3)[:, :2])
    with pytest.raises(UserError, match="needs dictionaries, and Regression has none"):
        aware(Regression(), np.eye(3), np.eye(2))
