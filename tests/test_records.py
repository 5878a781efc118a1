"""Run folders: the digest that says what a run is before it is fitted, and runs that are not repeated."""

from __future__ import annotations

import json
import shutil
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from zsl import ZeroShotClassifier, compose, run
from zsl.data.dataset import ZeroShotData
from zsl.data.readers.tables import write_class_csv
from zsl.data.splits import random
from zsl.data.table import ImageTable
from zsl.errors import UserError, atomic
from zsl.experiment.loading import load
from zsl.experiment.setup import checked
from zsl.models import CoupledDictionaries
from zsl.report.records import read_records
from zsl.runs import result
from zsl.runs import status as records

QUICK = ("dataset=synthetic", "model.n_iter=1", "inference=aag", "tracking=none")


def digest_of(cfg):
    setup = checked(cfg)
    return result.digest(setup.config, load(setup).identity)


@cache
def digest(*overrides):
    return digest_of(compose([*QUICK, *overrides]))


# --- the digest -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "override",
    [
        "output_dir=elsewhere", "data_dir=elsewhere", "cache_dir=off", "tracking=mlflow", "threads=1",
        "save_model=false", "skip_existing=true", "allow_targets=[numpy]", "model.checkpoint=file", "cell=a",
        "model.beta=1e-3", "model.n_iter=1",
    ],
)  # fmt: skip
def test_what_changes_no_number_changes_no_digest(override):
    assert digest(override) == digest()


@pytest.mark.parametrize(
    "overrides",
    [
        "seed=1", "model.lam=0.1", "solver.tol=1e-3", "inference.aware.rho=2", "inference=aaw", "feature.pca=5",
        "model.init=random", "dataset.semantics.l2=false", "dataset.shuffle_attributes=1", "dataset.seed=3",
        "split.seed=1 split=random", "tune=class_cv tune.grid={model.lam:[1]}", "subset.images=3",
        "evaluation.calibrate=true", "evaluation.imbalance=2",
    ],
)  # fmt: skip
def test_what_changes_the_result_changes_the_digest(overrides):
    assert digest(*overrides.split()) != digest()


def test_the_seed_that_draws_unequal_classes_counts_where_they_are_drawn():
    assert digest("evaluation.imbalance=2", "subset.seed=1") != digest("evaluation.imbalance=2")
    assert digest("evaluation.imbalance=2", "subset.seed=0") == digest("evaluation.imbalance=2")
    assert digest("subset.seed=1") == digest()


def test_the_models_own_grid_counts_when_it_is_tried():
    def of(*overrides):
        return digest_of(compose(["dataset=synthetic", "model=eszsl", *overrides]))

    other = "model.grid={gamma:[1]}"
    assert of() == of(other)
    assert of("tune=class_cv") != of("tune=class_cv", other)


def test_the_same_data_in_another_folder_is_the_same_run(tmp_path, rng):
    X, Z = rng.standard_normal((12, 4)).astype(np.float32), rng.standard_normal((4, 3))

    def in_folder(name, features):
        folder = tmp_path / name
        folder.mkdir()
        labels = np.repeat(["a", "b", "unlabelled"], 4)
        np.savez(folder / "features.npz", features=features, labels=labels)
        write_class_csv(folder / "classes.csv", ["a", "b", "c", "d"], ["p", "q", "r"], Z)
        files = ("dataset.features=features.npz", "dataset.attributes=classes.csv")
        return digest_of(compose(["dataset=tabular", *files, f"dataset.root={folder}"]))

    first = in_folder("one", X)
    assert in_folder("two", X) == first
    X[0, 0] += 1
    assert in_folder("three", X) != first


def test_marks_of_missing_values_and_kinds_of_attributes_count(rng):
    Z, setup = rng.random((6, 4)), checked(compose(QUICK))

    def of(**more):
        X, y = np.arange(60.0).reshape(30, 2), np.repeat(np.arange(6), 5)
        table = ImageTable("toy", "raw", X, y, tuple("abcdef"), Z, **more)
        return result.digest(setup.config, ZeroShotData.from_table(table, random(table, n_unseen=2)).identity)

    def missing(*place):
        marks = np.zeros(Z.shape, bool)
        marks[place] = True
        return marks

    assert len({of(), of(missing=missing(0, 0)), of(missing=missing(1, 1))}) == 3
    assert of() == of(missing=np.zeros(Z.shape, bool))
    assert len({of(), of(attribute_blocks=(1, 3)), of(attribute_blocks=(2, 2))}) == 3


@pytest.mark.slow
def test_a_path_from_python_is_recorded_as_text(tmp_path):
    cfg = compose([*QUICK, f"output_dir={tmp_path}"])
    cfg.model.checkpoint = tmp_path / "ck"
    assert digest_of(cfg) == digest()
    run(cfg, tmp_path / "run")
    assert ZeroShotClassifier.load(tmp_path / "run" / "model.skops").model_.checkpoint == str(tmp_path / "ck")


