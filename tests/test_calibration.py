"""Probabilities, temperature, calibration error and abstaining."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from zsl.errors import UserError
from zsl.evaluation import aurc, calibration_report, ece, fit_temperature, hit_at, nll, probabilities
from zsl.model_selection.decision import common_temperature


def drawn(seed, n=400, n_classes=5, temperature=1.0):
    """Scores (n, C) and labels drawn from their own softmax at a temperature."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n, n_classes))
    P = probabilities(scores, temperature)
    return scores, (rng.random((n, 1)) > np.cumsum(P, axis=1)).sum(axis=1).clip(max=n_classes - 1)


def test_probabilities_by_hand():
    assert_allclose(probabilities(np.log([[1.0, 3.0]]), 1), [[0.25, 0.75]])
    assert_allclose(probabilities(np.log([[1.0, 3.0]]), 0.5), [[0.1, 0.9]])
    assert_allclose(probabilities(np.array([[1e300, 0.0]]), 1e-300), [[1, 0]])  # no overflow


def test_nll_by_hand():
    assert_allclose(nll(np.log([[1.0, 3.0], [1.0, 1.0]]), np.array([1, 0])), -(np.log(0.75) + np.log(0.5)) / 2)
    assert_allclose(nll(np.zeros((3, 7)), np.array([0, 1, 6])), np.log(7))
    assert_allclose(nll(np.array([[0.0, 2000.0]]), np.array([0])), 2000)  # where the probability underflows


def test_two_classes_have_a_closed_form():
    # k of n images right, every score difference d: p = k / n = 1 / (1 + exp(-d / T)), so T = d / log(k / (n - k)).
    scores = np.tile([2.0, 0.0], (10, 1))
    y = np.r_[np.zeros(8, int), np.ones(2, int)]
    assert_allclose(fit_temperature(scores, y), 2 / np.log(4), rtol=1e-9)


@given(seed=st.integers(0, 1000), truth=st.floats(0.2, 5))
def test_temperature_equals_a_grid(seed, truth):
    scores, y = drawn(seed, temperature=truth)
    T = fit_temperature(scores, y)
    grid = np.exp(np.linspace(np.log(0.01), np.log(100), 80))
    losses = [nll(scores, y, t) for t in grid]
    assert nll(scores, y, T) <= min(losses) + 1e-12
    assert abs(np.log(T) - np.log(grid[int(np.argmin(losses))])) < 2 * np.log(grid[1] / grid[0])


@given(seed=st.integers(0, 1000), scale=st.floats(1e-9, 1e9), shift=st.floats(-10, 10))
def test_temperature_follows_the_scale_of_scores(seed, scale, shift):
    scores, y = drawn(seed, 60)
    T = fit_temperature(scores, y)
    assert_allclose(fit_temperature(scale * (scores + shift), y), scale * T, rtol=1e-5)


def test_temperature_finds_the_truth():
    scores, y = drawn(0, 40_000, temperature=0.4)
    assert_allclose(fit_temperature(scores, y), 0.4, rtol=0.02)


def test_temperature_where_there_is_no_optimum(rng):
    y = rng.integers(0, 4, 50)
    deviation = np.sqrt(3 / 16)
    assert_allclose(fit_temperature(np.eye(4)[y], y), 1e-3 * deviation)  # always right: the colder the better
    assert_allclose(fit_temperature(-np.eye(4)[y], y), 1e3 * deviation)  # always wrong: the hotter the better
    assert fit_temperature(np.full((50, 4), 0.1), y) == 1


@given(seed=st.integers(0, 1000), temperature=st.floats(0.05, 20))
def test_temperature_changes_no_rank(seed, temperature):
    scores, y = drawn(seed, 50)
    P = probabilities(scores, temperature)
    assert_allclose(P.sum(axis=1), 1)
    assert (np.argsort(P, axis=1) == np.argsort(scores, axis=1)).all()
    assert hit_at(P, y, 1) == hit_at(scores, y, 1)


def test_ece_by_hand():
    # Two bins of two images: confidence .6 and one of two right; confidence .9 and both right.
    P = np.array([[0.6, 0.4], [0.6, 0.4], [0.9, 0.1], [0.1, 0.9]])
    y = np.array([0, 1, 0, 1])
    assert_allclose(ece(P, y, n_bins=2), (0.1 + 0.1) / 2)
    assert_allclose(ece(P, y, n_bins=1), 0.0, atol=1e-12)  # one bin: mean confidence and accuracy are both 3/4


