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
from zsl.runs.jobs import Jobs
from zsl.tracking.store import Store, open_store

log = logging.getLogger(__name__)


class MLflowTracker:
    """Records runs and sweeps in an MLflow store.

    A store that fails costs a warning and never the run: the result is safe in the run folder, and
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

    def destination(self) -> dict[str, Any]:
        """What ``status.json`` and ``sweep.json`` keep of the store, so that an upload can go on."""
        keep = {name: getattr(self, name) for name in ("uri", "experiment", "model", "register")}
        return {**keep, "run_id": None, "parent": None, "model_logged": False, "complete": False}

    def open(self) -> Store:
        """Open the store; whatever MLflow raises passes through."""
        return open_store({"uri": self.uri, "experiment": self.experiment}, Path(self.output_dir))

    def start(self, record: dict[str, Any], folder: Path) -> None:
        """Create the run in the store."""
        self._try(lambda: self.open().begin(record, folder), "the run goes on, but tracking failed")

    def finish(self, record: dict[str, Any], folder: Path, config: Mapping[str, Any]) -> str | None:
        """Send what the folder holds; returns the address of the run's page, if that succeeded."""

        def send() -> str:
            store = self.open()
            store.begin(record, folder)  # where the store failed when the run started
            store.send(record, folder, config)
            return store.page(record["tracking"]["run_id"])

        return self._try(
            send,
            f"the run is complete in {folder}, but tracking failed",
            f"; upload it later: python -m zsl.tracking upload {folder}",
        )

    def fail(self, record: dict[str, Any], folder: Path) -> None:
        """End the run in the store with the reason why it failed."""
        if record["tracking"]["run_id"] is None:
            return
        try:
            self.open().close(record, folder)
        except Exception as problem:
            # The exception that ended the run must not be hidden by this one.
            log.warning("tracking failed: %s; later: python -m zsl.tracking upload %s", one_line(problem), folder)

    def find(self, digest: str) -> tuple[str, dict[str, Any]] | None:
        """Find a finished run of this digest: a name for it, and its ``results.json``."""
        try:
            store = self.open()
            found = store.find("zsl.digest", digest, "attributes.status = 'FINISHED'")
            if not found:
                return None
            run = found[0].info.run_id
            with tempfile.TemporaryDirectory() as folder:
                record = records.read(Path(store.client.download_artifacts(run, records.RESULTS, folder)))
        except Exception as error:
            log.warning("skip_existing looked into run folders only, since tracking failed: %s", one_line(error))
            return None
        return (f"MLflow run {run} in {store.uri}", record) if record else None

    def begin_sweep(self, sweep: dict[str, Any]) -> None:
        """Create the run above the jobs of a sweep; without a store the sweep goes on."""
        try:
            self.open().begin_sweep(sweep)
        except Exception as error:
            log.warning("the sweep goes on, but tracking failed: %s", one_line(error))

    def end_sweep(self, sweep: dict[str, Any], jobs: Jobs) -> None:
        """Send the counts, the best job and the status to the run above the jobs."""
        try:
            self.open().end_sweep(sweep, jobs)
        except Exception as error:
            log.warning("tracking failed: %s", one_line(error))
            jobs.waiting = jobs.waiting or [Path(sweep["folder"])]

    def _try(self, what: Callable[[], str], fact: str, remedy: str = "") -> str | None:
        try:
            return what()
        except Exception as error:
            # The store, its driver and the network raise all kinds of exceptions.
            message = f"{fact}: {one_line(error)}{remedy}"
            if self.on_error == "raise":
                raise UserError(message) from error
            log.warning("%s", message)
            return None


def one_line(error: BaseException) -> str:
    """An exception in a line of bounded length."""
    return " ".join(str(error).split())[:300] or type(error).__name__
