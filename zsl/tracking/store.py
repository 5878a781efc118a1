"""The store: opening it, runs in it, and what MLflow accepts."""

from __future__ import annotations

import fcntl
import logging
import os
import re
import shlex
import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zsl.runs import status as records
from zsl.runs.model_file import MODEL
from zsl.tracking import view

# MLflow's limits: longer values would be cut (6000, tags 8000) or refused (250-character keys).
_MAX_VALUE, _MAX_TAG, _MAX_KEY = 6000, 8000, 250
_SQLITE = "sqlite:///"
# Files of a run folder that become artifacts; the fitted pipeline becomes a model instead.
_SUFFIXES = {".json", ".yaml", ".csv", ".npz", ".log"}
_NOT_ARTIFACTS = {records.STATUS, MODEL}


# Servers that did not answer: since when, and what was said. Finding out takes seconds, too many for every job.
_down: dict[str, tuple[float, str]] = {}
_PATIENCE = 60.0


def forget() -> None:
    """Servers that did not answer are asked again at once."""
    _down.clear()


@dataclass
class Store:
    """An experiment in a tracking store."""

    uri: str
    experiment: str
    """Its id"""
    client: Any

    @classmethod
    def open(cls, settings: Mapping[str, Any], output_dir: Path) -> Store:
        """The store that ``tracking.uri`` and ``tracking.experiment`` name; whatever MLflow raises passes through."""
        environment()
        address = str(settings["uri"])
        since, why = _down.get(address, (-_PATIENCE, ""))
        if time.monotonic() - since < _PATIENCE:
            raise ConnectionError(why)
        from mlflow import MlflowClient

        try:
            uri, experiment = open_store(settings, output_dir)
        except Exception as error:
            if address.startswith("http"):
                _down[address] = (time.monotonic(), str(error))
            raise
        return cls(uri, experiment, MlflowClient(tracking_uri=uri))

    def begin(self, name: str, tags: Mapping[str, str], *, started: int, parent: str | None = None) -> str:
        """A run that is RUNNING since ``started`` (ms since 1970); returns its id."""
        tags = {k: v[:_MAX_TAG] for k, v in tags.items()} | ({"mlflow.parentRunId": parent} if parent else {})
        run = self.client.create_run(self.experiment, start_time=started, tags=tags, run_name=name)
        return run.info.run_id

    def record(self, run: str, record: Mapping[str, Any], config: Mapping[str, Any], *, ended: int) -> None:
        """Metrics, curves and parameters of a run, in one batch; doing it twice changes nothing."""
        from mlflow.entities import Metric, Param, RunTag

        # One moment for all, so that an upload after half of one repeats the same rows.
        metrics = [Metric(clean(k), v, ended, 0) for k, v in record["metrics"].items() if v is not None]
        for curve, values in record.get("curves", {}).items():
            metrics += [Metric(clean(f"curve/{curve}"), v, ended, i) for i, v in enumerate(values) if v is not None]
        params = [Param(clean(k)[:_MAX_KEY], str(v)[:_MAX_VALUE]) for k, v in flatten(config).items()]
        key = record["key"]
        tags = {
            "zsl.content": str(key["dataset"]["content"]),
            "zsl.information_used": "; ".join(key["information_used"]),
            "zsl.selection": key["selection"],
        }
        self.client.log_batch(run, metrics, params, [RunTag(k, v[:_MAX_TAG]) for k, v in tags.items()])

    def artifacts(self, run: str, folder: Path) -> None:
        """The files of a run folder."""
        for path in sorted(folder.iterdir()):
            if path.is_file() and path.suffix in _SUFFIXES and path.name not in _NOT_ARTIFACTS:
                self.client.log_artifact(run, str(path))

    def tag(self, run: str, tags: Mapping[str, Any], metrics: Mapping[str, float] | None = None) -> None:
        """Set tags and metrics."""
        from mlflow.entities import Metric, RunTag

        now = records.now_ms()
        self.client.log_batch(
            run,
            [Metric(clean(k), float(v), now, 0) for k, v in (metrics or {}).items()],
            [],
            [RunTag(k, str(v)[:_MAX_TAG]) for k, v in tags.items()],
        )

    def end(self, run: str, status: str, *, ended: int | None = None) -> None:
        """Set a run's last status: FINISHED, FAILED or KILLED."""
        self.client.set_terminated(run, status, ended)

    def finished(self, digest: str) -> str | None:
        """The id of a FINISHED run with this digest, or None."""
        found = self.client.search_runs(
            [self.experiment], f"tags.`zsl.digest` = '{digest}' and attributes.status = 'FINISHED'", max_results=1
        )
        return found[0].info.run_id if found else None

    def page(self, run: str) -> str:
        """Where to look at a run."""
        page = f"/#/experiments/{self.experiment}/runs/{run}"
        if self.uri.startswith("http"):
            return self.uri + page
        # The Makefile's target opens the checkout's own store only.
        own = Path("Makefile").is_file() and self.uri == f"sqlite:///{Path('multirun').resolve() / 'mlflow.db'}"
        command = "make ui" if own else f"mlflow ui --backend-store-uri {shlex.quote(self.uri)}"
        return f"http://127.0.0.1:5000{page} (after `{command}`)"


