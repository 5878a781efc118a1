"""Choosing settings on validation classes: seen classes that are held out as if they were unseen."""

from zsl.model_selection.class_fold import ClassFold

__all__ = ["ClassFold"]
