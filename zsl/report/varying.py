"""Which settings tell runs apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from zsl.report.records import text_of


def varying(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """The keys that tell settings apart: those that all have and that vary, and those that vary within one model.

    A key that only differs because each model has its own settings is left out, and so is a ``_target_`` beside a
    ``name`` that says as much.
    """
    keys = list(dict.fromkeys(k for s in settings for k in s))
    models: dict[str, list[Mapping[str, Any]]] = {}
    for s in settings:
        models.setdefault(str(s.get("model.name")), []).append(s)

    def varies(key: str, among: Sequence[Mapping[str, Any]]) -> bool:
        return len({text_of(s.get(key)) for s in among}) > 1

    def tells(key: str) -> bool:
        if key.endswith("._target_") and key.removesuffix("_target_") + "name" in keys:
            return False
        shared = all(key in s for s in settings) and (not key.startswith("model.") or key == "model.name")
        return (shared and varies(key, settings)) or any(varies(key, mine) for mine in models.values())

    return [key for key in keys if tells(key)]
