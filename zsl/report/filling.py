"""Filling the cells of tables: what data is here, how many jobs there are, how long they will take, running them."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from threading import Event

import pandas as pd

from zsl.config import compose, resolve
from zsl.config.objects import build, locate
from zsl.data.catalogue import ENTRIES, Entry, how_to_make
from zsl.data.load import load_table
from zsl.data.space import check_one_space
from zsl.errors import UserError, interruptible, interruption
from zsl.progress import duration
from zsl.report.cells import Cell, arguments_of, data_of, n_jobs, value_of
from zsl.runs import status
from zsl.runs.jobs import jobs_of
from zsl.system import thread_limits, usable_cores

# How many seconds a run may take to end after Ctrl-C, how often its end is looked for, and how often its progress.
_PATIENCE_S, _WAIT_S, _LOOK_S = 10, 2, 10
_TIMES = ["time_tune_s", "time_fit_s", "time_infer_s"]


# --- what data is here --------------------------------------------------------------------------------------


def cannot_read(arguments: Sequence[str]) -> str:
    """Why the data of a command cannot be read on this machine; empty if it can. Nothing is fitted."""
    config = resolve(compose(arguments))
    dataset, allow = config["dataset"], config["allow_targets"]
    try:
        table = load_table(dataset, config["feature"]["name"], dataset["semantics"].get("source"), allow)
        build(config["split"], "split", allow_targets=allow)(table)
        model = locate(config["model"]["_target_"], "model", allow)
        check_one_space(model, table.provenance, table.features.shape[1], table.attributes.shape[1])
    except UserError as error:
        return str(error)
    return ""


def lacking_data(found: Iterable[Cell]) -> dict[tuple[str, str], str]:
    """Why data cannot be read on this machine, by :func:`zsl.report.cells.data_of`; each is tried once."""
    tried = {data_of(one): one for one in reversed([*found])}
    why = {name: cannot_read([f"experiment={one.experiment}", *one.overrides]) for name, one in tried.items()}
    return {name: text for name, text in why.items() if text}


def advice(
    name: str, empty: Sequence[Cell], lacking: Mapping[tuple[str, str], str], words: Sequence[str] = ()
) -> list[str]:
    """One line per dataset on its empty cells, with the command that fills them or fetches the data.

    Parameters
    ----------
    name : str
        The experiment.
    empty : sequence of Cell
    lacking : mapping
        Why data cannot be read, of :func:`lacking_data`.
    words : sequence of str
        What the user gave besides, for the command.
    """
    ready = [one for one in empty if data_of(one) not in lacking]
    lines = []
    for data in dict.fromkeys(one.data for one in ready):
        mine = [one for one in ready if one.data == data]
        given = " ".join(w for w in words if not w.startswith("data="))
        command = f"zsl report {name} --run data={data} {given}".rstrip()
        lines.append(f"{_titles(mine)}: {_count(mine)} to run: {command}")
    absent = [one for one in empty if data_of(one) in lacking]
    by_dataset: dict[str, list[Cell]] = {}
    for one in absent:
        by_dataset.setdefault(value_of(one.overrides, "dataset") or "", []).append(one)
    here = {dataset: _is_here(mine[0]) for dataset, mine in by_dataset.items()}
    for dataset in sorted(by_dataset, key=lambda d: not here[d]):
        lines.append(_line(dataset, by_dataset[dataset], lacking, here[dataset]))
    return lines


def _is_here(one: Cell) -> bool:
    """Whether the folder of a cell's dataset is on this machine, whatever it holds."""
    root = compose([f"experiment={one.experiment}", *one.overrides]).dataset.get("root")
    entry = ENTRIES.get(value_of(one.overrides, "dataset") or "", Entry())
    return root is not None and any(place.is_dir() for place in entry.places(Path(root).expanduser()))


