"""From images to attributes to classes: the rules, and :class:`Inference`, which runs the rules that a setting names.

A new rule is a function with a decorator of :mod:`zsl.inference.rules`, in a module of this package or of your own.
"""

from zsl.inference.asking import asked
from zsl.inference.attributes import Attributes, agnostic, aware
from zsl.inference.entropy import entropy, soft_assignment
from zsl.inference.feature_space import bidirectional, code_eszsl, visual
from zsl.inference.hubs import csls, inverted_softmax
from zsl.inference.inference import Inference
from zsl.inference.labels import cosine, dot, nearest
from zsl.inference.mixture import mixture, spread_features
from zsl.inference.prediction import Prediction, Stage
from zsl.inference.rules import attribute_rule, label_rule
from zsl.inference.self_training import self_trained
from zsl.inference.spreading import SpreadReport, spread, spread_report
from zsl.inference.statistics import SeenStatistics, seen_statistics

__all__ = [
    "Attributes",
    "Inference",
    "Prediction",
    "SeenStatistics",
    "SpreadReport",
    "Stage",
    "agnostic",
    "asked",
    "attribute_rule",
    "aware",
    "bidirectional",
    "code_eszsl",
    "cosine",
    "csls",
    "dot",
    "entropy",
    "inverted_softmax",
    "label_rule",
    "mixture",
    "nearest",
    "seen_statistics",
    "self_trained",
    "soft_assignment",
    "spread",
    "spread_features",
    "spread_report",
    "visual",
]
