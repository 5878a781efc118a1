"""Pre-processing: what it does, and that test rows cannot influence any other row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from zsl import load_dataset
from zsl.data.preprocess import Preprocess, preprocess
from zsl.errors import UserError

RAW = ("feature.centre=false", "feature.l2=false", "dataset.semantics.centre=false", "dataset.semantics.l2=false")


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


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pca": 3, "centre": False}, "pca needs centre=true"),
        ({"pca": 9}, "pca=9 is more than the training data allow: 4"),
    ],
)
def test_impossible_settings(rng, settings, message):
    with pytest.raises(UserError, match=message):
        Preprocess(**settings).fit(rng.random((8, 4)))


def test_a_wrong_type_is_refused_by_the_constructor():
    with pytest.raises(UserError, match="Preprocess: pca='many' is not accepted"):
        Preprocess(pca="many")


@pytest.mark.parametrize("pca", [None, 8])
def test_changing_a_test_row_changes_no_other_row(pca):
    data = load_dataset("digits", overrides=RAW)
    before = preprocess(data, Preprocess(pca=pca), Preprocess())
    X_unseen, X_test_seen = data.X_unseen.copy(), data.X_test_seen.copy()
    X_unseen[3], X_test_seen[5] = 1000.0, -1000.0
    after = preprocess(replace(data, X_unseen=X_unseen, X_test_seen=X_test_seen), Preprocess(pca=pca), Preprocess())
    assert_array_equal(after.X, before.X)
    others = np.arange(len(X_unseen)) != 3
    assert_array_equal(after.X_unseen[others], before.X_unseen[others])
    assert (after.X_unseen[3] != before.X_unseen[3]).any()
    others = np.arange(len(X_test_seen)) != 5
    assert_array_equal(after.X_test_seen[others], before.X_test_seen[others])


def test_unseen_attributes_do_not_move_seen_ones():
    data = load_dataset("digits", overrides=RAW)
    attributes = data.attributes.copy()
    attributes[data.unseen[0]] += 100
    before = preprocess(data, Preprocess(), Preprocess())
    after = preprocess(replace(data, attributes=attributes), Preprocess(), Preprocess())
    assert_array_equal(after.Z_seen, before.Z_seen)
    assert_allclose(before.Z_seen.shape, (7, 16))
