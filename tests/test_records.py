"""Run folders: the digest that says what a run is before it is fitted, and runs that are not repeated."""

from __future__ import annotations

import json
import logging
import shutil
from functools import cache

import numpy as np
import pytest
from zsl.predict.pipeline import Pipeline

from zsl import compose, run
from zsl.config import resolve
from zsl.data.readers.tables import write_class_csv
from zsl.errors import UserError
from zsl.experiment.loading import read_data
from zsl.models import CoupledDictionaries
from zsl.runs import status as records

QUICK = ("dataset=synthetic", "model.n_iter=1", "inference=aag", "tracking=none")


@cache
def digest(*overrides):
    plain = resolve(compose([*QUICK, *overrides]))
    return records.digest(plain, read_data(plain).key)


@pytest.mark.parametrize(
    "override",
    [
        "output_dir=elsewhere", "data_dir=elsewhere", "cache_dir=off", "tracking=mlflow", "threads=1",
        "save_model=false", "skip_existing=true", "allow_targets=[numpy]", "model.checkpoint=file",
        "model.beta=1e-3", "model.n_iter=1",
    ],
)  # fmt: skip
def test_what_changes_no_number_changes_no_digest(override):
    assert digest(override) == digest()


@pytest.mark.parametrize(
    "override",
    [
        "seed=1", "model.lam=0.1",
        "solver.tol=1e-3", "inference.rho=2", "inference=aaw", "feature.pca=5", "model.init=random",
        "dataset.semantics.l2=false", "dataset.shuffle_attributes=1", "dataset.seed=3", "split.seed=1 split=random",
        "tune=class_cv tune.grid={model.lam:[1]}",
    ],
)  # fmt: skip
def test_what_changes_the_result_changes_the_digest(override):
    assert digest(*override.split()) != digest()


def test_the_models_own_grid_counts_when_it_is_tried():
    plain = resolve(compose(["dataset=synthetic", "model=eszsl"]))
    key = read_data(plain).key
    other = {**plain, "model": {**plain["model"], "grid": {"gamma": [1]}}}
    assert records.digest(plain, key) == records.digest(other, key)
    tuned = {"tune": resolve(compose(["tune=class_cv"]))["tune"]}
    assert records.digest({**plain, **tuned}, key) != records.digest({**other, **tuned}, key)


def test_the_same_data_in_another_folder_is_the_same_run(tmp_path, rng):
    X, Z = rng.standard_normal((12, 4)).astype(np.float32), rng.standard_normal((4, 3))
    names = ["a", "b", "c", "d"]
    labels = [*(["a"] * 4), *(["b"] * 4), *(["unlabelled"] * 4)]

    def in_folder(name, features):
        folder = tmp_path / name
        folder.mkdir()
        np.savez(folder / "features.npz", features=features, labels=np.array(labels))
        write_class_csv(folder / "classes.csv", names, ["p", "q", "r"], Z)
        where = f"dataset.root={folder}"
        plain = resolve(compose(
            ["dataset=tabular", "dataset.features=features.npz", "dataset.attributes=classes.csv", where]
        ))  # fmt: skip
        return records.digest(plain, read_data(plain).key)

    first = in_folder("one", X)
    assert in_folder("two", X) == first
    X[0, 0] += 1
    assert in_folder("three", X) != first


