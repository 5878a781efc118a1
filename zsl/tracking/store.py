"""An experiment in a tracking store: opening it, and the runs in it."""

from __future__ import annotations

import logging
import math
import re
import shlex
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from zsl.errors import UserError
from zsl.runs import status as records
from zsl.runs.jobs import Jobs, how_chosen
from zsl.runs.model_file import MODEL
from zsl.runs.result import Result, flatten
from zsl.tracking import about, artifacts, opening
from zsl.version import commit

# MLflow's limits: longer values would be cut (6000, tags 8000) or refused (250-character keys, 1000 metrics at once).
_MAX_VALUE, _MAX_TAG, _MAX_KEY, _BATCH = 6000, 8000, 250, 1000

log = logging.getLogger(__name__)

_opened: dict[tuple[str, str], Store] = {}
# Stores that failed: until when nothing asks them, and why. Asking takes seconds, too many for every job of a sweep.
_down: dict[str, tuple[float, str]] = {}
_PATIENCE_S = 60.0
T = TypeVar("T")


@dataclass
class Store:
    """An experiment in a tracking store; every method raises what MLflow raises."""

    uri: str
    experiment: str
    """MLflow's id of the experiment"""
    client: Any
    file: tuple[int, int] | None = None
    """Device and number of a database file, which tell whether it was replaced"""
    known: set[str] | None = None
    """The ids of the runs that are over, once an upload has asked for them"""

    # --- runs -----------------------------------------------------------------------------------------------

    def begin(self, record: dict[str, Any], folder: Path) -> str:
        """Create the run of a ``status.json``, unless the store has it; returns its id."""
        tags = {
            "zsl.kind": "run",
            "zsl.folder": str(folder.resolve()),
            "zsl.digest": record.get("digest") or "",
            "zsl.overrides": " ".join(record.get("overrides") or ()),
        }
        return self._create(record, tags | about.code_tags(commit()))

    def send(
        self, record: dict[str, Any], folder: Path, config: Mapping[str, Any], allow: tuple[str, ...] = ()
    ) -> None:
        """Send what the record asks for of the folder of a finished run; sending it twice changes nothing.

        ``allow`` names packages outside ``zsl`` whose classes the fitted model may name.
        """
        from mlflow.entities import Metric, Param, RunTag

        tracking, ended = record["tracking"], record["ended"]
        run = tracking["run_id"]
        which = artifacts.level(tracking)
        if which == "all" and (folder / MODEL).is_file() and not tracking["model_logged"]:
            # The model comes before the metrics, which MLflow would copy to it one query at a time.
            self.client.expect((folder / MODEL).stat().st_size)
            try:
                artifacts.log_model(self.client, run, folder, register=tracking["register"], allow=allow)
                tracking["model_logged"] = True
            except UserError as error:
                log.warning("the run is sent without its model: %s", error)
        result = records.read(folder / records.RESULTS)
        if result.get("digest") != record["digest"]:
            raise ValueError(f"{folder / records.RESULTS} is damaged or of another run, and is not sent")
        key = result["key"]
        # All metrics have the same time, so that an upload after half of one repeats the same rows.
        found = result["metrics"].items()
        metrics = [Metric(clean(about.grouped(k)), about.rounded(v), ended, 0) for k, v in found if v is not None]
        for curve, values in result.get("curves", {}).items():
            metrics += [Metric(clean(f"curve/{curve}"), v, ended, i) for i, v in enumerate(values) if v is not None]
        params = [Param(clean(k)[:_MAX_KEY], str(v)[:_MAX_VALUE]) for k, v in flatten(config).items()]
        tags = {
            "zsl.content": str(key["dataset"]["content"]),
            "zsl.information_used": "; ".join(key["information_used"]),
            "zsl.selection": key["selection"],
        }
        as_object = Result.of(result)
        tags |= about.code_tags(as_object.versions.get("zsl-commit", ""))
        tags["mlflow.note.content"] = about.description(as_object)
        if result.get("warnings"):
            tags["zsl.warnings"] = f"{len(result['warnings'])}: " + " ".join(result["warnings"])
        self.client.log_batch(run, metrics[:_BATCH], params, [RunTag(k, v[:_MAX_TAG]) for k, v in tags.items()])
        for start in range(_BATCH, len(metrics), _BATCH):  # each is a sign of life, which a long curve would lack
            self.client.log_batch(run, metrics[start : start + _BATCH])
        self.client.log_inputs(run, datasets=[about.dataset(as_object)])
        artifacts.log_files(self.client, run, folder, which)
        self.client.set_terminated(run, records.FINISHED, ended)
        tracking["complete"] = True

    def close(self, record: dict[str, Any], folder: Path) -> None:
        """End a run that did not finish: send its status, the reason and its log."""
        run = record["tracking"]["run_id"]
        self.client.set_tag(run, "zsl.error", str(record.get("error") or record["status"])[:_MAX_TAG])
        if artifacts.level(record["tracking"]) != "none":
            if record.get("traceback"):
                self.client.log_text(run, record["traceback"], "traceback.txt")
            for path in sorted(folder.glob("*.log")):
                self.client.log_artifact(run, str(path))
        self.client.set_terminated(run, record["status"], record.get("ended"))
        record["tracking"]["complete"] = True

    def mark_killed(self, run: str) -> None:
        """End a run whose process was killed, and whose folder may be gone."""
        self.client.set_tag(run, "zsl.error", "its process was killed")
        self.client.set_terminated(run, records.KILLED)

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
        for job in jobs.of(records.KILLED):
            record = job.record
            tracking = record["tracking"] or {"run_id": None}
            if tracking["run_id"] and not tracking["complete"] and tracking["uri"] == sweep["tracking"]["uri"]:
                self.close(record, job.folder)
                records.write(job.folder / records.STATUS, record)
                jobs.waiting.remove(job.folder)
        counts = {"jobs": float(sweep["jobs"] or len(jobs.found))}
        counts |= {word.lower(): float(n) for word, n in jobs.counts().items()}
        tags = {"zsl.launcher": sweep["launcher"].get("_target_"), "zsl.error": sweep.get("error")}
        metric = sweep["best"]
        best = jobs.best(metric)
        if best is not None:
            counts[f"best/{metric}"] = best.metrics[metric]
            of = f", {best.protocol or 'unknown protocol'}" if len(jobs.kinds(metric)) > 1 else ""
            tags |= {
                "zsl.best_by": f"{metric} ({how_chosen(metric)}{of})",
                "zsl.best_folder": str(best.folder),
                "zsl.best_overrides": " ".join(best.record.get("overrides") or ()),
                "zsl.best_run": (best.record.get("tracking") or {}).get("run_id"),
            }
        now = records.now_ms()
        metrics = [Metric(clean(k), about.rounded(v), now, 0) for k, v in counts.items()]
        self.client.log_batch(run, metrics, [], [RunTag(k, str(v)[:_MAX_TAG]) for k, v in tags.items() if v])
        self.client.set_terminated(run, sweep["status"], sweep["ended"])
        sweep["tracking"]["complete"] = True

    def _create(self, record: dict[str, Any], tags: dict[str, str]) -> str:
        from mlflow.exceptions import MlflowException

        tracking, process = record["tracking"], record["process"]
        if tracking["run_id"] is not None:
            try:
                known = self.client.get_run(tracking["run_id"]).info.status
                if record["status"] == records.RUNNING != known:  # a cluster has started the job again
                    self.client.update_run(tracking["run_id"], status=records.RUNNING)
                    self.client.set_tag(tracking["run_id"], "zsl.process", records.as_tag(process))
                    self.client.set_tag(tracking["run_id"], "zsl.error", "")
                return tracking["run_id"]
            except MlflowException as error:
                if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                    raise
        tags["zsl.process"] = records.as_tag(process)
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
        quote = '"' if "'" in value else "'"  # a folder's name may have one
        wanted = " and ".join([f"tags.`{tag}` = {quote}{value}{quote}", *conditions])
        return list(self.client.search_runs([self.experiment], wanted, max_results=1000))

    def finished(self) -> set[str]:
        """The ids of all runs that are over."""
        found: set[str] = set()
        token = None
        while True:
            page = self.client.search_runs(
                [self.experiment], "attributes.status != 'RUNNING'", max_results=1000, page_token=token
            )
            found |= {run.info.run_id for run in page}
            token = page.token
            if not token:
                return found

    def page(self, run: str) -> str:
        """The address of a run's page, and the command that shows it."""
        page = f"/#/experiments/{self.experiment}/runs/{run}"
        if self.uri.startswith("http"):
            return self.uri + page
        if not self.uri.startswith(opening.SQLITE):
            return f"run {run}; `mlflow ui --backend-store-uri {shlex.quote(self.uri)}` shows it"
        file = opening.file_of(self.uri)
        shown = records.page_of(file.parent)
        if shown:
            return shown + page
        place = file.parent if file.name == opening.DATABASE else file
        return f"run {run}; `zsl ui {shlex.quote(str(place))}` shows it"


