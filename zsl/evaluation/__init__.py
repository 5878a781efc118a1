"""What is measured."""

from zsl.evaluation.calibration import (
    aurc,
    calibration_report,
    ece,
    fit_temperature,
    nll,
    probabilities,
    risk_coverage,
)
from zsl.evaluation.generalized import ausuc, best_offset, gzsl, seen_unseen_curve
from zsl.evaluation.hubness import (
    antihub_share,
    attribute_shift,
    choices,
    entropy_histogram,
    first_choices,
    hubness_report,
    hubness_skew,
)
from zsl.evaluation.metrics import class_accuracy, evaluate, hit_at, hit_probability

__all__ = [
    "antihub_share",
    "attribute_shift",
    "aurc",
    "ausuc",
    "best_offset",
    "calibration_report",
    "choices",
    "class_accuracy",
    "ece",
    "entropy_histogram",
    "evaluate",
    "first_choices",
    "fit_temperature",
    "gzsl",
    "hit_at",
    "hit_probability",
    "hubness_report",
    "hubness_skew",
    "nll",
    "probabilities",
    "risk_coverage",
    "seen_unseen_curve",
]
