"""One run from its start to its end: its status in its folder first, then in the store."""

from __future__ import annotations

import logging
import os
import signal
import tempfile
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zsl.errors import UserError
from zsl.runs import status as records
from zsl.tracking.store import Store

log = logging.getLogger(__name__)

# The sweep that this process works for: set by zsl.experiment.sweep before each job.
_sweep: dict[str, Any] = {}


def belongs_to(sweep: Mapping[str, Any]) -> None:
    """Runs that start from now on are jobs of this sweep (its ``sweep.json``); empty: of none."""
    _sweep.clear()
    _sweep.update(sweep)


class Session:
    """What a run's folder and the store say about it while it runs.

    ``status.json`` holds its status (RUNNING, then FINISHED, FAILED or KILLED), digest, process, sweep, and what the
    store knows of it. A store that fails costs a warning and never the run; with ``tracking.on_error=raise`` a
    UserError.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.status: dict[str, Any] = {}
        self._store: Store | None = None
        self._sweep = dict(_sweep)
        self._tracking: Mapping[str, Any] = self._sweep.get("settings", {"name": "none"})
        self._output_dir = Path(self._sweep.get("output_dir", "."))

    def start(self, plain: Mapping[str, Any], digest: str, key: Mapping[str, Any]) -> None:
        """The run begins: ``plain`` is its resolved configuration, ``key`` the data's."""
        self._tracking, self._output_dir = plain["tracking"], Path(plain["output_dir"])
        self._begin(run_name(plain, key.get("split", {}).get("name"), self.folder), digest)

    def _begin(self, name: str, digest: str | None) -> None:
        self.status = {
            "status": records.RUNNING,
            "name": name,
            "digest": digest,
            "started": records.now_ms(),
            "ended": None,
            "process": records.this_process(),
            "sweep": self._sweep.get("id"),
            "overrides": self._sweep.get("overrides"),
            "tracking": None,
        }
        tracked = self._tracking["name"] != "none"
        if tracked:
            keep = {k: self._tracking.get(k) for k in ("uri", "experiment", "model", "register")}
            keep["output_dir"] = str(self._output_dir.resolve())
            parent = self._sweep.get("run_id") if self._tracking.get("uri") == self._sweep.get("uri") else None
            self.status["tracking"] = {**keep, "run_id": None, "parent": parent, "complete": False}
        self._write()
        if tracked:
            self._try(self._create, "the run goes on, but tracking failed")

    def _create(self) -> None:
        about = self.status["tracking"]
        self._store = self._store or Store.open(self._tracking, self._output_dir)
        if about["run_id"] is None:
            about["run_id"] = self._store.begin(
                self.status["name"], tags(self.status, self.folder), started=self.status["started"],
                parent=about["parent"],
            )  # fmt: skip
            self._write()

    def finish(self, plain: Mapping[str, Any]) -> str | None:
        """The folder is complete; tell the store. Returns where to look at the run, if that succeeded."""
        self._end(records.FINISHED)
        if self._tracking["name"] == "none":
            return None
        done = self._try(
            lambda: self._send(plain),
            f"the run is complete in {self.folder}, but tracking failed",
            f"upload it later: python -m zsl.tracking upload {self.folder}",
        )
        if not done:
            return None
        assert self._store is not None
        return self._store.page(self.status["tracking"]["run_id"])

    def _send(self, plain: Mapping[str, Any]) -> None:
        self._create()
        assert self._store is not None
        try:
            send(self._store, self.status, self.folder, plain)
        finally:
            self._write()  # how far it came, so that an upload doubles nothing

    def fail(self, error: BaseException) -> None:
        """The run ended in an exception; interruptions count as KILLED."""
        if self.status.get("status") == records.FINISHED or (not self.status and not self._sweep):
            return  # its record is complete; or a mistake that was refused before anything began
        if not self.status:
            try:
                # Nothing is known of it yet but where it is.
                self._begin(f"{self.folder.parent.name}/{self.folder.name}", None)
            except UserError as problem:  # tracking.on_error=raise; the first exception is the one to be seen
                log.warning("%s", problem)
        status = records.FAILED if isinstance(error, Exception) else records.KILLED
        # What is known is enough for what the user can put right; anything else needs its traceback.
        known = isinstance(error, UserError) or status == records.KILLED
        self.status["error"] = _why(error)
        self.status["traceback"] = None if known else traceback.format_exc()
        self._end(status)
        if self._tracking["name"] == "none" or self.status["tracking"]["run_id"] is None:
            return

        def tell() -> None:
            assert self._store is not None
            run = self.status["tracking"]["run_id"]
            close(self._store, run, self.status, self.folder)
            self.status["tracking"]["complete"] = True
            self._write()

        try:
            tell()
        except Exception as problem:
            # The first exception is the one to be seen; `python -m zsl.tracking repair` puts the store right.
            log.warning("tracking failed: %s", one_line(problem))

    def skip(self, found: str, digest: str, metrics: Mapping[str, Any], cell: Mapping[str, Any]) -> None:
        """The run has been done before: ``found`` says where, ``metrics`` what came out, ``cell`` what it was for."""
        record = {
            "digest": digest,
            # From here, so that it holds when the whole output folder is moved; or what the store calls it.
            "record": os.path.relpath(found, self.folder) if Path(found).is_dir() else found,
            "sweep": self._sweep.get("id"),
            "metrics": dict(metrics),
            **cell,
        }
        records.write(self.folder / records.SKIPPED, record)
        log.info("skipped: %s has this result already", found)

    def _end(self, status: str) -> None:
        self.status |= {"status": status, "ended": records.now_ms()}
        self._write()

    def _write(self) -> None:
        records.write(self.folder / records.STATUS, self.status)

    def _try(self, what: Any, fact: str, remedy: str = "") -> bool:
        try:
            what()
        except Exception as error:
            # Whatever the store, its driver or the network raises: the result is safe in its folder.
            message = f"{fact}: {one_line(error)}" + (f"; {remedy}" if remedy else "")
            if self._tracking["on_error"] == "raise":
                raise UserError(message) from error
            log.warning("%s", message)
            return False
        return True


