"""Putting the store right afterwards: runs whose process was killed, and runs that it never got."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from zsl.errors import UserError
from zsl.runs import status as records
from zsl.runs.folder import NoTracker
from zsl.runs.jobs import end_sweep, jobs_of
from zsl.tracking.store import Store, forget
from zsl.tracking.tracker import MLflowTracker, close, create, one_line, send, tags, tell

log = logging.getLogger(__name__)


def repair(folders: Iterable[Path], *, older_than: float | None = None) -> list[str]:
    """Set runs and sweeps that are RUNNING although their process is gone to KILLED, in folders and in the store.

    Parameters
    ----------
    older_than : hours, optional
        Processes of other machines cannot be seen from here; what they started is left alone unless it is this old.

    Returns
    -------
    list of str
        A line for each run and sweep that was changed or that could not be judged.
    """
    said = []
    for folder in folders:
        for path in sorted(records.statuses(folder)):
            status = records.read(path)
            if status.get("status") != records.RUNNING:
                continue
            gone = _gone(status, older_than)
            if gone is None:
                said.append(f"{path.parent}: left alone, it runs on {status['process']['host']} (--older-than HOURS)")
            elif gone:
                status = records.settle(path, status)
                tells = status["status"] == records.KILLED
                how = _tell_store(status, path.parent) if tells else "; python -m zsl.tracking upload sends it"
                said.append(f"{path.parent}: {status['status']}{how}")
        for path in sorted(records.sweeps(folder)):
            about = records.read(path)
            if about.get("status") == records.RUNNING and _gone(about, older_than):
                here = {
                    "folder": str(path.parent.resolve()),
                    "output_dir": _output_dir(about["output_dir"], path.parent),
                }
                _end_sweep({**about, **here})
                said.append(f"{path.parent}: sweep KILLED")
    return said


def _end_sweep(about: dict[str, Any]) -> None:
    """A sweep whose process was killed: its end to ``sweep.json`` and to the store."""
    settings = {k: v for k, v in about["settings"].items() if k not in ("name", "_target_")}
    tracked = about["settings"].get("name") != "none"
    tracker = MLflowTracker(**settings, output_dir=about["output_dir"]) if tracked else NoTracker()
    end_sweep(about, tracker, killed=True)


def repair_store(settings: Mapping[str, Any], output_dir: Path, *, older_than: float | None = None) -> list[str]:
    """Set what is RUNNING in a store although its process is gone to KILLED; for runs whose folders are gone too."""
    store = Store.open(settings, output_dir)
    said = []
    found = store.client.search_runs(
        [store.experiment], "attributes.status = 'RUNNING' and tags.`zsl.kind` != 'other'", max_results=1000
    )
    for run in found:
        host, _, rest = run.data.tags.get("zsl.process", "//").partition("/")
        pid, _, started = rest.partition("/")
        process = {"host": host, "pid": int(pid) if pid.isdigit() else None, "started": started}
        gone = _gone({"process": process, "started": run.info.start_time}, older_than)
        if gone is None:
            said.append(f"{run.info.run_name}: left alone, it runs on {host} (--older-than HOURS)")
        elif gone:
            store.tag(run.info.run_id, {"zsl.error": "its process was killed"})
            store.end(run.info.run_id, records.KILLED)
            said.append(f"{run.info.run_name} ({run.info.run_id}): KILLED")
    return said


def _gone(record: Mapping[str, Any], older_than: float | None) -> bool | None:
    alive = records.alive(record["process"])
    if alive is None and older_than is not None:
        return time.time() * 1000 - record["started"] > older_than * 3.6e6
    return None if alive is None else not alive


def _tell_store(status: dict[str, Any], folder: Path) -> str:
    tracking = status.get("tracking")
    if not tracking or not tracking["run_id"] or tracking["complete"]:
        return ""
    try:
        store = Store.open(tracking, Path(_output_dir(tracking["output_dir"], folder)))
        close(store, tracking["run_id"], status, folder)
    except Exception as error:
        return f" (the store cannot be reached: {one_line(error)})"
    tracking["complete"] = True
    records.write(folder / records.STATUS, status)
    return ""


def upload(folders: Iterable[Path], *, uri: str | None = None, every: bool = False) -> list[str]:
    """Send runs and sweeps to the store that they were meant for but that does not have them in full.

    A run that the store has in part is completed, not doubled.

    Parameters
    ----------
    uri : str, optional
        Another store. All runs go there once, those too that have been recorded elsewhere.
    every : bool
        Runs made with ``tracking=none`` too, to the default store of their output folder.

    Returns
    -------
    list of str
        A line for each run.

    Raises
    ------
    UserError
        If the store cannot be reached.
    """
    forget()
    said: list[str] = []
    stores: dict[tuple[str | None, str, str], Store] = {}
    for folder in folders:
        parents = _upload_sweeps(folder, uri, every, stores, said)
        for path in sorted(records.statuses(folder)):
            status = records.read(path)
            about = _wanted(status.get("tracking"), uri, every, path.parent)
            if about is None or status.get("status") == records.RUNNING:
                continue
            store = _open(about, stores)
            if uri is not None and _sent(store, "zsl.folder", str(path.parent.resolve()), status["started"]):
                continue
            status = {**status, "tracking": about}
            about["parent"] = parents.get(status.get("sweep") or "", about.get("parent"))
            run = about["run_id"]
            if run is None or not _has(store, run):
                about["run_id"] = store.begin(
                    status["name"], tags(status, path.parent), started=status["started"], parent=about["parent"]
                )
            try:
                if status["status"] == records.FINISHED:
                    send(store, status, path.parent, _config(path.parent))
                else:
                    close(store, about["run_id"], status, path.parent)
                    about["complete"] = True
            except Exception as error:
                raise UserError(
                    f"{path.parent} could not be uploaded: {one_line(error)}; repeat the command."
                ) from error
            finally:
                if uri is None:  # what lies elsewhere is not where the run says it is
                    records.write(path, status)
            said.append(f"{path.parent}: {store.page(about['run_id'])}")
        _end_sweeps(folder, uri, parents, stores)
    return said


def _upload_sweeps(
    folder: Path, uri: str | None, every: bool, stores: dict[Any, Store], said: list[str]
) -> dict[str, str]:
    """Parent runs of sweeps by the sweep's id, made where there is none."""
    parents = {}
    for path in _sweep_files(folder):
        about = {**records.read(path), "folder": str(path.parent.resolve())}  # it may have been moved
        settings = about.get("settings", {})
        tracked = settings.get("name", "none") != "none"
        if about.get("status") == records.RUNNING or not (tracked or every or uri):
            continue
        if about.get("complete") and about.get("run_id") and uri is None:
            parents[about["id"]] = about["run_id"]
            continue
        store = _open(_place(settings, uri, _output_dir(about["output_dir"], path.parent)), stores)
        there = _sent(store, "zsl.sweep", about["id"], about["started"]) if uri is not None else None
        if there is not None:
            parents[about["id"]] = there
            continue
        if uri is not None or about["run_id"] is None or not _has(store, about["run_id"]):
            about["run_id"] = create(store, about)
            said.append(f"{path.parent}: {store.page(about['run_id'])}")
        if uri is None:
            records.write(path, about)
        parents[about["id"]] = about["run_id"]
    return parents


