"""Statistics of the seen classes, against plain formulas."""

import numpy as np
import pytest

from zsl.inference.statistics import code_compatibility, concentration, seen_statistics, whitening
from zsl.linalg import unit_rows


@pytest.fixture
def images():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(4), 30)
    X = rng.normal(size=(4, 6))[y] * 2 + rng.normal(size=(120, 6)) @ rng.normal(size=(6, 6))
    return X, y, rng.normal(size=(4, 3))[y]


def within(X, y):
    R = X - np.stack([X[y == c].mean(axis=0) for c in range(y.max() + 1)])[y]
    return R.T @ R / len(X)


def test_whitening_inverts_the_shrunken_covariance(images):
    X, y, _ = images
    S = within(X, y)
    shrunken = 0.7 * S + 0.3 * np.trace(S) / 6 * np.eye(6)
    W = whitening(X, y)
    np.testing.assert_allclose(W @ W.T @ shrunken, np.eye(6), atol=1e-9)


def test_whitening_of_one_image_per_class_is_the_identity():
    X = np.random.default_rng(0).normal(size=(5, 4))
    np.testing.assert_array_equal(whitening(X, np.arange(5)), np.eye(4))


def test_directions_are_unchanged_by_a_linear_map_without_shrinkage_noise(images):
    # A rotation of feature space changes no cosine between directions.
    X, y, Z = images
    Q = np.linalg.qr(np.random.default_rng(1).normal(size=(6, 6)))[0]
    U, V = (
        s.directions(x) for s, x in ((seen_statistics(None, X, y, Z), X), (seen_statistics(None, X @ Q, y, Z), X @ Q))
    )
    np.testing.assert_allclose(U @ U.T, V @ V.T, atol=1e-9)


def test_concentration_is_the_best_of_a_grid(images):
    X, y, _ = images
    U = unit_rows(X @ whitening(X, y))
    n, sums = np.bincount(y), np.stack([U[y == c].sum(axis=0) for c in range(4)])
    kappa = concentration(U, y, sums, n)

    def loss(k):
        total = 0.0
        for i in range(len(y)):  # by the definition: the image itself left out of its class's mean
            means = [unit_rows((sums[c] - (U[i] if c == y[i] else 0))[None])[0] for c in range(4)]
            logits = k * np.array([U[i] @ m for m in means])
            total += np.log(np.exp(logits).sum()) - logits[y[i]]
        return total

    grid = kappa * np.array([0.8, 0.95, 1.05, 1.25])
    assert all(loss(kappa) <= loss(k) for k in grid)


def test_concentration_without_a_second_image_is_finite():
    U = unit_rows(np.random.default_rng(0).normal(size=(3, 4)))
    assert 1 <= concentration(U, np.arange(3), U, np.ones(3, int)) <= 500


def test_code_compatibility_is_eszsl_on_codes():
    from zsl.linalg import class_sums
    from zsl.models import ESZSL

    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(5), 8)
    A, S = rng.normal(size=(40, 6)), rng.normal(size=(5, 3))
    gamma = 30 * np.square(A).sum(axis=1).mean()
    V = code_compatibility(class_sums(A, y), A.T @ A / len(y), len(y), S)
    expected = ESZSL(gamma=gamma, lam=1.0).fit(A, y, S[y], S[:2]).scores(A, S)
    np.testing.assert_allclose(A @ V @ S.T, expected, atol=1e-9)


def test_prototypes_of_seen_classes_are_near_their_means():
    # As many attributes as classes: ridge regression reproduces the means up to its penalty.
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(4), 50)
    S = np.eye(4)
    X = rng.normal(size=(4, 6))[y] * 10 + rng.normal(size=(200, 6))
    seen = seen_statistics(None, X, y, S[y])
    np.testing.assert_allclose(seen.prototypes(S), unit_rows(seen.means), atol=1e-9)
