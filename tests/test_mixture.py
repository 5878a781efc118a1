"""EM over test images: ascent, oracles, invariances, degenerate input."""

import numpy as np
import pytest
from scipy.special import logsumexp

from zsl.errors import UserError
from zsl.inference.entropy import soft_assignment
from zsl.inference.feature_space import confident_means
from zsl.inference.hubs import csls, inverted_softmax
from zsl.inference.mixture import expectation_maximisation, mixture, spread_features
from zsl.inference.statistics import SeenStatistics
from zsl.linalg import sinkhorn, standard_scores, unit_rows


def problem(seed=0, L=90, M=3, p=8, noise=0.35):
    rng = np.random.default_rng(seed)
    means = unit_rows(rng.normal(size=(M, p)))
    y = rng.integers(M, size=L)
    U = unit_rows(means[y] + noise * rng.normal(size=(L, p)))
    scores = np.eye(M)[y] + 1.2 * rng.normal(size=(L, M))  # an inductive rule that is right more often than not
    seen = SeenStatistics(np.eye(p), means, np.eye(M), 15.0)
    return U, y, scores, seen


def test_one_iteration_by_hand():
    U, prior = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[0.0, 1.0], [0.5, 0.0]])
    found = expectation_maximisation(U, np.eye(2), 2.0, prior, max_iter=1)
    logits = 2 * np.eye(2) + prior - np.log(2)
    P = np.exp(logits - logsumexp(logits, axis=1, keepdims=True))
    np.testing.assert_allclose(found.P, P)
    np.testing.assert_allclose(found.means, unit_rows(P.T @ U))
    np.testing.assert_allclose(found.objective, [logsumexp(logits, axis=1).mean()])


@pytest.mark.parametrize("seed", range(10))
def test_likelihood_never_falls(seed):
    U, _, scores, _ = problem(seed)
    found = expectation_maximisation(U, confident_means(U, scores), 15.0, standard_scores(scores), max_iter=60)
    assert (np.diff(found.objective) >= -1e-12).all()
    np.testing.assert_allclose(found.P.sum(axis=1), 1)


def test_mixture_mends_labels_that_clusters_contradict():
    gains = []
    for seed in range(10):
        U, y, scores, seen = problem(seed)
        gains.append((mixture(scores, U, seen).argmax(axis=1) == y).mean() - (scores.argmax(axis=1) == y).mean())
    assert np.mean(gains) > 0.15
    assert min(gains) > 0


def test_sinkhorn_balances_and_changes_no_balanced_posterior():
    logits = np.random.default_rng(0).normal(size=(40, 4)) * 3 + np.array([0, 1, 2, 3])
    shifted = logits + sinkhorn(logits, np.full(4, 0.25))
    P = np.exp(shifted - logsumexp(shifted, axis=1, keepdims=True))
    np.testing.assert_allclose(P.sum(axis=0), 10, rtol=1e-6)
    np.testing.assert_allclose(sinkhorn(shifted, np.full(4, 0.25)), 0, atol=1e-6)


def test_a_uniform_prior_makes_equal_classes():
    U, _, scores, seen = problem(1)
    P = np.exp(mixture(scores, U, seen, class_prior="uniform"))
    np.testing.assert_allclose(P.sum(axis=0), 30, rtol=1e-5)


def test_permutation_of_images_and_classes():
    U, _, scores, seen = problem(2)
    rows, columns = np.random.default_rng(0).permutation(90), np.array([2, 0, 1])
    for rule in (mixture, spread_features):
        base = rule(scores, U, seen)
        np.testing.assert_allclose(rule(scores[rows], U[rows], seen), base[rows], atol=1e-7)
        np.testing.assert_allclose(rule(scores[:, columns], U, seen), base[:, columns], atol=1e-7)


def test_rotation_of_feature_space():
    U, _, scores, seen = problem(3)
    Q = np.linalg.qr(np.random.default_rng(0).normal(size=(8, 8)))[0]
    np.testing.assert_allclose(mixture(scores, U @ Q, seen), mixture(scores, U, seen), atol=1e-7)


@pytest.mark.parametrize("rule", [mixture, spread_features, csls, inverted_softmax])
@pytest.mark.parametrize("case", ["one class", "one image", "identical", "zero", "a class without images", "ties"])
def test_degenerate_input(rule, case):
    U, _, scores, seen = problem(0)
    if case == "one class":
        scores = scores[:, :1]
    elif case == "one image":
        U, scores = U[:1], scores[:1]
    elif case == "identical":
        U, scores = np.repeat(U[:1], 20, axis=0), np.repeat(scores[:1], 20, axis=0)
    elif case == "zero":
        U = np.zeros_like(U)
    elif case == "a class without images":
        scores = scores - np.array([0, 0, 1e3])
    else:
        scores = np.zeros_like(scores)
    given = (scores,) if rule in (csls, inverted_softmax) else (scores, U, seen)
    out = rule(*given)
    assert out.shape == scores.shape
    assert np.isfinite(out).all()


def test_csls_by_hand():
    S = np.array([[1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]])  # standard scores already
    expected = 2 * S - np.array([1.0, 0.0])  # means of the two best of each class
    np.testing.assert_allclose(csls(S, n_neighbors=2), expected)


def test_inverted_softmax_is_a_distribution_over_images():
    S = np.random.default_rng(0).normal(size=(30, 4))
    np.testing.assert_allclose(np.exp(inverted_softmax(S)).sum(axis=0), 1)


def test_standard_scores():
    S = standard_scores(np.array([[1.0, 2.0, 3.0], [5.0, 5.0, 5.0]]))
    np.testing.assert_allclose(S, [[-np.sqrt(1.5), 0, np.sqrt(1.5)], [0, 0, 0]])


def test_spread_features_of_one_image_keeps_to_the_anchors():
    rng = np.random.default_rng(0)
    seen = SeenStatistics(np.eye(4), rng.standard_normal((3, 4)), rng.standard_normal((3, 2)), 5.0)
    anchors = np.array([[0.1, 0.7, 0.2]])
    x = rng.standard_normal((1, 4))
    assert spread_features(anchors, x, seen).argmax(axis=1) == [1]
    assert (spread_features(np.repeat(anchors, 30, axis=0), np.repeat(x, 30, axis=0), seen).argmax(axis=1) == 1).all()


def test_nonsense_is_refused_in_python_too():
    S, X = np.ones((5, 3)), np.ones((5, 4))
    seen = SeenStatistics(np.eye(4), np.ones((3, 4)), np.ones((3, 2)), 5.0)
    for call in (
        lambda: mixture(S, X, seen, prior_weight=-1),
        lambda: mixture(S, X, seen, confident=2),
        lambda: mixture(np.where(np.eye(5, 3) > 0, np.nan, S), X, seen),
        lambda: csls(S, n_neighbors=0),
        lambda: inverted_softmax(S, temperature=0),
        lambda: soft_assignment(S, S, 1.0, "cauchy"),
        lambda: soft_assignment(S, S, -1.0),
    ):
        with pytest.raises(UserError):
            call()
