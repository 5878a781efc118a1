"""Rules that build on rules, what they declare, and the gate."""

import numpy as np
import pytest

import zsl
from zsl import compose, run
from zsl.errors import UserError
from zsl.experiment.decision import draws_of, gate, standard_error, validate
from zsl.experiment.loading import read_data, transform_data
from zsl.experiment.run import resolve
from zsl.inference import rules
from zsl.inference.prediction import TRANSDUCTIVE, infer, needs_seen
from zsl.inference.statistics import seen_classes

SMALL = ["dataset=synthetic", "tracking=none"]


def stages_of(*overrides):
    plain = resolve(compose([*SMALL, *overrides]))
    data = transform_data(plain, read_data(plain))
    from zsl.config import build

    model = build(plain["model"], "model").fit(data.X, data.y, data.Z, data.Z_unseen)
    return infer(plain, model, data.X_unseen, data.Z_unseen, lambda: seen_classes(model, data.X, data.y, data.Z))


@pytest.mark.parametrize(
    ("overrides", "names"),
    [
        (["inference=inductive"], ["aag", "agnostic_bidirectional"]),
        (["inference=transductive"], ["aag", "agnostic_bidirectional", "agnostic_mixture"]),
        (["inference=transductive", "inference.anchors=cosine"], ["aag", "agnostic_cosine", "agnostic_mixture"]),
        (["model=ridge", "inference=transductive"], ["aag", "agnostic_bidirectional", "agnostic_mixture"]),
        (["model=sync", "inference=transductive"], ["own", "own_bidirectional", "own_mixture"]),
        (["model=sync", "inference=own", "inference.labels=csls", "inference.anchors=own"], ["own", "own_csls"]),
    ],
)
def test_stages_on_the_way(overrides, names):
    stages = stages_of(*overrides)
    assert [s.name for s in stages] == names
    assert [s.transductive for s in stages] == [n.endswith(("mixture", "csls")) for n in names]


BEYOND = ["dot", "code_eszsl", "visual", "bidirectional", "csls", "inverted_softmax", "mixture", "spread_features"]


@pytest.mark.parametrize("labels", BEYOND)
def test_rules_beyond_the_paper_recognise_classes(labels):
    scores = stages_of(f"inference.labels={labels}", "inference.attributes=agnostic")[-1].scores
    plain = resolve(compose(SMALL))
    y = transform_data(plain, read_data(plain)).y_unseen
    assert (scores.argmax(axis=1) == y).mean() > 0.6  # chance is a fifth


def test_scores_of_inductive_rules_do_not_depend_on_other_images():
    plain = resolve(compose([*SMALL, "inference=inductive"]))
    data = transform_data(plain, read_data(plain))
    model = zsl.CoupledDictionaries(n_iter=2).fit(data.X, data.y, data.Z, data.Z_unseen)
    seen = seen_classes(model, data.X, data.y, data.Z)
    every = infer(plain, model, data.X_unseen, data.Z_unseen, lambda: seen)[-1].scores
    few = infer(plain, model, data.X_unseen[3:6], data.Z_unseen, lambda: seen)[-1].scores
    np.testing.assert_allclose(few, every[3:6], atol=1e-5)


def test_what_a_rule_declares_depends_on_its_settings():
    rule = rules.find("labels", "mixture")
    free, equal = (rules.information(rule, {"uniform_masses": m}) for m in (0.0, 0.5))
    assert TRANSDUCTIVE in free
    assert not any("class prior" in i for i in free)
    assert any("class prior" in i for i in equal)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["inference.labels=mixture", "inference.anchors=csls"], "inference.anchors=csls builds on other scores"),
        (["inference.labels=mixture", "inference.anchors=nonsense"], "inference.labels=nonsense does not exist"),
        (["model=sync", "inference=own", "inference.labels=nearest"], "nearest needs predicted attributes"),
        (["model=ridge", "inference=aag", "inference.labels=code_eszsl"], "code_eszsl needs a model with dictionaries"),
        (["inference=inductive", "inference.gate=true"], "this one is not; set inference.gate=false"),
        (["inference=transductive", "inference.confident=2"], "inference.confident"),
    ],
)
def test_pairs_that_make_no_sense_are_refused(overrides, message):
    with pytest.raises(UserError, match=message):
        run(compose([*SMALL, *overrides]))


def test_needs_seen():
    settings = dict(resolve(compose(SMALL))["inference"])
    assert not needs_seen({**settings, "labels": "spread"})
    assert needs_seen({**settings, "labels": "mixture", "anchors": "cosine"})
    assert needs_seen({**settings, "labels": "csls", "anchors": "visual"})


# --- the gate --------------------------------------------------------------------------------------------


def test_draws_hold_out_at_least_three_and_leave_two():
    assert draws_of(4, 2, 6, 0) == []
    assert {len(d) for d in draws_of(5, 2, 6, 0)} == {3}
    assert {len(d) for d in draws_of(40, 10, 6, 0)} == {10}
    draws = draws_of(20, 5, 6, 0)
    assert len({tuple(d) for d in draws}) == 6
    assert all(np.array_equal(a, b) for a, b in zip(draws, draws_of(20, 5, 6, 0)))


def test_standard_error():
    assert standard_error([0.1, 0.2, 0.3]) == pytest.approx(0.1 / np.sqrt(3))


def test_gate_opens_and_closes():
    plain = resolve(compose([*SMALL, "inference=transductive"]))
    raw = read_data(plain)
    draws = validate(plain, raw, transform_data, n_draws=3, seed=0)
    for gain, used in ((1.0, True), (-1.0, False), (0.0, False)):
        for draw in draws:
            good, bad = np.eye(len(draw.classes))[draw.y], -np.eye(len(draw.classes))[draw.y]
            draw.stages[-1].scores = good if gain > 0 else bad
            draw.stages[-2].scores = bad if gain > 0 else (good if gain < 0 else bad)
        assert gate(draws).used is used


def test_gate_without_enough_classes_keeps_the_inductive_rule():
    found = gate([])
    assert not found.used
    assert "too few" in found.reason


def test_closed_gate_reports_the_inductive_rule(monkeypatch):
    import zsl.experiment.run as experiment
    from zsl.experiment.decision import Gate

    monkeypatch.setattr(experiment, "gate", lambda draws: Gate(False, "by this test", []))
    result = run(compose([*SMALL, "inference=transductive", "evaluation.n_draws=2"]))
    assert result.stages[-1].name == "agnostic_bidirectional"
    assert result.metrics["acc_class"] == result.metrics["agnostic_bidirectional/acc_class"]
    assert TRANSDUCTIVE not in result.key["information_used"]
    assert result.key["gate"]["reason"] == "by this test"


def test_validation_never_sees_unseen_classes():
    plain = resolve(compose([*SMALL, "inference=transductive"]))
    raw = read_data(plain)
    import dataclasses

    poisoned = dataclasses.replace(
        raw,
        X_unseen=np.full_like(raw.X_unseen, 1e9),
        attributes=np.where(np.isin(np.arange(len(raw.attributes)), raw.unseen)[:, None], 1e9, raw.attributes),
    )
    a, b = (validate(plain, d, transform_data, n_draws=2, seed=0) for d in (raw, poisoned))
    for x, z in zip(a, b):
        np.testing.assert_array_equal(x.stages[-1].scores, z.stages[-1].scores)
