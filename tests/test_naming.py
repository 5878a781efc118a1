"""Naming of clusters: the likelihood against SciPy, the sampler against all assignments, recovery of true names."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import softmax
from scipy.stats import multivariate_normal

from zsl.inference import naming as module
from zsl.inference.naming import Namer, clusterings, k_means_start, naming
from zsl.inference.statistics import SeenStatistics
from zsl.linalg import squared_distances, unit_rows


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


@pytest.mark.parametrize("seed", range(3))
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
def test_names_are_right_where_means_follow_from_attributes_whatever_the_base_scores(M):
    accuracy = []
    for seed in range(5):
        X, y, Z, seen = problem(seed, M=M)
        nothing = np.random.default_rng(seed).standard_normal((len(X), M))
        accuracy.append(np.mean(naming(nothing, X, Z, seen).argmax(axis=1) == y))
    assert np.mean(accuracy) > 0.9
    # Without a likelihood all names are equally probable.
    flat = np.exp(naming(nothing, X, Z, seen, temper=0.0))
    assert_allclose(flat, 1 / M, atol=0.03 if M > 7 else 1e-9)


def test_permutations_and_seeds():
    X, _, Z, seen = problem(1, noise=0.6)
    scores = X @ seen.prototypes(Z).T
    base = naming(scores, X, Z, seen)
    rows, columns = np.random.default_rng(0).permutation(len(X)), np.array([2, 0, 3, 1])
    assert_allclose(naming(scores[rows], X[rows], Z, seen), base[rows], atol=1e-6)
    assert_allclose(naming(scores[:, columns], X, Z[columns], seen), base[:, columns], atol=1e-6)
    assert_array_equal(naming(scores, X, Z, seen), base)
    assert_allclose(np.exp(base).sum(axis=1), 1)


@pytest.mark.parametrize("case", ["one class", "one image", "identical", "zero", "classes alike", "seen alike"])
def test_degenerate_input(case):
    X, _, Z, seen = problem(0)
    if case == "one class":
        Z = Z[:1]
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
    out = naming(np.zeros((len(X), len(Z))), X, Z, seen)
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
