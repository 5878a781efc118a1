"""Hubs, anti-hubs, domain shift."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from zsl.errors import UserError
from zsl.evaluation import attribute_shift, choices, hubness_report, hubness_skew
from zsl.evaluation.hubness import skewness


def test_choices_by_hand():
    scores = np.array([[3.0, 2.0, 1.0], [1.0, 1.0, 0.0], [0.0, 5.0, 5.0]])
    assert_allclose(choices(scores, 1), [1.5, 1, 0.5])
    assert_allclose(choices(scores, 2), [2, 3, 1])
    assert_allclose(choices(scores, 3), [3, 3, 3])
    with pytest.raises(UserError, match="4 best of 3"):
        choices(scores, 4)


@given(seed=st.integers(0, 1000), k=st.integers(1, 4))
def test_choices_are_the_mean_over_random_tie_breaks(seed, k):
    scores = np.random.default_rng(seed).integers(0, 3, (3, 4)).astype(float)
    counts = []
    for order in itertools.permutations(range(4)):
        best = np.lexsort((np.broadcast_to(order, scores.shape), -scores), axis=1)[:, :k]
        counts.append(np.bincount(best.ravel(), minlength=4))
    assert_allclose(choices(scores, k), np.mean(counts, axis=0))
    assert_allclose(choices(scores, k).sum(), 3 * k)


def test_choices_in_blocks(monkeypatch, rng):
    scores = rng.normal(size=(50, 6))
    whole = choices(scores, 2)
    monkeypatch.setattr("zsl.evaluation.hubness._BLOCK", 7)
    assert_allclose(choices(scores, 2), whole)


def test_a_hub():
    scores = np.tile([1.0, 0.0, 0.0, 0.0], (8, 1))
    y = np.zeros(8, int)
    assert hubness_report(scores, y)["hubness_antihubs"] == 0.75
    assert_allclose(hubness_skew(scores), 2 / np.sqrt(3))
    assert hubness_report(np.zeros((8, 4)), y)["hubness_antihubs"] == 0


def test_a_perfect_classifier_of_imbalanced_classes_has_no_excess():
    y = np.repeat(np.arange(7), [60, 5, 5, 4, 3, 2, 1])
    report = hubness_report(np.eye(7)[y], y)
    assert report["hubness_skew"] > 1
    assert_allclose(report["hubness_skew_excess"], 0, atol=1e-12)
    assert report["hubness_antihubs"] == 0
    assert {"hubness_skew_5", "hubness_skew_5_excess"} <= set(report)


def test_report_by_hand():
    scores = np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    y = np.array([0, 1, 2, 1])
    Z = np.array([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]])
    report = hubness_report(scores, y, Z_hat=np.zeros((4, 2)), Z=Z)
    assert report == {
        "hubness_skew": pytest.approx(skewness(np.array([3.0, 1, 0]))),
        "hubness_skew_excess": pytest.approx(skewness(np.array([3.0, 1, 0])) - skewness(np.array([1.0, 2, 1]))),
        "hubness_antihubs": pytest.approx(1 / 3),
        "shift_distance": pytest.approx((0 + 5 + 1 + 5) / 4),
        # Nearest other prototypes at 1, sqrt(18), 1.
        "shift_relative": pytest.approx((0 + 5 / np.sqrt(18) + 1 + 5 / np.sqrt(18)) / 4),
    }
    assert not any(set(name) & set("@%") for name in report)


def test_images_of_unknown_class():
    scores = np.eye(3)[[0, 0, 1, 2]]
    y = np.array([0, -1, 1, 2])
    report = hubness_report(scores, y, np.zeros((4, 1)), np.arange(3.0)[:, None])
    assert report["hubness_skew"] == pytest.approx(hubness_skew(scores))
    assert report["hubness_skew_excess"] == pytest.approx(0)
    assert report["shift_distance"] == pytest.approx(1)
    assert set(hubness_report(scores, np.full(4, -1))) == {"hubness_skew", "hubness_antihubs"}


def test_one_class():
    report = hubness_report(np.zeros((3, 1)), np.zeros(3, int), np.ones((3, 2)), np.zeros((1, 2)))
    assert report == {"hubness_skew": 0, "hubness_skew_excess": 0, "hubness_antihubs": 0,
                      "shift_distance": pytest.approx(np.sqrt(2))}  # fmt: skip


def test_twins_have_no_relative_distance():
    Z = np.array([[1.0, 0.1], [1.0, 0.1], [0.0, 0.0]])
    distance, relative = attribute_shift(np.zeros((2, 2)), np.array([0, 2]), Z)
    assert_allclose(distance, [np.sqrt(1.01), 0])
    assert np.isnan(relative[0])
    assert relative[1] == 0


@given(seed=st.integers(0, 1000))
def test_within_half_the_distance_the_nearest_class_is_right(seed):
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(6, 3))
    y = rng.integers(0, 6, 200)
    Z_hat = Z[y] + rng.normal(size=(200, 3)) * rng.random((200, 1))
    _, relative = attribute_shift(Z_hat, y, Z)
    right = np.linalg.norm(Z_hat[:, None] - Z, axis=2).argmin(axis=1) == y
    assert right[relative < 0.5].all()
    assert (relative < 0.5).any()
