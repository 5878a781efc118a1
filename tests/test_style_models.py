"""Models whose published objective is not known in full: optimality of the objectives that their docstrings state."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.linalg import solve_sylvester, subspace_angles
from scipy.sparse.csgraph import connected_components
from scipy.stats import multivariate_normal, norm
from sklearn.cross_decomposition import CCA
from sklearn.decomposition import NMF
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from conftest import central_differences, images_by_attributes
from zsl import ZeroShotClassifier
from zsl.graph import gaussian_weights, neighbour_laplacian, neighbours, normalised
from zsl.linalg import class_means, cosines, squared_distances
from zsl.models import ABSNetStyle, DSRLStyle, GMMNStyle, LESDStyle, MFMRJointStyle, MFMRStyle, RidgeReverse, UVDSStyle
from zsl.models.gmmn_style import mmd2
from zsl.models.uvds_style import dual_graph, even_rotation


@pytest.fixture
def problem(rng):
    return images_by_attributes(rng)


# --- LESD --------------------------------------------------------------------------------------------------------


def centred(*matrices):
    return tuple(A - A.mean(axis=0) for A in matrices)


def test_lesd_satisfies_its_conditions_of_optimality(problem):
    X, _, Z, _ = problem
    model = LESDStyle(alpha=0.3, lam=0.2, share=1.0, n_components=2).fit(*problem)
    (P,), (D,), (X, Z) = model.P_, model.D_, centred(X, Z)
    A = X.T @ X + 0.3 * np.trace(X.T @ X) / 5 * np.eye(5)
    B = Z.T @ Z + 0.2 * np.trace(Z.T @ Z) / 4 * np.eye(4)
    assert_allclose(P.T @ A @ P, np.eye(2), atol=1e-12)
    assert_allclose(B @ D.T, Z.T @ X @ P, atol=1e-12)
    M = X.T @ Z @ np.linalg.solve(B, Z.T @ X)
    kappa = np.sort(np.linalg.eigvals(np.linalg.solve(A, M)).real)[::-1][:2]
    assert_allclose(M @ P, A @ P * kappa, atol=1e-10)


def test_lesd_of_one_hot_attributes_is_discriminant_analysis(problem):
    X, y, *_ = problem
    model = LESDStyle(alpha=1e-13, lam=1e-13, share=1.0).fit(X, y, np.eye(6)[y], np.eye(6)[:3])
    lda = LinearDiscriminantAnalysis(solver="eigen", n_components=3).fit(X, y).scalings_
    assert subspace_angles(model.P_[0][:, :3], lda[:, :3]).max() < 1e-9


def test_lesd_without_penalties_is_canonical_correlation(problem):
    X, _, Z, _ = problem
    model = LESDStyle(alpha=1e-13, lam=1e-13, share=1.0).fit(*problem)
    theirs = CCA(n_components=4, scale=False, tol=1e-14, max_iter=100_000).fit(X, Z).transform(X)
    ours = (X - X.mean(axis=0)) @ model.P_[0]
    # Canonical variates have a sign and a length of their own.
    assert_allclose(np.abs(np.diag(cosines(ours.T, theirs.T))), 1, atol=1e-9)


def test_lesd_scores_are_standardised_and_averaged(problem):
    X, y, Z, Z_unseen = problem
    model = LESDStyle(n_members=4, share=0.7).fit(*problem)
    S, parts = class_means(Z, y), []
    assert model.P_.shape[0] == 4
    for P, D, x, z in zip(model.P_, model.D_, model.x_, model.z_):
        own, asked = (cosines((X - x) @ P, (C - z) @ D.T) for C in (S, Z_unseen))
        parts.append((asked - own.mean()) / own.std())
    assert_allclose(model.scores(X), np.mean(parts, axis=0), atol=1e-12)
    # Members of all classes are one.
    one = LESDStyle(n_members=4, share=1.0).fit(*problem)
    assert len(one.P_) == 1
    assert_allclose(np.corrcoef(one.scores(X).ravel(), cosines(
        (X - one.x_[0]) @ one.P_[0], (Z_unseen - one.z_[0]) @ one.D_[0].T).ravel())[0, 1], 1)  # fmt: skip


# --- MFMR --------------------------------------------------------------------------------------------------------


def test_mfmr_solves_its_sylvester_equation(problem):
    X, y, Z, _ = problem
    model = MFMRStyle(lam_features=0.7, lam_attributes=0.4, gamma=0.2, n_neighbors=2).fit(*problem)
    L_f, L_a = (neighbour_laplacian(class_means(A, y).T, 2).toarray() for A in (X, Z))
    scale = np.trace(Z.T @ Z) / 4
    left, right = scale * (0.7 * L_f + 0.2 * np.eye(5)), Z.T @ Z + scale * 0.4 * L_a
    assert L_f.any()
    assert L_a.any()
    assert_allclose(model.U_, solve_sylvester(left, right, X.T @ Z), atol=1e-11)


def test_mfmr_without_graphs_is_the_reverse_ridge(problem):
    X, _, Z, _ = problem
    model = MFMRStyle(lam_features=0, lam_attributes=0, gamma=0.2).fit(*problem)
    ridge = RidgeReverse(gamma=0.2 * np.trace(Z.T @ Z) / 4).fit(*problem)
    assert_allclose(model.U_, ridge.V_.T, atol=1e-13)
    assert_allclose(model.scores(X), ridge.scores(X), atol=1e-12)


def soft_labels(model, problem, **settings):
    """Test images, prototypes, the scale of the penalties, and the scores."""
    model.set_params(**settings)
    T, G = problem[0][::4], problem[3] @ model.U_.T
    return T, G, np.trace(G @ G.T) / len(G), model.scores(T)


def test_mfmr_labels_of_test_images(problem):
    model = MFMRJointStyle(n_neighbors=3).fit(*problem)
    T, G, scale, V = soft_labels(model, problem, lam_test=0.6, gamma_test=0.3)
    L = neighbour_laplacian(T, 3).toarray()
    assert_allclose(V, solve_sylvester(scale * (0.6 * L + 0.3 * np.eye(len(T))), G @ G.T, T @ G.T), atol=1e-11)
    # Without the graph they are a ridge regression of the image on the prototypes.
    T, G, scale, V = soft_labels(model, problem, lam_test=0)
    assert_allclose(V, np.linalg.solve(G @ G.T + scale * 0.3 * np.eye(3), G @ T.T).T, atol=1e-12)


def test_mfmr_labels_are_constant_where_the_graph_is_all_that_counts(problem):
    model = MFMRJointStyle(n_neighbors=2).fit(*problem)
    T, _, _, free = soft_labels(model, problem, lam_test=0)
    n, component = connected_components(neighbour_laplacian(T, 2), directed=False)
    V = soft_labels(model, problem, lam_test=1e7)[3]
    assert n > 1
    # The mean over the component of the labels without a graph, since both are linear in T.
    assert_allclose(V, class_means(free, component)[component], atol=1e-5)


def test_mfmr_copies_of_an_image_have_the_same_scores(problem):
    model, T = MFMRJointStyle(n_neighbors=3).fit(*problem), problem[0][::4]
    assert_allclose(model.scores(np.vstack([T, T[:5], T[:2]])), model.scores(T)[[*range(len(T)), *range(5), 0, 1]])


# --- UVDS --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("orthogonal", [False, True])
def test_uvds_never_rises_and_ends_where_every_block_is_optimal(problem, orthogonal):
    X, y, Z, _ = problem
    model = UVDSStyle(n_components=3, alpha=0.5, beta=0.4, gamma=0.3, orthogonal=orthogonal, n_neighbors=4, n_iter=400)
    model.fit(*problem)
    assert (np.diff(model.objective_) <= 1e-10 * model.objective_[0]).all()
    smooth = dual_graph(X, y, Z, 4)
    L = smooth(np.eye(90))
    assert_allclose(L, L.T, atol=1e-12)
    assert_allclose(L.sum(axis=0), 0, atol=1e-12)
    assert np.linalg.eigvalsh(L)[0] > -1e-12
    # V is the solution of its Sylvester equation, and of V the other two are made again.
    V = solve_sylvester(0.5 * np.eye(90) + 0.4 * L, model.Q_ @ model.Q_.T, X @ model.Q_.T + 0.5 * Z @ model.P_)
    assert_allclose(0.5 * Z.T @ (Z @ model.P_ - V) + 0.3 * model.P_, 0, atol=1e-4)
    assert_allclose(model.decoder(X, V), model.Q_, atol=1e-5)
    if orthogonal:
        assert_allclose(model.Q_ @ model.Q_.T, np.eye(3), atol=1e-12)
    assert_allclose(model.objective(X, Z, V, model.P_, model.Q_, smooth), model.objective_[-1], rtol=1e-9)
    spread = ((V - V.mean(axis=0)) ** 2).sum(axis=0)
    assert_allclose(spread, spread.mean(), rtol=1e-5)


def test_uvds_with_a_heavy_attribute_side_is_the_reverse_ridge(problem):
    X, _, Z, Z_unseen = problem
    W = np.linalg.lstsq(Z, X)[0]
    model = UVDSStyle(alpha=1e9, beta=0, gamma=0).fit(*problem)
    assert_allclose(model.P_ @ model.Q_, W, atol=1e-8)
    assert_allclose(model.scores(X), -squared_distances(X, Z_unseen @ W), atol=1e-6)
    # With fewer components it is the reduced-rank regression.
    U, s, Vt = np.linalg.svd(Z @ W, full_matrices=False)
    model = UVDSStyle(n_components=2, alpha=1e9, beta=0, gamma=0).fit(*problem)
    assert_allclose(Z @ model.P_ @ model.Q_, (U[:, :2] * s[:2]) @ Vt[:2], atol=1e-7)


def test_uvds_codes_are_between_images_and_attributes(problem):
    X, _, Z, _ = problem
    P = np.ones((4, 5))
    V = UVDSStyle(alpha=0.5, beta=0).latent(X, Z @ P, np.eye(5), np.zeros_like(X))
    assert_allclose(V, (X + 0.5 * Z @ P) / 1.5, atol=1e-12)


def test_uvds_rotation_changes_nothing_but_the_spread(problem, rng):
    X, y, Z, _ = problem
    V, P, Q = (
        rng.standard_normal((90, 6)) * [1, 2, 3, 4, 5, 60],
        rng.standard_normal((4, 6)),
        rng.standard_normal((6, 5)),
    )
    R, smooth, model = even_rotation(V.T @ V), dual_graph(X, y, Z, 4), UVDSStyle()
    assert_allclose(R.T @ R, np.eye(6), atol=1e-13)
    assert_allclose(((V @ R) ** 2).sum(axis=0), (V**2).sum() / 6, rtol=1e-11)
    before, after = model.objective(X, Z, V, P, Q, smooth), model.objective(X, Z, V @ R, P @ R, R.T @ Q, smooth)
    assert_allclose(after, before, rtol=1e-12)


# --- DSRL --------------------------------------------------------------------------------------------------------


def test_dsrl_never_rises_and_its_objective_is_the_stated_one(problem):
    X, _, Z, _ = problem
    model = DSRLStyle(n_components=4, gamma=0.7, lam=0.05, delta=0.3, n_iter=100)
    E, B, W, values = model.factors(X[::2], Z[::2], X[1::2])
    A = np.hstack([np.maximum(A, 0) for A in (np.vstack([X[::2], X[1::2]]), -np.vstack([X[::2], X[1::2]]))])
    stated = 0.5 * ((A - E @ B) ** 2).sum() + 0.05 * E.sum() + 0.35 * ((E[:45] @ W - Z[::2]) ** 2).sum()
    assert_allclose(values[-1], stated + 0.35 * 0.3 * (W**2).sum(), rtol=1e-12)
    assert (np.diff(values) <= 1e-12 * values[0]).all()
    assert min(E.min(), B.min()) >= 0
    assert np.linalg.norm(B, axis=1).max() <= 1 + 1e-12
    assert_allclose(E[:45].T @ (E[:45] @ W - Z[::2]) + 0.3 * W, 0, atol=1e-10)


def test_dsrl_without_attributes_and_penalty_is_non_negative_factorisation(rng):
    A = np.abs(rng.standard_normal((30, 8)))
    model = DSRLStyle(n_components=3, gamma=0, lam=0, n_iter=3000)
    E, B, _, values = model.factors(A[:20], np.ones((20, 1)), A[20:])
    start = np.random.default_rng(0).random((3, 16))[:, :8]
    theirs = NMF(3, solver="cd", init="custom", tol=1e-12, max_iter=5000)
    theirs.fit_transform(A, W=np.ascontiguousarray(A @ start.T / 3), H=start)
    assert_allclose(values[-1], 0.5 * theirs.reconstruction_err_**2, rtol=1e-6)
    # The conditions of optimality of the codes.
    slope = (E @ B - np.hstack([A, 0 * A])) @ B.T
    assert_allclose(E * slope, 0, atol=1e-6)
    assert slope.min() > -1e-6


def test_dsrl_labels_start_at_anchors_and_travel(problem):
    X, _, Z, Z_unseen = problem
    model = DSRLStyle(n_components=4, gamma=1.0, alpha=0, n_iter=20).fit(*problem)
    E, _, W, _ = model.factors(X, Z, np.unique(X[::3], axis=0))
    V, back = E[90:], np.unique(X[::3], axis=0, return_inverse=True)[1]
    first = cosines(V @ W, Z_unseen)
    assert_allclose(model.scores(X[::3]), first[back], atol=1e-12)
    model.set_params(alpha=0.8, n_neighbors=3)
    Y = np.zeros((30, 3))
    for u in range(3):
        Y[np.argsort(first[:, u])[-1:], u] = 1  # the ceiling of 0.1 * 30 / 3
    S = normalised(gaussian_weights(neighbours(V, 3), None)).toarray()
    F = 0.2 * np.linalg.solve(np.eye(30) - 0.8 * S, Y)
    F[F.max(axis=1) < 1e-9] = first[F.max(axis=1) < 1e-9]
    assert_allclose(model.scores(X[::3]), F[back], atol=1e-8)


def test_dsrl_is_saved_with_what_it_needs(problem, tmp_path):
    X, y, Z, Z_unseen = problem
    table = {str(c): row for c, row in enumerate([*class_means(Z, y), *Z_unseen])}
    fitted = ZeroShotClassifier(DSRLStyle(n_iter=5), inference="own").fit(X, y.astype(str), table)
    fitted.save(tmp_path / "model.skops")
    loaded = ZeroShotClassifier.load(tmp_path / "model.skops")
    assert_allclose(loaded.decision_function(X[::3]), fitted.decision_function(X[::3]))


# --- ABS-Net -----------------------------------------------------------------------------------------------------


def test_abs_net_scores_are_log_densities_of_a_mixture(problem):
    X, y, Z, Z_unseen = problem
    model = ABSNetStyle(shrinkage=1.0).fit(*problem)
    F, S = model.classifier_(X), class_means(Z, y)
    expected = np.zeros((90, 3))
    for m in range(4):
        has = Z[:, m] > S[:, m].mean()
        assert_allclose(model.mean_[:, m], [F[~has, m].mean(), F[has, m].mean()], atol=1e-12)
        sd = np.sqrt((F[~has, m].var() + F[has, m].var()) / 2)
        a = np.clip((Z_unseen[:, m] - S[:, m].min()) / np.ptp(S[:, m]), 1e-3, 1 - 1e-3)
        without, with_it = (norm.pdf(F[:, m], mean, sd)[:, None] for mean in model.mean_[:, m])
        expected += np.log(a * with_it + (1 - a) * without)
    assert_allclose(model.scores(X), expected, atol=1e-10)


def test_abs_net_scores_are_the_limit_of_drawn_pseudo_features(problem, rng):
    # Naive Bayes of one attribute on pseudo features that are drawn: their density by counting.
    model = ABSNetStyle().fit(*problem)
    a = model.probabilities(problem[3])[:, 0]
    n, edges = 1_000_000, np.linspace(-2, 2, 21)
    for u in range(3):
        present = (rng.random(n) < a[u]).astype(int)
        drawn = rng.normal(model.mean_[present, 0], np.sqrt(model.variance_[present, 0]))
        assert_allclose(drawn.mean(), a[u] * model.mean_[1, 0] + (1 - a[u]) * model.mean_[0, 0], atol=0.02)
        counted = np.histogram(drawn, edges)[0] / n
        parts = [np.diff(norm.cdf(edges, m, np.sqrt(v))) for m, v in zip(model.mean_[:, 0], model.variance_[:, 0])]
        assert_allclose(counted, (1 - a[u]) * parts[0] + a[u] * parts[1], atol=5 * np.sqrt(0.25 / n))


def test_abs_net_of_certain_attributes_is_linear(problem):
    # With equal variances and attributes at the ends of their range, scores differ by a linear function of the logits.
    X, y, Z, _ = problem
    has = (np.arange(12).reshape(3, 4) % 3 < 2).astype(float)
    model = ABSNetStyle(shrinkage=1.0).fit(X, y, (Z > 0).astype(float), has)
    model.variance_ = np.repeat(np.ptp(model.mean_, axis=0)[None] ** 2, 2, axis=0)
    slope = (model.mean_[1] - model.mean_[0]) / model.variance_[0]
    ratio = slope * (model.classifier_(X) - model.mean_.mean(axis=0))
    near = (np.abs(ratio) < 2).all(axis=1)
    scores, expected = model.scores(X)[near], ratio[near] @ has[:, model.used_].T
    assert near.sum() > 20
    # The probabilities are 0.001 from the ends, which changes an attribute's term by at most 0.001 (e^2 + 1).
    assert_allclose(scores - scores[:, :1], expected - expected[:, :1], atol=2 * 4 * 1e-3 * (np.exp(2) + 1))
    assert np.ptp(expected - expected[:, :1]) > 1


# --- GMMN --------------------------------------------------------------------------------------------------------


def test_discrepancy_by_hand_and_its_gradient(rng):
    X, G, widths = rng.standard_normal((7, 3)), rng.standard_normal((5, 3)) + 0.5, np.array([0.5, 2.0])

    def kernel(A, B):
        return sum(np.exp(-((A[:, None] - B) ** 2).sum(axis=2) / (2 * w * w)).mean() for w in widths)

    value, slope = mmd2(X, G, widths)
    assert_allclose(value, kernel(X, X) + kernel(G, G) - 2 * kernel(X, G), atol=1e-13)
    numeric = central_differences(lambda g: mmd2(X, g.reshape(G.shape), widths)[0], G.ravel())
    assert_allclose(slope.ravel(), numeric, atol=1e-8 * np.abs(numeric).max())
    assert value > 0
    assert abs(mmd2(X, X[::-1], widths)[0]) < 1e-14


def test_discrepancy_of_wide_kernels_is_the_distance_of_the_means(rng):
    # exp(-t) is 1 - t up to t^2, and 1 - |x - y|^2 / 2 w^2 has the discrepancy |mean x - mean y|^2 / w^2.
    X, G = rng.standard_normal((7, 3)), rng.standard_normal((5, 3)) + 0.5
    value = 1e6 * mmd2(X, G, np.array([1e3]))[0]
    assert_allclose(value, ((X.mean(axis=0) - G.mean(axis=0)) ** 2).sum(), rtol=1e-4)


def test_gmmn_gradient_by_finite_differences(problem, rng):
    X, _, _, Z_unseen = problem
    model, noise = GMMNStyle(), rng.standard_normal((6, 2))
    shapes = [(6, 3), (3,), (3, 5), (5,)]
    cuts, flat = np.cumsum([18, 3, 15]), rng.standard_normal(41)

    def at(flat):
        weights = [a.reshape(s) for a, s in zip(np.split(flat, cuts), shapes)]
        return model.loss(weights, Z_unseen[0], noise, X[:8], 2.0)

    numeric = central_differences(lambda f: at(f)[0], flat, 1e-4)
    assert_allclose(np.concatenate([g.ravel() for g in at(flat)[1]]), numeric, atol=1e-6 * np.abs(numeric).max())


@pytest.mark.slow
def test_gmmn_learns_the_means_of_the_classes(problem):
    X, y, Z, Z_unseen = problem
    model = GMMNStyle(n_epochs=200).fit(*problem)
    assert np.mean(model.discrepancy_[-20:]) < 0.2 * model.discrepancy_[0]
    S, M = class_means(Z, y), class_means(X, y)
    generated = np.array([model.generate(s).mean(axis=0) for s in S])
    assert ((generated - M) ** 2).sum() < 0.05 * ((M - M.mean(axis=0)) ** 2).sum()
    # Scores are log-densities of Gaussians with one covariance.
    R = np.vstack([model.generate(s) - m for s, m in zip(S, generated)])
    cov = R.T @ R / len(R)
    cov = 0.5 * cov + 0.5 * np.trace(cov) / 5 * np.eye(5)
    expected = np.column_stack([multivariate_normal(model.generate(s).mean(axis=0), cov).logpdf(X) for s in Z_unseen])
    scores = model.scores(X)
    assert_allclose(scores - scores[:, :1], expected - expected[:, :1], atol=1e-8)
