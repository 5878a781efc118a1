"""Zero-shot classifiers: the coupled dictionaries of the paper and the methods it is compared with."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zsl.models.base import Model
    from zsl.models.conse import ConSE
    from zsl.models.costa import COSTA
    from zsl.models.coupled import CoupledDictionaries
    from zsl.models.dap import DAP
    from zsl.models.eszsl import ESZSL
    from zsl.models.iap import IAP
    from zsl.models.kernel_eszsl import KernelESZSL
    from zsl.models.ridge import Ridge
    from zsl.models.ridge_reverse import RidgeReverse
    from zsl.models.sae import SAE
    from zsl.models.sync import SynC

# Imported when first used: one method does not pay for the others.
_WHERE = {
    "COSTA": "costa",
    "ConSE": "conse",
    "CoupledDictionaries": "coupled",
    "DAP": "dap",
    "ESZSL": "eszsl",
    "IAP": "iap",
    "KernelESZSL": "kernel_eszsl",
    "Model": "base",
    "Ridge": "ridge",
    "RidgeReverse": "ridge_reverse",
    "SAE": "sae",
    "SynC": "sync",
}

__all__ = [
    "COSTA",
    "DAP",
    "ESZSL",
    "IAP",
    "SAE",
    "ConSE",
    "CoupledDictionaries",
    "KernelESZSL",
    "Model",
    "Ridge",
    "RidgeReverse",
    "SynC",
]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(f"zsl.models.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'zsl.models' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
