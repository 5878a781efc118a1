"""Labelled images of unseen classes: in ``fit``, in experiments and their records, and in files of answers."""

from functools import cache

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import zsl
from zsl.data.labelled import read_answers, set_aside
from zsl.errors import UserError
from zsl.experiment.loading import load
from zsl.experiment.setup import checked
from zsl.inference import Inference
from zsl.inference.rules import LABELLED, TRANSDUCTIVE
from zsl.models import ESZSL
from zsl.report.compare import compare, method_of
from zsl.report.diff import diff
from zsl.report.records import read_records
from zsl.runs import status
from zsl.runs.jobs import jobs_of, summary
from zsl.runs.summary import kind_of, protocol


@cache
def digits_as_read():
    return zsl.load_dataset("digits", overrides=("feature.centre=false", "feature.l2=false"))


def digits(**more):
    """A classifier of seven digits with rule ``asked``, its training data, test images and their classes."""
    data = digits_as_read()
    names = np.array(data.class_names)
    table = dict(zip(data.class_names, data.attributes))
    X, y = data.X_unseen, names[data.unseen[data.y_unseen]]
    return (
        zsl.ZeroShotClassifier(ESZSL(), **{"inference": "asked", **more}),
        (data.X, names[data.seen[data.y]], table),
        X,
        y,
    )


@pytest.fixture(scope="module")
def few():
    """Digits with four labelled images, of which two are of one class."""
    classifier, training, X, y = digits()
    rows = [np.flatnonzero(y == name)[k] for name, k in (("two", 0), ("two", 1), ("four", 0), ("six", 0))]
    return classifier.fit(*training, labelled=(X[rows], y[rows])), training, X, y, rows


def test_labels_of_fit_are_those_of_the_images_put_in_front(few):
    classifier, _, X, y, rows = few
    batch = X[100:400]
    ready = classifier.preprocess_.transform(np.vstack([X[rows], batch]))
    Z = classifier.semantics_.transform(np.ascontiguousarray(classifier.class_attributes()))
    labelled = np.r_[[list(classifier.classes_).index(name) for name in y[rows]], np.full(300, -1)]
    expected = classifier.inference_.predict(classifier.model_, ready, Z, classifier.statistics_, labelled)
    found = classifier.predict_stages(batch)
    assert found.chosen.scores.shape == (300, 3)
    for ours, theirs in zip(found.stages, expected.stages, strict=True):
        assert_array_equal(ours.scores, theirs.scores[4:])
    assert f"{LABELLED}: 4" in found.chosen.information
    assert_array_equal(classifier.predict(batch), classifier.classes_[expected.scores[4:].argmax(axis=1)])
    # Among seen and unseen classes the same labels count; among other classes none of them does.
    assert f"{LABELLED}: 4" in classifier.predict_stages(batch, "all").chosen.information
    assert f"{LABELLED}: 3" in classifier.predict_stages(batch, ["six", "two"]).chosen.information
    assert not any(use.startswith(LABELLED) for use in classifier.predict_stages(batch, "seen").chosen.information)


def test_clusters_have_the_names_that_the_labels_say(few):
    _, training, X, y, rows = few
    # By attributes the names are right here, so only labels of other names show whether labels are what counts.
    other = {"two": "four", "four": "six", "six": "two"}
    renamed = np.array([other[name] for name in y])
    without = digits()[0].fit(*training)
    assert without.score(X, y) > 0.95
    assert without.labelled_ is None
    assert digits()[0].fit(*training, labelled=(X[rows], renamed[rows])).score(X, renamed) > 0.95


def test_a_classifier_with_labels_is_the_same_after_saving(few, tmp_path):
    classifier, _, X, *_ = few
    for precision, digits_ in (("double", 0), ("single", 1e-3)):
        classifier.save(tmp_path / "model.skops", precision)
        loaded = zsl.ZeroShotClassifier.load(tmp_path / "model.skops")
        assert_array_equal(loaded.labelled_[0], classifier.labelled_[0])
        assert loaded.labelled_[1] == classifier.labelled_[1]
        assert_allclose(loaded.decision_function(X), classifier.decision_function(X), atol=digits_)


def test_a_file_of_before_has_no_labels(few, tmp_path):
    _, training, X, *_ = few
    old = digits()[0].fit(*training)
    del old.labelled_
    old.save(tmp_path / "model.skops")
    assert zsl.ZeroShotClassifier.load(tmp_path / "model.skops").predict(X[:5]).shape == (5,)


