"""Run folders: how a run went (``status.json``), and finding the runs under a folder."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

RESULTS, STATUS, SKIPPED, SWEEP = "results.json", "status.json", "skipped.json", "sweep.json"
RUNNING, FINISHED, FAILED, KILLED = "RUNNING", "FINISHED", "FAILED", "KILLED"


def find(output_dir: Path, wanted: str) -> Path | None:
    """A run folder under ``output_dir`` whose complete record has this digest, or None; the oldest by name."""
    mark = json.dumps(wanted).encode()
    for path in sorted(results(output_dir)):
        try:
            text = path.read_bytes()
            # Most files are told apart by a search for the digits, which is far quicker than reading JSON.
            if mark in text and json.loads(text).get("digest") == wanted:
                return path.parent
        except (OSError, ValueError):
            continue  # removed in this moment, or not ours
    return None


def results(output_dir: Path) -> Iterator[Path]:
    """Every ``results.json`` in run folders under ``output_dir``; the tracking store's copies are passed over."""
    yield from _walk(output_dir, RESULTS)


def records_of(folder: Path) -> list[Path]:
    """Every ``results.json`` under ``folder``, and those elsewhere for which its jobs were skipped."""
    found = {path.resolve() for path in results(folder)}
    for path in _walk(folder, SKIPPED):
        there = path.parent / str(read(path).get("record")) / RESULTS
        if there.is_file():
            found.add(there.resolve())
    return sorted(found)


def skipped(folder: Path) -> Iterator[Path]:
    """Every ``skipped.json`` under ``folder``: jobs whose result was there already."""
    yield from _walk(folder, SKIPPED)


def statuses(output_dir: Path) -> Iterator[Path]:
    """Every ``status.json`` under ``output_dir``."""
    yield from _walk(output_dir, STATUS)


def sweeps(output_dir: Path) -> Iterator[Path]:
    """Every ``sweep.json`` under ``output_dir``."""
    yield from _walk(output_dir, SWEEP)


def _walk(folder: Path, name: str) -> Iterator[Path]:
    for here, folders, files in os.walk(folder):
        folders[:] = [f for f in folders if f not in ("mlartifacts", "mlruns") and not f.startswith(".")]
        if name in files:
            yield Path(here) / name


def read(path: Path) -> dict[str, Any]:
    """A JSON file of a run folder; empty where it is absent or not readable."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write(path: Path, record: Mapping[str, Any]) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_text(json.dumps(record, indent=2, ensure_ascii=False, default=str) + "\n", encoding="utf-8")
    part.replace(path)


def now_ms() -> int:
    """Milliseconds since 1970, as tracking stores count."""
    return int(time.time() * 1000)


def settle(path: Path, record: dict[str, Any]) -> dict[str, Any]:
    """Put right the ``status.json`` of a run whose process is gone: KILLED, or FINISHED if its results are complete."""
    found = path.parent / RESULTS
    mine = read(found).get("digest") == record.get("digest") is not None
    if mine and found.stat().st_mtime * 1000 >= record["started"]:
        # It was killed while the tracking store was told.
        record |= {"status": FINISHED, "ended": int(found.stat().st_mtime * 1000)}
    else:
        record |= {"status": KILLED, "ended": now_ms(), "error": "its process was killed"}
    write(path, record)
    return record


# --- processes ----------------------------------------------------------------------------------------------


def this_process() -> dict[str, Any]:
    """What tells, later and from another process, whether this one still runs."""
    return {"host": socket.gethostname(), "pid": os.getpid(), "started": _started(os.getpid())}


def alive(process: Mapping[str, Any]) -> bool | None:
    """Whether a process of :func:`this_process` still runs; None if that was on another machine."""
    if process.get("host") != socket.gethostname():
        return None
    pid = process.get("pid")
    if not isinstance(pid, int):
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    # Numbers of processes are used again.
    return _started(pid) == process.get("started")


def _started(pid: int) -> str | None:
    """When a process started, in ticks since the machine did; None where the system does not say, or it is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]
