"""Features of several networks, attributes and texts: pre-processed block by block, beside each other or fused late."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import zsl
from zsl.config.argv import normalise_argv
from zsl.data.dataset import ZeroShotData
from zsl.data.load import beside
from zsl.data.preprocess import Preprocess
from zsl.data.splits import random
from zsl.data.table import ImageTable
from zsl.errors import UserError
from zsl.models import ESZSL, LateFusion, Ridge
from zsl.predict.__main__ import main as predict


def table(n_classes=6, per_class=8, p=5, q=4, seed=0, **more):
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(n_classes), per_class)
    Z = rng.standard_normal((n_classes, q))
    X = Z[y] @ rng.standard_normal((q, p)) + 0.3 * rng.standard_normal((len(y), p))
    names = tuple(f"c{c}" for c in range(n_classes))
    files = tuple(f"{names[c]}/{i}.png" for i, c in enumerate(y))
    return ImageTable("toy", more.pop("feature", "a"), X, y, names, Z, image_names=files, **more)


def two_networks():
    one = table()
    rng = np.random.default_rng(1)
    return one, replace(one, feature="b", features=one.features @ rng.standard_normal((5, 3)) + 100.0)


# --- pre-processing of blocks -----------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"pca": 2}, {"standardise": True, "power": 0.5}])
def test_every_block_is_pre_processed_by_itself(settings):
    rng = np.random.default_rng(0)
    X = np.hstack([rng.standard_normal((20, 4)), 1000 + 50 * rng.standard_normal((20, 3))])
    X[3, 1] = X[5, 6] = np.nan
    both = Preprocess(block_weights=[1, 3], **settings).fit(X, blocks=(4, 3))
    parts = [Preprocess(**settings).fit(part).transform(part) for part in (X[:, :4], X[:, 4:])]
    assert_allclose(both.transform(X), np.hstack([np.sqrt(0.25) * parts[0], np.sqrt(0.75) * parts[1]]), rtol=1e-14)
    assert both.sizes_ == [part.shape[1] for part in parts]
    # Rows keep the length 1, so that lambda means the same, and inner products are the weighted mean of the blocks'.
    assert_allclose(np.linalg.norm(both.transform(X), axis=1), 1, rtol=1e-14)
    K = both.transform(X) @ both.transform(X).T
    assert_allclose(K, 0.25 * parts[0] @ parts[0].T + 0.75 * parts[1] @ parts[1].T, atol=1e-14)


def test_one_block_is_as_before_and_weights_have_to_fit():
    X = np.random.default_rng(0).standard_normal((9, 4))
    assert_array_equal(Preprocess().fit(X, blocks=(4,)).transform(X), Preprocess().fit(X).transform(X))
    for blocks, weights, sentence in (
        ((3, 3), [1, 1], r"blocks of 3 \+ 3 columns do not make the 4 of X"),
        ((-1, 5), [1, 1], "do not make the 4 of X"),
        ((), [1, 2], "there is one block"), ((2, 2), [1], "there are 2 blocks"), ((2, 2), [0, 0], "there are 2 blocks"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=sentence):
            Preprocess(block_weights=weights).fit(X, blocks=blocks)
    with pytest.raises(UserError, match="block_weights"):
        Preprocess(block_weights=[1, -1])


def test_very_large_weights_are_shares_too():
    X = np.random.default_rng(0).standard_normal((9, 4))
    large, equal = (Preprocess(block_weights=w).fit(X, blocks=(2, 2)).transform(X) for w in ([1e308, 1e308], [1, 1]))
    assert_array_equal(large, equal)


def test_a_weight_of_zero_leaves_a_block_out():
    one, other = two_networks()
    data = ZeroShotData.from_table(beside([one, other]), random(one, n_unseen=2))
    alone = ZeroShotData.from_table(one, random(one, n_unseen=2))
    fused = zsl.ZeroShotClassifier(ESZSL(), "own", preprocess=Preprocess(block_weights=[1, 0])).fit_data(data)
    plain = zsl.ZeroShotClassifier(ESZSL(), "own").fit_data(alone)
    assert_allclose(fused.decision_function(data.X_unseen), plain.decision_function(alone.X_unseen), rtol=1e-9)


# --- tables beside each other ---------------------------------------------------------------------------------------


def test_images_are_matched_by_name():
    one, other = two_networks()
    order = np.random.default_rng(3).permutation(len(one.labels))
    shuffled = replace(other, features=other.features[order], labels=other.labels[order],
                       image_names=tuple(other.image_names[i] for i in order))  # fmt: skip
    found = beside([one, shuffled])
    assert_array_equal(found.features, np.hstack([one.features, other.features]))
    assert (found.feature, found.feature_blocks) == ("a+b", (5, 3))


def test_tables_that_do_not_belong_together_are_refused():
    one, other = two_networks()
    for wrong, sentence in (
        (replace(other, features=one.features), "a and b are the same features"),
        (replace(other, labels=other.labels[::-1].copy()), "not of the same images"),
        (table(per_class=7, feature="b"), "not of the same images"),
        (replace(other, image_names=tuple(f"x{n}" for n in other.image_names)), "not of the same images"),
        (replace(other, attributes=other.attributes + 1), "different classes or attributes"),
    ):
        with pytest.raises(UserError, match=sentence):
            beside([one, wrong])


def test_blocks_follow_the_attributes_that_are_kept():
    one = table()
    gaps = np.zeros(one.attributes.shape, bool)
    gaps[0, 1] = gaps[2, 3] = True
    held = replace(one, attribute_blocks=(2, 2), missing=gaps)
    assert ZeroShotData.from_table(held, random(held, n_unseen=2), missing="drop").attribute_blocks == (1, 1)
    with pytest.raises(UserError, match=r"blocks of 2 \+ 3 attributes do not make 4 columns"):
        replace(one, attribute_blocks=(2, 3))


def test_a_run_reads_several_features_by_name(tmp_path, capsys):
    one, other = two_networks()
    for part in (one, other):
        np.savez(tmp_path / f"{part.feature}.npz", features=part.features, files=np.array(part.image_names),
                 labels=np.array(part.class_names)[part.labels])  # fmt: skip
    frame = pd.DataFrame(one.attributes, index=pd.Index(one.class_names, name="class"), columns=list("wxyz"))
    frame.to_csv(tmp_path / "classes.csv")
    words = ["dataset=tabular", f"dataset.features={tmp_path}", f"dataset.attributes={tmp_path / 'classes.csv'}",
             "split=random", "split.n_unseen=2", "model=eszsl", "tracking=none"]  # fmt: skip
    result = zsl.run(zsl.compose([*words, "feature=[a,b]", "feature.block_weights=[1,2]"]))
    assert result.key["feature"]["name"] == "a+b"
    data = ZeroShotData.from_table(beside([one, other]), random(one, n_unseen=2))
    expected = zsl.ZeroShotClassifier(ESZSL(), "own", preprocess=Preprocess(block_weights=[1, 2])).fit_data(data)
    assert_allclose(result.prediction.scores, expected.decision_function(data.X_unseen), atol=1e-6)  # float32 in files
    for part in (one, other):  # new images, in another order in each file
        order = np.random.default_rng(len(part.feature_blocks)).permutation(10) if part is other else np.arange(10)
        (tmp_path / "new").mkdir(exist_ok=True)
        np.savez(tmp_path / "new" / f"{part.feature}.npz", features=part.features[order],
                 files=np.array(part.image_names)[order])  # fmt: skip
    folder = tmp_path / "run"
    zsl.run(zsl.compose([*words, "feature=[a,b]", "feature.block_weights=[1,2]", "figures=false"]), folder)
    assert predict([str(folder), str(tmp_path / "new"), "--classes", "all", "--to", str(tmp_path / "p.csv")]) == 0
    found = pd.read_csv(tmp_path / "p.csv").set_index("image")["class_1"]
    told = expected.predict(np.hstack([one.features, other.features])[:10], "all")
    assert found[list(one.image_names[:10])].tolist() == told.tolist()
    assert predict([str(folder), str(tmp_path / "new" / "a.npz")]) == 1
    assert "is no folder with a.npz, b.npz" in capsys.readouterr().err
    with pytest.raises(UserError, match=r"is a folder without c\.npz; .* \(there: a, b\)"):
        zsl.run(zsl.compose([*words, "feature=[a,c]"]))
    with pytest.raises(UserError, match="is not a list of features"):
        zsl.compose([*words, "feature=[a,]"])
    with pytest.raises(UserError, match="is not a list of features"):
        zsl.compose([*words, "feature=[[a],[b]]"])
    assert normalise_argv(["feature=[a b,c],d,[e]"]) == ["feature=own", "feature.name='a b+c','d','e'"]


# --- late fusion ----------------------------------------------------------------------------------------------


def brought_to_scale(classifier, data):
    """The scores of a member on unseen images, over the deviation of its scores on seen ones."""
    of_seen = classifier.decision_function(data.X, "seen")
    return classifier.decision_function(data.X_unseen) / np.sqrt(of_seen.var(axis=1).mean())


def test_late_fusion_adds_the_scores_of_a_model_per_view_at_one_scale():
    one, other = two_networks()
    split = random(one, n_unseen=2)
    both = replace(beside([one, other]), attribute_blocks=(3, 1))
    data = ZeroShotData.from_table(both, split)
    fused = zsl.ZeroShotClassifier(LateFusion(ESZSL(), weights=[1, 2, 3, 4]), "own").fit_data(data)
    expected = 0
    for weight, (part, attributes) in zip(
        (1, 2, 3, 4), ((one, slice(0, 3)), (one, slice(3, 4)), (other, slice(0, 3)), (other, slice(3, 4))), strict=True
    ):
        # A block's row has the length sqrt(1/2); the scale of X and S moves ESZSL's penalties.
        alone = ZeroShotData.from_table(replace(part, attributes=one.attributes[:, attributes]), split)
        member = zsl.ZeroShotClassifier(ESZSL(gamma=20.0, lam=2.0), "own").fit_data(alone)
        expected = expected + weight / 10 * brought_to_scale(member, alone)
    assert_allclose(fused.decision_function(data.X_unseen), expected, rtol=1e-9)


def test_python_says_what_the_blocks_are():
    one, other = two_networks()
    X, names = np.hstack([one.features, other.features]), np.array(one.class_names)[one.labels]
    seen, frame = one.labels < 4, pd.DataFrame(one.attributes, index=one.class_names)
    fused = zsl.ZeroShotClassifier(LateFusion(ESZSL()), "own").fit(X[seen], names[seen], frame, blocks=((5, 3), (3, 1)))
    assert len(fused.model_.members_) == 4
    assert [part.n_features_in_ for part in fused.preprocess_.blocks_] == [5, 3]
    with pytest.raises(UserError, match=r"blocks of 5 \+ 4 columns do not make the 8 of X"):
        zsl.ZeroShotClassifier(ESZSL(), "own").fit(X[seen], names[seen], frame, blocks=((5, 4), ()))
    with pytest.raises(UserError, match="the blocks of features make 3 columns, and there are 8"):
        LateFusion(ESZSL()).set_blocks((3,), (4,)).fit(X, one.labels, one.attributes[one.labels], one.attributes)


def test_one_view_ranks_as_its_member():
    data = ZeroShotData.from_table(table(), random(table(), n_unseen=3))
    fused = zsl.ZeroShotClassifier(LateFusion(Ridge()), "own").fit_data(data).decision_function(data.X_unseen)
    alone = zsl.ZeroShotClassifier(Ridge(), "own").fit_data(data)
    assert_allclose(fused, brought_to_scale(alone, data), rtol=1e-12)


def test_a_grid_of_weights_fits_each_view_once(monkeypatch):
    fits = []
    real = ESZSL._fit
    monkeypatch.setattr(ESZSL, "_fit", lambda self, *given: (fits.append(1), real(self, *given))[1])
    one, other = two_networks()
    data = ZeroShotData.from_table(beside([one, other]), random(one, n_unseen=2))
    grid = [zsl.ZeroShotClassifier(LateFusion(ESZSL(), weights=w), "own") for w in ([1, 0], [1, 1], [0, 1])]
    scores = {i: c.decision_function(data.X_unseen) for i, c in zsl.ZeroShotClassifier.fit_many(grid, data)}
    assert len(fits) == 2
    assert_allclose(scores[1], (scores[0] + scores[2]) / 2, rtol=1e-12)


def test_late_fusion_says_what_it_cannot_use(tmp_path):
    data = ZeroShotData.from_table(table(), random(table(), n_unseen=2))
    with pytest.raises(UserError, match=r"model\.weights=\[1, 2\] does not fit 1 view of the data"):
        zsl.ZeroShotClassifier(LateFusion(ESZSL(), weights=[1, 2])).fit_data(data)
    with pytest.raises(UserError, match="should be an inductive model"):
        zsl.ZeroShotClassifier(LateFusion(zsl.models.GFZSLTransductive()), "own").fit_data(data)


def test_a_file_keeps_blocks_and_views(tmp_path):
    one, other = two_networks()
    data = ZeroShotData.from_table(beside([one, other]), random(one, n_unseen=2))
    for classifier in (
        zsl.ZeroShotClassifier(LateFusion(ESZSL()), "inductive"),
        zsl.ZeroShotClassifier(ESZSL(), "own"),
    ):
        fitted = classifier.fit_data(data)
        fitted.save(tmp_path / "m.skops")
        loaded = zsl.ZeroShotClassifier.load(tmp_path / "m.skops")
        assert_allclose(loaded.decision_function(data.X_unseen), fitted.decision_function(data.X_unseen), rtol=1e-12)


# --- drawn splits where classes have no images ------------------------------------------------------------------


def test_a_drawn_split_leaves_classes_without_images_and_images_without_class_out():
    full = table()
    y = np.where(full.labels == 5, -1, full.labels)  # c5 has unlabelled images only
    holed = replace(full, labels=y)
    drawn = [random(holed, n_unseen=2, seed=s) for s in range(20)]
    assert all(5 not in split.unseen and (y[split.test_unseen] >= 0).all() for split in drawn)
    assert {c for split in drawn for c in split.unseen.tolist()} == {0, 1, 2, 3, 4}
    with pytest.raises(UserError, match="has 5 classes with images"):
        random(holed, n_unseen=5)
