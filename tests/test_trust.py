"""Faults of the store, of files and of kernels, each once and quickly; ``make faults`` puts them into whole runs."""

from __future__ import annotations

import errno
import importlib
import multiprocessing
import os
import shutil
import socket
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from commands import zsl
from test_tracking import DEFAULT, QUICK, recorded, start
from zsl import compose, run
from zsl.config import credentials, resolve
from zsl.errors import UserError, atomic, remove_parts, unforeseen
from zsl.runs import status
from zsl.runs.lock import FolderLock, remove_stale
from zsl.sparse.kernels.compiled import check_private
from zsl.tracking import opening
from zsl.tracking import store as stores
from zsl.tracking.__main__ import main
from zsl.tracking.store import open_store

create = opening._create


@pytest.fixture(autouse=True)
def _nothing_open(monkeypatch, fresh_store):
    monkeypatch.delenv(credentials.VARIABLE, raising=False)
    # MLflow takes seconds to create its tables.
    monkeypatch.setattr(opening, "_create", lambda path, _: shutil.copy(fresh_store / "mlflow.db", path))
    stores.forget()
    yield
    stores.forget()


# --- the store ----------------------------------------------------------------------------------------------------


def damage(path: Path, how: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        if how == "no version":  # what a creation that was killed left behind in earlier versions
            connection.execute("DELETE FROM alembic_version")
            connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = path.read_bytes()
    changed = {"cut": data[: len(data) // 2], "random": data[:100] + os.urandom(len(data) - 100), "empty": b""}
    path.write_bytes(changed.get(how, data))


@pytest.mark.parametrize("how", ["cut", "random", "no version", "empty"])
def test_a_damaged_store_is_set_aside(store, how, caplog):
    damage(store / "mlflow.db", how)
    assert open_store(DEFAULT, store).experiment
    kept = list(store.glob("mlflow.db.damaged-*"))
    assert len(kept) == (0 if how == "empty" else 1)
    assert ("a new one takes its place" in caplog.text) == (how != "empty")
    assert opening.sound(store / "mlflow.db", thorough=True)


@pytest.mark.parametrize("content", [b"my notes", None])
def test_a_file_of_something_else_is_never_renamed(tmp_path, content):
    path = tmp_path / "mine.db"
    if content is None:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE birds (name)")
    else:
        path.write_bytes(content)
    before = path.read_bytes()
    with pytest.raises(OSError, match=r"name another"):
        open_store({"uri": f"sqlite:///{path}", "experiment": "zsl"}, tmp_path)
    assert path.read_bytes() == before


@pytest.mark.slow
def test_a_store_that_was_deleted_is_filled_again(tmp_path, store, capsys):
    out = store
    shutil.rmtree(out / "mlartifacts", ignore_errors=True)
    start(out / "a")
    for path in out.glob("mlflow.db*"):
        path.unlink()
    start(out / "b", "seed=1")  # the same process, which had the old file open
    assert len(recorded(out)) == 1
    assert main(["upload", str(out)]) == 0
    assert "out/a: " in capsys.readouterr().out.replace(str(out), "out")
    assert {r.info.status for r in recorded(out)} == {"FINISHED"}
    assert len(recorded(out)) == 2


def test_no_record_is_sent_that_is_not_the_runs_own(tmp_path, store, caplog):
    start(store / "a", "tracking=none")
    record = status.read(store / "a" / "status.json")
    record["tracking"] = {**DEFAULT, "model": False, "register": None, "run_id": None, "parent": None,
                          "model_logged": False, "complete": False}  # fmt: skip
    status.write(store / "a" / "status.json", {**record, "digest": "0" * 16})
    assert main(["upload", str(store)]) == 1
    assert "of another run, and is not sent" in caplog.text
    assert not [r for r in recorded(store) if r.data.metrics]


@pytest.mark.slow
def test_a_store_that_hangs_costs_its_patience_once(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(opening, "PATIENCE_S", 0.5)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        uri = f"tracking.uri=http://127.0.0.1:{server.getsockname()[1]}"
        opening.environment()
        start(tmp_path / "a", uri)
        begun = time.monotonic()
        start(tmp_path / "b", uri)
        assert time.monotonic() - begun < 5
    assert caplog.text.count("it gave no answer for") >= 3
    assert status.read(tmp_path / "b" / "status.json")["status"] == "FINISHED"


def test_silence_is_remembered_however_a_file_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    stores.keep_silent("sqlite:///out/../s.db", tmp_path, "it hangs")
    assert stores.silent(f"sqlite:///{tmp_path / 's.db'}", tmp_path) == "it hangs"
    with pytest.raises(ConnectionError, match="it hangs"):
        open_store({"uri": "sqlite:///s.db", "experiment": "zsl"}, tmp_path)


@pytest.mark.slow
def test_work_that_goes_on_is_no_hang(monkeypatch):
    monkeypatch.setattr(opening, "PATIENCE_S", 0.3)

    class Slow:
        def step(self):
            time.sleep(0.2)
            return 1

    client = opening.Client(Slow())
    assert opening.answered(lambda: sum(client.step() for _ in range(4)), client) == 4
    with pytest.raises(opening.Silent):
        opening.answered(lambda: time.sleep(5), client)
    client.expect(10_000_000)
    assert opening.answered(lambda: time.sleep(0.6), client) is None


@pytest.mark.slow
def test_odd_paths_of_stores(tmp_path, monkeypatch):
    names = ["My%20Data", "p?q", "a#b", "it's", "ä b?c=%d#e"]
    for name in names:
        monkeypatch.setattr(opening, "_create", create if name == names[-1] else opening._create)
        out = tmp_path / name
        run(compose([*QUICK, f'output_dir="{out}"']), out / "run")
        (found,) = recorded(out)
        assert found.info.status == "FINISHED"
        assert {p.name for p in out.iterdir()} <= {"mlflow.db", "mlflow.db-wal", "mlflow.db-shm", ".mlflow.lock",
                                                   "mlartifacts", "run"}  # fmt: skip
    assert {p.name for p in tmp_path.iterdir()} == set(names)
    assert list((tmp_path / names[-1] / "mlartifacts").rglob("model.skops"))


# --- logins -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_login_is_in_no_file_and_on_no_line(tmp_path, monkeypatch):
    monkeypatch.setattr(opening, "PATIENCE_S", 2)
    words = ("dataset=synthetic", "model=ridge", "output_dir=out")
    out = zsl(*words, "tracking.uri=http://me:s3cr3tpw@127.0.0.1:1", cwd=tmp_path)
    conf = tmp_path / "c" / "experiment"
    conf.mkdir(parents=True)
    (conf / "e.yaml").write_text("# @package _global_\ntracking: {uri: 'http://me:s3cr3tpw@127.0.0.1:1'}\n")
    more = zsl(*words, "--config-dir", "c", "experiment=e", cwd=tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:s3cr3tpw@127.0.0.1:1")
    last = zsl(*words, "-m", "seed=1,2", cwd=tmp_path)
    assert "s3cr3tpw" not in out.out + out.err + more.out + more.err + last.out + last.err
    assert len(list((tmp_path / "out").rglob("results.json"))) == 4
    for path in (tmp_path / "out").rglob("*"):
        assert path.is_dir() or b"s3cr3tpw" not in path.read_bytes(), path


def test_a_login_goes_to_its_own_server_only():
    config = resolve(compose(["tracking.uri=mysql://me:p%40ss@host:3306/db"]))
    assert config["tracking"]["uri"] == "mysql://host:3306/db"
    assert credentials.completed("mysql://host:3306/db") == "mysql://me:p%40ss@host:3306/db"
    assert credentials.completed("mysql://other:3306/db") == "mysql://other:3306/db"
    with pytest.raises(UserError, match=r"holds a secret \(token=...\)"):
        compose(["tracking.uri='http://host/?token=abc'"])


# --- files --------------------------------------------------------------------------------------------------------


def test_any_flipped_bit_of_a_record_is_noticed(tmp_path, caplog):
    path = tmp_path / "results.json"
    record = {"key": {"a": 1}, "metrics": {"acc_class": 0.25}, "per_class": [], "digest": "0123"}
    status.write(path, record)
    assert status.read(path) == record
    whole = path.read_bytes()
    taken = 0
    for at in range(len(whole) * 8):
        data = bytearray(whole)
        data[at // 8] ^= 1 << at % 8
        path.write_bytes(data)
        found = status.read(path)
        assert found in ({}, record), data
        taken += found == record  # white space
    assert taken < len(whole)
    assert f"{path} is damaged and left out" in caplog.text


@pytest.mark.slow
def test_a_damaged_record_is_named_and_the_others_go_on(tmp_path, store, caplog, capsys):
    for name in ("a", "b", "c"):
        start(store / name, "tracking=none", f"seed={ord(name)}")
    (store / "a" / "status.json").write_text("{}")
    (store / "b" / "results.json").write_text('{"metrics": 3}')
    assert main(["repair", str(store)]) == 0
    assert main(["upload", "--all", str(store)]) == 1
    assert len([r for r in recorded(store) if r.info.status == "FINISHED"]) == 1
    assert "status.json is damaged" in caplog.text
    assert "results.json is damaged" in caplog.text


def hold(folder, ready, done):
    lock = FolderLock(folder)
    lock.take()
    ready.set()
    done.wait()
    os._exit(0)  # as a process that is killed: nothing is released


@pytest.mark.slow
def test_a_folder_is_for_one_process(tmp_path):
    fork = multiprocessing.get_context("fork")
    ready, done = fork.Event(), fork.Event()
    other = fork.Process(target=hold, args=(tmp_path / "run", ready, done))
    other.start()
    ready.wait()
    with pytest.raises(UserError, match="another process runs in"):
        start(tmp_path / "run", "tracking=none")
    assert not (tmp_path / "run" / "status.json").exists()
    done.set()
    other.join()
    assert (tmp_path / "run" / ".lock").exists()
    remove_stale(tmp_path)
    assert not list((tmp_path / "run").iterdir())
    start(tmp_path / "run", "tracking=none")
    assert not [p for p in (tmp_path / "run").iterdir() if p.name.startswith(".")]


def test_partial_files_of_dead_processes_are_removed(tmp_path):
    with atomic(tmp_path / "x.csv") as part:
        part.write_text("a")
        assert remove_parts(tmp_path) == []  # this process runs
        name = part.name
    left = tmp_path / name.replace(str(os.getpid()), "99999999")
    left.write_text("b")
    assert remove_parts(tmp_path) == [left]
    assert [p.name for p in tmp_path.iterdir()] == ["x.csv"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.EIO])
@pytest.mark.slow
def test_what_the_system_refuses_is_one_sentence(tmp_path, monkeypatch, number):
    def full(*_, **__):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("zsl.runs.files.write_predictions", full)
    words = ("dataset=synthetic", "model=ridge", "tracking=none", "output_dir=out")
    out = zsl(*words, cwd=tmp_path)
    (line,) = out.err.strip().splitlines()
    assert out.returncode == 1
    assert os.strerror(number) in line
    assert "skip_existing=true" in line
    (found,) = (tmp_path / "out").rglob("status.json")
    assert (status.read(found)["status"], status.read(found)["error"]) == (
        "FAILED",
        str(OSError(number, os.strerror(number))),
    )
    monkeypatch.undo()
    again = zsl(
        "dataset=synthetic", "model=ridge", "tracking=none", "output_dir=out", "skip_existing=true", cwd=tmp_path
    )
    assert again.returncode == 0


def test_memory_is_not_called_a_file():
    assert "there is not enough memory" in unforeseen(OSError(errno.ENOMEM, "Cannot allocate memory"))


def test_a_memory_limit_is_refused_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setattr("zsl.main.address_space_left", lambda: 3e8)
    out = zsl("dataset=synthetic", cwd=tmp_path)
    assert (
        out.err
        == "zsl: the limit on memory (ulimit -v) leaves 0.30 GB, and a run needs 1.25 GB besides its data; raise it.\n"
    )


# --- compiled kernels ---------------------------------------------------------------------------------------------


def test_a_damaged_kernel_is_compiled_again_once(tmp_path, monkeypatch, caplog):
    (tmp_path / "kernel_here.py").write_text(
        "from zsl.sparse.kernels.compiled import njit\n\n@njit()\ndef twice(x):\n    return 2 * x\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    caplog.set_level("INFO")

    def twice():
        sys.modules.pop("kernel_here", None)
        kernel = importlib.import_module("kernel_here").twice
        assert kernel(21) == 42
        return sum(kernel.stats.cache_hits.values())

    assert (twice(), twice()) == (0, 1)
    for kind, content in (("nbi", b""), ("nbi", None), ("nbc", b"x" * 50), ("nbc", None)):
        (path,) = (tmp_path / "__pycache__").glob(f"*.{kind}")
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data if content is None else content)
        caplog.clear()
        assert twice() == 0
        assert caplog.text.count("are compiled again") == 1
        assert twice() == 1


def test_a_folder_of_kernels_that_others_may_write_is_refused(tmp_path):
    check_private(tmp_path)
    tmp_path.chmod(0o777)
    with pytest.raises(UserError, match=r"chmod o-w"):
        check_private(tmp_path)
    (tmp_path / "below").mkdir(mode=0o700)
    with pytest.raises(UserError, match="NUMBA_CACHE_DIR"):
        check_private(tmp_path / "below")
    tmp_path.chmod(0o1777)  # as /tmp: files of others cannot be replaced
    check_private(tmp_path / "below")
    tmp_path.chmod(0o755)
