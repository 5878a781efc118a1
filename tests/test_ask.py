"""A few labels: the rule ``asked``, labelled images in fit and in experiments, and the command ``zsl ask``."""

from functools import cache

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import zsl
from test_naming import problem
from zsl.ask.__main__ import main
from zsl.ask.images import ImageFiles
from zsl.data.labelled import read_answers, set_aside, without
from zsl.errors import UserError
from zsl.experiment.loading import load
from zsl.experiment.setup import checked
from zsl.inference import Inference
from zsl.inference.asking import Clusters, asked
from zsl.inference.rules import LABELLED, TRANSDUCTIVE
from zsl.linalg import unit_rows
from zsl.models import ESZSL
from zsl.report.compare import compare, method_of
from zsl.report.diff import diff
from zsl.report.records import read_records
from zsl.runs import status
from zsl.runs.jobs import jobs_of, summary
from zsl.runs.summary import kind_of, protocol


def clear(seed=0, **more):
    """Clusters that any clustering finds, and base scores that say nothing of them: X, y, Z, statistics, scores."""
    X, y, Z, seen = problem(seed, noise=0.02, **more)
    return X, y, Z, seen, np.zeros((len(X), len(Z)))


def none(X):
    return np.full(len(X), -1)


def answered(clusters, y, n=None):
    """Labels (L,) after n questions, each asked when it is worth most; n=None: until no cluster is left."""
    labelled = np.full(len(y), -1)
    for _ in range(len(y) if n is None else n):
        questions = clusters.questions(labelled)
        if not questions:
            break
        labelled[questions[0].image] = y[questions[0].image]
    return labelled


@pytest.mark.parametrize("M", [3, 6, 9])
def test_one_answer_for_each_cluster_names_every_image(M):
    # The answers are those of a permutation of the names that attributes would give: only the labels can know it.
    X, y, Z, seen, scores = clear(M=M)
    y = np.roll(np.arange(M), 1)[y]
    clusters = Clusters(scores, X, Z, seen)
    assert (clusters.posterior(none(X)).argmax(axis=1) == y).mean() < 0.5
    labelled = answered(clusters, y)
    assert (labelled >= 0).sum() == M
    assert_array_equal(asked(scores, X, Z, seen, labelled).argmax(axis=1), y)


def test_accuracy_with_every_cluster_answered_is_that_of_clusters_with_their_true_names():
    X, y, Z, seen = problem(3, noise=0.5)
    scores = X @ seen.prototypes(Z).T
    clusters = Clusters(scores, X, Z, seen)
    labelled = answered(clusters, y)
    true = {k: y[clusters.questions(none(X))[j].image] for j, k in enumerate(of_questions(clusters, X))}
    named = np.array([true[k] for k in clusters.of])
    found = clusters.posterior(labelled).argmax(axis=1)
    others = labelled < 0
    assert 0.5 < (named == y).mean() < 1  # the clusters are not perfect, so that the comparison says something
    # Names and clusters are estimated together afterwards, which may mend some clusters.
    assert (found == y)[others].mean() >= (named == y)[others].mean() - 0.02


def of_questions(clusters, X):
    return [int(clusters.of[q.image]) for q in clusters.questions(none(X))]


def test_the_names_that_are_left_go_to_the_clusters_that_are_left():
    X, y, Z, seen, scores = clear(M=2)
    clusters = Clusters(scores, X, Z, seen)
    for answer in (0, 1):
        labelled = none(X)
        labelled[clusters.questions(none(X))[0].image] = answer
        row = labelled.argmax()
        found = clusters.posterior(labelled)
        assert_array_equal(found.argmax(axis=1), np.where(y == y[row], answer, 1 - answer))
        assert_allclose(found.sum(axis=1), 1)


def test_a_label_is_evidence_for_its_cluster_the_more_the_nearer_its_image_is_to_the_mean():
    X, _, Z, seen = problem(2, noise=0.5)
    clusters = Clusters(X @ seen.prototypes(Z).T, X, Z, seen)
    before = clusters.named(none(X))
    assert_allclose(before.sum(axis=1), 1)
    for k in range(4):
        mine = np.flatnonzero(clusters.of == k)
        sure = mine[clusters.P[mine, k] > 0.9]
        order = sure[np.argsort(-(clusters.U[sure] @ clusters.means[k]))]
        for m in range(4):
            found = []
            for i in (order[0], order[-1]):
                labelled = none(X)
                labelled[i] = m
                found.append(clusters.named(labelled)[k, m])
            assert found[0] > found[1] > before[k, m]


