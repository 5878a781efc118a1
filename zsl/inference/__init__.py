"""From images to attributes to classes. A new rule is a function, its export here, and one YAML file."""

from zsl.inference.attributes import Attributes, agnostic, aware
from zsl.inference.entropy import entropy, soft_assignment
from zsl.inference.labels import cosine, nearest
from zsl.inference.spreading import spread

# What inference.attributes and inference.labels may name; "own" stands for the model's native scores.
ATTRIBUTE_RULES = ("agnostic", "aware")
LABEL_RULES = ("nearest", "cosine", "spread")

__all__ = ["Attributes", "agnostic", "aware", "cosine", "entropy", "nearest", "soft_assignment", "spread"]
