"""Naming of clusters: the likelihood against SciPy, the sampler against all assignments, recovery of true names, and
when the inductive rule answers."""

import itertools
import re

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp, softmax
from scipy.stats import multivariate_normal
from sklearn.metrics import log_loss

from zsl.inference import namer as module
from zsl.inference.clusters import clusterings, estimate_together, k_means_start
from zsl.inference.namer import Namer
from zsl.inference.naming import naming, naming_skill
from zsl.inference.reliability import best_named, held_out_sets, reliability
from zsl.inference.statistics import Reliability, SeenStatistics
from zsl.linalg import squared_distances, standard_scores, unit_rows


def problem(seed=0, C=20, M=4, q=12, p=15, n=30, noise=0.2):
    """Classes whose mean directions follow from their attributes, and images of the last M of them."""
    rng = np.random.default_rng(seed)
    S = unit_rows(rng.standard_normal((C + M, q)))
    means = unit_rows(S @ rng.standard_normal((q, p)))
    y = np.repeat(np.arange(M), n)
    X = means[C + y] + noise * rng.standard_normal((M * n, p))
    return X, y, S[C:], SeenStatistics(np.eye(p), 0.8 * means[:C], S[:C], 20.0)


def test_the_likelihood_is_that_of_the_gaussian_process():
    _, _, Z, seen = problem(M=3, p=4)
    namer = Namer(seen, Z, noise=0.5, width=0.7, temper=1.0)
    means = unit_rows(np.random.default_rng(1).standard_normal((3, 4)))

    def kernel(A, B):
        return 0.5 * A @ B.T + 0.5 * np.exp(-squared_distances(A, B) / (2 * 0.49))

    S, Y = seen.attributes, seen.means - seen.means.mean(axis=0)
    inverse = np.linalg.inv(kernel(S, S) + 0.5 * np.eye(len(S)))
    mu = kernel(Z, S) @ inverse @ Y
    covariance = kernel(Z, Z) - kernel(Z, S) @ inverse @ kernel(S, Z) + 0.5 * np.eye(3)
    v = np.trace(Y.T @ inverse @ Y) / Y.size
    expected = []
    for pi in itertools.permutations(range(3)):
        R = means[list(pi)] - seen.means.mean(axis=0)
        expected.append(sum(multivariate_normal.logpdf(R[:, j], mu[:, j], v * covariance) for j in range(4)))
    L, G = namer.quadratic(means)
    found = [float(namer.likelihood(L, G, np.array(pi))) for pi in itertools.permutations(range(3))]
    # Equal up to a constant that all namings share.
    assert_allclose(np.array(found) - found[0], np.array(expected) - expected[0], atol=1e-9)


def test_the_exchange_of_two_names_changes_the_likelihood_by_its_gain():
    _, _, Z, seen = problem(M=6)
    namer = Namer(seen, Z, 1.0, 0.7, 1.5)
    L, G = namer.quadratic(np.random.default_rng(2).standard_normal((6, 15)))
    pi = np.array([3, 0, 5, 1, 4, 2])
    for c, d in itertools.combinations(range(6), 2):
        other = pi.copy()
        other[[c, d]] = pi[[d, c]]
        change = float(namer.likelihood(L, G, other) - namer.likelihood(L, G, pi))
        assert_allclose(namer._gain(L, G, pi, c, d), change, atol=1e-10)
        assert_allclose(namer._gains(L, G, pi)[[c, d], [d, c]], change, atol=1e-10)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.slow
