"""Class splits: what they promise about classes and images, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import zsl
from archives import write_sun, write_xlsa17
from zsl.data import splits
from zsl.data.dataset import ZeroShotData
from zsl.data.readers import xlsa17
from zsl.data.table import ImageTable
from zsl.errors import UserError


def table(n_classes: int = 8, per_class: int = 7) -> ImageTable:
    labels = np.arange(n_classes * per_class) % n_classes
    return ImageTable(
        name="toy",
        feature="f",
        features=np.arange(len(labels))[:, None] * np.ones(3),
        labels=labels,
        class_names=tuple(f"c{i}" for i in range(n_classes)),
        attributes=np.random.default_rng(0).standard_normal((n_classes, 4)),
    )


@given(n_classes=st.integers(2, 30), seed=st.integers(0, 2**32), share=st.floats(0.01, 0.99))
def test_random_is_exactly_the_documented_draw(n_classes, seed, share):
    toy, k = table(n_classes), max(1, round(share * n_classes))
    if k >= n_classes:
        return
    for split in (splits.random(toy, n_unseen=k, seed=seed), splits.random(toy, fraction=share, seed=seed)):
        expected = sorted(np.random.default_rng(seed).permutation(n_classes)[:k])
        assert_array_equal(split.unseen, expected)
        rows = np.r_[split.trainval, split.test_seen, split.test_unseen]
        assert_array_equal(np.sort(rows), np.arange(len(toy.labels)))  # every image has one role
        data = ZeroShotData.from_table(toy, split)
        assert not np.intersect1d(data.seen, data.unseen).size


@given(n_classes=st.integers(4, 40), n_folds=st.integers(2, 4), seed=st.integers(0, 1000))
def test_folds_are_near_equal_and_cover_every_class_once(n_classes, n_folds, seed):
    toy = table(n_classes)
    unseen = [splits.folds(toy, fold=k, n_folds=n_folds, seed=seed).unseen for k in range(n_folds)]
    assert_array_equal(np.sort(np.concatenate(unseen)), np.arange(n_classes))
    sizes = [len(u) for u in unseen]
    assert max(sizes) - min(sizes) <= 1


def test_the_four_folds_by_name(shared, tmp_path):
    sizes = []
    for fold in range(4):
        data = zsl.load_dataset(
            "xlsa17",
            root=shared / "cifar_awa",
            feature="lite0_pca128",
            split="folds",
            overrides=(f"split.fold={fold}",),
        )
        sizes.append(len(data.unseen))
    assert sorted(sizes) == [6, 6, 6, 7]


def test_refusals_of_random_and_folds():
    toy = table()
    with pytest.raises(UserError, match="exclude each other"):
        splits.random(toy, n_unseen=2, fraction=0.5)
    with pytest.raises(UserError, match=r"set split\.n_unseen or split\.fraction"):
        splits.random(toy)
    with pytest.raises(UserError, match="leaves no seen class"):
        splits.random(toy, n_unseen=8)
    with pytest.raises(UserError, match=r"split\.fold=4 is out of range: there are 4 folds, 0 to 3"):
        splits.folds(toy, fold=4)
    with pytest.raises(UserError, match="more than the 8 classes"):
        splits.folds(toy, fold=0, n_folds=9)
    with pytest.raises(UserError, match=r"split\.fraction=1\.5 is not accepted"):
        zsl.load_dataset("digits", split="random", overrides=("split.fraction=1.5",))


def test_file_names_are_checked_with_near_misses(tmp_path):
    write_xlsa17(tmp_path / "data")
    loaded = xlsa17.load(str(tmp_path / "data"))
    path = tmp_path / "unseen.txt"
    for text, sentence in (
        ("grizzly bear\n", r"'grizzly bear' is not a class of xlsa17 \(did you mean 'grizzly\+bear'\?\)"),
        ("horse\nhorse\n", "'horse' is named more than once"),
        ("# nothing\n", "names 0 of 6 classes"),
        ("antelope\ngrizzly+bear\nkiller+whale\nbeaver\ndalmatian\nhorse\n", "names 6 of 6 classes"),
        (b"\xff\xfe\x00", "is not text in UTF-8"),
    ):
        path.write_bytes(text) if isinstance(text, bytes) else path.write_text(text)
        with pytest.raises(UserError, match=sentence):
            splits.from_file(loaded, path=str(path))
    path.write_text("\ufeff# a comment\n horse \n\nbeaver\n", encoding="utf-8")
    assert_array_equal(splits.from_file(loaded, path=str(path)).unseen, [3, 5])
    with pytest.raises(UserError, match=r"needs split\.path=FILE"):
        splits.from_file(loaded, path=None)
    with pytest.raises(UserError, match="cannot be read"):
        splits.from_file(loaded, path=str(tmp_path / "none.txt"))


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
    folds = splits.validation_folds(ZeroShotData.from_table(loaded, loaded.splits["proposed"]))
    assert [val.tolist() for _, val in folds] == [[0], [3], [2]]
    assert [train.tolist() for train, _ in folds] == [[1, 2, 3], [0, 1, 2], [0, 1, 3]]
    other = ZeroShotData.from_table(loaded, splits.random(loaded, n_unseen=2, seed=1))
    folds = splits.validation_folds(other, k=2, seed=3)
    assert len(folds) == 2  # published lists name classes that are unseen here
    (tmp_path / "valclasses1.txt").write_text("grizzly+bear\n")
    with pytest.raises(UserError, match=r"'grizzly\+bear' is a training class as well"):
        xlsa17.load(str(tmp_path))


@given(n_classes=st.integers(4, 30), k=st.integers(2, 3), seed=st.integers(0, 1000))
def test_seeded_validation_folds_partition_the_seen_classes(n_classes, k, seed):
    data = ZeroShotData.from_table(table(n_classes), splits.random(table(n_classes), n_unseen=1, seed=seed))
    folds = splits.validation_folds(data, k=k, seed=seed)
    assert_array_equal(np.sort(np.concatenate([val for _, val in folds])), np.arange(n_classes - 1))
    for train, val in folds:
        assert_array_equal(np.sort(np.r_[train, val]), np.arange(n_classes - 1))
    again = splits.validation_folds(data, k=k, seed=seed)
    assert all(
        np.array_equal(a, b) for one, two in zip(folds, again, strict=True) for a, b in zip(one, two, strict=True)
    )


def test_too_many_validation_folds_are_refused():
    data = ZeroShotData.from_table(table(4), splits.random(table(4), n_unseen=1))
    with pytest.raises(UserError, match="4 validation folds need at least 4 seen classes, and there are 3"):
        splits.validation_folds(data, k=4)
