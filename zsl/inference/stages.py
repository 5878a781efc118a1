"""One prediction: the rules of an :class:`~zsl.inference.Inference`, each called once for one batch of images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from zsl.checks import Array
from zsl.errors import UserError
from zsl.inference import rules
from zsl.inference.attributes import Attributes, agnostic
from zsl.inference.prediction import Stage, rule_name, stage_name
from zsl.inference.rules import LABELLED, NATIVE, Rule
from zsl.inference.statistics import SeenStatistics

if TYPE_CHECKING:
    from zsl.inference.inference import Inference

Pair = tuple[Any, Any]
"""An attribute rule and a label rule, by name or as functions."""


def used_by(of: Inference, model: Any, pair: Pair) -> tuple[str, ...]:
    """What a model and the rules behind a pair use beyond the features of one image."""
    used = list(getattr(model, "information", ()))
    for rule in of.chain(model, pair):
        used += rule.information(of.setting(rule))
    return tuple(dict.fromkeys(used))


class Stages:
    """The stages of one prediction; every rule is called at most once, however many stages build on it."""

    def __init__(
        self, of: Inference, model: Any, X: Array, Z: Array, statistics: SeenStatistics | None, labelled: Array
    ) -> None:
        self.of, self.model, self.X, self.Z, self.statistics, self.labelled = of, model, X, Z, statistics, labelled
        self._attributes: dict[Any, Attributes | None] = {NATIVE: None}
        self._scores: dict[Pair, Array] = {}

    def stage(self, pair: Pair) -> Stage:
        """The scores by a pair of rules, with what they use and certify."""
        predicted = self.attributes(pair[0])
        codes = predicted.codes if predicted else None
        # Aware codes have no certificate (NaN); the agnostic codes that they start from have one, and are a stage too.
        gap = 0.0 if codes is None or np.isnan(codes.gap).any() else float(codes.gap.max(initial=0))
        return Stage(
            stage_name(*pair),
            self.scores(pair),
            predicted.Z_hat if predicted else None,
            self.information(pair),
            gap,
            (rule_name(pair[0]), rule_name(pair[1])),
            pair[1] != NATIVE and rules.find("labels", pair[1]).calibrated,
        )

    def information(self, pair: Pair) -> tuple[str, ...]:
        """What the scores of a pair of rules use beyond the features of one image, with the number of given labels."""
        n = int((self.labelled >= 0).sum()) if self.of.asks_for("labelled", self.model, pair) else 0
        return (*used_by(self.of, self.model, pair), *([f"{LABELLED}: {n}"] if n else ()))

    def attributes(self, name: Any) -> Attributes | None:
        """The attributes that a rule predicts; None for the model's native scores."""
        if name not in self._attributes:
            if name == "agnostic":
                self._attributes[name] = agnostic(self.model, self.X)
            else:
                rule = rules.find("attributes", name)
                given = {**self._given(rule), "start": self.attributes("agnostic")}
                self._attributes[name] = rule(given, self.of.setting(rule))
        return self._attributes[name]

    def scores(self, pair: Pair) -> Array:
        """The scores (L, C) by a pair of rules, or of the model itself."""
        if pair not in self._scores:
            attributes, labels = pair
            if labels == NATIVE:
                found = self.model.scores(self.X, self.Z)
            else:
                rule = rules.find("labels", labels)
                given = self._given(rule)
                predicted = self.attributes(attributes)
                given["attributes"] = predicted
                if predicted is not None:
                    given["Z_hat"] = predicted.Z_hat
                if rule.base is not None:
                    given["base_scores"] = self.scores((attributes, self.of.base(self.model, attributes, rule)))
                found = rule(given, self.of.setting(rule))
            self._scores[pair] = np.asarray(found)
        return self._scores[pair]

    def _given(self, rule: Rule) -> dict[str, Any]:
        given: dict[str, Any] = {"model": self.model, "X": self.X, "Z_unseen": self.Z, "labelled": self.labelled}
        if "statistics" in rule.asks_for:
            if self.statistics is None:
                raise UserError(
                    f"the inference rule {rule.name} needs statistics of the seen classes, which this classifier was "
                    "fitted without; fit it again with this rule."
                )
            given |= {"statistics": self.statistics, "reliability": self.statistics.reliability}
        return given
