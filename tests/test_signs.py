"""Signs of worthless data, fits and answers: each fires where it should, and not on sound data."""

from __future__ import annotations

import json
import re
import warnings

import numpy as np
import pytest

import zsl
from zsl import compose, run
from zsl.data import signs as of_data
from zsl.data.preprocess import Preprocess
from zsl.evaluation import signs

NAMES = tuple(f"c{c:02d}" for c in range(12))
QUIET = ["tracking=none", "cache_dir=off"]


@pytest.fixture
def toy(rng):
    """Images that are linear in the attributes of twelve classes."""
    Z, y = rng.standard_normal((12, 10)), np.repeat(np.arange(12), 20)
    return Z[y] @ rng.standard_normal((10, 20)) + 0.3 * rng.standard_normal((240, 20)), y, Z


@pytest.fixture
def warned(tmp_path):
    """The warnings of a run on images X with labels y and attributes Z."""

    def warned(X, y, Z, *overrides):
        np.savez(tmp_path / "x.npz", features=X, labels=np.array(NAMES)[y])
        rows = [f"{name},{','.join(map(repr, z.tolist()))}" for name, z in zip(NAMES, Z)]
        (tmp_path / "z.csv").write_text("\n".join([f"class,{','.join(f'a{j}' for j in range(Z.shape[1]))}", *rows]))
        data = [f"dataset.features={tmp_path / 'x.npz'}", f"dataset.attributes={tmp_path / 'z.csv'}"]
        split = ["split=random", "split.n_unseen=3"]
        return run(compose(["dataset=tabular", *data, *split, *QUIET, "model.n_iter=2", *overrides])).warnings

    return warned


def test_sound_data_are_quiet(toy, warned):
    assert warned(*toy) == []
    assert run(compose(["model=eszsl", *QUIET])).warnings == []


@pytest.mark.parametrize(
    ("overrides", "sentences"),
    [
        (["model.lam=1e9"], ["codes of all training images are zero", "all 539 images are put in one class of 3"]),
        (["model.n_atoms=2"], ["codes are 9[0-9]% full, so 2 atoms of 64"]),
        (["subset.classes=1"], ["only one class is seen", "all 539 images", "acc_class is 0.333, no better than"]),
        (["split=random", "split.n_unseen=1"], ["only one class is unseen, so every answer is right"]),
        (["solver=fista", "solver.max_iter=3"], ["lasso_gap_max is .* above the tolerance of 7.8e-08"]),
    ],
)  # fmt: skip
def test_settings_that_make_a_run_worthless(overrides, sentences):
    found = run(compose(["dataset=digits", "model.n_iter=2", *overrides, *QUIET])).warnings
    for sentence in sentences:
        assert any(re.search(sentence, w) for w in found), (sentence, found)


def test_attributes_times_1e300_are_as_good_and_warn(toy, warned):
    X, y, Z = toy
    (sentence,) = warned(X, y, 1e300 * Z)
    assert "attributes reach 2e+300, whose squares overflow" in sentence
    small, huge = (Preprocess().fit(V).transform(V) for V in (Z, 2.0**900 * Z))
    np.testing.assert_array_equal(small, huge)
    with pytest.raises(zsl.UserError, match=r"values as large as 1e\+308 have no mean"):
        Preprocess().fit(np.full((3, 2), 1e308))


@pytest.mark.parametrize(("columns", "factor"), [([3], 1e20), ([0, 1], 1e5), (list(range(10)), 1e3), ([5], 300)])
@pytest.mark.slow
def test_features_that_drown_others(toy, warned, columns, factor):
    X, y, Z = toy
    X[:, columns] *= factor
    found = warned(X, y, Z)
    assert any("hardly count; scale them (feature.standardise=true)" in w for w in found), found
    assert not any("hardly count" in w for w in warned(X, y, Z, "feature.standardise=true"))


def test_attributes_that_drown_others_by_column_and_by_row(toy, warned):
    X, y, Z = toy
    Z[4, 4] = -9999  # a code for a missing value
    found = " ".join(warned(X, y, Z))
    assert "attributes of 'c04' are 3,354 times as long as the median" in found
    assert "a4 varies" in found


@pytest.mark.parametrize("order", [np.roll(np.arange(12), 1), np.roll(np.arange(12), -4), np.arange(12)[::-1]])
def test_labels_apart_from_their_table(toy, warned, order):
    X, y, Z = toy
    (sentence,) = [w for w in warned(X, order[y], Z) if "attribute table look" in w]
    assert "shifted by" in sentence or "reversed" in sentence
    named = sentence.split("'")[1::2]
    assert order[NAMES.index(named[1])] == NAMES.index(named[0])


def test_labels_apart_from_their_images(toy, warned, rng):
    X, y, Z = toy
    assert any("no more alike than images of any classes" in w for w in warned(X, rng.permutation(y), Z))


