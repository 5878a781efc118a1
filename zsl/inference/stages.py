"""One prediction: the rules of an :class:`~zsl.inference.Inference`, each called once for one batch of images."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from zsl.checks import Array
from zsl.errors import UserError
from zsl.inference import rules
from zsl.inference.attributes import Attributes, agnostic
from zsl.inference.blocks import MOST_IMAGES, WHOLE, Scores, check_fits
from zsl.inference.prediction import Stage, rule_name, stage_name
from zsl.inference.rules import LABELLED, NATIVE, TRANSDUCTIVE, Rule
from zsl.inference.statistics import SeenStatistics
from zsl.sparse.problem import Codes

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

    def in_blocks(self, pair: Pair) -> Scores:
        """The scores (L, C) by a pair of rules, computed a block of images at a time as far as the rules allow it.

        Raises
        ------
        UserError
            For a rule that needs all scores at once where the machine has too little memory for them.
        """
        shape, (attributes, labels) = (len(self.X), len(self.Z)), pair
        transductive_model = TRANSDUCTIVE in getattr(self.model, "information", ())
        if labels == NATIVE and not transductive_model:
            return Scores(shape, lambda rows: np.asarray(self.model.scores(self.X[rows], self.Z)))
        rule = None if labels == NATIVE else rules.find("labels", labels)
        if rule is None or transductive_model or (shape[0] * shape[1] <= WHOLE and not self._by_itself(rule)):
            if shape[0] * shape[1] > WHOLE:
                check_fits(*shape, rule_name(labels))
            return self._whole(pair)
        base = None if rule.base is None else self.in_blocks((attributes, self.of.base(self.model, attributes, rule)))
        predicted = self._in_rows(attributes)
        setting = self.of.setting(rule)
        if self._by_itself(rule):

            def of_rows(rows: slice) -> Array:
                given = self._given(rule)
                given |= {"X": self.X[rows], "labelled": self.labelled[rows], "attributes": predicted(rows)}
                if given["attributes"] is not None:
                    given["Z_hat"] = given["attributes"].Z_hat
                if base is not None:
                    given["base_scores"] = base.rows(rows)
                return np.asarray(rule(given, setting))

            return Scores(shape, of_rows)
        if not rule.in_blocks:
            check_fits(*shape, rule.name)
            return self._whole(pair)
        return Scores.of(rule({**self._given(rule), "base_scores": base}, setting))

    def _whole(self, pair: Pair) -> Scores:
        self.X = np.asarray(self.X)
        return Scores.of(self.scores(pair))

    def _by_itself(self, rule: Rule) -> bool:
        """Whether a label rule scores each image by itself."""
        return TRANSDUCTIVE not in rule.information(self.of.setting(rule))

    def _in_rows(self, name: Any) -> Callable[[slice], Attributes | None]:
        """The attributes that a rule predicts, for a slice of the images; the codes of many images are kept sparse."""
        if name == NATIVE:
            return lambda rows: None
        n = len(self.X)
        rule = rules.find("attributes", name)
        if n <= MOST_IMAGES or TRANSDUCTIVE in rule.information(self.of.setting(rule)):
            self.X = np.asarray(self.X)
            whole = self.attributes(name)
            assert whole is not None
            return whole.rows
        Z_hat, codes = [], []
        for i in range(0, n, MOST_IMAGES):
            rows = slice(i, i + MOST_IMAGES)
            part = Stages(self.of, self.model, self.X[rows], self.Z, self.statistics, self.labelled[rows])
            found = part.attributes(name)
            assert found is not None
            Z_hat.append(found.Z_hat)
            if found.codes is not None:
                codes.append(found.codes._replace(A=sp.csr_array(found.codes.A)))
        if not codes:
            return Attributes(np.vstack(Z_hat)).rows
        A, gap = sp.vstack([c.A for c in codes], "csr"), np.concatenate([c.gap for c in codes])
        n_iter = max(c.n_iter for c in codes)
        Z_all = np.vstack(Z_hat)
        return lambda rows: Attributes(Z_all[rows], Codes(A[rows].toarray(), gap[rows], n_iter))

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
