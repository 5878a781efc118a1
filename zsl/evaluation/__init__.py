"""Metrics computed from scores: accuracy, the generalised setting, calibration of probabilities, and hubness."""

from zsl.evaluation.calibration import aurc, calibration_report, ece, fit_temperature, nll, probabilities
from zsl.evaluation.generalized import ausuc, best_offset, gzsl, seen_unseen_curve
from zsl.evaluation.hubness import attribute_shift, choices, hubness_report, hubness_skew
from zsl.evaluation.metrics import class_accuracy, evaluate, hit_at, hit_probability

__all__ = [
    "attribute_shift",
    "aurc",
    "ausuc",
    "best_offset",
    "calibration_report",
    "choices",
    "class_accuracy",
    "ece",
    "evaluate",
    "fit_temperature",
    "gzsl",
    "hit_at",
    "hit_probability",
    "hubness_report",
    "hubness_skew",
    "nll",
    "probabilities",
    "seen_unseen_curve",
]
