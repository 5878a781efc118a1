"""From images to scores of classes by the rules that a configuration names, in stages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from zsl.checks import Array
from zsl.errors import UserError
from zsl.inference import Attributes, agnostic, rules
from zsl.inference.statistics import Seen
from zsl.models.base import Model

# The paper's names for pairs of rules; any other pair is called by both.
_STAGE_NAMES = {("agnostic", "nearest"): "aag", ("aware", "nearest"): "aaw", ("aware", "spread"): "taaw"}
# What a rule declares that looks at other test images than the one it scores.
TRANSDUCTIVE = "unlabelled test images"
# Settings that name the rule whose scores another rule builds on, by that rule's parameter.
_BASES = ("attribute_scores", "anchors")


@dataclass
class Stage:
    """Scores of one pair of rules."""

    name: str
    scores: Array
    """(L, M)"""
    Z_hat: Array | None
    """(L, q) predicted attributes; None for native scores."""
    information: tuple[str, ...]
    gap: float = 0.0
    """Largest duality gap of the test images' codes, where there are any with a certificate."""
    pair: tuple[str, str] = ("", "")
    """The rules for attributes and labels"""

    @property
    def transductive(self) -> bool:
        """Whether other test images than the one it is for went into a score."""
        return TRANSDUCTIVE in self.information


def infer(
    plain: Mapping[str, Any],
    model: Model,
    X: Array,
    Z: Array,
    seen: Callable[[], Seen] | None = None,
) -> list[Stage]:
    """Scores of images X (L, p) for classes Z (C, q) by the pair of rules asked for, and by those on the way to it.

    A pair (attributes, labels) passes through (agnostic, nearest), (attributes, nearest) and, where the label rule
    builds on the scores of another (``inference.anchors``), through that one. Where attributes are the model's
    ``own``, its native scores take the place of the nearest class.

    Parameters
    ----------
    plain : mapping
        The resolved configuration; ``inference`` and ``allow_targets`` are read.
    seen : callable, optional
        Gives the statistics of the seen classes; called only if a rule asks for them.
    """
    settings = plain["inference"]
    chain = _Chain(settings, tuple(plain.get("allow_targets", ())), model, X, Z, seen)
    attributes, labels = settings["attributes"], settings["labels"]
    if attributes == "auto":
        attributes = "agnostic" if hasattr(model, "predict_attributes") else "own"
    plainest = "own" if attributes == "own" else "nearest"
    first = "own" if attributes == "own" else "agnostic"
    pairs = [(first, plainest), (attributes, plainest)]
    if labels != "own" and "anchors" in rules.asks_for(rules.find("labels", labels, chain.allow)):
        pairs.append((attributes, chain.base("anchors", attributes)))
    pairs.append((attributes, "own" if attributes == "own" and labels == "own" else labels))
    return [chain.stage(*pair) for pair in dict.fromkeys(pairs)]


def stage_name(attributes: str, labels: str) -> str:
    """What a pair of rules is called: as in the paper, where it has a name for it."""
    pair = (attributes, labels)
    return "own" if pair == ("own", "own") else _STAGE_NAMES.get(pair, "_".join(pair))