def test_labels_without_information_change_no_name():
    """An image that may belong to any cluster says nothing of the name of one."""
    X, y, Z, seen = problem(2, noise=0.5)
    clusters = Clusters(X @ seen.prototypes(Z).T, X, Z, seen)
    before = clusters.named(none(X))
    clusters.P[0] = 0.0
    labelled = none(X)
    labelled[0] = (y[0] + 1) % 4
    assert_allclose(clusters.named(labelled), before, atol=1e-12)


def test_many_labels_are_as_good_as_the_nearest_mean_of_them():
    X, y, Z, seen = problem(1, noise=0.5, n=100)
    labelled = np.where(np.random.default_rng(0).random(len(X)) < 0.3, y, -1)
    U = unit_rows(X)
    means = unit_rows(np.stack([U[labelled == m].mean(axis=0) for m in range(4)]))
    others = labelled < 0
    nearest = ((U @ means.T).argmax(axis=1) == y)[others].mean()
    found = asked(X @ seen.prototypes(Z).T, X, Z, seen, labelled).argmax(axis=1)
    assert 0.6 < nearest < 0.999
    assert (found == y)[others].mean() >= nearest - 0.02


def test_labelled_images_keep_their_labels_and_change_their_neighbours():
    X, _, Z, seen = problem(1, noise=0.6)
    rng = np.random.default_rng(0)
    labelled = np.where(rng.random(len(X)) < 0.3, rng.integers(4, size=len(X)), -1)  # as wrong as labels can be
    P = np.exp(asked(X @ seen.prototypes(Z).T, X, Z, seen, labelled))
    rows = labelled >= 0
    assert_allclose(P[rows, labelled[rows]], 1)
    assert_allclose(P.sum(axis=1), 1)


def test_one_cluster_may_be_two_classes():
    # Two classes at one place: a label of each divides the cluster by the nearer label.
    _, _, Z, seen, _ = clear(M=3)
    X = np.eye(15)[[0, 0, 1]] + [[0.1], [-0.1], [0.0]] * np.eye(15)[2]
    X = np.repeat(X, [20, 20, 40], axis=0) + 0.001 * np.random.default_rng(0).standard_normal((80, 15))
    y = np.repeat([0, 1, 2], [20, 20, 40])
    labelled = none(X)
    labelled[[0, 20, 40]] = [0, 1, 2]
    clusters = Clusters(np.zeros((80, 3)), X, Z, seen._replace(concentration=500.0))
    found = clusters.posterior(labelled).argmax(axis=1)
    assert_array_equal(found, y)


def test_two_clusters_may_be_one_class_and_a_class_may_have_no_image():
    X, y, Z, seen, scores = clear(M=4)
    y = np.array([0, 0, 2, 2])[y]  # classes 1 and 3 have no image
    clusters = Clusters(scores, X, Z, seen)
    labelled = answered(clusters, y)
    assert (labelled >= 0).sum() == 4
    assert_array_equal(clusters.posterior(labelled).argmax(axis=1), y)


def test_permutations_of_images_and_classes_change_nothing():
    X, y, Z, seen = problem(1, noise=0.5)
    scores = X @ seen.prototypes(Z).T
    labelled = answered(Clusters(scores, X, Z, seen), y, 2)
    base = np.exp(asked(scores, X, Z, seen, labelled))
    rows, columns = np.random.default_rng(0).permutation(len(X)), np.array([2, 0, 3, 1])
    assert_allclose(np.exp(asked(scores[rows], X[rows], Z, seen, labelled[rows])), base[rows], atol=1e-6)
    place = np.append(np.argsort(columns), -1)
    permuted = np.exp(asked(scores[:, columns], X, Z[columns], seen, place[labelled]))
    assert_allclose(permuted, base[:, columns], atol=1e-6)
    assert_array_equal(np.exp(asked(scores, X, Z, seen, labelled)), base)


