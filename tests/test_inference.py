"""Rules that build on rules, what they declare, and settings by rule."""

import numpy as np
import pytest

import zsl
from zsl import compose, run
from zsl.config import conf_dir, options
from zsl.errors import UserError
from zsl.experiment.loading import load_dataset
from zsl.inference import Inference, rules, seen_statistics

SMALL = ["dataset=synthetic", "tracking=none"]
MODELS = {"coupled": lambda: zsl.CoupledDictionaries(n_iter=2), "ridge": zsl.models.Ridge, "sync": zsl.models.SynC}


@pytest.fixture(scope="module")
def data():
    return load_dataset("synthetic")


@pytest.fixture(scope="module")
def fitted(data):
    """Models by name with their statistics of the seen classes, each fitted once."""
    found = {}
    for name, make in MODELS.items():
        model = make().fit(data.X, data.y, data.Z, data.Z_unseen)
        found[name] = model, seen_statistics(model, data.X, data.y, data.Z)
    return found


@pytest.mark.parametrize(
    ("model", "base", "sentence"),
    [
        (zsl.models.Ridge(), "bidirectonal", r"inference.mixture.base=bidirectonal does not exist .did you mean bidir"),
        (zsl.models.ALE(), "nearest", r"inference.mixture.base=nearest needs predicted attributes.*base=own"),
    ],
)
def test_the_base_of_a_rule_is_checked_before_a_fit(model, base, sentence):
    with pytest.raises(UserError, match=sentence):
        Inference(labels="mixture", settings={"mixture": {"base": base}}).check(model)
    Inference(labels="mixture", settings={"mixture": {"base": "own"}}).check(model)


def predict(fitted, data, inference, model="coupled", rows=slice(None)):
    return inference.predict(fitted[model][0], data.X_unseen[rows], data.Z_unseen, fitted[model][1])


@pytest.mark.parametrize(
    ("model", "inference", "names"),
    [
        ("coupled", Inference(), ["aag", "aaw", "taaw"]),
        ("ridge", Inference(), ["own"]),
        ("ridge", Inference("agnostic"), ["aag"]),
        ("coupled", Inference.preset("inductive"), ["aag", "agnostic_code_eszsl"]),
        ("coupled", Inference("own", "inductive"), ["own", "own_bidirectional"]),
        ("ridge", Inference.preset("inductive"), ["aag", "agnostic_bidirectional"]),
        ("coupled", Inference.preset("transductive"), ["aag", "agnostic_code_eszsl", "agnostic_naming"]),
        ("coupled", Inference("auto", "mixture", settings={"mixture": {"base": "cosine"}}),
         ["aag", "agnostic_cosine", "agnostic_mixture"]),
        ("ridge", Inference.preset("transductive"), ["aag", "agnostic_bidirectional", "agnostic_naming"]),
        ("sync", Inference.preset("transductive"), ["own", "own_bidirectional", "own_naming"]),
        ("sync", Inference("own", "csls", settings={"csls": {"base": "own"}}), ["own", "own_csls"]),
    ],
)  # fmt: skip
def test_stages_on_the_way(fitted, data, model, inference, names):
    prediction = predict(fitted, data, inference, model)
    assert [s.name for s in prediction.stages] == names
    assert [s.transductive for s in prediction.stages] == [
        n.endswith(("mixture", "naming", "csls", "taaw")) for n in names
    ]
    assert prediction.chosen is prediction.stages[-1]
    assert not prediction.inductive.chosen.transductive


@pytest.mark.parametrize("labels", list(rules.rules("labels")))
def test_every_label_rule_recognises_classes(fitted, data, labels):
    scores = predict(fitted, data, Inference("agnostic", labels)).scores
    assert (scores.argmax(axis=1) == data.y_unseen).mean() > 0.6  # chance is a fifth


@pytest.mark.parametrize("attributes", list(rules.rules("attributes")))
def test_every_attribute_rule_recognises_classes(fitted, data, attributes):
    scores = predict(fitted, data, Inference(attributes, "cosine")).scores
    assert (scores.argmax(axis=1) == data.y_unseen).mean() > 0.6


def test_scores_of_inductive_rules_do_not_depend_on_other_images(fitted, data):
    inference = Inference.preset("inductive")
    few, every = (predict(fitted, data, inference, rows=rows).scores for rows in (slice(3, 6), slice(None)))
    np.testing.assert_allclose(few, every[3:6], atol=1e-5)


def test_conf_has_the_settings_of_the_rules_and_their_defaults():
    from omegaconf import OmegaConf

    found = OmegaConf.to_container(OmegaConf.load(conf_dir() / "rules.yaml"))
    known = {**rules.rules("attributes"), **rules.rules("labels")}
    assert found == {name: rule.settings for name, rule in known.items() if rule.settings}