def test_the_sampler_agrees_with_all_assignments(seed, monkeypatch):
    _, _, Z, seen = problem(seed, M=5)
    namer = Namer(seen, Z, 1.0, 0.7, 1.5)
    means = unit_rows(np.random.default_rng(seed).standard_normal((5, 15)))
    L, G = namer.quadratic(means)
    pi = np.array([*itertools.permutations(range(5))])
    weights = softmax(namer.temper * namer.likelihood(L, G, pi))
    exact = np.array([[weights[pi[:, c] == k].sum() for c in range(5)] for k in range(5)])
    assert_allclose(namer.names(means, np.random.default_rng(0)).N, exact, atol=1e-12)
    monkeypatch.setattr(module, "_EXACT_UP_TO", 0)
    monkeypatch.setattr(module, "_N_STEPS", 100_000)
    sampled = namer.names(means, np.random.default_rng(0))
    assert_allclose(sampled.N, exact, atol=0.04)
    assert_allclose(sampled.N.sum(axis=0), 1)
    # The best assignment is found too.
    assert_allclose(sampled.evidence, namer.temper * namer.likelihood(L, G, pi).max(), rtol=1e-9)


@pytest.mark.parametrize("M", [4, 9])
@pytest.mark.slow
def test_names_are_right_where_means_follow_from_attributes_whatever_the_base_scores(M):
    accuracy = []
    for seed in range(5):
        X, y, Z, seen = problem(seed, M=M)
        nothing = np.random.default_rng(seed).standard_normal((len(X), M))
        accuracy.append(np.mean(naming(nothing, X, Z, seen, cautious=False).argmax(axis=1) == y))
    assert np.mean(accuracy) > 0.9
    # Without a likelihood, and without a place where attributes expect a class, all names are equally probable.
    _, _, Z, seen = problem(0, M=M)
    N = Namer(seen, Z, 1.0, 0.7, temper=0.0).names(unit_rows(X[:M]), np.random.default_rng(0)).N
    assert_allclose(N, 1 / M, atol=0.03 if M > 7 else 1e-9)
    if M <= 7:
        flat = naming(nothing, X, Z, seen, cautious=False, temper=0.0, pull=0.0)
        assert_allclose(np.exp(flat), 1 / M, atol=1e-6)


def test_in_the_last_step_a_class_without_images_stays_where_attributes_expect_it():
    """With an infinite pull the posterior is that of classes at their expected means, and shares that EM estimates."""
    X, y, Z, seen = problem(0)
    U, namer = unit_rows(X), Namer(seen, Z, 1.0, 0.7, 3.0)
    start = np.full((len(U), 4), 0.25)
    P = estimate_together(U, start, 20.0, 1e9 * namer.expected)
    logits = 20.0 * U @ unit_rows(namer.expected).T
    shares = start.mean(axis=0)
    for _ in range(10):
        expected = softmax(logits + np.log(shares), axis=1)
        shares = expected.mean(axis=0)
    assert_allclose(P, expected, atol=1e-6)
    assert np.mean(P.argmax(axis=1) == y) > 0.9
    # Without any pull it is EM of the mixture, whose likelihood never falls.
    free, value = start + 0.1 * np.eye(4)[y], -np.inf
    for _ in range(5):
        means, log_shares = unit_rows(free.T @ U), np.log(free.mean(axis=0))
        free = estimate_together(U, free, 20.0, np.zeros((4, 15)))
        likelihood = logsumexp(20.0 * U @ means.T + log_shares, axis=1).mean()
        assert likelihood >= value - 1e-12
        value = likelihood


@pytest.mark.parametrize("cautious", [True, False])
def test_permutations_and_seeds(cautious):
    X, _, Z, seen = problem(1, noise=0.6)
    scores, kept = X @ seen.prototypes(Z).T, {"reliability": Reliability(0.9, 0.5), "cautious": cautious}
    base = naming(scores, X, Z, seen, **kept)
    rows, columns = np.random.default_rng(0).permutation(len(X)), np.array([2, 0, 3, 1])
    assert_allclose(naming(scores[rows], X[rows], Z, seen, **kept), base[rows], atol=1e-6)
    assert_allclose(naming(scores[:, columns], X, Z[columns], seen, **kept), base[:, columns], atol=1e-6)
    assert_array_equal(naming(scores, X, Z, seen, **kept), base)
    assert_allclose(np.exp(base).sum(axis=1), 1)


