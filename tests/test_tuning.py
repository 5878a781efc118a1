"""Selection on validation classes: what is tried, on which folds, from which data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from zsl.config import compose
from zsl.errors import UserError
from zsl.evaluation import class_accuracy
from zsl.experiment import selection as tuning
from zsl.experiment.loading import read_data, transform_data
from zsl.experiment.run import infer, resolve, run
from zsl.experiment.search import trials_of
from zsl.models import ESZSL

TUNED = ("tune=class_cv", "tracking=none")


def selection(*overrides, data=None):
    cfg = compose([*TUNED, *overrides])
    data = read_data(resolve(cfg)) if data is None else data
    return tuning.select(cfg, data, resolve=resolve, transform=transform_data, infer=infer)


@pytest.fixture(scope="module")
def raw():
    return read_data(resolve(compose(["dataset=synthetic"])))


def test_every_seen_class_is_held_out_once(raw):
    folds = tuning.validation_folds(raw, 5, 0)
    assert [len(f) for f in folds] == [3] * 5
    assert_array_equal(np.sort(np.concatenate(folds)), np.arange(15))
    assert_array_equal(np.concatenate(folds), np.concatenate(tuning.validation_folds(raw, 5, 0)))
    assert not np.array_equal(np.concatenate(folds), np.concatenate(tuning.validation_folds(raw, 5, 1)))
    # Seven seen digits allow two folds of at least three classes.
    digits = read_data(resolve(compose(["dataset=digits"])))
    assert sorted(len(f) for f in tuning.validation_folds(digits, 5, 0)) == [3, 4]


def test_a_fold_holds_training_images_of_seen_classes_alone(raw):
    held = np.array([1, 4, 7])
    part = tuning.fold(raw, held)
    assert_array_equal(part.attributes, raw.Z_seen)
    assert not set(part.class_names) & set(raw.unseen_names)
    assert part.unseen_names == [raw.class_names[raw.seen[c]] for c in held]
    assert len(part.X) + len(part.X_unseen) == len(raw.X)
    assert_array_equal(part.X_unseen, raw.X[np.isin(raw.y, held)])
    assert_array_equal(part.Z_unseen[part.y_unseen], raw.Z[np.isin(raw.y, held)])
    assert_array_equal(part.Z, raw.Z[~np.isin(raw.y, held)])
    assert len(part.X_test_seen) == 0


def test_images_keep_their_own_attributes_in_a_fold(raw):
    own = raw.Z + np.random.default_rng(0).standard_normal(raw.Z.shape)
    held = np.array([1, 4, 7])
    part = tuning.fold(replace(raw, Z_images=own), held)
    assert_array_equal(part.Z, own[~np.isin(raw.y, held)])


@pytest.mark.parametrize("model", ["eszsl", "sae"])
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
    held = tuning.validation_folds(raw, 5, 0)[2]
    trains = ~np.isin(raw.y, held)
    kept = np.setdiff1d(np.arange(15), held)
    X, S = raw.X - raw.X[trains].mean(axis=0), raw.Z_seen - raw.Z_seen[kept].mean(axis=0)
    X, S = X / np.linalg.norm(X, axis=1, keepdims=True), S / np.linalg.norm(S, axis=1, keepdims=True)
    y = np.searchsorted(kept, raw.y[trains])
    model = ESZSL(gamma=10.0, lam=0.1).fit(X[trains], y, S[kept][y], S[held])
    accuracy = class_accuracy(model.scores(X[~trains]), np.searchsorted(held, raw.y[~trains]))
    assert_allclose(found.trials[0]["folds"][2], np.mean(list(accuracy.values())))
    assert_allclose(found.trials[0]["acc_class"], np.mean(found.trials[0]["folds"]))


def test_the_best_point_is_chosen_wherever_it_stands():
    # One sensible value among useless ones: neither first nor last.
    found = selection("dataset=synthetic", "model=ridge", "tune.grid={feature.pca:[1,20,2]}")
    assert found.settings == {"feature.pca": 20}
    best = max(found.trials, key=lambda t: t["acc_class"])
    assert best["settings"] == found.settings


def test_any_keys_together_and_what_they_share_changes_nothing():
    grid = "tune.grid={model.gamma:[0.1,10],feature.pca:[null,20],inference.labels:[cosine,nearest]}"
    together = selection("model=ridge", "inference=aag", grid)
    assert len(together.trials) == 8
    for trial in (together.trials[0], together.trials[3], together.trials[6]):
        one = ",".join(f"{k}:[{'null' if v is None else v}]" for k, v in trial["settings"].items())
        assert selection("model=ridge", "inference=aag", f"tune.grid={{{one}}}").trials == [trial]


def test_a_model_without_shared_fits_is_tuned_too():
    found = selection(
        "dataset=synthetic", "model=coupled", "model.n_atoms=20", "model.n_iter=1", "inference=aag",
        "tune.grid={model.lam_relative:[0.1,0.3],solver.tol:[0.001]}", "tune.n_folds=2",
    )  # fmt: skip
    assert len(found.trials) == 2
    assert len({t["acc_class"] for t in found.trials}) == 2


@pytest.fixture
def gaps(raw):
    """The data with a missing value of attribute 0 in two seen classes, imputed as a reader does."""
    imputed = np.zeros(raw.attributes.shape, bool)
    imputed[raw.seen[:2], 0] = True
    return replace(raw, imputed=imputed).impute_anew()


def test_missing_attributes_are_imputed_without_the_held_out_classes(gaps):
    held = np.array([1, 4, 7])
    part = tuning.fold(gaps, held)
    kept = [c for c in range(len(gaps.seen)) if c not in (0, 1, 4, 7)]
    # Class 0 trains and class 1 is held out; what stands for both is the mean of what trains and has a value.
    assert_allclose(part.attributes[[0, 1], 0], gaps.Z_seen[kept, 0].mean())
    assert not np.isclose(gaps.Z_seen[0, 0], part.attributes[0, 0])
    assert_array_equal(part.attributes[2:], gaps.Z_seen[2:])
    # Held-out values may be anything: nothing that trains changes.
    other = gaps.attributes.copy()
    other[gaps.seen[[4, 7]], 0] = 1e6
    changed = tuning.fold(replace(gaps, attributes=other), held)
    assert_array_equal(changed.Z, part.Z)


def test_an_attribute_that_no_training_class_has_says_nothing(gaps):
    imputed = gaps.imputed.copy()
    imputed[gaps.seen[:-1], 0] = True
    held = np.array([0, len(gaps.seen) - 1])
    part = tuning.fold(replace(gaps, imputed=imputed), held)
    assert_array_equal(part.attributes[:, 0], 0)


def test_images_without_a_value_take_the_imputed_one_of_the_fold(gaps):
    own = gaps.Z + 1
    missing = np.zeros(own.shape, bool)
    missing[gaps.y == 0, 0] = True
    own[missing] = gaps.Z_seen[0, 0]
    part = tuning.fold(replace(gaps, Z_images=own, imputed_images=missing), np.array([1, 4, 7]))
    kept = np.setdiff1d(np.arange(len(gaps.seen)), [0, 1, 4, 7])
    assert_allclose(part.Z[part.y == 0, 0], gaps.Z_seen[kept, 0].mean())
    assert_array_equal(part.Z[part.y != 0], own[~np.isin(gaps.y, [0, 1, 4, 7])])


def test_readers_mark_what_they_impute():
    from zsl.data.dataset import ZeroShotData
    from zsl.data.table import ImageTable, Split

    Z = np.array([[1.0, 2], [np.nan, 4], [5, 6], [np.nan, 8]])
    rows = np.arange(4)
    table = ImageTable("t", "f", np.eye(4), rows, ("a", "b", "c", "d"), Z, missing=np.isnan(Z))
    split = Split("s", rows[:3], rows[:0], rows[3:], rows[3:])
    data = ZeroShotData.from_table(table, split)
    assert_array_equal(data.imputed, np.isnan(Z))
    assert_array_equal(data.attributes[[1, 3], 0], 3)
    assert ZeroShotData.from_table(table, split, missing="drop").imputed is None
    # Permuted rows keep their gaps, and are filled from the classes that are seen then.
    shuffled = data.shuffle_attributes(1)
    own = ~shuffled.imputed[:, 0]
    assert own.sum() == 2
    assert_allclose(shuffled.attributes[~own, 0], shuffled.attributes[shuffled.seen[own[shuffled.seen]], 0].mean())


def test_repeated_folds_are_different_divisions(raw):
    held = tuning.validation_folds(raw, 5, 0, 3)
    assert len(held) == 15
    for i in range(0, 15, 5):
        assert_array_equal(np.sort(np.concatenate(held[i : i + 5])), np.arange(15))
    divisions = {tuple(sorted(tuple(f) for f in held[i : i + 5])) for i in range(0, 15, 5)}
    assert len(divisions) == 3
    for a, b in zip(held[:5], tuning.validation_folds(raw, 5, 0)):
        assert_array_equal(a, b)
    found = selection("dataset=synthetic", "model=ridge", "tune.grid={model.gamma:[1,10]}", "tune.repeats=3", data=raw)
    assert len(found.folds) == len(found.trials[0]["folds"]) == 15
    assert found.trials[0]["acc_class"] == pytest.approx(np.mean(found.trials[0]["folds"]))


def test_a_published_division_is_not_repeated(raw):
    published = replace(raw, validation=((np.arange(5, 15), np.arange(5)),))
    assert len(tuning.validation_folds(published, 5, 0, 4)) == 1


def test_ranges_are_drawn_from_evenly():
    space = {"model.a": {"low": 1e-3, "high": 1e3, "log": True}, "model.b": {"low": 2, "high": 5, "integer": True},
             "model.c": [None, "x"]}  # fmt: skip
    trials = trials_of(space, search="random", n_trials=2000, seed=0)
    a = np.log10([t["model.a"] for t in trials])
    assert a.min() >= -3
    assert a.max() <= 3
    assert_allclose(np.histogram(a, 6, (-3, 3))[0], 2000 / 6, rtol=0.2)
    b, counts = np.unique([t["model.b"] for t in trials], return_counts=True)
    assert b.tolist() == [2, 3, 4, 5]
    assert all(type(t["model.b"]) is int for t in trials)
    assert_allclose(counts, 500, rtol=0.2)
    assert {t["model.c"] for t in trials} == {None, "x"}
    assert trials == trials_of(space, search="random", n_trials=2000, seed=0)
    assert trials[:5] != trials_of(space, search="random", n_trials=5, seed=1)
    whole = trials_of({"model.a": {"low": 1, "high": 3, "log": True, "integer": True}}, search="random", n_trials=300)
    assert {t["model.a"] for t in whole} == {1, 2, 3}


RANGE = "tune.grid={model.gamma:{low:1e-4,high:1e4,log:true},model.metric:[cosine,nearest],feature.pca:[null,10]}"


@pytest.mark.parametrize("search", ["random", "optuna"])
def test_searches_over_any_keys_are_seeded_and_recorded(raw, search):
    if search == "optuna":
        pytest.importorskip("optuna", reason="no Optuna: pip install 'zsl-cdl[optuna]'")
    arguments = ("dataset=synthetic", "model=ridge", RANGE, f"tune.search={search}", "tune.n_trials=12")
    found = selection(*arguments, data=raw)
    assert len(found.trials) == 12
    assert all(1e-4 <= t["settings"]["model.gamma"] <= 1e4 for t in found.trials)
    assert found.settings == max(found.trials, key=lambda t: t["acc_class"])["settings"]
    assert selection(*arguments, data=raw) == found
    other = selection(*arguments, "tune.seed=1", data=raw)
    assert [t["settings"] for t in other.trials] != [t["settings"] for t in found.trials]
    # What is said of a trial is what this setting gives by itself.
    trial = found.trials[-1]
    one = ",".join(f"{k}:[{'null' if v is None else v}]" for k, v in trial["settings"].items())
    alone = selection("dataset=synthetic", "model=ridge", f"tune.grid={{{one}}}", data=raw).trials[0]
    assert_allclose(alone["folds"], trial["folds"])


def test_optuna_looks_where_it_is_good():
    pytest.importorskip("optuna", reason="no Optuna: pip install 'zsl-cdl[optuna]'")
    from zsl.experiment.search import optuna_trials, space_of

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


def test_optuna_that_is_absent_is_said(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UserError, match=r"pip install 'zsl-cdl\[optuna\]'"):
        selection("model=ridge", RANGE, "tune.search=optuna")


def test_random_search_draws_different_points_under_its_seed():
    grid = {"model.a": [1, 2, 3], "model.b": list(range(10))}
    trials = trials_of(grid, search="random", n_trials=12, seed=0)
    assert len({tuple(t.items()) for t in trials}) == 12
    assert trials == trials_of(grid, search="random", n_trials=12, seed=0)
    assert trials != trials_of(grid, search="random", n_trials=12, seed=1)
    assert len(trials_of(grid, search="random", n_trials=99)) == 30
    assert trials_of(grid)[:2] == [{"model.a": 1, "model.b": 0}, {"model.a": 1, "model.b": 1}]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("tune.grid={model.gamm:[1]}", "model.gamm does not exist"),
        ("tune.grid={split.seed:[0,1]}", "cannot be tuned"),
        ("tune.grid={model.gamma:{low:1,high:2}}", "is a range, which a grid cannot cover"),
        ("tune.grid={model.gamma:{low:1}}", "a range has low and high"),
        ("tune.grid={model.gamma:{low:2,high:1}}", "low must be less than high"),
        ("tune.grid={model.gamma:{low:0,high:1,log:true}}", "with log above zero"),
        ("tune.grid={model.gamma:{low:a,high:1}}", r"tune\.grid\.model\.gamma\.low='a' is not accepted"),
        ("tune.repeats=0", r"tune\.repeats=0 is not accepted"),
        ("tune.search=bayes", r"tune\.search='bayes' is not accepted"),
        ("tune.grid={model.gamma:1}", "a list with at least one value"),
        ("tune.grid={model.gamma:[-1]}", "model.gamma=-1 is not accepted"),
        ("tune.search=best", "tune.search='best' is not accepted"),
        ("tune.n_folds=0", "tune.n_folds=0 is not accepted"),
    ],
)
def test_what_is_wrong_is_said(override, message):
    with pytest.raises(UserError, match=message.replace("[", r"\[")):
        selection("model=eszsl", override)


def test_the_run_is_refitted_with_the_choice_and_records_everything(tmp_path):
    import json

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


def test_repetitions_are_no_settings():
    for key in ("seed", "subset.images", "evaluation.n_draws"):
        with pytest.raises(UserError, match="cannot be tuned"):
            run(compose(["tune=class_cv", f"tune.grid={{{key}:[1,2]}}", "tracking=none"]))
