"""Soft assignment and entropy: values by hand, finite differences, bounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from conftest import central_differences
from zsl.errors import UserError
from zsl.inference.entropy import entropy, entropy_gradient, log_assignment, log_mean_assignment, soft_assignment
from zsl.linalg import squared_distances, unit_rows


@pytest.mark.parametrize(("rho", "expected"), [(1.0, [2 / 3, 1 / 3]), (3.0, [16 / 25, 9 / 25])])
def test_soft_assignment_by_hand(rho, expected):
    # One class at squared distance 0, one at 1: weights 1 and (1 + 1/rho)^-(rho+1)/2.
    assert_allclose(soft_assignment(np.zeros((1, 1)), np.array([[0.0], [1.0]]), rho), [expected])


def test_entropy_by_hand():
    assert_allclose(entropy(np.zeros((1, 1)), np.array([[0.0], [1.0]]), 1.0), [np.log(3) - 2 / 3 * np.log(2)])
    # Classes at equal distances: the uniform assignment.
    assert_allclose(entropy(np.zeros((1, 3)), np.eye(3), 0.7), [np.log(3)])


def test_gaussian_assignment_by_hand():
    # Squared distances 0 and 1 at squared width 2: weights 1 and exp(-1/4).
    weights = np.array([1.0, np.exp(-0.25)])
    assert_allclose(
        soft_assignment(np.zeros((1, 1)), np.array([[0.0], [1.0]]), 2.0, "gaussian"), [weights / weights.sum()]
    )


@pytest.mark.parametrize("kernel", ["student", "gaussian"])
@given(seed=st.integers(0, 10_000), rho=st.floats(0.05, 20), scale=st.floats(0.01, 100))
def test_gradient_against_finite_differences(kernel, seed, rho, scale):
    rng = np.random.default_rng(seed)
    Z_hat, Z = scale * rng.standard_normal((3, 4)), scale * rng.standard_normal((5, 4))
    if kernel == "gaussian":
        rho *= scale**2  # else all but one class vanish and so does what is compared
    H, dH = entropy_gradient(Z_hat, Z, rho, kernel)
    assert_allclose(H, entropy(Z_hat, Z, rho, kernel), atol=1e-12)
    for z, dh in zip(Z_hat, dH):
        numeric = central_differences(lambda z: entropy(z[None], Z, rho, kernel)[0], z, 1e-5 * scale)
        assert_allclose(dh, numeric, atol=1e-6 / scale)


@pytest.mark.parametrize("kernel", ["student", "gaussian"])
def test_gradient_of_the_batch_form(kernel, rng):
    # sum_i w_i H(p_i) - sum(w) H(mean p): at the mean's own logarithm the rows' gradients are those of this sum.
    Z_hat, Z, w = rng.standard_normal((4, 3)), rng.standard_normal((5, 3)), np.array([1.0, 0.5, 2.0, 0.1])

    def total(z):
        p = soft_assignment(z, Z, 0.7, kernel)
        mean = w @ p / w.sum()
        return w @ entropy(z, Z, 0.7, kernel) + w.sum() * (mean @ np.log(mean))

    log_mean = log_mean_assignment(Z_hat, Z, 0.7, kernel, w)
    value, gradient = entropy_gradient(Z_hat, Z, 0.7, kernel, log_mean)
    assert_allclose(w @ value, total(Z_hat))
    assert (value <= 1e-12).all()  # minus a divergence
    numeric = central_differences(lambda z: total(z.reshape(4, 3)), Z_hat.ravel(), 1e-5)
    assert_allclose((w[:, None] * gradient).ravel(), numeric, atol=1e-7)


@pytest.mark.parametrize("kernel", ["student", "gaussian"])
@given(
    seed=st.integers(0, 10_000), rho=st.floats(1e-3, 1e3), M=st.integers(1, 6), scale=st.sampled_from([1e-8, 1.0, 1e8])
)
def test_bounds_hold_at_any_scale(kernel, seed, rho, M, scale):
    rng = np.random.default_rng(seed)
    Z_hat, Z = scale * rng.standard_normal((4, 3)), scale * rng.standard_normal((M, 3))
    log_p = log_assignment(Z_hat, Z, rho, kernel)
    assert (log_p <= 0).all()
    assert_allclose(np.exp(log_p).sum(axis=1), 1)
    H = entropy(Z_hat, Z, rho, kernel)
    assert (H >= 0).all()
    assert (np.log(M) + 1e-12 >= H).all()
    assert np.isfinite(entropy_gradient(Z_hat, Z, rho, kernel)[1]).all()


def test_rotations_and_class_order_do_not_matter(rng):
    Z_hat, Z = rng.standard_normal((6, 4)), rng.standard_normal((5, 4))
    Q = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    assert_allclose(entropy(Z_hat @ Q, Z[::-1] @ Q, 0.5), entropy(Z_hat, Z, 0.5))


def test_a_prediction_on_a_class_is_decided():
    # At rho -> 0 with the prediction on one class, all mass is there.
    assert entropy(np.zeros((1, 2)), np.array([[0.0, 0.0], [1.0, 1.0]]), 1e-9)[0] < 1e-3


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, bool])
def test_whole_numbers_have_the_entropy_of_the_same_floats(dtype):
    # Distances were rounded down to whole numbers, and those of bits to bits.
    for seed in range(40):
        r = np.random.default_rng(seed)
        V, Z = r.integers(0, 2, (3, 6)), r.integers(0, 2, (3, 6))
        expected = ((V[:, None] - Z[None]) ** 2).sum(axis=2)
        assert_allclose(squared_distances(V.astype(dtype), Z.astype(dtype)), expected, atol=1e-12)
        assert_allclose(entropy(V.astype(dtype), Z.astype(dtype), 1.0), entropy(V * 1.0, Z * 1.0, 1.0), atol=1e-12)
        assert_allclose(unit_rows(V.astype(dtype)), unit_rows(V * 1.0), atol=1e-15)


@pytest.mark.parametrize(
    ("Z_hat", "sentence"), [(np.zeros((2, 1)), "1 columns where 3"), (np.full((2, 3), np.nan), "holds nan")]
)
def test_entropy_refuses_what_the_assignment_refuses(Z_hat, sentence):
    for function in (entropy, soft_assignment):
        with pytest.raises(UserError, match=sentence):
            function(Z_hat, np.eye(3), 1.0)
