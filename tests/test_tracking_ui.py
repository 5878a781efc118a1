"""`zsl ui`: its address, its page with columns for what sweeps vary, and the links of runs to it."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from commands import zsl
from conftest import ROOT
from zsl.errors import UserError
from zsl.runs import status as records
from zsl.system import listen
from zsl.tracking import opening, ui, view

QUICK = ["dataset=synthetic", "figures=false", "tracking.artifacts=light"]


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A working folder in which a sweep over two keys and a single run were made."""
    folder = tmp_path_factory.mktemp("swept")
    zsl("-m", *QUICK, "model=eszsl,sae", "split.seed=0,1", cwd=folder)
    zsl(*QUICK, "model=eszsl", cwd=folder)
    return folder


@pytest.fixture
def shown(swept):
    """`zsl ui` in the working folder, started from another one; yields its process and its first line."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error::UserWarning"}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = subprocess.Popen(
            [sys.executable, "-m", "zsl", "ui", str(swept / "multirun"), "--port", str(port)],
            cwd="/", env=env, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            line = process.stdout.readline()
            assert f":{port}/" not in line
            yield process, line
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


def fetched(address, seconds=30):
    until = time.monotonic() + seconds
    while True:
        try:
            with urllib.request.urlopen(address, timeout=30) as answer:
                return answer.read().decode()
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)


def test_the_page_of_another_database_leaves_the_note_of_the_store(tmp_path, monkeypatch):
    for name in (opening.DATABASE, "other.db"):
        (tmp_path / name).touch()
    note = tmp_path / records.PAGE
    note.write_text("{}")
    monkeypatch.setattr(opening, "sound", lambda path: True)
    monkeypatch.setattr(ui, "application", lambda database: (None, "/"))
    monkeypatch.setattr("uvicorn.Server.run", lambda *_, **__: None)
    ui._work(argparse.Namespace(folder=tmp_path / "other.db", host="127.0.0.1", port=5000))
    assert note.exists()
    ui._work(argparse.Namespace(folder=tmp_path, host="127.0.0.1", port=5000))
    assert not note.exists()


@pytest.mark.slow
def test_jobs_are_named_by_what_the_sweep_varies(swept):
    client = opening.client_of(swept / "multirun" / "mlflow.db")
    names = [run.info.run_name for run in client.search_runs(["1"])]
    assert names[0] == "eszsl synthetic fixed seed 0"
    assert names[-1] == "sweep over model (2), seed (2): synthetic"
    assert set(names[1:-1]) == {f"model={m} seed={s}" for m in ("eszsl", "sae") for s in (0, 1)}


@pytest.mark.slow
def test_the_page_shows_what_varies_and_the_printed_link_leads_to_it(shown, swept):
    process, line = shown
    match = re.match(r"(http://127\.0\.0\.1:\d+)/#/experiments/1/runs shows the runs of ", line)
    assert match, f"zsl ui printed {line!r}"
    address = match[1]
    assert records.page_of(swept / "multirun") == address
    page = fetched(address)
    match = re.search(r"of Object.entries\((.*)\)\) try", page)
    assert match, page
    found = json.loads(match[1])
    (state,) = found.values()
    assert state["selectedColumns"][:3] == [
        "metrics.`accuracy/acc_class`", "params.`model.name`", "params.`split.seed`"
    ]  # fmt: skip
    client = opening.client_of(swept / "multirun" / "mlflow.db")
    (sweep,) = client.search_runs(["1"], "tags.`zsl.kind` = 'sweep'")
    assert state["runsExpanded"] == {sweep.info.run_id: True}
    # A run made now prints a link that works; and a second page on the same folder is not needed.
    done = zsl(*QUICK, "model=sae", cwd=swept)
    match = re.search(r"^tracking (\S+)$", done.out, re.MULTILINE)
    assert match, done.out + done.err
    link = match[1]
    assert link.startswith(f"{address}/#/experiments/1/runs/")
    again = subprocess.run(
        [sys.executable, "-m", "zsl", "ui"], cwd=swept, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert again.stdout.startswith(f"{address} shows ")
    process.send_signal(signal.SIGTERM)
    process.wait(timeout=30)
    assert not (swept / "multirun" / records.PAGE).exists()


@pytest.mark.slow
def test_without_a_page_the_run_names_the_command(swept):
    done = zsl(*QUICK, "model=sae", cwd=swept)
    assert f"; `zsl ui {swept / 'multirun'}` shows it" in done.out


def test_a_page_whose_process_was_killed_is_not_linked(tmp_path):
    gone = {**records.this_process(), "started": "0"}
    records.write(tmp_path / records.PAGE, {"address": "http://127.0.0.1:1", "process": gone})
    assert records.page_of(tmp_path) == ""
    records.write(tmp_path / records.PAGE, {"address": "http://127.0.0.1:1", "process": records.this_process()})
    assert records.page_of(tmp_path) == "http://127.0.0.1:1"


def test_a_store_is_found_from_a_folder_in_it_and_missed_in_a_sentence(store, tmp_path, capsys):
    (store / "day" / "run").mkdir(parents=True)
    assert ui.store_of(store / "day" / "run") == ui.store_of(store) == (store / "mlflow.db").resolve()
    assert ui.main([str(tmp_path / "nothing")]) == 1
    assert "holds no mlflow.db" in capsys.readouterr().err
    (store / "mlflow.db").write_bytes(b"SQLite format 3" + bytes(1009))
    assert ui.main([str(store)]) == 1
    assert "mlflow.db is damaged; `zsl tracking upload " in capsys.readouterr().err
    (tmp_path / "notes.txt").write_text("no database")
    assert ui.main([str(tmp_path / "notes.txt")]) == 1
    assert "no database" in capsys.readouterr().err


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 70000), ("192.0.2.1", 5000)])
def test_a_port_that_cannot_be_used_is_named(host, port):
    with pytest.raises(UserError, match=f"--port={port} and those after it cannot be used on {host}"):
        listen(host, port)


def test_columns_of_groups_and_of_nothing():
    params = ["inference.attributes", "inference.labels", "feature.name", "model.solver.solver", "seed"]
    found = view.state(["inference", "feature", "solver", "seed"], params, [], [])["selectedColumns"]
    assert found == [f"params.`{name}`" for name in params]
    assert "</" not in view.script({"1": {"selectedColumns": ["params.`</script>`"]}})[8:-9]


@pytest.mark.long
@pytest.mark.skipif(shutil.which("chromium") is None, reason="looks at the page in chromium")
def test_a_browser_shows_the_columns_and_no_banner(shown):
    address = shown[1].split(" ")[0]
    fetched(address.partition("#")[0])
    page = subprocess.run(
        ["chromium", "--headless", "--no-sandbox", "--window-size=1280,900", "--virtual-time-budget=20000",
         "--dump-dom", address],
        capture_output=True, text=True, timeout=120,
    ).stdout  # fmt: skip
    for words in ("sweep over model (2), seed (2): synthetic", "model=sae", "accuracy/acc_class", "split.seed"):
        assert words in page
    assert "shared view" not in page