def test_questions_are_worth_the_images_of_a_cluster_times_the_doubt_of_its_name():
    X, y, Z, seen = problem(2, noise=0.3)
    clusters = Clusters(X @ seen.prototypes(Z).T, X, Z, seen)
    found = clusters.questions(none(X))
    names = clusters.named(none(X))
    assert sorted(of_questions(clusters, X)) == [0, 1, 2, 3]
    for q, k in zip(found, of_questions(clusters, X)):
        mine = np.flatnonzero(clusters.of == k)
        assert q.size == len(mine) == len(q.images)
        assert set(q.images) == set(mine)
        assert q.image == q.images[0] == mine[(clusters.U[mine] @ clusters.means[k]).argmax()]
        assert (q.guess, q.certainty) == (names[k].argmax(), names[k].max())
        assert_allclose(q.gain, q.size * (1 - q.certainty))
    assert [q.gain for q in found] == sorted((q.gain for q in found), reverse=True)
    # A cluster that has a label is not asked about again, and the others' names have changed.
    after = clusters.questions(answered(clusters, y, 1))
    assert {q.image for q in after} == {q.image for q in found[1:]}


@pytest.mark.parametrize("case", ["one class", "two classes", "one image", "identical", "zero", "classes alike"])
def test_degenerate_input(case):
    X, _, Z, seen, _ = clear()
    if case in ("one class", "two classes"):
        Z = Z[: 1 + (case == "two classes")]
    elif case == "one image":
        X = X[:1]
    elif case == "identical":
        X = np.repeat(X[:1], 20, axis=0)
    elif case == "zero":
        X = np.zeros_like(X)
    else:
        Z = np.repeat(Z[:1], 4, axis=0)
    scores = np.tile(np.arange(len(Z)), (len(X), 1))
    clusters = Clusters(scores, X, Z, seen)
    for answer in (-1, *range(len(Z))):
        labelled = none(X)
        labelled[0] = answer
        out = asked(scores, X, Z, seen, labelled)
        assert out.shape == (len(X), len(Z))
        assert np.isfinite(out).all()
        if answer >= 0:
            assert out[0].argmax() == answer
        assert all(0 <= q.certainty <= 1 + 1e-12 for q in clusters.questions(labelled))
    if case == "one class":
        assert clusters.questions(none(X))[0].gain == pytest.approx(0)  # nothing to ask


def test_more_classes_than_images():
    X, y, Z, seen, scores = clear(M=9, n=1)
    X, y = X[:4], y[:4]
    labelled = answered(Clusters(scores[:4], X, Z, seen), y)
    assert_array_equal(asked(scores[:4], X, Z, seen, labelled).argmax(axis=1), y)


@pytest.mark.parametrize(
    "labelled",
    [[0.0, 1.0, -1.0], [0, 1], [0, 1, 4], [0, -2, 1], "abc", [[0, 1, 2]], [True, False, True], ["a", "b", "c"]],
)
def test_labels_that_are_no_classes_are_refused(labelled):
    X, _, Z, seen, scores = clear()
    with pytest.raises(UserError, match="labelled should have a whole number for each of the 3 test images"):
        asked(scores[:3], X[:3], Z, seen, labelled)


@pytest.fixture(scope="module")
def fitted():
    """A model of separate classes, with what Inference.predict needs: model, X, Z, statistics, y."""
    X, y, Z, seen = problem(noise=0.1)
    train = np.repeat(np.arange(20), 5)
    rows = seen.means[train] + 0.1 * np.random.default_rng(5).standard_normal((100, 15))
    model = ESZSL().fit(rows, train, seen.attributes[train], Z)
    return model, X, Z, seen, y


def test_inference_hands_labels_to_the_rule_and_declares_them(fitted):
    model, X, Z, seen, y = fitted
    rule = Inference(labels="asked")
    labelled = none(X)
    labelled[[0, 40]] = [y[40], y[0]]  # exchanged, which no rule would find by itself
    without, with_labels = (rule.predict(model, X, Z, seen, some) for some in (None, labelled))
    assert_array_equal(rule.predict(model, X, Z, seen, none(X)).scores, without.scores)
    assert with_labels.scores.argmax(axis=1)[0] == y[40] != y[0]
    assert f"{LABELLED}: 2" in with_labels.chosen.information
    assert TRANSDUCTIVE in without.chosen.information
    assert not any(use.startswith(LABELLED) for use in without.chosen.information)
    # The stages on the way have not seen any label.
    assert not any(use.startswith(LABELLED) for stage in with_labels.stages[:-1] for use in stage.information)
    assert_array_equal(with_labels.stages[1].scores, without.stages[1].scores)