def test_validation_never_sees_labels(few, monkeypatch):
    _, training, X, y, rows = few
    seen = []
    monkeypatch.setattr(
        Inference, "predict", lambda self, *given, _of=Inference.predict: seen.append(given[4:]) or _of(self, *given)
    )
    with_labels = digits(calibrate=True, n_validation_splits=2)[0].fit(*training, labelled=(X[rows], y[rows]))
    assert seen == [(None,)] * 2
    without = digits(calibrate=True, n_validation_splits=2)[0].fit(*training)
    assert with_labels.decision_ == without.decision_
    assert with_labels.fit(*training).labelled_ is None  # a fit without labels forgets those of before


@pytest.mark.parametrize(
    ("labelled", "message"),
    [
        ("two", r"labelled should be a pair \(X, y\)"),
        ((np.zeros((2, 64)), ["two"]), "with a class in y for each of its 2 images"),
        ((np.zeros((1, 64)), "two"), "with a class in y for its image"),
        ((3, 4), "with a class in y for each of its images"),
        (([[1.0], [1.0, 2.0]], ["two"]), "with a class in y for each of its 2 images"),
        ((np.zeros((1, 64)), [["two"], ["two", "six"]]), "with a class in y for its image"),
        ((np.zeros((1, 3)), ["two"]), "labelled: X has 3 features"),
        ((np.full((1, 64), np.nan), ["two"]), "labelled: .*contains NaN"),
        ((np.zeros((1, 64)), ["tow"]), "names the class 'tow', which is no unseen class"),
        ((np.zeros((1, 64)), ["one"]), "names the class 'one', which has training images"),
        ((np.zeros((1, 64)), [None]), "names the class None, which is no unseen class"),
        ((np.zeros((2, 64)), ["two", "six"]), "calls one image, in row 0 and in row 1, both 'two' and 'six'"),
    ],
)
def test_wrong_labels_are_refused_in_a_sentence(few, labelled, message):
    with pytest.raises(UserError, match=message) as error:
        few[0].keep_labelled(labelled)
    assert str(error.value).endswith(".")
    assert "labelled" in str(error.value)


def test_labels_for_a_rule_that_ignores_them_are_refused(few):
    _, training, X, y, rows = few
    for inference in ("transductive", "inductive"):
        with pytest.raises(UserError, match="use inference=asked"):
            digits(inference=inference)[0].fit(*training, labelled=(X[rows], y[rows]))
        assert digits(inference=inference)[0].fit(*training, labelled=(X[:0], [])).labelled_ is None
    twice = (X[[0, 0]], y[[0, 0]])
    assert digits()[0].fit(*training, labelled=twice).labelled_[1] == [y[0]] * 2


RUN = ["dataset=digits", "model=eszsl", "inference=asked", "tracking=none", "figures=false"]


def as_read(*overrides):
    return load(checked(zsl.compose([*RUN, *overrides])))


def csv_of(path, pairs, columns="image,class"):
    path.write_text("\n".join([columns, *(",".join(map(str, pair)) for pair in pairs)]) + "\n", encoding="utf-8")
    return path


def labels_of_digits(tmp_path):
    """A file that calls two images of each unseen digit by their true names."""
    data = as_read()
    rows = [i for m in range(3) for i in np.flatnonzero(data.y_unseen == m)[:2]]
    return csv_of(tmp_path / "few.csv", [(data.rows_unseen[i], data.unseen_names[data.y_unseen[i]]) for i in rows])


@pytest.fixture
def labels(tmp_path):
    return labels_of_digits(tmp_path)


def test_labelled_images_leave_the_test_and_are_recorded(labels, tmp_path):
    result = zsl.run(zsl.compose([*RUN, f"inference.labelled={labels}"]), tmp_path / "with")
    without = zsl.run(zsl.compose(RUN), tmp_path / "without")
    assert len(result.prediction.scores) == result.sizes["test_images"] == without.sizes["test_images"] - 6
    assert result.metrics["labelled_images"] == 6
    assert result.key["labelled"]["images"] == 6
    assert "labelled" not in without.key
    assert "labelled_images" not in without.metrics
    assert (tmp_path / "with" / "predictions.csv").read_text().count("\n") == len(result.prediction.scores) + 1
    assert kind_of(result.key["information_used"]) == "with labels"
    assert kind_of(without.key["information_used"]) == "transductive"
    assert "the classes of 6 images of unseen classes were given" in protocol(result.key["information_used"])
    # Comparisons rank the run by itself.
    table = compare(read_records(tmp_path))
    assert [row[:2] for row in table.rows] == [
        ["eszsl, agnostic+asked", "transductive"], ["eszsl, agnostic+asked, 6 labels", "with labels"],
    ]  # fmt: skip
    assert [row[5] for row in table.rows] == [1.0, 1.0]
    # The saved classifier holds the labels.
    loaded = zsl.ZeroShotClassifier.load(tmp_path / "with" / "model.skops")
    assert len(loaded.labelled_[1]) == 6