def open_store(tracking: Mapping[str, Any], output_dir: Path) -> Store:
    """Open the store and the experiment in it, and create both if they are absent.

    Parameters
    ----------
    tracking : mapping
        ``uri`` (None: the file ``mlflow.db`` in ``output_dir``) and ``experiment``, the experiment's name.

    Raises
    ------
    ConnectionError
        If the store gave no answer in this process, or a server failed less than a minute ago.
    Exception
        Whatever MLflow, a database or the network raises.
    """
    uri, name = _address(tracking["uri"], output_dir), tracking["experiment"]
    path = opening.file_of(uri) if uri.startswith(opening.SQLITE) else None
    since, why = _down.get(uri, (-math.inf, ""))
    if time.monotonic() < since:
        raise ConnectionError(why)
    known = _opened.get((uri, name))
    # A file that was deleted or replaced since is another store.
    if known is not None and (path is None or known.file == _identity(path)):
        return known
    opening.environment()
    with _noting_failure(uri):
        if path is None:
            client, experiment = opening.server(uri, name)
        else:
            client, experiment = opening.database(path, name)
    _opened[uri, name] = Store(uri, experiment, client, None if path is None else _identity(path))
    return _opened[uri, name]


def ask(store: Store, work: Callable[[Store], T]) -> T:
    """Work with a store that may hang: :class:`zsl.tracking.opening.Silent` is raised instead of waiting for ever."""
    opening.log_in(store.uri)
    with _noting_failure(store.uri):
        return opening.answered(lambda: work(store), store.client)


