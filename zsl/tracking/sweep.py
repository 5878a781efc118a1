"""The run above the jobs of a sweep: begun before the first, ended truthfully after the last."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zsl.experiment.selection import ORACLE, SELECTED
from zsl.runs import status as records
from zsl.tracking.session import one_line
from zsl.tracking.store import Store

log = logging.getLogger(__name__)


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
    for path in sorted({p.parent for name in (records.STATUS, records.SKIPPED) for p in folder.rglob(name)}):
        skipped = records.read(path / records.SKIPPED)
        if skipped.get("sweep") == about["id"]:
            found.by_status.setdefault("SKIPPED", []).append(path)
            found.metrics[path] = skipped.get("metrics", {})
            continue
        status = records.read(path / records.STATUS)
        if status.get("sweep") != about["id"]:
            continue
        if status["status"] == records.RUNNING and records.alive(status["process"]) is False:
            status = records.settle(path / records.STATUS, status)
        found.by_status.setdefault(status["status"], []).append(path)
        if status["status"] == records.FINISHED:
            found.metrics[path] = records.read(path / records.RESULTS).get("metrics", {})
        if status["tracking"] is not None and not status["tracking"]["complete"]:
            found.waiting.append(path)
    return found


def begin(about: dict[str, Any]) -> None:
    """Open the parent run of a sweep that is about to start; without a store the sweep goes on."""
    try:
        store = Store.open(about["settings"], Path(about["output_dir"]))
        about["run_id"] = create(store, about)
        records.write(Path(about["folder"]) / records.SWEEP, about)
    except Exception as error:
        log.warning("the sweep goes on, but tracking failed: %s", one_line(error))


def create(store: Store, about: Mapping[str, Any]) -> str:
    """The parent run, RUNNING."""
    process = about["process"]
    tags = {
        "zsl.kind": "sweep",
        "zsl.folder": about["folder"],
        "zsl.sweep": about["id"],
        "zsl.swept": ", ".join(about["swept"]),
        "zsl.process": f"{process['host']}/{process['pid']}/{process['started']}",
    }
    return store.begin(about["name"], tags, started=about["started"])


def end(about: dict[str, Any], *, killed: bool = False, error: BaseException | None = None) -> str:
    """Count what became of the jobs, end the parent run, and return a summary for people.

    FINISHED if every job finished or was skipped; KILLED if the sweep was interrupted; else FAILED.
    """
    jobs = jobs_of(about)
    done = jobs.count(records.FINISHED) + jobs.count("SKIPPED")
    planned = about["jobs"]
    seen = sum(len(folders) for folders in jobs.by_status.values())
    complete = done == seen and done > 0 and (planned is None or done >= planned)
    status = records.KILLED if killed else records.FINISHED if complete else records.FAILED
    about |= {"status": status, "ended": records.now_ms()}
    if error is not None and not killed and str(error):
        about["error"] = one_line(error)
    folder = Path(about["folder"])
    records.write(folder / records.SWEEP, about)
    if about["settings"]["name"] != "none":
        try:
            store = Store.open(about["settings"], Path(about["output_dir"]))
            tell(store, about, jobs)
            records.write(folder / records.SWEEP, about)
        except Exception as problem:
            log.warning("tracking failed: %s", one_line(problem))
            jobs.waiting = jobs.waiting or [folder]
    return summary(about, jobs)


def tell(store: Store, about: dict[str, Any], jobs: Jobs) -> None:
    """Counts, the best job and the status to the parent run, and the status of jobs that were killed to theirs."""
    if about["run_id"] is None:
        about["run_id"] = create(store, about)
    for folder in jobs.by_status.get(records.KILLED, ()):
        status = records.read(folder / records.STATUS)
        tracking = status.get("tracking")
        if tracking and tracking["run_id"] and not tracking["complete"]:
            store.tag(tracking["run_id"], {"zsl.error": status.get("error", "killed")})
            store.end(tracking["run_id"], records.KILLED, ended=status["ended"])
            tracking["complete"] = True
            records.write(folder / records.STATUS, status)
    jobs.waiting = [p for p in jobs.waiting if not records.read(p / records.STATUS)["tracking"]["complete"]]
    names = {"jobs": None, "finished": records.FINISHED, "skipped": "SKIPPED", "failed": records.FAILED,
             "killed": records.KILLED, "running": records.RUNNING}  # fmt: skip
    total = about["jobs"] or sum(len(folders) for folders in jobs.by_status.values())
    counts: dict[str, float] = {k: total if s is None else jobs.count(s) for k, s in names.items()}
    tags: dict[str, Any] = {"zsl.launcher": about["launcher"].get("_target_", "")}
    if about.get("error"):
        tags["zsl.error"] = about["error"]
    metric = str(about["settings"].get("best", "acc_class"))
    best = jobs.best(metric)
    if best is not None:
        counts[f"best/{metric}"] = jobs.metrics[best][metric]
        status = records.read(best / records.STATUS)
        tags |= {
            "zsl.best_by": f"{metric} ({how_chosen(metric)})",
            "zsl.best_folder": str(best),
            "zsl.best_overrides": " ".join(status.get("overrides") or ()),
            "zsl.best_run": (status.get("tracking") or {}).get("run_id") or "",
        }
    store.tag(about["run_id"], {k: v for k, v in tags.items() if v}, counts)
    store.end(about["run_id"], about["status"], ended=about["ended"])
    about["complete"] = True


def how_chosen(metric: str) -> str:
    """What choosing a run by a metric amounts to: every metric but those of tuning looks at the unseen classes."""
    return SELECTED if metric.startswith("tune_") else ORACLE


def summary(about: Mapping[str, Any], jobs: Jobs) -> str:
    """Lines for the terminal: counts, where failures are explained, the best job."""
    folder = Path(about["folder"])
    planned = about["jobs"] or sum(len(folders) for folders in jobs.by_status.values())
    parts = [f"{jobs.count(s)} {s.lower()}" for s in (records.FINISHED, "SKIPPED", records.FAILED, records.KILLED,
                                                      records.RUNNING) if jobs.count(s)]  # fmt: skip
    lines = [f"sweep of {planned} jobs {about['status']}: {', '.join(parts) or 'none started'}; folder {folder}"]
    failed = [p.name for p in jobs.by_status.get(records.FAILED, ())]
    if failed:
        named = ", ".join(failed[:8]) + (", ..." if len(failed) > 8 else "")
        lines.append(f"failed: {named}; why is in {folder / failed[0] / 'zsl.log'}")
    metric = str(about["settings"].get("best", "acc_class"))
    best = jobs.best(metric)
    if best is not None and planned > 1:
        status = records.read(best / records.STATUS)
        what = " ".join(status.get("overrides") or ()) or best.name
        lines.append(f"best by {metric} ({how_chosen(metric)}): {what} with {jobs.metrics[best][metric]:.3f}")
    if jobs.waiting:
        lines.append(
            f"{len(jobs.waiting)} are not in the tracking store; later: python -m zsl.tracking upload {folder}"
        )
    return "\n".join(lines)