@pytest.mark.slow
def test_the_digest_has_what_the_labels_say_and_not_where_they_are(labels, tmp_path):
    def digest_of(*overrides):
        return zsl.run(
            zsl.compose([*RUN, *overrides, "save_model=false"]), tmp_path / str(len([*tmp_path.iterdir()]))
        ).digest

    lines = labels.read_text().splitlines()
    moved = tmp_path / "moved.csv"
    moved.write_text("\n".join([lines[0], *lines[:0:-1], lines[1]]) + "\n")  # another order, and one line twice
    other = tmp_path / "other.csv"
    other.write_text("\n".join(lines[:-1]) + "\n")
    found = [digest_of(f"inference.labelled={path}") for path in (labels, moved, other)]
    assert found[0] == found[1]
    assert len({*found, digest_of()}) == 3


def test_what_is_set_aside(tmp_path):
    data = as_read()
    file = csv_of(
        tmp_path / "a.csv", [(data.rows_unseen[7], " Four "), (data.rows_unseen[3], ""), (data.rows_unseen[4], "none")]
    )
    left, (X, names) = set_aside(data, file)
    assert names == ["four"]
    assert_array_equal(X, data.X_unseen[[7]])
    assert_array_equal(left.X_unseen, np.delete(data.X_unseen, 7, axis=0))
    assert_array_equal(left.y_unseen, np.delete(data.y_unseen, 7))
    assert left.rows_unseen == (*data.rows_unseen[:7], *data.rows_unseen[8:])
    file = csv_of(tmp_path / "b.csv", [(data.rows_unseen[7], "four")], " Row,ANSWER")
    assert set_aside(data, file)[0].key == left.key
    file = csv_of(tmp_path / "c.csv", [("", data.rows_unseen[7], "four"), ("", "", "")], "image,row,class")
    assert set_aside(data, file)[0].key == left.key


def test_sizes_that_labels_make_impossible_are_refused_before_the_fit(tmp_path, monkeypatch):
    data = as_read()
    rows = np.flatnonzero(data.y_unseen == 0)[:-3]
    file = csv_of(tmp_path / "a.csv", [(data.rows_unseen[i], data.unseen_names[0]) for i in rows])
    monkeypatch.setattr(zsl.ZeroShotClassifier, "fit_data", lambda *_: pytest.fail("a model was fitted"))
    words = [*RUN, f"inference.labelled={file}", "evaluation.imbalance=10"]
    with pytest.raises(UserError, match=r"evaluation\.imbalance=10"):
        zsl.run(zsl.compose(words))


@pytest.mark.parametrize(
    ("pairs", "columns", "message"),
    [
        ([(1, "two")], "image,clas", "needs a column image and a column class .or answer.; it has: image, clas"),
        (
            [(100000, "two")],
            "image,class",
            "there is no test image 100000 in this run; name images as predictions.csv does",
        ),
        ([(3, "tow")], "image,class", r"names the class 'tow', which is no unseen class \(did you mean two"),
        ([(3, "one")], "image,class", "names the class 'one', which has training images"),
        ([(3, "two"), (3, "six")], "image,class", "calls the image 3 both 'two' and 'six'; leave one class"),
        ([], "image,class", "few.csv has no answer yet; write class names into its column class"),
        ([(3, ""), (4, "")], "image,answer", "has no answer yet; write class names into its column answer"),
        ([(3, "none"), (4, "-")], "image,answer", "gives no label, since none of its answers is a class"),
        ([(3, "two", "four")], "image,class,answer", "calls the image 3 both 'two' and 'four'; leave one class"),
    ],
)
def test_wrong_files_of_labels_are_refused(tmp_path, pairs, columns, message):
    file = csv_of(tmp_path / "few.csv", pairs, columns)
    with pytest.raises(UserError, match=message):
        zsl.run(zsl.compose([*RUN, f"inference.labelled={file}"]))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["inference.labelled=nothing.csv"], "nothing.csv does not exist"),
        (["inference.labelled=3"], "inference.labelled=3 is not accepted"),
        (
            ["inference=asked", "inference.fallback=true"],
            "inference.fallback=true decides without them; set it to false",
        ),
        (["inference=inductive"], "inference.labels=bidirectional ignores them; use inference=asked"),
    ],
)
def test_settings_that_do_not_go_with_labels_are_refused(overrides, message, labels):
    given = [] if "labelled" in overrides[0] else [f"inference.labelled={labels}"]
    with pytest.raises(UserError, match=message):
        zsl.run(zsl.compose([*RUN, *overrides, *given]))


def test_labels_for_every_image_leave_nothing_to_test(tmp_path):
    data = as_read()
    with pytest.raises(UserError, match="labels every test image, so none is left to test"):
        set_aside(data, csv_of(tmp_path / "few.csv", [(row, "two") for row in data.rows_unseen]))


