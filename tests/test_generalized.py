"""Generalised zero-shot: offsets, ties, and the exact area against a sweep."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from zsl.errors import UserError
from zsl.evaluation import ausuc, best_offset, class_accuracy, gzsl, seen_unseen_curve

SEEN = np.array([True, True, False, False, False])


def problem(seed, n=30, *, tied=False):
    """Scores (n, 5) that favour seen classes, and labels of both kinds; with ``tied`` scores are small integers."""
    rng = np.random.default_rng(seed)
    y = np.r_[0, 2, rng.integers(0, 5, n - 2)]
    scores = rng.integers(0, 3, (n, 5)).astype(float) if tied else rng.normal(size=(n, 5))
    scores[np.arange(n), y] += 1
    return scores + SEEN * rng.integers(0, 2), y


def sweep(scores, y, seen):
    """Accuracies at every offset that matters, by brute force: the per-class accuracy of shifted scores."""
    gaps = np.unique(scores[:, seen].max(axis=1) - scores[:, ~seen].max(axis=1))
    between = (gaps[1:] + gaps[:-1]) / 2
    offsets = np.sort(np.r_[gaps[0] - 1, gaps, between, gaps[-1] + 1])
    points = []
    for offset in offsets:
        by_class = class_accuracy(scores - offset * seen, y)
        points.append([np.mean([a for c, a in by_class.items() if seen[c] == kind]) for kind in (True, False)])
    return offsets, np.array(points)


def test_by_hand():
    seen = np.array([True, False])
    scores = np.array([[3.0, 1.0], [1.0, 0.0], [2.0, 1.5], [0.0, 1.0]])
    y = np.array([0, 0, 1, 1])
    # Gaps 2, 1, 0.5, -1: without an offset both seen images are right and one of the unseen ones.
    assert gzsl(scores, y, seen) == {"gzsl_seen": 1.0, "gzsl_unseen": 0.5, "gzsl_h": pytest.approx(2 / 3)}
    assert gzsl(scores, y, seen, 0.75) == {"gzsl_seen": 1.0, "gzsl_unseen": 1.0, "gzsl_h": 1.0}
    assert gzsl(scores, y, seen, 1.0)["gzsl_seen"] == 0.75  # the second image is tied
    assert gzsl(scores, y, seen, 9.0) == {"gzsl_seen": 0.0, "gzsl_unseen": 1.0, "gzsl_h": 0.0}
    assert best_offset(scores, y, seen) == 0.75
    assert ausuc(scores, y, seen) == 1.0


def test_area_by_hand():
    # One image each; the unseen one has the larger gap: (S, U) goes (1, 0), (0, 0), (0, 1), and no offset is any good.
    seen, y = np.array([True, False]), np.array([0, 1])
    assert ausuc(np.array([[1.0, 0.0], [2.0, 0.0]]), y, seen) == 0.0
    # Both gaps equal: the tie joins (1, 0) and (0, 1) through (1/2, 1/2).
    assert ausuc(np.array([[1.0, 0.0], [1.0, 0.0]]), y, seen) == 0.5
    assert best_offset(np.array([[1.0, 0.0], [1.0, 0.0]]), y, seen) == 1.0  # h is 0 in both intervals


def test_perfect_and_constant_scores():
    y = np.arange(5)
    assert ausuc(np.eye(5), y, SEEN) == 1.0
    constant = gzsl(np.zeros((5, 5)), y, SEEN)
    assert_allclose([constant["gzsl_seen"], constant["gzsl_unseen"]], 1 / 5)
    # From (1/2, 0) over (1/5, 1/5) to (0, 1/3).
    assert_allclose(ausuc(np.zeros((5, 5)), y, SEEN), 0.2 * (0.5 + 0.2) / 2 + (1 / 3 - 0.2) * 0.2 / 2)


@given(seed=st.integers(0, 10_000), tied=st.booleans())
def test_curve_and_area_equal_a_brute_force_sweep(seed, tied):
    scores, y = problem(seed, tied=tied)
    scores = np.round(scores * 64) / 64  # shifted scores are then exact, and so are ties in the sweep
    _, points = sweep(scores, y, SEEN)
    curve = seen_unseen_curve(scores, y, SEEN)
    assert_allclose(np.c_[curve.seen, curve.unseen], points, atol=1e-12)
    area = sum((b[1] - a[1]) * (a[0] + b[0]) / 2 for a, b in itertools.pairwise(points))
    assert_allclose(ausuc(scores, y, SEEN), area, atol=1e-12)


@given(seed=st.integers(0, 10_000), tied=st.booleans(), offset=st.integers(-6, 6))
def test_gzsl_is_the_plain_metric_on_shifted_scores(seed, tied, offset):
    scores, y = problem(seed, tied=tied)
    by_class = class_accuracy(scores - offset * SEEN, y)
    found = gzsl(scores, y, SEEN, offset)
    u, s = (np.mean([a for c, a in by_class.items() if SEEN[c] == kind]) for kind in (False, True))
    assert_allclose([found["gzsl_seen"], found["gzsl_unseen"]], [s, u], atol=1e-12)
    assert_allclose(found["gzsl_h"], 2 * u * s / (u + s) if u + s else 0, atol=1e-12)


@given(seed=st.integers(0, 10_000), tied=st.booleans())
def test_no_offset_beats_the_best_one(seed, tied):
    scores, y = problem(seed, tied=tied)
    scores = np.round(scores * 64) / 64
    best = gzsl(scores, y, SEEN, best_offset(scores, y, SEEN))["gzsl_h"]
    offsets, _ = sweep(scores, y, SEEN)
    assert_allclose(best, max(gzsl(scores, y, SEEN, o)["gzsl_h"] for o in offsets), atol=1e-12)


@given(seed=st.integers(0, 10_000), scale=st.floats(1e-6, 1e6))
def test_offset_and_area_follow_the_scores(seed, scale):
    scores, y = problem(seed)
    area, offset = ausuc(scores, y, SEEN), best_offset(scores, y, SEEN)
    assert 0 <= area <= 1
    # Adding a constant to seen classes moves the offset, scaling scales it, a constant per image does nothing.
    moved = scale * (scores + 3 * SEEN) + np.arange(len(y))[:, None]
    assert_allclose(ausuc(moved, y, SEEN), area, atol=1e-6)
    h = gzsl(scores, y, SEEN, offset)["gzsl_h"]
    assert_allclose(gzsl(scale * (scores + 3 * SEEN), y, SEEN, scale * (offset + 3))["gzsl_h"], h, atol=1e-9)
    order = np.random.default_rng(seed).permutation(len(y))
    classes = np.array([4, 2, 0, 1, 3])
    assert_allclose(ausuc(scores[order][:, np.argsort(classes)], classes[y[order]], SEEN[np.argsort(classes)]), area)


def test_large_offset_leaves_each_kind_to_itself(rng):
    scores, y = problem(1, 60)
    unseen_only = np.where(SEEN, -np.inf, scores)[~SEEN[y]]
    expected = np.mean(list(class_accuracy(unseen_only, y[~SEEN[y]]).values()))
    assert_allclose(gzsl(scores, y, SEEN, 1e6)["gzsl_unseen"], expected)
    assert gzsl(scores, y, SEEN, 1e6)["gzsl_seen"] == 0


def test_scores_of_minus_infinity_stay_out_of_reach():
    # No finite offset makes the first image an unseen class, nor the second a seen one.
    seen, y = np.array([True, False]), np.array([0, 1])
    scores = np.array([[1.0, -np.inf], [-np.inf, 1.0]])
    assert gzsl(scores, y, seen, 1e9)["gzsl_h"] == 1
    assert ausuc(scores, y, seen) == 1
    assert best_offset(scores, y, seen) == 0


def test_float32_gaps_are_not_rounded():
    seen, y = np.array([True, False]), np.array([0, 1])
    scores = np.array([[1.0, 1e-8], [1.0, 0.0]], dtype=np.float32)
    assert len(seen_unseen_curve(scores, y, seen).gaps) == 2


def test_classes_weigh_equally_and_empty_ones_not_at_all():
    seen = np.array([True, True, True, False])
    y = np.array([0, 0, 0, 1, 3])
    scores = np.eye(4)[[0, 0, 0, 2, 3]]
    assert gzsl(scores, y, seen)["gzsl_seen"] == 0.5


def test_refusals():
    scores, y = problem(0)
    with pytest.raises(UserError, match="no test image is of a class that is unseen"):
        gzsl(scores[SEEN[y]], y[SEEN[y]], SEEN)
    with pytest.raises(UserError, match="no class is unseen"):
        gzsl(scores, y, np.ones(5, bool))
    with pytest.raises(UserError, match="one bool for each"):
        ausuc(scores, y, np.arange(5))
    with pytest.raises(UserError, match="NaN"):
        ausuc(scores * np.nan, y, SEEN)
    with pytest.raises(UserError, match="labels run from -1"):
        ausuc(scores, np.where(y == 4, -1, y), SEEN)
    with pytest.raises(UserError, match="offset nan"):
        gzsl(scores, y, SEEN, float("nan"))
    with pytest.raises(UserError, match="same infinite score"):
        gzsl(np.full((len(y), 5), -np.inf), y, SEEN)


def test_large_problems_need_no_sweep():
    # 20,000 different gaps: quadratic work would be 4e8 comparisons, minutes here.
    rng = np.random.default_rng(0)
    y = rng.integers(0, 5, 20_000)
    scores = rng.normal(size=(20_000, 5))
    curve = seen_unseen_curve(scores, y, SEEN)
    assert len(curve.seen) == 2 * 20_000 + 1
    assert (np.diff(curve.seen) <= 0).all()
    assert (np.diff(curve.unseen) >= 0).all()


@pytest.mark.parametrize(("gap", "expected"), [(2.0, 4.0), (5.0, 3.0), (3.5, 2.25)])
def test_of_equally_good_offsets_the_middle_of_the_widest_interval_is_taken(gap, expected):
    # From 1 to 6 both other images are right; the second is wrong among seen classes, so its gap only divides.
    scores = np.array([[6.0, 0.0, 0.0], [gap, 0.0, 0.0], [1.0, 0.0, 0.0]])
    assert best_offset(scores, np.array([0, 1, 2]), np.array([True, True, False])) == expected


def test_the_calibrated_offset_follows_the_scale_of_the_scores():
    # BiDiLEL's distances shrink with more classes, so the offset must be relative to the scale of the scores.
    from zsl import compose, run
    from zsl.experiment.metrics import spread

    metrics = run(
        compose(["dataset=digits", "model=bidilel", "tracking=none", "evaluation={generalized:true,calibrate:true}"])
    ).metrics
    assert metrics["gzsl_h"] > 0.45  # the value without an offset
    scores = np.random.default_rng(0).standard_normal((20, 5))
    assert_allclose(spread(3 * scores + 7), 3 * spread(scores))
    assert spread(np.ones((4, 2))) == 1