def _line(dataset: str, mine: Sequence[Cell], lacking: Mapping[tuple[str, str], str], here: bool) -> str:
    start = f"{_titles(mine)}: {_count(mine)} without data"
    entry = ENTRIES.get(dataset)
    features = list(dict.fromkeys(data_of(one)[1] for one in mine))
    if here or entry is None or "xlsa17" not in entry.archives:
        first = lacking[data_of(mine[0])]
        more = len({lacking[data_of(one)] for one in mine}) - 1
        return f"{start}: {first.rstrip('.')}" + (f" (and {more} more such)." if more else ".")
    archive = entry.archives["xlsa17"]
    has = f"(tables, splits, ResNet101 features; {archive.size_mb} MB)"
    made = [feature for feature in features if how_to_make(dataset, feature)]
    how = how_to_make(dataset, made[0]) + (f", likewise {', '.join(made[1:])}" if made[1:] else "") if made else ""
    return f"{start}: zsl data download {dataset} {has} from {archive.url}" + (f"; {how}" if how else "")


def _count(mine: Sequence[Cell]) -> str:
    return f"{len(mine)} cell{'s' if len(mine) > 1 else ''}"


def _titles(mine: Sequence[Cell]) -> str:
    return ", ".join(dict.fromkeys(one.title for one in mine))


# --- jobs and their time ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """One command of ``zsl.main``, whose jobs are alike."""

    title: str
    arguments: tuple[str, ...]
    n_jobs: int
    kind: str
    """Tasks of one kind are on the same data"""
    seconds: float | None = None
    """How long one of its jobs took earlier"""
    n_done: int = 0
    """How many of its jobs have a result already, which they are skipped for"""


def tasks_of(found: Sequence[Cell], records: pd.DataFrame, output: Sequence[str] = ()) -> list[Task]:
    """The commands that fill cells, with the time that jobs of each cell took in records.

    Parameters
    ----------
    found : sequence of Cell
    records : DataFrame
        Of :func:`zsl.report.records.read_records`.
    output : sequence of str
        Further overrides of every run, such as ``output_dir=FOLDER``.
    """
    took = records[[t for t in _TIMES if t in records]].fillna(0).sum(axis=1)
    earlier = records.assign(took=took).groupby(["experiment", "cell"])["took"] if len(records) else None
    seconds, n_done = ({}, {}) if earlier is None else (earlier.mean(), earlier.size())
    tasks = []
    for one in found:
        words, name = arguments_of(one), (one.experiment, one.id)
        n = n_jobs(words)
        tasks.append(
            Task(" ".join(name), (*words, *output), n, one.data, seconds.get(name), min(n_done.get(name, 0), n))
        )
    return tasks


@dataclass
class Progress:
    """How many of several tasks' jobs are done, and how long the others will take by what was measured."""

    tasks: Sequence[Task]
    ended: dict[Task, int] = field(default_factory=dict)
    """Jobs that have ended, by task"""
    measured: dict[Task, list[float]] = field(default_factory=dict)
    """Seconds of the jobs that finished in this process's time"""
    at_once: int = 1
    """How many tasks run at a time"""

    @property
    def total(self) -> int:
        """How many jobs there are."""
        return sum(task.n_jobs for task in self.tasks)

    def seconds(self, task: Task) -> tuple[float | None, bool]:
        """How long a job of a task takes, and whether jobs of the same task were measured.

        Otherwise it is the mean over other tasks on the same data, or over all others; None before any job has ended.
        """
        own = self.measured.get(task)
        if own:
            return mean(own), True
        if task.seconds is not None:
            return task.seconds, True
        known = {t: self.seconds(t)[0] or 0.0 for t in self.tasks if t.seconds is not None or self.measured.get(t)}
        alike = [s for t, s in known.items() if t.kind == task.kind] or [*known.values()]
        return (mean(alike) if alike else None), False

    def left(self) -> str:
        """The time that is left in words; empty as long as nothing was measured."""
        total, sure = 0.0, True
        for task in self.tasks:
            n = task.n_jobs - max(self.ended.get(task, 0), task.n_done)
            seconds, measured = self.seconds(task)
            if seconds is None and n > 0:
                return ""
            total, sure = total + n * (seconds or 0.0), sure and (measured or n == 0)
        return duration(total / self.at_once) + " left" + ("" if sure else " if the other jobs are like those so far")

    def __str__(self) -> str:
        job = f"job {min(sum(self.ended.values()) + 1, self.total)} of {self.total}"
        return ", ".join(filter(None, (job, self.left())))


# --- running ------------------------------------------------------------------------------------------------