def test_ece_of_perfect_calibration_is_near_zero():
    scores, y = drawn(1, 40_000)
    honest = ece(probabilities(scores, 1), y)
    assert honest < 1.5 * 0.8 * np.sqrt(0.25 * 15 / 40_000)  # the value for perfect calibration, see the docstring
    assert ece(probabilities(scores, 0.3), y) > 0.1
    # If all confidences are equal to the accuracy, the error is exactly zero.
    assert_allclose(ece(np.tile([0.75, 0.25], (8, 1)), np.array([0, 0, 0, 1] * 2)), 0, atol=1e-12)


@given(seed=st.integers(0, 1000), n_bins=st.integers(1, 80))
def test_ece_is_bounded_and_blind_to_order(seed, n_bins):
    scores, y = drawn(seed, 50)
    P = np.round(probabilities(scores, 1), 1)
    P[:, 0] += 1 - P.sum(axis=1)  # equal confidences
    P = np.abs(P) / np.abs(P).sum(axis=1, keepdims=True)
    order = np.random.default_rng(seed).permutation(50)
    value = ece(P, y, n_bins)
    assert 0 <= value <= 1
    assert_allclose(ece(P[order], y[order], n_bins), value, atol=1e-12)
    # By Jensen's inequality merging all bins cannot raise the error.
    assert value >= ece(P, y, 1) - 1e-12


def test_area_under_risk_and_coverage_by_hand():
    P = np.array([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.7, 0.3]])
    y = np.array([0, 1, 0, 1])
    # Risks at a coverage of 1/4, 1/2, 3/4 and 1; the last two images are equally confident, with half an error each.
    assert_allclose(aurc(P, y), np.mean([0, 1 / 2, 1.5 / 3, 2 / 4]))


def test_risk_of_ties_is_the_mean_over_orders():
    rng = np.random.default_rng(3)
    y = rng.integers(0, 3, 12)
    P = np.eye(3)[rng.integers(0, 3, 12)] * np.repeat([0.4, 0.7], 6)[:, None]
    P += (1 - P.sum(axis=1, keepdims=True)) / 3
    error, confidence = 1 - (P.argmax(axis=1) == y), P.max(axis=1)
    orders = (np.lexsort((rng.random(12), -confidence)) for _ in range(4000))
    areas = [np.mean(np.cumsum(error[order]) / np.arange(1, 13)) for order in orders]
    assert_allclose(aurc(P, y), np.mean(areas), atol=0.01)
    P = np.eye(3)[P.argmax(axis=1)] * 0.4 + 0.2  # equal confidences carry no information
    assert_allclose(aurc(P, y), error.mean())


def test_report_and_refusals():
    scores, y = drawn(2)
    found = calibration_report(scores, y, 2.0)
    assert found == {"temperature": 2.0, "nll": nll(scores, y, 2.0), "ece": ece(probabilities(scores, 2), y),
                     "aurc": aurc(probabilities(scores, 2), y)}  # fmt: skip
    with pytest.raises(UserError, match="temperature=0 is not accepted"):
        probabilities(scores, 0)
    with pytest.raises(UserError, match="infinite scores"):
        fit_temperature(np.where(scores > 1, -np.inf, scores), y)
    with pytest.raises(UserError, match="no probabilities"):
        ece(scores, y)
    with pytest.raises(UserError, match="labels run from"):
        nll(scores, y + 3)
    with pytest.raises(UserError, match="one for each is needed"):
        nll(scores, y[:-1])


def test_one_temperature_for_splits_that_have_none_of_their_own(caplog):
    scores, y = drawn(0)
    sure, unsure = (np.eye(5)[y] * 2.0, y), (np.eye(5)[y] * -2.0, y)
    # Neither perfect nor always wrong scores have an optimal temperature.
    assert_allclose(common_temperature([(scores, y)] * 3), fit_temperature(scores, y))
    together = common_temperature([sure, (scores, y)])
    assert fit_temperature(*sure) < together < fit_temperature(scores, y) * 10
    assert not caplog.records
    # The mean NLL is no larger than that of equal probabilities.
    found = common_temperature([sure, unsure, unsure])
    everything = np.vstack([sure[0], unsure[0], unsure[0]]), np.tile(y, 3)
    assert nll(*everything, found) <= np.log(5) + 1e-3
    assert "hardly tell the validation classes apart" in caplog.text
