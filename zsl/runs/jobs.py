"""The jobs of a sweep, counted from their folders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zsl.errors import reason
from zsl.runs import status
from zsl.runs.result import ORACLE, SELECTED


@dataclass
class Jobs:
    """What became of the jobs of a sweep, from their folders."""

    by_status: dict[str, list[Path]] = field(default_factory=dict)
    """FINISHED, FAILED, KILLED, RUNNING, SKIPPED -> folders"""
    metrics: dict[Path, dict[str, Any]] = field(default_factory=dict)
    """Of the finished and the skipped ones"""
    waiting: list[Path] = field(default_factory=list)
    """Those that the store does not have in full"""

    def count(self, status: str) -> int:
        """How many jobs have a status."""
        return len(self.by_status.get(status, ()))

    def best(self, metric: str) -> Path | None:
        """The finished or skipped job with the largest value of a metric, the first among equals."""
        known = {p: m[metric] for p, m in self.metrics.items() if isinstance(m.get(metric), int | float)}
        return max(sorted(known), key=known.__getitem__) if known else None


def jobs_of(about: Mapping[str, Any]) -> Jobs:
    """Look into the folders of a sweep (its ``sweep.json``); a RUNNING job whose process is gone is set KILLED."""
    found = Jobs()
    folder = Path(about["folder"])
    # A folder of a fixed name may hold both: a record from before, and that this sweep skipped it.
    for path in sorted({p.parent for name in (status.STATUS, status.SKIPPED) for p in folder.rglob(name)}):
        skipped = status.read(path / status.SKIPPED)
        if skipped.get("sweep") == about["id"]:
            found.by_status.setdefault("SKIPPED", []).append(path)
            found.metrics[path] = skipped.get("metrics", {})
            continue
        job = status.read(path / status.STATUS)
        if job.get("sweep") != about["id"]:
            continue
        if job["status"] == status.RUNNING and status.alive(job["process"]) is False:
            job = status.settle(path / status.STATUS, job)
        found.by_status.setdefault(job["status"], []).append(path)
        if job["status"] == status.FINISHED:
            found.metrics[path] = status.read(path / status.RESULTS).get("metrics", {})
        if job["tracking"] is not None and not job["tracking"]["complete"]:
            found.waiting.append(path)
    return found


def end_sweep(about: dict[str, Any], tracker: Any, *, killed: bool = False, error: BaseException | None = None) -> str:
    """Count what became of the jobs, tell the tracker, and return a summary for people.

    The sweep is FINISHED if every job finished or was skipped, KILLED if it was interrupted, else FAILED.

    Parameters
    ----------
    about : dict
        The sweep's ``sweep.json``, which is written again.
    tracker : Tracker
    error : exception, optional
        What ended the sweep, if it was not one of its jobs.
    """
    jobs = jobs_of(about)
    done = jobs.count(status.FINISHED) + jobs.count("SKIPPED")
    planned = about["jobs"]
    seen = sum(len(folders) for folders in jobs.by_status.values())
    complete = done == seen and done > 0 and (planned is None or done >= planned)
    about["status"] = status.KILLED if killed else status.FINISHED if complete else status.FAILED
    about["ended"] = status.now_ms()
    if error is not None and not killed and str(error):
        about["error"] = reason(error)[:300]
    path = Path(about["folder"]) / status.SWEEP
    status.write(path, about)
    tracker.end_sweep(about, jobs)
    status.write(path, about)
    return summary(about, jobs)


def how_chosen(metric: str) -> str:
    """What choosing a run by a metric amounts to: every metric but those of tuning looks at the unseen classes."""
    return SELECTED if metric.startswith("tune_") else ORACLE


def summary(about: Mapping[str, Any], jobs: Jobs) -> str:
    """Lines for the terminal: counts, where failures are explained, the best job."""
    folder = Path(about["folder"])
    planned = about["jobs"] or sum(len(folders) for folders in jobs.by_status.values())
    parts = [f"{jobs.count(s)} {s.lower()}" for s in (status.FINISHED, "SKIPPED", status.FAILED, status.KILLED,
                                                      status.RUNNING) if jobs.count(s)]  # fmt: skip
    lines = [f"sweep of {planned} jobs {about['status']}: {', '.join(parts) or 'none started'}; folder {folder}"]
    failed = [p.name for p in jobs.by_status.get(status.FAILED, ())]
    if failed:
        named = ", ".join(failed[:8]) + (", ..." if len(failed) > 8 else "")
        lines.append(f"failed: {named}; why is in {folder / failed[0] / 'zsl.log'}")
    metric = str(about["settings"].get("best", "acc_class"))
    best = jobs.best(metric)
    if best is not None and planned > 1:
        job = status.read(best / status.STATUS)
        what = " ".join(job.get("overrides") or ()) or best.name
        lines.append(f"best by {metric} ({how_chosen(metric)}): {what} with {jobs.metrics[best][metric]:.3f}")
    if jobs.waiting:
        lines.append(
            f"{len(jobs.waiting)} are not in the tracking store; later: python -m zsl.tracking upload {folder}"
        )
    return "\n".join(lines)