class _Chain:
    """Rules called at most once each, with what they name."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        allow: tuple[str, ...],
        model: Model,
        X: Array,
        Z: Array,
        seen: Callable[[], Seen] | None,
    ) -> None:
        self.settings, self.allow, self.model, self.X, self.Z, self._seen = settings, allow, model, X, Z, seen
        self._attributes: dict[str, Attributes | None] = {"own": None}
        self._scores: dict[tuple[str, str], Array] = {}

    def stage(self, attributes: str, labels: str) -> Stage:
        predicted = self.attributes(attributes)
        codes = predicted.codes if predicted else None
        # Aware codes have no certificate (NaN); the agnostic ones they start from do, and are a stage too.
        gap = 0.0 if codes is None or np.isnan(codes.gap).any() else float(codes.gap.max(initial=0))
        pair = (attributes, labels)
        Z_hat = predicted.Z_hat if predicted else None
        return Stage(stage_name(*pair), np.asarray(self.scores(*pair)), Z_hat, self._information(*pair), gap, pair)

    def attributes(self, name: str) -> Attributes | None:
        if name not in self._attributes:
            if name == "agnostic":
                self._attributes[name] = agnostic(self.model, self.X)  # type: ignore[arg-type]
            else:
                rule = rules.find("attributes", name, self.allow)
                start = self.attributes("agnostic")
                self._attributes[name] = rules.call(rule, {**self._given(rule), "start": start}, self.settings)
        return self._attributes[name]

    def scores(self, attributes: str, labels: str) -> Array:
        if (attributes, labels) not in self._scores:
            if labels == "own":
                found = self.model.scores(self.X, self.Z)
            else:
                rule = rules.find("labels", labels, self.allow)
                found = rules.call(rule, self._label_inputs(rule, attributes), self.settings)
            self._scores[attributes, labels] = np.asarray(found)
        return self._scores[attributes, labels]

    def base(self, kind: str, attributes: str) -> str:
        """The rule that a setting names; ``auto``: ESZSL on codes if there are any, else the model's native scores."""
        name = self.settings[kind]
        if name != "auto":
            return name
        return "code_eszsl" if attributes != "own" and hasattr(self.model, "Dx_") else "own"

    def _label_inputs(self, rule: Callable[..., Any], attributes: str) -> dict[str, Any]:
        asked = rules.asks_for(rule)
        given = self._given(rule)
        predicted = self.attributes(attributes)
        if predicted is not None:
            given |= {"Z_hat": predicted.Z_hat, "attributes": predicted}
        elif "Z_hat" in asked:
            raise UserError(
                f"inference.labels={rule.__name__} needs predicted attributes, and inference.attributes=own gives "
                "none; use inference.attributes=agnostic with a model that predicts them."
            )
        elif "attributes" in asked:
            given["attributes"] = None
        for kind in _BASES:
            if kind in asked:
                given[kind] = self.scores(attributes, self._other(kind, attributes, rule))
        return given

    def _other(self, kind: str, attributes: str, rule: Callable[..., Any]) -> str:
        """The rule under a setting, refused where it would build on itself."""
        name = self.base(kind, attributes)
        if name != "own":
            asked = rules.asks_for(rules.find("labels", name, self.allow))
            # attribute_scores is the deepest level; anchors may build on it, and on nothing else.
            if "anchors" in asked or (kind == "attribute_scores" and "attribute_scores" in asked):
                raise UserError(
                    f"inference.{kind}={name} builds on other scores itself; take one that does not, such as cosine."
                )
        return name

    def _given(self, rule: Callable[..., Any]) -> dict[str, Any]:
        given: dict[str, Any] = {"model": self.model, "X": self.X, "Z_unseen": self.Z}
        if "seen" in rules.asks_for(rule):
            if self._seen is None:
                raise UserError(
                    f"inference rule {rule.__name__} needs statistics of the seen classes, which this model was stored "
                    "without; run it again."
                )
            given["seen"] = self._seen()
        return given

    def _information(self, attributes: str, labels: str) -> tuple[str, ...]:
        used = list(getattr(self.model, "information", ()))
        if attributes != "own":
            used += rules.information(rules.find("attributes", attributes, self.allow), self.settings)
        if labels != "own":
            rule = rules.find("labels", labels, self.allow)
            used += rules.information(rule, self.settings)
            for kind in _BASES:
                if kind in rules.asks_for(rule):
                    used += self._information(attributes, self._other(kind, attributes, rule))
        return tuple(dict.fromkeys(used))


def needs_seen(settings: Mapping[str, Any], allow: tuple[str, ...] = ()) -> bool:
    """Whether any rule that the settings name asks for statistics of the seen classes."""
    named = [("attributes", settings["attributes"]), ("labels", settings["labels"])]
    asked = rules.asks_for(rules.find("labels", settings["labels"], allow)) if settings["labels"] != "own" else ()
    named += [("labels", settings[kind]) for kind in _BASES if "anchors" in asked or kind in asked]
    for kind, name in named:
        if name == "auto":
            if kind == "labels":  # may stand for code_eszsl, which asks for them
                return True
        elif name not in ("own", "agnostic") and "seen" in rules.asks_for(rules.find(kind, name, allow)):
            return True
    return False


def without_transduction(stages: list[Stage]) -> list[Stage]:
    """The stages with the last inductive one put last: what stands where a gate keeps the transductive step out."""
    inductive = [s for s in stages if not s.transductive]
    last = inductive[-1]
    return [*(s for s in stages if s is not last), replace(last)]