@pytest.mark.parametrize(
    ("inference", "message"),
    [
        (Inference.preset("inductive"), "inference.labels=bidirectional ignores them; use inference=asked"),
        (Inference("own", "mixture"), "inference.labels=mixture ignores them"),
        (Inference(), "inference.labels=own ignores them"),
        (Inference(labels="asked", fallback=True), "inference.fallback=true decides without them"),
    ],
)
def test_rules_that_cannot_use_labels_say_so(fitted, inference, message):
    model, X, Z, seen, y = fitted
    with pytest.raises(UserError, match=message):
        inference.predict(model, X, Z, seen, np.where(np.arange(len(X)) < 2, y, -1))
    inference.predict(model, X, Z, seen, none(X))


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


@pytest.fixture
def labels(tmp_path):
    """A file that calls two images of each unseen digit by their true names."""
    data = as_read()
    rows = [i for m in range(3) for i in np.flatnonzero(data.y_unseen == m)[:2]]
    return csv_of(tmp_path / "few.csv", [(data.rows_unseen[i], data.unseen_names[data.y_unseen[i]]) for i in rows])


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
            "inference.fallback=true decides without them; use inference=asked",
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


# --- the command -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run_of_digits(tmp_path_factory):
    """A finished run on digits that another rule than ``asked`` answered."""
    folder = tmp_path_factory.mktemp("digits") / "run"
    zsl.run(zsl.compose([*RUN, "inference=transductive"]), folder)
    return folder


def ask(capsys, *arguments, status=0):
    assert main([str(a) for a in arguments]) == status
    out = capsys.readouterr()
    return out.err if status else out.out


def answered_with_truth(file, to):
    """The questions of a file, answered from the labels of digits."""
    data = as_read()
    truth = {str(row): data.unseen_names[y] for row, y in zip(data.rows_unseen, data.y_unseen)}
    table = pd.read_csv(file, dtype=str)
    table["answer"] = [truth[row] for row in table["image"]]
    table.to_csv(to, index=False)
    return table


def test_questions_answers_and_new_predictions(run_of_digits, tmp_path, capsys):
    said = ask(capsys, run_of_digits, "--to", tmp_path / "a")
    file = tmp_path / "a" / "questions.csv"
    assert f"{file} asks about 3 images, the most useful first (no image file was found; give their folder by" in said
    assert f"zsl ask {run_of_digits} --answers {file}" in said
    table = pd.read_csv(file)
    assert list(table) == ["question", "image", "cluster_size", "guess", "certainty", "expected_gain", "answer"]
    assert table["cluster_size"].sum() == 539
    assert_allclose(table["expected_gain"], table["cluster_size"] * (1 - table["certainty"]), atol=3)
    assert table["expected_gain"].is_monotonic_decreasing
    assert table["answer"].isna().all()
    assert not (tmp_path / "a" / "questions.png").exists()
    filled = tmp_path / "filled.csv"
    answered_with_truth(file, filled)
    said = ask(capsys, run_of_digits, "--answers", filled, "--to", tmp_path / "a")
    assert "has the predictions with 3 answers" in said
    found = pd.read_csv(tmp_path / "a" / "predictions.csv", dtype=str)
    assert list(found["row"]) == [str(row) for row in as_read().rows_unseen]
    assert (found["predicted"] == found["true"]).mean() > 0.95
    # The same answers in an experiment: those images are labelled and the others have the same classes.
    result = zsl.run(zsl.compose([*RUN, f"inference.labelled={filled}"]))
    others = ~found["row"].isin(pd.read_csv(filled, dtype=str)["image"]).to_numpy()
    names = np.array(as_read().unseen_names)[result.prediction.scores.argmax(axis=1)]
    assert (names == found["predicted"][others]).mean() > 0.99


def test_answers_decide_what_clusters_are_called(run_of_digits, tmp_path, capsys):
    ask(capsys, run_of_digits, "--to", tmp_path)
    table = answered_with_truth(tmp_path / "questions.csv", tmp_path / "wrong.csv")
    other = {"two": "six", "six": "four", "four": "two"}
    table.assign(answer=table["answer"].map(other)).to_csv(tmp_path / "wrong.csv", index=False)
    ask(capsys, run_of_digits, "--answers", tmp_path / "wrong.csv", "--to", tmp_path)
    found = pd.read_csv(tmp_path / "predictions.csv", dtype=str)
    assert (found["predicted"] == found["true"].map(other)).mean() > 0.95


