"""Models whose published objective is not known in full: optimality of the objectives that their docstrings state."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.linalg import solve_sylvester, subspace_angles
from scipy.sparse.csgraph import connected_components
from sklearn.cross_decomposition import CCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from zsl.graph import neighbour_laplacian
from zsl.linalg import class_means, cosines
from zsl.models import LESDStyle, MFMRJointStyle, MFMRStyle, RidgeReverse


@pytest.fixture
def problem(rng):
    y = np.arange(90) % 6
    S = rng.standard_normal((6, 4))
    X = S[y] @ rng.standard_normal((4, 5)) + 0.5 * rng.standard_normal((90, 5))
    return X, y, S[y], rng.standard_normal((3, 4))


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
