"""Published rules that predict classes in feature space: oracles, closed forms, limits and monotone objectives."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import cdist, pdist
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Lasso
from sklearn.linear_model import Ridge as SklearnRidge
from sklearn.mixture import GaussianMixture as SklearnMixture
from sklearn.svm import NuSVR

from conftest import with_test_images
from zsl.linalg import class_means, squared_distances, unit_rows
from zsl.models import EXEM, GFZSL, MDP, GFZSLTransductive
from zsl.models.gaussian_mixture import class_variances, fit_mixture, k_means, log_densities


@pytest.fixture
def problem(rng):
    return with_test_images(rng)


# --- the mixture of Gaussians ------------------------------------------------------------------------------------


@pytest.fixture
def clusters(rng):
    """Images of three overlapping clusters, and a start."""
    T = rng.standard_normal((200, 4)) * [1.0, 0.5, 2.0, 1.0] + 2.0 * rng.standard_normal((3, 4))[np.arange(200) % 3] + 9
    return T, T[:3] + 0.5, 1.0 + rng.random((3, 4))


def test_densities_are_those_of_scipy(clusters):
    T, means, variances = clusters
    expected = np.column_stack([multivariate_normal(m, np.diag(v)).logpdf(T) for m, v in zip(means, variances)])
    assert_allclose(log_densities(T, means, variances), expected, rtol=1e-12)


@pytest.mark.parametrize("added", [0.0, 0.3])
def test_mixture_is_that_of_scikit_learn(clusters, added):
    T, means, variances = clusters
    oracle = SklearnMixture(
        3, covariance_type="diag", means_init=means, precisions_init=1 / variances, weights_init=np.full(3, 1 / 3),
        reg_covar=added, tol=0.0, max_iter=25,
    )  # fmt: skip
    with pytest.warns(ConvergenceWarning):  # as it should after 25 steps
        oracle.fit(T)
    found = fit_mixture(T, means, variances, added=added, max_iter=25, tol=-np.inf)
    assert_allclose(found.means, oracle.means_, atol=1e-9)
    assert_allclose(found.variances, oracle.covariances_, atol=1e-9)
    assert_allclose(found.weights, oracle.weights_, atol=1e-9)
    # Ours is the likelihood before each step, so one more step is needed for the one after the last.
    last = fit_mixture(T, means, variances, added=added, max_iter=26, tol=-np.inf).objective[-1]
    assert_allclose(last, oracle.score(T), rtol=1e-12)


def test_likelihood_never_falls_without_a_floor(clusters):
    found = fit_mixture(*clusters, max_iter=300, tol=0.0)
    assert len(found.objective) > 20
    assert np.diff(found.objective).min() >= -1e-12


def test_one_component_is_the_sample_mean_and_variance(clusters):
    T, means, variances = clusters
    found = fit_mixture(T, means[:1], variances[:1])
    assert_allclose(found.means[0], T.mean(axis=0), rtol=1e-12)
    assert_allclose(found.variances[0], T.var(axis=0), rtol=1e-9)


def test_floor_above_all_variances_gives_k_means_in_many_dimensions():
    # With equal spherical variances, a label is soft only where squared distances to two means differ by few variances.
    # Every image is repeated over so many dimensions that they never do.
    t = np.r_[np.arange(12.0), 15 + np.arange(9.0), 30 + 2 * np.arange(8.0)]
    T, start = np.tile(t[:, None], 2000), np.tile(np.array([[0.1], [3.3], [14.2]]), 2000)
    found = fit_mixture(T, start, np.ones(start.shape), floor=50.0)
    oracle = KMeans(3, init=start, n_init=1, tol=0.0).fit(T)
    assert oracle.n_iter_ > 3
    assert_allclose(k_means(T, start), oracle.cluster_centers_, rtol=1e-12)
    assert (found.variances == 50.0).all()
    assert_allclose(found.means, oracle.cluster_centers_, rtol=1e-9)


def test_a_component_without_images_keeps_its_place(clusters):
    T, means, variances = clusters
    far = np.vstack([means, np.full(4, 1e6)])
    found = fit_mixture(T, far, np.vstack([variances, np.ones(4)]), max_iter=50, tol=-np.inf)
    assert_allclose(found.means[3], 1e6)
    assert_allclose(found.means[:3], fit_mixture(T, means, variances, max_iter=50, tol=-np.inf).means, rtol=1e-8)


def test_class_variances(problem):
    X, y, *_ = problem
    assert_allclose(class_variances(X + 1e3, y), [X[y == c].var(axis=0) for c in range(6)], rtol=1e-9)


# --- GFZSL -------------------------------------------------------------------------------------------------------


def degree_two(S):
    """The features whose inner product is (1 + a.b)^2."""
    return np.hstack([np.ones((len(S), 1)), np.sqrt(2) * S, np.einsum("ij,ik->ijk", S, S).reshape(len(S), -1)])


@pytest.mark.parametrize(("kernel", "features"), [("linear", np.asarray), ("polynomial", degree_two)])
def test_gfzsl_is_ridge_regression_on_the_features_of_the_kernel(problem, kernel, features):
    X, y, Z, U, _ = problem
    model = GFZSL(gamma=0.3, gamma_variance=2.0, kernel=kernel, scale_features=False).fit(X, y, Z, U)
    S, M, V = features(class_means(Z, y)), class_means(X, y), class_variances(X, y)
    means, variances = model.gaussians(U)
    for target, penalty, found in ((M, 0.3, means), (np.log(V + 1e-3), 2.0, np.log(variances))):
        oracle = SklearnRidge(penalty, fit_intercept=False, solver="svd").fit(S, target)
        assert_allclose(found, oracle.predict(features(U)), atol=1e-12)


def test_gfzsl_scores_are_log_densities_and_pooled_variances_are_those_of_residuals(problem):
    X, y, Z, U, T = problem
    model = GFZSL(variances="pooled", reg=0.2, scale_features=False).fit(X, y, Z, U)
    R = X - class_means(X, y)[y]
    means, variances = model.gaussians(U)
    assert_allclose(variances, np.tile((R**2).mean(axis=0), (3, 1)), rtol=1e-12)
    expected = np.column_stack([multivariate_normal(m, np.diag((R**2).mean(axis=0) + 0.2)).logpdf(T) for m in means])
    assert_allclose(model.scores(T), expected, rtol=1e-12)


@pytest.mark.parametrize("value", [0.0, 0.1, -7.0])
def test_a_constant_feature_leaves_gfzsl_its_other_variances(problem, value):
    # A single variance of zero made GFZSL replace all variances by one.
    X, y, Z, U, T = problem
    model = GFZSL(variances="pooled", reg=0.0, scale_features=False).fit(X - X.mean(axis=0), y, Z, U)
    expected = model.scores(T - X.mean(axis=0))
    wide = [np.hstack([V - X.mean(axis=0), np.full((len(V), 1), value)]) for V in (X, T)]
    found = clone(model).fit(wide[0], y, Z, U)
    assert found.gaussians(U)[1][0, -1] == 0
    scores, means = found.scores(wide[1]), found.gaussians(U)[0]
    # The constant feature itself counts with the smallest variance that there is.
    expected -= 0.5 * (value - means[:, -1]) ** 2 / found.pooled_[found.pooled_ > 0].min()
    assert_allclose(scores - scores[:, :1], expected - expected[:, :1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("scale_features", [True, False])
def test_gfzsl_with_the_published_penalty_is_the_nearest_predicted_mean(problem, scale_features):
    X, y, Z, U, T = problem
    model = GFZSL(gamma_variance=1e13, scale_features=scale_features).fit(X, y, Z, U)
    scores, D = model.scores(T), squared_distances(T / model.scale_, model.gaussians(U)[0])
    assert_allclose(scores - scores[:, :1], (D[:, :1] - D) / 2 / 1.05, atol=1e-8)


def test_gfzsl_with_scaled_features_does_not_depend_on_their_unit(problem):
    X, y, Z, U, T = problem
    for kind in (GFZSL, GFZSLTransductive):
        scores = kind(gamma_variance=1.0).fit(X, y, Z, U).scores(T)
        assert_allclose(kind(gamma_variance=1.0).fit(1e3 * X, y, Z, U).scores(1e3 * T), scores, rtol=1e-9)
    assert_allclose(GFZSL().fit(X, y, Z, U).scale_ ** 2, class_variances(X, y).mean())


def test_gfzsl_transductive_is_the_mixture_from_the_predicted_gaussians(problem):
    X, y, Z, U, T = problem
    settings = {"gamma": 0.2, "gamma_variance": 1.0, "scale_features": False}
    means, variances = GFZSL(**settings).fit(X, y, Z, U).gaussians(U)
    oracle = SklearnMixture(
        3, covariance_type="diag", means_init=means, precisions_init=1 / variances, weights_init=np.full(3, 1 / 3),
        reg_covar=0.0, tol=1e-13, max_iter=10_000,
    ).fit(T)  # fmt: skip
    model = GFZSLTransductive(**settings, floor=0.0, reg=0.1, tol=1e-13, max_iter=10_000).fit(X, y, Z, U)
    expected = np.column_stack(
        [multivariate_normal(m, np.diag(v + 0.1)).logpdf(T) for m, v in zip(oracle.means_, oracle.covariances_)]
    )
    assert_allclose(model.scores(T), expected, atol=1e-4)
    assert_array_equal(model.predict(T), expected.argmax(axis=1))


# --- EXEM --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("standardise", [True, False])
@pytest.mark.parametrize("regression", ["nu_svr", "ridge"])
def test_exem_is_scikit_learns_regression_on_scikit_learns_components(problem, regression, standardise):
    X, y, Z, U, T = problem
    S, U1 = unit_rows(class_means(Z, y)), unit_rows(U)
    median = np.median(pdist(S))
    pca = PCA(4).fit(X)
    P, Q = pca.transform(X), pca.transform(T)
    M = class_means(P, y)
    if regression == "ridge":
        predicted = KernelRidge(alpha=0.5, kernel="rbf", gamma=0.7).fit(S / median, M).predict(U1 / median)
    else:
        machine = NuSVR(kernel="rbf", gamma=0.7, C=2.0, nu=0.5, tol=1e-8)
        predicted = np.column_stack([machine.fit(S / median, m).predict(U1 / median) for m in M.T])
    deviation = np.sqrt(class_variances(P, y)).mean(axis=0) if standardise else np.ones(4)
    expected = -cdist(Q / deviation, predicted / deviation, "sqeuclidean")
    model = EXEM(regression, 4, C=2.0, nu=0.5, gamma=0.7, standardise=standardise, scale_features=False)
    # libsvm stops at a tolerance of 1e-5 in ours.
    assert_allclose(model.fit(X, y, Z, U).scores(T), expected, rtol=1e-10 if regression == "ridge" else 1e-4)


@pytest.mark.parametrize(("regression", "settings"), [("nu_svr", {"nu": 1.0}), ("ridge", {})])
def test_exem_without_penalty_interpolates_the_class_means(problem, regression, settings):
    X, y, Z, U, _ = problem
    model = EXEM(regression, C=1e6, gamma=2.0, standardise=False, scale_features=False, **settings).fit(X, y, Z, U)
    exact = (class_means(X, y) - X.mean(axis=0)) @ model.components_
    assert_allclose(model.exemplars(class_means(Z, y)), exact, atol=2e-4)


# --- MDP ---------------------------------------------------------------------------------------------------------


def test_mdp_codes_are_those_of_the_lasso(problem):
    X, y, Z, U, _ = problem
    S, largest = class_means(Z, y), np.abs(Z).max()
    oracle = Lasso(alpha=0.1 / 4, fit_intercept=False, tol=1e-12, max_iter=100_000)
    expected = np.array([oracle.fit(S.T / largest, u / largest).coef_ for u in U])
    assert (expected == 0).any()
    assert_allclose(MDP(l1=0.1).fit(X, y, Z, U).class_codes(U), expected, atol=1e-5)


def test_mdp_without_penalty_recovers_the_combination_of_independent_attributes(rng):
    y = np.arange(30) % 3
    S, w = rng.standard_normal((3, 5)), np.array([[0.7, -0.4, 0.2]])
    X = rng.standard_normal((30, 4))
    model = MDP(l1=1e-9).fit(X, y, S[y], w @ S)
    assert_allclose(model.class_codes(w @ S), w, atol=1e-6)
    assert_allclose(model.class_codes(S), np.eye(3), atol=1e-6)


@pytest.mark.parametrize("refine", ["none", "k_means", "mixture"])
def test_mdp_in_scikit_learns_words(problem, refine):
    X, y, Z, U, T = problem
    model = MDP(3, l1=0.05, refine=refine, label="density", reg=0.3, scale_features=False).fit(X, y, Z, U)
    pca = PCA(3).fit(np.vstack([X, T]))
    P, Q, w = pca.transform(X), pca.transform(T), model.class_codes(U)
    means, variances = w @ class_means(P, y), w @ np.array([P[y == c].var(axis=0) for c in range(6)])
    assert (variances <= 0).any()
    variances[variances <= 0] = variances[variances > 0].min()
    if refine == "k_means":
        means = KMeans(3, init=means, n_init=1, tol=0.0).fit(Q).cluster_centers_
    elif refine == "mixture":
        mixture = SklearnMixture(
            3, covariance_type="diag", means_init=means, precisions_init=1 / (variances + 0.3), tol=1e-7,
            weights_init=np.full(3, 1 / 3), reg_covar=0.3, max_iter=1000,
        ).fit(Q)  # fmt: skip
        means, variances = mixture.means_, mixture.covariances_
    expected = np.column_stack([multivariate_normal(m, np.diag(v)).logpdf(Q) for m, v in zip(means, variances)])
    assert_allclose(model.scores(T), expected, atol=1e-3 if refine == "mixture" else 1e-8)
    assert_array_equal(model.predict(T), expected.argmax(axis=1))
    model.label = "nearest"
    assert_array_equal(model.predict(T), cdist(Q, means).argmin(axis=1))
