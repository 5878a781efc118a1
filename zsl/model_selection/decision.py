"""Decides on validation classes whether to use a transductive rule, and fits the calibration there.

Seen classes are held out at random, at least three at a time, and the classifier is fitted to the others.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import clone

from zsl.checks import Array
from zsl.data.dataset import ZeroShotData
from zsl.errors import UserError, raise_if_interrupted
from zsl.evaluation import evaluate
from zsl.evaluation.calibration import fit_temperature, nll
from zsl.evaluation.generalized import best_offset
from zsl.inference import Inference
from zsl.inference.prediction import Prediction
from zsl.model_selection.holdout import held_out, random_sets
from zsl.progress import Bar

log = logging.getLogger(__name__)

# Of each class that stays seen, this share of the images is put aside as test images for the generalised setting.
_TEST_SHARE = 0.2
# Scores say nothing from this share on of log C, the negative log-likelihood of equal probabilities.
_UNINFORMATIVE = 0.98


@dataclass
class ValidationSplit:
    """The predictions for one set of held-out classes."""

    prediction: Prediction
    """For images of held-out classes, among the held-out classes"""
    y: Array
    """(L,) labels of these images, 0..k-1"""
    n_seen: int
    """Number of classes that stayed seen"""
    generalized: Prediction | None = None
    """For images of all classes among all classes: columns are the classes that stayed seen, then the held-out ones"""
    y_generalized: Array | None = None
    """(L',) labels for these columns"""


@dataclass
class Decision:
    """What was decided on validation classes; what was not asked for has its default."""

    use_transductive: bool | None = None
    """Whether the transductive rule is used; otherwise the inductive stage before it is the answer"""
    reason: str = ""
    gains: list[float] = field(default_factory=list)
    """Accuracy of the transductive rule less that of the inductive one, by validation split"""
    gain: float = 0.0
    """Mean of the gains"""
    standard_error: float = 0.0
    """Of the mean gain. Splits share classes, so the true standard error is somewhat larger"""
    temperature: float | None = None
    """The temperature at which scores become probabilities"""
    offsets: dict[str, float] = field(default_factory=dict)
    """By stage: what is added to the scores of unseen classes in the generalised setting, in units of :func:`spread`"""

    def apply(self, prediction: Prediction) -> Prediction:
        """The prediction with the inductive stage as its answer, where the transductive rule is not to be used."""
        return prediction.inductive if self.use_transductive is False else prediction


def decide(
    classifier: Any,
    data: ZeroShotData,
    *,
    fallback: bool,
    calibrate: bool,
    generalized: bool = False,
    n_splits: int = 6,
    seed: int = 0,
) -> Decision:
    """Decide on validation classes whether to use a transductive rule, and calibrate.

    Parameters
    ----------
    classifier : ZeroShotClassifier
        A clone of the classifier is fitted for each validation split.
    data : ZeroShotData
        Before pre-processing, which every split fits anew.
    fallback : bool
        Decide whether the transductive rule is used.
    calibrate : bool
        Choose the temperature and, with ``generalized``, the offsets where the data has test images of seen classes.

    Returns
    -------
    Decision
    """
    if not fallback and not calibrate:
        return Decision()
    rules = getattr(classifier, "inference_", classifier.inference)
    if isinstance(rules, Inference):
        rules.check_no_given_shares("inference.fallback" if fallback else "evaluation.calibrate")
    check_splits(fallback, n_splits)
    everything = calibrate and generalized and len(data.y_test_seen) > 0
    splits = validate(classifier, data, n_splits=n_splits, seed=seed, generalized=everything)
    if calibrate and not splits:
        raise UserError(
            f"calibrate needs five seen classes or more, of which three are held out, and there are {len(data.seen)}; "
            "set it to false."
        )
    decision = choose_rule([s.prediction for s in splits], [s.y for s in splits]) if fallback else Decision()
    if calibrate:
        name = decision.apply(splits[0].prediction).chosen.name
        decision.temperature = common_temperature([(s.prediction.stage(name).scores, s.y) for s in splits])
        if splits[0].generalized is not None:
            for stage in splits[0].prediction.stages:
                # The median, because a few splits with odd classes would move the mean.
                decision.offsets[stage.name] = float(np.median([_offset(s, stage.name) for s in splits]))
    return decision


def check_splits(fallback: bool, n_splits: int) -> None:
    """Refuse one validation split where the choice of a rule needs a standard error."""
    if fallback and n_splits < 2:
        raise UserError(
            "inference.fallback=true needs two validation splits or more, because one has no standard error; raise "
            "evaluation.n_validation_splits."
        )


def validate(
    classifier: Any, data: ZeroShotData, *, n_splits: int, seed: int, generalized: bool = False
) -> list[ValidationSplit]:
    """Fit and predict on every validation split.

    ``generalized`` puts images of the classes that stay seen aside as test images, and predicts among all classes too.
    """
    sets = random_sets(len(data.seen), len(data.unseen), n_splits, seed)
    found = []
    with Bar("validation splits of the seen classes", len(sets)) as bar:
        for i, part in enumerate(held_out(data, sets)):
            raise_if_interrupted()
            if generalized:
                part = part.put_aside(_TEST_SHARE, seed + i)
            fitted = clone(classifier).fit_data(part)
            split = ValidationSplit(fitted.predict_stages(part.X_unseen), part.y_unseen, len(part.seen))
            if generalized:
                split.generalized, split.y_generalized = predict_generalized(fitted, part)
            found.append(split)
            bar.step()
    return found


def predict_generalized(fitted: Any, data: ZeroShotData) -> tuple[Prediction, Array]:
    """Predictions for test images of seen and unseen classes among all classes (seen first), and their labels."""
    known = data.y_unseen >= 0
    X = np.vstack([data.X_test_seen, data.X_unseen[known]])
    y = np.concatenate([data.y_test_seen, data.y_unseen[known] + len(data.seen)])
    return fitted.predict_stages(X, "all"), y


def choose_rule(predictions: list[Prediction], labels: list[Array]) -> Decision:
    """Use the transductive rule if it gains more than one standard error on validation classes."""
    gains = [
        evaluate(prediction.scores, y)["acc_class"] - evaluate(prediction.inductive.scores, y)["acc_class"]
        for prediction, y in zip(predictions, labels)
    ]
    if len(gains) < 2:
        return Decision(False, "there are too few seen classes to hold three of them out twice", gains)
    gain, error = float(np.mean(gains)), float(np.std(gains, ddof=1) / np.sqrt(len(gains)))
    used = gain > error
    reason = f"gain {gain:.3f} on validation classes, standard error {error:.3f}"
    log.info("the transductive rule is %s: %s", "used" if used else "not used", reason)
    return Decision(used, reason, gains, gain, error)


def common_temperature(found: list[tuple[Array, Array]]) -> float:
    """The temperature with the least mean negative log-likelihood over the images of all splits.

    A single temperature is fitted for all splits: fitted for each split it has no bound where a split is classified
    perfectly or at chance. A warning says so where validation classes are hardly told apart.

    Parameters
    ----------
    found : list of (scores (L, C), labels (L,))
    """
    scores, y = np.vstack([scores for scores, _ in found]), np.concatenate([y for _, y in found])
    temperature = fit_temperature(scores, y)
    if nll(scores, y, temperature) > _UNINFORMATIVE * np.log(scores.shape[1]):
        log.warning(
            "the scores hardly tell the validation classes apart, so calibrated probabilities are near equal "
            "(temperature %.3g); the true probabilities may be more certain if the test classes are easier.",
            temperature,
        )
    return temperature


def spread(scores: Array) -> float:
    """Standard deviation of the scores (L, C) over classes, averaged over images; 1 where all scores are equal.

    The calibrated offset is in this unit, since the spread depends on the number of classes in a fit. The offset uses
    no other number of the test batch, and no label.
    """
    return float(np.asarray(scores, dtype=np.float64).std(axis=1).mean()) or 1.0


def _offset(split: ValidationSplit, name: str) -> float:
    assert split.generalized is not None
    assert split.y_generalized is not None
    scores = split.generalized.stage(name).scores
    return best_offset(scores, split.y_generalized, np.arange(scores.shape[1]) < split.n_seen) / spread(scores)
