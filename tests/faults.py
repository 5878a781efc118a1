"""Faults put into real runs, each kind several times: ``make faults`` prints what survived and what was lost.

    python tests/faults.py                         # every kind, ten tries each
    python tests/faults.py --tries 3 disk server   # kinds whose name holds one of the words

Each try runs the command in a forked process that has imported everything, so that signals fall into work. A try
survives if the command ends in time without a traceback, nothing that was complete before is lost, and what the user is
told to do puts the rest right.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

TINY = ("dataset=synthetic", "dataset.n_classes=12", "dataset.n_atoms=40", "model.n_iter=2", "model.n_atoms=30",
        "inference=aag")  # fmt: skip
KINDS: dict[str, Callable[[Try], None]] = {}


class Lost(AssertionError):
    """What a fault cost."""


@dataclass
class Ended:
    """How a command ended."""

    code: int | str
    seconds: float
    text: str


class Try:
    """One try of one kind: an empty folder, random numbers, and commands in processes of their own."""

    def __init__(self, folder: Path, number: int, seed: int) -> None:
        self.folder, self.number, self.random = folder, number, random.Random(seed)
        self.out = folder / "out"
        self.logs: dict[int, Path] = {}

    def spawn(self, *words: str, module: str = "zsl.main", before: Callable[[], object] | None = None) -> int:
        """Start a command in a forked process; returns its number."""
        path = self.folder / f"log{time.monotonic_ns()}"
        sys.stdout.flush()
        pid = os.fork()
        if pid:
            self.logs[pid] = path
            return pid
        code = 70
        try:
            os.setsid()
            log = os.open(path, os.O_WRONLY | os.O_CREAT)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.chdir(self.folder)
            sys.argv = ["zsl", *words]
            if before:
                before()
            main = importlib.import_module(module).main
            code = (main() if module == "zsl.main" else main(list(words))) or 0
        except SystemExit as ended:
            if isinstance(ended.code, str):
                print(ended.code, file=sys.stderr)
            code = 1 if isinstance(ended.code, str) else ended.code or 0
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def wait(self, pid: int, seconds: float = 120) -> Ended:
        """Wait for a command."""
        log, begun = self.logs[pid], time.monotonic()
        while True:
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                code: int | str = os.waitstatus_to_exitcode(status)
                break
            if time.monotonic() - begun > seconds:
                os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                code = "hang"
                break
            time.sleep(0.01)
        return Ended(code, time.monotonic() - begun, log.read_text(errors="replace") if log.exists() else "")

    def run(self, *words: str, seconds: float = 120, **how) -> Ended:
        """Run a command that must not end in a traceback or hang."""
        ended = self.wait(self.spawn(*words, **how), seconds)
        need(ended.code != "hang", f"no end in {seconds} s: {words}")
        need("Traceback (most recent call last)" not in ended.text, "traceback: " + ended.text[-600:])
        need(not isinstance(ended.code, int) or ended.code >= 0, f"killed by signal {ended.code}")
        return ended

    def zsl(self, *words: str, **how) -> Ended:
        """The tiny run."""
        return self.run(*TINY, f"output_dir={self.out}", *words, **how)

    def upload(self, *words: str, **how) -> Ended:
        """``zsl tracking upload``."""
        return self.run("upload", str(self.out), *words, module="zsl.tracking.__main__", **how)

    def repair(self) -> Ended:
        """``zsl tracking repair``."""
        return self.run("repair", str(self.out), module="zsl.tracking.__main__")


def need(fact: object, otherwise: str) -> None:
    """Fail the try unless something is a fact."""
    if not fact:
        raise Lost(otherwise)


def kind(work: Callable[[Try], None]) -> Callable[[Try], None]:
    """Register a kind of fault under the words of the function's name."""
    KINDS[work.__name__.replace("_", " ")] = work
    return work


def statuses(out: Path) -> dict[str, dict]:
    """The ``status.json`` of each run folder."""
    found = {}
    for path in out.rglob("status.json"):
        if "mlartifacts" not in path.parts:
            found[str(path.parent)] = json.loads(path.read_text())
    return found


