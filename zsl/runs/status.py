"""Run folders: what a run is (its digest), how it went (``status.json``), and finding one that is there already."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

RESULTS, STATUS, SKIPPED, SWEEP = "results.json", "status.json", "skipped.json", "sweep.json"
RUNNING, FINISHED, FAILED, KILLED = "RUNNING", "FINISHED", "FAILED", "KILLED"

# How a result's settings were chosen, as records say it.
GIVEN = "none: settings as given"
SELECTED = "selected on validation classes"
ORACLE = "oracle: selected on test classes"

# Where output goes and how the work is organised: none of it changes a number.
PLACES = ("experiment", "cell", "output_dir", "data_dir", "cache_dir", "tracking", "threads", "skip_existing",
          "save_model", "save_predictions", "allow_targets")  # fmt: skip
# Of a model: interruption and the grid that only tuning reads.
_NOT_THE_MODEL = ("checkpoint", "checkpoint_minutes", "grid")


def digest(plain: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    """What determines a run's result, known before anything is fitted: 16 hex digits of SHA-256.

    Parameters
    ----------
    plain : mapping
        The resolved configuration. Places (output, data, tracking) are left out, so that the same run in another
        folder or on another machine has the same digest.
    data : mapping
        ``ZeroShotData.key``: content hash of the data, rows and classes of the split, what became of the attributes.
        They stand for the configuration of the dataset, of the split and of the subset, which names files.
    """
    settings = {k: v for k, v in plain.items() if k not in (*PLACES, "dataset", "split", "subset")}
    settings["model"] = {k: v for k, v in plain["model"].items() if k not in _NOT_THE_MODEL}
    tune = plain["tune"]
    if tune["name"] != "none" and tune.get("grid") is None:
        settings["tune"] = {**tune, "grid": plain["model"].get("grid")}
    dataset, split = plain["dataset"], data.get("split", {})
    settings["data"] = {
        "name": dataset.get("name"),
        "semantics": dataset.get("semantics"),
        "shuffle_attributes": dataset.get("shuffle_attributes"),
        "content": data.get("content"),
        "read": data.get("semantics"),
        # By name too: a table looks for runs of the split that it names, and the same rows may have two names.
        "split": {"name": plain["split"].get("name"), **{k: split.get(k) for k in ("rows", "unseen", "subset")}},
        "validation": data.get("validation"),
    }
    text = json.dumps(_canonical(settings), sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _canonical(value: Any) -> Any:
    """1 and 1.0 are the same number, tuples the same as lists."""
    if isinstance(value, Mapping):
        return {str(k): _canonical(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(v) for v in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


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
