"""What is measured."""

from zsl.evaluation.hubness import first_choices, hubness_skew
from zsl.evaluation.metrics import class_accuracy, evaluate, hit_at, hit_probability

__all__ = ["class_accuracy", "evaluate", "first_choices", "hit_at", "hit_probability", "hubness_skew"]
