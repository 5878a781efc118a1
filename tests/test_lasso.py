"""The sparse-coding problem itself: objective, duality gap, lambda_max."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose

from zsl.sparse import duality_gap, lambda_max, objective, soft_threshold, sparse_encode
from zsl.sparse.problem import scale


def matrices(n, m):
    return arrays(np.float64, (n, m), elements=st.floats(-10, 10, allow_subnormal=False))


@settings(max_examples=60, deadline=None)
@given(X=matrices(4, 7), D=matrices(5, 7), A=matrices(4, 5), other=matrices(4, 5), lam=st.floats(0.01, 5))
def test_no_codes_beat_the_certificate(X, D, A, other, lam):
    # Weak duality: minimum >= objective(A) - gap(A), for any A, converged or not.
    bound = objective(X, D, A, lam) - duality_gap(X, D, A, lam)
    assert (bound <= objective(X, D, other, lam) + 1e-9 * (1 + objective(X, D, A, lam))).all()


def test_objective_and_gap_by_hand():
    # x = (3, 4), one atom e1, lam = 2, r = 1, p = 2: P(a) = ((3 - a)^2 + 16) / 2 + 2 |a| has its minimum 12 at a = 1.
    X, D = np.array([[3.0, 4.0]]), np.array([[1.0, 0.0]])
    assert_allclose(objective(X, D, np.array([[1.0]]), 2.0), [12.0])
    assert_allclose(duality_gap(X, D, np.array([[1.0]]), 2.0), [0.0], atol=1e-12)
    # At a = 0 the residual is x, feasible multiples are s <= lam p / (2 r <x, d>) = 2/3, and the dual is
    # (2 s 25 - s^2 25) / 2.
    assert_allclose(duality_gap(X, D, np.zeros((1, 1)), 2.0), [12.5 - 100 / 9])


@pytest.mark.parametrize("block", [1, 3, 4096])
def test_blocks_change_nothing(block, monkeypatch):
    rng = np.random.default_rng(0)
    X, D, A = rng.standard_normal((7, 5)), rng.standard_normal((4, 5)), rng.standard_normal((7, 4))
    expected = objective(X, D, A, 0.3), duality_gap(X, D, A, 0.3), lambda_max(X, D)
    monkeypatch.setattr("zsl.sparse.problem._BLOCK", block)
    for value, other in zip(expected, (objective(X, D, A, 0.3), duality_gap(X, D, A, 0.3), lambda_max(X, D))):
        assert_allclose(value, other, rtol=1e-12)


def test_lambda_max_is_where_the_code_becomes_zero():
    rng = np.random.default_rng(1)
    X, D = rng.standard_normal((6, 8)), rng.standard_normal((10, 8))
    for i, top in enumerate(lambda_max(X, D)):
        x = X[i : i + 1]
        assert_allclose(duality_gap(x, D, np.zeros((1, 10)), top), [0.0], atol=1e-12)
        assert not sparse_encode(x, D, 1.0001 * top).A.any()
        assert sparse_encode(x, D, 0.99 * top).A.any()


def test_scale_is_the_objective_at_zero():
    rng = np.random.default_rng(2)
    X, D = rng.standard_normal((6, 8)), rng.standard_normal((3, 8))
    assert_allclose(scale(X), objective(X, D, np.zeros((6, 3)), 1.0))


@given(v=st.floats(-5, 5), t=st.floats(0, 5))
def test_soft_threshold_minimises_its_proximal_problem(v, t):
    u = soft_threshold(np.array(v), t)
    grid = np.linspace(-6, 6, 241)
    assert 0.5 * (u - v) ** 2 + t * abs(u) <= (0.5 * (grid - v) ** 2 + t * np.abs(grid)).min() + 1e-12
