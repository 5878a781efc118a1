"""Soft assignment and entropy: values by hand, finite differences, bounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from zsl.inference.entropy import entropy, entropy_gradient, log_assignment, soft_assignment


@pytest.mark.parametrize(("rho", "expected"), [(1.0, [2 / 3, 1 / 3]), (3.0, [16 / 25, 9 / 25])])
def test_soft_assignment_by_hand(rho, expected):
    # One class at squared distance 0, one at 1: weights 1 and (1 + 1/rho)^-(rho+1)/2.
    assert_allclose(soft_assignment(np.zeros((1, 1)), np.array([[0.0], [1.0]]), rho), [expected])


def test_entropy_by_hand():
    assert_allclose(entropy(np.zeros((1, 1)), np.array([[0.0], [1.0]]), 1.0), [np.log(3) - 2 / 3 * np.log(2)])
    # Classes at equal distances: the uniform assignment.
    assert_allclose(entropy(np.zeros((1, 3)), np.eye(3), 0.7), [np.log(3)])


@given(seed=st.integers(0, 10_000), rho=st.floats(0.05, 20), scale=st.floats(0.01, 100))
def test_gradient_against_finite_differences(seed, rho, scale):
    rng = np.random.default_rng(seed)
    Z_hat, Z = scale * rng.standard_normal((3, 4)), scale * rng.standard_normal((5, 4))
    H, dH = entropy_gradient(Z_hat, Z, rho)
    assert_allclose(H, entropy(Z_hat, Z, rho), atol=1e-12)
    h = 1e-5 * scale
    numeric = np.empty_like(dH)
    for j in range(4):
        step = np.zeros(4)
        step[j] = h
        numeric[:, j] = (entropy(Z_hat + step, Z, rho) - entropy(Z_hat - step, Z, rho)) / (2 * h)
    assert_allclose(dH, numeric, atol=1e-6 / scale)


@given(
    seed=st.integers(0, 10_000), rho=st.floats(1e-3, 1e3), M=st.integers(1, 6), scale=st.sampled_from([1e-8, 1.0, 1e8])
)
def test_bounds_hold_at_any_scale(seed, rho, M, scale):
    rng = np.random.default_rng(seed)
    Z_hat, Z = scale * rng.standard_normal((4, 3)), scale * rng.standard_normal((M, 3))
    log_p = log_assignment(Z_hat, Z, rho)
    assert (log_p <= 0).all()
    assert_allclose(np.exp(log_p).sum(axis=1), 1)
    H = entropy(Z_hat, Z, rho)
    assert (H >= 0).all()
    assert (np.log(M) + 1e-12 >= H).all()
    assert np.isfinite(entropy_gradient(Z_hat, Z, rho)[1]).all()


def test_rotations_and_class_order_do_not_matter(rng):
    Z_hat, Z = rng.standard_normal((6, 4)), rng.standard_normal((5, 4))
    Q = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    assert_allclose(entropy(Z_hat @ Q, Z[::-1] @ Q, 0.5), entropy(Z_hat, Z, 0.5))


def test_a_prediction_on_a_class_is_decided():
    # At rho -> 0 with the prediction on one class, all mass is there.
    assert entropy(np.zeros((1, 2)), np.array([[0.0, 0.0], [1.0, 1.0]]), 1e-9)[0] < 1e-3