# --- runs that are not repeated ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_finished_run_is_not_repeated(tmp_path, monkeypatch):
    overrides = [*QUICK, f"output_dir={tmp_path}", "skip_existing=true"]
    day = tmp_path / "day"
    first = run(compose(overrides), day / "first")
    run(compose([*overrides, "skip_existing=false"]), day / "again")
    assert (day / "again" / "results.json").is_file()
    shutil.rmtree(day / "again")
    monkeypatch.setattr(CoupledDictionaries, "fit", lambda *_: pytest.fail("it is fitted again"))
    second = run(compose(overrides), day / "second")
    assert second.metrics == first.metrics
    assert second.key == json.loads(json.dumps(first.key))
    assert second.prediction is None
    assert json.loads((day / "second" / "skipped.json").read_text())["record"] == "../first"
    assert not (day / "second" / "results.json").exists()
    # A table of the second folder alone has the record too; a table of both has it once.
    for folder in (day / "second", tmp_path):
        found = read_records(folder)["folder"]
        assert [Path(place).resolve() / "results.json" for place in found] == [
            (day / "first" / "results.json").resolve()
        ]
    with pytest.raises(BaseException, match="fitted again"):
        run(compose([*overrides, "seed=1"]), day / "third")


@pytest.mark.slow
def test_a_run_that_was_skipped_for_two_cells_is_one_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(compose(QUICK), Path("multirun/first"))
    cfg = compose([*QUICK, "skip_existing=true"])
    cfg.experiment, cfg.cell = "table1", "a"
    run(cfg, Path("multirun/second"))
    found = read_records(Path("multirun"))
    assert found["cell"].fillna("").tolist() == ["", "a"]
    assert len(found.drop_duplicates("folder")) == 1


@pytest.mark.slow
def test_a_result_takes_the_place_of_what_earlier_runs_left_in_its_folder(tmp_path):
    there, here = tmp_path / "there", tmp_path / "here"
    run(compose([*QUICK, f"output_dir={tmp_path}"]), there)
    run(compose([*QUICK, f"output_dir={tmp_path}", "skip_existing=true"]), here)
    assert (here / "skipped.json").is_file()
    (here / "predictions.npz").write_bytes(b"of a run that was killed before its result was written")
    run(compose([*QUICK, "seed=1"]), here)
    assert not (here / "predictions.npz").exists()
    assert [Path(folder) for folder in read_records(here)["folder"]] == [here]


@pytest.mark.slow
def test_an_unfinished_run_is_done_again(tmp_path, monkeypatch):
    overrides = [*QUICK, f"output_dir={tmp_path}", "skip_existing=true"]
    with monkeypatch.context() as broken:
        broken.setattr(CoupledDictionaries, "fit", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(compose(overrides), tmp_path / "first")
    assert records.read(tmp_path / "first" / "status.json")["status"] == "FAILED"
    run(compose(overrides), tmp_path / "second")
    assert (tmp_path / "second" / "results.json").is_file()


@pytest.mark.slow
def test_a_run_that_only_the_store_has_is_not_repeated(tmp_path, store, monkeypatch):
    overrides = [*QUICK[:-1], f"output_dir={store}", "skip_existing=true"]
    first = run(compose(overrides), tmp_path / "first")
    shutil.rmtree(tmp_path / "first")
    monkeypatch.setattr(CoupledDictionaries, "fit", lambda *_: pytest.fail("it is fitted again"))
    second = run(compose(overrides), tmp_path / "second")
    assert second.metrics["acc_class"] == first.metrics["acc_class"]
    assert "MLflow run" in json.loads((tmp_path / "second" / "skipped.json").read_text())["record"]


# --- files ------------------------------------------------------------------------------------------------------


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    file = tmp_path / "new" / "a.json"
    records.write(file, {"a": 1})

    def half():
        with atomic(file) as part:
            part.write_text("ha")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        half()
    assert records.read(file) == {"a": 1}
    assert [p.name for p in file.parent.iterdir()] == ["a.json"]
    with pytest.raises(OSError, match="directory") as caught:
        records.write(file.parent, {})
    assert caught.value.filename == str(file.parent)
    assert [p.name for p in tmp_path.iterdir()] == ["new"]


def test_damaged_records_are_not_taken_for_results(tmp_path):
    for folder, text in (("a", '{"digest": "0123456789abcdef", "metr'), ("mlartifacts/b", '{"digest": "01"}')):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "results.json").write_text(text)
    assert records.find(tmp_path, "0123456789abcdef") is records.find(tmp_path, "01") is None
    records.write(tmp_path / "c" / "results.json", {"digest": "0123456789abcdef"})
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
