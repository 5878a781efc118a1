"""MLflow: what is recorded, a store created by many at once, and stores that fail."""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
import subprocess
import sys

import pytest

from conftest import ROOT
from zsl import compose, run
from zsl.errors import UserError
from zsl.tracking.runs import _name, flatten, open_store

SETTINGS = {"name": "mlflow", "uri": None, "experiment": "zsl", "on_error": "warn"}
QUICK = ["dataset=synthetic", "model.n_iter=1", "inference=aag"]


@pytest.fixture(scope="session")
def fresh_store(tmp_path_factory):
    """Creating a store takes seconds, so tests copy one."""
    folder = tmp_path_factory.mktemp("store")
    open_store(SETTINGS, folder)
    return folder


@pytest.fixture
def store(fresh_store, tmp_path):
    folder = tmp_path / "out"
    shutil.copytree(fresh_store, folder)
    return folder


def test_a_run_is_recorded_whole(store, tmp_path, capsys):
    from mlflow import MlflowClient

    result = run(compose([*QUICK, f"output_dir={store}"]), tmp_path / "run")
    client = MlflowClient(f"sqlite:///{store / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("zsl")
    (recorded,) = client.search_runs([experiment.experiment_id])
    assert recorded.info.status == "FINISHED"
    assert recorded.data.metrics["acc_class"] == pytest.approx(result.metrics["acc_class"])
    assert recorded.data.metrics["aag/hit_1"] == pytest.approx(result.metrics["aag/hit_1"])
    assert recorded.data.params["model.n_iter"] == "1"
    assert recorded.data.params["dataset.semantics.l2"] == "True"
    curve = client.get_metric_history(recorded.info.run_id, "curve/objective_x")
    assert [m.value for m in sorted(curve, key=lambda m: m.step)] == pytest.approx(result.curves["objective_x"])
    assert recorded.info.run_id in capsys.readouterr().out
    with sqlite3.connect(store / "mlflow.db") as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_artifacts_stay_in_the_output_folder(tmp_path):
    # A fresh store, because a copied one remembers where it was made.
    folder = tmp_path / "out"
    run(compose([*QUICK, f"output_dir={folder}"]), tmp_path / "run")
    names = {p.name for p in (folder / "mlartifacts").rglob("*") if p.is_file()}
    assert names == {
        "results.json", "config.yaml", "per_class.csv", "dictionaries.npz", "predictions.csv",
    }  # fmt: skip
    assert {p.name for p in tmp_path.iterdir()} == {"out", "run"}


def test_many_processes_create_one_store(tmp_path):
    code = (
        "from pathlib import Path; from zsl.tracking.runs import open_store\n"
        f"print(open_store({SETTINGS!r}, Path('out'))[1])"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    jobs = [
        subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    ids = {job.communicate(timeout=120)[0].strip() for job in jobs}
    assert ids == {"1"}
    with sqlite3.connect(tmp_path / "out" / "mlflow.db") as db:
        assert db.execute("select count(*) from experiments where name = 'zsl'").fetchone() == (1,)


def test_write_ahead_logging_is_put_right(store):
    # As a kill between creating the tables and setting the mode leaves it.
    with sqlite3.connect(store / "mlflow.db") as db:
        assert db.execute("PRAGMA journal_mode=DELETE").fetchone() == ("delete",)
    open_store(SETTINGS, store)
    with sqlite3.connect(store / "mlflow.db") as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_store_that_fails_costs_a_warning(tmp_path, caplog):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mlflow.db").write_text("this is no database, and is not touched")
    with caplog.at_level(logging.WARNING):
        run(compose([*QUICK, f"output_dir={tmp_path / 'out'}"]), tmp_path / "run")
    assert f"the run is complete in {tmp_path / 'run'}, but tracking failed" in caplog.text
    assert (tmp_path / "run" / "results.json").is_file()
    assert (tmp_path / "out" / "mlflow.db").read_text() == "this is no database, and is not touched"
    with pytest.raises(UserError, match="but tracking failed"):
        run(compose([*QUICK, f"output_dir={tmp_path / 'out'}", "tracking.on_error=raise"]), tmp_path / "run2")
    assert (tmp_path / "run2" / "results.json").is_file()


def test_settings_are_refused_before_the_work(tmp_path):
    with pytest.raises(UserError, match=r"tracking\.on_error='ignore' is not accepted: it should be 'warn' or 'raise'"):
        run(compose([*QUICK, "tracking.on_error=ignore"]), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_names_and_flattening():
    assert flatten({"a": {"b": 1, "c": {"d": None}}, "e": [1, 2]}) == {"a.b": 1, "a.c.d": None, "e": [1, 2]}
    assert _name("grizzly+bear/acc@5 %") == "grizzly_bear/acc_5 _"
