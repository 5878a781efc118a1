"""Zero-shot classifiers: the coupled dictionaries of the paper and the methods it is compared with."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zsl.models.ale import ALE
    from zsl.models.base import Model
    from zsl.models.bidilel import BiDiLEL
    from zsl.models.bucher_metric import BucherMetric
    from zsl.models.cdl_jiang import CDLJiang
    from zsl.models.cmt import CMT
    from zsl.models.conse import ConSE
    from zsl.models.costa import COSTA
    from zsl.models.coupled import CoupledDictionaries
    from zsl.models.dap import DAP
    from zsl.models.devise import DeViSE
    from zsl.models.eszsl import ESZSL
    from zsl.models.iap import IAP
    from zsl.models.kernel_eszsl import KernelESZSL
    from zsl.models.latem import LatEm
    from zsl.models.ridge import Ridge
    from zsl.models.ridge_reverse import RidgeReverse
    from zsl.models.sae import SAE
    from zsl.models.sje import SJE
    from zsl.models.sse import SSE
    from zsl.models.sync import SynC
    from zsl.models.synthesis_gaussian import SynthesisGaussian

# Imported when first used: one method does not pay for the others.
_WHERE = {
    "ALE": "ale",
    "BiDiLEL": "bidilel",
    "BucherMetric": "bucher_metric",
    "CDLJiang": "cdl_jiang",
    "CMT": "cmt",
    "COSTA": "costa",
    "ConSE": "conse",
    "CoupledDictionaries": "coupled",
    "DAP": "dap",
    "DeViSE": "devise",
    "ESZSL": "eszsl",
    "IAP": "iap",
    "KernelESZSL": "kernel_eszsl",
    "LatEm": "latem",
    "Model": "base",
    "Ridge": "ridge",
    "RidgeReverse": "ridge_reverse",
    "SAE": "sae",
    "SJE": "sje",
    "SSE": "sse",
    "SynC": "sync",
    "SynthesisGaussian": "synthesis_gaussian",
}

__all__ = [
    "ALE",
    "CMT",
    "COSTA",
    "DAP",
    "ESZSL",
    "IAP",
    "SAE",
    "SJE",
    "SSE",
    "BiDiLEL",
    "BucherMetric",
    "CDLJiang",
    "ConSE",
    "CoupledDictionaries",
    "DeViSE",
    "KernelESZSL",
    "LatEm",
    "Model",
    "Ridge",
    "RidgeReverse",
    "SynC",
    "SynthesisGaussian",
]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(f"zsl.models.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'zsl.models' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
