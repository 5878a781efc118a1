"""The closed-form baselines against independent formulas, optimality conditions and values by hand."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
from numpy.testing import assert_allclose

from zsl.linalg import class_means, ridge, spectrum
from zsl.models import ESZSL, SAE, KernelESZSL, Ridge, RidgeReverse


@pytest.fixture
def problem(rng):
    """60 images of 6 classes in 9 dimensions, 5 attributes, and four other classes."""
    y = np.arange(60) % 6
    S = rng.standard_normal((6, 5))
    X = S[y] @ rng.standard_normal((5, 9)) + rng.standard_normal((60, 9))
    return X, y, S[y], rng.standard_normal((4, 5))


def one_hot(y, negative=0.0):
    return np.where(y[:, None] == np.arange(y.max() + 1), 1.0, negative)


@pytest.mark.parametrize("shape", [(30, 8), (8, 30)])
def test_spectrum_solves_ridge_for_tall_and_wide_matrices(rng, shape):
    X, R = rng.standard_normal(shape), rng.standard_normal((shape[0], 3))
    expected = np.linalg.solve(X.T @ X + 0.3 * np.eye(shape[1]), X.T @ R)
    assert_allclose(ridge(spectrum(X), X.T @ R, 0.3), expected, atol=1e-10)
    V, e = spectrum(X).vectors, spectrum(X).values
    assert_allclose(V * e @ V.T, X.T @ X, atol=1e-10)


def test_ridge_agrees_with_scikit_learn(problem):
    from sklearn.linear_model import Ridge as Oracle

    X, y, Z, Z_unseen = problem
    W = Ridge(gamma=0.7).fit(X, y, Z, Z_unseen).W_
    assert_allclose(W, Oracle(alpha=0.7, fit_intercept=False).fit(X, Z).coef_.T, atol=1e-10)


@pytest.mark.parametrize("noise", [0.0, 0.1])  # attributes of classes, or of images
def test_ridge_gradients_vanish_in_both_directions(problem, rng, noise):
    X, y, Z, Z_unseen = problem
    Z = Z + noise * rng.standard_normal(Z.shape)
    W = Ridge(gamma=0.7).fit(X, y, Z, Z_unseen).W_
    assert_allclose(X.T @ (X @ W - Z) + 0.7 * W, 0, atol=1e-10)
    V = RidgeReverse(gamma=0.7).fit(X, y, Z, Z_unseen).V_
    assert_allclose(Z.T @ (Z @ V - X) + 0.7 * V, 0, atol=1e-10)


def test_ridge_in_both_directions_by_hand():
    # One feature, one attribute, images (1) and (2) with attributes (1) and (3): X'Z = 7, X'X = 5, Z'Z = 10.
    X, y, Z = np.array([[1.0], [2.0]]), np.array([0, 1]), np.array([[1.0], [3.0]])
    assert_allclose(Ridge(gamma=2.0).fit(X, y, Z, Z).W_, [[7 / 7]])
    reverse = RidgeReverse(gamma=4.0).fit(X, y, Z, Z)
    assert_allclose(reverse.V_, [[7 / 14]])
    assert_allclose(reverse.scores(np.array([[1.0]])), [[-(0.5**2), -(0.5**2)]])


@pytest.mark.parametrize("negative", [0, -1])
def test_eszsl_is_the_textbook_formula_and_stationary(problem, negative):
    X, y, Z, Z_unseen = problem
    S, Y, g, lam = class_means(Z, y), one_hot(y, negative), 0.3, 2.0
    model = ESZSL(gamma=g, lam=lam, y_negative=negative).fit(X, y, Z, Z_unseen)
    V = model.V_
    textbook = np.linalg.pinv(X.T @ X + g * np.eye(9)) @ X.T @ Y @ S @ np.linalg.pinv(S.T @ S + lam * np.eye(5))
    assert_allclose(V, textbook, atol=1e-8)
    gradient = X.T @ (X @ V @ S.T - Y) @ S + g * V @ S.T @ S + lam * X.T @ X @ V + g * lam * V
    assert_allclose(gradient, 0, atol=1e-9)
    assert_allclose(model.scores(X), X @ textbook @ Z_unseen.T, atol=1e-8)


def test_eszsl_by_hand():
    # One feature, one attribute; classes 0 (images 1, 2; attribute 1) and 1 (image 3; attribute 2).
    # X'X = 14, X'Y = (3, 3), X'YS = 9, S'S = 5: V = 9 / ((14 + 1) (5 + 4)) = 1 / 15.
    X, y, Z = np.array([[1.0], [2.0], [3.0]]), np.array([0, 0, 1]), np.array([[1.0], [1.0], [2.0]])
    model = ESZSL(gamma=1.0, lam=4.0).fit(X, y, Z, np.array([[5.0]]))
    assert_allclose(model.V_, [[1 / 15]])
    assert_allclose(model.scores(np.array([[3.0]])), [[1.0]])
    # With -1: X'Y = (3 - 3, 3 - 3) = 0.
    assert_allclose(ESZSL(gamma=1.0, lam=4.0, y_negative=-1).fit(X, y, Z, Z).V_, [[0.0]], atol=1e-12)


def test_kernel_eszsl_with_a_linear_kernel_is_eszsl(problem):
    X, y, Z, Z_unseen = problem
    linear = KernelESZSL(gamma=0.3, lam=2.0, kernel="linear").fit(X, y, Z, Z_unseen)
    assert_allclose(linear.scores(X), ESZSL(gamma=0.3, lam=2.0).fit(X, y, Z, Z_unseen).scores(X), atol=1e-8)


def test_kernel_eszsl_is_the_textbook_formula(problem):
    X, y, Z, Z_unseen = problem
    S = class_means(Z, y)
    d2 = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    K = np.exp(-d2 / (2 * 0.8**2 * (X**2).sum(axis=1).mean()))
    A = np.linalg.solve(K + 0.5 * np.eye(60), one_hot(y, -1) @ S) @ np.linalg.inv(S.T @ S + 0.2 * np.eye(5))
    model = KernelESZSL(gamma=0.5, lam=0.2, width=0.8, y_negative=-1).fit(X, y, Z, Z_unseen)
    assert_allclose(model.A_, A, atol=1e-8)
    assert_allclose(model.scores(X), K @ A @ Z_unseen.T, atol=1e-8)


def test_kernel_eszsl_draws_images_where_there_are_too_many(problem):
    X, y, Z, Z_unseen = problem
    model = KernelESZSL(max_images=20, seed=3).fit(X, y, Z, Z_unseen)
    assert model.X_.shape == (20, 9)
    assert model.scores(X).shape == (60, 4)


@pytest.mark.parametrize("lam", [1e-3, 1.0, 1e4])
def test_sae_solves_its_sylvester_equation(problem, lam):
    X, y, Z, Z_unseen = problem
    model = SAE(lam=lam).fit(X, y, Z, Z_unseen)
    W, C = model.W_, (1 + lam) * Z.T @ X
    assert_allclose(Z.T @ Z @ W + lam * W @ X.T @ X, C, atol=1e-8 * np.abs(C).max())
    assert_allclose(W, scipy.linalg.solve_sylvester(Z.T @ Z, lam * X.T @ X, C), atol=1e-8)


def test_sae_is_stationary_where_attributes_are_rank_deficient(rng):
    # Three classes, five attributes, fewer images than features: the Sylvester equation is singular.
    y = np.arange(12) % 3
    Z, X = rng.standard_normal((3, 5))[y], rng.standard_normal((12, 20))
    W = SAE(lam=0.5).fit(X, y, Z, Z[:2]).W_
    assert_allclose(Z.T @ (Z @ W - X) + 0.5 * (X @ W.T - Z).T @ X, 0, atol=1e-9)


def test_sae_by_hand():
    # One feature, one attribute: (Z'Z + lam X'X) w = (1 + lam) Z'X with Z'Z = 10, X'X = 5, Z'X = 7.
    X, y, Z = np.array([[1.0], [2.0]]), np.array([0, 1]), np.array([[1.0], [3.0]])
    assert_allclose(SAE(lam=2.0).fit(X, y, Z, Z).W_, [[21 / 20]])


def test_sae_compares_in_either_space(problem):
    from zsl.inference import cosine

    X, y, Z, Z_unseen = problem
    forward = SAE(lam=0.5, direction="feature_to_semantic").fit(X, y, Z, Z_unseen)
    backward = SAE(lam=0.5, direction="semantic_to_feature").fit(X, y, Z, Z_unseen)
    assert_allclose(forward.scores(X), cosine(X @ forward.W_.T, Z_unseen))
    assert_allclose(backward.scores(X), cosine(X, Z_unseen @ backward.W_))


@pytest.mark.parametrize(
    "models",
    [
        [ESZSL(gamma=g, lam=lam, y_negative=n) for g in (0.1, 10.0) for lam in (0.1, 10.0) for n in (0, -1)],
        [SAE(lam=lam, direction=d) for lam in (0.1, 1.0) for d in ("feature_to_semantic", "semantic_to_feature")],
        [Ridge(gamma=g) for g in (0.1, 1.0)],
        [RidgeReverse(gamma=g) for g in (0.1, 1.0)],
        [KernelESZSL(gamma=g, width=w, lam=0.1) for g in (0.1, 1.0) for w in (0.5, 2.0)],
    ],
    ids=lambda models: type(models[0]).__name__,
)
def test_a_grid_is_fitted_as_each_model_alone(problem, models):
    together = [m.scores(problem[0]) for m in type(models[0]).fit_grid(models, *problem)]
    alone = [m.fit(*problem).scores(problem[0]) for m in models]
    for a, b in zip(together, alone):
        assert_allclose(a, b, atol=1e-12)
