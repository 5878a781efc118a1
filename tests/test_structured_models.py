"""Prototypes, metrics and Gaussians: optimality of the stated objectives, independent formulas, values by hand."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import multivariate_normal

from conftest import central_differences, images_by_attributes
from zsl.linalg import class_means
from zsl.models import SSE, BiDiLEL, BucherMetric, CDLJiang, SynthesisGaussian
from zsl.models.sse import onto_simplex, simplex_codes


@pytest.fixture
def problem(rng):
    return images_by_attributes(rng)


# --- Gaussians -----------------------------------------------------------------------------------------------


def test_gaussian_mean_is_the_ridge_of_class_means(problem):
    X, y, Z, Z_unseen = problem
    S, M = class_means(Z, y), class_means(X, y)
    B = SynthesisGaussian(gamma=0.4).fit(X, y, Z, Z_unseen).B_
    assert_allclose(S.T @ (S @ B - M) + 0.4 * B, 0, atol=1e-10)


def test_gaussian_scores_are_log_densities(problem):
    X, y, Z, Z_unseen = problem
    model = SynthesisGaussian(gamma=0.4, shrinkage=0.3).fit(X, y, Z, Z_unseen)
    R = X - class_means(X, y)[y]
    cov = 0.7 * R.T @ R / 90 + 0.3 * np.trace(R.T @ R / 90) / 5 * np.eye(5)
    expected = np.column_stack([multivariate_normal(s @ model.B_, cov).logpdf(X) for s in Z_unseen])
    scores = model.scores(X)
    assert_allclose(scores - scores[:, :1], expected - expected[:, :1], atol=1e-8)


def test_gaussian_with_predicted_variances(problem):
    X, y, Z, Z_unseen = problem
    model = SynthesisGaussian(gamma=0.4, shrinkage=0.3, covariance="predicted").fit(X, y, Z, Z_unseen)
    V = np.array([X[y == c].var(axis=0) for c in range(6)])
    L = np.log(0.7 * V + 0.3 * V.mean())
    S = class_means(Z, y)
    assert_allclose(S.T @ (S @ model.L_ - (L - L.mean(axis=0))) + 0.4 * model.L_, 0, atol=1e-10)
    expected = np.column_stack(
        [multivariate_normal(s @ model.B_, np.diag(np.exp(L.mean(axis=0) + s @ model.L_))).logpdf(X) for s in Z_unseen]
    )
    scores = model.scores(X)
    assert_allclose(scores - scores[:, :1], expected - expected[:, :1], atol=1e-8)


def test_gaussian_by_hand():
    # Images 0, 2 of class 0 (attribute 1) and 5, 7 of class 1 (attribute 2): means 1, 6, variance 1.
    X, y, Z = np.array([[0.0], [2.0], [5.0], [7.0]]), np.array([0, 0, 1, 1]), np.array([[1.0], [1.0], [2.0], [2.0]])
    model = SynthesisGaussian(gamma=1.5, shrinkage=1.0).fit(X, y, Z, np.array([[1.0], [3.0]]))
    assert_allclose(model.B_, [[(1 * 1 + 2 * 6) / (5 + 1.5)]])  # 2
    assert_allclose(model.scores(np.array([[4.0]])), [[-0.5 * (4 - 2) ** 2, -0.5 * (4 - 6) ** 2]])


# --- structure alignment ---------------------------------------------------------------------------------------


def test_cdl_objective_is_the_stated_one_and_never_rises(problem):
    X, y, Z, Z_unseen = problem
    model = CDLJiang(alpha=3.0, beta=2.0, epsilon=0.1, n_iter=200).fit(X, y, Z, Z_unseen)
    value = (
        ((X - model.P_[y]) ** 2).sum()
        + 3.0 * ((model.P_ - model.C_ @ model.D1_) ** 2).sum()
        + 2.0 * ((class_means(Z, y) - model.C_ @ model.D2_) ** 2).sum()
        + 0.1 * (model.C_**2).sum()
    )
    assert_allclose(model.objective_[-1], value, rtol=1e-10)
    assert (np.diff(model.objective_) <= 1e-9 * model.objective_[0]).all()
    assert max(np.linalg.norm(model.D1_, axis=1).max(), np.linalg.norm(model.D2_, axis=1).max()) <= 1 + 1e-12


def test_cdl_is_stationary_in_every_block(problem):
    X, y, Z, Z_unseen = problem
    model = CDLJiang(n_atoms=3, alpha=3.0, beta=2.0, epsilon=0.5, n_iter=3000).fit(X, y, Z, Z_unseen)
    S, P, C, D1, D2 = class_means(Z, y), model.P_, model.C_, model.D1_, model.D2_
    n, sums = np.bincount(y)[:, None], np.array([X[y == c].sum(axis=0) for c in range(6)])
    assert_allclose(n * P - sums + 3.0 * (P - C @ D1), 0, atol=1e-10)
    assert_allclose(3.0 * (C @ D1 - P) @ D1.T + 2.0 * (C @ D2 - S) @ D2.T + 0.5 * C, 0, atol=1e-10)
    for D, target in ((D1, P), (D2, S)):
        gradient = C.T @ (C @ D - target)
        for d, g in zip(D, gradient):
            # On the sphere the gradient points inwards along the atom; inside the ball it is zero.
            multiplier = max(-float(d @ g), 0) if np.linalg.norm(d) > 1 - 1e-9 else 0.0
            assert_allclose(g + multiplier * d, 0, atol=1e-10)


def test_cdl_prototypes_of_new_classes_by_hand(problem):
    model = CDLJiang(beta=2.0, epsilon=2.0).fit(*problem)
    model.D1_, model.D2_ = np.array([[0.0, 1.0]]), np.array([[1.0]])
    # c = argmin (3 - c)^2 + c^2 = 1.5.
    assert_allclose(model.prototypes(np.array([[3.0]])), [[0.0, 1.5]])


# --- metric ----------------------------------------------------------------------------------------------------


def test_metric_gradient_and_stationarity(problem, rng):
    X, y, Z, Z_unseen = problem
    model = BucherMetric(n_metric=3, lam=0.5, mu=0.01, max_iter=20_000, tol=1e-10)
    S, shapes = class_means(Z, y), [(5, 4), (4,), (4, 3), (1,)]
    cuts = np.cumsum([20, 4, 12])

    def unpack(flat):
        return [a.reshape(s) for a, s in zip(np.split(flat, cuts), shapes)]

    def gradient(flat):
        return np.concatenate([g.ravel() for g in model.objective(X, y, Z, S, unpack(flat))[1]])

    flat = 0.5 * rng.standard_normal(37)
    numeric = central_differences(lambda f: model.objective(X, y, Z, S, unpack(f))[0], flat)
    assert_allclose(gradient(flat), numeric, atol=1e-8 * np.abs(numeric).max())
    model.fit(X, y, Z, Z_unseen)
    at_end = [model.WX_, model.b_, model.WA_, np.array([model.tau_])]
    at_start = [np.zeros((5, 4)), np.zeros(4), np.eye(4, 3), np.ones(1)]
    largest = [max(np.abs(g).max() for g in model.objective(X, y, Z, S, at)[1]) for at in (at_start, at_end)]
    assert largest[1] < 1e-8 * largest[0]


def test_metric_value_by_hand():
    # One feature, one attribute, W_X = 2, b = 0, W_A = 1, tau = 1; image 1 of class 0; classes 1 and 4.
    model = BucherMetric(lam=0.5, mu=0.1)
    theta = [np.array([[2.0]]), np.zeros(1), np.ones((1, 1)), np.ones(1)]
    X, y, Z, S = np.array([[1.0]]), np.array([0]), np.array([[1.0]]), np.array([[1.0], [4.0]])
    # d^2 = 1 and 4: own [1 - (1 - 1)]_+ = 1, other [1 + (1 - 4)]_+ = 0; weights 1/2; error 1; norms 4 + 1.
    assert_allclose(model.objective(X, y, Z, S, theta)[0], 0.5 * 1 + 0.5 * 1 + 0.1 * 5)


def test_metric_scores_are_distances(problem):
    X = problem[0]
    model = BucherMetric().fit(*problem)
    difference = (model.predict_attributes(X)[:, None] - problem[3][None]) @ model.WA_
    assert_allclose(model.scores(X), -(difference**2).sum(axis=2), atol=1e-10)


# --- similarity embedding --------------------------------------------------------------------------------------


def test_projection_onto_the_simplex_by_hand():
    assert_allclose(onto_simplex(np.array([[0.5, 0.5], [2.0, 0.0], [0.6, 0.8], [-1.0, -1.0]])),
                    [[0.5, 0.5], [1.0, 0.0], [0.4, 0.6], [0.5, 0.5]])  # fmt: skip


@pytest.mark.parametrize("gamma", [1e-3, 0.1, 10.0])
def test_histograms_satisfy_the_conditions_of_optimality(rng, gamma):
    S, basis = rng.standard_normal((4, 5)), rng.standard_normal((7, 5))
    A = simplex_codes(S, basis, gamma, tol=1e-12, max_iter=100_000)
    assert (A >= 0).all()
    assert_allclose(A.sum(axis=1), 1)
    # All classes with a positive weight have the same slope; no other class has a smaller one.
    slope = gamma * A + (A @ basis - S) @ basis.T
    lowest = slope.min(axis=1, keepdims=True)
    assert_allclose((A * (slope - lowest)).sum(axis=1), 0, atol=1e-8)


@pytest.mark.parametrize("mapping", ["relu", "intersection"])
def test_sse_weights_are_stationary(problem, mapping):
    X, y, Z, Z_unseen = problem
    model = SSE(C=5.0, gamma=0.3, mapping=mapping, tol=1e-11, max_iter=5000).fit(X, y, Z, Z_unseen)
    S, low = class_means(Z, y), X.min(axis=0)
    V, H = class_means(X - low, y), simplex_codes(S, S, 0.3)
    combine = np.maximum if mapping == "relu" else np.minimum
    pi = np.maximum(0, (X - low)[:, None] - V) if mapping == "relu" else combine((X - low)[:, None], V)

    def gradient(w):
        total = w.copy()
        for i in range(90):
            features = H @ pi[i]  # (K, p): f_c(x_i) = features[c] . w
            for c in set(range(6)) - {int(y[i])}:
                lead = features[c] - features[y[i]]
                total += 5.0 / 90 * 2 * max(0.0, 1 + float(lead @ w)) * lead
        return total

    assert np.abs(gradient(model.w_)).max() < 1e-8 * np.abs(gradient(np.zeros(5))).max()
    assert_allclose(model.scores(X, S), (pi @ model.w_) @ H.T, atol=1e-7)


def test_sse_draws_the_same_number_of_each_class():
    y = np.repeat([0, 1, 2], [5, 50, 200])
    drawn = np.bincount(y[SSE(max_images=45)._draw(y)])
    assert drawn.tolist() == [5, 20, 20]


# --- latent embedding ------------------------------------------------------------------------------------------


def test_latent_space_is_the_leading_discriminant_directions(problem):
    X, y, Z, Z_unseen = problem
    model = BiDiLEL(alpha=0.5, n_components=2).fit(X, y, Z, Z_unseen)
    R = X - class_means(X, y)[y]
    alpha = 0.5 * np.trace(X.T @ X) / 5
    A, B = X.T @ X + alpha * np.eye(5), R.T @ R + alpha * np.eye(5)
    kappa = np.sort(np.linalg.eigvals(np.linalg.solve(B, A)).real)[-2:]
    assert_allclose(A @ model.P_, B @ model.P_ * kappa, atol=1e-8)


def test_places_are_stationary_and_the_stress_gradient_is_right(problem):
    X, y, Z, Z_unseen = problem
    model = BiDiLEL().fit(X, y, Z, Z_unseen)
    delta = model.scale_ * np.linalg.norm(Z_unseen[:, None] - class_means(Z, y), axis=2)
    for place, row in zip(model.places(Z_unseen), delta):
        slope = model.stress(place + 0.1, row)[1]
        numeric = central_differences(lambda b, row=row: model.stress(b, row)[0], place + 0.1)
        assert_allclose(slope, numeric, atol=1e-8 * np.abs(numeric).max())
        assert np.abs(model.stress(place, row)[1]).max() < 1e-8 * np.abs(slope).max()


def test_stress_by_hand(problem):
    model = BiDiLEL().fit(*problem)
    model.b_ = np.array([[0.0, 0.0], [4.0, 0.0]])
    # Distances 3 and 1 where 2 and 1 are wanted: (3 - 2)^2 / 2, pulled back by 2 (3 - 2) / 2.
    value, gradient = model.stress(np.array([3.0, 0.0]), np.array([2.0, 1.0]))
    assert_allclose(value, 0.5)
    assert_allclose(gradient, [1.0, 0.0])


@pytest.mark.parametrize("offset", [0.0, 1e6, 1e9])
def test_predicted_variances_do_not_drown_in_a_common_offset(problem, offset):
    # The difference of two squares lost the variances, and all scores with them, without a word.
    X, y, Z, Z_unseen = problem
    model, near = (SynthesisGaussian(covariance="predicted").fit(V, y, Z, Z_unseen) for V in (X + offset, X))
    assert_allclose(model.log_variance_, near.log_variance_, atol=1e-5)
    assert_allclose(model.L_, near.L_, atol=1e-5)
    M, L = Z_unseen @ model.B_, model.log_variance_ + Z_unseen @ model.L_
    squares = ((X + offset - M[:, None]) ** 2 * np.exp(-L)[:, None]).sum(axis=2).T
    assert_allclose(model.scores(X + offset), -0.5 * (squares + L.sum(axis=1)), rtol=1e-9)
