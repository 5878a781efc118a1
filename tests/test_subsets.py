"""Parts of a split: nested under a seed, exact in their sizes, and part of the result's key."""

from __future__ import annotations

import numpy as np
import pytest

from zsl.config import compose
from zsl.data.subsets import subset
from zsl.data.table import ImageTable, Split
from zsl.errors import UserError
from zsl.experiment.loading import load
from zsl.experiment.run import run
from zsl.experiment.setup import checked


@pytest.fixture
def parts():
    labels = np.repeat(np.arange(8), [20, 30, 40, 25, 20, 64, 80, 100])
    rows = np.arange(len(labels))
    table = ImageTable("t", "f", np.ones((len(labels), 2)), labels, tuple("abcdefgh"), np.eye(8))
    seen = rows[labels < 5]
    return table, Split("s", seen[::2], seen[1::2], rows[labels >= 5], np.arange(5, 8))


def test_nothing_asked_is_the_split_itself(parts):
    table, split = parts
    assert subset(table, split, seed=3) is split


def test_images_are_counted_and_nested(parts):
    table, split = parts
    few, more = (subset(table, split, images=k, seed=1) for k in (4, 9))
    assert np.bincount(table.labels[few.trainval]).tolist() == [4] * 5
    assert np.isin(few.trainval, more.trainval).all()
    assert np.isin(more.trainval, split.trainval).all()
    # Nobody else loses anything; a class with fewer keeps what it has.
    assert few.test_unseen is split.test_unseen
    sizes = np.bincount(table.labels[subset(table, split, images=15).trainval])
    assert sizes.tolist() == [10, 15, 15, 13, 10]  # every other row of 25 that start at 90
    assert not np.array_equal(few.trainval, subset(table, split, images=4, seed=2).trainval)


def test_classes_are_nested_and_leave_the_seen_test_images_too(parts):
    table, split = parts
    two, four = (subset(table, split, classes=k, seed=1) for k in (2, 4))
    classes = [np.unique(table.labels[s.trainval]) for s in (two, four)]
    assert [len(c) for c in classes] == [2, 4]
    assert np.isin(classes[0], classes[1]).all()
    assert np.array_equal(np.unique(table.labels[two.test_seen]), classes[0])
    # What images of a class are drawn does not depend on how many classes there are.
    both = subset(table, split, classes=2, images=3, seed=1)
    assert np.isin(both.trainval, subset(table, split, images=3, seed=1).trainval).all()
    with pytest.raises(UserError, match=r"subset.classes=6 is more than the 5 seen classes"):
        subset(table, split, classes=6)


@pytest.mark.parametrize("ratio", [1, 4, 16])
def test_imbalance_has_the_ratio_it_says(parts, ratio):
    table, split = parts
    thin = subset(table, split, imbalance=ratio, seed=0)
    sizes = np.sort(np.bincount(table.labels[thin.test_unseen])[5:])[::-1]
    # The smallest class has 64 images; sizes fall geometrically from there.
    assert sizes.tolist() == [64, round(64 / ratio**0.5), 64 // ratio]
    assert np.isin(thin.test_unseen, split.test_unseen).all()
    assert thin.trainval is split.trainval


def test_imbalance_that_would_empty_a_class_is_refused(parts):
    with pytest.raises(UserError, match=r"subset.imbalance=200 leaves '.' without a test image.*at most 64"):
        subset(*parts, imbalance=200)


@pytest.mark.parametrize("inference", ["own", "transductive"])
@pytest.mark.slow
def test_imbalance_beside_a_run_is_that_of_a_run_on_the_subset(inference):
    base = ["dataset=digits", "model=ridge", f"inference={inference}", "tracking=none", "seed=3"]
    whole = run(compose([*base, "evaluation.imbalance=8"])).metrics
    part = run(compose([*base, "subset.imbalance=8"])).metrics
    assert whole["imbalanced_acc_class"] == part["acc_class"] != whole["acc_class"]
    assert whole["imbalanced_hit_1"] == part["hit_1"]
    stage = "own" if inference == "own" else "agnostic_naming"
    assert whole[f"{stage}/imbalanced_acc_class"] == part[f"{stage}/acc_class"]
    # Before anything is fitted.
    with pytest.raises(UserError, match=r"evaluation.imbalance=1e\+06 leaves '.*' without a test image"):
        run(compose([*base, "evaluation.imbalance=1e6"]))
    with pytest.raises(UserError, match=r"evaluation.imbalance=0.5 is not accepted"):
        run(compose([*base, "evaluation.imbalance=0.5"]))


def test_the_subset_is_in_the_key_and_its_values_are_checked():
    base = ["dataset=digits", "model=ridge", "tracking=none"]
    whole, part = (load(checked(compose([*base, *more]))) for more in ([], ["subset.images=10"]))
    assert len(part.X) == 10 * len(part.seen) < len(whole.X)
    assert part.key["split"]["rows"] != whole.key["split"]["rows"]
    assert part.key["split"]["subset"] == {"images": 10, "seed": 0}
    assert "subset" not in whole.key["split"]
    with pytest.raises(UserError, match=r"subset.images=0 is not accepted"):
        run(compose([*base, "subset.images=0"]))
    with pytest.raises(UserError, match=r"subset.imbalance=0.5 is not accepted"):
        run(compose([*base, "subset.imbalance=0.5"]))


@pytest.mark.slow
def test_a_run_is_not_passed_off_as_one_of_another_name(tmp_path):
    # More images than any class has: the same rows, but a point of a curve. And a fixed split that random draws too.
    base = ["dataset=digits", "model=ridge", "tracking=none", f"output_dir={tmp_path}", "skip_existing=true"]
    digests = set()
    for i, more in enumerate((["split=random"], ["split=random", "subset.images=1000"], ["split=fixed"])):
        result = run(compose([*base, *more]), tmp_path / str(i))
        assert result.prediction is not None, "it was run, not skipped"
        digests.add(result.digest)
    assert len(digests) == 3


def test_confusion_counts_every_test_image_once():
    result = run(compose(["dataset=digits", "model=ridge", "tracking=none"]))
    for row in result.per_class:
        mine = result.confusion[row["class"]]
        assert sum(mine.values()) == row["images"]
        assert mine.get(row["class"], 0) == round(row["own/acc"] * row["images"])
        assert sum(r.get(row["class"], 0) for r in result.confusion.values()) == row["predicted"]
