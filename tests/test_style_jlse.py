"""JLSE-style: every step lowers the objective, and its limits are support vector machines and ESZSL."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from sklearn.svm import LinearSVC

from conftest import images_by_attributes
from zsl.linalg import class_means, spectrum
from zsl.models import ESZSL, JLSEStyle
from zsl.models.jlse_style import match
from zsl.models.sse import simplex_codes


@pytest.fixture
def problem(rng):
    return images_by_attributes(rng, q=5, p=7)


def test_every_step_lowers_the_objective(problem):
    for settings in ({}, {"lam1": 1.0, "lam5": 10.0, "n_components": 4}, {"lam3": 3.0, "lam4": 0.1}):
        model = JLSEStyle(n_iter=10, **settings).fit(*problem)
        steps = np.diff(model.objective_)
        assert (steps <= 0).all()
        # Each of the five blocks moves in the first round: none is refused.
        assert (steps[:5] < 0).all()
        assert (model.state_.H >= 0).all()
        assert_allclose(model.state_.H.sum(axis=1), 1)
        for atoms in (model.state_.B, model.state_.D):
            assert np.linalg.norm(atoms, axis=1).max() <= 1 + 1e-12


def test_objective_is_the_stated_one(problem):
    X, y, Z, _ = problem
    S = class_means(Z, y)
    model = JLSEStyle(lam1=0.3, lam2=0.7, lam3=0.2, lam4=0.9, lam5=0.4)
    model.signs_ = np.where(y[:, None] == range(6), 1.0, -1.0)
    model.weights_ = np.where(model.signs_ > 0, 1.0, 0.2)
    at = model.start(X, y, S, spectrum(X).vectors)
    value = 0.2 * (at.W**2).sum()
    for c in range(6):
        value += 15 * (0.15 * at.H[c] @ at.H[c] + 0.35 * ((S[c] - at.H[c] @ at.B) ** 2).sum())
    for i in range(90):
        value += 0.1 * at.V[i] @ at.V[i] + 0.45 * ((X[i] - at.V[i] @ at.D) ** 2).sum()
        for c in range(6):
            t, w = (1, 1) if y[i] == c else (-1, 0.2)
            value += w * max(0, 1 - t * at.H[c] @ at.W @ at.V[i])
    assert_allclose(model.objective(X, S, at), value, rtol=1e-12)
    # The W of the start is the closed form of ESZSL with codes in place of attributes.
    T = np.where(y[:, None] == range(6), 1.0, -1.0)
    middle = at.H.T @ T.T @ at.V
    expected = np.linalg.solve(at.H.T @ at.H + np.eye(6), middle) @ np.linalg.inv(at.V.T @ at.V + 0.4 * np.eye(7))
    assert_allclose(at.W, expected, atol=1e-10)
    assert_allclose(ESZSL(gamma=0.4, lam=1.0, y_negative=-1).fit(at.V, y, at.H[y], at.H).V_.T, expected, atol=1e-10)


def test_code_of_a_seen_class_is_one_hot_where_attributes_are_independent(problem):
    S = class_means(problem[2], problem[1])
    assert np.linalg.matrix_rank(np.column_stack([S, np.ones(6)])) == 6
    assert_allclose(simplex_codes(S, S, 1e-7, max_iter=200_000), np.eye(6), atol=1e-4)


@pytest.mark.parametrize("lam", [0.3, 3.0])
def test_match_of_one_hot_codes_is_a_support_vector_machine_for_each_class(problem, lam):
    X, y, *_ = problem
    T = np.where(y[:, None] == range(6), 1.0, -1.0)
    W, alpha = match(np.eye(6), X, T, np.ones((90, 6)), lam, np.zeros((90, 6)), n_steps=20_000)
    svm = LinearSVC(loss="hinge", dual=True, C=1 / lam, fit_intercept=False, tol=1e-9, max_iter=1_000_000).fit(X, y)
    assert_allclose(W, svm.coef_, atol=1e-5 * np.abs(svm.coef_).max())
    # The gap between primal and dual is the certificate.
    primal = lam / 2 * (W**2).sum() + np.maximum(0, 1 - T * (X @ W.T)).sum()
    assert_allclose(alpha.sum() - lam / 2 * (W**2).sum(), primal, rtol=1e-7)


def test_image_codes_minimise_their_part_of_the_objective(problem):
    X, y, Z, _ = problem
    S = class_means(Z, y)
    model = JLSEStyle(lam3=0.5)
    model.signs_ = np.where(y[:, None] == range(6), 1.0, -1.0)
    model.weights_ = np.where(model.signs_ > 0, 1.0, 0.2)
    at = model.start(X, y, S, spectrum(X).vectors)
    V = alpha = np.zeros_like(model.signs_)
    for _ in range(40):
        V, alpha = model._image_codes(X, at, alpha)
    value = model.objective(X, S, at._replace(V=V))
    for direction in np.random.default_rng(1).standard_normal((20, *V.shape)):
        assert model.objective(X, S, at._replace(V=V + 1e-3 * direction)) > value


def test_joint_rule_chooses_the_code_for_each_pair(problem):
    X, _, _, Z_unseen = problem
    model = JLSEStyle(rule="joint", lam3=0.4, lam4=0.6).fit(*problem)
    at, scores = model.state_, model.scores(X[:4])
    A = simplex_codes(Z_unseen, at.B, model.lam1 / model.lam2) @ at.W

    def least(x, a=None):
        def value(theta):
            v = theta[:-1]
            hinge = 0.0 if a is None else theta[-1]
            return 0.2 * v @ v + 0.3 * ((x - v @ at.D) ** 2).sum() + hinge

        margin = [] if a is None else [{"type": "ineq", "fun": lambda t: t[-1] - 1 + a @ t[:-1]}]
        bounds = [(None, None)] * 7 + [(0, None)]
        return minimize(value, np.zeros(8), bounds=bounds, constraints=margin, method="SLSQP", tol=1e-12).fun

    expected = np.array([[least(x) - least(x, a) for a in A] for x in X[:4]])
    assert np.ptp(scores) > 0.1
    assert_allclose(scores, expected, atol=1e-5)