def test_attributes_that_say_nothing_of_the_images(rng):
    Z = rng.standard_normal((20, 9))
    means, names = Z[:16] @ rng.standard_normal((9, 30)), [f"c{c:02d}" for c in range(20)]
    assert of_data.misplaced_rows(means, Z, np.arange(16), names) == []
    (sentence,) = of_data.misplaced_rows(means, rng.standard_normal((20, 9)), np.arange(16), names)
    assert "the attributes of the 16 seen classes fit their images no better" in sentence


def test_classes_without_a_column_of_their_own(toy, warned):
    X, y, Z = toy
    found = " ".join(warned(X, y, Z[:, :1]))
    assert "after pre-processing 2 of 3 classes have the attributes of another class" in found
    assert "all 60 images are put in one class of 3, 'c02' (60 images have ties" in found


def test_images_in_training_and_in_test(rng):
    X = rng.standard_normal((50, 70))
    assert of_data.repeated_images(X, X[:5] + 1e-9, "test images") == []
    (sentence,) = of_data.repeated_images(X, np.vstack([X[:5], 1 - X[:5]]), "test images")
    assert sentence.startswith("5 of 10 test images have exactly the features of a training image")
    coarse = rng.integers(0, 3, (400, 3)).astype(float)  # coincidences are as many within the training images
    assert of_data.repeated_images(coarse[:300], coarse[300:] + 3, "test images", same_classes=True) == []
    doubled = of_data.repeated_images(X, X, "test images", same_classes=True)
    assert "50 of 50" in doubled[0]


def test_accuracy_at_chance_by_its_interval(rng):
    # The standard deviation against that of ten thousand random orders of the same answers.
    y, answers = np.repeat([0, 1, 2], [30, 50, 20]), np.repeat([0, 1, 2], [10, 60, 30])
    sentence = signs.at_chance(np.eye(3)[np.where(np.arange(100) % 4, (y + 1) % 3, y)], y)
    assert "no better than guessing" in sentence or "below guessing" in sentence
    orders = (rng.permutation(answers) for _ in range(10_000))
    draws = [np.mean([(order[y == c] == c).mean() for c in range(3)]) for order in orders]
    scores = np.eye(3)[rng.permutation(answers)]
    limit = float(signs.at_chance(scores, y).split("+- ")[1].split()[0])
    assert limit == pytest.approx(3.09 * np.std(draws), rel=0.03)
    assert signs.at_chance(np.eye(3)[y], y) is None
    assert "0.333 +- 0.000" in signs.at_chance(np.eye(3)[np.zeros(100, int)], y)
    assert signs.at_chance(np.eye(3)[[0, 1, 2]], np.array([0, 1, 2])) is None  # three images can show nothing


def test_objectives_that_rise():
    assert signs.rising("f", [3.0, 2.0, 1.5], [0.0, 0.0, 0.0]) is None
    assert signs.rising("f", [3.0, 2.0, 2.1], [0.0, 0.0, 0.2]) is None  # within the gap of the codes
    assert signs.rising("f", [3.0, 2.0, 9.0], [0.0, 0.0, np.nan]) is None  # atoms were drawn again
    assert "rises by 1.0e-01" in signs.rising("f", [3.0, 2.0, 2.1], [0.0, 0.0, 0.0])
    assert signs.rising("loss", [3.0, 1.0, 1.01]) is None
    assert "rises" in signs.rising("loss", [3.0, 1.0, 2.0])
    assert "no finite number" in signs.rising("loss", [3.0, np.nan])


@pytest.mark.slow
def test_warnings_are_on_the_screen_and_in_the_record(tmp_path, caplog):
    result = run(compose(["model.lam=1e9", "model.n_iter=1", *QUIET]), tmp_path)
    record = json.loads((tmp_path / "results.json").read_text())
    assert len(result.warnings) >= 3
    assert record["warnings"] == result.warnings
    assert [r.message for r in caplog.records if r.levelname == "WARNING"] == result.warnings


@pytest.mark.slow
def test_warnings_are_a_tag_in_the_store(store):
    from zsl.tracking.store import open_store

    run(compose(["model.lam=1e9", "model.n_iter=1", "save_model=false", f"output_dir={store}"]), store / "run")
    opened = open_store({"uri": None, "experiment": "zsl"}, store)
    (found,) = opened.client.search_runs([opened.experiment])
    assert found.data.tags["zsl.warnings"].startswith("4: the codes of all training images are zero")


def test_the_estimator_warns_of_data_once(toy):
    X, y, Z = toy
    table = dict(zip(NAMES, Z))
    seen = y < 9
    labels = np.array(NAMES)[y[seen]]
    classifier = zsl.ZeroShotClassifier(zsl.models.ESZSL(), inference="own")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        classifier.fit(X[seen], labels, table)
    X[:, 3] *= 1e20
    with pytest.warns(UserWarning, match="feature 4 varies"):
        classifier.fit(X[seen], labels, table)
