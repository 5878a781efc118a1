"""Correcting the store afterwards: runs whose process was killed, and runs that the store never got."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from zsl.errors import UserError
from zsl.runs import status as records
from zsl.runs.folder import Tracker
from zsl.runs.jobs import end_sweep, jobs_of
from zsl.tracking.store import Store, forget, open_store
from zsl.tracking.tracker import MLflowTracker, one_line


def repair(folders: Iterable[Path], *, older_than: float | None = None) -> list[str]:
    """Close RUNNING runs and sweeps without a process, in folders and store: KILLED, or FINISHED if complete.

    Parameters
    ----------
    folders : iterable of Path
        Folders that hold runs and sweeps.
    older_than : float, optional
        A process of another machine cannot be seen. Runs of other machines stay as they are, unless they began more
        than this many hours ago.

    Returns
    -------
    list of str
        A line for each run and sweep that was changed or that could not be judged.
    """
    lines = []
    for folder in folders:
        for path in sorted(records.walk(folder, records.STATUS)):
            record = records.read(path)
            gone = _gone(record, older_than)
            if gone:
                record = records.settle(path, record)
                lines.append(f"{path.parent}: {record['status']}{_close(record, path)}")
            elif gone is None:
                lines.append(_left_alone(path.parent, record))
        for path in sorted(records.walk(folder, records.SWEEP)):
            sweep = _moved(records.read(path), path.parent)
            if _gone(sweep, older_than):
                end_sweep(sweep, _tracker(sweep), killed=True)
                lines.append(f"{path.parent}: sweep KILLED")
    return lines


def repair_store(uri: str, experiment: str, *, older_than: float | None = None) -> list[str]:
    """Set runs of a store that are RUNNING without a process to KILLED; this needs none of their folders."""
    store = open_store({"uri": uri, "experiment": experiment}, Path())
    lines = []
    for run in [r for kind in ("run", "sweep") for r in store.find("zsl.kind", kind, "attributes.status = 'RUNNING'")]:
        host, pid, started = (run.data.tags.get("zsl.process", "").split("/") + ["", "", ""])[:3]
        process = {"host": host, "pid": int(pid) if pid.isdigit() else None, "started": started}
        record = {"status": records.RUNNING, "process": process, "started": run.info.start_time}
        gone = _gone(record, older_than)
        if gone:
            store.client.set_tag(run.info.run_id, "zsl.error", "its process was killed")
            store.client.set_terminated(run.info.run_id, records.KILLED)
            lines.append(f"{run.info.run_name} ({run.info.run_id}): KILLED")
        elif gone is None:
            lines.append(_left_alone(run.info.run_name, record))
    return lines


def _gone(record: Mapping[str, Any], older_than: float | None) -> bool | None:
    """Whether a run or sweep that is RUNNING has lost its process; None if that cannot be seen."""
    if record.get("status") != records.RUNNING:
        return False
    alive = records.alive(record["process"])
    if alive is None and older_than is not None:
        return time.time() * 1000 - record["started"] > older_than * 3.6e6
    return None if alive is None else not alive


def _left_alone(name: Any, record: Mapping[str, Any]) -> str:
    host = record["process"]["host"]
    return f"{name}: unchanged, since it runs on the machine {host}; repair it there, or add --older-than HOURS"


def _close(record: dict[str, Any], path: Path) -> str:
    """Tell the store about a killed run; returns what the user should know of it."""
    if record["status"] != records.KILLED:
        return "; python -m zsl.tracking upload sends it"
    if record["tracking"] and record["tracking"]["run_id"] and not record["tracking"]["complete"]:
        record = _moved(record, path.parent)
        try:
            open_store(record["tracking"], Path(record["output_dir"])).close(record, path.parent)
        except Exception as error:
            return f" (the store cannot be reached: {one_line(error)}; later: python -m zsl.tracking upload)"
        records.write(path, record)
    return ""


def _tracker(sweep: Mapping[str, Any]) -> Tracker:
    tracking, output_dir = sweep["tracking"], sweep["output_dir"]
    if tracking is None:
        return Tracker(output_dir)
    return MLflowTracker(tracking["uri"], tracking["experiment"], best=sweep["best"], output_dir=output_dir)


def upload(folders: Iterable[Path], *, uri: str | None = None, every: bool = False) -> list[str]:
    """Send runs and sweeps to the store that they were meant for but that does not have them in full.

    A run that the store has in part is completed, not doubled.

    Parameters
    ----------
    folders : iterable of Path
        Folders that hold runs and sweeps, or the folders of single runs.
    uri : str, optional
        Another store. It gets all runs once, also those that another store has.
    every : bool
        Send runs made with ``tracking=none`` too, to the default store of their output folder.

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
    lines: list[str] = []
    for folder in folders:
        parents: dict[str | None, str | None] = {}
        sweeps: dict[Path, dict[str, Any]] = {}
        above = folder.parent / records.SWEEP  # where the folder is that of a job
        for path in [*sorted(records.walk(folder, records.SWEEP)), *([above] if above.is_file() else [])]:
            known = records.read(path)
            sweep = _outgoing({**known, "folder": str(path.parent.resolve())}, path.parent, uri, every)
            if sweep is None:
                parents[known.get("id")] = (known.get("tracking") or {}).get("run_id")
                continue
            store = _open(sweep)
            sent = _sent(store, "zsl.sweep", sweep["id"], sweep["started"]) if uri else None
            parents[sweep["id"]] = sent or store.begin_sweep(sweep)
            if sent is None:
                sweeps[path] = sweep
                lines.append(f"{path.parent}: {store.page(sweep['tracking']['run_id'])}")
                if uri is None:
                    records.write(path, sweep)
        for path in sorted(records.walk(folder, records.STATUS)):
            record = _outgoing(records.read(path), path.parent, uri, every)
            if record is None:
                continue
            store, tracking = _open(record), record["tracking"]
            if uri and _sent(store, "zsl.folder", str(path.parent.resolve()), record["started"]):
                continue
            tracking["parent"] = parents.get(record["sweep"]) or tracking["parent"]
            try:
                store.begin(record, path.parent)
                if record["status"] == records.FINISHED:
                    store.send(record, path.parent, _config(path.parent))
                else:
                    store.close(record, path.parent)
            except Exception as error:
                raise UserError(
                    f"{path.parent} could not be uploaded ({one_line(error)}); repeat the command."
                ) from error
            finally:
                if uri is None:  # the record names the run's own store, and no copy
                    records.write(path, record)
            lines.append(f"{path.parent}: {store.page(tracking['run_id'])}")
        for path, sweep in sweeps.items():
            _open(sweep).end_sweep(sweep, jobs_of(sweep))
            if uri is None:
                records.write(path, sweep)
    return lines


