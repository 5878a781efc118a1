"""Metrics: ties, few classes, and what a random tie-break would give."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from zsl.errors import UserError
from zsl.evaluation import class_accuracy, evaluate, hit_at, hit_probability, hubness_skew
from zsl.evaluation.hubness import skewness


def test_hits_by_hand():
    scores = np.array([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0], [0.0, 0.0, 1.0]])
    y = np.array([0, 1, 0])
    assert_allclose(hit_probability(scores, y, 1), [1, 0, 0])
    assert_allclose(hit_probability(scores, y, 2), [1, 1, 0.5])
    assert hit_at(scores, y, 3) == 1.0


@given(seed=st.integers(0, 1000), k=st.integers(1, 5))
def test_ties_are_the_expectation_of_a_random_tie_break(seed, k):
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 3, (1, 5)).astype(float)
    y = np.array([2])
    # The mean over all orders of the classes, with ties broken by position, is the expectation.
    import itertools

    hits = []
    for order in itertools.permutations(range(5)):
        ranked = sorted(range(5), key=lambda c: (-scores[0, c], order[c]))
        hits.append(2 in ranked[:k])
    assert_allclose(hit_probability(scores, y, k), np.mean(hits))


def test_constant_scores_are_chance():
    assert_allclose(hit_at(np.zeros((7, 4)), np.arange(7) % 4, 1), 1 / 4)
    assert_allclose(evaluate(np.zeros((7, 4)), np.arange(7) % 4)["acc_class"], 1 / 4)


def test_per_class_accuracy_weighs_classes_not_images():
    scores = np.array([[1.0, 0.0]] * 10)
    y = np.array([0] * 9 + [1])
    metrics = evaluate(scores, y)
    assert_allclose(metrics["hit_1"], 0.9)
    assert_allclose(metrics["acc_class"], 0.5)
    assert class_accuracy(scores, y) == {0: 1.0, 1: 0.0}


def test_class_accuracy_agrees_with_scikit_learn(rng):
    from sklearn.metrics import balanced_accuracy_score, top_k_accuracy_score

    scores, y = rng.random((60, 6)), rng.integers(0, 6, 60)
    metrics = evaluate(scores, y)
    assert_allclose(metrics["acc_class"], balanced_accuracy_score(y, scores.argmax(axis=1)))
    assert_allclose(metrics["hit_3"], top_k_accuracy_score(y, scores, k=3, labels=range(6)))


@pytest.mark.parametrize(("M", "names"), [(1, []), (2, [1]), (3, [1]), (4, [1, 3]), (6, [1, 3, 5])])
def test_hits_that_cannot_miss_are_not_reported(M, names):
    metrics = evaluate(np.zeros((5, M)), np.zeros(5, int))
    assert [n for n in metrics if n.startswith("hit")] == [f"hit_{k}" for k in names]
    assert "acc_class" in metrics


def test_classes_without_images_are_left_out():
    scores = np.eye(3)[[0, 0]]
    assert evaluate(scores, np.array([0, 0]))["acc_class"] == 1.0


def test_nan_scores_are_refused():
    with pytest.raises(UserError, match="1 of 2 images have NaN scores"):
        evaluate(np.array([[1.0, np.nan], [0, 1]]), np.array([0, 1]))


def test_infinite_scores_are_ordered():
    assert hit_at(np.array([[-np.inf, 0.0]]), np.array([1]), 1) == 1.0


def test_skewness(rng):
    from scipy.stats import skew

    counts = rng.integers(0, 50, 12)
    assert_allclose(skewness(counts), skew(counts))
    assert skewness(np.full(4, 3)) == 0.0
    # A single hub that attracts all images is very skewed.
    assert hubness_skew(np.array([[1.0, 0, 0, 0]] * 9)) > 1.1
