"""From images to attributes to classes. A new rule is a function, its export here, and one YAML file."""

from zsl.inference.attributes import Attributes, agnostic, aware
from zsl.inference.combined import bidirectional, code_eszsl, csls, inverted_softmax, visual
from zsl.inference.entropy import entropy, soft_assignment
from zsl.inference.labels import cosine, dot, nearest
from zsl.inference.mixture import mixture, spread_features
from zsl.inference.self_training import self_trained
from zsl.inference.spreading import SpreadReport, spread, spread_report

# What inference.attributes and inference.labels may name; "own" stands for the model's native scores.
ATTRIBUTE_RULES = ("agnostic", "aware", "self_trained")
LABEL_RULES = (
    "nearest",
    "cosine",
    "dot",
    "code_eszsl",
    "visual",
    "bidirectional",
    "csls",
    "inverted_softmax",
    "spread",
    "spread_features",
    "mixture",
)

__all__ = [
    "Attributes",
    "SpreadReport",
    "agnostic",
    "aware",
    "bidirectional",
    "code_eszsl",
    "cosine",
    "csls",
    "dot",
    "entropy",
    "inverted_softmax",
    "mixture",
    "nearest",
    "self_trained",
    "soft_assignment",
    "spread",
    "spread_features",
    "spread_report",
    "visual",
]