def test_truth_as_the_answers(run_of_digits, tmp_path, capsys):
    lines = ask(capsys, run_of_digits, "--truth").splitlines()
    accuracy = {int(line.split()[0]): float(line.split()[1]) for line in lines[1:] if line.split()[0].isdecimal()}
    assert list(accuracy) == [0, 1, 2, 3]
    assert accuracy[3] > 0.95
    assert not (run_of_digits / "ask").exists()  # nothing is written


def test_asking_in_the_terminal(run_of_digits, tmp_path, capsys, monkeypatch):
    data = as_read()
    truth = {str(row): data.unseen_names[y] for row, y in zip(data.rows_unseen, data.y_unseen)}

    def typed(words):
        given = iter(words)

        def answer(prompt):
            shown = capsys.readouterr().out
            asked_about.append(next(line for line in shown.splitlines()[::-1] if line.isdecimal()))
            word = next(given, None)
            if word is None:
                raise EOFError
            return truth[asked_about[-1]].upper() if word == "right" else word

        monkeypatch.setattr("builtins.input", answer)
        asked_about = []
        return asked_about

    def answers():
        return pd.read_csv(tmp_path / "answers.csv", dtype=str).to_numpy().tolist()

    rows = typed(["right", "nonsense", "right", "right", "right"])
    said = ask(capsys, run_of_digits, "--prompt", "--to", tmp_path)
    assert len(set(rows)) == 3 == len(rows) - 1  # a word that is no class is asked for again
    assert answers() == [[row, truth[row]] for row in dict.fromkeys(rows)]
    assert "has the predictions with 3 answers" in said
    found = pd.read_csv(tmp_path / "predictions.csv", dtype=str)
    assert (found["predicted"] == found["true"]).mean() > 0.95
    (tmp_path / "answers.csv").unlink()
    rows = typed(["", "none", "right", "q", "right"])
    ask(capsys, run_of_digits, "--prompt", "--to", tmp_path)
    assert len(rows) == 3
    assert len(set(rows)) == 3
    assert answers() == [[rows[2], truth[rows[2]]]]
    (tmp_path / "answers.csv").write_text("image,answer\n")
    typed([])
    assert "has the predictions with 0 answers, which gave 0 of 539" in ask(
        capsys, run_of_digits, "--prompt", "--to", tmp_path
    )


def test_images_of_ones_own(run_of_digits, tmp_path, capsys):
    data = as_read()
    names = np.array(data.unseen_names)[data.y_unseen]
    file = tmp_path / "more.npz"
    np.savez(file, features=data.X_unseen[:300], labels=names[:300], files=np.array([f"{i}.png" for i in range(300)]))
    said = ask(capsys, run_of_digits, file, "--to", tmp_path)
    assert f"zsl ask {run_of_digits} {file} --answers {tmp_path / 'questions.csv'}" in said
    table = pd.read_csv(tmp_path / "questions.csv", dtype=str)
    assert table["cluster_size"].astype(int).sum() == 300
    lines = ask(capsys, run_of_digits, file, "--truth").splitlines()
    assert float(lines[4].split()[1]) > 0.9
    table.assign(answer=[names[int(i.removesuffix(".png"))] for i in table["image"]]).to_csv(tmp_path / "f.csv")
    ask(capsys, run_of_digits / "model.skops", file, "--answers", tmp_path / "f.csv", "--to", tmp_path)
    found = pd.read_csv(tmp_path / "predictions.csv", dtype=str)
    assert list(found["image"]) == [f"{i}.png" for i in range(300)]
    assert (found["predicted"] == names[:300]).mean() > 0.9


def test_labels_of_the_run_count_as_answers(labels, tmp_path, capsys):
    zsl.run(zsl.compose([*RUN, f"inference.labelled={labels}"]), tmp_path / "run")
    said = ask(capsys, tmp_path / "run")
    assert "no question is worth asking: each is expected to rename fewer than 1% of the images" in said
    lines = ask(capsys, tmp_path / "run", "--truth").splitlines()
    assert lines[1].split()[0] == "0"
    assert float(lines[1].split()[1]) > 0.95
    assert len(lines) == 2