def send(store: Store, status: dict[str, Any], folder: Path, config: Mapping[str, Any]) -> None:
    """All that a finished run's folder holds, to a run that ``store`` has already; then its status is FINISHED."""
    about = status["tracking"]
    run = about["run_id"]
    if about.get("model", True) and (folder / "model.npz").is_file() and not about.get("model_logged"):
        from zsl.tracking.models import log_model

        # Before there are metrics, which MLflow would copy to the model one query at a time.
        log_model(store.uri, run, folder, register=about.get("register"))
        about["model_logged"] = True
    store.record(run, records.read(folder / records.RESULTS), config, ended=status["ended"])
    store.artifacts(run, folder)
    store.end(run, records.FINISHED, ended=status["ended"])
    about["complete"] = True


def close(store: Store, run: str, status: Mapping[str, Any], folder: Path) -> None:
    """End a run that did not finish: why, its log, and its status."""
    store.tag(run, {"zsl.error": status.get("error") or status["status"]})
    if status.get("traceback"):
        store.client.log_text(run, status["traceback"], "traceback.txt")
    for path in sorted(folder.glob("*.log")) if folder.is_dir() else ():
        store.client.log_artifact(run, str(path))
    store.end(run, status["status"], ended=status.get("ended"))


def _why(error: BaseException) -> str:
    """What a run ended in, for people: an exit status beyond 128 stands for a signal."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    code = error.code if isinstance(error, SystemExit) else None
    if isinstance(code, int) and code - 128 in set(signal.Signals):
        return f"stopped by {signal.Signals(code - 128).name}"
    return str(error) or type(error).__name__


def tags(status: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """What identifies a run in the store."""
    process = status["process"]
    found = {
        "zsl.kind": "run",
        "zsl.folder": str(folder.resolve()),
        "zsl.digest": status.get("digest") or "",
        "zsl.overrides": " ".join(status.get("overrides") or ()),
        "zsl.process": f"{process['host']}/{process['pid']}/{process['started']}",
    }
    return {k: v for k, v in found.items() if v}


def run_name(plain: Mapping[str, Any], split: str | None, folder: Path) -> str:
    """Model, rules, dataset, split, seed, and the job's number in its sweep: what differs most comes first."""
    from zsl.inference.prediction import stage_name

    model = plain["model"].get("name", plain["model"].get("_target_", "model").rpartition(".")[2])
    rules = stage_name(plain["inference"]["attributes"], plain["inference"]["labels"]).removeprefix("auto_")
    # The seed of a split that was drawn; a dataset's own may have replaced it.
    drawn = plain["split"].get("seed") if split in (None, plain["split"]["name"]) else None
    where = f"{plain['dataset']['name']} {split or plain['split']['name']}{'' if drawn is None else f' {drawn}'}"
    name = f"{model} {rules} {where} seed {plain['seed']}"
    # A sweep's jobs differ by more than a name can hold: their number tells them apart.
    return f"{name} #{folder.name}" if folder.name.isdigit() else name


def finished_elsewhere(plain: Mapping[str, Any], digest: str) -> tuple[str, dict[str, Any]] | None:
    """A FINISHED run of this digest in the store: what to call it, and its ``results.json``. None without one."""
    if plain["tracking"]["name"] == "none":
        return None
    try:
        store = Store.open(plain["tracking"], Path(plain["output_dir"]))
        run = store.finished(digest)
        if run is None:
            return None
        with tempfile.TemporaryDirectory() as folder:
            record = records.read(Path(store.client.download_artifacts(run, records.RESULTS, folder)))
    except Exception as error:
        log.warning("skip_existing looked into run folders only: %s", one_line(error))
        return None
    return (f"MLflow run {run} in {store.uri}", record) if record else None


def one_line(error: BaseException) -> str:
    """An exception in a line of bounded length."""
    return " ".join(str(error).split())[:300] or type(error).__name__