def in_store(out: Path) -> dict[str, str]:
    """Run id -> status in the store's database."""
    with contextlib.closing(sqlite3.connect(out / "mlflow.db")) as connection:
        return dict(connection.execute("SELECT run_uuid, status FROM runs"))


def all_in_store(t: Try, n: int) -> None:
    """Every folder is finished, and the store has each run once with its own metrics."""
    from zsl.runs import status as records

    found, store = statuses(t.out), in_store(t.out)
    finished = {f: s for f, s in found.items() if s["status"] == "FINISHED"}
    need(len(finished) == n, f"{len(finished)} of {n} folders are finished")
    need("RUNNING" not in store.values(), f"runs without an end in the store: {store}")
    with contextlib.closing(sqlite3.connect(t.out / "mlflow.db")) as connection:
        metrics = dict(
            connection.execute("SELECT run_uuid, value FROM metrics WHERE key = 'accuracy/acc_class'").fetchall()
        )
    for folder, status in finished.items():
        run = status["tracking"]["run_id"]
        need(store.get(run) == "FINISHED", f"{folder} is not in the store")
        mine = records.read(Path(folder) / "results.json")["metrics"]["acc_class"]
        need(abs(metrics[run] - mine) < 1e-4, f"the store has {metrics[run]} for {folder}, whose accuracy is {mine}")


def completes(t: Try) -> None:
    """Without the limit the same command completes the run, and the store gets it."""
    t.repair()
    need(t.zsl("skip_existing=true").code == 0, "no completion without the limit")
    t.upload()
    all_in_store(t, 1)


def no_parts(out: Path) -> None:
    """No half-written file is left."""
    left = [str(p) for p in out.rglob("*") if re.search(r"\.(part|partial|new|lock|reserve)\b", p.name)
            and p.name != ".mlflow.lock"]  # fmt: skip
    need(not left, f"left over: {left}")


def full(size: str, t: Try) -> None:
    """Make the output folder a disk of its own of a size."""
    t.out.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(t.out)], capture_output=True)
    need(done.returncode == 0, "skipped: mounting a small disk needs root")


def larger(t: Try) -> None:
    """Give the disk room."""
    subprocess.run(["mount", "-o", "remount,size=200m", str(t.out)], check=True)


# --- processes that end ---------------------------------------------------------------------------------------


def killed(t: Try, number: signal.Signals) -> None:
    """A run is stopped at a random moment; what was there stays, and the same command completes the rest."""
    t.zsl("seed=1")
    before = {p: p.read_bytes() for p in t.out.rglob("*") if p.is_file() and p.parent.parent.parent == t.out}
    pid = t.spawn(*TINY, f"output_dir={t.out}", "-m", "seed=2,3")
    time.sleep(t.random.uniform(0.05, 4))
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
    ended = t.wait(pid, 60)
    need(ended.code != "hang", "no end after the signal")
    if number is not signal.SIGKILL:
        need("Traceback" not in ended.text, "traceback: " + ended.text[-500:])
    t.zsl("-m", "seed=2,3", "skip_existing=true")
    t.repair()
    t.upload()
    need(all(p.read_bytes() == b for p, b in before.items() if p.exists()), "an earlier file changed")
    need(all(p.exists() for p in before), "an earlier file is gone")
    with contextlib.closing(sqlite3.connect(t.out / "mlflow.db")) as connection:
        need(connection.execute("PRAGMA quick_check").fetchone() == ("ok",), "the store is damaged")
    need("RUNNING" not in in_store(t.out).values(), "a run has no end in the store")
    no_parts(t.out)


KINDS["killed by sigkill"] = partial(killed, number=signal.SIGKILL)
KINDS["terminated by sigterm"] = partial(killed, number=signal.SIGTERM)
KINDS["interrupted by sigint"] = partial(killed, number=signal.SIGINT)


def store_creation(t: Try, number: signal.Signals) -> None:
    pid = t.spawn(*TINY, f"output_dir={t.out}")
    begun = time.monotonic()
    while not list(t.out.glob(".mlflow.*.new")) and time.monotonic() - begun < 30:
        time.sleep(0.005)
    time.sleep(t.random.uniform(0, 1.2))
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
    t.wait(pid)
    ended = t.zsl("seed=1")
    need("tracking failed" not in ended.text, "the store stays broken: " + ended.text[-300:])
    t.repair()
    t.upload()
    need("RUNNING" not in in_store(t.out).values(), "a run has no end in the store")
    no_parts(t.out)


