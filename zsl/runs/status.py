"""The JSON files of runs and sweeps, each with a checksum; how a run went; the runs and sweeps under a folder."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from zsl.errors import atomic, process_runs, reason
from zsl.runs import slurm

log = logging.getLogger(__name__)

RESULTS, STATUS, SKIPPED, SWEEP = "results.json", "status.json", "skipped.json", "sweep.json"
PAGE = "ui.json"
"""In an output folder while ``zsl ui`` shows its store: the process and the address"""
_OF_A_JOB = ("cluster", "job", "user")
RUNNING, FINISHED, FAILED, KILLED = "RUNNING", "FINISHED", "FAILED", "KILLED"


def find(output_dir: Path, digest: str) -> Path | None:
    """The first run folder under ``output_dir``, by name, whose complete record has this digest; None without one."""
    mark = json.dumps(digest).encode()
    for path in sorted(walk(output_dir, RESULTS)):
        try:
            text = path.read_bytes()
            # The search for the digits is far quicker than reading JSON, and most files fail it.
            if mark in text and read(path).get("digest") == digest:
                return path.parent
        except OSError:
            continue  # the file was removed in this moment
    return None


def walk(folder: Path, name: str) -> Iterator[Path]:
    """Every file of a name in the run folders under ``folder``, without those in the tracking store."""
    for place, folders, files in os.walk(folder):
        folders[:] = [f for f in folders if f not in ("mlartifacts", "mlruns") and not f.startswith(".")]
        if name in files:
            yield Path(place) / name


def read(path: Path) -> dict[str, Any]:
    """Read a JSON file of a run folder; the result is empty where the file is absent.

    The result is empty, and a warning names the file, where it is damaged: it is no JSON, lacks what its kind has, or
    its contents do not have its checksum.
    """
    try:
        text = path.read_bytes()
    except OSError:
        return {}
    try:
        found = json.loads(text)
        checksum = found.pop("checksum", None)
        if checksum is None and "written_by" not in found:
            _check(path.name, found)  # by an earlier version, or by hand
        elif checksum != _checksum(found):
            raise ValueError("its contents do not have its checksum")
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        if (path, text) not in _damaged:
            _damaged.add((path, text))
            log.warning("%s is damaged and left out (%s); run that job again.", path, reason(error))
        return {}
    found.pop("written_by", None)
    return dict(found)


# The damaged files that a warning has named.
_damaged: set[tuple[Path, bytes]] = set()


def _check(name: str, record: Any) -> None:
    """Raise if a record lacks a key that its readers use without checking that it is there."""
    kinds: dict[str, dict[str, tuple[type, ...]]] = {
        RESULTS: {"key": (dict,), "metrics": (dict,), "per_class": (list,)},
        STATUS: {"status": (str,), "process": (dict,), "started": (int,), "tracking": (dict, type(None))},
        SWEEP: {"id": (str,), "status": (str,), "process": (dict,), "started": (int,), "folder": (str,)},
        SKIPPED: {"record": (str,), "metrics": (dict,)},
    }
    for key, kind in kinds.get(name, {}).items():
        if not isinstance(record[key], kind):
            raise TypeError(f"{key} is {record[key]!r}")


def write(path: Path, record: Mapping[str, Any]) -> None:
    """Write a JSON file of a run folder with its checksum, whole or not at all."""
    plain = json.loads(json.dumps({**record, "written_by": "zsl"}, default=str))
    plain.pop("checksum", None)  # of what the record was read from
    text = json.dumps({**plain, "checksum": _checksum(plain)}, indent=2, ensure_ascii=False)
    with atomic(path) as part:
        part.write_text(text + "\n", encoding="utf-8")


def _checksum(record: Mapping[str, Any]) -> str:
    """A digest of a record's contents, however the file is laid out."""
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()[:16]


def now_ms() -> int:
    """Milliseconds since 1970, as tracking stores count."""
    return int(time.time() * 1000)


def settle(path: Path, record: dict[str, Any]) -> dict[str, Any]:
    """Correct the ``status.json`` of a run whose process is gone: KILLED, or FINISHED if its results are complete."""
    found = path.parent / RESULTS
    mine = read(found).get("digest") == record.get("digest") is not None
    if mine and found.stat().st_mtime * 1000 >= record["started"]:
        # The process was killed after the results were written, while it sent them to the tracking store.
        record |= {"status": FINISHED, "ended": int(found.stat().st_mtime * 1000)}
    else:
        job = (record["process"].get("slurm") or {}).get("job")
        said = slurm.ends([job]).get(job) if job else None
        why = "its process was killed" + (f" (Slurm: {said})" if said else "")
        record |= {"status": KILLED, "ended": now_ms(), "error": why}
    write(path, record)
    return record


def page_of(output_dir: Path) -> str:
    """The address at which ``zsl ui`` shows the store of an output folder now; empty if it does not."""
    record = read(output_dir / PAGE)
    # A copy of the folder has a copy of the note.
    own = record.get("folder") in (None, str(output_dir.resolve()))
    running = bool(record) and own and alive(record.get("process") or {})
    return str(record.get("address", "")) if running else ""


def this_process() -> dict[str, Any]:
    """What :func:`alive` needs to tell, later and from another process, whether this process still runs."""
    found = {"host": socket.gethostname(), "pid": os.getpid(), "started": _started(os.getpid())}
    return found | ({"slurm": job} if (job := slurm.this_job()) else {})


def alive(process: Mapping[str, Any]) -> bool | None:
    """Whether a process of :func:`this_process` still runs; None for a process of another machine.

    Of a Slurm job every machine of the cluster can tell. A job that waits to be started again counts as running.
    """
    here = process.get("host") == socket.gethostname()
    if here and _runs_here(process):
        return True
    job = process.get("slurm")
    # Of another process of this very job, which runs, Slurm cannot tell more.
    if job and job.get("job") != (slurm.this_job() or {}).get("job") and (found := slurm.in_queue(job)) is not None:
        return found
    return False if here else None


def as_tag(process: Mapping[str, Any]) -> str:
    """A process as the text of the tag ``zsl.process``: machine, number and start, and its Slurm job if it has one."""
    job = process.get("slurm") or {}
    parts = [process["host"], process["pid"], process["started"], *(job[k] for k in _OF_A_JOB if job)]
    return "/".join(map(str, parts))


def of_tag(tag: str) -> dict[str, Any]:
    """The process that :func:`as_tag` made a text of."""
    host, pid, started, *job = [*tag.split("/"), "", ""][: max(tag.count("/") + 1, 3)]
    number = int(pid) if pid.isascii() and pid.isdigit() else None
    process = {"host": host, "pid": number, "started": started}
    return process | ({"slurm": dict(zip(_OF_A_JOB, job, strict=True))} if len(job) == len(_OF_A_JOB) else {})


def _runs_here(process: Mapping[str, Any]) -> bool:
    pid = process.get("pid")
    # The system gives the number of a process that ended to a new one.
    return isinstance(pid, int) and process_runs(pid) and _started(pid) == process.get("started")


def _started(pid: int) -> str | None:
    """When a process started, in ticks since the machine did; None for a zombie and where the system does not say."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]
