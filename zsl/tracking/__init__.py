"""The tracking store (MLflow): nothing but this package and the served model imports MLflow."""

from zsl.tracking.tracker import MLflowTracker

__all__ = ["MLflowTracker"]
