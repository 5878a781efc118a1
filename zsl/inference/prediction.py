"""What inference returns: the scores of test images by every pair of rules on the way, and which are the answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from zsl.checks import Array
from zsl.inference.rules import NATIVE, TRANSDUCTIVE

# The paper's names for pairs of rules; any other pair is called by the names of both rules.
_PAPER_NAMES = {("agnostic", "nearest"): "aag", ("aware", "nearest"): "aaw", ("aware", "spread"): "taaw"}

_MEANINGS = {
    "aag": "AAg: attributes from the image, nearest class",
    "aaw": "AAw: pulled towards one class, nearest class",
    "taaw": "TAAw: AAw, then labels spread over test images",
    NATIVE: "the model's own scores",
}


@dataclass
class Stage:
    """Scores of test images by one pair of rules."""

    name: str
    scores: Array
    """(L, M) larger is likelier"""
    Z_hat: Array | None
    """(L, q) the predicted attributes; None for a model's native scores"""
    information: tuple[str, ...]
    """What the scores use beyond the features of one image"""
    gap: float = 0.0
    """The largest duality gap of the test images' codes; 0 where there are no codes with a certificate"""
    pair: tuple[str, str] = ("", "")
    """The names of the attribute rule and of the label rule"""
    calibrated: bool = False
    """Whether the scores are log-probabilities that held-out seen classes have calibrated"""

    @property
    def meaning(self) -> str:
        """What the stage does, in words."""
        attributes, labels = self.pair
        return _MEANINGS.get(self.name, f"{attributes} attributes, label rule {labels}")

    def last(self, n: int) -> Stage:
        """The same for the last n images alone."""
        if n == len(self.scores):
            return self
        return replace(self, scores=self.scores[-n:], Z_hat=None if self.Z_hat is None else self.Z_hat[-n:])

    @property
    def transductive(self) -> bool:
        """Whether the score of an image depends on other test images."""
        return TRANSDUCTIVE in self.information


@dataclass
class Prediction:
    """The stages that an inference passed through, and the stage that is the answer."""

    stages: list[Stage]
    chosen: Stage
    """The stage whose scores are the answer: the last one, unless a transductive rule is not to be used"""

    @property
    def scores(self) -> Array:
        """(L, M) scores of the chosen stage."""
        return self.chosen.scores

    @property
    def inductive(self) -> Prediction:
        """The same stages with the last inductive one as the answer."""
        return replace(self, chosen=[stage for stage in self.stages if not stage.transductive][-1])

    def last(self, n: int) -> Prediction:
        """The same stages for the last n images alone."""
        stages = [stage.last(n) for stage in self.stages]
        return replace(self, stages=stages, chosen=stages[self.stages.index(self.chosen)])

    def stage(self, name: str) -> Stage:
        """The stage of this name."""
        return next(stage for stage in self.stages if stage.name == name)


def rule_name(rule: Any) -> str:
    """The name of a rule that is given by name or as a function."""
    return rule if isinstance(rule, str) else str(rule.__name__)


def stage_name(attributes: Any, labels: Any) -> str:
    """What a pair of rules is called: the paper's name where it has one, else the names of both.

    Examples
    --------
    >>> stage_name("aware", "spread"), stage_name("agnostic", "cosine")
    ('taaw', 'agnostic_cosine')
    """
    pair = (rule_name(attributes), rule_name(labels))
    return NATIVE if pair == (NATIVE, NATIVE) else _PAPER_NAMES.get(pair, "_".join(pair).replace(".", "_"))
