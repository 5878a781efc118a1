"""What Slurm says of its jobs: which wait or run, and how they ended. Everything here asks Slurm's own commands."""

from __future__ import annotations

import getpass
import os
import re
import subprocess
import time
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

# Seconds to wait for an answer of Slurm, which usually takes milliseconds.
_PATIENCE_S = 20.0
# Many runs of one array are looked at one after another; the controller is asked once.
_FRESH_S = 2.0
_asked: dict[str, tuple[float, dict[str, str] | None]] = {}


def this_job() -> dict[str, str] | None:
    """The Slurm job that this process belongs to: its cluster, number and user; None outside of Slurm."""
    env = os.environ
    number = env.get("SLURM_JOB_ID")
    if not number:
        return None
    if "SLURM_ARRAY_TASK_ID" in env:
        number = f"{env.get('SLURM_ARRAY_JOB_ID')}_{env['SLURM_ARRAY_TASK_ID']}"
    return {"cluster": env.get("SLURM_CLUSTER_NAME", ""), "job": number, "user": env.get("SLURM_JOB_USER", "")}


def in_queue(job: Mapping[str, Any]) -> bool | None:
    """Whether a job of :func:`this_job` waits or runs; None where Slurm cannot be asked, or may hide it."""
    number, me = str(job.get("job")), _user()
    if cluster() != job.get("cluster") or me not in (job.get("user"), "root"):
        return None
    found = queue([number])
    return None if found is None else number in found


def queue(numbers: Iterable[str]) -> dict[str, str] | None:
    """Number -> state of those jobs that wait or run; None where Slurm cannot be asked.

    An array is asked for as a whole, so that its jobs cost one question.
    """
    wanted, found = set(numbers), dict[str, str]()
    for array in sorted({n.partition("_")[0] for n in wanted}):
        when, known = _asked.get(array, (-_FRESH_S, None))
        if time.monotonic() - when > _FRESH_S:
            known = _queue(array)
            _asked[array] = (time.monotonic(), known)
        if known is None:
            return None
        found |= known
    return {n: state for n, state in found.items() if n in wanted}


def _queue(array: str) -> dict[str, str] | None:
    said, error = _ask("squeue", "--noheader", "--array", "--jobs", array, "--format=%i %T")
    if error is not None and "Invalid job id" not in error:
        return None  # the controller does not answer; a job that it has forgotten is over
    return dict(line.split(maxsplit=1) for line in said.splitlines() if " " in line.strip())


def ends(numbers: Iterable[str]) -> dict[str, str]:
    """Number -> the word for how a job ended, such as TIMEOUT, from Slurm's accounting; empty without one."""
    wanted = set(numbers)
    arrays = ",".join(sorted({n.partition("_")[0] for n in wanted}))
    if not arrays:
        return {}
    said, _ = _ask("sacct", "--noheader", "--allocations", "--parsable2", "--format=JobID,State", "--jobs", arrays)
    found: dict[str, str] = {}
    for line in said.splitlines():
        number, _, state = line.partition("|")
        # Jobs of an array that never began are one row: 12_[2-4,7].
        array, _, rest = number.partition("_")
        for part in rest.strip("[]").partition("%")[0].split(","):
            first, _, last = part.partition("-")
            members = range(int(first), int(last or first) + 1) if first.isdigit() else ()
            found |= {f"{array}_{k}": state.split()[0] for k in members if state}
        if not rest and state:
            found[number] = state.split()[0]
    return {n: word for n, word in found.items() if n in wanted and word not in ("PENDING", "RUNNING", "COMPLETING")}


def jobs_of(sweep: Mapping[str, Any]) -> list[str]:
    """The numbers of the jobs of a sweep, which submitit gives a folder each (``.submitit/12_3``)."""
    folder = (sweep.get("launcher") or {}).get("submitit_folder")
    if not folder:
        return []
    try:
        return sorted(p.name for p in Path(folder).iterdir() if re.fullmatch(r"\d+(_\d+)?", p.name))
    except OSError:
        return []


def cores() -> int | None:
    """How many cores Slurm granted to this process; None outside of Slurm."""
    for name in ("SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE"):
        given = os.environ.get(name, "")
        if this_job() and given.isdigit() and int(given) > 0:
            return int(given)
    return None


@cache
def cluster() -> str | None:
    """The name of the cluster whose commands are installed here; None where none answers."""
    said, _ = _ask("scontrol", "show", "config")
    found = re.search(r"^ClusterName\s*=\s*(\S+)", said, re.MULTILINE)
    return found[1] if found else None


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in some containers
        return ""


def _ask(*command: str) -> tuple[str, str | None]:
    """What a command prints, and its error; None where it succeeded."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", str(error)
    return done.stdout, None if done.returncode == 0 else done.stderr or "it failed"