KINDS["store creation killed"] = partial(store_creation, number=signal.SIGKILL)
KINDS["store creation interrupted"] = partial(store_creation, number=signal.SIGINT)


# --- disks, limits, environment -------------------------------------------------------------------------------


@kind
def disk_full_while_the_store_is_created(t: Try) -> None:
    full(f"{t.random.randint(80, 900)}k", t)
    t.zsl()
    larger(t)
    ended = t.zsl("skip_existing=true")
    need(ended.code == 0 and "tracking failed" not in ended.text, ended.text[-300:])
    t.upload()
    t.repair()
    all_in_store(t, 1)
    no_parts(t.out)


@kind
def disk_full_while_files_are_written(t: Try) -> None:
    full(f"{t.random.randint(30, 120)}k", t)
    ended = t.zsl("tracking=none", "save_predictions=true")
    need(ended.code in (0, 1), str(ended))
    if ended.code:
        need("No space left" in ended.text, ended.text[-300:])
        need(all(s["status"] == "FAILED" for s in statuses(t.out).values()), "the status is not FAILED")
    no_parts(t.out)
    larger(t)
    need(t.zsl("tracking=none", "save_predictions=true", "skip_existing=true").code == 0, "no completion with room")


@kind
def disk_full_in_a_sweep(t: Try) -> None:
    full(f"{t.random.randint(1100, 1800)}k", t)
    t.zsl("-m", "seed=range(6)")
    larger(t)
    need(t.zsl("-m", "seed=range(6)", "skip_existing=true").code == 0, "no completion with room")
    t.repair()
    t.upload()
    all_in_store(t, 6)
    no_parts(t.out)


@kind
def file_size_limit(t: Try) -> None:
    limit = t.random.randint(20, 900) * 1024
    t.zsl(before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    completes(t)
    no_parts(t.out)


@kind
def too_many_open_files(t: Try) -> None:
    limit = t.random.randint(12, 40)
    t.zsl(before=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)))
    completes(t)


def under_limit(t: Try, limit: int, *words: str) -> subprocess.CompletedProcess[str]:
    """Run under ``ulimit -v`` (kB) in a process of its own: libraries that are loaded already need no memory."""
    call = [sys.executable, "-m", "zsl.main", *TINY, f"output_dir={t.out}", *words]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    command = ["bash", "-c", f'ulimit -v {limit}; exec "$@"', "bash", *call]
    try:
        out = subprocess.run(command, env=env, capture_output=True, text=True, timeout=200)
    except subprocess.TimeoutExpired:
        raise Lost(f"no end under {limit} kB") from None
    need(out.returncode in (0, 1) and "Traceback" not in out.stderr, f"{limit} kB: {out.stderr[-400:]}")
    return out


@kind
def memory_limit(t: Try) -> None:
    under_limit(t, t.random.randint(300_000, 1_500_000))
    completes(t)


@kind
def memory_limit_of_a_large_problem(t: Try) -> None:
    large = ("dataset.preset=sun", "dataset.n_classes=null", "model.n_atoms=null", "tracking=none")
    out = under_limit(t, t.random.randint(1_400_000, 1_700_000), *large)
    need(out.returncode == 1 and "not enough memory" in out.stderr, out.stderr[-300:])


