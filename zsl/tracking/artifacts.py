"""What of a run folder becomes artifacts of its run in a store, and how folder and store share one copy of a file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from zsl.runs import status as records
from zsl.runs.files import FIGURES
from zsl.runs.model_file import MODEL

_LIGHT = frozenset({".json", ".yaml", ".csv", ".png", ".log"})
LEVELS = {"none": frozenset[str](), "light": _LIGHT, "all": _LIGHT | {".npz"}}
"""``tracking.artifacts`` -> suffixes of the files that become artifacts; with "all" the classifier becomes a model"""
# The status goes on changing, and the fitted classifier becomes a model instead.
_NEVER = {records.STATUS, MODEL}


def level(tracking: Mapping[str, Any]) -> str:
    """``tracking.artifacts`` as a record has it; those of earlier versions say whether the model is sent."""
    if "artifacts" not in tracking:
        return "all" if tracking["model"] else "light"
    known: str = tracking["artifacts"]
    if known not in LEVELS:
        raise ValueError(f"its artifacts={known!r} is none of {', '.join(LEVELS)}")
    return known


def log_files(client: Any, run: str, folder: Path, which: str) -> None:
    """Send the files of a run folder that belong to a level of :data:`LEVELS`."""
    place = client.get_run(run).info.artifact_uri
    for path in sorted([*folder.iterdir(), *folder.glob(f"{FIGURES}/*.png")]):
        wanted = path.suffix in LEVELS[which] and path.name not in _NEVER and not path.name.startswith(".")
        if not (wanted and path.is_file()):
            continue
        below = FIGURES if path.suffix == ".png" else None
        # A log goes on growing; every other file is replaced and never changed, so that a link to it stays what it was.
        if path.suffix == ".log" or not linked(path, place, below, path.name):
            client.expect(path.stat().st_size)
            client.log_artifact(run, str(path), below)


def linked(path: Path, place: str, *below: str | None) -> bool:
    """Replace the file under the address ``place`` by a hard link to ``path``; return whether that worked.

    It works where the store keeps its files in a folder of the same file system. Otherwise the caller makes or keeps a
    copy.
    """
    address = urlsplit(place)
    if address.scheme != "file":
        return False
    target = Path(url2pathname(address.path)).joinpath(*filter(None, below))
    part = target.with_name(f".{target.name}.{os.getpid()}.link")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        os.link(path, part)
        part.replace(target)
    except OSError:
        return False
    finally:
        with suppress(OSError):
            part.unlink()  # also where both names were links to the file already: replacing does nothing then
    return True
