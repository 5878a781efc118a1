"""Many classes: scores are never held whole, and answers do not depend on the size of the blocks."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import zsl
from zsl.errors import UserError
from zsl.inference import Inference, blocks, stages
from zsl.inference.attributes import _to_nearest_other, aware
from zsl.inference.blocks import Scores, check_fits
from zsl.linalg import largest
from zsl.predict import __main__ as predict

# Two classes are alike on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:.*cannot be told from it:UserWarning")


@pytest.fixture(scope="module")
def data():
    """Features and attributes of 12 seen classes, and 40 images of 30 unseen ones of which two are alike."""
    rng = np.random.default_rng(0)
    attributes = rng.standard_normal((42, 6))
    attributes[41] = attributes[40]
    mixing = rng.standard_normal((6, 8))
    y, new = np.repeat(np.arange(12), 5), rng.integers(12, 42, 40)
    X = [attributes[c] @ mixing + 0.1 * rng.standard_normal((len(c), 8)) for c in (y, new)]
    table = pd.DataFrame(attributes, [f"class {c}" for c in range(42)])
    return X[0], [f"class {c}" for c in y], table, X[1]


def fitted(data, model, **inference):
    X, y, table, _ = data
    return zsl.ZeroShotClassifier(model, Inference(**inference)).fit(X, y, table)


def small_blocks(monkeypatch, n_scores, n_images):
    monkeypatch.setattr(blocks, "MOST_SCORES", n_scores)
    monkeypatch.setattr(blocks, "MOST_IMAGES", n_images)
    monkeypatch.setattr(stages, "MOST_IMAGES", n_images)
    monkeypatch.setattr(zsl.inference.inference, "MOST_IMAGES", n_images)
    monkeypatch.setattr(stages, "WHOLE", 0)


COUPLED = {"n_atoms": 12, "n_iter": 1}
RULES = {
    "own": (zsl.models.ESZSL(), {"attributes": "own", "labels": "own"}),
    "inductive": (zsl.models.ESZSL(), {"labels": "inductive"}),
    "aag": (zsl.CoupledDictionaries(**COUPLED), {"attributes": "agnostic", "labels": "nearest"}),
    "aaw": (zsl.CoupledDictionaries(**COUPLED), {"attributes": "aware", "labels": "nearest"}),
    "codes": (zsl.CoupledDictionaries(**COUPLED), {"labels": "bidirectional"}),
    "mixture": (zsl.models.ESZSL(), {"labels": "mixture"}),
    "mixture of codes": (zsl.CoupledDictionaries(**COUPLED), {"labels": "mixture"}),
    "mixture with a prior": (zsl.models.ESZSL(), {"labels": "mixture", "settings": {"mixture": {"class_prior": "em"}}}),
    "csls": (zsl.models.ESZSL(), {"labels": "csls"}),
    "inverted softmax": (zsl.models.ESZSL(), {"labels": "inverted_softmax"}),
    "spread": (zsl.CoupledDictionaries(**COUPLED), {"labels": "spread"}),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("n_scores", "n_images"), [(1, 8192), (100, 8192), (1000, 7), (10**6, 11)])
@pytest.mark.slow
def test_answers_do_not_depend_on_blocks(data, monkeypatch, rule, n_scores, n_images):
    model, inference = RULES[rule]
    classifier = fitted(data, model, **inference)
    X = data[3]
    scores = classifier.decision_function(X)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :5]
    small_blocks(monkeypatch, n_scores, n_images)
    found = list(classifier.predict_top(X, 5))
    names, values = (np.concatenate(parts) for parts in zip(*found))
    # Blocks of other sizes round products otherwise, so what differs by rounding only may stand in another order.
    assert_allclose(values, np.take_along_axis(scores, order, axis=1), atol=1e-7 * np.abs(scores).max())
    place = {name: c for c, name in enumerate(classifier.classes_)}
    own = np.take_along_axis(scores, np.vectorize(place.get)(names), axis=1)
    assert_allclose(own, values, atol=1e-7 * np.abs(scores).max())
    assert len(set(names[0])) == 5
    if n_scores < 10**6 and rule not in ("spread", "mixture with a prior"):
        assert len(found) > 1


def test_ties_are_in_the_order_of_the_classes_whatever_the_blocks(data, monkeypatch):
    # Whole numbers are added without rounding, so that equal scores are equal in every block.
    class Whole(zsl.models.ESZSL):
        def _scores(self, X, S):
            return np.round(X[:, :2]) @ np.round(S[:, :2]).T

    classifier = fitted(data, Whole(), attributes="own", labels="own")
    scores = classifier.decision_function(10 * data[3], data[2] * 10)
    order = np.argsort(-scores, axis=1, kind="stable")
    expected = np.array(data[2].index)[order]
    for n_scores in (1, 50, 10**6):
        with monkeypatch.context() as patch:
            small_blocks(patch, n_scores, 8192)
            for k in (1, 5, 42):
                names = np.concatenate([n for n, _ in classifier.predict_top(10 * data[3], k, data[2] * 10)])
                assert_array_equal(names, expected[:, :k])


@pytest.mark.parametrize("k", [1, 2, 5, 40])
def test_the_largest_are_those_of_a_stable_sort(rng, k):
    scores = rng.integers(0, 12, (60, 100)).astype(float)
    scores[0] = 3.0
    scores[1, :97] = np.nan
    scores[2, ::2] = -np.inf
    scores[3, :5] = np.inf
    assert_array_equal(largest(scores, k), np.argsort(-scores, axis=1, kind="stable")[:, :k])


@pytest.mark.slow
def test_labelled_images_are_in_no_block(data, monkeypatch):
    X, y, table, new = data
    classifier = zsl.ZeroShotClassifier(zsl.models.ESZSL(), "asked")
    classifier.fit(X, y, table, labelled=(new[:3], ["class 20", "class 21", "class 20"]))
    expected = classifier.classes_[classifier.decision_function(new).argmax(axis=1)]
    small_blocks(monkeypatch, 31, 8192)
    assert_array_equal(classifier.predict(new), expected)
    assert sum(len(names) for names, _ in classifier.predict_top(new)) == len(new)


def test_a_rule_that_needs_all_scores_is_refused_where_memory_does_not_suffice(data, monkeypatch):
    classifier = fitted(data, zsl.CoupledDictionaries(**COUPLED), labels="spread")
    monkeypatch.setattr(stages, "WHOLE", 0)
    monkeypatch.setattr(blocks, "machine_memory", lambda: 3 * 8 * 40 * 30 - 1)
    with pytest.raises(UserError, match=r"labels=spread holds all scores at once, .* 40 images and 30 classes"):
        classifier.predict(data[3])
    monkeypatch.setattr(blocks, "machine_memory", lambda: 3 * 8 * 40 * 30)
    assert len(classifier.predict(data[3])) == 40
    monkeypatch.setattr(blocks, "machine_memory", lambda: 0)  # a system that does not tell
    check_fits(10**6, 10**6, "spread")


def test_aware_codes_do_not_depend_on_blocks(data, monkeypatch):
    classifier = fitted(data, zsl.CoupledDictionaries(**COUPLED), attributes="aware", labels="nearest")
    X, Z = classifier.preprocess_.transform(data[3]), classifier.semantics_.transform(data[2].to_numpy())
    for batch in (False, True):
        whole = aware(classifier.model_, X, Z, gamma_relative=0.5, batch=batch)
        with monkeypatch.context() as patch:
            patch.setattr(blocks, "MOST_SCORES", 3 * len(Z))
            parts = aware(classifier.model_, X, Z, gamma_relative=0.5, batch=batch)
        assert_allclose(parts.Z_hat, whole.Z_hat, atol=1e-9)
        assert_allclose(parts.report["entropy_after"], whole.report["entropy_after"], atol=1e-9)


def test_distances_between_many_classes(rng, monkeypatch):
    Z = rng.standard_normal((50, 3))
    Z[7] = Z[31]
    expected = _to_nearest_other(Z)
    monkeypatch.setattr("zsl.inference.attributes._FEW_CLASSES", 1)
    monkeypatch.setattr(blocks, "MOST_SCORES", 120)
    assert_allclose(_to_nearest_other(Z), expected, rtol=1e-9)
    assert _to_nearest_other(Z)[7] == 0


def test_scores_in_blocks_can_be_mapped_and_gathered():
    scores = Scores((5, 2), lambda rows: np.arange(10.0).reshape(5, 2)[rows])
    assert_array_equal(scores.map(lambda rows, s: s + rows.start).in_memory("mixture")[:, 0], [0, 2, 4, 6, 8])


MEMORY = """
import tracemalloc, numpy as np, zsl
from zsl.inference import Inference, blocks, stages
blocks.MOST_SCORES, stages.WHOLE = 2**17, 2**18
rng = np.random.default_rng(0)
n, M = 3000, 4000
Z, X = rng.standard_normal((10 + M, 4)), rng.standard_normal((n, 6))
table = {f"c{i}": row for i, row in enumerate(Z)}
y = [f"c{i % 10}" for i in range(50)]
inference = Inference(labels="RULE", settings={"mixture": {"max_iter": 2}})
classifier = zsl.ZeroShotClassifier(MODEL, inference).fit(X[:50], y, table)
tracemalloc.start()
found = sum(len(names) for names, _ in classifier.predict_top(X, 5))
peak = tracemalloc.get_traced_memory()[1]
assert found == n
print(peak / (8 * n * M))
"""


@pytest.mark.parametrize("model", ["zsl.models.ESZSL()", "zsl.CoupledDictionaries(n_atoms=8, n_iter=1)"])
@pytest.mark.parametrize("rule", ["inductive", "mixture"])
@pytest.mark.slow
def test_memory_stays_far_below_that_of_all_scores(model, rule):
    code = MEMORY.replace("RULE", rule).replace("MODEL", model)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 0.5


def test_what_was_answered_stays_after_an_interruption(data, tmp_path, monkeypatch, caplog):
    classifier = fitted(data, zsl.models.ESZSL(), attributes="own", labels="own")
    small_blocks(monkeypatch, 10 * 30, 8192)
    table = classifier.class_attributes("unseen")

    def interrupted():
        for number, line in enumerate(predict.best_classes(classifier, data[3], table, 2)):
            if number == 25:
                raise KeyboardInterrupt
            yield line

    to = tmp_path / "answers.csv"
    with pytest.raises(KeyboardInterrupt):
        predict._write(interrupted(), [str(i) for i in range(40)], to, as_json=False)
    assert [p.name for p in tmp_path.iterdir()] == ["answers.part.csv"]
    assert len((tmp_path / "answers.part.csv").read_text().splitlines()) == 26
    assert "answers.part.csv has the answers that were ready" in caplog.text
    predict._write(predict.best_classes(classifier, data[3], table, 2), [str(i) for i in range(40)], to, as_json=False)
    assert [p.name for p in tmp_path.iterdir()] == ["answers.csv"]