def test_a_finished_run_is_not_repeated(tmp_path, monkeypatch, caplog):
    overrides = [*QUICK, f"output_dir={tmp_path}", "skip_existing=true"]
    first = run(compose(overrides), tmp_path / "day" / "first")
    assert json.loads((tmp_path / "day" / "first" / "results.json").read_text())["digest"] == first.digest
    monkeypatch.setattr(CoupledDictionaries, "fit", lambda *_: pytest.fail("it is fitted again"))
    with caplog.at_level(logging.INFO):
        second = run(compose(overrides), tmp_path / "day" / "second")
    assert second.metrics == first.metrics
    assert second.key == json.loads(json.dumps(first.key))
    assert second.stages == []
    assert f"skipped: {tmp_path / 'day' / 'first'} has this result already" in caplog.text
    skipped = json.loads((tmp_path / "day" / "second" / "skipped.json").read_text())
    assert skipped["record"] == "../first"
    # A table of the second folder alone has it too; one of both has it once.
    first_results = (tmp_path / "day" / "first" / "results.json").resolve()
    assert records.records_of(tmp_path / "day" / "second") == [first_results]
    assert records.records_of(tmp_path) == [first_results]
    assert not (tmp_path / "day" / "second" / "results.json").exists()
    with pytest.raises(BaseException, match="fitted again"):
        run(compose([*overrides, "seed=1"]), tmp_path / "day" / "third")


def test_without_being_asked_runs_are_repeated(tmp_path):
    for name in ("first", "second"):
        run(compose([*QUICK, f"output_dir={tmp_path}"]), tmp_path / name)
        assert (tmp_path / name / "results.json").is_file()


def test_an_unfinished_run_is_done_again(tmp_path, monkeypatch):
    overrides = [*QUICK, f"output_dir={tmp_path}", "skip_existing=true"]
    with monkeypatch.context() as broken:
        broken.setattr(CoupledDictionaries, "fit", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(compose(overrides), tmp_path / "first")
    assert json.loads((tmp_path / "first" / "status.json").read_text())["status"] == "FAILED"
    run(compose(overrides), tmp_path / "second")
    assert (tmp_path / "second" / "results.json").is_file()


def test_a_run_that_only_the_store_has_is_not_repeated(tmp_path, store, monkeypatch):
    overrides = [*QUICK[:-1], f"output_dir={store}", "skip_existing=true"]
    first = run(compose(overrides), tmp_path / "first")
    shutil.rmtree(tmp_path / "first")
    monkeypatch.setattr(CoupledDictionaries, "fit", lambda *_: pytest.fail("it is fitted again"))
    second = run(compose(overrides), tmp_path / "second")
    assert second.metrics["acc_class"] == first.metrics["acc_class"]
    assert "MLflow run" in json.loads((tmp_path / "second" / "skipped.json").read_text())["record"]


def test_damaged_records_are_not_taken_for_results(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "results.json").write_text('{"digest": "0123456789abcdef", "metr')
    (tmp_path / "mlartifacts" / "b").mkdir(parents=True)
    (tmp_path / "mlartifacts" / "b" / "results.json").write_text('{"digest": "0123456789abcdef"}')
    assert records.find(tmp_path, "0123456789abcdef") is None
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "results.json").write_text('{"digest": "0123456789abcdef"}')
    assert records.find(tmp_path, "0123456789abcdef") == tmp_path / "c"


@pytest.mark.parametrize("override", ["skip_existing=often", "save_model=3", "threads=0", "threads=many"])
def test_settings_of_a_run_are_checked(override):
    with pytest.raises(UserError, match=override.partition("=")[0]):
        run(compose([*QUICK, override]))


def test_processes_that_run_and_that_do_not():
    mine = records.this_process()
    assert records.alive(mine) is True
    assert records.alive({**mine, "started": "1"}) is False  # the number is used again
    assert records.alive({**mine, "pid": 2**22 + 1}) is False
    assert records.alive({**mine, "host": "another"}) is None


def test_a_path_from_python_is_recorded_as_text(tmp_path):
    """Paths in a configuration used to end the run when its model was saved."""
    cfg = compose([*QUICK, f"output_dir={tmp_path}"])
    cfg.model.checkpoint = tmp_path / "ck"
    plain = resolve(cfg)
    assert plain["model"]["checkpoint"] == str(tmp_path / "ck")
    assert records.digest(plain, read_data(plain).key) == digest()
    run(cfg, tmp_path / "run")
    assert Pipeline.load(tmp_path / "run" / "model.skops").model.checkpoint == str(tmp_path / "ck")
    assert not list(tmp_path.glob("ck*"))