def test_the_contact_sheet_shows_the_images_that_are_found(tmp_path, capsys):
    from PIL import Image

    from zsl.data.readers.cifar_awa import image_key

    folder = tmp_path / "run"
    overrides = ["dataset=cifar_awa", "model=eszsl", "inference=transductive", "tracking=none", "figures=false"]
    zsl.run(zsl.compose([*overrides, "inference.fallback=false"]), folder)
    data = load(checked(zsl.compose(overrides)))
    there = {}
    for i in range(0, len(data.names_unseen), 3):
        path = tmp_path / "images" / image_key(data.names_unseen[i], data.unseen_names[data.y_unseen[i]])
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (32, 32), (i % 256, 0, 0)).save(path)
        there[data.names_unseen[i]] = path
    said = ask(capsys, folder, "--images", tmp_path / "images")
    table = pd.read_csv(folder / "ask" / "questions.csv")
    assert f"{folder / 'ask' / 'questions.png'} shows the images" in said
    assert set(table["image"]) <= set(there)  # an image that cannot be looked at is not asked about
    with Image.open(folder / "ask" / "questions.png") as sheet:
        assert sheet.width == pytest.approx(150 * 1.15 * 8, abs=2)
        assert sheet.height == pytest.approx(150 * 1.7 * len(table), abs=2)
    table["answer"] = "dolphin"
    table.to_csv(folder / "ask" / "questions.csv", index=False)
    said = ask(capsys, folder, status=1)
    assert "holds answers and is not overwritten; use --answers" in said
    # Two clusters and more may be one class.
    said = ask(capsys, folder, "--answers", folder / "ask" / "questions.csv")
    assert "No answer names horse, blue+whale, seal; rows of your own (image, answer) may be added" in said