def test_a_hint_is_for_names_and_not_for_numbers(tmp_path):
    def refused(word, images):
        file = csv_of(tmp_path / "few.csv", [(word, "two")])
        with pytest.raises(UserError, match="there is no test image") as error:
            read_answers(file, images, range(1, len(images) + 1), ["two"], [])
        return str(error.value)

    assert "did you mean" not in refused("530", [529, 531])
    assert "did you mean" not in refused("53.0", [530, 531])
    assert "(did you mean horse.png?)" in refused("hrose.png", ["horse.png", "cow.png"])


def test_two_sweeps_beside_each_other_say_which_had_labels(labels, tmp_path):
    zsl.run(zsl.compose([*RUN, "save_model=false"]), tmp_path / "a")
    zsl.run(zsl.compose([*RUN, "save_model=false", f"inference.labelled={labels}"]), tmp_path / "b")
    a, b = read_records(tmp_path / "a"), read_records(tmp_path / "b")
    ((name, *_),) = diff(a, b).rows
    assert name == "labels: None -> 6"
    both = pd.concat([a, b])
    assert [row[0] for row in diff(both, both).rows] == ["labels=None", "labels=6"]


def test_jobs_of_a_sweep_are_ranked_within_their_protocol(tmp_path):
    inductive = ["images", "attributes"]
    for name, value, information in (
        ("0", 0.5, inductive),
        ("1", 0.9, [*inductive, f"{LABELLED}: 1"]),
        ("2", 0.7, [*inductive, TRANSDUCTIVE]),
        ("3", 0.6, inductive),
    ):
        mine = {"status": "FINISHED", "sweep": "s", "tracking": None, "process": status.this_process()}
        status.write(tmp_path / name / "status.json", {**mine, "overrides": [f"a={name}"]})
        record = {"metrics": {"acc_class": value}, "key": {"information_used": information}}
        status.write(tmp_path / name / "results.json", record)
    skipped = {"sweep": "s", "metrics": {"acc_class": 0.8}, "protocol": "with labels", "overrides": ["a=4"]}
    status.write(tmp_path / "4" / "skipped.json", skipped)
    sweep = {"id": "s", "status": "FINISHED", "folder": str(tmp_path), "jobs": 5, "best": "acc_class"}
    lines = summary(sweep, jobs_of(sweep)).splitlines()
    assert [line.split() for line in lines[:6]] == [
        ["acc_class", "job", "protocol", "settings"],
        ["0.600", "3", "inductive", "a=3"],
        ["0.500", "0", "inductive", "a=0"],
        ["0.700", "2", "transductive", "a=2"],
        ["0.900", "1", "with", "labels", "a=1"],
        ["0.800", "4", "with", "labels", "a=4"],
    ]
    assert [line.partition(" by ")[0] for line in lines[7:]] == [
        "best job, inductive,", "best job, transductive,", "best job, with labels,",
    ]  # fmt: skip
    assert [line.rpartition(": ")[2] for line in lines[7:]] == ["a=3 with 0.600", "a=2 with 0.700", "a=1 with 0.900"]


def test_one_label_is_one_label():
    assert "the class of 1 image of an unseen class was given, which is not among" in protocol([f"{LABELLED}: 1"])
    assert "the classes of 2 images of unseen classes were given, which are not" in protocol([f"{LABELLED}: 2"])
    key = {"inference": {"attributes": "own", "labels": "asked"}, "model": {"name": "m"}, "feature": {}}
    for n, word in ((1, "1 label"), (2, "2 labels")):
        assert method_of({**key, "information_used": [f"{LABELLED}: {n}"]}) == f"m, own+asked, {word}"


def test_labels_of_two_columns(tmp_path):
    data = as_read()
    r = data.rows_unseen
    file = csv_of(
        tmp_path / "few.csv", [(r[0], "two", ""), (r[1], "none", "four"), (r[2], "Six", "six")], "image,class,answer"
    )
    assert set_aside(data, file)[1][1] == ["two", "four", "six"]


def test_class_names_are_written_as_in_a_file(few):
    _, training, X, y, rows = few
    with_capitals = digits()[0].fit(*training, labelled=(X[rows], [f" {name.upper()}" for name in y[rows]]))
    assert with_capitals.labelled_[1] == list(y[rows])


def test_a_class_that_is_called_none(tmp_path):
    def read(*answers, unseen):
        file = csv_of(tmp_path / "few.csv", [(i, answer) for i, answer in enumerate(answers, 1)])
        return read_answers(file, [1, 2, 3], [1, 2, 3], unseen, ["horse"])

    assert read("none", "Unknown", "cow", unseen=["None", "cow"]) == {0: 0, 2: 1}
    assert read("none", "Unknown", "cow", unseen=["unknown", "cow"]) == {1: 0, 2: 1}
