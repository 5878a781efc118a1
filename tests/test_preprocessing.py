"""Pre-processing: closed forms, and the proof that no test row reaches any other row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from archives import features_for
from zsl.data.dataset import ZeroShotData
from zsl.data.preprocess import Preprocess, preprocess
from zsl.data.splits import random
from zsl.data.table import ImageTable
from zsl.errors import UserError

SETTINGS = {
    "default": {},
    "none": {"centre": False, "l2": False},
    "standardise": {"standardise": True},
    "power": {"power": 0.5},
    "pca": {"pca": 3},
    "all": {"power": 0.5, "standardise": True, "pca": 3},
    "float32": {"dtype": "float32"},
}


@pytest.fixture
def data() -> ZeroShotData:
    labels = np.repeat(np.arange(6), 8)
    table = ImageTable(
        name="toy",
        feature="f",
        features=np.maximum(features_for(labels, 5), 0),
        labels=labels,
        class_names=tuple("abcdef"),
        attributes=np.random.default_rng(0).random((6, 4)),
        image_attributes=np.random.default_rng(1).random((48, 4)).astype(np.float32),
    )
    return ZeroShotData.from_table(table, random(table, n_unseen=2))


def processed(data: ZeroShotData, settings: dict) -> ZeroShotData:
    return preprocess(data, Preprocess(**settings), Preprocess(**{**settings, "pca": None}))


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_changing_a_test_row_changes_no_other_row(data, settings):
    before = processed(data, settings)
    for part in ("X_test_seen", "X_unseen"):
        for row in range(len(getattr(data, part))):
            changed = getattr(data, part).copy()
            changed[row] = 100 * (row + 1)
            after = processed(replace(data, **{part: changed}), settings)
            for name in ("X", "X_test_seen", "X_unseen", "attributes", "Z_images"):
                kept = np.ones(len(getattr(data, name)), bool)
                if name == part:
                    kept[row] = False
                assert_array_equal(getattr(after, name)[kept], getattr(before, name)[kept])
            assert (getattr(after, part)[row] != getattr(before, part)[row]).any()


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_changing_an_unseen_class_changes_no_other_row(data, settings):
    before = processed(data, settings)
    for m, c in enumerate(data.unseen):
        attributes = data.attributes.copy()
        attributes[c] = 50
        after = processed(replace(data, attributes=attributes), settings)
        assert_array_equal(after.Z_seen, before.Z_seen)
        assert_array_equal(np.delete(after.Z_unseen, m, 0), np.delete(before.Z_unseen, m, 0))
        assert_array_equal(after.Z_images, before.Z_images)


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_nothing_given_is_modified(data, settings):
    X = data.X.astype(np.float64)
    kept = X.copy()
    Preprocess(**settings).fit(X).transform(X)
    assert_array_equal(X, kept)


def test_centre_and_length_by_hand():
    X = np.array([[0.0, 0.0], [2.0, 4.0]])
    assert_allclose(Preprocess(l2=False).fit(X).transform(X), [[-1, -2], [1, 2]])
    assert_allclose(Preprocess(centre=False).fit(X).transform(X), [[0, 0], [1 / np.sqrt(5), 2 / np.sqrt(5)]])


def test_pca_keeps_the_leading_axes(rng):
    X = rng.standard_normal((200, 6)) * [9, 5, 2, 1, 1, 1] + 3
    Y = Preprocess(pca=2, l2=False).fit(X).transform(X)
    vectors = np.linalg.eigh(np.cov(X.T))[1]
    assert_allclose(np.abs(Y), np.abs((X - X.mean(0)) @ vectors[:, :-3:-1]), atol=1e-9)


def test_precision_is_chosen(rng):
    X = rng.standard_normal((5, 3)).astype(np.float32)
    assert Preprocess(dtype="float32").fit(X).transform(X).dtype == np.float32
    assert Preprocess().fit(X).transform(X).dtype == np.float64


def test_closed_forms(data):
    X = data.X.astype(np.float64)
    assert_array_equal(Preprocess(centre=False, l2=False).fit(X).transform(data.X_unseen), data.X_unseen)
    T = Preprocess(l2=False, standardise=True).fit(X).transform(X)
    assert_allclose(T.mean(axis=0), 0, atol=1e-12)
    assert_allclose(T.std(axis=0), 1)
    T = Preprocess(centre=False, l2=False, power=0.5).fit(X).transform(np.array([[-4.0, 0, 9, 1, 16]]))
    assert_allclose(T, [[-2, 0, 3, 1, 4]])
    T = Preprocess(pca=3, l2=False).fit(X).transform(X)
    assert_allclose(T.T @ T - np.diag(np.diag(T.T @ T)), 0, atol=1e-8)
    assert_allclose(np.linalg.norm(Preprocess().fit(X).transform(X), axis=1), 1)


def test_a_constant_column_and_a_zero_row_stay_finite():
    X = np.array([[1.0, 7.0, 0.1], [2.0, 7.0, 0.1], [3.0, 7.0, 0.1]])
    T = Preprocess(standardise=True, l2=False).fit(X).transform(X)
    assert_allclose(T[:, 1:], 0, atol=1e-12)
    assert_array_equal(Preprocess(centre=False).fit(X).transform(np.zeros((1, 3))), np.zeros((1, 3)))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"pca": 100}, "^pca=100 is more than the 5 components that the training data allow; choose at most 5"),
        ({"pca": 2, "centre": False}, "pca needs centre=true"),
    ],
)
def test_refusals(data, settings, sentence):
    with pytest.raises(UserError, match=sentence):
        Preprocess(**settings).fit(data.X)


@pytest.mark.parametrize(("key", "place"), [("feature", 0), ("dataset.semantics", 1)])
def test_a_refused_setting_has_its_whole_key(data, key, place):
    transforms = [Preprocess(), Preprocess()]
    transforms[place] = Preprocess(pca=100)
    with pytest.raises(UserError, match=rf"^{key}\.pca=100 is more than"):
        preprocess(data, *transforms)


@pytest.mark.parametrize("settings", [{"power": 0.0}, {"power": -1.0}, {"pca": 0}, {"pca": "many"}, {"dtype": "int8"}])
def test_values_out_of_range_are_refused(settings):
    with pytest.raises(UserError, match=r"Preprocess: \w+=.* is not accepted"):
        Preprocess(**settings)
