"""Label spreading: Eq. (10) against Eq. (9), against scikit-learn, and on graphs that fall apart."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from zsl.bench.spreading import growth, measure, measure_sklearn, problem
from zsl.errors import UserError
from zsl.experiment.loading import load_dataset
from zsl.graph import Neighbours, gaussian_weights, neighbours, normalised, solve_spreading
from zsl.inference import aware, nearest, spread
from zsl.inference.spreading import spread_report, with_class_prior
from zsl.models import CoupledDictionaries


def gaussian_graph(V, k, sigma):
    return gaussian_weights(neighbours(V, k), sigma)


def spread_labels(S, Y, mu):
    return solve_spreading(S, Y, mu).F


def spread_labels_dense(S, Y, mu):
    return mu / (1 + mu) * np.linalg.solve(np.eye(S.shape[0]) - S.toarray() / (1 + mu), Y)


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
    assert_allclose(F, spread_labels_dense(S, Y, mu), atol=1e-8)
    assert F.min() > -1e-10  # the inverse of an M-matrix is non-negative


def test_two_nodes_by_hand():
    # One class, one image, joined: S = [[0, 1], [1, 0]]. With mu = 1: F = 1/2 (I - S/2)^-1 Y = 1/2 [4/3, 2/3].
    S = sp.csr_array(np.array([[0.0, 1.0], [1.0, 0.0]]))
    for solve in (spread_labels, spread_labels_dense):
        assert_allclose(solve(S, np.array([[1.0], [0.0]]), 1.0), [[2 / 3], [1 / 3]])


@given(seed=st.integers(0, 10_000), mu=st.floats(1e-3, 10), max_iter=st.integers(1, 30))
def test_residual_is_a_certificate(seed, mu, max_iter):
    # Converged or not: the matrix's eigenvalues are at least mu / (1 + mu), so the error is at most |Y| times it.
    rng = np.random.default_rng(seed)
    S = normalised(gaussian_graph(rng.standard_normal((20, 3)), 4, None))
    Y = np.eye(20, 4)
    found = solve_spreading(S, Y, mu, max_iter=max_iter)
    error = np.linalg.norm(found.F - spread_labels_dense(S, Y, mu), axis=0)
    assert (error <= found.residual + 1e-12).all()
    assert found.n_iter <= max_iter
    assert (solve_spreading(S, Y, mu).residual < 1e-9).all()


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
    report = spread_report(Z_hat, Z, n_neighbors=2, unit=False, sigma=1.0)
    assert report.unreached.tolist() == [False, False, True, True, True]
    assert report.n_components == 2
    assert (report.exact, report.recall) == (True, 1.0)
    assert_allclose(report.scores, F)


def test_isolated_images_take_the_nearest_class():
    # So narrow a kernel that every weight underflows: no edge at all, and classes do not reach each other's images.
    Z_hat, Z = np.array([[0.9, 0.1], [0.2, 0.8], [0.4, 0.3]]), np.eye(2)
    report = spread_report(Z_hat, Z, sigma=1e-3, unit=False)
    assert report.unreached.all()
    assert report.n_components == 5
    assert_allclose(report.scores, nearest(Z_hat, Z))


def test_images_too_far_to_tell_from_rounding_take_the_nearest_class():
    # A chain that starts at class 0 and ends beside class 1, which itself is out of reach: with a strong pull the label
    # falls a hundredfold per link, below what the residual vouches for.
    Z_hat = np.column_stack([np.linspace(0.1, 9, 90), np.zeros(90)])
    report = spread_report(Z_hat, np.array([[0.0, 0.0], [9.0, 40.0]]), n_neighbors=1, unit=False, mu=99.0, sigma=0.1)
    reached = ~report.unreached
    assert 0 < reached.sum() < 90
    assert (report.scores[reached, 0] > 0).all()
    assert_allclose(report.scores[~reached], nearest(Z_hat, np.array([[0.0, 0.0], [9.0, 40.0]]))[~reached])


def test_an_unseen_class_without_images_takes_none(rng):
    Z = 3 * np.eye(3)
    Z_hat = Z[np.repeat([0, 1], 20)] + 0.1 * rng.standard_normal((40, 3))
    assert (spread(Z_hat, Z).argmax(axis=1) == np.repeat([0, 1], 20)).all()


def test_duplicated_images_score_alike(rng):
    Z_hat = np.repeat(rng.standard_normal((12, 4)), 2, axis=0)
    F = spread(Z_hat, rng.standard_normal((3, 4)), n_neighbors=30)
    assert_allclose(F[::2], F[1::2], atol=1e-8)


def test_self_tuning_weights_by_hand():
    # On a line at 0, 1, 3 with two neighbours each, a node's scale is the distance to its second neighbour: 3, 2, 3.
    W = gaussian_graph(np.array([[0.0], [1.0], [3.0]]), 2, "self_tuning").toarray()
    expected = np.exp([[-np.inf, -1 / 6, -9 / 9], [-1 / 6, -np.inf, -4 / 6], [-9 / 9, -4 / 6, -np.inf]])
    assert_allclose(W, expected)


def test_self_tuning_does_not_see_the_unit_and_joins_regions_of_any_density(rng):
    V = rng.standard_normal((30, 3))
    assert_allclose(gaussian_graph(100 * V, 8, "self_tuning").toarray(), gaussian_graph(V, 8, "self_tuning").toarray())
    two = np.vstack([V, 1e4 + 100 * V])
    W = gaussian_graph(two, 8, "self_tuning").toarray()
    assert_allclose(W[:30, :30], W[30:, 30:], rtol=1e-6)
    # One width for all leaves the dense region without contrast, or the sparse one nearly without edges.
    fixed = gaussian_graph(two, 8, None).toarray()
    assert np.median(fixed[:30, :30][fixed[:30, :30] > 0]) > 5 * np.median(fixed[30:, 30:][fixed[30:, 30:] > 0])
    assert np.isfinite(gaussian_graph(np.ones((12, 2)), 8, "self_tuning").toarray()).all()


def test_class_prior_by_hand():
    # Rows as shares: (3/4, 1/4) and (1/2, 1/2); masses 5/4 and 3/4. Shares 1/4, 3/4 of two images: columns times
    # (1/2) / (5/4) and (3/2) / (3/4). The third image is not counted.
    F = np.array([[3.0, 1.0], [2.0, 2.0], [0.0, 7.0]])
    scaled = with_class_prior(F, [0.25, 0.75], np.array([True, True, False]), F, np.eye(2))
    assert_allclose(scaled, F * [0.4, 2.0])


def test_class_prior_gives_a_class_its_share(rng):
    # Images lean towards class 0; equal shares move the boundary.
    Z = np.array([[1.0, 0.0], [-1.0, 0.0]])
    y = np.repeat([0, 1], 100)
    Z_hat = np.column_stack([np.where(y == 0, 1.0, -0.1), np.zeros(200)]) + 0.3 * rng.standard_normal((200, 2))
    plain, even = (spread(Z_hat, Z, unit=False, class_prior=c).argmax(axis=1) for c in (None, "uniform"))
    assert (even == y).mean() > (plain == y).mean()
    lopsided = spread(Z_hat, Z, unit=False, class_prior=[9.0, 1.0]).argmax(axis=1)
    assert (lopsided == 0).sum() > (even == 0).sum()


@pytest.mark.parametrize("shares", [[1.0], [1.0, -1.0], [0.0, 0.0], [1.0, float("nan")]])
def test_shares_that_do_not_fit_are_refused(shares):
    with pytest.raises(UserError, match=r"class_prior=.* does not fit 2 classes; give one share for each"):
        spread(np.eye(2), np.eye(2), class_prior=shares)


@pytest.mark.long  # the search is compiled anew in each process, half a minute
def test_approximate_neighbours_are_nearly_the_exact_ones_and_the_same_every_time(caplog):
    Z_hat, _, _ = problem(1500)
    Z_hat[10:20] = Z_hat[9]  # more duplicates than neighbours asked for
    exact = neighbours(Z_hat, 8)
    with caplog.at_level(logging.INFO):
        found, again = (neighbours(Z_hat, 8, exact_up_to=100) for _ in range(2))
    assert_array_equal(found.nodes, again.nodes)
    assert (found.exact, exact.exact, exact.recall) == (False, True, 1.0)
    assert "approximate neighbours of each of 1500 nodes, recall" in caplog.text
    true = np.mean(found.distance <= exact.distance[:, -1:] * (1 + 1e-6) + 1e-9)
    assert true > 0.95
    assert abs(found.recall - true) < 0.02
    assert (found.nodes != np.arange(1500)[:, None])[np.isfinite(found.distance)].all()
    assert_allclose(found.distance, np.linalg.norm(Z_hat[found.nodes] - Z_hat[:, None], axis=2))


@pytest.mark.slow
def test_what_the_search_gives_is_put_in_order(monkeypatch):
    # Its own node anywhere or nowhere, missing neighbours, single-precision distances.
    import pynndescent

    class Given:
        def __init__(self, V, n_neighbors, random_state):
            assert (V.dtype, n_neighbors, random_state) == (np.float32, 3, 0)
            nodes = np.array([[0, 1, 2], [0, 2, 1], [1, 3, 0], [2, -1, -1]])
            self.neighbor_graph = nodes, np.where(nodes >= 0, np.abs(V[nodes, 0] - V), np.inf)

    monkeypatch.setattr(pynndescent, "NNDescent", Given)
    found = neighbours(np.array([[0.0], [0.1], [0.3], [0.7]]), 2, exact_up_to=3)
    assert_array_equal(found.nodes[:3], [[1, 2], [0, 2], [1, 0]])
    assert_allclose(found.distance, [[0.1, 0.3], [0.1, 0.2], [0.2, 0.3], [0.4, np.inf]], atol=1e-15)
    # Node 2's second is at 0.3 where 0.4 (node 3) or less is right; node 3 has one of two.
    assert_allclose(found.recall, 7 / 8)
    assert not found.exact


def test_recall_is_low_for_wrong_neighbours(monkeypatch):
    import pynndescent

    class Wrong:
        def __init__(self, V, n_neighbors, **_):
            far = (np.arange(len(V))[:, None] + len(V) // 2 + np.arange(n_neighbors)) % len(V)
            self.neighbor_graph = far, np.ones(far.shape)

    monkeypatch.setattr(pynndescent, "NNDescent", Wrong)
    assert neighbours(np.arange(1000.0)[:, None], 5, exact_up_to=10).recall < 0.05


def test_neighbours_that_were_not_found_leave_no_edge():
    found = Neighbours(np.array([[1.0, np.inf], [1.0, np.inf]]), np.array([[1, 0], [0, 0]]), 1.0, False)
    for sigma in (None, 1.0, "self_tuning"):
        W = gaussian_weights(found, sigma).toarray()
        assert (np.diag(W) == 0).all()
        assert W[0, 1] == W[1, 0] > 0


@pytest.mark.long
def test_large_path_gives_the_same_labels():
    Z_hat, Z, _ = problem(2000)
    report = spread_report(Z_hat, Z, exact_neighbors_up_to=100)
    assert not report.exact
    assert 0.9 < report.recall <= 1
    assert (report.scores.argmax(axis=1) == spread(Z_hat, Z).argmax(axis=1)).mean() > 0.99


def test_well_separated_synthetic_classes_reach_99_percent():
    # With the 15 seen classes of the preset, 20 attributes cannot be learned from: the unseen ones move as a whole.
    for seed in range(3):
        data = load_dataset("synthetic", overrides=(f"seed={seed}", "dataset.within=0.1", "dataset.n_classes=60"))
        model = CoupledDictionaries(seed=seed).fit(data.X, data.y, data.Z, data.Z_unseen)
        labels = spread(aware(model, data.X_unseen, data.Z_unseen).Z_hat, data.Z_unseen).argmax(axis=1)
        assert (labels == data.y_unseen).mean() >= 0.99


@pytest.mark.long
def test_bench_measures_what_it_says():
    ours, theirs = measure(400), measure_sklearn(400)
    assert (ours.L, theirs.L) == (400, 400)
    assert ours.accuracy > 0.9
    assert theirs.accuracy > 0.9
    assert ours.residual < 1e-9
    assert ours.peak_mb > 10
    grown = [replace(ours, L=L, cpu_seconds=3.0 * L**1.2) for L in (10, 20, 40)]
    assert_allclose(growth(grown), 1.2)


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


def test_tied_distances_leave_nothing_to_the_order_of_rows(rng):
    # Binary attributes: distances are whole numbers, and which of the tied were neighbours once hung on their place.
    Z = rng.permutation(np.array([[i >> k & 1 for k in range(5)] for i in range(32)], dtype=float))[:4]
    Z_hat = rng.integers(0, 2, (200, 5)).astype(float)
    scores = spread(Z_hat, Z)
    images, classes = rng.permutation(200), rng.permutation(4)
    assert_allclose(spread(Z_hat[images], Z), scores[images], atol=1e-12)
    assert_allclose(spread(Z_hat, Z[classes]), scores[:, classes], atol=1e-12)


def test_copies_of_an_image_change_nothing(rng):
    # More copies than neighbours once knew nobody but each other: 920 of 1000 images were unreached.
    Z, Z_hat = rng.standard_normal((4, 6)), rng.standard_normal((50, 6))
    scores = spread(Z_hat, Z)
    report = spread_report(np.repeat(Z_hat, 20, axis=0), Z)
    assert_allclose(report.scores, np.repeat(scores, 20, axis=0), atol=1e-12)
    assert report.scores.shape == (1000, 4)


def test_classes_at_one_point_have_one_score(rng):
    Z = rng.standard_normal((3, 6))
    scores = spread(rng.standard_normal((40, 6)), Z[[0, 1, 1, 2]])
    assert_allclose(scores[:, 1], scores[:, 2])
