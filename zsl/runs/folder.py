"""The folder of a run while it runs: its status, and the tracker that records it elsewhere."""

from __future__ import annotations

import logging
import os
import signal
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from zsl.errors import UserError, interruption
from zsl.runs import files, status, summary
from zsl.runs.jobs import Jobs, job_name
from zsl.runs.lock import FolderLock
from zsl.runs.result import Result

log = logging.getLogger(__name__)


class Tracker:
    """Records runs and sweeps in a tracking store. This class records nothing; others override its methods.

    A store that fails costs a warning and never the run.

    Parameters
    ----------
    output_dir : str
        The folder of all output.
    """

    best = "acc_class"
    """The metric by which a sweep names its best run"""

    def __init__(self, output_dir: str = "multirun") -> None:
        self.output_dir = output_dir

    def destination(self) -> dict[str, Any] | None:
        """What ``status.json`` and ``sweep.json`` keep of the store, so that an upload can go on; None without one."""
        return None

    def start(self, record: dict[str, Any], folder: Path) -> None:
        """A run begins; ``record`` is its ``status.json``, whose ``tracking`` may be changed."""

    def finish(self, record: dict[str, Any], folder: Path, config: Mapping[str, Any]) -> str | None:
        """The run's folder is complete; returns the address of the run in the store."""
        return None

    def fail(self, record: dict[str, Any], folder: Path) -> None:
        """The run ended in an exception, which ``record`` describes."""

    def find(self, digest: str) -> tuple[str, dict[str, Any]] | None:
        """Find a finished run of this digest in the store: a name for it, and its ``results.json``."""
        return None

    def begin_sweep(self, sweep: dict[str, Any]) -> None:
        """A sweep begins; ``sweep`` is its ``sweep.json``, whose ``tracking`` may be changed."""

    def belongs_to(self, sweep: Mapping[str, Any]) -> None:
        """The runs that follow in this process are jobs of a sweep, which another process may have begun."""

    def end_sweep(self, sweep: dict[str, Any], jobs: Jobs) -> None:
        """A sweep is over."""


class NoTracker(Tracker):
    """The tracker of ``tracking=none``: results stay in the run folder."""


# The sweep that this process works for: its sweep.json, and its tracker.
_sweep: dict[str, Any] = {}


def belongs_to(sweep: Mapping[str, Any], tracker: Tracker | None = None) -> None:
    """Runs that start after this are jobs of a sweep (its ``sweep.json``), or of none if it is empty."""
    _sweep.clear()
    if sweep:
        _sweep.update(sweep, tracker=tracker)
        if tracker is not None:
            tracker.belongs_to(sweep)


@contextmanager
def run_folder(folder: Path | None) -> Iterator[RunFolder]:
    """The folder of a run; an exception inside becomes the run's status, FAILED or KILLED."""
    out = RunFolder(folder)
    try:
        yield out
    except BaseException as error:
        out.fail(interruption() or error)
        raise
    finally:
        out.release()


