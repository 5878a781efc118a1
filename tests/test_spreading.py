"""Label spreading: Eq. (10) against Eq. (9), against scikit-learn, and on graphs that fall apart."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from zsl.inference import nearest, spread
from zsl.inference.graph import gaussian_graph, normalised
from zsl.inference.spreading import spread_labels


def dense_graph(V, sigma):
    D = ((V[:, None] - V[None]) ** 2).sum(-1)
    W = np.exp(-D / (2 * sigma**2))
    np.fill_diagonal(W, 0)
    return W


@given(seed=st.integers(0, 10_000), mu=st.floats(1e-3, 10), k=st.integers(1, 9))
def test_closed_form_and_stationarity(seed, mu, k):
    rng = np.random.default_rng(seed)
    S = normalised(gaussian_graph(rng.standard_normal((12, 3)), k, None))
    Y = np.eye(12, 4)
    F = spread_labels(S, Y, mu)
    # Eq. (9), each pair counted once, is stationary where F - S F + mu (F - Y) = 0.
    assert_allclose(F - S @ F + mu * (F - Y), 0, atol=1e-8)
    exact = mu / (1 + mu) * np.linalg.solve(np.eye(12) - S.toarray() / (1 + mu), Y)
    assert_allclose(F, exact, atol=1e-8)
    assert F.min() > -1e-10  # the inverse of an M-matrix is non-negative


def test_two_nodes_by_hand():
    # One class, one image, joined: S = [[0, 1], [1, 0]]. With mu = 1: F = 1/2 (I - S/2)^-1 Y = 1/2 [4/3, 2/3].
    S = sp.csr_array(np.array([[0.0, 1.0], [1.0, 0.0]]))
    assert_allclose(spread_labels(S, np.array([[1.0], [0.0]]), 1.0), [[2 / 3], [1 / 3]])


def test_is_label_spreading_at_alpha_one_over_one_plus_mu(rng):
    from sklearn.semi_supervised import LabelSpreading

    M, L, sigma, mu = 3, 30, 0.8, 0.25
    V = rng.standard_normal((M + L, 4))
    F = spread_labels(normalised(sp.csr_array(dense_graph(V, sigma))), np.eye(M + L, M), mu)
    oracle = LabelSpreading(kernel="rbf", gamma=1 / (2 * sigma**2), alpha=1 / (1 + mu), tol=1e-13, max_iter=10_000)
    oracle.fit(V, np.r_[np.arange(M), -np.ones(L, int)])
    assert_allclose(F / F.sum(axis=1, keepdims=True), oracle.label_distributions_, atol=1e-8)


@given(seed=st.integers(0, 10_000), k=st.integers(1, 30), duplicates=st.booleans())
def test_graph_properties(seed, k, duplicates):
    rng = np.random.default_rng(seed)
    V = rng.standard_normal((15, 3))
    if duplicates:
        V[5:10] = V[4]
    W = gaussian_graph(V, k, 0.9)
    dense = W.toarray()
    assert (np.diag(dense) == 0).all()
    assert_allclose(dense, dense.T)
    assert (dense <= dense_graph(V, 0.9) + 1e-12).all()
    nonzero = dense > 0
    assert_allclose(dense[nonzero], dense_graph(V, 0.9)[nonzero], rtol=1e-7)
    assert (nonzero.sum(axis=1) >= min(k, 14)).all()
    if k >= 14:
        assert_allclose(dense, dense_graph(V, 0.9), rtol=1e-7)
    eigenvalues = np.linalg.eigvalsh(normalised(W).toarray())
    assert np.abs(eigenvalues).max() <= 1 + 1e-9


def test_well_separated_clusters_follow_their_class(rng):
    # The first image of each cluster is nearest to its class, the last one nearer to the other class.
    t = np.linspace(0, 3, 40)
    arm = np.column_stack([t, np.zeros_like(t)])
    Z_hat = np.vstack([arm, arm + [2.0, 1.0]])
    Z = np.array([[0.0, 0.0], [2.0, 1.0]])
    y = np.repeat([0, 1], 40)
    assert (nearest(Z_hat, Z).argmax(axis=1) == y).mean() < 0.9
    assert (spread(Z_hat, Z, n_neighbors=5, unit=False).argmax(axis=1) == y).all()


def test_images_cut_off_from_every_class_take_the_nearest(caplog):
    # Two far clusters; the classes sit in the first.
    Z_hat = np.array([[0.0, 0.1], [0.1, 0.0], [100.0, 0.0], [100.0, 0.1], [100.1, 0.0]])
    Z = np.array([[0.0, 0.0], [1.0, 0.0]])
    with caplog.at_level(logging.INFO):
        F = spread(Z_hat, Z, n_neighbors=2, unit=False, sigma=1.0)
    assert_allclose(F[2:], nearest(Z_hat[2:], Z))
    assert "3 of 5 test images are connected to no class" in caplog.text
    assert np.isfinite(F).all()


@pytest.mark.parametrize(
    "Z_hat", [np.ones((1, 3)), np.ones((6, 3)), np.zeros((4, 3)), np.repeat(np.eye(3), 5, axis=0)], ids=str
)
@pytest.mark.parametrize("M", [1, 3])
def test_degenerate_inputs_are_finite(Z_hat, M):
    F = spread(Z_hat, np.eye(3)[:M])
    assert F.shape == (len(Z_hat), M)
    assert np.isfinite(F).all()


def test_orders_and_rotations_do_not_matter(rng):
    Z_hat, Z = rng.standard_normal((25, 4)), rng.standard_normal((3, 4))
    F = spread(Z_hat, Z)
    Q = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    assert_allclose(spread(Z_hat[::-1] @ Q, Z[::-1] @ Q)[::-1, ::-1], F, atol=1e-8)


def test_scale_of_the_predictions_does_not_matter_with_unit(rng):
    Z_hat, Z = rng.standard_normal((25, 4)), rng.standard_normal((3, 4))
    assert_allclose(spread(0.1 * Z_hat, Z), spread(Z_hat, Z), atol=1e-8)
