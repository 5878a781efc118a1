"""Visual structure constraints, class normalisation and their networks: matchings, alternation, derivatives, limits."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import linear_sum_assignment
from sklearn.kernel_ridge import KernelRidge

from conftest import central_differences, with_test_images
from zsl.linalg import class_means, squared_distances, unit_rows
from zsl.models import BMVSc, CDVSc, ClassNorm, WDVSc, class_norm
from zsl.models.network import Adam, ClassStandardisation, Linear, Network, Rectifier, UnitRows
from zsl.models.vsc import perceptron

KINDS = [CDVSc, BMVSc, WDVSc]


@pytest.fixture
def problem(rng):
    return with_test_images(rng, noise=0.3)


# --- layers ------------------------------------------------------------------------------------------------------


def in_double_precision(network):
    for layer in network.linear:
        layer.W, layer.b = layer.W.astype(float), layer.b.astype(float)
    return network


def derivatives_agree(network, X, value):
    """Whether back-propagation of ``value`` (outputs -> number and slope) agrees with differences, by parameter."""

    def at(flat):
        for parameter, new in zip(network.parameters, np.split(flat, np.cumsum(sizes)[:-1])):
            parameter[...] = new.reshape(parameter.shape)
        return value(network.forward(X, training=True))

    sizes = [parameter.size for parameter in network.parameters]
    flat = np.concatenate([parameter.ravel() for parameter in network.parameters])
    slope = at(flat)[1]
    found = np.concatenate([g.ravel() for g in network.backward(slope)])
    assert_allclose(
        found, central_differences(lambda x: at(x)[0], flat.copy(), step=1e-5), atol=1e-7 * np.abs(found).max()
    )


def layers(rng):
    linear = [Linear(rng.standard_normal((a, b)), rng.standard_normal(b)) for a, b in ((3, 4), (4, 4), (4, 2))]
    standard = [ClassStandardisation(np.zeros(4), np.ones(4)) for _ in range(2)]
    return [linear[0], Rectifier(0.2), linear[1], standard[0], Rectifier(), standard[1], linear[2], UnitRows()]


def test_backward_is_the_derivative_of_forward(rng):
    weights = rng.standard_normal((6, 2))
    derivatives_agree(
        Network(layers(rng)), rng.standard_normal((6, 3)), lambda F: (float((F * weights).sum()), weights)
    )


def test_adam_is_the_published_recursion(rng):
    w, slopes = rng.standard_normal(3), rng.standard_normal((5, 3))
    found = w.copy()
    adam = Adam([found], decay=0.3)
    m = v = np.zeros(3)
    for t, slope in enumerate(slopes, start=1):
        adam.step([slope], rate=0.01)
        g = slope + 0.3 * w
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        w = w - 0.01 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    assert_allclose(found, w, rtol=1e-12)


def test_standardisation_with_frozen_statistics_is_affine_and_divides_by_the_variance(rng):
    layer = ClassStandardisation(np.array([1.0, 2.0]), np.array([4.0, 0.5]))
    A, B = rng.standard_normal((2, 5, 2))
    f = lambda X: layer.forward(X, training=False)  # noqa: E731
    assert_allclose(f(0.3 * A + 0.7 * B), 0.3 * f(A) + 0.7 * f(B), atol=1e-12)
    assert_allclose(f(np.array([[5.0, 2.5]])), [[4 / 4.00001, 0.5 / 0.50001]])
    out = layer.forward(A, training=True)
    assert_allclose(out, (A - A.mean(axis=0)) / (A.var(axis=0, ddof=1) + 1e-5))
    assert_allclose(layer.variance, [0.9 * 4.0, 0.9 * 0.5] + 0.1 * A.var(axis=0, ddof=1))


# --- matchings ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(4, 4), (4, 2)])
def test_matchings_have_the_stated_cost(rng, shape):
    D = rng.random(shape)
    chamfer = sum(D.min(axis=1)) + sum(D.min(axis=0))
    assert_allclose((CDVSc().matching(D) * D).sum(), chamfer, rtol=1e-12)
    M, K = shape
    best = min(sum(D[u, k] for k, u in enumerate(order[:K])) for order in permutations(range(M)))
    assert_allclose((BMVSc().matching(D) * D).sum(), best, rtol=1e-12)
    assert_array_equal(BMVSc().matching(D).sum(axis=0), 1)


def test_transport_plan_has_equal_masses_and_the_cost_of_the_assignment_in_the_limit(rng):
    for _ in range(5):
        D = rng.random((6, 6))
        P = WDVSc(eps=0.05).matching(D)
        assert_allclose(P.sum(axis=0), 1 / 6, atol=1e-8)
        assert_allclose(P.sum(axis=1), 1 / 6, atol=1e-8)
        # P is the minimiser if its logarithm is -D / eps up to a term for each row and one for each column.
        left = np.log(P) + D / 0.05
        assert_allclose(left - left[:, :1] - left[:1] + left[0, 0], 0, atol=1e-9)
        sharp = WDVSc(eps=0.002).matching(D)
        assert_allclose((sharp * D).sum(), D[linear_sum_assignment(D)].sum() / 6, atol=1e-3)


# --- the ridge form ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_without_the_constraint_it_is_kernel_ridge_on_class_means(problem, kind):
    X, y, Z, U, T = problem
    S = class_means(Z, y)
    oracle = KernelRidge(alpha=0.4, kernel="poly", degree=2, gamma=1.0, coef0=1.0).fit(S, unit_rows(class_means(X, y)))
    scores = kind(lam=0.0, gamma=0.4).fit(X, y, Z, U).scores(T)
    assert_allclose(scores, T @ unit_rows(oracle.predict(U)).T, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_alternation_ends_at_weighted_kernel_ridge_for_its_own_matching_and_never_rises(problem, kind):
    X, y, Z, U, T = problem
    model = kind(gamma=0.3, lam=0.05).fit(X, y, Z, U)
    S, b, centres = class_means(Z, y), unit_rows(class_means(X, y)), model.centres(T, 3)
    F, objective = model.alternate(U, centres)
    assert len(objective) >= 2
    assert np.diff(objective).max() <= 1e-12
    P = model.matching(squared_distances(F, centres))
    targets = np.vstack([b, P @ centres / P.sum(axis=1, keepdims=True)])
    oracle = KernelRidge(alpha=0.3, kernel="poly", degree=2, gamma=1.0, coef0=1.0)
    # Weights are in units of a seen class, which has 1 / 2C.
    oracle.fit(np.vstack([S, U]), targets, sample_weight=np.r_[np.ones(6), 2 * 6 * 0.05 * P.sum(axis=1)])
    assert_allclose(F, oracle.predict(U), atol=1e-7)
    G, K = oracle.predict(S), (1 + np.vstack([S, U]) @ np.vstack([S, U]).T) ** 2
    value = (((G - b) ** 2).sum() + 0.3 * (oracle.dual_coef_ * (K @ oracle.dual_coef_)).sum()) / 12
    value += 0.05 * ((P * squared_distances(F, centres)).sum() + model.entropy(P))
    assert_allclose(objective[-1], value, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_with_a_strong_constraint_the_nearest_cluster_wins(problem, kind):
    X, y, Z, U, T = problem
    model = kind(gamma=1e-6, lam=1e3).fit(X, y, Z, U)
    centres = model.centres(T, 3)
    labels = (T @ centres.T).argmax(axis=1)
    found = model.predict(T)
    # The same clusters, under the names of classes.
    assert len({*zip(labels, found)}) == 3
    assert (found == np.arange(60) % 3).mean() > 0.9


def test_centres_do_not_depend_on_the_order_of_images_and_fewer_images_than_classes_are_clusters(problem):
    X, y, Z, U, T = problem
    model = BMVSc().fit(X, y, Z, U)
    assert_allclose(model.centres(T[::-1], 3), model.centres(T, 3), rtol=1e-12)
    few = model.centres(T[:2], 3)
    assert_allclose(np.sort(few, axis=0), np.sort(unit_rows(T[:2]), axis=0), rtol=1e-12)
    assert model.scores(T[:2]).shape == (2, 3)


# --- the network form --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_derivative_of_the_loss_through_the_network(problem, rng, kind):
    X, y, Z, U, T = problem
    # The derivative assumes that the plan has converged, which takes few rounds for this eps.
    settings = {"eps": 0.5} if kind is WDVSc else {}
    model = kind(**settings).fit(X, y, Z, U)
    centres = model.centres(T, 3)
    network = in_double_precision(perceptron(4, 6, 5, rng))
    A = unit_rows(np.vstack([model.S_, U]))
    derivatives_agree(network, A, lambda F: model.loss(F, centres, 0.7))


def test_network_without_constraint_fits_the_class_means(problem):
    X, y, Z, U, _ = problem
    model = BMVSc(form="network", lam=0.0, hidden=48, n_steps=1000).fit(X, y, Z, U)
    F = model.network(model.S_, np.zeros((3, 5)))
    assert_allclose(np.linalg.norm(F, axis=1), 1, rtol=1e-6)
    assert ((F - model.b_) ** 2).sum(axis=1).max() < 0.02


def test_network_form_follows_the_clusters(problem):
    X, y, Z, U, T = problem
    free, bound = (BMVSc(form="network", lam=lam, hidden=48, n_steps=1000).fit(X, y, Z, U) for lam in (0.0, 1.0))
    centres = free.centres(T, 3)
    nearest = [squared_distances(model.network(U, centres), centres).min(axis=1).sum() for model in (free, bound)]
    assert nearest[1] < 0.1 * nearest[0]


# --- class normalisation -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("rectify", [True, False])
def test_derivative_of_the_cross_entropy_through_the_network(problem, rng, rectify):
    X, y, Z, *_ = problem
    network = in_double_precision(class_norm.build(4, 7, 5, rng, rectify))
    derivatives_agree(network, class_means(Z, y), lambda G: class_norm.loss(G, 5 * unit_rows(X), y))


def test_cross_entropy_is_that_of_25_times_the_cosine(problem, rng):
    X, y, *_ = problem
    G = rng.standard_normal((6, 5))
    logits = 25 * unit_rows(X) @ unit_rows(G).T
    assert np.abs(logits).max() <= 25
    expected = np.mean([np.log(np.exp(row).sum()) - row[c] for row, c in zip(logits, y)])
    assert_allclose(class_norm.loss(G, 5 * unit_rows(X), y)[0], expected, rtol=1e-12)


def test_class_norm_scores_are_those_of_its_trained_network(problem):
    X, y, Z, U, T = problem
    model = ClassNorm(hidden=16, n_epochs=40, learning_rate=5e-3, batch_size=30).fit(X, y, Z, U)
    W1, b1, W2, b2, W3, b3 = model.parameters_
    mean1, variance1, mean2, variance2 = model.statistics_
    A = 2 * U / np.linalg.norm(U, axis=1, keepdims=True)
    H = (np.maximum(A @ W1 + b1, 0) @ W2 + b2 - mean1) / (variance1 + 1e-5)
    G = (np.maximum(H, 0) - mean2) / (variance2 + 1e-5) @ W3 + b3
    assert_allclose(model.scores(T), 25 * unit_rows(T) @ unit_rows(G).T, rtol=1e-9)
    assert model.objective_[-1] < 0.5 * model.objective_[0]
    assert (model.scores(X, class_means(Z, y)).argmax(axis=1) == y).mean() > 0.8


@pytest.mark.parametrize("hidden", [64, 128, 256])
def test_first_scores_spread_over_classes_as_those_of_random_directions_whatever_the_size(rng, hidden):
    # The squared cosine of two independent directions in p dimensions has the mean 1 / p.
    S, x, p = rng.standard_normal((40, 12)), unit_rows(rng.standard_normal((200, 50))), 50
    spread = []
    for _ in range(10):
        network = class_norm.build(12, hidden, p, rng, rectify=False)
        network.linear[-1].b[:] = 0  # which all classes share
        G = network.forward(S.astype(np.float32), training=True)
        spread.append((25 * x @ unit_rows(G).T).var(axis=1).mean())
    assert_allclose(np.mean(spread), 625 / p, rtol=0.1)
