"""Paired differences: by hand, against SciPy where splits do not overlap, and never over dictionary seeds."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

from zsl.report.paired import bootstrap, corrected_t, difference


def record(split, seed, value, per_class=()):
    return {
        "key": {"split": {"unseen": list(split), "n_seen": 20, "rows": "".join(split)}, "seed": seed},
        "metrics": {"acc_class": value},
        "per_class": [{"class": c, "own/acc": v} for c, v in zip(split, per_class)],
    }


def test_without_overlap_it_is_the_paired_t_test():
    rng = np.random.default_rng(0)
    a, b = rng.normal(0.5, 0.1, (2, 8))
    ours = corrected_t(a - b, 0, 20)
    expected = stats.ttest_rel(a, b)
    interval = expected.confidence_interval(0.95)
    assert_allclose([ours.p, ours.low, ours.high], [expected.pvalue, interval.low, interval.high])


def test_correction_by_hand():
    # d = 1, 2, 3: mean 2, variance 1; 5 unseen and 20 seen classes: (1/3 + 1/4) = 7/12.
    got = corrected_t(np.array([1.0, 2.0, 3.0]), 5, 20)
    t = 2 / np.sqrt(7 / 12)
    assert_allclose(got.p, 2 * stats.t.sf(t, 2))
    assert_allclose(got.high - got.mean, stats.t.ppf(0.975, 2) * np.sqrt(7 / 12))


def test_the_correction_keeps_its_level_where_the_plain_test_does_not():
    # Differences that share a part, as overlapping splits do: correlation n_test / (n_test + n_train) = 0.2.
    rng, plain, corrected, n = np.random.default_rng(0), 0, 0, 2000
    for _ in range(n):
        d = np.sqrt(0.2) * rng.standard_normal() + np.sqrt(0.8) * rng.standard_normal(10)
        plain += stats.ttest_1samp(d, 0).pvalue < 0.05
        corrected += corrected_t(d, 5, 20).p < 0.05
    assert plain / n > 0.15
    assert 0.03 < corrected / n < 0.07


def test_seeds_are_averaged_within_their_split():
    first = [record("ab", s, v) for s, v in enumerate([0.2, 0.4])] + [record("cd", 0, 0.5), record("ef", 0, 0.9)]
    second = [record("ab", 0, 0.1), record("cd", 0, 0.1), record("gh", 0, 0.0)]
    got = difference(first, second)
    assert got.n == 2  # of ef and gh there is no pair
    assert_allclose(got.mean, (0.2 + 0.4) / 2)


def test_one_split_is_compared_over_its_classes_and_never_over_seeds():
    # A hundred seeds without any noise: over seeds the difference would be certain.
    first = [record("abc", s, 0.5, (0.9, 0.5, 0.1)) for s in range(100)]
    second = [record("abc", s, 0.4, (0.1, 0.5, 0.6)) for s in range(100)]
    got = difference(first, second)
    assert got.how == "bootstrap over 3 classes"
    assert_allclose(got.mean, (0.8 + 0 - 0.5) / 3)
    assert got.low < 0 < got.high
    assert np.isnan(got.p)
    assert difference(first, second, "hit_1") is None


def test_bootstrap_covers_what_it_should():
    rng, covered, n = np.random.default_rng(1), 0, 300
    for i in range(n):
        got = bootstrap(rng.normal(0.3, 1, 40), n_draws=1000, seed=i)
        covered += got.low <= 0.3 <= got.high
    assert 0.90 < covered / n < 0.985


def test_old_records_without_the_number_of_seen_classes_are_refused():
    from zsl.errors import UserError

    first = [record("ab", 0, 0.2), record("cd", 0, 0.3)]
    del first[0]["key"]["split"]["n_seen"]
    with pytest.raises(UserError, match="run it again"):
        difference(first, [record("ab", 0, 0.1), record("cd", 0, 0.1)])
