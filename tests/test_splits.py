"""Splits: DESIGN's formula for random ones, every combination once, class lists from files."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from zsl.data import splits
from zsl.data.dataset import ZeroShotData
from zsl.data.readers import digits
from zsl.data.table import ImageTable, Split
from zsl.errors import UserError


@pytest.fixture(scope="module")
def table():
    return digits.load()


def test_fixed_is_three_digits_drawn_by_generator_zero(table):
    split = splits.random(table, name="fixed", seed=0)
    assert split.unseen.tolist() == sorted(np.random.default_rng(0).permutation(10)[:3].tolist()) == [2, 4, 6]


@pytest.mark.parametrize("seed", range(3))
def test_random_follows_the_documented_formula(table, seed):
    rng = np.random.default_rng(seed)
    unseen = sorted(rng.permutation(10)[:4])
    split = splits.random(table, n_unseen=4, seed=seed)
    assert split.unseen.tolist() == unseen
    test_seen = []
    for c in (c for c in range(10) if c not in unseen):
        rows = rng.permutation(np.flatnonzero(table.labels == c))
        test_seen += rows[len(rows) - len(rows) // 5 :].tolist()
    assert split.test_seen.tolist() == sorted(test_seen)
    assert split.test_unseen.tolist() == np.flatnonzero(np.isin(table.labels, unseen)).tolist()
    everything = np.concatenate([split.trainval, split.test_seen, split.test_unseen])
    assert sorted(everything.tolist()) == list(range(1797))


def test_combinations_are_all_different_and_complete(table):
    seen = [tuple(splits.combination(table, index=i).unseen) for i in range(120)]
    assert seen == list(itertools.combinations(range(10), 3))
    with pytest.raises(UserError, match=r"split.index=120 is out of range: digits has 120 choices of 3"):
        splits.combination(table, index=120)


def test_random_needs_a_seen_class(table):
    with pytest.raises(UserError, match=r"split\.n_unseen=10 leaves no seen class"):
        splits.random(table, n_unseen=10)


def test_file_lists_unseen_classes(table, tmp_path):
    path = tmp_path / "unseen.txt"
    path.write_text("# odd ones\nseven\n\n  three \n")
    assert splits.from_file(table, path=str(path)).unseen.tolist() == [3, 7]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sevn\n", r"'sevn' is not a class of digits \(did you mean 'seven'\?\)"),
        ("seven\nseven\n", "named more than once"),
        ("# none\n", "names 0 of 10 classes"),
        ("\n".join(digits.TABLE), "names 10 of 10 classes"),
    ],
)
def test_bad_files_are_refused(table, tmp_path, text, message):
    path = tmp_path / "unseen.txt"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        splits.from_file(table, path=str(path))


def test_missing_files_are_refused(table, tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        splits.from_file(table, path=str(tmp_path / "none.txt"))
    with pytest.raises(UserError, match=r"needs split\.path=FILE"):
        splits.from_file(table, path=None)


def test_stored_checks_its_class_counts(table):
    split = Split("proposed", np.arange(10), np.empty(0, int), np.flatnonzero(table.labels == 9), np.array([9]))
    stored = ImageTable(
        "t", "f", table.features, table.labels, table.class_names, table.attributes, {"proposed": split}
    )
    assert splits.stored(stored, name="x", source="proposed", n_unseen=1).name == "x"
    with pytest.raises(UserError, match="has 72 unseen classes, but the proposed split of t has 1"):
        splits.stored(stored, name="645_72", source="proposed", n_unseen=72)
    with pytest.raises(UserError, match=r"t has no standard split .*it has: proposed.*use split=random"):
        splits.stored(stored, name="standard")


def test_classes_of_few_images_train_with_all(table):
    labels = np.array([0, 0, 0, 1, 1, 1, 1, 1, 2, 2])
    small = ImageTable("s", "f", np.eye(10), labels, ("a", "b", "c"), np.eye(3))
    split = splits.hold_out(small, np.array([2]), np.random.default_rng(0), "h", {})
    assert np.isin([0, 1, 2], split.trainval).all()
    assert len(split.test_seen) == 1
    assert ZeroShotData.from_table(small, split).seen.tolist() == [0, 1]
