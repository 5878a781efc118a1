"""The rule ``asked``: clusters that a few labels name, what a question is worth, and labels in inference."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from test_naming import DEGENERATE, degenerate, problem
from zsl.errors import UserError
from zsl.inference import Inference
from zsl.inference.asking import Clusters, asked
from zsl.inference.rules import LABELLED, TRANSDUCTIVE
from zsl.linalg import unit_rows
from zsl.models import ESZSL


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
    # Two classes lie in one cluster, and one image of each has a label: other images get the class of the nearer label.
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


@pytest.mark.parametrize("case", DEGENERATE)
def test_degenerate_input(case):
    X, _, Z, seen, _ = clear()
    X, Z, seen = degenerate(case, X, Z, seen)
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
