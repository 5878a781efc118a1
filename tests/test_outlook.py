"""What the log says before a long fit."""

from __future__ import annotations

import logging

import numpy as np
import pytest

import zsl
from zsl.data.preprocess import Preprocess, preprocess
from zsl.models import AveragedDictionaries, CoupledDictionaries
from zsl.sparse import Codes, outlook


@pytest.fixture
def said(caplog):
    outlook._say_once.cache_clear()
    caplog.set_level(logging.INFO, "zsl.sparse.outlook")
    return lambda: [record.getMessage() for record in caplog.records]


class Slow:
    """A clock, and an encoder that takes two seconds and a twentieth of a second for each row."""

    now = 0.0

    def perf_counter(self):
        return self.now

    def encode(self, X, D, rough):
        self.now += 2 + 0.05 * len(X)
        return Codes(np.ones((len(X), len(D))) * (np.arange(len(D)) < 7), np.zeros(len(X)), 1)


@pytest.fixture
def slow(monkeypatch):
    clock = Slow()
    monkeypatch.setattr(outlook, "time", clock)
    monkeypatch.setattr(outlook, "_SHORT", 0)
    return clock


def test_the_likely_time_counts_shared_work_once(said, slow):
    X = np.ones((4000, 3))
    outlook.announce(lambda which: X[which], 4000, np.ones((9, 3)), slow.encode, 11)
    # 11 passes of 2 + 200 seconds are 37 minutes.
    assert said() == [
        "learning the dictionary is likely to take about 37 minutes: 11 passes over 4000 images, whose codes have "
        "about 7 non-zeros"
    ]


@pytest.mark.parametrize(("n", "passes"), [(3000, 0), (200, 11)])
def test_nothing_is_said_of_short_fits(said, slow, n, passes):
    X = np.ones((n, 3))
    outlook.announce(lambda which: X[which], n, np.ones((9, 3)), slow.encode, passes)
    assert said() == []


def test_a_small_fit_codes_no_row_for_an_estimate(said):
    outlook.announce(lambda which: None, 4000, np.ones((160, 128)), lambda X, D, rough: None, 11)
    assert said() == []


def fit(n, n_atoms, lam_relative, p=40, **more):
    rng = np.random.default_rng(0)
    X, y, Z = rng.standard_normal((n, p)), np.arange(n) % 5, np.eye(5)
    return CoupledDictionaries(n_atoms=n_atoms, n_iter=2, lam_relative=lam_relative, **more).fit(X, y, Z[y], Z[:2])


def test_many_more_atoms_than_images_are_said(said):
    fit(30, 61, 0.3)
    fit(25, 61, 0.3)  # as tuning does
    assert said() == [
        "the dictionary has 61 atoms, more than 2 for each training image, so most of its atoms cannot be learned; set "
        "model.n_atoms to at most the number of training images"
    ]


def test_codes_that_are_dense_by_nature_are_said_once(said):
    assert fit(200, 60, 1e-4).density_ * 60 > 28
    fit(200, 60, 1e-4, seed=1)  # as a second dictionary
    (sentence,) = said()
    assert "more non-zeros on average than 70% of the 40 features" in sentence
    assert "a larger model.lam (or model.lam_relative) makes them sparse" in sentence


def test_features_are_counted_without_the_attributes(said):
    fit(200, 60, 1e-4, coupling="joint")
    assert "more non-zeros on average than 70% of the 40 features" in said()[0]


def test_sparse_codes_are_not_spoken_of(said):
    fit(100, 60, 0.3)
    assert said() == []


def test_dense_codes_of_few_features_are_not_spoken_of(said):
    assert fit(200, 60, 1e-4, p=20).density_ * 60 > 15
    assert said() == []


@pytest.mark.slow
def test_the_default_has_codes_of_half_as_many_non_zeros_as_features_and_says_nothing(said):
    data = preprocess(zsl.load_dataset("cifar_awa"), Preprocess(), Preprocess())
    model = AveragedDictionaries(n_dictionaries=2).fit(data.X, data.y, data.Z, data.Z_unseen)
    assert 55 < model.density_ * 160 < 75
    assert said() == []
