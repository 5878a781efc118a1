"""Class splits: the documented draws, class lists from files, what splits promise and what they refuse."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import zsl
from archives import write_sun, write_xlsa17
from zsl.data import splits
from zsl.data.dataset import ZeroShotData
from zsl.data.readers import digits, xlsa17
from zsl.data.table import ImageTable, Split
from zsl.errors import UserError
from zsl.model_selection import ClassFold
from zsl.model_selection.holdout import folds


def table(n_classes: int = 8, per_class: int = 7, **fields) -> ImageTable:
    labels = np.arange(n_classes * per_class) % n_classes
    return ImageTable(
        name="toy",
        feature="f",
        features=np.arange(len(labels))[:, None] * np.ones(3),
        labels=labels,
        class_names=tuple(f"c{i}" for i in range(n_classes)),
        attributes=np.random.default_rng(0).standard_normal((n_classes, 4)),
        **fields,
    )


@given(n_classes=st.integers(2, 30), seed=st.integers(0, 2**32), share=st.floats(0.01, 0.99))
def test_random_is_exactly_the_documented_draw(n_classes, seed, share):
    toy, k = table(n_classes), max(1, round(share * n_classes))
    if k >= n_classes:
        return
    rng = np.random.default_rng(seed)
    unseen = sorted(rng.permutation(n_classes)[:k])
    test_seen = []
    for c in (c for c in range(n_classes) if c not in unseen):
        rows = rng.permutation(np.flatnonzero(toy.labels == c))
        test_seen += rows[len(rows) - len(rows) // 5 :].tolist()
    for split in (splits.random(toy, n_unseen=k, seed=seed), splits.random(toy, fraction=share, seed=seed)):
        assert_array_equal(split.unseen, unseen)
        assert split.test_seen.tolist() == sorted(test_seen)
        assert_array_equal(split.test_unseen, np.flatnonzero(np.isin(toy.labels, unseen)))
        rows = np.r_[split.trainval, split.test_seen, split.test_unseen]
        assert_array_equal(np.sort(rows), np.arange(len(toy.labels)))  # every image has one role


def test_alike_classes_are_the_nearest_to_a_random_one():
    # Classes on a line: the nearest by cosine of centred attributes are those on the same side.
    angles = np.array([0.0, 0.1, 0.2, 2.0, 2.1, 2.2, 4.0, 4.1])
    toy = replace(table(8), attributes=np.c_[np.cos(angles), np.sin(angles)] - [[0.2, 0.4]])
    groups = [[0, 1, 2], [3, 4, 5]]
    found = [splits.alike(toy, n_unseen=3, seed=s).unseen.tolist() for s in range(12)]
    assert all(group in found for group in groups)
    shifted = replace(toy, attributes=toy.attributes + 100)
    assert [splits.alike(shifted, n_unseen=3, seed=s).unseen.tolist() for s in range(12)] == found
    # A missing value counts as the mean of its column.
    gaps = np.array(toy.attributes)
    gaps[1, 0] = np.nan
    filled = np.where(np.isnan(gaps), np.nanmean(gaps, axis=0), gaps)
    for s in range(5):
        assert splits.alike(replace(toy, attributes=gaps), n_unseen=3, seed=s).unseen.tolist() == (
            splits.alike(replace(toy, attributes=filled), n_unseen=3, seed=s).unseen.tolist()
        )
    split = splits.alike(toy, n_unseen=3)
    assert_array_equal(np.sort(np.r_[split.trainval, split.test_seen, split.test_unseen]), np.arange(len(toy.labels)))


def test_fixed_is_three_digits_drawn_by_generator_zero():
    assert splits.random(digits.load(), name="fixed", seed=0).unseen.tolist() == [2, 4, 6]


@given(n_classes=st.integers(4, 40), n_folds=st.integers(2, 4), seed=st.integers(0, 1000))
def test_folds_are_near_equal_and_cover_every_class_once(n_classes, n_folds, seed):
    toy = table(n_classes)
    unseen = [splits.folds(toy, fold=k, n_folds=n_folds, seed=seed).unseen for k in range(n_folds)]
    assert_array_equal(np.sort(np.concatenate(unseen)), np.arange(n_classes))
    sizes = [len(u) for u in unseen]
    assert max(sizes) - min(sizes) <= 1


def test_the_folds_by_name():
    load = lambda k: zsl.load_dataset("digits", split="folds", overrides=(f"split.fold={k}",))  # noqa: E731
    assert sorted(len(load(k).unseen) for k in range(4)) == [2, 2, 3, 3]


def test_the_folds_do_not_depend_on_the_seed_of_the_repetition():
    load = lambda seed: zsl.load_dataset("digits", split="folds", overrides=(f"seed={seed}",))  # noqa: E731
    assert load(0).unseen_names == load(7).unseen_names
    assert_array_equal(load(0).X, load(7).X)


@pytest.mark.parametrize("make", ["folds", "file", "listed"])
def test_all_images_of_seen_classes_train_unless_the_generalised_setting_is_asked_for(make, tmp_path):
    toy, path = table(4), tmp_path / "unseen.txt"
    path.write_text("c1\n")
    split = {
        "folds": lambda **kwargs: splits.folds(toy, fold=0, **kwargs),
        "file": lambda **kwargs: splits.from_file(toy, path=str(path), **kwargs),
        "listed": lambda **kwargs: splits.listed(toy, file="", path=str(path), name="l", n_unseen=1, **kwargs),
    }[make]
    all_of_them, some = split(), split(test_seen=True)
    assert len(all_of_them.test_seen) == 0
    assert len(some.test_seen) > 0
    assert_array_equal(all_of_them.trainval, np.sort(np.r_[some.trainval, some.test_seen]))
    assert_array_equal(all_of_them.unseen, some.unseen)


def test_the_generalised_setting_keeps_images_of_seen_classes_by_itself():
    load = lambda *words: zsl.load_dataset("digits", split="folds", overrides=words)  # noqa: E731
    assert len(load().X_test_seen) == 0
    assert len(load("evaluation.generalized=true").X_test_seen) > 0


def test_combinations_are_all_different_and_complete():
    toy = table(6, n_unseen=3)
    seen = [tuple(splits.combination(toy, index=i).unseen) for i in range(20)]
    assert seen == list(itertools.combinations(range(6), 3))


def test_auto_is_the_proposed_split_or_a_random_one():
    toy = table(n_unseen=2)
    split = splits.auto(toy, seed=5)
    assert split.name == "random"
    assert split.rows == splits.random(toy, seed=5).rows
    proposed = splits.random(toy, name="proposed", n_unseen=3, seed=1)
    split = splits.auto(table(splits={"proposed": proposed}, n_unseen=2), seed=5)
    assert (split.name, split.rows, split.origin["source"]) == ("proposed", proposed.rows, "proposed")
    with pytest.raises(UserError, match=r"split=auto: toy has no proposed split .*split=random split\.n_unseen=NUMBER"):
        splits.auto(table())
    for toy, remedy in ((table(n_unseen=2), "split=random"), (table(), "split=random split.n_unseen=K")):
        with pytest.raises(UserError, match=rf"no proposed split \(no split comes with its files\); use {remedy}\.$"):
            splits.stored(toy, name="proposed")


@pytest.mark.parametrize(
    ("split", "settings", "sentence"),
    [
        (splits.random, {"n_unseen": 2, "fraction": 0.5}, "exclude each other"),
        (splits.random, {}, r"set split\.n_unseen or split\.fraction"),
        (splits.random, {"n_unseen": 8}, r"split\.n_unseen=8 leaves no seen class"),
        (splits.alike, {}, r"split=alike: toy suggests no number of unseen classes; set split\.n_unseen"),
        (splits.folds, {"fold": 4}, r"split\.fold=4 is out of range: there are 4 folds, 0 to 3"),
        (splits.folds, {"fold": 0, "n_folds": 9}, "more than the 8 classes"),
        (splits.combination, {"index": 8}, "split.index=8 is out of range: toy has 8 choices of 1 .* from 0 to 7"),
        (splits.combination, {"index": 0, "n_unseen": 12}, "split.n_unseen=12 leaves no seen class"),
        (splits.random, {"fraction": 0.99}, "split.fraction=0.99 leaves no seen class"),
        (splits.from_file, {"path": "."}, "split.path=. is a folder"),
        (splits.from_file, {"path": None}, r"needs split\.path=FILE"),
        (splits.from_file, {"path": "nowhere/none.txt"}, r"split\.path=nowhere/none\.txt does not exist"),
        (
            splits.stored,
            {"name": "standard"},
            r"toy has no standard split .*no split comes with its files.*use split=random",
        ),
    ],
)
def test_what_cannot_be_is_refused(split, settings, sentence):
    with pytest.raises(UserError, match=sentence):
        split(table(), **settings)


def test_settings_are_checked_by_name():
    with pytest.raises(UserError, match=r"split\.fraction=1\.5 is not accepted"):
        zsl.load_dataset("digits", split="random", overrides=("split.fraction=1.5",))


def test_stored_checks_its_class_counts():
    split = Split("proposed", np.arange(7), np.empty(0, int), np.arange(7, 56, 8), np.array([7]))
    stored = table(splits={"proposed": split})
    assert splits.stored(stored, name="x", source="proposed", n_unseen=1).name == "x"
    with pytest.raises(UserError, match="has 72 unseen classes, but the proposed split of toy has 1"):
        splits.stored(stored, name="645_72", source="proposed", n_unseen=72)


def test_classes_of_few_images_train_with_all():
    labels = np.array([0, 0, 0, 1, 1, 1, 1, 1, 2, 2])
    small = ImageTable("s", "f", np.eye(10), labels, ("a", "b", "c"), np.eye(3))
    split = splits.hold_out(small, np.array([2]), np.random.default_rng(0), "h", {})
    assert np.isin([0, 1, 2], split.trainval).all()
    assert len(split.test_seen) == 1


def test_file_lists_unseen_classes(tmp_path):
    write_xlsa17(tmp_path / "data")
    loaded, path = xlsa17.load(str(tmp_path / "data")), tmp_path / "unseen.txt"
    path.write_text("\ufeff# a comment\n horse \n\nbeaver\n", encoding="utf-8")
    assert_array_equal(splits.from_file(loaded, path=str(path)).unseen, [3, 5])
    for text, sentence in (
        (b"grizzly bear\n", r"'grizzly bear' is not a class of xlsa17 \(did you mean grizzly\+bear\?\)"),
        (b"horse\nhorse\n", "'horse' is named more than once"),
        (b"# nothing\n", "names 0 of 6 classes"),
        ("\n".join(loaded.class_names).encode(), "names 6 of 6 classes"),
        (b"\xff\xfe\x00", "is not a readable text file in UTF-8"),
    ):
        path.write_bytes(text)
        with pytest.raises(UserError, match=sentence):
            splits.from_file(loaded, path=str(path))


def test_707_10_reads_its_names_from_the_data_folder(tmp_path):
    classes = tuple(f"scene{i:02d}" for i in range(14))
    folder = tmp_path / "SUN"
    write_sun(folder, classes, per_class=2)
    load = lambda: zsl.load_dataset("sun", feature="lite0", split="707_10", root=folder)  # noqa: E731
    with pytest.raises(
        UserError, match=r"testclasses_707_10\.txt, which does not exist.*split=random split\.n_unseen=10"
    ):
        load()
    (folder / "testclasses_707_10.txt").write_text("\n".join(classes[:9]))
    with pytest.raises(UserError, match="names 9 classes, but split=707_10 has 10"):
        load()
    (folder / "testclasses_707_10.txt").write_text("\n".join(classes[:10]))
    assert load().unseen_names == list(classes[:10])
    assert load().key["split"]["path"].endswith("testclasses_707_10.txt")


def test_validation_folds_are_the_published_ones_where_they_divide_the_seen_classes(tmp_path):
    write_xlsa17(tmp_path)
    for i, val in enumerate(("antelope", "beaver", "killer+whale"), start=1):
        seen = ["antelope", "grizzly+bear", "killer+whale", "beaver"]
        (tmp_path / f"trainclasses{i}.txt").write_text("\n".join(c for c in seen if c != val) + "\n")
        (tmp_path / f"valclasses{i}.txt").write_text(val + "\n")
    loaded = xlsa17.load(str(tmp_path))
    data = ZeroShotData.from_table(loaded, loaded.splits["proposed"])
    assert [val.tolist() for val in folds(data, 3, 0)] == [[0], [3], [2]]
    assert [train.tolist() for train, _ in data.validation] == [[1, 2, 3], [0, 1, 2], [0, 1, 3]]
    other = ZeroShotData.from_table(loaded, splits.random(loaded, n_unseen=2, seed=1))
    assert len(folds(other, 2, 3)) == 2  # published lists name classes that are unseen here
    (tmp_path / "valclasses1.txt").write_text("grizzly+bear\n")
    with pytest.raises(UserError, match=r"'grizzly\+bear' is in trainclasses1\.txt as well"):
        xlsa17.load(str(tmp_path))


@given(n_classes=st.integers(4, 30), k=st.integers(2, 3), seed=st.integers(0, 1000))
def test_seeded_validation_folds_partition_the_seen_classes(n_classes, k, seed):
    data = ZeroShotData.from_table(table(n_classes), splits.random(table(n_classes), n_unseen=1, seed=seed))
    y = data.seen
    found = list(ClassFold(k, seed).split(None, y))
    assert_array_equal(np.sort(np.concatenate([val for _, val in found])), np.arange(n_classes - 1))
    for (train, val), (again, _) in zip(found, ClassFold(k, seed).split(None, y), strict=True):
        assert_array_equal(np.sort(np.r_[train, val]), np.arange(n_classes - 1))
        assert_array_equal(train, again)
