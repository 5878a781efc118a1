"""CLIP's own rule and its adapter: closed forms, limits, theorems, and what the classifier and a run do with them."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import check_grad

import zsl
from zsl.data.preprocess import Preprocess
from zsl.data.space import check_one_space
from zsl.errors import UserError
from zsl.linalg import cosines
from zsl.models import CLIP, CLIPAdapter


def joint_space(seed=0, n_classes=8, per_class=12, p=10):
    """Images around texts in one space, at a distance from them as in CLIP: (X, y, class rows)."""
    rng = np.random.default_rng(seed)
    Z = rng.standard_normal((n_classes, p)) + 1.0
    y = np.repeat(np.arange(n_classes), per_class)
    return Z[y] + 0.8 * rng.standard_normal((len(y), p)) - 2.0 * np.eye(p)[0], y, Z


def test_clip_alone_is_the_cosine_over_the_temperature():
    X, y, Z = joint_space()
    model = CLIP(temperature=0.5).fit(X, y, Z[y], Z)
    assert_allclose(model.scores(X), cosines(X, Z) / 0.5, rtol=1e-13)
    assert_array_equal(model.predict_attributes(X), X)
    # Nothing is learned: other images and other labels give the same scores.
    other = CLIP(temperature=0.5).fit(-X[::-1], y, Z[y], Z)
    assert_array_equal(other.scores(X), model.scores(X))


@pytest.mark.parametrize("gamma", [0.3, 30.0])
def test_the_adapter_minimises_its_objective(gamma):
    X, y, Z = joint_space()
    W = CLIPAdapter(gamma=gamma).fit(X, y, Z[y], Z).W_
    p = X.shape[1]

    def objective(w):
        w = w.reshape(p, p)
        return ((X @ w - Z[y]) ** 2).sum() + gamma * ((w - np.eye(p)) ** 2).sum()

    def gradient(w):
        w = w.reshape(p, p)
        return (2 * X.T @ (X @ w - Z[y]) + 2 * gamma * (w - np.eye(p))).ravel()

    start = np.random.default_rng(1).standard_normal(p * p)
    assert check_grad(objective, gradient, start) < 1e-3 * np.abs(gradient(start)).max()
    assert np.abs(gradient(W.ravel())).max() < 1e-9 * np.abs(gradient(np.zeros(p * p))).max()


def test_the_adapter_lies_between_clip_and_least_squares():
    X, y, Z = joint_space()
    assert_allclose(CLIPAdapter(gamma=1e12).fit(X, y, Z[y], Z).W_, np.eye(10), atol=1e-8)
    W = CLIPAdapter(gamma=1e-9).fit(X, y, Z[y], Z).W_
    assert_allclose(W, np.linalg.lstsq(X, Z[y], rcond=None)[0], atol=1e-8)


def test_a_rotation_of_the_space_changes_no_score():
    X, y, Z = joint_space()
    Q = np.linalg.qr(np.random.default_rng(2).standard_normal((10, 10)))[0]
    for model in (CLIP, CLIPAdapter):
        plain = model().fit(X, y, Z[y], Z).scores(X)
        turned = model().fit(X @ Q, y, (Z @ Q)[y], Z @ Q).scores(X @ Q)
        assert_allclose(turned, plain, rtol=1e-9)


def test_where_images_leave_no_direction_the_adapter_is_the_identity_there():
    """Directions that no image has are not changed, also where there are fewer images than dimensions."""
    rng = np.random.default_rng(0)
    X, Z, y = rng.standard_normal((4, 9)), rng.standard_normal((2, 9)), np.array([0, 0, 1, 1])
    W = CLIPAdapter(gamma=2.0).fit(X, y, Z[y], Z).W_
    null = np.linalg.svd(X)[2][4:]
    assert_allclose(null @ W, null, atol=1e-12)


def test_images_and_classes_of_different_length_are_refused():
    X, y, Z = joint_space()
    with pytest.raises(UserError, match=r"10 features and classes 9 attributes, and CLIP's rule needs equally many"):
        CLIP().fit(X, y, Z[y][:, :9], Z[:, :9])


def frame(Z):
    return pd.DataFrame(Z, index=[f"c{i}" for i in range(len(Z))])


def test_the_classifier_does_not_centre_for_clip_alone():
    X, y, Z = joint_space()
    names = np.array([f"c{i}" for i in y])
    seen = y < 5
    classifier = zsl.ZeroShotClassifier(CLIP(), inference="own").fit(X[seen], names[seen], frame(Z))
    assert_allclose(classifier.decision_function(X[~seen]), 100 * cosines(X[~seen], Z[5:]), rtol=1e-12)
    assert not classifier.preprocess_.centre
    # With an adapter both are centred by default, and a pre-processing of the user's own stays as it is.
    assert zsl.ZeroShotClassifier(CLIPAdapter(gamma=1.0)).fit(X[seen], names[seen], frame(Z)).preprocess_.centre
    own = zsl.ZeroShotClassifier(CLIP(), preprocess=Preprocess(), semantics=Preprocess())
    assert own.fit(X[seen], names[seen], frame(Z)).preprocess_.centre


def test_inductive_inference_is_clips_own_rule_and_transductive_inference_builds_on_it():
    X, y, Z = joint_space(per_class=30)
    names = np.array([f"c{i}" for i in y])
    seen = y < 5
    own, inductive, mixture = (
        zsl.ZeroShotClassifier(CLIPAdapter(gamma=10.0), inference=rule).fit(X[seen], names[seen], frame(Z))
        for rule in ("own", "inductive", "transductive")
    )
    assert_array_equal(inductive.predict(X[~seen]), own.predict(X[~seen]))
    stages = mixture.predict_stages(X[~seen]).stages
    assert [stage.pair[1] for stage in stages][-2:] == ["bidirectional", "mixture"]


def test_a_file_keeps_the_adapter(tmp_path):
    X, y, Z = joint_space()
    names = np.array([f"c{i}" for i in y])
    classifier = zsl.ZeroShotClassifier(CLIPAdapter(gamma=3.0), inference="own").fit(X[y < 5], names[y < 5], frame(Z))
    classifier.save(tmp_path / "m.skops")
    loaded = zsl.ZeroShotClassifier.load(tmp_path / "m.skops")
    assert_array_equal(loaded.decision_function(X), classifier.decision_function(X))


def test_a_run_of_clip_is_not_centred_and_that_of_the_adapter_is():
    centred = {}
    for name in ("clip", "clip_adapter", "eszsl"):
        cfg = zsl.compose([f"model={name}"])
        centred[name] = (cfg.feature.centre, cfg.dataset.semantics.centre)
    assert centred == {"clip": (False, False), "clip_adapter": (True, True), "eszsl": (True, True)}
    assert zsl.compose(["model=clip", "feature.centre=true"]).feature.centre


def provenance(network=None, encoder=None):
    records = {"network": network, "encoder": encoder}
    return {k: json.dumps(v) for k, v in records.items() if v is not None}


def test_embeddings_of_different_networks_are_never_compared_silently(caplog):
    one, other = {"name": "open_clip/A", "sha256": "1"}, {"name": "hf/B", "sha256": "2"}
    check_one_space(CLIP(), provenance(one, one), 4, 4)
    assert not caplog.text
    with pytest.raises(UserError, match=r"by open_clip/A \(weights 1\) and the classes by hf/B \(weights 2\), so they"):
        check_one_space(CLIP(), provenance(one, other), 4, 4)
    for network, encoder, which in ((None, one, "the images"), (one, None, "the classes"), (None, None, "the images")):
        caplog.clear()
        check_one_space(CLIP(), provenance(network, encoder), 4, 4)
        assert f"nothing says which network embedded {which}" in caplog.text
    caplog.clear()
    check_one_space(
        zsl.models.ESZSL(), provenance(one, other), 4, 5
    )  # learns the relation, so any two networks will do
    assert not caplog.text
    for network, encoder, sentence in (
        ({**one, "pool": "patches"}, one, "--pool patches, and only a network's own output"),
        (one, {**one, "centred": True}, "described with --centre"),
        (one, {"name": "tfidf"}, "described by tfidf, which has no space in common"),
    ):
        with pytest.raises(UserError, match=sentence):
            check_one_space(CLIP(), provenance(network, encoder), 4, 4)
    with pytest.raises(UserError, match="several networks have no common space"):
        check_one_space(CLIP, {"network": [json.dumps(one), json.dumps(one)]}, 8, 8)


def test_several_blocks_are_not_one_space():
    with pytest.raises(UserError, match="4 features and classes 5 attributes, so they are not of one space"):
        check_one_space(CLIP, {}, 4, 5)
    X, y, Z = joint_space()
    names = np.array([f"c{i}" for i in y])
    for blocks, sentence in (
        (((5, 5), ()), "several networks"), (((), (4, 6)), "texts with attributes"),
        (None, "is not a pair of lists"), ((4, 6), "is not a pair of lists"), ((("4",), ()), "is not a pair of lists"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=sentence):
            zsl.ZeroShotClassifier(CLIP(), "own").fit(X[y < 5], names[y < 5], frame(Z), blocks=blocks)


def test_late_fusion_takes_no_member_that_needs_one_space():
    X, y, Z = joint_space()
    with pytest.raises(UserError, match=r"model\.member=CLIP compares images with classes in one space"):
        zsl.models.LateFusion(CLIP()).fit(X, y, Z[y], Z)
