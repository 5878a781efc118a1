"""Seen classes held out as if they were unseen: folds for scikit-learn, and what is decided on such classes."""

from zsl.model_selection.class_fold import ClassFold

__all__ = ["ClassFold"]
