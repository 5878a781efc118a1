"""The tracking store (MLflow): nothing else imports it."""

from zsl.tracking.runs import log_run

__all__ = ["log_run"]