def test_files_are_found_by_path_or_by_a_name_that_is_theirs_alone(tmp_path):
    for name in ("a/1.png", "a/2.png", "b/2.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    files = ImageFiles([tmp_path / "nothing", tmp_path])
    assert files.find("b/2.png") == tmp_path / "b" / "2.png"
    assert files.find("c10:test/x/1.png") == tmp_path / "a" / "1.png"
    assert files.find("c10:test/x/2.png") is None
    assert files.find("3.png") is None
    assert files.find(1) is None
    assert ImageFiles([tmp_path / "nothing"]).find("a/1.png") is None


def test_answers_in_the_terminal_are_never_lost(run_of_digits, tmp_path, capsys, monkeypatch):
    given = iter(["two", KeyboardInterrupt])

    def typed(prompt):
        word = next(given)
        if word is KeyboardInterrupt:
            raise KeyboardInterrupt
        return word

    monkeypatch.setattr("builtins.input", typed)
    (tmp_path / "questions.csv").write_text("question,image,answer\n1,3,\n")
    (tmp_path / "questions.png").write_bytes(b"a sheet")
    file = tmp_path / "answers.csv"
    assert main([str(run_of_digits), "--prompt", "--to", str(tmp_path)]) == 130
    assert f"The answers are in {file}; the same command goes on from them." in capsys.readouterr().err
    first = pd.read_csv(file).to_numpy().tolist()
    assert [answer for _, answer in first] == ["two"]
    given = iter(["four", "q"])
    said = ask(capsys, run_of_digits, "--prompt", "--to", tmp_path)
    assert f"Going on from the one answer in {file}." in said
    second = pd.read_csv(file).to_numpy().tolist()
    assert (second[0], second[1][1], len(second)) == (first[0], "four", 2)
    assert "has the predictions with 2 answers" in said
    assert (tmp_path / "questions.png").read_bytes() == b"a sheet"
    # Answers to other images are neither used nor overwritten.
    csv_of(file, [("what.png", "two")])
    before = file.read_bytes()
    (line,) = ask(capsys, run_of_digits, "--prompt", "--to", tmp_path, status=1).strip().splitlines()
    assert "no test image what.png" in line
    assert "not overwritten, so correct or move it, or choose another --to." in line
    assert file.read_bytes() == before


def with_names(names):
    """A data set whose test images have these names."""
    from dataclasses import replace

    data = as_read()
    return replace(without(data, range(len(names), len(data.X_unseen))), names_unseen=tuple(names))


def test_names_that_several_images_have(run_of_digits, tmp_path, capsys, monkeypatch):
    data = with_names(["a.png", "a.png", "b.png"])
    with pytest.raises(
        UserError, match=r"2 test images are called a.png; tell them apart by a column row \(theirs are 3, 5\)"
    ):
        set_aside(data, csv_of(tmp_path / "few.csv", [("a.png", "two")]))
    assert_array_equal(set_aside(data, csv_of(tmp_path / "b.csv", [("b.png", "two")]))[1][0], data.X_unseen[[2]])
    row = data.rows_unseen[1]
    found = [
        set_aside(data, csv_of(tmp_path / "few.csv", [pair], columns))
        for pair, columns in (((row, "a.png", "two"), "row,image,class"), ((row, "two"), "row,class"))
    ]
    for left, (X, _) in found:
        assert_array_equal(X, data.X_unseen[[1]])
        assert left.rows_unseen == (data.rows_unseen[0], data.rows_unseen[2])
    assert found[0][0].key == found[1][0].key
    other = set_aside(data, csv_of(tmp_path / "few.csv", [(data.rows_unseen[0], "two")], "row,class"))[0]
    assert other.key != found[0][0].key
    # The command gives the rows, and takes its own file back.
    data = as_read()
    names = np.array(data.unseen_names)[data.y_unseen[:300]]
    file = tmp_path / "more.npz"
    np.savez(file, features=data.X_unseen[:300], labels=names, files=np.array([f"{i // 2}.png" for i in range(300)]))
    ask(capsys, run_of_digits, file, "--to", tmp_path)
    table = pd.read_csv(tmp_path / "questions.csv", dtype=str)
    assert list(table)[:3] == ["question", "row", "image"]
    table.assign(answer=[names[int(row) - 1] for row in table["row"]]).to_csv(tmp_path / "questions.csv", index=False)
    ask(capsys, run_of_digits, file, "--answers", tmp_path / "questions.csv", "--to", tmp_path)
    assert (pd.read_csv(tmp_path / "predictions.csv")["predicted"] == names).mean() > 0.9
    table[["image"]].assign(answer="two").to_csv(tmp_path / "f.csv", index=False)
    assert "2 test images are called" in ask(
        capsys, run_of_digits, file, "--answers", tmp_path / "f.csv", "--to", tmp_path, status=1
    )
    typed = iter(["two", "q"])
    monkeypatch.setattr("builtins.input", lambda prompt: next(typed))
    assert "(row " in ask(capsys, run_of_digits, file, "--prompt", "--to", tmp_path)
    assert list(pd.read_csv(tmp_path / "answers.csv")) == ["row", "image", "answer"]


def test_labels_of_two_columns(tmp_path):
    data = as_read()
    r = data.rows_unseen
    file = csv_of(
        tmp_path / "few.csv", [(r[0], "two", ""), (r[1], "none", "four"), (r[2], "Six", "six")], "image,class,answer"
    )
    assert set_aside(data, file)[1][1] == ["two", "four", "six"]


@pytest.mark.parametrize("change", ["gone", "other"])
def test_a_run_keeps_its_labels_whatever_becomes_of_their_file(labels, change, tmp_path, capsys):
    zsl.run(zsl.compose([*RUN, f"inference.labelled={labels}", "save_precision=single"]), tmp_path / "run")
    capsys.readouterr()
    before = pd.read_csv(tmp_path / "run" / "predictions.csv", dtype=str)
    said = ask(capsys, tmp_path / "run", "--truth")
    image = labels.read_text().splitlines()[1].partition(",")[0]
    if change == "gone":
        labels.unlink()
    else:
        csv_of(labels, [(before["row"][0], "six")])
    assert ask(capsys, tmp_path / "run", "--truth") == said
    more = csv_of(tmp_path / "more.csv", [(before["row"][0], before["true"][0])])
    ask(capsys, tmp_path / "run", "--answers", more)
    after = pd.read_csv(tmp_path / "run" / "ask" / "predictions.csv", dtype=str)
    assert list(after["row"]) == list(before["row"])
    csv_of(more, [(image, "two")])
    assert f"the image {image} already has a label in this run" in ask(
        capsys, tmp_path / "run", "--answers", more, status=1
    )


def test_a_run_whose_labelled_images_are_not_in_its_data_any_more_says_so(labels, tmp_path, capsys):
    zsl.run(zsl.compose([*RUN, f"inference.labelled={labels}"]), tmp_path / "run")
    model = tmp_path / "run" / "model.skops"
    classifier = zsl.ZeroShotClassifier.load(model)
    X, names = classifier.labelled_
    classifier.keep_labelled((X + np.array([[1], [1], [0], [0], [0], [0]]), names)).save(model)
    (line,) = ask(capsys, tmp_path / "run", status=1).strip().splitlines()
    assert "2 of its 6 labelled images are not among them); give the images to ask about: zsl ask RUN INPUT." in line


def test_labelled_images_of_the_input_are_not_counted(labels, tmp_path, capsys):
    from zsl.predict.__main__ import main as predict

    zsl.run(zsl.compose([*RUN, f"inference.labelled={labels}"]), tmp_path / "run")
    data = as_read()
    names = np.array(data.unseen_names)[data.y_unseen]
    file = tmp_path / "all.npz"
    np.savez(file, features=data.X_unseen, labels=names)
    assert predict([str(tmp_path / "run"), str(file), "--evaluate", "--to", str(tmp_path / "p.csv")]) == 0
    said = capsys.readouterr().err
    assert f"over {len(names) - 6} images" in said
    assert "6 images have a label in the run itself and are not counted" in said
    assert pd.read_csv(tmp_path / "p.csv").shape[0] == len(names)
    assert "6 images have a label in the run itself and are not counted" in ask(
        capsys, tmp_path / "run", file, "--truth"
    )


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--answers", "nothing.csv"], "nothing.csv does not exist; give a CSV with columns image and class"),
        (["--answers", "."], "is a folder; give a CSV with columns image and class"),
        (["--prompt", "--truth"], "--prompt and --truth each say where answers come from; give one of them."),
        (["--images", "nothing"], "--images nothing is not a folder"),
        (["nothing.npz"], "nothing.npz"),
        (["--answer"], "--answer"),
    ],
)
def test_wrong_use_ends_in_one_sentence(run_of_digits, arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (line,) = ask(capsys, run_of_digits, *arguments, status=1).strip().splitlines()
    assert message in line


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ([(1, "")], "has no answer yet; write class names into its column answer"),
        ([(530, "two")], "there is no test image 530 in this run; name images as predictions.csv does"),
        ([(3, "none")], "gives no label, since none of its answers is a class"),
        ([(3, "tow")], "did you mean two"),
        ([(3, "two"), (3, "four")], "calls the image 3 both 'two' and 'four'"),
    ],
)
def test_wrong_answers_end_in_one_sentence(run_of_digits, answers, message, capsys, tmp_path):
    file = csv_of(tmp_path / "answers.csv", answers, "image,answer")
    (line,) = ask(capsys, run_of_digits, "--answers", file, "--to", tmp_path / "o", status=1).strip().splitlines()
    assert message in line
    assert not (tmp_path / "o").exists()


