"""The tracking store (MLflow): nothing but this and the served model imports it."""

from zsl.tracking.session import Session, belongs_to, finished_elsewhere

__all__ = ["Session", "belongs_to", "finished_elsewhere"]
