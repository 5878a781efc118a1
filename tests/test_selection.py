"""Selection and decisions on validation classes: what is tried, on which classes, from which data."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from zsl import ZeroShotClassifier
from zsl.config import compose
from zsl.data.dataset import ZeroShotData
from zsl.data.preprocess import Preprocess, preprocess
from zsl.data.table import ImageTable, Split
from zsl.errors import UserError
from zsl.evaluation import class_accuracy
from zsl.experiment.loading import load
from zsl.experiment.run import run
from zsl.experiment.search import Tuning, optuna_trials, space_of
from zsl.experiment.selection import select
from zsl.experiment.setup import checked
from zsl.inference import Inference
from zsl.inference.rules import TRANSDUCTIVE
from zsl.model_selection import ClassFold
from zsl.model_selection.decision import choose_rule, decide, validate
from zsl.model_selection.holdout import folds, random_sets
from zsl.model_selection.one_standard_error import choose, distances
from zsl.models import ESZSL, Ridge
from zsl.runs.result import digest

TUNED = ("tune=class_cv", "tracking=none", "tune.repeats=1", "tune.rule=best")


def selection(*overrides, data=None):
    setup = checked(compose([*TUNED, *overrides]))
    found = select(setup, load(setup) if data is None else data)[1]
    assert found is not None
    return found


@pytest.fixture(scope="module")
def raw():
    return load(checked(compose(["dataset=synthetic"])))


# --- classes that are held out ----------------------------------------------------------------------------------


def test_every_seen_class_is_held_out_once(raw):
    held = folds(raw, 5, 0)
    assert [len(f) for f in held] == [3] * 5
    assert_array_equal(np.sort(np.concatenate(held)), np.arange(15))
    assert_array_equal(np.concatenate(held), np.concatenate(folds(raw, 5, 0)))
    assert not np.array_equal(np.concatenate(held), np.concatenate(folds(raw, 5, 1)))
    # Seven seen digits allow two folds of at least three classes.
    digits = load(checked(compose(["dataset=digits"])))
    assert sorted(len(f) for f in folds(digits, 5, 0)) == [3, 4]


def test_repeated_folds_are_different_divisions(raw):
    held = folds(raw, 5, 0, 3)
    assert len(held) == 15
    divisions = [held[i : i + 5] for i in range(0, 15, 5)]
    for division in divisions:
        assert_array_equal(np.sort(np.concatenate(division)), np.arange(15))
    assert len({tuple(sorted(map(tuple, division))) for division in divisions}) == 3
    assert_array_equal(np.concatenate(divisions[0]), np.concatenate(folds(raw, 5, 0)))


def test_a_published_division_is_used_and_not_repeated(raw):
    published = replace(raw, validation=((np.arange(5, 15), np.arange(5)),))
    (held,) = folds(published, 5, 0, 4)
    assert_array_equal(held, np.arange(5))


def test_random_sets_hold_out_at_least_three_and_leave_two():
    assert random_sets(4, 2, 6, 0) == []
    assert {len(d) for d in random_sets(5, 2, 6, 0)} == {3}
    assert {len(d) for d in random_sets(40, 10, 6, 0)} == {10}
    sets = random_sets(20, 5, 6, 0)
    assert len({tuple(d) for d in sets}) == 6
    assert all(np.array_equal(a, b) for a, b in zip(sets, random_sets(20, 5, 6, 0)))


def test_a_fold_holds_training_images_of_seen_classes_alone(raw):
    held = np.array([1, 4, 7])
    part = raw.hold_out(held)
    assert_array_equal(part.attributes, raw.Z_seen)
    assert not set(part.class_names) & set(raw.unseen_names)
    assert part.unseen_names == [raw.class_names[raw.seen[c]] for c in held]
    assert len(part.X) + len(part.X_unseen) == len(raw.X)
    assert_array_equal(part.X_unseen, raw.X[np.isin(raw.y, held)])
    assert_array_equal(part.Z_unseen[part.y_unseen], raw.Z[np.isin(raw.y, held)])
    assert_array_equal(part.Z, raw.Z[~np.isin(raw.y, held)])
    assert len(part.X_test_seen) == 0
    own = raw.Z + np.random.default_rng(0).standard_normal(raw.Z.shape)
    assert_array_equal(replace(raw, Z_images=own).hold_out(held).Z, own[~np.isin(raw.y, held)])


def test_class_fold_divides_classes_and_agrees_with_folds(raw):
    y = np.array(raw.class_names)[raw.seen[raw.y]]
    splits = list(ClassFold(5).split(raw.X, y))
    assert len(splits) == ClassFold(5).get_n_splits() == 5
    for train, test in splits:
        assert not set(y[train]) & set(y[test])
        assert len(train) + len(test) == len(y)
    with pytest.raises(UserError, match="n_splits=99 does not fit 15 classes"):
        next(ClassFold(99).split(raw.X, y))


# --- missing attributes in folds ---------------------------------------------------------------------------------


@pytest.fixture
def gaps(raw):
    """The data with a missing value of attribute 0 in two seen classes."""
    attributes = raw.attributes.copy()
    attributes[raw.seen[:2], 0] = np.nan
    return replace(raw, attributes=attributes)


PLAIN = {"centre": False, "l2": False}


def filled(data):
    return preprocess(data, Preprocess(**PLAIN), Preprocess(**PLAIN))


def test_missing_attributes_are_filled_without_the_held_out_classes(gaps):
    held = np.array([1, 4, 7])
    part = filled(gaps.hold_out(held))
    kept = [c for c in range(len(gaps.seen)) if c not in (0, 1, 4, 7)]
    # Class 0 trains and class 1 is held out; both take the mean of the training classes that have a value.
    assert_allclose(part.attributes[[0, 1], 0], gaps.Z_seen[kept, 0].mean())
    assert_array_equal(part.attributes[2:], gaps.Z_seen[2:])
    # Held-out values may be anything: nothing that trains changes.
    other = gaps.attributes.copy()
    other[gaps.seen[[4, 7]], 0] = 1e6
    assert_array_equal(filled(replace(gaps, attributes=other).hold_out(held)).Z, part.Z)


def test_an_attribute_that_no_training_class_has_says_nothing(gaps):
    attributes = gaps.attributes.copy()
    attributes[gaps.seen[:-1], 0] = np.nan
    part = replace(gaps, attributes=attributes).hold_out(np.array([0, len(gaps.seen) - 1]))
    assert_array_equal(filled(part).attributes[:, 0], 0)


def test_images_without_a_value_take_that_of_their_class_in_the_fold(gaps):
    own = raw_rows = gaps.Z + 1
    own = np.where((gaps.y == 0)[:, None] & (np.arange(own.shape[1]) == 0), np.nan, np.nan_to_num(raw_rows, nan=5.0))
    part = filled(replace(gaps, Z_images=own).hold_out(np.array([1, 4, 7])))
    kept = np.setdiff1d(np.arange(len(gaps.seen)), [0, 1, 4, 7])
    assert_allclose(part.Z[part.y == 0, 0], gaps.Z_seen[kept, 0].mean())
    assert_array_equal(part.Z[part.y != 0], own[~np.isin(gaps.y, [0, 1, 4, 7])])


def test_readers_leave_gaps_and_shuffling_moves_them():
    Z = np.array([[1.0, 2], [np.nan, 4], [5, 6], [np.nan, 8]])
    rows = np.arange(4)
    table = ImageTable("t", "f", np.eye(4), rows, ("a", "b", "c", "d"), Z, missing=np.isnan(Z))
    split = Split("s", rows[:3], rows[:0], rows[3:], rows[3:])
    data = ZeroShotData.from_table(table, split)
    assert_array_equal(np.isnan(data.attributes), np.isnan(Z))
    assert_array_equal(filled(data).attributes[[1, 3], 0], 3)
    assert_array_equal(ZeroShotData.from_table(table, split, missing="drop").attributes, Z[:, 1:])
    shuffled = data.shuffle_attributes(1)
    gap = np.isnan(shuffled.attributes[:, 0])
    assert gap.sum() == 2
    known = shuffled.attributes[shuffled.seen[~gap[shuffled.seen]], 0]
    assert_allclose(filled(shuffled).attributes[gap, 0], known.mean())


# --- selection ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["eszsl", "sae"])
@pytest.mark.slow
def test_selection_sees_neither_unseen_images_nor_labels_nor_attributes(raw, model):
    rng = np.random.default_rng(0)
    attributes = raw.attributes.copy()
    attributes[raw.unseen] = 100 * rng.standard_normal((len(raw.unseen), attributes.shape[1]))
    other = replace(
        raw,
        X_unseen=100 * rng.standard_normal(raw.X_unseen.shape),
        y_unseen=rng.permutation(raw.y_unseen),
        X_test_seen=100 * rng.standard_normal(raw.X_test_seen.shape),
        attributes=attributes,
    )
    overrides = ("dataset=synthetic", f"model={model}")
    assert selection(*overrides, data=raw) == selection(*overrides, data=other)


def test_each_fold_fits_its_pre_processing_on_its_own_training_rows(raw):
    # By hand, for one setting and one fold.
    found = selection("dataset=synthetic", "model=eszsl", "tune.grid={model.lam:[0.1]}", data=raw)
    held = folds(raw, 5, 0)[2]
    trains = ~np.isin(raw.y, held)
    kept = np.setdiff1d(np.arange(15), held)
    X, S = raw.X - raw.X[trains].mean(axis=0), raw.Z_seen - raw.Z_seen[kept].mean(axis=0)
    X, S = X / np.linalg.norm(X, axis=1, keepdims=True), S / np.linalg.norm(S, axis=1, keepdims=True)
    y = np.searchsorted(kept, raw.y[trains])
    model = ESZSL(gamma=10.0, lam=0.1).fit(X[trains], y, S[kept][y], S[held])
    accuracy = class_accuracy(model.scores(X[~trains]), np.searchsorted(held, raw.y[~trains]))
    assert_allclose(found.trials[1]["folds"][2], np.mean(list(accuracy.values())))
    assert_allclose(found.trials[1]["acc_class"], np.mean(found.trials[1]["folds"]))
    # The settings as given are tried too.
    assert found.trials[0]["settings"] == {"model.lam": 1.0}


def test_the_best_point_is_chosen_wherever_it_stands():
    # One sensible value among useless ones: neither first nor last.
    found = selection("dataset=synthetic", "model=ridge", "feature.pca=1", "tune.grid={feature.pca:[1,20,2]}")
    assert found.settings == {"feature.pca": 20}
    assert max(found.trials, key=lambda t: t["acc_class"])["settings"] == found.settings


@pytest.mark.slow
def test_any_keys_together_and_what_they_share_changes_nothing(raw):
    quick = ("dataset=synthetic", "model=ridge", "inference=aag")
    grid = "tune.grid={model.gamma:[0.1,10],feature.pca:[null,20],inference.labels:[cosine,nearest]}"
    together = selection(*quick, grid, data=raw)
    assert len(together.trials) == 8
    for trial in (together.trials[0], together.trials[3], together.trials[6]):
        one = ",".join(f"{k}:[{'null' if v is None else v}]" for k, v in trial["settings"].items())
        assert selection(*quick, f"tune.grid={{{one}}}", data=raw).trials[-1] == trial


@pytest.mark.slow
def test_settings_of_rules_and_models_without_shared_fits_are_tuned_too():
    found = selection(
        "dataset=synthetic", "model=coupled", "model.n_atoms=20", "model.n_iter=1", "inference=taaw",
        "tune.grid={model.lam_relative:[0.05,0.3],inference.spread.mu:[0.1],solver.tol:[0.001]}", "tune.n_folds=2",
        "solver.tol=0.001",
    )  # fmt: skip
    assert len(found.trials) == 2
    assert len({t["acc_class"] for t in found.trials}) == 2


RANGE = "tune.grid={model.gamma:{low:1e-4,high:1e4,log:true},model.metric:[cosine,nearest],feature.pca:[null,10]}"


@pytest.mark.parametrize("search", ["random", "optuna"])
@pytest.mark.slow
def test_searches_over_any_keys_are_seeded_and_recorded(raw, search):
    if search == "optuna":
        pytest.importorskip("optuna", reason="no Optuna: pip install -e '.[optuna]'")
    arguments = ("dataset=synthetic", "model=ridge", RANGE, f"tune.search={search}", "tune.n_trials=12")
    found = selection(*arguments, data=raw)
    assert len(found.trials) == 13
    assert found.trials[0]["settings"] == {"model.gamma": 10.0, "model.metric": "cosine", "feature.pca": None}
    assert all(1e-4 <= t["settings"]["model.gamma"] <= 1e4 for t in found.trials)
    assert found.settings == max(found.trials, key=lambda t: t["acc_class"])["settings"]
    assert selection(*arguments, data=raw) == found
    other = selection(*arguments, "tune.seed=1", data=raw)
    assert [t["settings"] for t in other.trials] != [t["settings"] for t in found.trials]


def test_optuna_looks_where_it_is_good():
    pytest.importorskip("optuna", reason="no Optuna: pip install -e '.[optuna]'")
    asked = optuna_trials(space_of({"model.a": {"low": 0.0, "high": 100.0}}), 40, seed=0)
    tried = [next(asked)["model.a"]]
    try:
        while True:
            tried.append(asked.send(-abs(tried[-1] - 70))["model.a"])
    except StopIteration:
        pass
    assert len(tried) == 40
    at_random = (70**2 + 30**2) / 200  # the expected distance of a uniform draw
    assert np.abs(np.array(tried[20:]) - 70).mean() < 0.5 * at_random


def test_ranges_are_drawn_from_evenly():
    space = {"model.a": {"low": 1e-3, "high": 1e3, "log": True}, "model.b": {"low": 2, "high": 5, "integer": True},
             "model.c": [None, "x"]}  # fmt: skip
    trials = Tuning(space, search="random", n_trials=2000).trials()
    a = np.log10([t["model.a"] for t in trials])
    assert -3 <= a.min() < a.max() <= 3
    assert_allclose(np.histogram(a, 6, (-3, 3))[0], 2000 / 6, rtol=0.2)
    b, counts = np.unique([t["model.b"] for t in trials], return_counts=True)
    assert b.tolist() == [2, 3, 4, 5]
    assert_allclose(counts, 500, rtol=0.2)
    assert {t["model.c"] for t in trials} == {None, "x"}
    assert trials == Tuning(space, search="random", n_trials=2000).trials()


def test_random_search_draws_different_points_under_its_seed():
    grid = {"model.a": [1, 2, 3], "model.b": list(range(10))}
    trials = Tuning(grid, search="random", n_trials=12).trials()
    assert len({tuple(t.items()) for t in trials}) == 12
    assert trials != Tuning(grid, search="random", n_trials=12, seed=1).trials()
    assert len(Tuning(grid, search="random", n_trials=99).trials()) == 30
    assert Tuning(grid).trials()[:2] == [{"model.a": 1, "model.b": 0}, {"model.a": 1, "model.b": 1}]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("tune.grid={model.gamm:[1]}", "model.gamm does not exist"),
        ("tune.grid={model.gamma:{low:1,high:2}}", "is a range, which a grid cannot cover"),
        ("tune.grid={model.gamma:{low:1}}", "a range has low and high"),
        ("tune.grid={model.gamma:{low:2,high:1}}", "low must be less than high"),
        ("tune.grid={model.gamma:{low:0,high:1,log:true}}", "with log above zero"),
        ("tune.grid={model.gamma:1}", "a list with at least one value"),
        ("tune.grid={model.gamma:[-1]}", "model.gamma=-1 is not accepted"),
        ("tune.grid={}", "tune.grid is empty; name a key and its values"),
        ("tune.search=best", "tune.search='best' is not accepted"),
        ("tune.n_folds=1", "tune.n_folds=1 is not accepted"),
        ("tune.grid={model.gamma:{low:1,high:inf}}", "model.gamma.high=inf is not accepted"),
        *((f"tune.grid={{{key}:[1,2]}}", "cannot be tuned")
          for key in ("seed", "split.seed", "subset.images", "evaluation.n_validation_splits")),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_grid_is_said(override, message):
    with pytest.raises(UserError, match=message.replace("[", r"\[")):
        selection("model=eszsl", override)


def test_keys_that_may_not_vary_are_refused_before_the_data_are_read():
    with pytest.raises(UserError, match=r"split.seed .*cannot be tuned"):
        checked(compose([*TUNED, "model=eszsl", "tune.search=random", "tune.grid={split.seed:[1,2]}"]))


def test_a_given_setting_of_an_own_rule_is_the_default_of_its_function(monkeypatch, tmp_path):
    (tmp_path / "own_rule_of_mine.py").write_text(
        "def mine(base_scores, *, tol: float = 0.5):\n    return base_scores\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    setup = checked(
        compose(["model=coupled", "inference.labels=own_rule_of_mine.mine", "allow_targets=[own_rule_of_mine]"])
    )
    assert setup.values(["inference.mine.tol"]) == {"inference.mine.tol": 0.5}


def test_one_validation_split_cannot_choose_a_rule():
    words = ["model=eszsl", "inference=transductive", "inference.fallback=true", "evaluation.n_validation_splits=1"]
    with pytest.raises(UserError, match="needs two validation splits or more"):
        checked(compose(words))


@pytest.mark.slow
def test_the_run_is_refitted_with_the_choice_and_records_everything(tmp_path):
    grid = "tune.grid={model.gamma:[0.01,10],model.lam:[0.1,1]}"
    result = run(compose([*TUNED, "dataset=synthetic", "model=eszsl", grid]), tmp_path)
    record = json.loads((tmp_path / "results.json").read_text())
    key = record["key"]
    assert key["selection"] == "selected on validation classes"
    assert len(record["trials"]) == 4
    assert all(len(t["folds"]) == 5 for t in record["trials"])
    chosen = key["tune"]["chosen"]
    assert key["model"]["gamma"] == chosen["model.gamma"]
    given = [f"{k}={v}" for k, v in chosen.items()]
    again = run(compose(["tracking=none", "dataset=synthetic", "model=eszsl", *given]))
    assert again.metrics["acc_class"] == result.metrics["acc_class"]
    assert again.key["selection"] == "none: settings as given"
    assert again.trials == []


# --- the one-standard-error rule ---------------------------------------------------------------------------------


def test_one_standard_error_by_hand():
    # Settings on a line; the given ones are the first. The last are best, .10 ahead of the middle ones on average,
    # by 0, .1 and .2: their standard error is .1 / sqrt(3) = .058 with three folds, but .1 with one fold's worth.
    accuracy = np.array([[0.2, 0.2, 0.2], [0.5, 0.5, 0.5], [0.5, 0.6, 0.7]])
    distance = np.array([0.0, 1.0, 2.0])
    found = choose(accuracy, distance, given=0, n_folds=3)
    assert (found.chosen, found.best) == (2, 2)
    assert_allclose([found.gain, found.error], [0.4, 0.1 / np.sqrt(3)])
    assert choose(accuracy, distance, given=0, n_folds=1).chosen == 1
    # Divisions that repeat the same folds say nothing new: the error stays (up to n - 1 in place of n).
    again = choose(np.tile(accuracy, 50), distance, given=0, n_folds=3)
    assert again.chosen == 2
    assert_allclose(again.error, found.error * np.sqrt(2 / 3), rtol=0.01)
    assert np.isnan(choose(accuracy[:, :1], distance, given=0, n_folds=1).error)


@pytest.mark.parametrize("seed", range(20))
def test_the_choice_is_within_one_error_nearest_to_the_given_and_blind_to_order(seed):
    rng = np.random.default_rng(seed)
    tried = Tuning({"model.a": [0.1, 1.0, 10.0], "model.b": [True, False]}).trials()
    accuracy = rng.uniform(0.3, 0.6, (6, 8))
    given = int(rng.integers(6))
    distance = distances(tried, given)
    found = choose(accuracy, distance, given, 4)
    behind = accuracy[accuracy.mean(axis=1).argmax()] - accuracy
    near = behind.mean(axis=1) <= behind.std(axis=1, ddof=1) / 2 + 1e-12
    assert near[found.chosen]
    assert distance[found.chosen] == distance[near].min()
    order = rng.permutation(6)
    other = choose(accuracy[order], distances([tried[i] for i in order], int(np.flatnonzero(order == given)[0])),
                   int(np.flatnonzero(order == given)[0]), 4)  # fmt: skip
    assert order[other.chosen] == found.chosen
    # Equally good settings everywhere: the given ones stay.
    assert choose(np.full((6, 8), 0.5), distance, given, 4).chosen == given


def test_distance_is_in_steps_between_the_values_that_were_tried():
    tried = Tuning({"model.a": [100.0, 0.1, 1.0], "model.b": [None, "x"]}).trials()
    # The places of .1, 1 and 100 are 0, 1 and 2; anything but a number is one step away if it differs.
    assert distances(tried, 0).tolist() == [0, 1, 2, 3, 1, 2]
    assert distances([{"model.c": None}, {"model.c": 3}, {"model.c": 50}], 0).tolist() == [0, 1, 1]
    assert distances([{"model.d": True}, {"model.d": False}], 1).tolist() == [1, 0]


ONE_ERROR = ("tune.rule=one_standard_error", "tune.repeats=3")


@pytest.mark.slow
def test_settings_stay_where_folds_cannot_tell_and_a_warning_says_so(raw, caplog):
    found = selection(
        "model=sje", "dataset=synthetic", *ONE_ERROR, "tune.repeats=8", "tune.grid={model.n_epochs:[1,20]}"
    )
    assert found.settings == {"model.n_epochs": 20}
    assert max(trial["acc_class"] for trial in found.trials) > found.acc_class
    (line,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert "tuning keeps the settings as given (model.n_epochs=20)" in line
    assert "the standard error of the difference is 0." in line
    # What is clearly worse is left, whatever was given.
    bad = selection("model=ridge", "dataset=synthetic", *ONE_ERROR, "feature.pca=1", "tune.grid={feature.pca:[2,15]}")
    assert bad.settings == {"feature.pca": 15}


def test_one_published_fold_counts_its_classes(raw):
    published = replace(raw, validation=((np.arange(6, 15), np.arange(6)),))
    found = selection("model=ridge", "dataset=synthetic", *ONE_ERROR, "tune.grid={feature.pca:[1,10]}", data=published)
    assert [len(trial["folds"]) for trial in found.trials] == [1, 1, 1]
    assert found.settings == {"feature.pca": None}


# --- the decision on a transductive rule --------------------------------------------------------------------------


def transductive():
    return ZeroShotClassifier(Ridge(), inference=Inference(labels="mixture", fallback=True))


def test_a_transductive_rule_is_used_if_it_gains_more_than_a_standard_error(raw):
    splits = validate(transductive(), raw, n_splits=3, seed=0)
    for gain, used in ((1.0, True), (-1.0, False), (0.0, False)):
        for split in splits:
            good = np.eye(split.prediction.scores.shape[1])[split.y]
            bad = -good
            split.prediction.chosen.scores = good if gain > 0 else bad
            split.prediction.inductive.chosen.scores = bad if gain >= 0 else good
        found = choose_rule([s.prediction for s in splits], [s.y for s in splits])
        assert found.use_transductive is used
        assert found.gain == pytest.approx(gain)


def test_without_enough_classes_the_inductive_rule_stays():
    found = choose_rule([], [])
    assert found.use_transductive is False
    assert "too few" in found.reason


def test_a_rule_that_is_not_used_leaves_the_inductive_stage(monkeypatch):
    monkeypatch.setattr(
        "zsl.model_selection.decision.choose_rule",
        lambda *_: __import__("zsl.model_selection.decision", fromlist=["x"]).Decision(False, "by this test"),
    )
    result = run(compose(["dataset=synthetic", "tracking=none", "model=ridge", "inference.labels=mixture",
                          "inference.fallback=true", "evaluation.n_validation_splits=2"]))  # fmt: skip
    assert result.prediction.chosen.name == "agnostic_bidirectional"
    assert result.metrics["acc_class"] == result.metrics["agnostic_bidirectional/acc_class"]
    assert TRANSDUCTIVE not in result.key["information_used"]
    assert result.key["decision"]["reason"] == "by this test"


def test_validation_never_sees_unseen_classes(raw):
    attributes = np.where(np.isin(np.arange(len(raw.attributes)), raw.unseen)[:, None], 1e9, raw.attributes)
    poisoned = replace(raw, X_unseen=np.full_like(raw.X_unseen, 1e9), attributes=attributes)
    classifier = transductive()
    a, b = (decide(classifier, d, fallback=True, calibrate=True, n_splits=2) for d in (raw, poisoned))
    assert a == b
    assert a.temperature is not None


def test_the_digest_is_that_of_the_run_before_its_settings_were_chosen():
    """It must be known before anything is fitted, or a finished tuned run would not be found again."""

    cfg = compose([*TUNED, "dataset=synthetic", "model=eszsl", "tune.grid={model.gamma:[0.01,10]}"])
    setup = checked(cfg)
    assert run(cfg).digest == digest(setup.config, load(setup).identity)
