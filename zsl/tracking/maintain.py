"""Correcting the store afterwards: runs whose process was killed, and runs that the store never got."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from zsl.errors import UserError, remove_parts
from zsl.runs import slurm
from zsl.runs import status as records
from zsl.runs.folder import Tracker
from zsl.runs.jobs import end_sweep, jobs_of
from zsl.runs.lock import remove_stale
from zsl.tracking.artifacts import level
from zsl.tracking.opening import DATABASE, is_damage
from zsl.tracking.store import Store, ask, forget, open_store
from zsl.tracking.tracker import MLflowTracker, one_line

log = logging.getLogger(__name__)


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
        lines += [f"{path}: removed, left by a process that was killed" for path in remove_parts(folder)]
        remove_stale(folder)
        for path in sorted(records.walk(folder, records.STATUS)):
            try:
                record = records.read(path)
                gone = _gone(record, older_than)
                if gone:
                    record = records.settle(path, record)
                    lines.append(f"{path.parent}: {record['status']}{_close(record, path)}")
                elif gone is None:
                    lines.append(_left_alone(path.parent, record))
            except _UNUSABLE as error:
                _named(path, error)
        for path in sorted(records.walk(folder, records.SWEEP)):
            try:
                sweep = _moved(records.read(path), path.parent)
                if not _gone(sweep, older_than):
                    continue
                if slurm.queue(slurm.jobs_of(sweep)):
                    lines.append(f"{path.parent}: unchanged, since its jobs wait or run in Slurm")
                    continue
                end_sweep(sweep, _tracker(sweep), killed=True)
                lines.append(f"{path.parent}: sweep {sweep['status']}")
            except _UNUSABLE as error:
                _named(path, error)
    return lines


def repair_store(uri: str, experiment: str, *, older_than: float | None = None) -> list[str]:
    """Set runs of a store that are RUNNING without a process to KILLED; this needs none of their folders."""
    store = open_store({"uri": uri, "experiment": experiment}, Path())
    lines = []
    running = "attributes.status = 'RUNNING'"
    for run in ask(store, lambda s: [r for kind in ("run", "sweep") for r in s.find("zsl.kind", kind, running)]):
        process = records.of_tag(run.data.tags.get("zsl.process", ""))
        record = {"status": records.RUNNING, "process": process, "started": run.info.start_time}
        gone = _gone(record, older_than)
        if gone:
            ask(store, partial(Store.mark_killed, run=run.info.run_id))
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
        return "; zsl tracking upload sends it"
    if record["tracking"] and record["tracking"]["run_id"] and not record["tracking"]["complete"]:
        record = _moved(record, path.parent)
        try:
            store = open_store(record["tracking"], Path(record["output_dir"]))
            ask(store, lambda s: s.close(record, path.parent))
        except Exception as error:
            return f" (the store cannot be reached: {one_line(error)}; later: zsl tracking upload)"
        records.write(path, record)
    return ""


def _tracker(sweep: Mapping[str, Any]) -> Tracker:
    tracking, output_dir = sweep["tracking"], sweep["output_dir"]
    if tracking is None:
        return Tracker(output_dir)
    return MLflowTracker(tracking["uri"], tracking["experiment"], best=sweep["best"], output_dir=output_dir)


def upload(
    folders: Iterable[Path], *, uri: str | None = None, every: bool = False, allow: tuple[str, ...] = ()
) -> Iterator[str]:
    """Send runs and sweeps to the store that they were meant for but that does not have them in full.

    The store itself is asked which runs it has, since it may have been deleted or replaced. A run that it has in part
    is completed, not doubled. A run that cannot be sent is named, and the others are sent.

    Parameters
    ----------
    folders : iterable of Path
        Folders that hold runs and sweeps, or the folders of single runs.
    uri : str, optional
        Another store. It gets all runs once, also those that another store has.
    every : bool
        Send runs made with ``tracking=none`` too, to the default store of their output folder.
    allow : tuple of str
        Packages outside ``zsl`` whose classes a fitted model may name.

    Yields
    ------
    str
        A line for each run that was sent.

    Raises
    ------
    UserError
        If the store cannot be reached, and after the last run if one could not be sent.
    """
    forget()
    failed: list[str] = []
    for folder in folders:
        parents: dict[str | None, str | None] = {}
        sweeps: dict[Path, dict[str, Any]] = {}
        above = folder.parent / records.SWEEP  # where the folder is that of a job
        for path in [*sorted(records.walk(folder, records.SWEEP)), *([above] if above.is_file() else [])]:
            try:
                known = records.read(path)
                sweep = _outgoing({**known, "folder": str(path.parent.resolve())}, path.parent, uri, every)
                if sweep is None:
                    parents[known.get("id")] = (known.get("tracking") or {}).get("run_id")
                    continue
                store = _open(sweep)
                sent = _sent(store, "zsl.sweep", sweep["id"], sweep["started"]) if uri else None
                parents[sweep["id"]] = sent or ask(store, partial(Store.begin_sweep, sweep=sweep))
                if sent is None:
                    sweeps[path] = sweep
                    yield f"{path.parent}: {store.page(sweep['tracking']['run_id'])}"
                    if uri is None:
                        records.write(path, sweep)
            except _UNUSABLE as error:
                failed.append(_named(path, error))
        for path in sorted(records.walk(folder, records.STATUS)):
            record: dict[str, Any] | None = None
            try:
                record = _outgoing(records.read(path), path.parent, uri, every)
                if record is None:
                    continue
                record["tracking"]["parent"] = parents.get(record["sweep"]) or record["tracking"]["parent"]
                store = _open(record)
                if uri and _sent(store, "zsl.folder", str(path.parent.resolve()), record["started"]):
                    continue
                try:
                    _deliver(store, record, path.parent, allow)
                finally:
                    if uri is None:  # the record names the run's own store, and no copy
                        records.write(path, record)
                yield f"{path.parent}: {store.page(record['tracking']['run_id'])}"
            except UserError:
                raise
            except Exception as error:
                if record is not None and not isinstance(error, _UNUSABLE):
                    _open(record)  # raises if it is the store that fails, and no other run can be sent either
                failed.append(_named(path, error))
        for path, sweep in sweeps.items():
            ask(_open(sweep), partial(Store.end_sweep, sweep=sweep, jobs=jobs_of(sweep)))
            if uri is None:
                records.write(path, sweep)
    if failed:
        raise UserError(
            f"{len(failed)} runs or sweeps could not be sent (first: {failed[0]}); the same command tries again."
        )


# What a record raises that lacks a part or has one of another kind.
_UNUSABLE = (KeyError, TypeError, AttributeError, ValueError)


# What a record says of a store that does not have the run.
_UNSENT = {"run_id": None, "parent": None, "model_logged": False, "complete": False}


def _named(path: Path, error: Exception) -> str:
    log.warning("%s is left out (%s).", path, one_line(error))
    return f"{path}: {one_line(error)}"


def _deliver(store: Store, record: dict[str, Any], folder: Path, allow: tuple[str, ...]) -> None:
    """Send a run; once more where the store turned out to be damaged and a new one took its place."""
    try:
        ask(store, partial(_send, record=record, folder=folder, allow=allow))
    except _UNUSABLE:
        raise
    except Exception as error:
        if not is_damage(error):
            raise
        record["tracking"] |= _UNSENT
        ask(_open(record), partial(_send, record=record, folder=folder, allow=allow))


def _send(store: Store, record: dict[str, Any], folder: Path, allow: tuple[str, ...]) -> None:
    store.begin(record, folder)
    if record["status"] == records.FINISHED:
        store.send(record, folder, _config(folder), allow)
    else:
        store.close(record, folder)


def _outgoing(record: dict[str, Any], folder: Path, uri: str | None, every: bool) -> dict[str, Any] | None:
    """The record of a run or sweep that is to be sent; None if it is not over, or the store has it."""
    tracking = record.get("tracking")
    if record.get("status") in (None, records.RUNNING):
        return None
    if uri is None and not tracking and not every:
        return None
    if uri is not None or tracking is None:
        keep = {k: tracking[k] for k in ("experiment", "register")} if tracking else {}
        keep |= {"artifacts": level(tracking)} if tracking else {}
        tracking = {**MLflowTracker().destination(), **keep, "uri": uri}
    texts = [record["name"], tracking["experiment"], tracking["uri"] or "default"]
    if not all(isinstance(t, str) and t for t in texts) or not isinstance(record["started"], int):
        raise TypeError("its name, start, store or experiment is of another kind")
    record = _moved({**record, "tracking": tracking}, folder)
    if uri is None and tracking["complete"]:
        store = _open(record)
        if store.known is None:  # the store lists its runs once
            store.known = ask(store, Store.finished)
        if tracking["run_id"] in store.known:
            return None
        record["tracking"] = {**tracking, **_UNSENT}
    return record


def _moved(record: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The record with the folders as they are, after the output folder was moved with the store in it."""
    above = folder.resolve().parents
    known = Path(record.get("output_dir") or "multirun").resolve()
    output_dir = known if known in above else next((p for p in above if (p / DATABASE).is_file()), known)
    record = {**record, "output_dir": str(output_dir)}
    return {**record, "folder": str(folder.resolve())} if "folder" in record else record


def _open(record: Mapping[str, Any]) -> Store:
    output_dir = Path(record["output_dir"])
    try:
        return open_store(record["tracking"], output_dir)
    except Exception as error:
        place = record["tracking"]["uri"] or output_dir / DATABASE
        remedy = "put it right" if isinstance(error, FileExistsError) else "try later"
        raise UserError(
            f"the tracking store {place} cannot be used ({one_line(error)}); {remedy}, or name another with --uri."
        ) from error


def _sent(store: Store, tag: str, value: str, started: int) -> str | None:
    """The run that an earlier upload to another store has made, by a tag and the moment when the run started."""
    found = ask(store, lambda s: s.find(tag, value, "attributes.status != 'RUNNING'"))
    return next((r.info.run_id for r in found if r.info.start_time == started), None)


def _config(folder: Path) -> Any:
    from omegaconf import OmegaConf

    return OmegaConf.to_container(OmegaConf.load(folder / "config.yaml"))
