"""The folder of a run while it runs: its status, and what the tracking store is told."""

from __future__ import annotations

import logging
import math
import os
import signal
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, Protocol

from zsl.errors import UserError, interruption
from zsl.runs import files, status
from zsl.runs.jobs import Jobs
from zsl.runs.result import NOT_RECORDED, Result

log = logging.getLogger(__name__)


class Tracker(Protocol):
    """What tells a tracking store about runs and sweeps; a store that fails costs a warning and never the run."""

    def about(self) -> dict[str, Any] | None:
        """What ``status.json`` keeps of the store, so that an upload can go on; None without a store."""
        ...

    def start(self, record: dict[str, Any], folder: Path) -> None:
        """A run begins; ``record`` is its ``status.json``, whose ``tracking`` may be changed."""
        ...

    def finish(self, record: dict[str, Any], folder: Path, config: Mapping[str, Any]) -> str | None:
        """The run's folder is complete; returns where to look at the run in the store."""
        ...

    def fail(self, record: dict[str, Any], folder: Path) -> None:
        """The run ended in an exception, which ``record`` describes."""
        ...

    def find(self, digest: str) -> tuple[str, dict[str, Any]] | None:
        """A finished run of this digest in the store: what to call it, and its ``results.json``."""
        ...

    def begin_sweep(self, about: dict[str, Any]) -> None:
        """A sweep begins; ``about`` is its ``sweep.json``."""
        ...

    def end_sweep(self, about: dict[str, Any], jobs: Jobs) -> None:
        """A sweep is over."""
        ...


class NoTracker:
    """The tracker of ``tracking=none``: results stay in the run folder."""

    def __init__(self, output_dir: str = "multirun") -> None:
        self.output_dir = output_dir

    def about(self) -> None:
        return None

    def start(self, record: dict[str, Any], folder: Path) -> None:
        pass

    def finish(self, record: dict[str, Any], folder: Path, config: Mapping[str, Any]) -> None:
        return None

    def fail(self, record: dict[str, Any], folder: Path) -> None:
        pass

    def find(self, digest: str) -> None:
        return None

    def begin_sweep(self, about: dict[str, Any]) -> None:
        about["complete"] = True

    def end_sweep(self, about: dict[str, Any], jobs: Jobs) -> None:
        pass


# The sweep that this process works for, and its tracker.
_sweep: dict[str, Any] = {}


def belongs_to(about: Mapping[str, Any], tracker: Tracker | None = None) -> None:
    """Runs that start from now on are jobs of this sweep (its ``sweep.json``); empty: of none."""
    _sweep.clear()
    _sweep.update(about)
    if about and tracker is not None:
        _sweep["tracker"] = tracker


@contextmanager
def run_folder(folder: Path | None) -> Iterator[RunFolder]:
    """The folder of a run; an exception inside becomes the run's status, FAILED or KILLED."""
    out = RunFolder(folder)
    try:
        yield out
    except BaseException as error:
        out.fail(interruption() or error)
        raise


class RunFolder:
    """The folder of one run; without a folder nothing is written.

    ``status.json`` holds the run's status (RUNNING, then FINISHED, FAILED or KILLED), digest, process, sweep, and what
    the tracking store knows of the run.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.digest = ""
        self.record: dict[str, Any] = {}
        self._sweep = dict(_sweep)
        self._tracker: Tracker = self._sweep.get("tracker", NoTracker())
        self._config: Mapping[str, Any] = {}

    def start(self, config: Mapping[str, Any], tracker: Tracker, digest: str, name: str) -> Result | None:
        """The run begins. With ``skip_existing``, a finished run of the same digest is returned, and nothing begins."""
        self.digest, self._config = digest, config
        if self.folder is None:
            return None
        self._tracker = tracker
        if config["skip_existing"]:
            found = self._existing()
            if found is not None:
                self._skip(*found)
                return found[1]
        # A sweep's jobs differ by more than a name can hold: their number tells them apart.
        self._begin(f"{name} #{self.folder.name}" if self.folder.name.isdigit() else name, digest)
        return None

    def finish(self, result: Result, fitted: Any, data: Any) -> None:
        """Write the run's files, tell the tracking store, and print the result."""
        result.digest = self.digest
        if self.folder is None:
            return
        files.write(result, fitted, data, self._config, self.folder)
        self._end(status.FINISHED)
        try:
            link = self._tracker.finish(self.record, self.folder, self._config)
        finally:
            self._write()  # how far the store came, so that an upload doubles nothing
        files.show(result, self.folder, link)

    def fail(self, error: BaseException) -> None:
        """The run ended in an exception; interruptions count as KILLED."""
        if self.folder is None or self.record.get("status") == status.FINISHED:
            return  # the record is complete
        if not self.record:
            if not self._sweep:
                return  # a mistake that was refused before anything began
            try:
                # Nothing is known of the run yet but where it is.
                self._begin(f"{self.folder.parent.name}/{self.folder.name}", None)
            except UserError as problem:  # tracking.on_error=raise; the first exception is the one to be seen
                log.warning("%s", problem)
        ended = status.FAILED if isinstance(error, Exception) else status.KILLED
        # A sentence is enough for what the user can put right; anything else needs its traceback.
        known = isinstance(error, UserError) or ended == status.KILLED
        self.record |= {"error": _why(error), "traceback": None if known else traceback.format_exc()}
        self._end(ended)
        self._tracker.fail(self.record, self.folder)
        self._write()

    def _begin(self, name: str, digest: str | None) -> None:
        assert self.folder is not None
        about = self._tracker.about()
        if about is not None and about["uri"] == self._sweep.get("uri"):
            about["parent"] = self._sweep.get("run_id")
        self.record = {
            "status": status.RUNNING,
            "name": name,
            "digest": digest,
            "started": status.now_ms(),
            "ended": None,
            "process": status.this_process(),
            "sweep": self._sweep.get("id"),
            "overrides": self._sweep.get("overrides"),
            "tracking": about,
        }
        self._write()
        self._tracker.start(self.record, self.folder)
        self._write()

    def _existing(self) -> tuple[str, Result] | None:
        """Where a finished run of this digest is, and its record; run folders first, then the tracking store."""
        found = status.find(Path(self._config["output_dir"]), self.digest)
        where, record = (
            (str(found), status.read(found / status.RESULTS))
            if found is not None
            else self._tracker.find(self.digest) or ("", {})
        )
        if not record:
            return None
        record["metrics"] = {k: math.nan if v is None else v for k, v in record["metrics"].items()}
        known = {f.name for f in fields(Result) if f.name not in NOT_RECORDED} & record.keys()
        return where, Result(**{k: record[k] for k in known})

    def _skip(self, where: str, result: Result) -> None:
        assert self.folder is not None
        skipped = {
            "digest": self.digest,
            # Relative, so that the path holds when the whole output folder is moved; or what the store calls the run.
            "record": os.path.relpath(where, self.folder) if Path(where).is_dir() else where,
            "sweep": self._sweep.get("id"),
            "metrics": dict(result.metrics),
            # A table finds the result under the cell that this job was for too.
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
    """What a run ended in, for people: an exit status beyond 128 stands for a signal."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    code = error.code if isinstance(error, SystemExit) else None
    if isinstance(code, int) and code - 128 in set(signal.Signals):
        return f"stopped by {signal.Signals(code - 128).name}"
    return str(error) or type(error).__name__