def fill(tasks: Sequence[Task], folder: Path, at_once: int = 1) -> list[str]:
    """Run commands; say before how many jobs they have, and then how far they are.

    Parameters
    ----------
    tasks : sequence of Task
    folder : Path
        All output: where the sweeps are looked for.
    at_once : int
        How many kinds of tasks run at the same time; tasks of one kind always run one after the other.

    Returns
    -------
    list of str
        The commands that failed. A job that fails leaves its cell empty, and the other jobs go on.
    """
    kinds = [[task for task in tasks if task.kind == kind] for kind in dict.fromkeys(task.kind for task in tasks)]
    at_once = max(1, min(at_once, len(kinds)))
    progress, failed = Progress(tasks, at_once=at_once), []
    n_done = sum(task.n_done for task in tasks)
    done = f", of which {n_done} have a result already" if n_done else ""
    say(f"{progress.total} jobs{done}; {progress.left() or 'how long they take is said after the first of them'}.")
    stopped, threads = Event(), max(1, usable_cores() // at_once)

    def run(kind: Sequence[Task]) -> None:
        for task in kind:
            if stopped.is_set():
                return
            say(f"{task.title}: {progress}")
            code = start(
                task.arguments, quiet=True, progress=progress, task=task, folder=folder, threads=threads,
                stopped=stopped,
            )  # fmt: skip
            if code != 0:
                failed.append("zsl run " + shlex.join(task.arguments))
            progress.ended[task] = task.n_jobs

    with interruptible(), ThreadPoolExecutor(at_once) as pool:
        running = [pool.submit(run, kind) for kind in kinds]
        try:
            for one in running:
                one.result()
        finally:
            stopped.set()  # no other process is started, and those that run are ended
    return failed


def say(text: str) -> None:
    """One line for the user, apart from results."""
    print(text, file=sys.stderr, flush=True)


def start(
    arguments: Sequence[str],
    *,
    quiet: bool = False,
    progress: Progress | None = None,
    task: Task | None = None,
    folder: Path = Path("multirun"),
    threads: int | None = None,
    stopped: Event | None = None,
) -> int:
    """Run ``zsl.main`` in a process of its own, wait for it, and return its exit status.

    The process uses as many ``threads`` as given, by default all cores. It is ended once ``stopped`` is set. Ctrl-C
    reaches that process as well, SIGTERM is passed on; it gets the time to record how its runs ended.
    """
    command = [sys.executable, "-m", "zsl.main", *arguments]
    environment = None if threads is None else {**os.environ, **thread_limits(threads)}
    began = status.now_ms()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL if quiet else None, env=environment)
    experiment, sweep, looked, said = value_of(arguments, "experiment") or "", None, time.monotonic(), ""
    try:
        while process.returncode is None and not (stopped and stopped.is_set()):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_WAIT_S)
            # Looking reads a file of each job, which takes a while where there are hundreds.
            soon = process.returncode is None and time.monotonic() - looked < _LOOK_S
            if progress is None or task is None or soon:
                continue
            looked, sweep = time.monotonic(), sweep or _sweep_of(process.pid, folder / experiment, began)
            _look(progress, task, sweep)
            if process.returncode is None and str(progress) != said:
                said = str(progress)
                say(f"  {said}")
    finally:
        if isinstance(interruption(), SystemExit):
            process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_PATIENCE_S)
        process.kill()  # does nothing once the process has ended
    return process.wait()


def _sweep_of(pid: int, folder: Path, began: int) -> Mapping[str, object] | None:
    """The ``sweep.json`` that a process, which was started at a time in ms, has written under a folder."""
    for path in status.walk(folder, status.SWEEP):
        sweep = status.read(path)
        # In a container an earlier process may have had the same number.
        if sweep.get("process", {}).get("pid") == pid and sweep.get("started", 0) >= began:
            return sweep
    return None


def _look(progress: Progress, task: Task, sweep: Mapping[str, object] | None) -> None:
    """Count the jobs of a task's sweep that have ended, and measure those that finished."""
    if sweep is None:
        return
    jobs = jobs_of(sweep)
    progress.ended[task] = len(jobs.found) - len(jobs.of(status.RUNNING))
    finished = [job.record for job in jobs.of(status.FINISHED)]
    progress.measured[task] = [(r["ended"] - r["started"]) / 1000 for r in finished]
