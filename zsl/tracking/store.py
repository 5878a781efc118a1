"""An experiment in a tracking store: opening it, and the runs in it."""

from __future__ import annotations

import logging
import os
import re
import shlex
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zsl.runs import status as records
from zsl.runs.jobs import Jobs, how_chosen
from zsl.runs.model_file import MODEL
from zsl.tracking import view

# MLflow's limits: longer values would be cut (6000, tags 8000) or refused (250-character keys).
_MAX_VALUE, _MAX_TAG, _MAX_KEY = 6000, 8000, 250
_SQLITE = "sqlite:///"
# Files of a run folder that become artifacts. The fitted classifier becomes a model instead.
_SUFFIXES = {".json", ".yaml", ".csv", ".npz", ".log"}
_NOT_ARTIFACTS = {records.STATUS, MODEL}

_opened: dict[tuple[str, str], Store] = {}
# Servers that did not answer: since when, and why. Asking one takes seconds, too many for every job of a sweep.
_down: dict[str, tuple[float, str]] = {}
_PATIENCE_S = 60.0


@dataclass
class Store:
    """An experiment in a tracking store; every method raises what MLflow raises."""

    uri: str
    experiment: str
    """MLflow's id of the experiment"""
    client: Any

    # --- runs -----------------------------------------------------------------------------------------------

    def begin(self, record: dict[str, Any], folder: Path) -> str:
        """Create the run of a ``status.json``, unless the store has it; returns its id."""
        tags = {
            "zsl.kind": "run",
            "zsl.folder": str(folder.resolve()),
            "zsl.digest": record.get("digest") or "",
            "zsl.overrides": " ".join(record.get("overrides") or ()),
        }
        return self._create(record, tags)

    def send(self, record: dict[str, Any], folder: Path, config: Mapping[str, Any]) -> None:
        """Send everything that the folder of a finished run holds; sending it twice changes nothing."""
        from mlflow.entities import Metric, Param, RunTag

        tracking, ended = record["tracking"], record["ended"]
        run = tracking["run_id"]
        if tracking["model"] and (folder / MODEL).is_file() and not tracking["model_logged"]:
            from zsl.tracking.models import log_model

            # The model comes before the metrics, which MLflow would copy to it one query at a time.
            log_model(self.uri, run, folder, register=tracking["register"], allow=tuple(config["allow_targets"]))
            tracking["model_logged"] = True
        result = records.read(folder / records.RESULTS)
        key = result["key"]
        # All metrics have the same time, so that an upload after half of one repeats the same rows.
        metrics = [Metric(clean(k), v, ended, 0) for k, v in result["metrics"].items() if v is not None]
        for curve, values in result.get("curves", {}).items():
            metrics += [Metric(clean(f"curve/{curve}"), v, ended, i) for i, v in enumerate(values) if v is not None]
        params = [Param(clean(k)[:_MAX_KEY], str(v)[:_MAX_VALUE]) for k, v in flatten(config).items()]
        tags = {
            "zsl.content": str(key["dataset"]["content"]),
            "zsl.information_used": "; ".join(key["information_used"]),
            "zsl.selection": key["selection"],
        }
        if result.get("warnings"):
            tags["zsl.warnings"] = f"{len(result['warnings'])}: " + " ".join(result["warnings"])
        self.client.log_batch(run, metrics, params, [RunTag(k, v[:_MAX_TAG]) for k, v in tags.items()])
        for path in sorted(folder.iterdir()):
            wanted = path.suffix in _SUFFIXES and path.name not in _NOT_ARTIFACTS and not path.name.startswith(".")
            if wanted and path.is_file():
                self.client.log_artifact(run, str(path))
        self.client.set_terminated(run, records.FINISHED, ended)
        tracking["complete"] = True

    def close(self, record: dict[str, Any], folder: Path) -> None:
        """End a run that did not finish: send its status, the reason and its log."""
        run = record["tracking"]["run_id"]
        self.client.set_tag(run, "zsl.error", str(record.get("error") or record["status"])[:_MAX_TAG])
        if record.get("traceback"):
            self.client.log_text(run, record["traceback"], "traceback.txt")
        for path in sorted(folder.glob("*.log")):
            self.client.log_artifact(run, str(path))
        self.client.set_terminated(run, record["status"], record.get("ended"))
        record["tracking"]["complete"] = True

    # --- sweeps ---------------------------------------------------------------------------------------------

    def begin_sweep(self, sweep: dict[str, Any]) -> str:
        """Create the run above the jobs of a ``sweep.json``, unless the store has it; returns its id."""
        tags = {
            "zsl.kind": "sweep",
            "zsl.folder": sweep["folder"],
            "zsl.sweep": sweep["id"],
            "zsl.swept": ", ".join(sweep["swept"]),
        }
        return self._create(sweep, tags)

    def end_sweep(self, sweep: dict[str, Any], jobs: Jobs) -> None:
        """Send the counts, the best job and the status of a sweep, and the status of jobs that were killed."""
        from mlflow.entities import Metric, RunTag

        run = self.begin_sweep(sweep)
        for folder in jobs.by_status.get(records.KILLED, ()):
            record = jobs.records[folder]
            tracking = record["tracking"] or {"run_id": None}
            if tracking["run_id"] and not tracking["complete"] and tracking["uri"] == sweep["tracking"]["uri"]:
                self.close(record, folder)
                records.write(folder / records.STATUS, record)
                jobs.waiting.remove(folder)
        counts = {"jobs": float(sweep["jobs"] or jobs.total)}
        for status in (records.FINISHED, "SKIPPED", records.FAILED, records.KILLED, records.RUNNING):
            counts[status.lower()] = jobs.count(status)
        tags = {"zsl.launcher": sweep["launcher"].get("_target_"), "zsl.error": sweep.get("error")}
        metric = sweep["best"]
        best = jobs.best(metric)
        if best is not None:
            counts[f"best/{metric}"] = jobs.metrics[best][metric]
            record = jobs.records[best]
            tags |= {
                "zsl.best_by": f"{metric} ({how_chosen(metric)})",
                "zsl.best_folder": str(best),
                "zsl.best_overrides": " ".join(record.get("overrides") or ()),
                "zsl.best_run": (record.get("tracking") or {}).get("run_id"),
            }
        now = records.now_ms()
        metrics = [Metric(clean(k), float(v), now, 0) for k, v in counts.items()]
        self.client.log_batch(run, metrics, [], [RunTag(k, str(v)[:_MAX_TAG]) for k, v in tags.items() if v])
        self.client.set_terminated(run, sweep["status"], sweep["ended"])
        sweep["tracking"]["complete"] = True

    def _create(self, record: dict[str, Any], tags: dict[str, str]) -> str:
        from mlflow.exceptions import MlflowException

        tracking, process = record["tracking"], record["process"]
        if tracking["run_id"] is not None:
            try:
                self.client.get_run(tracking["run_id"])
                return tracking["run_id"]
            except MlflowException as error:
                if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                    raise
        tags["zsl.process"] = f"{process['host']}/{process['pid']}/{process['started']}"
        tags["mlflow.parentRunId"] = tracking["parent"] or ""
        run = self.client.create_run(
            self.experiment,
            start_time=record["started"],
            tags={k: v[:_MAX_TAG] for k, v in tags.items() if v},
            run_name=record["name"],
        )
        tracking["run_id"] = run.info.run_id
        return tracking["run_id"]

    # --- looking up -----------------------------------------------------------------------------------------

    def find(self, tag: str, value: str, *conditions: str) -> list[Any]:
        """The runs whose tag has a value and that fulfil MLflow's conditions."""
        return list(
            self.client.search_runs(
                [self.experiment], " and ".join([f"tags.`{tag}` = '{value}'", *conditions]), max_results=1000
            )
        )

    def page(self, run: str) -> str:
        """The address of a run's page, and the command that shows it."""
        page = f"/#/experiments/{self.experiment}/runs/{run}"
        if self.uri.startswith("http"):
            return self.uri + page
        # `make ui` shows the store of the checkout and no other.
        own = Path("Makefile").is_file() and self.uri == f"{_SQLITE}{Path('multirun').resolve() / 'mlflow.db'}"
        command = "make ui" if own else f"mlflow ui --backend-store-uri {shlex.quote(self.uri)}"
        return f"http://127.0.0.1:5000{page} (after `{command}`)"