@pytest.mark.parametrize("name", options("inference"))
def test_presets_are_the_same_in_python_and_in_conf(name):
    from zsl.experiment.setup import checked

    setup = checked(compose([f"inference={name}", "model=coupled", "tracking=none"]))
    by_conf, by_name = setup.inference, Inference.preset(name)
    model = setup.classifier.model
    assert by_conf.record(model) == by_name.record(model)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["inference.labels=mixture", "inference.mixture.base=mixture"], "builds on mixture itself"),
        (
            ["inference.labels=mixture", "inference.mixture.base=nonsense"],
            "inference.mixture.base=nonsense does not exist",
        ),
        (["model=sync", "inference=own", "inference.labels=nearest"], "nearest needs predicted attributes"),
        (["model=ridge", "inference=aag", "inference.labels=code_eszsl"], "code_eszsl needs a model with dictionaries"),
        (["inference=inductive", "inference.fallback=true"], "inference.fallback=false"),
        (
            ["inference=transductive", "inference.labels=mixture", "inference.mixture.confident=2"],
            "inference.mixture.confident=2 is not accepted",
        ),
        (["+inference.mixtur.confident=0.5"], "inference.mixtur does not exist"),
        (["+inference.mixture.confidence=0.5"], "inference.mixture.confidence does not exist; it has: base, "),
        (["inference.mu=1"], "inference.mu is now inference.spread.mu"),
        (["inference.labels=os.getcwd"], "is outside zsl"),
    ],
)
def test_rules_that_make_no_sense_are_refused(overrides, message):
    with pytest.raises(UserError, match=message):
        run(compose([*SMALL, *overrides]))


def test_statistics_are_needed_by_some_rules_alone(fitted):
    model = fitted["coupled"][0]
    assert not Inference("aware", "spread").asks_for("statistics", model)
    assert Inference("agnostic", "mixture", settings={"mixture": {"base": "cosine"}}).asks_for("statistics", model)
    assert Inference("agnostic", "csls", settings={"csls": {"base": "visual"}}).asks_for("statistics", model)
    with pytest.raises(UserError, match="needs statistics of the seen classes"):
        Inference("agnostic", "visual").predict(model, np.eye(40), np.eye(20))


def test_a_transductive_model_is_refused_where_an_inductive_stage_must_come_first():
    from zsl.models import VSOP

    with pytest.raises(UserError, match=r"VSOP is transductive by itself; set inference\.fallback=false\.$"):
        Inference(labels="mixture", fallback=True).check(VSOP())
    Inference(labels="mixture").check(VSOP())


@pytest.mark.parametrize("rule", ["mixture", "spread"])
@pytest.mark.slow
def test_given_shares_are_those_of_the_unseen_classes_only(rule, tmp_path):
    shares = [0.3, 0.3, 0.2, 0.1, 0.1]
    inference = Inference("agnostic", rule, settings={rule: {"class_prior": shares}})
    loaded = zsl.load_dataset("synthetic", overrides=("feature.centre=false", "feature.l2=false"))
    table = dict(zip(loaded.class_names, loaded.attributes))
    y = np.array(loaded.class_names)[loaded.seen[loaded.y]]
    classifier = zsl.ZeroShotClassifier(zsl.models.Ridge(), inference=inference).fit(loaded.X, y, table)
    # A saved classifier can be read, although the shares fit no other number of classes.
    classifier.save(tmp_path / "model.skops")
    again = zsl.ZeroShotClassifier.load(tmp_path / "model.skops")
    np.testing.assert_array_equal(again.predict(loaded.X_unseen), classifier.predict(loaded.X_unseen))
    given = f"inference.{rule}.class_prior={shares}"
    base = ["dataset=synthetic", "model=ridge", "inference.attributes=agnostic", f"inference.labels={rule}", given]
    for more, why in (("tune=class_cv", "tune"), ("evaluation.generalized=true", "evaluation.generalized")):
        with pytest.raises(
            UserError, match=rf"{rule}\.class_prior has a share for each unseen class, and {why} predicts"
        ):
            run(compose([*base, more, "tracking=none"]))
    with pytest.raises(UserError, match=r"and evaluation\.calibrate predicts among other classes"):
        run(compose([*base, "evaluation.calibrate=true", "tracking=none"]))


def test_a_single_image_with_a_class_prior_takes_what_its_scores_say():
    from zsl.inference import spread
    from zsl.inference.mixture import mixture
    from zsl.inference.statistics import SeenStatistics

    seen = SeenStatistics(np.eye(3), np.eye(3), np.eye(3), concentration=10.0)
    for c in range(3):
        image = np.eye(3)[c : c + 1] + 0.1
        for prior in ("uniform", "em"):
            assert mixture(image, image, seen, class_prior=prior).argmax() == c
            assert spread(image, np.eye(3), class_prior=prior).argmax() == c


@pytest.mark.parametrize(("kind", "name"), [("labels", "nearest"), ("attributes", "agnostic"), ("labels", "own")])
def test_a_rule_of_ones_own_has_a_name_of_its_own(kind, name):
    # Two stages had one name, so the answer was not found among them, and settings were those of the other rule.
    def rule(model, X, Z_hat=None, Z_unseen=None): ...

    rule.__name__ = name
    model = zsl.models.Ridge().fit(np.eye(2), np.array([0, 1]), np.eye(2), np.eye(2))
    with pytest.raises(UserError, match=f"a function called {name}, as a rule of zsl is; give it another name"):
        Inference(**{"attributes": "agnostic", "labels": "nearest", kind: rule}).check(model)


def test_a_rule_of_zsl_given_as_a_function_is_the_rule_of_its_name(rng):
    X, Z = rng.random((8, 3)), rng.random((4, 3))
    model = zsl.models.Ridge().fit(X, np.arange(8) % 4, Z[np.arange(8) % 4], Z[:2])
    by_name = Inference("agnostic", "nearest").predict(model, X, Z[:2])
    found = Inference(zsl.inference.agnostic, zsl.inference.nearest).predict(model, X, Z[:2]).last(3)
    assert [stage.name for stage in found.stages] == [stage.name for stage in by_name.stages] == ["aag"]
    assert np.array_equal(found.scores, by_name.scores[-3:])