def _outgoing(record: dict[str, Any], folder: Path, uri: str | None, every: bool) -> dict[str, Any] | None:
    """The record of a run or sweep that is to be sent; None if it is not over, or not meant to be sent."""
    tracking = record.get("tracking")
    if record.get("status") in (None, records.RUNNING):
        return None
    if uri is None and (tracking["complete"] if tracking else not every):
        return None
    if uri is not None or tracking is None:
        keep = {k: tracking[k] for k in ("experiment", "model", "register")} if tracking else {}
        tracking = {**MLflowTracker().destination(), **keep, "uri": uri}
    return _moved({**record, "tracking": tracking}, folder)


def _moved(record: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The record with the folders as they are, after the output folder was moved with the store in it."""
    above = folder.resolve().parents
    known = Path(record.get("output_dir") or "multirun").resolve()
    output_dir = known if known in above else next((p for p in above if (p / "mlflow.db").is_file()), known)
    record = {**record, "output_dir": str(output_dir)}
    return {**record, "folder": str(folder.resolve())} if "folder" in record else record


def _open(record: Mapping[str, Any]) -> Store:
    output_dir = Path(record["output_dir"])
    try:
        return open_store(record["tracking"], output_dir)
    except Exception as error:
        place = record["tracking"]["uri"] or output_dir / "mlflow.db"
        raise UserError(
            f"the tracking store {place} cannot be reached ({one_line(error)}); try later, or name another with --uri."
        ) from error


def _sent(store: Store, tag: str, value: str, started: int) -> str | None:
    """The run that an earlier upload to another store has made, by a tag and the moment when the run started."""
    found = store.find(tag, value, "attributes.status != 'RUNNING'")
    return next((r.info.run_id for r in found if r.info.start_time == started), None)


def _config(folder: Path) -> Any:
    from omegaconf import OmegaConf

    return OmegaConf.to_container(OmegaConf.load(folder / "config.yaml"))
