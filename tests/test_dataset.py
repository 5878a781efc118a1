"""ZeroShotData: its invariants, and that labels of test images have no way into a fit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from zsl import load_dataset
from zsl.data.dataset import ZeroShotData
from zsl.data.table import ImageTable, Split, content_hash
from zsl.errors import UserError


@pytest.fixture
def table(rng):
    labels = np.repeat(np.arange(4), 5)
    return ImageTable("toy", "f", rng.random((20, 3)), labels, ("a", "b", "c", "d"), rng.random((4, 2)))


@pytest.fixture
def split():
    # Classes 0 and 2 are seen; 1 and 3 are not.
    return Split("s", np.array([0, 1, 2, 10, 11]), np.array([3, 12]), np.r_[5:10, 15:20], np.array([1, 3]))


def test_labels_count_within_seen_and_unseen(table, split):
    data = ZeroShotData.from_table(table, split)
    assert data.seen.tolist() == [0, 2]
    assert data.unseen.tolist() == [1, 3]
    assert data.y.tolist() == [0, 0, 0, 1, 1]
    assert data.y_test_seen.tolist() == [0, 1]
    assert data.y_unseen.tolist() == [0] * 5 + [1] * 5
    assert data.unseen_names == ["b", "d"]
    np.testing.assert_array_equal(data.Z, table.attributes[[0, 0, 0, 2, 2]])
    np.testing.assert_array_equal(data.Z_unseen, table.attributes[[1, 3]])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"trainval": np.array([0, 1, 10, 5])}, "1 images are in both trainval and test_unseen"),
        ({"test_seen": np.array([0])}, "1 images are in both trainval and test_seen"),
        ({"test_seen": np.array([15]), "test_unseen": np.r_[5:10]}, "test_seen holds images of 'd'"),
        ({"unseen": np.array([1])}, "test_unseen holds images of 'd'"),
        (
            {"test_unseen": np.r_[5:10], "trainval": np.array([0, 10, 15])},
            "both seen and unseen .first: 'd'.; a zero-shot split",
        ),
        ({"test_unseen": np.empty(0, int)}, "no test image of an unseen class"),
        ({"test_unseen": np.empty(0, int), "unseen": np.empty(0, int)}, "no class is unseen"),
    ],
)
def test_bad_splits_are_refused(table, split, change, message):
    with pytest.raises(UserError, match=message):
        ZeroShotData.from_table(table, replace(split, **change))


@pytest.mark.parametrize(("part", "row"), [("trainval", 4), ("test_seen", 13)])
def test_images_of_unknown_class_are_no_images_of_a_seen_one(table, split, part, row):
    # With -1 as an index the last class of the table would be taken for seen.
    labels = table.labels.copy()
    labels[row] = -1
    split = replace(split, **{part: np.r_[getattr(split, part), row]})
    with pytest.raises(UserError, match=f"class of 1 images of {part} is unknown .first: image {row + 1}.; leave them"):
        ZeroShotData.from_table(replace(table, labels=labels), split)


def test_an_unseen_class_may_have_no_images(table, split):
    data = ZeroShotData.from_table(table, replace(split, test_unseen=np.r_[5:10]))
    assert data.unseen.tolist() == [1, 3]
    assert np.bincount(data.y_unseen, minlength=2).tolist() == [5, 0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": np.array([0, 0, 0, 0, 0])}, r"1 seen classes have no training image \(first: c\)"),
        ({"y": np.array([0, 0, 0, 1, 2])}, "image 4 has label 2, outside the 2 classes"),
        ({"y": np.array([0.0, 0, 0, 1, 1])}, "one integer per image"),
        ({"y": np.array([0, 1])}, "2 labels for 5 images"),
        ({"X_unseen": np.zeros((10, 4))}, "unseen test features has 4 columns where 3 are needed"),
        ({"attributes": np.zeros((3, 2))}, "attributes has 3 rows where 4 are needed"),
    ],
)
def test_invariants(table, split, change, message):
    with pytest.raises(UserError, match=message):
        replace(ZeroShotData.from_table(table, split), **change)


def test_nan_is_located(table, split):
    data = ZeroShotData.from_table(table, split)
    X = data.X.copy()
    X[2, 1] = np.nan
    with pytest.raises(UserError, match="holds nan in row 2, column 1"):
        replace(data, X=X)


def test_table_refuses_repeated_names_and_suggests_near_misses(table):
    with pytest.raises(UserError, match="'a' occurs more than once"):
        replace(table, class_names=("a", "a", "c", "d"))
    animals = replace(table, class_names=("grizzly+bear", "b", "c", "d"))
    with pytest.raises(UserError, match=r"'grizzly bear' is not a class of toy \(did you mean grizzly\+bear\?\)"):
        animals.class_ids(["grizzly bear"], "here")


def test_shuffle_permutes_class_rows_only(table, split):
    data = ZeroShotData.from_table(table, split)
    control = data.shuffle_attributes(7)
    order = np.random.default_rng(7).permutation(4)
    np.testing.assert_array_equal(control.attributes, table.attributes[order])
    assert control.X is data.X
    assert control.key["shuffle_attributes"] == 7


def test_content_hash_sees_values_shape_and_type():
    a = np.arange(6.0)
    hashes = [content_hash(x) for x in (a, a + 1e-12, a.reshape(2, 3), a.astype(np.float32), a[::-1], a[:0])]
    assert len(set(hashes)) == len(hashes)
    assert content_hash(a.reshape(2, 3).T) == content_hash(np.ascontiguousarray(a.reshape(2, 3).T))


def test_load_dataset_is_what_the_command_would_use():
    data = load_dataset("digits", overrides=("split.seed=0",))
    assert data.unseen_names == ["two", "four", "six"]
    assert data.X.shape[1] == 64
    np.testing.assert_allclose(np.linalg.norm(data.X, axis=1), 1)
    raw = load_dataset("digits", overrides=("feature.centre=false", "feature.l2=false"))
    assert raw.X.min() == 0
    assert raw.X.max() == 16
    with pytest.raises(UserError, match=r"dataset.rot does not exist; dataset=digits has:"):
        load_dataset("digits", rot="x")
