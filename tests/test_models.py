"""The common checks, over every file in conf/model/: a new YAML is tested with no edit."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from zsl.config import build, compose, options
from zsl.data.dataset import ZeroShotData
from zsl.errors import UserError
from zsl.evaluation import class_accuracy
from zsl.experiment import load_data, read_data, resolve, transform_data

MODELS = options("model")
# Fits that take seconds get smaller ones: a check of behaviour needs no converged dictionary.
QUICK = {"n_iter": 1, "n_atoms": 25, "n_epochs": 5}


@cache
def configuration(*overrides: str) -> dict:
    return resolve(compose([*overrides, "tracking=none"]))


@cache
def data(*overrides: str) -> ZeroShotData:
    return load_data(configuration(*overrides))


def new(name: str, *, quick: bool = False):
    node = dict(configuration(f"model={name}", "dataset=synthetic")["model"])
    if quick:
        node |= {k: v for k, v in QUICK.items() if k in node}
    return build(node, "model")


def fitted(name: str, d: ZeroShotData, **kwargs):
    return new(name, **kwargs).fit(d.X, d.y, d.Z, d.Z_unseen)


def accuracy(model, d: ZeroShotData) -> float:
    return float(np.mean(list(class_accuracy(model.scores(d.X_unseen), d.y_unseen).values())))


@pytest.fixture(scope="module")
def easy() -> ZeroShotData:
    return data("dataset=synthetic")


@pytest.mark.parametrize("name", MODELS)
def test_constructor_stores_and_fit_mutates_nothing(name, easy):
    model = new(name, quick=True)
    settings = {f.name: getattr(model, f.name) for f in fields(model) if f.init}
    assert settings == {k: getattr(type(model)(**settings), k) for k in settings}
    given = [a.copy() for a in (easy.X, easy.y, easy.Z, easy.Z_unseen)]
    for a in given:
        a.setflags(write=False)
    assert model.fit(*given) is model
    assert settings == {k: getattr(model, k) for k in settings}
    for a, b in zip(given, (easy.X, easy.y, easy.Z, easy.Z_unseen)):
        assert_array_equal(a, b)
    assert isinstance(model.information, tuple)


@pytest.mark.parametrize("name", MODELS)
def test_before_fit_it_says_so(name, easy):
    with pytest.raises(UserError, match=r"call fit\(X, y, Z, Z_unseen\) first"):
        new(name).scores(easy.X_unseen)
    if hasattr(new(name), "predict_attributes"):
        with pytest.raises(UserError, match=r"call fit\(X, y, Z, Z_unseen\) first"):
            new(name).predict_attributes(easy.X_unseen)


@pytest.mark.parametrize("name", MODELS)
def test_scores_shapes_permutations_and_one_class(name, easy):
    model = fitted(name, easy, quick=True)
    X, Z = easy.X_unseen, easy.Z_unseen
    scores = model.scores(X)
    tolerance = {"rtol": 1e-6, "atol": 1e-6 * np.abs(scores).max()}
    assert scores.shape == (len(X), len(Z))
    assert np.isfinite(scores).all()
    assert np.ptp(scores, axis=1).max() > 0
    assert_allclose(model.scores(X, Z), scores, **tolerance)
    images, classes = np.random.default_rng(0).permutation(len(X)), np.random.default_rng(1).permutation(len(Z))
    assert_allclose(model.scores(X[images]), scores[images], **tolerance)
    assert_allclose(model.scores(X, Z[classes]), scores[:, classes], **tolerance)
    both = model.scores(X, np.vstack([easy.Z_seen, Z]))
    assert both.shape == (len(X), len(easy.seen) + len(Z))
    assert np.isfinite(both).all()
    if hasattr(model, "predict_attributes"):
        Z_hat = model.predict_attributes(X)
        assert Z_hat.shape == (len(X), Z.shape[1])
        assert np.isfinite(Z_hat).all()
    one = new(name, quick=True).fit(easy.X, easy.y, easy.Z, Z[:1]).scores(X)
    assert one.shape == (len(X), 1)
    assert np.isfinite(one).all()
    with pytest.raises(UserError, match="columns where"):
        model.scores(X[:, 1:])


@pytest.mark.parametrize("name", MODELS)
def test_order_of_training_images_and_class_numbers(name, easy):
    # Seen classes may be numbered in any order. Methods that draw batches see other batches then.
    order = np.random.default_rng(2).permutation(len(easy.seen))
    renumbered = new(name, quick=True).fit(easy.X, order[easy.y], easy.Z, easy.Z_unseen)
    scores = fitted(name, easy, quick=True).scores(easy.X_unseen)
    assert np.corrcoef(renumbered.scores(easy.X_unseen).ravel(), scores.ravel())[0, 1] > 0.98


@pytest.mark.parametrize("name", MODELS)
def test_same_seed_same_scores_and_float32_is_close(name, easy):
    scores = fitted(name, easy, quick=True).scores(easy.X_unseen)
    assert_array_equal(fitted(name, easy, quick=True).scores(easy.X_unseen), scores)
    given = [a.astype(np.float32) for a in (easy.X, easy.Z, easy.Z_unseen)]
    single = new(name, quick=True).fit(given[0], easy.y, *given[1:]).scores(easy.X_unseen.astype(np.float32))
    # Sparse codes are solved to a tolerance, the rest to rounding.
    assert np.corrcoef(single.ravel(), scores.ravel())[0, 1] > (0.97 if hasattr(new(name), "solver") else 0.999)


@pytest.mark.parametrize("name", MODELS)
def test_beats_chance_on_simulated_data_and_digits(name):
    simulated = [data("dataset=synthetic", f"seed={s}") for s in range(3)]
    assert np.mean([accuracy(fitted(name, d), d) for d in simulated]) > 0.2 + 0.15
    # Which three digits are unseen matters more than the method: between 0.2 and 0.9 for all of them.
    digits = [data("dataset=digits", "split=random", f"split.seed={s}") for s in range(12)]
    assert np.mean([accuracy(fitted(name, d, quick=hasattr(new(name), "solver")), d) for d in digits]) > 1 / 3 + 0.06


@pytest.mark.parametrize("name", MODELS)
def test_near_chance_when_attributes_are_shuffled(name):
    # Single shuffles vary widely (a shuffle may leave a class near its place), their mean does not.
    plain = configuration("dataset=synthetic")
    raw = read_data(plain)
    few = replace(raw, X=raw.X[::3], y=raw.y[::3])
    shuffled = [transform_data(plain, few.shuffle_attributes(seed)) for seed in range(30)]
    mean = np.mean([accuracy(fitted(name, d, quick=True), d) for d in shuffled])
    assert abs(mean - 0.2) < 0.07


@pytest.mark.parametrize("name", MODELS)
def test_its_grid_is_made_of_its_settings_and_every_value_is_accepted(name):
    node = configuration(f"model={name}", "dataset=synthetic")["model"]
    grid = node.get("grid", {})
    if name != "coupled":
        assert grid, f"conf/model/{name}.yaml has no grid for tune=class_cv"
    for key, values in grid.items():
        assert key in node
        for value in values:
            build({**node, key: value}, "model")


@pytest.mark.parametrize("name", [m for m in MODELS if m != "coupled"])
def test_a_baseline_chooses_its_own_scores_and_the_user_may_choose_otherwise(name):
    assert configuration(f"model={name}")["inference"]["labels"] == "own"
    assert configuration(f"model={name}", "inference=taaw")["inference"]["labels"] == "spread"
    assert configuration("inference=taaw", f"model={name}")["inference"]["labels"] == "spread"