def test_runs_that_cannot_be_asked_say_why(tmp_path, capsys, run_of_digits):
    zsl.run(zsl.compose([*RUN, "inference=own"]), tmp_path / "own")
    np.save(tmp_path / "more.npy", as_read().X_unseen[:50])
    assert "this run stored no statistics of the seen classes, which naming clusters of other images needs; run" in ask(
        capsys, tmp_path / "own", tmp_path / "more.npy", status=1
    )
    # With the data of the run at hand, statistics are computed; the answers are those of a run that has them.
    assert ask(capsys, tmp_path / "own", "--truth") == ask(capsys, run_of_digits, "--truth")
    assert "RUN=nowhere does not exist" in ask(capsys, "nowhere", status=1)
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "model.skops").write_bytes((run_of_digits / "model.skops").read_bytes())
    assert "its test images are not known; give them: zsl ask RUN INPUT" in ask(capsys, alone, status=1)
    # The configuration of a folder cannot allow a package.
    text = (run_of_digits / "config.yaml").read_text().replace("zsl.data.readers.digits.load", "os.getcwd")
    (alone / "config.yaml").write_text(text.replace("allow_targets: []", "allow_targets: [os]"))
    assert "os.getcwd" in ask(capsys, alone, status=1)


def test_synthetic_data_with_the_truth(tmp_path, capsys):
    zsl.run(zsl.compose(["dataset=synthetic", *RUN[1:]]), tmp_path / "run")
    lines = ask(capsys, tmp_path / "run", "--truth").splitlines()
    accuracy = [float(line.split()[1]) for line in lines[1:] if line.split()[0].isdecimal()]
    assert accuracy[-1] >= accuracy[0] - 0.02
    assert accuracy[-1] > 0.8
