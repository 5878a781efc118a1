"""The tracker of ``tracking=mlflow``: one MLflow run per job, and one above the jobs of a sweep."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from zsl.checks import check_arguments
from zsl.errors import UserError
from zsl.runs import status as records
from zsl.runs.jobs import Jobs, how_chosen
from zsl.runs.model_file import MODEL
from zsl.tracking.store import Store

log = logging.getLogger(__name__)


class MLflowTracker:
    """Tells an MLflow store about runs and sweeps.

    A store that fails costs a warning and never the run: its result is safe in the run folder, and
    ``python -m zsl.tracking upload`` sends it later.

    Parameters
    ----------
    uri : str, optional
        The store: ``http://HOST:PORT`` or ``sqlite:///FILE``; ``None``: ``mlflow.db`` in ``output_dir``.
    experiment : str
        The name of MLflow's experiment.
    on_error : "warn" or "raise"
        What happens when the store cannot be written.
    model : bool
        Log the fitted classifier as a model that ``mlflow models serve`` answers for.
    register : str, optional
        The model becomes a new version of this name in the registry.
    best : str
        The metric by which a sweep names its best run.
    output_dir : str
        The folder of all output.
    """

    def __init__(
        self,
        uri: str | None = None,
        experiment: str = "zsl",
        on_error: Literal["warn", "raise"] = "warn",
        model: bool = True,
        register: str | None = None,
        best: str = "acc_class",
        output_dir: str = "multirun",
    ) -> None:
        check_arguments(MLflowTracker, {k: v for k, v in locals().items() if k != "self"}, prefix="tracking.")
        self.uri, self.experiment, self.on_error, self.best = uri, experiment, on_error, best
        self.model, self.register, self.output_dir = model, register, output_dir

    def about(self) -> dict[str, Any]:
        """What ``status.json`` keeps of the store, so that an upload can go on."""
        keep = {name: getattr(self, name) for name in ("uri", "experiment", "model", "register")}
        folder = str(Path(self.output_dir).resolve())
        return {**keep, "output_dir": folder, "run_id": None, "parent": None, "complete": False}

    def open(self) -> Store:
        """The store; whatever MLflow raises passes through."""
        return Store.open({"uri": self.uri, "experiment": self.experiment}, Path(self.output_dir))

    def start(self, record: dict[str, Any], folder: Path) -> None:
        """Create the run in the store."""
        self._try(lambda: self._create(record, folder), "the run goes on, but tracking failed")

    def finish(self, record: dict[str, Any], folder: Path, config: Mapping[str, Any]) -> str | None:
        """Send what the folder holds; returns where to look at the run, if that succeeded."""
        done = self._try(
            lambda: self._send(record, folder, config),
            f"the run is complete in {folder}, but tracking failed",
            f"upload it later: python -m zsl.tracking upload {folder}",
        )
        return self.open().page(record["tracking"]["run_id"]) if done else None

    def fail(self, record: dict[str, Any], folder: Path) -> None:
        """End the run in the store with its reason."""
        run = record["tracking"]["run_id"]
        if run is None:
            return
        try:
            close(self.open(), run, record, folder)
            record["tracking"]["complete"] = True
        except Exception as problem:
            # The run's own exception is the one to be seen; `python -m zsl.tracking repair` puts the store right.
            log.warning("tracking failed: %s", one_line(problem))

    def find(self, digest: str) -> tuple[str, dict[str, Any]] | None:
        """A finished run of this digest: what to call it, and its ``results.json``."""
        try:
            store = self.open()
            run = store.finished(digest)
            if run is None:
                return None
            with tempfile.TemporaryDirectory() as folder:
                record = records.read(Path(store.client.download_artifacts(run, records.RESULTS, folder)))
        except Exception as error:
            log.warning("skip_existing looked into run folders only: %s", one_line(error))
            return None
        return (f"MLflow run {run} in {store.uri}", record) if record else None

    def begin_sweep(self, about: dict[str, Any]) -> None:
        """Open the run above a sweep's jobs; without a store the sweep goes on."""
        try:
            about["run_id"] = create(self.open(), about)
        except Exception as error:
            log.warning("the sweep goes on, but tracking failed: %s", one_line(error))

    def end_sweep(self, about: dict[str, Any], jobs: Jobs) -> None:
        """Counts, the best job and the status to the run above the jobs."""
        try:
            tell(self.open(), about, jobs)
        except Exception as problem:
            log.warning("tracking failed: %s", one_line(problem))
            jobs.waiting = jobs.waiting or [Path(about["folder"])]

    def _create(self, record: dict[str, Any], folder: Path) -> Store:
        about, store = record["tracking"], self.open()
        if about["run_id"] is None:
            about["run_id"] = store.begin(
                record["name"], tags(record, folder), started=record["started"], parent=about["parent"]
            )
        return store

    def _send(self, record: dict[str, Any], folder: Path, config: Mapping[str, Any]) -> None:
        send(self._create(record, folder), record, folder, config)

    def _try(self, what: Callable[[], Any], fact: str, remedy: str = "") -> bool:
        try:
            what()
        except Exception as error:
            # Whatever the store, its driver or the network raises: the result is safe in its folder.
            message = f"{fact}: {one_line(error)}" + (f"; {remedy}" if remedy else "")
            if self.on_error == "raise":
                raise UserError(message) from error
            log.warning("%s", message)
            return False
        return True


def send(store: Store, status: dict[str, Any], folder: Path, config: Mapping[str, Any]) -> None:
    """All that a finished run's folder holds, to a run that ``store`` has already; then its status is FINISHED."""
    about = status["tracking"]
    run = about["run_id"]
    if about.get("model", True) and (folder / MODEL).is_file() and not about.get("model_logged"):
        from zsl.tracking.models import log_model

        # Before there are metrics, which MLflow would copy to the model one query at a time.
        log_model(store.uri, run, folder, register=about.get("register"), allow=tuple(config.get("allow_targets", ())))
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


def one_line(error: BaseException) -> str:
    """An exception in a line of bounded length."""
    return " ".join(str(error).split())[:300] or type(error).__name__


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