@contextmanager
def _noting_failure(uri: str) -> Iterator[None]:
    """Remember a store that gives no answer, for the life of this process, and a server that fails, for a minute."""
    try:
        yield
    except Exception as error:
        if isinstance(error, opening.Silent):
            _down[uri] = (math.inf, str(error))
        elif uri.startswith("http"):
            _down[uri] = (time.monotonic() + _PATIENCE_S, str(error))
        elif opening.is_damage(error):
            with suppress(OSError, sqlite3.Error):
                opening.replace_if_damaged(opening.file_of(uri))
        for key in [k for k in _opened if k[0] == uri]:
            del _opened[key]  # so that it is looked at anew before it is used again
        raise


def silent(uri: str | None, output_dir: Path) -> str:
    """Why the store is not asked again in this process, or nothing."""
    until, why = _down.get(_address(uri, output_dir), (0.0, ""))
    return why if until == math.inf else ""


def keep_silent(uri: str | None, output_dir: Path, why: str) -> None:
    """Do not ask a store in this process, since another process of the same sweep found out that it does not answer."""
    _down[_address(uri, output_dir)] = (math.inf, why)


def forget() -> None:
    """Forget which stores are open and which servers did not answer."""
    _opened.clear()
    _down.clear()


def _address(uri: str | None, output_dir: Path) -> str:
    """The one form of a store's address, under which it is known here."""
    uri = uri or opening.address(output_dir / opening.DATABASE)
    return opening.address(opening.file_of(uri)) if uri.startswith(opening.SQLITE) else uri


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def clean(key: str) -> str:
    """Replace what MLflow does not allow in names.

    Examples
    --------
    >>> clean("grizzly+bear/acc")
    'grizzly_bear/acc'
    """
    return re.sub(r"[^\w\-. :/]", "_", key)