class RunFolder:
    """The folder of one run; without a folder nothing is written.

    ``status.json`` holds the run's status (RUNNING, then FINISHED, FAILED or KILLED), its digest, process and sweep,
    and where it is in the tracking store.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._lock = FolderLock(folder)
        self.digest = ""
        self._refused = False
        self.record: dict[str, Any] = {}
        self._sweep = dict(_sweep)
        self._tracker: Tracker = self._sweep.get("tracker") or NoTracker()
        self._config: Mapping[str, Any] = {}

    def start(self, config: Mapping[str, Any], tracker: Tracker, digest: str, name: str) -> Result | None:
        """Begin the run; with ``skip_existing`` and a finished run of the same digest, return that run instead."""
        self.digest, self._config = digest, config
        if self.folder is None:
            return None
        self._lock.take()
        self._tracker = tracker
        if config["skip_existing"]:
            found = self._existing()
            if found is not None:
                self._skip(*found)
                return found[1]
        before = status.read(self.folder / status.STATUS)
        again = before if digest == before.get("digest") and before.get("sweep") == self._sweep.get("id") else {}
        complete = status.read(self.folder / status.RESULTS)
        if self._sweep and again.get("status") == status.FINISHED and complete:
            return self._finished(again, Result.of(complete))
        # The record counts whatever the status says: a later run that failed or was killed has written its own status.
        held = {complete.get("digest")}
        held |= {before.get("digest")} if before.get("status") == status.FINISHED else set()
        if held - {None, "", digest}:
            self._refused = True
            raise UserError(
                f"{self.folder} holds a finished run of other settings or data, which this run would replace; give the "
                "run another folder (hydra.run.dir, of a sweep hydra.sweep.dir), or remove that one."
            )
        self._begin(self._name_of_job() or name, digest, again if self._sweep else {})
        return None

    def _finished(self, record: dict[str, Any], result: Result) -> Result:
        """A job that had finished before a cluster started it again: its result, which the store gets in full."""
        assert self.folder is not None
        self.record = record
        if record["tracking"] and not record["tracking"]["complete"]:
            self._tracker.finish(record, self.folder, self._config)
            self._write()
        log.info("this job had finished before it was started again")
        return result

    def finish(self, result: Result, fitted: Any, data: Any, draw: Callable[[Path], None] | None = None) -> None:
        """Write the run's files, let ``draw`` add figures, tell the tracking store, and print the result."""
        result.digest = self.digest
        if self.folder is None:
            return
        files.write(result, fitted, data, self._config, self.folder)
        # An earlier run that was skipped has left a note of where its result is.
        (self.folder / status.SKIPPED).unlink(missing_ok=True)
        self._end(status.FINISHED)
        if draw is not None:
            draw(self.folder)
        try:
            link = self._tracker.finish(self.record, self.folder, self._config)
        finally:
            self._write()  # what the store has by now, so that an upload doubles nothing
        summary.show(result, self.folder, link, brief=bool(self._sweep))

    def fail(self, error: BaseException) -> None:
        """End a run that ended in an exception; interruptions count as KILLED."""
        if self.folder is None or self._lock.taken_by_another or self.record.get("status") == status.FINISHED:
            return
        if self._refused:
            return  # the folder keeps the finished run that is in it
        if not self.record:
            if not self._sweep:
                return  # the mistake was refused before the run began; a sweep counts such a job as FAILED
            try:
                self._lock.take()
                self._begin(self._name_of_job(), None)
            except UserError as problem:  # of tracking.on_error=raise; it must not hide the first exception
                log.warning("%s", problem)
        self._lock.give_room()
        ended = status.FAILED if isinstance(error, Exception) else status.KILLED
        # Whoever reads an error that is not one sentence needs its traceback.
        known = isinstance(error, UserError) or ended == status.KILLED
        self.record |= {"error": _why(error), "traceback": None if known else traceback.format_exc()}
        self._end(ended)
        self._tracker.fail(self.record, self.folder)
        self._write()

    def _name_of_job(self) -> str:
        """What a sweep varies in this job; the number of the job where that is not known; empty without a sweep."""
        assert self.folder is not None
        number = f"job {self.folder.name}" if self._sweep else ""
        return job_name(self._sweep.get("overrides") or ()) or number

    def release(self) -> None:
        """Let other processes use the folder, and leave no file that is not a result."""
        self._lock.release()

    def _begin(self, name: str, digest: str | None, again: Mapping[str, Any] | None = None) -> None:
        """Write the first record; ``again`` is that of the same job before a cluster started it again."""
        assert self.folder is not None
        tracking, above = self._tracker.destination(), self._sweep.get("tracking")
        if tracking and above and tracking["uri"] == above["uri"]:
            tracking["parent"] = above["run_id"]
        known = (again or {}).get("tracking")
        if tracking and known and tracking["uri"] == known["uri"]:
            tracking["run_id"] = known["run_id"]  # the run of the store goes on
        self.record = {
            "status": status.RUNNING,
            "name": name,
            "digest": digest,
            "started": status.now_ms(),
            "ended": None,
            "process": status.this_process(),
            "sweep": self._sweep.get("id"),
            "overrides": self._sweep.get("overrides"),
            "output_dir": str(Path(self._tracker.output_dir).resolve()),
            "tracking": tracking,
        }
        self._write()
        self._tracker.start(self.record, self.folder)
        self._write()

    def _existing(self) -> tuple[str, Result] | None:
        """Find a finished run of this digest, in run folders first, then in the tracking store."""
        found = status.find(Path(self._config["output_dir"]), self.digest)
        where, record = (
            (str(found), status.read(found / status.RESULTS))
            if found is not None
            else self._tracker.find(self.digest) or ("", {})
        )
        if not record:
            return None
        return where, Result.of(record)

    def _skip(self, where: str, result: Result) -> None:
        assert self.folder is not None
        skipped = {
            "digest": self.digest,
            # A relative path is right also after the whole output folder was moved.
            "record": os.path.relpath(where, self.folder) if Path(where).is_dir() else where,
            "sweep": self._sweep.get("id"),
            "overrides": self._sweep.get("overrides"),
            "metrics": dict(result.metrics),
            "protocol": summary.kind_of(result.key.get("information_used", ())),
            # A table finds the result also under the cell that this job was for.
            "experiment": self._config.get("experiment"),
            "cell": self._config.get("cell"),
        }
        status.write(self.folder / status.SKIPPED, skipped)
        log.info("skipped: %s has this result already", where)

    def _end(self, word: str) -> None:
        self.record |= {"status": word, "ended": status.now_ms()}
        self._write()

    def _write(self) -> None:
        assert self.folder is not None
        status.write(self.folder / status.STATUS, self.record)


def _why(error: BaseException) -> str:
    """The reason why a run ended, as text; an exit status beyond 128 stands for a signal."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    code = error.code if isinstance(error, SystemExit) else None
    if isinstance(code, int) and code - 128 in set(signal.Signals):
        return f"stopped by {signal.Signals(code - 128).name}"
    return str(error) or type(error).__name__
