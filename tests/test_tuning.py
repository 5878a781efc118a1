"""Selection on validation classes: what is tried, on which folds, from which data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from zsl import tuning
from zsl.config import compose
from zsl.errors import UserError
from zsl.evaluation import class_accuracy
from zsl.experiment import infer, read_data, resolve, run, transform_data
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


def test_random_search_draws_different_points_under_its_seed():
    grid = {"model.a": [1, 2, 3], "model.b": list(range(10))}
    trials = tuning.trials_of(grid, search="random", n_trials=12, seed=0)
    assert len({tuple(t.items()) for t in trials}) == 12
    assert trials == tuning.trials_of(grid, search="random", n_trials=12, seed=0)
    assert trials != tuning.trials_of(grid, search="random", n_trials=12, seed=1)
    assert len(tuning.trials_of(grid, search="random", n_trials=99)) == 30
    assert tuning.trials_of(grid)[:2] == [{"model.a": 1, "model.b": 0}, {"model.a": 1, "model.b": 1}]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("tune.grid={model.gamm:[1]}", "model.gamm does not exist"),
        ("tune.grid={split.seed:[0,1]}", "cannot be tuned"),
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
