"""Zero-shot classifiers: the coupled dictionaries of the paper and the methods it is compared with."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zsl.models.base import Model
    from zsl.models.coupled import CoupledDictionaries
    from zsl.models.eszsl import ESZSL
    from zsl.models.kernel_eszsl import KernelESZSL
    from zsl.models.ridge import Ridge
    from zsl.models.ridge_reverse import RidgeReverse
    from zsl.models.sae import SAE

# Imported when first used: one method does not pay for the others.
_WHERE = {
    "CoupledDictionaries": "coupled",
    "ESZSL": "eszsl",
    "KernelESZSL": "kernel_eszsl",
    "Model": "base",
    "Ridge": "ridge",
    "RidgeReverse": "ridge_reverse",
    "SAE": "sae",
}

__all__ = [
    "ESZSL",
    "SAE",
    "CoupledDictionaries",
    "KernelESZSL",
    "Model",
    "Ridge",
    "RidgeReverse",
]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(f"zsl.models.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'zsl.models' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