def open_store(tracking: Mapping[str, Any], output_dir: Path) -> Store:
    """Open the store and the experiment in it, and create both if they are absent.

    Parameters
    ----------
    tracking : mapping
        ``uri`` (None: the file ``mlflow.db`` in ``output_dir``) and ``experiment``, the experiment's name.

    Raises
    ------
    ConnectionError
        If a server failed to answer less than a minute ago.
    Exception
        Whatever MLflow, a database or the network raises.
    """
    uri, name = tracking["uri"] or f"{_SQLITE}{output_dir / 'mlflow.db'}", tracking["experiment"]
    if uri.startswith(_SQLITE):
        uri = f"{_SQLITE}{Path(uri.removeprefix(_SQLITE)).expanduser().resolve()}"
    if (uri, name) in _opened:
        return _opened[uri, name]
    since, why = _down.get(uri, (-_PATIENCE_S, ""))
    if time.monotonic() - since < _PATIENCE_S:
        raise ConnectionError(why)
    try:
        _opened[uri, name] = _connect(uri, name)
    except Exception as error:
        if uri.startswith("http"):
            _down[uri] = (time.monotonic(), str(error))
        raise
    return _opened[uri, name]


def forget() -> None:
    """Forget which stores are open and which servers did not answer."""
    _opened.clear()
    _down.clear()


