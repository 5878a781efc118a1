"""Estimates of class priors: closed forms, recovery of a known prior, monotone likelihood, degenerate input."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import softmax

import zsl
from zsl.errors import UserError
from zsl.inference import rules
from zsl.inference.mixture import mixture
from zsl.inference.priors import (
    class_shares,
    cluster_shares,
    confusion_shares,
    posterior_shares,
    simulated_confusion,
    use_of,
)
from zsl.inference.statistics import SeenStatistics
from zsl.linalg import unit_rows

SHARES = np.array([0.6, 0.3, 0.1])


def directions(n=3000, d=20, resultant=0.7, shares=SHARES, seed=0):
    """Unit rows around orthogonal means, their classes drawn from ``shares``, and the means."""
    rng = np.random.default_rng(seed)
    means = np.eye(len(shares), d)
    y = rng.choice(len(shares), n, p=shares)
    images = resultant * means[y] + np.sqrt((1 - resultant**2) / d) * rng.standard_normal((n, d))
    return unit_rows(images), y, means


def true_posterior(U, means, resultant=0.7):
    """Under equal shares, by Bayes' rule for the Gaussian noise of :func:`directions`."""
    return softmax(resultant * (U @ means.T) / ((1 - resultant**2) / means.shape[1]), axis=1)


@pytest.mark.parametrize("how", ["cpe", "bbse", "em"])
@pytest.mark.parametrize("resultant", [0.6, 0.9])
def test_each_estimate_recovers_a_known_prior(how, resultant):
    errors = []
    for seed in range(5):
        U, y, means = directions(resultant=resultant, seed=seed)
        found = class_shares(how, U, means, true_posterior(U, means, resultant), resultant=resultant)
        assert_allclose(found.sum(), 1)
        errors.append(found - np.bincount(y) / len(y))
    assert np.abs(np.mean(errors, axis=0)).max() < 0.03
    assert np.abs(errors).max() < 0.05


def test_confusion_is_undone_exactly_where_it_is_known():
    rng = np.random.default_rng(0)
    C = rng.dirichlet(np.ones(5), size=5).T + np.eye(5)
    C /= C.sum(axis=0)
    shares = rng.dirichlet(np.ones(5))
    assert_allclose(confusion_shares(C, C @ shares, penalty=0.0), shares, atol=1e-12)
    # Without confusion the shares are the counts; with a huge penalty they are equal; two classes that nothing tells
    # apart share what they have.
    assert_allclose(confusion_shares(np.eye(5), shares, penalty=0.0), shares)
    assert_allclose(confusion_shares(C, C @ shares, penalty=1e9), 0.2, atol=1e-6)
    same = np.array([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])
    assert_allclose(confusion_shares(same, np.array([0.3, 0.3, 0.4]), penalty=0.0), [0.3, 0.3, 0.4], atol=1e-12)


def test_simulated_confusion_is_that_of_new_images():
    U, y, means = directions(n=60_000, resultant=0.45, shares=np.full(3, 1 / 3))
    predicted = (U @ means.T).argmax(axis=1)
    counted = np.array([[np.mean(predicted[y == true] == c) for true in range(3)] for c in range(3)])
    assert counted[0, 1] > 0.02
    assert np.abs(simulated_confusion(means, 0.45) - counted).max() < 0.05


def test_em_never_lowers_the_likelihood_and_stops_at_a_fixed_point():
    U, _, means = directions(resultant=0.5)
    P = true_posterior(U, means, 0.5)
    shares, values = np.full(3, 1 / 3), []
    for _ in range(30):
        values.append(np.log(P @ shares).mean())
        shares = (P * shares / (P @ shares)[:, None]).mean(axis=0)
    assert (np.diff(values) >= -1e-14).all()
    found = posterior_shares(P)
    assert_allclose((P * found / (P @ found)[:, None]).mean(axis=0), found, atol=1e-6)
    assert np.log(P @ found).mean() >= values[-1] - 1e-9


def test_clusters_are_those_of_k_means_from_the_same_start():
    from sklearn.cluster import KMeans

    U, _, means = directions(resultant=0.9)
    # With well separated clusters the spherical and the Euclidean version end at the same division.
    labels = KMeans(3, init=means, n_init=1).fit(U).labels_
    assert_allclose(cluster_shares(U, means), np.bincount(labels) / len(U))


@pytest.mark.parametrize("how", ["uniform", "cpe", "bbse", "em"])
@pytest.mark.parametrize("M", [1, 2])
def test_one_class_one_image_and_equal_means(how, M):
    means = np.tile(np.eye(1, 6), (M, 1))
    for U in (np.eye(1, 6), np.zeros((3, 6))):
        found = class_shares(how, U, means, np.full((len(U), M), 1 / M), resultant=1.0)
        assert found.shape == (M,)
        assert_allclose(found.sum(), 1)


@pytest.mark.parametrize("given", [[1.0], [-1.0, 2.0], [0.0, 0.0], [float("nan"), 1.0]])
def test_shares_that_fit_no_classes_are_refused(given):
    with pytest.raises(UserError, match=r"inference\.mixture\.class_prior=.* does not fit 2 classes; give one share"):
        class_shares(given, np.eye(2), np.eye(2), np.eye(2))


@pytest.mark.slow
def test_the_mixture_keeps_to_the_shares():
    U, y, means = directions(n=300)
    seen = SeenStatistics(np.eye(20), 0.7 * means, np.eye(3), 15.0)
    assert seen.resultant == pytest.approx(0.7)
    scores = U @ means.T
    P = np.exp(mixture(scores, U, seen, class_prior=SHARES.tolist()))
    assert_allclose(P.mean(axis=0), SHARES, rtol=1e-5)
    for how in ("cpe", "bbse", "em"):
        P = np.exp(mixture(scores, U, seen, class_prior=how))
        assert np.abs(P.mean(axis=0) - np.bincount(y) / 300).max() < 0.06
    # A class of share zero gets nothing, without a logarithm of zero.
    P = np.exp(mixture(scores, U, seen, class_prior=[0.5, 0.5, 0.0]))
    assert_allclose(P.mean(axis=0), [0.5, 0.5, 0.0], atol=1e-5)


def test_spreading_takes_estimated_shares_and_says_what_it_cannot_estimate():
    U, y, means = directions(n=300, resultant=0.9)
    U = U[:, :6]
    for how in ("cpe", "em"):
        found = zsl.inference.spread(U, means[:, :6], class_prior=how)
        assert np.mean(found.argmax(axis=1) == y) > 0.95
    with pytest.raises(UserError, match=r"class_prior=bbse simulates images .*use cpe or em, or inference\.labels="):
        zsl.inference.spread(U, means[:, :6], class_prior="bbse")


def test_a_result_declares_what_was_assumed_and_not_what_was_estimated():
    rule = rules.find("labels", "mixture")
    for how in (None, "cpe", "bbse", "em"):
        assert not any("class prior" in use for use in rule.information({"class_prior": how}))
    assert "class prior: classes are equally frequent" in rule.information({"class_prior": "uniform"})
    assert use_of([0.5, 0.5]) == "class prior: given frequencies"
    assert_array_equal(class_shares([2.0, 6.0], np.eye(2), np.eye(2), np.eye(2)), [0.25, 0.75])