@kind
def read_only_output(t: Try) -> None:
    t.out.mkdir()
    need(subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,ro", "tmpfs", str(t.out)]).returncode == 0, "no mount")
    ended = t.zsl(*(("-m", "seed=1,2") if t.number % 2 else ()))
    need(ended.code == 1 and "Read-only" in ended.text, ended.text[-300:])


@kind
def output_folder_is_a_file(t: Try) -> None:
    t.out.write_text("mine")
    ended = t.zsl(*(("-m", "seed=1,2") if t.number % 2 else ()))
    need(ended.code == 1, ended.text[-300:])
    need(t.out.read_text() == "mine", "the file changed")


@kind
def no_home(t: Try) -> None:
    def before() -> None:
        if t.number % 2:
            os.environ["HOME"] = "/nonexistent"
        else:
            os.environ.pop("HOME", None)

    need(t.zsl("cache_dir=/proc/nothing", before=before).code == 0, "the run failed")
    all_in_store(t, 1)


@kind
def clock_that_jumps(t: Try) -> None:
    def before() -> None:
        real, begun = time.time, time.time()
        back = t.random.choice([86400 * 400, -86400 * 400, begun])  # the last one: 1970
        time.time = lambda: real() - (back if real() - begun > t.random.uniform(0, 1) else 0)

    need(t.zsl(before=before).code == 0, "the run failed")
    all_in_store(t, 1)


# --- folders --------------------------------------------------------------------------------------------------


@kind
def two_processes_in_one_folder(t: Try) -> None:
    words = [*TINY, f"output_dir={t.out}", f"hydra.run.dir={t.out}/same"]
    first = t.spawn(*words, "seed=0")
    time.sleep(t.random.uniform(0, 1.5))
    second = t.spawn(*words, "seed=1")
    one, two = t.wait(first), t.wait(second)
    need("Traceback" not in one.text + two.text, (one.text + two.text)[-500:])
    codes = sorted(str(e.code) for e in (one, two))
    need(codes in (["0", "1"], ["0", "0"]), f"exit statuses {codes}")
    if codes == ["0", "1"]:
        need("another process runs in" in one.text + two.text, "the second was not told why")
    all_in_store(t, 1)


@kind
def two_sweeps_in_one_store(t: Try) -> None:
    first = t.spawn(*TINY, f"output_dir={t.out}", "-m", "seed=range(3)")
    second = t.spawn(*TINY, f"output_dir={t.out}", "-m", "seed=range(3,6)")
    need(t.wait(first).code == 0, "the first sweep failed")
    need(t.wait(second).code == 0, "the second sweep failed")
    all_in_store(t, 6)


@kind
def run_folder_deleted_in_mid_run(t: Try) -> None:
    pid = t.spawn(*TINY, f"output_dir={t.out}")
    begun = time.monotonic()
    while time.monotonic() - begun < 60 and not list(t.out.rglob("status.json")):
        time.sleep(0.01)
    time.sleep(t.random.uniform(0, 0.5))
    for path in [t.out] if t.number % 2 else [p.parent for p in t.out.rglob("status.json")]:
        shutil.rmtree(path, ignore_errors=True)
    ended = t.wait(pid)
    need(ended.code != "hang" and "Traceback" not in ended.text, ended.text[-500:])
    need(t.zsl("skip_existing=true").code == 0, "the next run failed")
    t.repair()
    t.upload()
    need("RUNNING" not in in_store(t.out).values(), "a run has no end in the store")
    need(any(s["status"] == "FINISHED" for s in statuses(t.out).values()), "no finished run")


@kind
def damaged_record_among_others(t: Try) -> None:
    t.zsl("-m", "seed=1,2,3", "tracking=none", "save_model=false")
    name = t.random.choice(["results.json", "status.json", "sweep.json"])
    path = t.random.choice(list(t.out.rglob(name)))
    record = json.loads(path.read_text())
    how = t.random.choice(["cut", "key", "null", "type", "bit"])
    if how == "cut":
        path.write_bytes(path.read_bytes()[: t.random.randrange(path.stat().st_size)])
    elif how == "bit":
        data = bytearray(path.read_bytes())
        data[t.random.randrange(len(data) - 2)] ^= 1 << t.random.randrange(7)
        path.write_bytes(data)
    else:
        key = t.random.choice(sorted(record))
        value = {"null": None, "type": t.random.choice([-1, [], {}, "x"])}.get(how)
        changed = {k: value if k == key else v for k, v in record.items()}
        if how == "key":
            del changed[key]
        path.write_text(json.dumps(changed))
    texts = [t.repair().text, t.upload("--all").text]
    texts.append(t.run("compare", str(t.out), module="zsl.report.__main__").text)
    dashboard = t.run("dashboard", str(t.out), "--to", str(t.folder / "d.html"), module="zsl.report.__main__")
    texts.append(dashboard.text)
    if json.loads(json.dumps(record)) != parsed(path.read_bytes()):
        need(any(str(path) in text and "damaged" in text for text in texts), f"{name} ({how}) is not named")
    need(t.zsl("-m", "seed=1,2,3", "tracking=none", "skip_existing=true").code == 0, "no completion")


def parsed(data: bytes) -> object:
    """What JSON says; None where it is none."""
    try:
        return json.loads(data)
    except ValueError:
        return None


@kind
def flipped_bits_in_a_result(t: Try) -> None:
    t.zsl("tracking=none", "save_model=false")
    (path,) = t.out.rglob("results.json")
    data = bytearray(path.read_bytes())
    data[t.random.randrange(len(data))] ^= 1 << t.random.randrange(8)
    same = parsed(path.read_bytes()) == parsed(bytes(data))
    path.write_bytes(data)
    ended = t.zsl("tracking=none", "save_model=false", "skip_existing=true")
    need(ended.code == 0, ended.text[-300:])
    need(same or "has this result already" not in ended.text, "a changed record was taken for the result")


@kind
def damaged_model_file(t: Try) -> None:
    import numpy as np

    t.zsl("tracking=none")
    (path,) = t.out.rglob("model.skops")
    np.save(t.folder / "x.npy", np.zeros((2, 2048)))
    data = bytearray(path.read_bytes())
    if t.number % 2:
        data[t.random.randrange(len(data))] ^= 1 << t.random.randrange(8)
    else:
        data = data[: t.random.randrange(len(data))]
    path.write_bytes(data)
    ended = t.run(str(path), str(t.folder / "x.npy"), module="zsl.predict.__main__")
    need(ended.code == 1 and ended.text.count("\n") <= 2, ended.text[-300:])


# --- the store ------------------------------------------------------------------------------------------------


@kind
def store_locked(t: Try) -> None:
    t.zsl()
    connection = sqlite3.connect(t.out / "mlflow.db", timeout=30, isolation_level=None, check_same_thread=False)
    connection.execute("BEGIN EXCLUSIVE")
    timer = threading.Timer(30, connection.close)
    timer.start()
    begun = time.monotonic()
    ended = t.zsl("seed=1")
    need(ended.code == 0, ended.text[-300:])
    need(ended.seconds < 10 + 12, f"{ended.seconds:.0f} s")
    timer.cancel()
    connection.close()
    need(time.monotonic() - begun < 30, "it waited for the lock")
    t.upload()
    all_in_store(t, 2)


@kind
def store_deleted_in_a_sweep(t: Try) -> None:
    t.zsl()
    pid = t.spawn(*TINY, f"output_dir={t.out}", "-m", "seed=range(1,5)")
    time.sleep(t.random.uniform(0.5, 5))
    for path in t.out.glob("mlflow.db*"):
        path.unlink()
    ended = t.wait(pid)
    need(ended.code == 0 and "Traceback" not in ended.text, ended.text[-500:])
    t.upload()
    all_in_store(t, 5)


@kind
def store_replaced_in_a_sweep(t: Try) -> None:
    t.zsl()
    shutil.copy(t.out / "mlflow.db", t.folder / "old.db")
    pid = t.spawn(*TINY, f"output_dir={t.out}", "-m", "seed=range(1,4)")
    time.sleep(t.random.uniform(0.5, 4))
    for path in t.out.glob("mlflow.db-*"):
        path.unlink()
    (t.folder / "old.db").replace(t.out / "mlflow.db")
    ended = t.wait(pid)
    need(ended.code == 0 and "Traceback" not in ended.text, ended.text[-500:])
    t.upload()
    all_in_store(t, 4)


@kind
def store_damaged(t: Try) -> None:
    t.zsl()
    path = t.out / "mlflow.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = bytearray(path.read_bytes())
    how = t.number % 4
    if how == 0:
        data[100:] = t.random.randbytes(len(data) - 100)
    elif how == 1:
        data = data[: len(data) // 2]
    elif how == 2:
        data = bytearray()
    else:
        with contextlib.closing(sqlite3.connect(path)) as connection:  # what a killed creation of earlier versions left
            connection.execute("DELETE FROM alembic_version")
            connection.commit()
    if how != 3:
        path.write_bytes(data)
    ended = t.zsl("seed=1")
    need(ended.code == 0, ended.text[-300:])
    t.upload()
    all_in_store(t, 2)


@kind
def store_cannot_be_opened(t: Try) -> None:
    (t.out / "mlflow.db").mkdir(parents=True)
    ended = t.zsl(*(("-m", "seed=1,2") if t.number % 2 else ()))
    need(ended.code == 0 and ended.seconds < 30, f"{ended.seconds:.0f} s: {ended.text[-300:]}")
    need("it is a folder" in ended.text, ended.text[-300:])
    (t.out / "mlflow.db").rmdir()
    t.upload()
    all_in_store(t, 2 if t.number % 2 else 1)


@kind
def store_read_only(t: Try) -> None:
    t.zsl()
    subprocess.run(["mount", "--bind", str(t.out / "mlflow.db"), str(t.out / "mlflow.db")], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", str(t.out / "mlflow.db")], check=True)
    ended = t.zsl("-m", "seed=1,2")
    subprocess.run(["umount", str(t.out / "mlflow.db")], check=True)
    need(ended.code == 0, ended.text[-300:])
    need("tracking failed" in ended.text, "not noticed")
    t.upload()
    all_in_store(t, 3)


class Server(threading.Thread):
    """A server that misbehaves: ``hang``, ``drip``, ``close``, ``500`` or ``html``."""

    def __init__(self, mode: str) -> None:
        super().__init__(daemon=True)
        self.mode, self.socket, self.held = mode, socket.socket(), []
        self.socket.bind(("127.0.0.1", 0))
        self.socket.listen(50)
        self.uri = f"http://127.0.0.1:{self.socket.getsockname()[1]}"

    def run(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self.answer, args=(connection,), daemon=True).start()

    def answer(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            if self.mode == "hang":
                self.held.append(connection)
                return
            connection.recv(65536)
            if self.mode == "500":
                connection.sendall(b"HTTP/1.1 500 No\r\nContent-Length: 4\r\nConnection: close\r\n\r\noops")
            elif self.mode == "html":
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\nConnection: close\r\n\r\n<html>login</")
            elif self.mode == "drip":
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
                for _ in range(400):
                    connection.sendall(b" ")
                    time.sleep(0.5)
            connection.close()


def bad_server(t: Try, modes: tuple[str, ...]) -> None:
    server = Server(modes[t.number % len(modes)])
    server.start()
    sweep = t.number % 2
    usual = t.zsl("tracking=none", "seed=9").seconds
    ended = t.zsl(f"tracking.uri={server.uri}", *(("-m", "seed=1,2,3") if sweep else ()))
    need(ended.code == 0, ended.text[-300:])
    extra = ended.seconds - usual * (3 if sweep else 1)
    need(extra < 10 + 4, f"the server cost {extra:.0f} s")
    server.socket.close()
    need(t.upload("--uri", f"sqlite:///{t.out}/mlflow.db").code == 0, "no upload to another store")
    need(list(in_store(t.out).values()).count("FINISHED") >= (5 if sweep else 2), "runs are missing in the other store")


KINDS["server that hangs"] = partial(bad_server, modes=("hang",))
KINDS["server that drips"] = partial(bad_server, modes=("drip",))
KINDS["server that fails"] = partial(bad_server, modes=("500", "html", "close"))


@kind
def server_that_dies_in_mid_run(t: Try) -> None:
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    about = {"experiment_id": "1", "name": "zsl", "artifact_location": str(t.folder), "lifecycle_stage": "active"}
    run = {"run_id": "a" * 32, "run_uuid": "a" * 32, "experiment_id": "1", "status": "RUNNING", "start_time": 1,
           "artifact_uri": str(t.folder), "lifecycle_stage": "active"}  # fmt: skip

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            answer: dict = {"experiment": about} if "get-by-name" in self.path else {}
            if "runs/create" in self.path:
                answer = {"run": {"info": run, "data": {}}}
                threading.Timer(0.2, lambda: (http.shutdown(), http.server_close())).start()
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PATCH = do

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    ended = t.zsl(f"tracking.uri=http://127.0.0.1:{http.server_address[1]}")
    need(ended.code == 0, ended.text[-300:])
    need(ended.seconds < 20, f"{ended.seconds:.0f} s")
    need(t.upload("--uri", f"sqlite:///{t.out}/mlflow.db").code == 0, "no upload to another store")
    need("FINISHED" in in_store(t.out).values(), "the run is missing in the other store")


# --- what is installed ----------------------------------------------------------------------------------------


@kind
def damaged_compiled_kernels(t: Try) -> None:
    (t.folder / "kernel_of_mine.py").write_text(
        "from zsl.sparse.kernels.compiled import njit\n@njit()\ndef twice(x):\n    return 2 * x\n"
    )
    code = "import logging; logging.basicConfig(level=20); import kernel_of_mine; print(kernel_of_mine.twice(21))"
    env = {**os.environ, "PYTHONPATH": f"{t.folder}:{Path(__file__).resolve().parents[1]}"}
    call = [sys.executable, "-c", code]
    subprocess.run(call, env=env, check=True, capture_output=True, cwd=t.folder)
    for path in (t.folder / "__pycache__").glob(("*.nbi", "*.nbc")[t.number % 2]):
        data = bytearray(path.read_bytes())
        how = t.random.choice(["cut", "empty", "flip"])
        if how == "flip":
            data[t.random.randrange(len(data))] ^= 255
        path.write_bytes(data[: len(data) // 2] if how == "cut" else b"" if how == "empty" else data)
    for again in (True, False):
        out = subprocess.run(call, env=env, capture_output=True, text=True, cwd=t.folder)
        need(out.stdout.strip() == "42", out.stderr[-400:])
        need(("compiled again" in out.stderr) == again, "compiled again more than once, or without a word")


@kind
def missing_dependency(t: Try) -> None:
    name = ["mlflow", "h5py", "pooch", "pyarrow", "optuna", "matplotlib", "pynndescent", "PIL"][t.number % 8]
    code = (
        f"import sys; sys.modules[{name!r}] = None; sys.argv = ['zsl', *{list(TINY)!r}, 'output_dir={t.out}']\n"
        "from zsl.main import main; main()"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    out = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, cwd=t.folder)
    need(out.returncode == 0 and "Traceback" not in out.stderr, (out.stdout + out.stderr)[-400:])
    need(any(s["status"] == "FINISHED" for s in statuses(t.out).values()), "no finished run")


def preload() -> None:
    """Import and compile what the command needs, so that the forked processes begin at once."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from zsl.tracking.opening import environment

    environment()

    import zsl.experiment.run
    import zsl.main
    import zsl.predict.__main__
    import zsl.report.__main__
    import zsl.tracking.maintain  # noqa: F401


def attempt(work: Callable[[Try], None], number: int, seed: int) -> str:
    """One try; returns what was lost, or nothing."""
    folder = Path(tempfile.mkdtemp(prefix="zsl-faults-"))
    try:
        work(Try(folder, number, seed))
    except Lost as lost:
        return str(lost) or "lost"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        for place in (folder / "out" / "mlflow.db", folder / "out"):
            subprocess.run(["umount", str(place)], capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)
    return ""


def main() -> int:
    """Print kind, tries, survived and lost; exit status 1 if anything was lost."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("words", nargs="*", help="only kinds whose name holds one of these")
    parser.add_argument("--tries", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    chosen = {n: w for n, w in KINDS.items() if not given.words or any(word in n for word in given.words)}
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    preload()
    begun, survived_all = time.monotonic(), 0
    print(f"{'fault':45} {'tries':>5} {'survived':>8} {'lost':>4}   seed {given.seed}")
    for place, (name, work) in enumerate(chosen.items()):
        losses = [attempt(work, n, given.seed + 1000 * place + n) for n in range(given.tries)]
        lost = [text for text in losses if text]
        survived_all += not lost
        left = (time.monotonic() - begun) / (place + 1) * (len(chosen) - place - 1) / 60
        print(f"{name:45} {given.tries:5} {given.tries - len(lost):8} {len(lost):4}   {left:.0f} min left", flush=True)
        for text in dict.fromkeys(lost):
            print(f"    {' '.join(text.split())[:400]}", flush=True)
    print(f"{survived_all} of {len(chosen)} kinds survived every try")
    return int(survived_all < len(chosen))


if __name__ == "__main__":
    sys.exit(main())