DEGENERATE = ["one class", "two classes", "one image", "identical", "zero", "classes alike", "seen alike"]


def degenerate(case, X, Z, seen):
    """Images, classes and statistics that tell little or nothing."""
    if case in ("one class", "two classes"):
        Z = Z[: 1 + (case == "two classes")]
    elif case == "one image":
        X = X[:1]
    elif case == "identical":
        X = np.repeat(X[:1], 20, axis=0)
    elif case == "zero":
        X = np.zeros_like(X)
    elif case == "classes alike":
        Z = np.repeat(Z[:1], 4, axis=0)
    else:
        seen = seen._replace(means=np.repeat(seen.means[:1], 20, axis=0))
    return X, Z, seen


@pytest.mark.parametrize("case", DEGENERATE)
def test_degenerate_input(case):
    X, _, Z, seen = problem(0)
    X, Z, seen = degenerate(case, X, Z, seen)
    for cautious in (True, False):
        out = naming(np.zeros((len(X), len(Z))), X, Z, seen, Reliability(0.9, 0.5), cautious=cautious)
        assert out.shape == (len(X), len(Z))
        assert np.isfinite(out).all()


def test_clusterings_find_separate_clusters_from_any_start():
    X, y, *_ = problem(2)
    U = unit_rows(X)
    starts = [k_means_start(U, 4, np.random.default_rng(s)) for s in range(5)]
    assert all(np.allclose(np.linalg.norm(means, axis=1), 1) for means in starts)
    found = clusterings(U, np.random.default_rng(0).standard_normal((len(U), 4)), 20.0, 6, np.random.default_rng(0))
    assert len(found) == 10
    pure = [len({tuple(row) for row in np.unique(np.c_[y, m.P.argmax(axis=1)], axis=0)}) == 4 for m in found[4:]]
    assert sum(pure) >= 4


# --- when the inductive rule answers ------------------------------------------------------------------------------


def own_names(X, Z, seen):
    """Scores that name images at random."""
    return np.random.default_rng(3).standard_normal((len(X), len(Z)))


def test_attributes_that_follow_the_means_are_naming_skill_and_others_are_not():
    told, shuffled = [], []
    for seed in range(8):
        _, _, Z, seen = problem(seed)
        told.append(naming_skill(seen, len(Z), 1.0, 0.7, 3.0))
        other = np.random.default_rng(seed).permutation(len(seen.means))
        shuffled.append(naming_skill(seen._replace(means=seen.means[other]), len(Z), 1.0, 0.7, 3.0))
    assert min(told) > 0.4
    assert max(shuffled) < 0.3
    # Without any weight of the likelihood names are as good as chance, and no two classes can be held out of three.
    assert naming_skill(seen, len(Z), 1.0, 0.7, 0.0) == pytest.approx(0, abs=1e-12)
    assert naming_skill(seen._replace(means=seen.means[:3], attributes=seen.attributes[:3]), 2, 1.0, 0.7, 3.0) == 0


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (
            "attributes of other classes",
            r"means of held-out seen classes well enough \(skill -?\d\.\d\d, where 0",
        ),
        ("few seen classes", "fewer than four seen classes cannot show"),
        ("few images", "7 test images are too few for clusters of 4 classes"),
        (
            "impure clusters",
            "right for 48% of the images at best and the base rule for 79%; clusters need 10% more",
        ),
        (
            "classes alike",
            "clusters are expected to be right for .*; clusters need 10% more, so the base rule answers",
        ),
    ],
)
def test_the_inductive_rule_answers_where_clusters_are_no_better_guide(case, reason, caplog):
    X, _, Z, seen = problem(0)
    trusted = Reliability(0.95, 0.3)
    if case == "attributes of other classes":
        seen = seen._replace(means=np.random.default_rng(0).permutation(seen.means))
    elif case == "few seen classes":
        trusted = None
    elif case == "few images":
        X = X[::18][:7]
    elif case == "classes alike":
        Z, trusted = np.repeat(Z[:1], 4, axis=0), Reliability(0.95, 0.8)
    else:
        trusted = Reliability(0.3, 2.0)
    base = own_names(X, Z, seen)
    with caplog.at_level("INFO", logger="zsl.inference.naming"):
        found = naming(base, X, Z, seen, trusted)
    assert re.search(reason, caplog.text)
    assert_array_equal(np.argsort(found, axis=1), np.argsort(base, axis=1))
    assert_allclose(np.exp(found).sum(axis=1), 1)


