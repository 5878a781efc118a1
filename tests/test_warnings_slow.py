"""False alarms: the warnings of every model and every rule on sound data, counted."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from conftest import IN_ONE_SPACE
from zsl import UserError, compose
from zsl.config import options, without_package
from zsl.data.signs import of_data
from zsl.experiment.loading import load
from zsl.experiment.setup import checked
from zsl.experiment.signs import of_answers, of_fit
from zsl.inference import Inference
from zsl.inference.rules import NATIVE, rules
from zsl.inference.statistics import seen_statistics
from zsl.models import ESZSL

XLSA = ["dataset=xlsa17", "cache_dir=off"]
SOUND = {
    "digits": [],
    "synthetic": ["dataset=synthetic"],
    "cifar_awa": [*XLSA, "feature.name=lite0_pca128", "split=proposed"],
    "letters": [*XLSA, "feature.name=feat", "split=proposed"],
    "vowel": [*XLSA, "feature.name=feat", "split=proposed"],
}
UNSEEN = {"digits": 3, "synthetic": 5, "cifar_awa": 5, "letters": 6, "vowel": 3}
# What may be said of sound data, since it is so: a weak method does leave classes out, and is at chance.
TRUE = re.compile(
    r"no image is put in|all \d+ images are put in one class|acc_class is .*(no better than|below) guessing"
)


def overrides(name, request):
    if name in ("digits", "synthetic"):
        return SOUND[name]
    return [*SOUND[name], f"dataset.root={request.getfixturevalue('shared') / name}"]


def pairs(model):
    """Every pair of rules that goes with the model."""
    for attributes in (*rules("attributes"), NATIVE):
        for labels in (*rules("labels"), NATIVE):
            inference = Inference(attributes, labels)
            try:
                inference.check(model)
            except UserError:
                continue
            yield inference


@pytest.mark.long
@pytest.mark.parametrize("name", SOUND)
def test_every_model_and_rule_on_sound_data(name, request):
    counts, false = Counter(), []
    for option in sorted({*options("model")} - {*without_package("model"), *IN_ONE_SPACE}):
        setup = checked(compose([*overrides(name, request), f"model={option}", "tracking=none"]))
        data = load(setup)
        fitted = setup.classifier.fit_data(data)
        model, X = fitted.model_, fitted.preprocess_.transform(data.X_unseen)
        Z = fitted.semantics_.transform(data.Z_unseen)
        known = fitted.semantics_.transform(data.Z)
        statistics = seen_statistics(model, fitted.preprocess_.transform(data.X), data.y, known)
        for inference in pairs(model):
            try:
                prediction = inference.predict(model, X, Z, statistics)
            except UserError:  # a rule that needs dictionaries
                continue
            counts["runs"] += 1
            found = of_answers(prediction, data.y_unseen, data.unseen_names) + of_fit(fitted, prediction, data)
            counts["runs that warn"] += bool(found)
            for sentence in found:
                true = TRUE.search(sentence)
                counts["true: " + true[0][:22] if true else "false"] += 1
                print(f"  {option} {inference.attributes} {inference.labels}: {sentence}")
                false += [] if true else [(option, inference, sentence)]
    print(f"{name}: {dict(counts)}")
    assert not false


@pytest.mark.long
@pytest.mark.parametrize("name", SOUND)
def test_data_of_thirty_splits(name, request):
    for seed in range(30):
        drawn = ["split=random", f"split.seed={seed}", f"split.n_unseen={UNSEEN[name]}"]
        setup = checked(compose([*overrides(name, request), *drawn, "tracking=none"]))
        data = load(setup)
        fitted = setup.classifier.set_params(model=ESZSL()).fit_data(data)
        assert of_data(data, fitted.preprocess_, fitted.semantics_) == []
