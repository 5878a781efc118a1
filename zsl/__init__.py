"""zsl: zero-shot image classification by coupled dictionary learning."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0.dev0"

if TYPE_CHECKING:
    from zsl.classifier import ZeroShotClassifier
    from zsl.config import compose
    from zsl.data.dataset import ZeroShotData
    from zsl.errors import UserError
    from zsl.experiment.loading import load_dataset
    from zsl.experiment.run import run
    from zsl.models import AveragedDictionaries, CoupledDictionaries

# Imported when first used, so that `import zsl` and the command's --help stay instant.
_WHERE = {
    "AveragedDictionaries": "zsl.models",
    "CoupledDictionaries": "zsl.models",
    "UserError": "zsl.errors",
    "ZeroShotClassifier": "zsl.classifier",
    "ZeroShotData": "zsl.data.dataset",
    "compose": "zsl.config",
    "load_dataset": "zsl.experiment.loading",
    "run": "zsl.experiment.run",
}
_MODULES = ("data", "evaluation", "inference", "model_selection", "models", "sparse")

__all__ = [
    "AveragedDictionaries",
    "CoupledDictionaries",
    "UserError",
    "ZeroShotClassifier",
    "ZeroShotData",
    "__version__",
    "compose",
    "load_dataset",
    "run",
]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(_WHERE[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"zsl.{name}")
    raise AttributeError(f"module 'zsl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES])