def test_clusters_answer_where_they_are_the_better_guide(caplog):
    X, y, Z, seen = problem(0)
    with caplog.at_level("INFO", logger="zsl.inference.naming"):
        found = naming(own_names(X, Z, seen), X, Z, seen, Reliability(0.95, 0.3))
    assert "so clusters answer" in caplog.text
    assert np.mean(found.argmax(axis=1) == y) > 0.95


def labelled(noise, C=10, p=15, n=30):
    rng = np.random.default_rng(0)
    S = unit_rows(rng.standard_normal((C, 12)))
    means = unit_rows(S @ rng.standard_normal((12, p)))
    y = np.repeat(np.arange(C), n)
    return means[y] + noise * rng.standard_normal((C * n, p)), y, SeenStatistics(np.eye(p), means, S, 20.0)


def test_clusters_are_as_pure_as_classes_are_apart():
    found = [reliability(seen, X, y, n_unseen=4) for X, y, seen in map(labelled, (0.02, 0.3, 3.0))]
    # k-means may split a class even there.
    assert found[0].cluster_accuracy > 0.9
    assert found[0].cluster_accuracy > found[1].cluster_accuracy > found[2].cluster_accuracy > 0.25  # chance
    assert found[2].cluster_accuracy < 0.45
    assert found[0].inverse_temperature > found[1].inverse_temperature > found[2].inverse_temperature


def test_inverse_temperature_minimises_the_negative_log_likelihood():
    X, y, seen = labelled(0.3)
    inverse_temperature = reliability(seen, X, y, n_unseen=4).inverse_temperature

    def loss(factor):
        losses = []
        for held in held_out_sets(seen.attributes, 4):
            kept = np.setdiff1d(np.arange(10), held)
            others = seen._replace(means=seen.means[kept], attributes=seen.attributes[kept])
            mine = np.isin(y, held)
            scores = standard_scores(seen.directions(X[mine]) @ others.prototypes(seen.attributes[held]).T)
            truth = np.searchsorted(held, y[mine])
            losses.append(log_loss(truth, softmax(factor * scores, axis=1), labels=range(4)))
        return np.mean(losses)

    assert loss(inverse_temperature) <= min(loss(0.98 * inverse_temperature), loss(1.02 * inverse_temperature))


@pytest.mark.parametrize("n_clusters", [3, 4])
def test_the_best_names_are_those_of_all_assignments(n_clusters):
    rng = np.random.default_rng(4)
    P, y = rng.random((40, n_clusters)), np.repeat(np.arange(3), [5, 15, 20])
    clusters = P.argmax(axis=1)
    best = max(
        np.mean([np.mean(clusters[y == c] == pi[c]) for c in range(3)])
        for pi in itertools.permutations(range(n_clusters), 3)
    )
    assert best_named(P, y) == pytest.approx(best, abs=1e-12)


def test_no_unseen_class_and_every_seen_class_is_held_out():
    seen = unit_rows(np.random.default_rng(0).standard_normal((12, 5)))
    sets = held_out_sets(seen, 4)
    assert all(len(np.unique(held)) == 4 for held in sets)
    assert set(np.concatenate(sets)) == set(range(12))
    # Every second set is a class with the classes most similar to it.
    for held in sets[1::2]:
        assert any(set(held) == set(np.argsort(-(seen @ seen[c]), kind="stable")[:4]) for c in held)