def _connect(uri: str, name: str) -> Store:
    # MLflow reads these when it is imported. It sends nothing about research machines to its makers, and a server that
    # is down costs seconds, not minutes.
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "30")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
    from mlflow import MlflowClient

    # These report every table that is created and every model that is saved.
    for logger in ("alembic", "mlflow.store.db.utils", "mlflow.pyfunc"):
        logging.getLogger(logger).setLevel(logging.WARNING)
    if not uri.startswith(_SQLITE):
        client = MlflowClient(tracking_uri=uri)
        return Store(uri, _experiment(client, name), client)
    database = Path(uri.removeprefix(_SQLITE))
    database.parent.mkdir(parents=True, exist_ok=True)
    # Processes that create the tables of one file at the same moment leave it broken for good.
    with _lock(database.with_name(f".{database.stem}.lock")):
        client = MlflowClient(tracking_uri=uri)
        store = Store(uri, _experiment(client, name, (database.parent / "mlartifacts").as_uri()), client)
        with closing(sqlite3.connect(database, timeout=30)) as connection:
            # Write-ahead logging lets parallel jobs write without waiting for each other.
            connection.execute("PRAGMA journal_mode=WAL")
    return store


def _experiment(client: Any, name: str, artifacts: str | None = None) -> str:
    """The id of the experiment, which is created if it is absent."""
    from mlflow.exceptions import MlflowException

    found = client.get_experiment_by_name(name)
    if found is None:
        try:
            return client.create_experiment(name, artifact_location=artifacts, tags=view.experiment_tags())
        except MlflowException:
            found = client.get_experiment_by_name(name)
            if found is None:  # else another job has created it meanwhile
                raise
    if artifacts is not None and view.TAG not in found.tags:  # on a server the experiment may be that of others
        for key, value in view.experiment_tags().items():
            client.set_experiment_tag(found.experiment_id, key, value)
    return found.experiment_id


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Let one process in at a time: SQLite locks files on every system, and unlocks them when a process dies."""
    with closing(sqlite3.connect(path, timeout=300, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        yield


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Join the keys of nested mappings by dots; lists stay whole.

    Examples
    --------
    >>> flatten({"a": {"b": 1}, "c": [2, 3]})
    {'a.b': 1, 'c': [2, 3]}
    """
    out: dict[str, Any] = {}
    for key, value in config.items():
        out |= flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return out


def clean(key: str) -> str:
    """Replace what MLflow does not allow in names.

    Examples
    --------
    >>> clean("grizzly+bear/acc")
    'grizzly_bear/acc'
    """
    return re.sub(r"[^\w\-. :/]", "_", key)
