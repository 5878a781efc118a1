"""Zero-shot classifiers: the coupled dictionaries of the paper and the methods it is compared with."""

from zsl.models.base import Model
from zsl.models.coupled import CoupledDictionaries

__all__ = ["CoupledDictionaries", "Model"]
