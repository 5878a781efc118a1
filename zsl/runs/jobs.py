"""The jobs of a sweep, counted from their folders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zsl.errors import reason
from zsl.runs import status
from zsl.runs.result import ORACLE, SELECTED

# Jobs in the table that ends a sweep; zsl.report dashboard shows all.
_ROWS = 20
# A longer value would hide the next key from whoever reads the name of a job.
_LONGEST_VALUE = 40


@dataclass
class Job:
    """What became of a job of a sweep, from its folder."""

    folder: Path
    status: str
    """FINISHED, FAILED, KILLED, RUNNING or SKIPPED"""
    record: dict[str, Any]
    """Its ``status.json``, or its ``skipped.json``"""
    metrics: dict[str, Any] = field(default_factory=dict)
    """If it finished or was skipped"""
    protocol: str = ""
    """Then also: inductive, transductive or with labels; empty where it is unknown"""


@dataclass
class Jobs:
    """The jobs of a sweep that have a folder, in the order of their folders."""

    found: list[Job] = field(default_factory=list)
    waiting: list[Path] = field(default_factory=list)
    """Folders of jobs that the tracking store does not have in full"""

    def of(self, word: str) -> list[Job]:
        """Those of a status."""
        return [job for job in self.found if job.status == word]

    def counts(self) -> dict[str, int]:
        """How many jobs have each status."""
        words = (status.FINISHED, "SKIPPED", status.FAILED, status.KILLED, status.RUNNING)
        return {word: len(self.of(word)) for word in words}

    def having(self, metric: str) -> list[Job]:
        """The finished and the skipped ones that have a number for a metric."""
        return [job for job in self.found if isinstance(job.metrics.get(metric), int | float)]

    def best(self, metric: str, protocol: str | None = None) -> Job | None:
        """The one, of one protocol, with the largest value of a metric, the first among equals."""
        known = [job for job in self.having(metric) if protocol in (None, job.protocol)]
        return max(known, key=lambda job: job.metrics[metric]) if known else None

    def kinds(self, metric: str) -> list[str]:
        """The protocols of the jobs that have a metric; jobs of one are not ranked among those of another."""
        return sorted({job.protocol for job in self.having(metric)})


def jobs_of(sweep: Mapping[str, Any]) -> Jobs:
    """Look into the folders of a sweep (its ``sweep.json``); a RUNNING job whose process is gone becomes KILLED."""
    from zsl.runs.summary import kind_of

    out, folder = Jobs(), Path(sweep["folder"])
    # A folder of a fixed name may hold the status of an earlier sweep's job, and the note that this sweep skipped it.
    for path in sorted({p.parent for name in (status.STATUS, status.SKIPPED) for p in folder.rglob(name)}):
        skipped = status.read(path / status.SKIPPED)
        if skipped.get("sweep") == sweep["id"]:
            metrics, protocol = skipped.get("metrics", {}), skipped.get("protocol", "")
            out.found.append(Job(path, "SKIPPED", skipped, metrics, protocol))
            continue
        record = status.read(path / status.STATUS)
        if record.get("sweep") != sweep["id"]:
            continue
        if record["status"] == status.RUNNING and status.alive(record["process"]) is False:
            record = status.settle(path / status.STATUS, record)
        job = Job(path, record["status"], record)
        if job.status == status.FINISHED:
            result = status.read(path / status.RESULTS)
            job.metrics = result.get("metrics", {})
            information = result.get("key", {}).get("information_used")
            job.protocol = kind_of(information) if information else ""
        out.found.append(job)
        if record["tracking"] is not None and not record["tracking"]["complete"]:
            out.waiting.append(path)
    return out


def short_keys(keys: Iterable[str]) -> dict[str, str]:
    """Dotted key -> its last part, or the whole key where two keys share the last part.

    Examples
    --------
    >>> short_keys(["model.lam", "feature.name", "split.seed", "seed"])
    {'model.lam': 'lam', 'feature.name': 'feature', 'split.seed': 'split.seed', 'seed': 'seed'}
    """
    last = {key: key.removesuffix(".name").rpartition(".")[2] for key in keys}
    uses = Counter(last.values())
    return {key: short if uses[short] == 1 else key for key, short in last.items()}


def job_name(overrides: Sequence[str]) -> str:
    """Name a job of a sweep by the overrides in which the jobs differ; empty without any.

    Examples
    --------
    >>> job_name(["model.lam=0.01", "+seed=3", "feature.name='vgg19'"])
    'lam=0.01 seed=3 feature=vgg19'
    """
    values = {key.lstrip("+"): value.strip("\"'") for key, _, value in (o.partition("=") for o in overrides)}
    cut = {k: v if len(v) <= _LONGEST_VALUE else v[: _LONGEST_VALUE - 3] + "..." for k, v in values.items()}
    return " ".join(f"{short}={cut[key]}" for key, short in short_keys(cut).items())


def end_sweep(sweep: dict[str, Any], tracker: Any, *, killed: bool = False, error: BaseException | None = None) -> str:
    """Count what became of the jobs, tell the tracker, and return a summary for the terminal.

    The sweep is FINISHED if every job finished or was skipped, also where its own process was killed after the last
    job; else KILLED if it was interrupted; else FAILED.

    Parameters
    ----------
    sweep : dict
        The sweep's ``sweep.json``, which is written again.
    tracker : Tracker
        Records the end of the sweep elsewhere.
    killed : bool
        Whether the sweep was interrupted.
    error : exception, optional
        The exception that ended the sweep, unless that of a job.
    """
    jobs = jobs_of(sweep)
    done = len(jobs.of(status.FINISHED) + jobs.of("SKIPPED"))
    complete = done == len(jobs.found) and done > 0 and done >= (sweep["jobs"] or 0)
    complete = complete and not (killed and sweep["jobs"] is None)  # more jobs might have come
    sweep["status"] = status.FINISHED if complete else status.KILLED if killed else status.FAILED
    sweep["ended"] = status.now_ms()
    if error is not None and not killed and str(error):
        sweep["error"] = reason(error)[:300]
    path = Path(sweep["folder"]) / status.SWEEP
    status.write(path, sweep)
    tracker.end_sweep(sweep, jobs)
    status.write(path, sweep)
    return summary(sweep, jobs)


def _table(jobs: Jobs, metric: str, folder: Path) -> list[str]:
    """The jobs with their overrides and the metric, best first among those of one protocol."""
    kinds = jobs.kinds(metric)
    longest = max(map(len, kinds))
    ranked = sorted(jobs.having(metric), key=lambda job: (job.protocol, -job.metrics[metric]))
    width = max(len(metric), *(len(f"{job.metrics[metric]:.3f}") for job in ranked))

    def line(value: str, name: str, protocol: str, what: str) -> str:
        of = f"{protocol:{longest}}  " if len(kinds) > 1 else ""
        return f"{value:>{width}}  {name:>4}  {of}{what}".rstrip()

    lines = [line(metric, "job", "protocol", "settings")]
    for job in ranked[:_ROWS]:
        name, what = job.folder.relative_to(folder).as_posix(), " ".join(job.record.get("overrides") or ())
        lines.append(line(f"{job.metrics[metric]:.3f}", name, job.protocol, what))
    return lines + ([f"... and {len(ranked) - _ROWS} more"] if len(ranked) > _ROWS else [])


def how_chosen(metric: str) -> str:
    """Say whether choosing a run by a metric looks at the unseen classes; only metrics of tuning do not."""
    return SELECTED if metric.startswith("tune_") else ORACLE


def summary(sweep: Mapping[str, Any], jobs: Jobs) -> str:
    """Lines for the terminal: the counts, the log of the first failure, the best job."""
    folder = Path(sweep["folder"])
    planned = sweep["jobs"] or len(jobs.found)
    parts = [f"{n} {word.lower()}" for word, n in jobs.counts().items() if n]
    lines = [f"sweep of {planned} jobs {sweep['status']}: {', '.join(parts) or 'none started'}; folder {folder}"]
    failed = [job.folder.relative_to(folder).as_posix() for job in jobs.of(status.FAILED)]
    if failed:
        named = ", ".join(failed[:8]) + (", ..." if len(failed) > 8 else "")
        lines.append(f"failed: {named}; the reason is in {folder / failed[0] / 'zsl.log'}")
    metric = sweep["best"]
    best = jobs.best(metric)
    if best is not None and planned > 1:
        lines[:0] = _table(jobs, metric, folder)
    kinds = jobs.kinds(metric)
    for kind in kinds if planned > 1 else ():
        if (best := jobs.best(metric, kind)) is None:
            continue
        what = " ".join(best.record.get("overrides") or ()) or best.folder.name
        word = f"best job, {kind or 'protocol unknown'}," if len(kinds) > 1 else "best"
        lines.append(f"{word} by {metric} ({how_chosen(metric)}): {what} with {best.metrics[metric]:.3f}")
    if jobs.waiting:
        lines.append(f"{len(jobs.waiting)} jobs are not in the store; send them later: zsl tracking upload {folder}")
    return "\n".join(lines)