def environment() -> None:
    """MLflow's own switches, unless the user set them; call it before MLflow is imported."""
    # No telemetry from research machines, and quick failure instead of minutes of retries against a dead server.
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "30")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")


def open_store(settings: Mapping[str, Any], output_dir: Path) -> tuple[str, str]:
    """The store's address and the id of the experiment in it, both created if absent.

    A fresh SQLite file is created under a lock: processes that create its tables at the same moment leave it broken
    for good. Once the experiment is there nobody waits for the lock any more. Write-ahead logging lets parallel jobs
    write without waiting for each other.
    """
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    _quiet()
    name = settings["experiment"]
    uri = settings["uri"]
    if uri is None:
        folder = output_dir.resolve()
        database = folder / "mlflow.db"
        uri = f"sqlite:///{database}"
    elif uri.startswith(_SQLITE):
        database = Path(uri.removeprefix(_SQLITE)).expanduser().resolve()
        folder = database.parent
        uri = f"sqlite:///{database}"
    else:
        client = MlflowClient(tracking_uri=uri)
        found = client.get_experiment_by_name(name)
        if found is None:
            try:
                return uri, client.create_experiment(name, tags=view.experiment_tags())
            except MlflowException:
                # Perhaps another job created it in between.
                found = client.get_experiment_by_name(name)
                if found is None:
                    raise
        return uri, found.experiment_id
    folder.mkdir(parents=True, exist_ok=True)
    # The experiment is created last, so what holds it is complete.
    ready = _experiment_in(database, name)
    if ready is not None:
        _write_ahead(database)
        return uri, ready
    with (folder / f".{database.stem}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        client = MlflowClient(tracking_uri=uri)
        found = client.get_experiment_by_name(name)
        # Every time, because whoever made the file may have been killed before this line; it costs nothing.
        _write_ahead(database)
        if found:
            for key, value in view.experiment_tags().items():
                client.set_experiment_tag(found.experiment_id, key, value)
            return uri, found.experiment_id
        return uri, client.create_experiment(
            name, artifact_location=(folder / "mlartifacts").as_uri(), tags=view.experiment_tags()
        )


def _experiment_in(database: Path, name: str) -> str | None:
    """The id of an experiment with our view in a complete database; None for anything else (MLflow then says why)."""
    if not database.is_file():
        return None
    try:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=30)) as connection:
            found = connection.execute(
                "select e.experiment_id from experiments e join experiment_tags t on t.experiment_id = e.experiment_id "
                "where e.name = ? and e.lifecycle_stage = 'active' and t.key = ?",
                (name, view.TAG),
            ).fetchone()
    except sqlite3.Error:
        return None
    return None if found is None else str(found[0])


def _write_ahead(database: Path) -> None:
    with closing(sqlite3.connect(database, timeout=30)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """``{"a": {"b": 1}}`` -> ``{"a.b": 1}``; lists stay whole."""
    out: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            out |= flatten(value, f"{prefix}{key}.")
        else:
            out[f"{prefix}{key}"] = value
    return out


def clean(key: str) -> str:
    """MLflow allows letters, digits and ``_ - . space : /`` in names."""
    return re.sub(r"[^\w\-. :/]", "_", key)


def _quiet() -> None:
    """Creating tables is announced by some thirty log lines, models by their own; none of them is news."""
    for logger in ("alembic", "mlflow.store.db.utils", "mlflow.pyfunc"):
        logging.getLogger(logger).setLevel(logging.WARNING)
