"""The tracker of ``tracking=mlflow``: one MLflow run per job, and one above the jobs of a sweep."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from zsl.checks import check_arguments
from zsl.config.credentials import masked, taken
from zsl.errors import UserError, reason
from zsl.runs import status as records
from zsl.runs.folder import Tracker
from zsl.runs.jobs import Jobs
from zsl.tracking.store import Store, ask, keep_silent, open_store, silent

log = logging.getLogger(__name__)
T = TypeVar("T")


class MLflowTracker(Tracker):
    """Records runs and sweeps in an MLflow store.

    A store that fails costs a warning, or raises (``on_error``); results stay in the folder, and
    ``zsl tracking upload`` sends it later.

    Parameters
    ----------
    uri : str, optional
        The store: ``http://HOST:PORT`` or ``sqlite:///FILE``; ``None``: ``mlflow.db`` in ``output_dir``.
    experiment : str
        The name of MLflow's experiment.
    on_error : "warn" or "raise"
        What happens when the store cannot be written.
    artifacts : "all", "light" or "none"
        What the store gets besides parameters, metrics and tags. ``"light"``: the small files (JSON, YAML, CSV, PNG and
        logs). ``"all"``: the rest of the folder too, with the fitted classifier as a model that ``mlflow models serve``
        answers for. In a store on the same file system they are hard links to the files of the run folder.
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
        artifacts: Literal["all", "light", "none"] = "all",
        register: str | None = None,
        best: str = "acc_class",
        output_dir: str = "multirun",
    ) -> None:
        given = {"uri": uri, "experiment": experiment, "on_error": on_error, "artifacts": artifacts,
                 "register": register, "best": best, "output_dir": output_dir}  # fmt: skip
        check_arguments(MLflowTracker, given, prefix="tracking.")
        super().__init__(output_dir)
        self.uri, self.experiment, self.on_error = uri and taken(uri), experiment, on_error
        self.artifacts, self.register, self.best = artifacts, register, best

    def destination(self) -> dict[str, Any]:
        """What ``status.json`` and ``sweep.json`` keep of the store, so that an upload can go on."""
        keep = {name: getattr(self, name) for name in ("uri", "experiment", "artifacts", "register")}
        return {**keep, "run_id": None, "parent": None, "model_logged": False, "complete": False}

    def open(self) -> Store:
        """Open the store; whatever MLflow raises passes through."""
        return open_store({"uri": self.uri, "experiment": self.experiment}, Path(self.output_dir))

    def start(self, record: dict[str, Any], folder: Path) -> None:
        self._ask(lambda store: store.begin(record, folder), "the run goes on", strict=True)

    def finish(self, record: dict[str, Any], folder: Path, config: Mapping[str, Any]) -> str | None:
        def send(store: Store) -> str:
            run = store.begin(record, folder)  # where the store failed when the run started
            store.send(record, folder, config, tuple(config["allow_targets"]))
            return store.page(run)

        later = f"upload it later: zsl tracking upload {folder}"
        return self._ask(send, f"the run is complete in {folder}", later, strict=True)

    def fail(self, record: dict[str, Any], folder: Path) -> None:
        if record["tracking"]["run_id"] is not None:
            later = f"later: zsl tracking upload {folder}"
            self._ask(lambda store: store.close(record, folder), "the run has ended", later)

    def find(self, digest: str) -> tuple[str, dict[str, Any]] | None:
        def look(store: Store) -> tuple[str, dict[str, Any]] | None:
            for found in store.find("zsl.digest", digest, "attributes.status = 'FINISHED'"):
                run = found.info.run_id
                if records.RESULTS not in {file.path for file in store.client.list_artifacts(run)}:
                    continue  # it was sent with tracking.artifacts=none
                with tempfile.TemporaryDirectory() as folder:
                    record = records.read(Path(store.client.download_artifacts(run, records.RESULTS, folder)))
                return (f"MLflow run {run} in {store.uri}", record) if record else None
            return None

        return self._ask(look, "skip_existing looked into run folders")

    def begin_sweep(self, sweep: dict[str, Any]) -> None:
        self._ask(lambda store: store.begin_sweep(sweep), "the sweep goes on")
        sweep["silent"] = silent(self.uri, Path(self.output_dir))

    def belongs_to(self, sweep: Mapping[str, Any]) -> None:
        if sweep.get("silent"):
            keep_silent(self.uri, Path(self.output_dir), sweep["silent"])

    def end_sweep(self, sweep: dict[str, Any], jobs: Jobs) -> None:
        self._ask(lambda store: store.end_sweep(sweep, jobs), "the sweep is over")
        if not sweep["tracking"]["complete"]:
            jobs.waiting = jobs.waiting or [Path(sweep["folder"])]

    def _ask(self, work: Callable[[Store], T], fact: str, remedy: str = "", *, strict: bool = False) -> T | None:
        """Do work with the store; what it raises becomes a warning, or a UserError if ``strict`` and ``on_error``."""
        try:
            return ask(self.open(), work)
        except Exception as error:
            # The store, its driver and the network raise all kinds of exceptions.
            message = f"{fact}, but tracking failed: {one_line(error)}" + (f"; {remedy}" if remedy else "")
            if strict and self.on_error == "raise":
                raise UserError(message) from error
            log.warning("%s", message)
            return None


def one_line(error: BaseException) -> str:
    """An exception in a line of bounded length, without logins."""
    text = reason(error) if isinstance(error, OSError) and error.filename else str(error)
    # A driver's first line says what happened, and its next ones quote the statement.
    text = text.partition("[SQL:")[0].partition("(Background on")[0]
    return masked(" ".join(text.split()))[:300] or type(error).__name__
