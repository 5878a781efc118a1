"""Transductive projections, DIPL and VSOP: closed forms, limits and monotone objectives."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import cdist
from sklearn.cross_decomposition import PLSSVD

from conftest import with_test_images
from zsl.linalg import class_means, unit_rows
from zsl.models import DIPL, SAE, VSOP


@pytest.fixture
def problem(rng):
    return with_test_images(rng)


# --- DIPL --------------------------------------------------------------------------------------------------------


def test_dipl_without_test_images_is_the_semantic_auto_encoder(problem):
    X, y, Z, U, T = problem
    W = SAE(lam=1 / 0.3).fit(X, y, Z, U).W_.T
    found = DIPL(gamma=0.3, lam=0.0).fit(X, y, Z, U)
    assert_allclose(found.alternate(T, U).W, W, atol=1e-12)
    expected = -(cdist(T @ W, U, "sqeuclidean") + 0.3 * cdist(T, U @ W.T, "sqeuclidean"))
    assert_allclose(found.scores(T), expected, rtol=1e-10)


@pytest.mark.parametrize("gamma", [0.1, 5.0])
def test_dipl_solves_the_sylvester_equation_of_its_labels_and_its_objective_never_rises(problem, rng, gamma):
    X, y, Z, U, T = problem
    T = T + rng.standard_normal(T.shape)  # so that labels change
    model = DIPL(gamma=gamma, lam=0.7).fit(X, y, Z, U)
    W, labels, objective = model.alternate(T, U)
    # The weight 0.7 is one of rows scaled by its root.
    X, Z = np.vstack([X, np.sqrt(0.7) * T]), np.vstack([Z, np.sqrt(0.7) * U[labels]])
    assert_allclose(W, scipy.linalg.solve_sylvester(X.T @ X, gamma * Z.T @ Z, (1 + gamma) * X.T @ Z), atol=1e-10)
    assert_allclose(objective[-1], ((X @ W - Z) ** 2).sum() + gamma * ((X - Z @ W.T) ** 2).sum(), rtol=1e-10)
    assert len(objective) > 1
    assert np.diff(objective).max() <= 1e-10 * objective[0]
    assert_array_equal(labels, model.predict(T))


def test_dipl_has_the_least_norm_where_features_and_attributes_lack_directions(problem, rng):
    X, y, Z, U, T = problem
    wide, tall = np.linalg.qr(rng.standard_normal((8, 5)))[0].T, np.linalg.qr(rng.standard_normal((7, 4)))[0].T
    small = DIPL().fit(X, y, Z, U).alternate(T, U).W
    large = DIPL().fit(X @ wide, y, Z @ tall, U @ tall).alternate(T @ wide, U @ tall).W
    assert_allclose(large, wide.T @ small @ tall, atol=1e-10)


# --- VSOP --------------------------------------------------------------------------------------------------------


def by_hand(problem):
    """Features centred over all images and attributes centred over all classes, of unit length."""
    X, y, Z, U, T = problem
    images, classes = np.vstack([X, T]), np.vstack([class_means(Z, y), U])
    images, classes = unit_rows(images - images.mean(axis=0)), unit_rows(classes - classes.mean(axis=0))
    return images[:90], classes[:6][y], classes[6:], images[90:]


def test_vsop_in_closed_form_has_the_directions_of_partial_least_squares(problem):
    X, y, Z, U, T = problem
    model = VSOP(n_components=2).fit(X, y, Z, U)
    A, B, classes, images = by_hand(problem)
    P, Q, objective = model.projections(A, B)
    assert len(objective) == 1
    assert_allclose(-objective[0] / 2, np.linalg.svd(A.T @ B)[1][:2].sum(), rtol=1e-12)
    assert_allclose(model.scores(T), -cdist(images @ P, classes @ Q, "sqeuclidean"), atol=1e-10)
    # scikit-learn centres the rows, which ours need not be; with centred ones both are the same up to signs.
    A, B = A - A.mean(axis=0), B - B.mean(axis=0)
    P, Q, _ = model.projections(A, B)
    oracle = PLSSVD(2, scale=False).fit(A, B)
    assert_allclose(np.abs((P * oracle.x_weights_).sum(axis=0)), 1, rtol=1e-10)
    assert_allclose(np.abs((Q * oracle.y_weights_).sum(axis=0)), 1, rtol=1e-10)


@pytest.mark.parametrize(("gamma_x", "gamma_z"), [(0.5, 1.0), (1.0, 0.3), (0.2, 0.0)])
def test_vsop_rounds_keep_columns_orthonormal_never_raise_the_objective_and_end_stationary(problem, gamma_x, gamma_z):
    X, y, Z, U, _ = problem
    model = VSOP(gamma_x, gamma_z, n_components=2, max_iter=100_000).fit(X, y, Z, U)
    A, B, *_ = by_hand(problem)
    P, Q, objective = model.projections(A, B)
    assert objective[-1] < objective[0]
    assert np.diff(objective).max() <= 1e-9
    value = (
        (1 - gamma_x) * ((A @ P) ** 2).sum() + (1 - gamma_z) * ((B @ Q) ** 2).sum() - 2 * np.trace(P.T @ A.T @ B @ Q)
    )
    assert_allclose(objective[-1], value, rtol=1e-10)
    for V, G in (
        (P, (1 - gamma_x) * A.T @ A @ P - A.T @ B @ Q),
        (Q, (1 - gamma_z) * B.T @ B @ Q - B.T @ A @ P),
    ):
        assert_allclose(V.T @ V, np.eye(2), atol=1e-12)
        # On the Stiefel manifold the derivative G equals V times a symmetric matrix.
        M = V.T @ G
        assert_allclose(G, V @ (M + M.T) / 2, atol=2e-3)


def test_vsop_counts_a_seen_class_among_those_to_choose_from_once(problem):
    X, y, Z, U, T = problem
    model = VSOP().fit(X, y, Z, U)
    both = model.scores(T, np.vstack([class_means(Z, y), U]))
    assert_allclose(both[:, 6:], model.scores(T), atol=1e-12)