def _end_sweeps(folder: Path, uri: str | None, parents: Mapping[str, str], stores: dict[Any, Store]) -> None:
    """Counts and status of the sweeps, once their jobs are there."""
    for path in _sweep_files(folder):
        about = {**records.read(path), "folder": str(path.parent.resolve())}
        if about.get("id") not in parents or (about.get("complete") and uri is None):
            continue
        store = _open(_place(about["settings"], uri, _output_dir(about["output_dir"], path.parent)), stores)
        about["run_id"] = parents[about["id"]]
        tell(store, about, jobs_of(about))
        if uri is None:
            records.write(path, about)


def _sweep_files(folder: Path) -> list[Path]:
    """``sweep.json`` under a folder, and the one above it where the folder is a job's."""
    above = folder.parent / records.SWEEP
    return [*sorted(records.sweeps(folder)), *([above] if above.is_file() else [])]


def _wanted(tracking: dict[str, Any] | None, uri: str | None, every: bool, folder: Path) -> dict[str, Any] | None:
    """Where a run is to go, or None if it is there or was never meant to."""
    if uri is not None:
        known = {k: v for k, v in (tracking or {}).items() if k in ("experiment", "model", "register", "output_dir")}
        return {"experiment": "zsl", "output_dir": ".", **known, "uri": uri, "run_id": None, "parent": None,
                "complete": False}  # fmt: skip
    if tracking is not None:
        return None if tracking["complete"] else {**tracking, "output_dir": _output_dir(tracking["output_dir"], folder)}
    if not every:
        return None
    output_dir = _output_dir(str(_config(folder).get("output_dir", "multirun")), folder)
    return {"uri": None, "experiment": "zsl", "output_dir": output_dir, "run_id": None, "parent": None,
            "complete": False}  # fmt: skip


def _output_dir(known: str, folder: Path) -> str:
    """The output folder that a run's folder lies in: the known one, or after a move the nearest above with a store."""
    parents = folder.resolve().parents
    if Path(known).resolve() in parents:
        return known
    return str(next((p for p in parents if (p / "mlflow.db").is_file()), known))


def _place(settings: Mapping[str, Any], uri: str | None, output_dir: str) -> dict[str, Any]:
    return {
        "uri": uri or settings.get("uri"),
        "experiment": settings.get("experiment", "zsl"),
        "output_dir": output_dir,
    }


def _open(about: Mapping[str, Any], stores: dict[Any, Store]) -> Store:
    key = (about["uri"], about["experiment"], about["output_dir"])
    if key not in stores:
        try:
            stores[key] = Store.open(about, Path(about["output_dir"]))
        except Exception as error:
            place = about["uri"] or Path(about["output_dir"]) / "mlflow.db"
            raise UserError(
                f"the tracking store {place} cannot be reached: {one_line(error)}; nothing is lost, try later, or name "
                "another with --uri."
            ) from error
    return stores[key]


def _has(store: Store, run: str) -> bool:
    from mlflow.exceptions import MlflowException

    try:
        store.client.get_run(run)
    except MlflowException:
        return False
    return True


def _sent(store: Store, tag: str, value: str, started: int) -> str | None:
    """The run that an upload before this one made in another store, by a tag and the moment it started."""
    found = store.client.search_runs(
        [store.experiment], f"tags.`{tag}` = '{value}' and attributes.status != 'RUNNING'", max_results=100
    )
    return next((r.info.run_id for r in found if r.info.start_time == started), None)


def _config(folder: Path) -> dict[str, Any]:
    from omegaconf import OmegaConf

    found = OmegaConf.to_container(OmegaConf.load(folder / "config.yaml"))
    assert isinstance(found, dict)
    return {str(k): v for k, v in found.items()}
