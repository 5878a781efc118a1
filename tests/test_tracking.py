"""MLflow: what is recorded, a store created by many at once, stores that fail, repair and upload."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys

import pytest

from conftest import ROOT
from zsl import compose, run
from zsl.errors import UserError
from zsl.models import CoupledDictionaries
from zsl.runs import status as records
from zsl.tracking import MLflowTracker, about, opening, view
from zsl.tracking import store as stores
from zsl.tracking.__main__ import main
from zsl.tracking.store import Store, open_store

QUICK = ["dataset=synthetic", "model.n_iter=1", "inference=aag"]
DEFAULT = {"uri": None, "experiment": "zsl"}
pytestmark = pytest.mark.usefixtures("no_store_is_remembered")


def start(folder, *more):
    """A quick run whose store lies in the folder above its own."""
    return run(compose([*QUICK, f"output_dir={folder.parent}", *more]), folder)


def client_of(output_dir):
    from mlflow import MlflowClient

    return MlflowClient(opening.address(output_dir / "mlflow.db"))


def recorded(output_dir):
    client = client_of(output_dir)
    return client.search_runs([client.get_experiment_by_name("zsl").experiment_id])


def raising(error):
    def fails(*_, **__):
        raise error

    return fails


def status(folder):
    return json.loads((folder / "status.json").read_text())


# --- what is recorded -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_is_recorded_whole(tmp_path, capsys):
    """In a fresh store, because a copied one remembers where its artifacts were."""
    out = tmp_path / "out"
    result = start(out / "run", "split=random")
    (found,) = recorded(out)
    run_id = found.info.run_id
    assert run_id in capsys.readouterr().out
    assert found.info.status == "FINISHED"
    assert found.info.run_name == "coupled aag synthetic random seed 0"
    finite = {about.grouped(k): v for k, v in result.metrics.items() if v == v}
    assert {k: found.data.metrics[k] for k in finite} == pytest.approx(finite, rel=1e-3)
    assert {k.partition("/")[0] for k in finite} == {"accuracy", "hubness", "fit", "cost", "aag"}
    assert found.data.params["model.n_iter"] == "1"
    assert found.data.params["dataset.semantics.l2"] == "True"
    assert found.data.tags["zsl.digest"] == result.digest
    assert found.data.tags["zsl.folder"] == str(out / "run")
    client = client_of(out)
    curve = client.get_metric_history(run_id, "curve/objective_x")
    assert [m.value for m in sorted(curve, key=lambda m: m.step)] == pytest.approx(result.curves["objective_x"])
    names = {p.name for p in (out / "mlartifacts" / run_id).rglob("*") if p.is_file()}
    figures = {"confusion.png", "per_class.png", "objective.png"}
    assert names == {"results.json", "config.yaml", "per_class.csv", "predictions.csv", *figures}
    assert {p.name for p in (out / "mlartifacts" / run_id / "artifacts" / "figures").iterdir()} == figures
    assert {"MLmodel", "model.skops"} <= {p.name for p in (out / "mlartifacts" / "models").rglob("*")}
    assert {p.name for p in tmp_path.iterdir()} == {"out"}
    with sqlite3.connect(out / "mlflow.db") as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    # What the run's page says besides.
    note = found.data.tags["mlflow.note.content"]
    for words in (
        "model coupled was trained on the dataset synthetic",
        "Protocol: inductive",
        "not tuned",
        "metrics.md",
    ):
        assert words in note
    (used,) = found.inputs.dataset_inputs
    assert (used.dataset.name, used.dataset.digest) == ("synthetic", result.key["dataset"]["content"])
    assert json.loads(used.dataset.profile)["num_rows"] == result.sizes["training_images"]
    assert [(tag.key, tag.value) for tag in used.tags] == [("mlflow.data.context", "training")]
    commit = result.versions.get("zsl-commit", "")
    assert found.data.tags.get("mlflow.source.git.commit", "") == commit.rstrip("+")
    assert found.data.tags["mlflow.source.name"] == "zsl run"


def test_the_tags_of_the_code_tell_changed_files():
    assert about.code_tags("0123456789ab+")["mlflow.source.git.dirty"] == "true"
    assert about.code_tags("0123456789ab")["mlflow.source.git.dirty"] == "false"
    assert "mlflow.source.git.commit" not in about.code_tags("")


def test_every_metric_of_the_documentation_has_a_group():
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    names = [n for row in page.splitlines() if row.startswith("| `") for n in re.findall("`(.*?)`", row.split("|")[1])]
    assert len(names) > 20
    assert [n for n in names if "/" not in about.grouped(n)] == []


@pytest.mark.slow
def test_figures_that_fail_cost_a_warning(store, monkeypatch, caplog):
    monkeypatch.setattr("zsl.report.figures.of_run", raising(RuntimeError("no font")))
    start(store / "run")
    assert "the figures of the run are not drawn (no font)" in caplog.text
    assert [r.info.status for r in recorded(store)] == ["FINISHED"]
    caplog.clear()
    start(store / "run2", "figures=false")
    assert "figures" not in caplog.text


@pytest.mark.parametrize(("error", "word"), [(ZeroDivisionError("0"), "FAILED"), (KeyboardInterrupt(), "KILLED")])
def test_a_run_that_does_not_finish_says_why(store, monkeypatch, error, word):
    monkeypatch.setattr(CoupledDictionaries, "fit", raising(error))
    with pytest.raises(type(error)):
        start(store / "run")
    (found,) = recorded(store)
    assert found.info.status == status(store / "run")["status"] == word
    assert found.data.tags["zsl.error"] == ("0" if word == "FAILED" else "interrupted")
    assert ("in fails" in (status(store / "run")["traceback"] or "")) == (word == "FAILED")


# --- opening a store --------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("uri", [None, "sqlite:///out/mlflow.db"])
def test_many_processes_create_one_store(tmp_path, uri):
    code = (
        "from pathlib import Path; from zsl.tracking.store import open_store\n"
        f"print(open_store({ ({**DEFAULT, 'uri': uri})!r}, Path('out')).experiment)"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    jobs = [
        subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    assert {job.communicate(timeout=120)[0].strip() for job in jobs} == {"1"}
    with sqlite3.connect(tmp_path / "out" / "mlflow.db") as db:
        assert db.execute("select count(*) from experiments where name = 'zsl'").fetchone() == (1,)
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_an_older_store_opens_on_the_page_of_runs(store):
    old = client_of(store).create_experiment("old")
    assert open_store({"uri": None, "experiment": "old"}, store).experiment == old
    assert view.EXPERIMENT_TAGS.items() <= client_of(store).get_experiment(old).tags.items()


@pytest.mark.slow
def test_a_store_that_fails_costs_a_warning(tmp_path, caplog):
    (tmp_path / "mlflow.db").write_text("this is no database, and is not touched")
    start(tmp_path / "run")
    assert f"zsl tracking upload {tmp_path / 'run'}" in caplog.text
    assert (tmp_path / "run" / "results.json").is_file()
    assert (tmp_path / "mlflow.db").read_text() == "this is no database, and is not touched"
    # Who asks for an error gets it before the work.
    with pytest.raises(UserError, match="tracking failed"):
        start(tmp_path / "run2", "tracking.on_error=raise")
    assert not (tmp_path / "run2" / "results.json").exists()


@pytest.mark.slow
def test_a_server_that_is_down_is_asked_once_a_minute(tmp_path, monkeypatch, caplog):
    asked = []

    def refuse(uri, _):
        asked.append(uri)
        raise OSError("connection refused")

    monkeypatch.setattr(stores.opening, "server", refuse)
    for n in (1, 2):
        start(tmp_path / f"run{n}", "tracking.uri=http://127.0.0.1:9")
    assert asked == ["http://127.0.0.1:9"]
    assert caplog.text.count("upload it later") == 2
    assert main(["upload", str(tmp_path)]) == 1  # asks anew
    assert len(asked) == 2


def test_settings_are_refused_before_the_work(tmp_path):
    with pytest.raises(UserError, match=r"tracking\.on_error='ignore' is not accepted"):
        start(tmp_path / "run", "tracking.on_error=ignore")
    assert not (tmp_path / "run").exists()


# --- upload -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_upload_completes_what_the_store_did_not_get(tmp_path, monkeypatch, capsys):
    out, folder = tmp_path / "out", tmp_path / "out" / "run"
    with monkeypatch.context() as broken:
        # The store breaks before the last of what is sent, after the model and the files.
        open_store(DEFAULT, out)
        broken.setattr("mlflow.MlflowClient.set_terminated", raising(OSError("the disk is gone")))
        result = start(folder)
        (before,) = recorded(out)
        assert before.info.status == "RUNNING"
        assert main(["upload", str(folder)]) == 1
        assert "the disk is gone" in capsys.readouterr().err
    assert main(["upload", str(folder)]) == 0
    (after,) = recorded(out)
    assert after.info.run_id == before.info.run_id
    assert after.info.status == "FINISHED"
    assert after.data.metrics["accuracy/acc_class"] == pytest.approx(result.metrics["acc_class"], rel=1e-3)
    assert (out / "mlartifacts" / after.info.run_id / "artifacts" / "results.json").is_file()
    assert len(list(out.glob("mlartifacts/models/*"))) == 1
    capsys.readouterr()
    assert main(["upload", str(folder)]) == 0
    assert capsys.readouterr().out == "nothing to do; --all sends runs made with tracking=none too\n"
    # A run that was deleted for good in the store is made again where the record says that it lacks something.
    record = status(folder)
    record["tracking"] |= {"complete": False, "run_id": "0" * 32}
    records.write(folder / "status.json", record)
    assert main(["upload", str(folder)]) == 0
    assert len(recorded(out)) == 2


@pytest.mark.slow
def test_an_output_folder_that_was_moved_keeps_its_store(tmp_path, store, monkeypatch):
    with monkeypatch.context() as broken:
        broken.setattr(Store, "begin", raising(OSError("away")))
        run(compose([*QUICK, f"output_dir={store}"]), store / "day" / "run")
    store.rename(tmp_path / "moved")
    assert main(["upload", str(tmp_path / "moved" / "day")]) == 0
    assert [r.info.status for r in recorded(tmp_path / "moved")] == ["FINISHED"]
    assert not store.exists()


@pytest.mark.slow
def test_runs_without_tracking_and_runs_of_another_store(tmp_path, store, capsys):
    start(store / "run", "tracking=none")
    for arguments, n in (([], 0), (["--all"], 1), ([], 1)):
        assert main(["upload", *arguments, str(store / "run")]) == 0
        assert len(recorded(store)) == n
    (found,) = recorded(store)
    assert found.info.status == "FINISHED"
    assert found.data.params["model.n_iter"] == "1"
    # Another store gets everything once.
    other = tmp_path / "other" / "mlflow.db"
    for _ in range(2):
        assert main(["upload", str(store), "--uri", f"sqlite:///{other}"]) == 0
        assert [r.info.status for r in recorded(other.parent)] == ["FINISHED"]
    assert capsys.readouterr().out.endswith("nothing to do\n")


def test_runs_are_found_by_a_folder_whose_name_has_an_apostrophe(store):
    opened = open_store(DEFAULT, store)
    for folder in ("/home/o'brien/run", "/home/brien/run", '/home/"brien"/run'):
        opened.client.create_run(opened.experiment, tags={"zsl.folder": folder})
        (found,) = opened.find("zsl.folder", folder, "attributes.status = 'RUNNING'")
        assert found.data.tags["zsl.folder"] == folder


@pytest.mark.slow
def test_a_long_curve_is_sent_in_parts_each_of_which_is_a_sign_of_life(store, monkeypatch):
    """One call for 20,000 values kept an MLflow server busy for longer than the patience with a store that hangs."""
    from mlflow import MlflowClient

    start(store / "run", "tracking=none")
    result = records.read(store / "run" / "results.json")
    records.write(store / "run" / "results.json", {**result, "curves": {"objective": [0.5] * 2500}})
    sent, log_batch = [], MlflowClient.log_batch
    monkeypatch.setattr(
        MlflowClient, "log_batch", lambda *a, **k: (sent.append(len(a[2])), log_batch(*a, **k))[1]
    )  # fmt: skip
    assert main(["upload", str(store), "--all"]) == 0
    assert max(sent) == 1000
    (stored,) = recorded(store)
    assert len(client_of(store).get_metric_history(stored.info.run_id, "curve/objective")) == 2500


# --- repair -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_repair_marks_what_was_killed_without_a_word(store, tmp_path, capsys):
    """After SIGKILL the folder and the store both say RUNNING."""
    code = (
        "import os, signal, sys; from pathlib import Path; from zsl import compose, run\n"
        "from zsl.models import CoupledDictionaries\n"
        "CoupledDictionaries.fit = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"run(compose({[*QUICK, f'output_dir={store}']!r}), Path({str(store / 'run')!r}))\n"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=env, cwd=tmp_path, timeout=120)
    assert done.returncode == -signal.SIGKILL
    assert [r.info.status for r in recorded(store)] == ["RUNNING"]
    assert main(["repair", str(store)]) == 0
    assert [r.info.status for r in recorded(store)] == ["KILLED"]
    assert status(store / "run")["status"] == "KILLED"
    capsys.readouterr()
    assert main(["repair", str(store)]) == 0
    assert capsys.readouterr().out == "nothing to do\n"


def test_repair_leaves_alone_what_runs(store, capsys):
    record = {"status": "RUNNING", "process": records.this_process(), "started": records.now_ms(), "tracking": None}
    records.write(store / "mine" / "status.json", record)
    other = {**record, "process": {**record["process"], "host": "another"}, "started": 0}
    records.write(store / "theirs" / "status.json", other)
    assert main(["repair", str(store)]) == 0
    assert "--older-than HOURS" in capsys.readouterr().out
    assert [status(store / name)["status"] for name in ("mine", "theirs")] == ["RUNNING", "RUNNING"]
    assert main(["repair", str(store), "--older-than", "24"]) == 0
    assert [status(store / name)["status"] for name in ("mine", "theirs")] == ["RUNNING", "KILLED"]


def test_repair_of_a_sweep_and_of_runs_whose_folders_are_gone(store):
    tracker = MLflowTracker(output_dir=str(store))
    gone = {**records.this_process(), "started": "0"}  # the number belongs to another process now
    record = {"status": "RUNNING", "name": "lost", "process": gone, "started": records.now_ms(), "jobs": 2,
              "tracking": tracker.destination(), "output_dir": str(store), "best": "acc_class", "launcher": {},
              "id": "s", "swept": ["seed"], "folder": str(store / "sweep"), "ended": None}  # fmt: skip
    opened = tracker.open()
    opened.begin_sweep(record)
    records.write(store / "sweep" / "sweep.json", record)
    opened.begin({**record, "tracking": tracker.destination()}, store / "run")
    assert main(["repair", str(store)]) == 0
    assert sorted(r.info.status for r in recorded(store)) == ["KILLED", "RUNNING"]
    assert json.loads((store / "sweep" / "sweep.json").read_text())["status"] == "KILLED"
    assert main(["repair", str(store), "--uri", opened.uri]) == 0
    assert {r.info.status for r in recorded(store)} == {"KILLED"}
