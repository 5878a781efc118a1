"""Runs to MLflow: one per job, in batches, after the run folder is complete."""

from __future__ import annotations

import fcntl
import logging
import os
import re
import sqlite3
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zsl.errors import UserError

if TYPE_CHECKING:
    from zsl.experiment import Result

log = logging.getLogger(__name__)

# MLflow's limits: longer values would be cut (6000) or refused (250-character keys).
_MAX_VALUE, _MAX_KEY = 6000, 250


def log_run(result: Result, config: Mapping[str, Any], folder: Path) -> str | None:
    """Record a finished run; returns where to look at it, or None if the store could not be reached.

    Parameters (the flattened configuration), metrics, curves, and the files of ``folder`` as artifacts. With
    ``tracking.on_error=warn`` a store that fails costs a warning, never the run; with ``raise`` a UserError.
    """
    try:
        return _log(result, config, folder)
    except Exception as error:
        # Whatever the store, its driver or the network raises: the result is safe in its folder.
        message = f"the run is complete in {folder}, but tracking failed: {' '.join(str(error).split())[:300]}"
        if config["tracking"]["on_error"] == "raise":
            raise UserError(message) from error
        log.warning("%s", message)
        return None


def _log(result: Result, config: Mapping[str, Any], folder: Path) -> str:
    # No telemetry from research machines, and quick failure instead of minutes of retries against a dead server.
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param, RunTag

    uri, experiment = open_store(config["tracking"], Path(config["output_dir"]))
    client = MlflowClient(tracking_uri=uri)
    key = result.key
    model = config["model"].get("name", config["model"]["_target_"].rpartition(".")[2])
    rules = f"{config['inference']['attributes']}+{config['inference']['labels']}"
    name = f"{key['dataset']['name']} {key['split']['name']} {model} {rules} seed {key['seed']}"
    if folder.name.isdigit():
        name += f" #{folder.name}"  # a sweep's jobs differ by more than a name can hold: their number tells them apart
    tags = {
        "zsl.folder": str(folder),
        "zsl.content": str(key["dataset"]["content"]),
        "zsl.information_used": "; ".join(key["information_used"]),
        "zsl.selection": key["selection"],
    }
    run = client.create_run(experiment, run_name=name)
    try:
        now = int(time.time() * 1000)
        metrics = [Metric(_name(k), v, now, 0) for k, v in result.metrics.items()]
        for curve, values in result.curves.items():
            metrics += [Metric(_name(f"curve/{curve}"), v, now, i) for i, v in enumerate(values)]
        params = [Param(_name(k)[:_MAX_KEY], str(v)[:_MAX_VALUE]) for k, v in flatten(config).items()]
        client.log_batch(run.info.run_id, metrics, params, [RunTag(k, v) for k, v in tags.items()])
        for path in sorted(folder.iterdir()):
            if path.is_file() and path.suffix in {".json", ".yaml", ".csv", ".npz"}:
                client.log_artifact(run.info.run_id, str(path))
        client.set_terminated(run.info.run_id, "FINISHED")
    except BaseException:
        client.set_terminated(run.info.run_id, "FAILED")
        raise
    page = f"/#/experiments/{experiment}/runs/{run.info.run_id}"
    if uri.startswith("http"):
        return uri + page
    # The Makefile's target opens the checkout's own store only.
    own = Path("Makefile").is_file() and uri == f"sqlite:///{Path('multirun').resolve() / 'mlflow.db'}"
    return f"http://127.0.0.1:5000{page} (after `{'make ui' if own else f'mlflow ui --backend-store-uri {uri}'}`)"


def open_store(settings: Mapping[str, Any], output_dir: Path) -> tuple[str, str]:
    """The store's address and the id of the experiment in it, both created if absent.

    A fresh SQLite file is created under a lock: processes that create its tables at the same moment leave it broken
    for good. Write-ahead logging lets parallel jobs write without waiting for each other.
    """
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    name = settings["experiment"]
    uri = settings["uri"]
    if uri is not None:
        client = MlflowClient(tracking_uri=uri)
        found = client.get_experiment_by_name(name)
        if found is None:
            try:
                return uri, client.create_experiment(name)
            except MlflowException:
                # Perhaps another job created it in between.
                found = client.get_experiment_by_name(name)
                if found is None:
                    raise
        return uri, found.experiment_id
    output_dir = output_dir.resolve()
    output_dir.mkdir(parents=True, exist_ok=True)
    database = output_dir / "mlflow.db"
    uri = f"sqlite:///{database}"
    with (output_dir / ".mlflow.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _quiet()
        client = MlflowClient(tracking_uri=uri)
        found = client.get_experiment_by_name(name)
        # Every time, because whoever made the file may have been killed before this line; it costs nothing.
        with sqlite3.connect(database) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
        if found:
            return uri, found.experiment_id
        # The tag keeps MLflow's UI from opening the page for language models.
        return uri, client.create_experiment(
            name,
            artifact_location=(output_dir / "mlartifacts").as_uri(),
            tags={"mlflow.experimentKind": "custom_model_development"},
        )


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """``{"a": {"b": 1}}`` -> ``{"a.b": 1}``; lists stay whole."""
    out: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            out |= flatten(value, f"{prefix}{key}.")
        else:
            out[f"{prefix}{key}"] = value
    return out


def _name(key: str) -> str:
    """MLflow allows letters, digits and ``_ - . space : /`` in names."""
    return re.sub(r"[^\w\-. :/]", "_", key)


def _quiet() -> None:
    """Creating tables is announced by some thirty log lines; none of them is news."""
    for logger in ("alembic", "mlflow.store.db.utils"):
        logging.getLogger(logger).setLevel(logging.WARNING)
