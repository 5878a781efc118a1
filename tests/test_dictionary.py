"""Dictionary updates: optimality, the unit ball, descent."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from zsl.errors import UserError
from zsl.sparse.dictionary import RidgeAtoms, gradient_atoms, ridge_atoms, unit_atoms, unit_ball_atoms


def statistics(rng, n=30, r=5, p=4):
    A, X = rng.standard_normal((n, r)), rng.standard_normal((n, p))
    return A, X, A.T @ A / n, A.T @ X / n


def quadratic(AtA, AtX, D, beta):
    return np.vdot(D, AtA @ D) - 2 * np.vdot(D, AtX) + beta * np.vdot(D, D)


@pytest.mark.parametrize("beta", [1e-3, 1.0])
def test_ridge_is_stationary(rng, beta):
    A, X, AtA, AtX = statistics(rng)
    D = ridge_atoms(AtA, AtX, beta)
    # d/dD of 1/n |X - A D|^2 + beta |D|^2.
    assert_allclose(2 / len(X) * A.T @ (A @ D - X) + 2 * beta * D, 0, atol=1e-12)


def test_ridge_limits(rng):
    A, X, AtA, AtX = statistics(rng)
    assert_allclose(ridge_atoms(AtA, AtX, 1e12), 0, atol=1e-10)
    assert_allclose(ridge_atoms(AtA, AtX, 1e-12), np.linalg.lstsq(A, X)[0], atol=1e-8)


def test_ridge_agrees_with_scikit_learn(rng):
    from sklearn.linear_model import Ridge

    A, X, AtA, AtX = statistics(rng)
    # sklearn: |X - A D|^2 + alpha |D|^2, n times ours.
    expected = Ridge(alpha=0.1 * len(X), fit_intercept=False).fit(A, X).coef_.T
    assert_allclose(ridge_atoms(AtA, AtX, 0.1), expected, atol=1e-10)


@pytest.mark.parametrize("M", [1, 3, 30])  # of 40 atoms: by a change of low rank, and by a new factorisation
def test_ridge_with_a_few_rows_more(rng, M):
    A, X, AtA, AtX = statistics(rng, n=60, r=40, p=3)
    B, more, weight, beta = rng.standard_normal((M, 40)), rng.standard_normal((M, 3)), 0.7, 1e-3
    # The same minimum as least squares over all rows, each times the root of its weight.
    rows = np.vstack([A / 60**0.5, weight**0.5 * B, beta**0.5 * np.eye(40)])
    targets = np.vstack([X / 60**0.5, weight**0.5 * more, np.zeros((40, 3))])
    expected = np.linalg.lstsq(rows, targets)[0]
    found = RidgeAtoms(AtA, AtX, beta).with_rows(B, more, weight)
    assert_allclose(found, expected, atol=1e-9)
    assert np.abs(found - ridge_atoms(AtA, AtX, beta)).max() > 1e-2


def test_a_ridge_lost_in_rounding_is_said(rng):
    # Features of length 1e-12 give codes of this length.
    A = 1e10 * np.ones((20, 5))
    with pytest.raises(UserError, match="is lost in rounding"):
        ridge_atoms(A.T @ A, A.T @ rng.standard_normal((20, 3)), 1e-3)


def test_unit_ball_meets_its_optimality_conditions(rng):
    _, _, AtA, AtX = statistics(rng)
    AtX *= 3  # so that the constraint binds for some atoms
    D = unit_ball_atoms(AtA, AtX, np.zeros_like(AtX), n_passes=2000)
    gradient = AtA @ D - AtX
    norms = np.linalg.norm(D, axis=1)
    assert (norms > 1 - 1e-12).any()
    for d, g, norm in zip(D, gradient, norms):
        # Inside the ball the gradient vanishes; on the sphere it points straight inwards.
        multiplier = 0.0 if norm < 1 - 1e-9 else -float(g @ d)
        assert multiplier >= -1e-9
        assert_allclose(g + multiplier * d, 0, atol=1e-9)


@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_blocks_are_what_one_atom_after_another_gives(rng, beta):
    # Several blocks of 256 atoms, and several steps of 64 atoms in a block, with remainders.
    r = 2 * 256 + 64 + 3
    _, _, AtA, AtX = statistics(rng, n=900, r=r, p=5)
    start = unit_atoms(rng.standard_normal((r, 5))) * rng.random((r, 1))
    expected = start.copy()
    for j in range(r):
        u = expected[j] + (AtX[j] - AtA[j] @ expected - beta * expected[j]) / (AtA[j, j] + beta)
        expected[j] = u / max(1, np.linalg.norm(u))
    assert_allclose(unit_ball_atoms(AtA, AtX, start, beta), expected, atol=1e-12)


def descent(seed, unused):
    """Statistics of codes, of which one atom may be ``unused``, and a dictionary to start from."""
    rng = np.random.default_rng(seed)
    A, X = rng.standard_normal((12, 6)), rng.standard_normal((12, 4))
    if unused:
        A[:, 2] = 0
    return A.T @ A / 12, A.T @ X / 12, unit_atoms(rng.standard_normal((6, 4))) * rng.random((6, 1))


@given(seed=st.integers(0, 10_000), beta=st.sampled_from([0.0, 0.1]), unused=st.booleans())
def test_unit_ball_never_rises(seed, beta, unused):
    # Each atom's update is an exact minimisation over a convex set: a theorem for every input.
    AtA, AtX, start = descent(seed, unused)
    D = unit_ball_atoms(AtA, AtX, start, beta)
    assert np.linalg.norm(D, axis=1).max() <= 1 + 1e-12
    assert quadratic(AtA, AtX, D, beta) <= quadratic(AtA, AtX, start, beta) + 1e-12
    if unused:
        assert_allclose(D[2], start[2])


@given(seed=st.integers(0, 10_000), beta=st.sampled_from([0.0, 0.1]), in_ball=st.booleans(), unused=st.booleans())
def test_gradient_steps_never_rise(seed, beta, in_ball, unused):
    # A step minimises a bound that touches the objective where it starts: a theorem for every input.
    AtA, AtX, D = descent(seed, unused)
    start = D
    for _ in range(5):
        before, D = D, gradient_atoms(AtA, AtX, D, beta, in_ball=in_ball)
        assert quadratic(AtA, AtX, D, beta) <= quadratic(AtA, AtX, before, beta) + 1e-12
        assert not in_ball or np.linalg.norm(D, axis=1).max() <= 1 + 1e-12
    assert not np.array_equal(D, start)
    if unused:
        assert_allclose(D[2], start[2])


def test_gradient_steps_end_where_exact_updates_do(rng):
    _, _, AtA, AtX = statistics(rng)
    AtX *= 3  # so that the constraint binds for some atoms
    start = np.zeros_like(AtX)
    exact = unit_ball_atoms(AtA, AtX, start, n_passes=2000)
    assert_allclose(gradient_atoms(AtA, AtX, start, n_steps=5000), exact, atol=1e-8)
    free = gradient_atoms(AtA, AtX, start, 0.1, in_ball=False, n_steps=5000)
    assert_allclose(free, ridge_atoms(AtA, AtX, 0.1), atol=1e-8)


def test_one_gradient_step_by_hand():
    # From 0 the gradient is -AtX; rows of |AtA| sum to 3 and 5. The second atom lands at (2, 0), scaled to (1, 0).
    AtA, AtX = np.array([[2.0, -1.0], [-1.0, 4.0]]), np.array([[0.0, 1.5], [10.0, 0.0]])
    assert_allclose(gradient_atoms(AtA, AtX, np.zeros((2, 2))), [[0, 0.5], [1, 0]])
    assert_allclose(gradient_atoms(AtA, AtX, np.zeros((2, 2)), in_ball=False), [[0, 0.5], [2, 0]])
