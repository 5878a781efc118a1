"""What a run leaves on the disk: each array once, what the store gets, and the precision of the model file."""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from commands import zsl
from conftest import models
from zsl import ZeroShotClassifier, compose, run
from zsl.config import options
from zsl.errors import UserError
from zsl.experiment.loading import load
from zsl.experiment.setup import checked
from zsl.models import Ridge
from zsl.runs import model_file
from zsl.runs import status as records
from zsl.tracking import artifacts, opening
from zsl.tracking import store as stores
from zsl.tracking.__main__ import main

QUICK = ["dataset=synthetic", "model.n_iter=1", "inference=aag"]
LIGHT = {"results.json", "config.yaml", "per_class.csv", "predictions.csv"}
FIGURES = {"confusion.png", "per_class.png", "objective.png"}
pytestmark = pytest.mark.usefixtures("no_store_is_remembered")


def start(out, *more):
    return run(compose([*QUICK, f"output_dir={out}", *more]), out / "run")


def files(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def sent(out):
    """The names of the files in the store, those of its models by themselves."""
    models = {path.name for path in files(out / "mlartifacts" / "models")}
    return {path.name for path in files(out / "mlartifacts") if "models" not in path.parts}, models


# --- each array once ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_folder_and_store_share_one_copy_of_each_file(tmp_path):
    start(tmp_path, "save_predictions=true")
    copies = defaultdict(set)
    for path in files(tmp_path):
        copies[hashlib.sha256(path.read_bytes()).hexdigest()].add(path.stat().st_ino)
    assert all(len(inodes) == 1 for inodes in copies.values())
    for name in (*LIGHT, *FIGURES, "model.skops", "predictions.npz"):
        in_folder, in_store = (
            [path for path in files(tmp_path / place) if path.name == name] for place in ("run", "mlartifacts")
        )
        assert len(in_folder) == len(in_store) == 1
        assert in_folder[0].samefile(in_store[0]), name
    assert not [path for path in files(tmp_path) if path.name.endswith(".link")]


@pytest.mark.slow
def test_the_dictionaries_are_in_one_file(tmp_path):
    start(tmp_path, "model.n_atoms=400", "figures=false", "save_precision=double", "tracking=none")
    fitted = ZeroShotClassifier.load(tmp_path / "run" / "model.skops").model_
    dictionaries = fitted.Dx_.nbytes + fitted.Dz_.nbytes
    assert dictionaries < sum(path.stat().st_size for path in files(tmp_path)) < 2 * dictionaries


@pytest.mark.slow
def test_a_run_again_in_its_folder_leaves_what_the_store_has(tmp_path):
    """The files are replaced and not written into, so the first run keeps its own in the store."""
    first = start(tmp_path, "figures=false")
    (kept,) = (path for path in files(tmp_path / "mlartifacts") if path.name == "results.json")
    text = kept.read_bytes()
    second = start(tmp_path, "figures=false", "skip_existing=false")
    assert first.digest == second.digest
    assert kept.read_bytes() == text != (tmp_path / "run" / "results.json").read_bytes()


@pytest.mark.slow
def test_a_store_elsewhere_gets_a_copy(tmp_path, monkeypatch):
    def refused(*_):
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refused)
    start(tmp_path)
    names, models = sent(tmp_path)
    assert names == LIGHT | FIGURES
    assert "model.skops" in models
    assert not [path for path in files(tmp_path) if path.stat().st_nlink > 1]


def test_only_a_folder_is_linked_to(tmp_path):
    (tmp_path / "a").write_text("a")
    assert not artifacts.linked(tmp_path / "a", "mlflow-artifacts:/1/2", "a")
    assert not artifacts.linked(tmp_path / "a", "s3://bucket/1", "a")
    for _ in range(2):  # once more where the link is there already
        assert artifacts.linked(tmp_path / "a", (tmp_path / "ä b").as_uri(), "figures", "a")
    assert [p.name for p in files(tmp_path / "ä b")] == ["a"]
    assert (tmp_path / "ä b" / "figures" / "a").samefile(tmp_path / "a")


# --- what the store gets ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("level", "expected"), [
    ("none", set()),
    ("light", LIGHT | FIGURES),
    ("all", LIGHT | FIGURES | {"predictions.npz"}),
])  # fmt: skip
@pytest.mark.slow
def test_artifacts(tmp_path, level, expected):
    result = start(tmp_path, f"tracking.artifacts={level}", "save_predictions=true")
    names, models = sent(tmp_path)
    assert names - {"attribute_errors.png"} == expected  # drawn where predictions are saved
    assert ("model.skops" in models) == (level == "all")
    client = stores.open_store({"uri": None, "experiment": "zsl"}, tmp_path).client
    (found,) = client.search_runs(["1"])
    assert found.info.status == "FINISHED"
    assert found.data.metrics["accuracy/acc_class"] == pytest.approx(result.metrics["acc_class"], rel=1e-3)
    assert found.data.params["tracking.artifacts"] == level
    # The run folder has everything all the same, and the run counts as done.
    assert (tmp_path / "run" / "model.skops").is_file()
    assert main(["upload", str(tmp_path)]) == 0
    assert len(client.search_runs(["1"])) == 1


@pytest.mark.slow
def test_a_run_that_fails_sends_no_file_with_artifacts_none(tmp_path, monkeypatch):
    monkeypatch.setattr(Ridge, "fit", lambda *_: 1 / 0)
    for level, expected in (("none", set()), ("light", {"traceback.txt"})):
        out = tmp_path / level
        cfg = compose(["dataset=synthetic", "model=ridge", f"tracking.artifacts={level}", f"output_dir={out}"])
        with pytest.raises(ZeroDivisionError):
            run(cfg, out / "run")
        assert sent(out)[0] == expected


def test_a_wrong_level_is_refused_before_the_work(tmp_path):
    with pytest.raises(UserError, match=r"tracking\.artifacts='some' is not accepted"):
        start(tmp_path, "tracking.artifacts=some")
    with pytest.raises(UserError, match="save_precision='half' is not accepted"):
        start(tmp_path, "save_precision=half")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_skip_existing_asks_a_store_that_has_no_files(tmp_path, caplog):
    words = ["tracking.artifacts=none", "figures=false", "save_model=false"]
    run(compose([*QUICK, *words, f"output_dir={tmp_path}"]), tmp_path / "a")
    for path in files(tmp_path / "a"):
        path.unlink()
    again = run(compose([*QUICK, *words, "skip_existing=true", f"output_dir={tmp_path}"]), tmp_path / "b")
    assert again.prediction is not None  # it was computed again
    assert "tracking failed" not in caplog.text
    third = run(compose([*QUICK, *words[1:], f"output_dir={tmp_path}", "skip_existing=true",
                         "tracking.artifacts=light"]), tmp_path / "c")  # fmt: skip
    assert third.prediction is None  # b is in a folder


@pytest.mark.parametrize(("before", "model"), [(True, True), (False, False)])
@pytest.mark.slow
def test_a_record_of_an_earlier_version_is_sent(tmp_path, before, model):
    """Its tracking has ``model: true`` or ``false`` where that of today has ``artifacts``."""
    start(tmp_path, "tracking=none")
    path = tmp_path / "run" / "status.json"
    tracking = {"uri": None, "experiment": "zsl", "model": before, "register": None, "run_id": None, "parent": None,
                "model_logged": False, "complete": False}  # fmt: skip
    records.write(path, {**records.read(path), "tracking": tracking})
    assert main(["upload", str(tmp_path)]) == 0
    names, models = sent(tmp_path)
    assert names == LIGHT | FIGURES
    assert ("model.skops" in models) == model
    # And to another store.
    other = tmp_path / "other"
    assert main(["upload", str(tmp_path / "run"), "--uri", opening.address(other / "mlflow.db")]) == 0
    names, models = sent(other)
    assert names == LIGHT | FIGURES
    assert ("model.skops" in models) == model


def test_an_unknown_level_in_a_record_is_named():
    with pytest.raises(ValueError, match="its artifacts='some' is none of none, light, all"):
        artifacts.level({"artifacts": "some"})


@pytest.mark.slow
def test_experiments_of_many_runs_keep_no_models():
    kept = {name for name in options("experiment") if compose([f"experiment={name}"]).save_model}
    assert kept == {"smoke"}  # seven runs on simulated data


@pytest.mark.long
def test_a_sweep_that_keeps_no_models_says_so_once(tmp_path):
    sentence = "the models of these runs are not kept; save_model=true keeps them"
    words = ["dataset=synthetic", "model=ridge", "tracking=none", "figures=false", "-m", "seed=0,1"]
    folder = tmp_path / "conf" / "experiment"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text("# @package _global_\nexperiment: mine\nsave_model: false\n")
    more = ["--config-dir", str(tmp_path / "conf"), "experiment=mine"]
    done = zsl(*more, *words, cwd=tmp_path)
    assert (done.out + done.err).count(sentence) == 1
    done = zsl(*more, *words, "save_model=true", cwd=tmp_path)
    assert done.returncode == 0
    assert sentence not in done.out + done.err


# --- precision ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", models(quick={"coupled", "eszsl", "gfzsl"}))
def test_single_precision_gives_the_labels_of_the_fitted_classifier(tmp_path, model):
    """On the test images of digits, with every stage."""
    setup = checked(compose(["dataset=digits", "tracking=none", f"model={model}"]))
    data = load(setup)
    fitted = setup.classifier.fit_data(data)
    fitted.save(tmp_path / "single.skops", "single")
    fitted.save(tmp_path / "double.skops")
    single, double = (ZeroShotClassifier.load(tmp_path / f"{name}.skops") for name in ("single", "double"))
    exact, rounded = (c.predict_stages(data.X_unseen).stages for c in (fitted, single))
    for a, b in zip(exact, rounded, strict=True):
        assert_array_equal(a.scores.argmax(axis=1), b.scores.argmax(axis=1))
        assert b.scores.dtype == a.scores.dtype
        assert np.abs(a.scores - b.scores).max() <= 1e-5 * np.abs(a.scores).max()
    assert_array_equal(double.decision_function(data.X_unseen), fitted.decision_function(data.X_unseen))
    for field, value in vars(single.model_).items():
        if isinstance(value, np.ndarray) and value.ndim > 1 and value.dtype.kind == "f":
            assert_array_equal(value, value.astype(np.float32), err_msg=field)


@pytest.mark.slow
def test_single_precision_takes_half(tmp_path):
    for precision in ("single", "double"):
        words = ["model.n_atoms=480", f"save_precision={precision}", "tracking=none", "figures=false"]
        run(compose([*QUICK, *words, f"output_dir={tmp_path}"]), tmp_path / precision)
    sizes = {p.parent.name: p.stat().st_size for p in files(tmp_path) if p.name == "model.skops"}
    dictionaries = 480 * (40 + 20) * 8
    assert sizes["double"] - sizes["single"] > 0.45 * dictionaries


@pytest.mark.parametrize("rule", ["taaw", "transductive"])
@pytest.mark.slow
def test_a_default_run_is_stored_in_single_precision(tmp_path, rule):
    """On the test images of CIFAR; the statistics of a transductive rule are matrices, too."""
    cfg = compose(["tracking=none", "figures=false", f"inference={rule}", "evaluation.n_validation_splits=2"])
    result, data = run(cfg, tmp_path), load(checked(cfg))
    stored = ZeroShotClassifier.load(tmp_path / "model.skops")
    scores = stored.decision_function(data.X_unseen)
    assert_array_equal(scores.argmax(axis=1), result.prediction.scores.argmax(axis=1))
    assert (scores != result.prediction.scores).any()
    assert_array_equal(stored.model_.Dx_, stored.model_.Dx_.astype(np.float32))
    assert stored.model_.Dx_.dtype == np.float64


def test_what_single_precision_cannot_hold_stays_as_it_is(tmp_path):
    matrix = np.random.default_rng(0).standard_normal((40, 60))
    kept = {"large_": matrix * 1e300, "tiny_": matrix * 1e-300, "mean_": 1e9 + matrix.ravel(),
            "labels_": np.arange(4800).reshape(40, 120)}  # fmt: skip
    rounded = {"W_": matrix, "cube_": matrix.reshape(4, 10, 60), "turned_": matrix.T,
               "nan_": np.where(matrix > 0, matrix, np.nan), "single_": matrix.astype(np.float32)}  # fmt: skip
    model = Ridge()
    vars(model).update(kept, **rounded)
    model_file.write(tmp_path / "x.skops", {"model_": model}, "single")
    assert vars(model)["W_"] is matrix  # the fitted model itself is not changed
    found = vars(model_file.read(tmp_path / "x.skops")["model_"])
    for name, value in kept.items():
        assert_array_equal(found[name], value)
    for name, value in rounded.items():
        assert_array_equal(found[name], value.astype(np.float32).astype(value.dtype))
        assert found[name].dtype == value.dtype


def test_a_file_of_the_version_before_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(model_file, "_FORMAT", 3)
    model_file.write(tmp_path / "x.skops", {"a": 1})
    assert model_file.read(tmp_path / "x.skops") == {"a": 1}


@pytest.mark.slow
def test_figures_have_256_colours_that_look_the_same(tmp_path):
    from PIL import Image

    from zsl.experiment.figures import draw
    from zsl.report.figures import of_run

    start(tmp_path, "tracking=none", "figures=false")
    draw(tmp_path / "run")
    for name, figure in of_run(tmp_path / "run").items():
        figure.savefig(tmp_path / "full.png", dpi=200)
        stored = tmp_path / "run" / "figures" / f"{name}.png"
        with Image.open(stored) as reduced, Image.open(tmp_path / "full.png") as full:
            assert reduced.mode == "P"
            difference = np.asarray(reduced.convert("RGB")).astype(int) - np.asarray(full.convert("RGB")).astype(int)
        assert np.abs(difference).max() <= 16
        assert stored.stat().st_size < 0.6 * (tmp_path / "full.png").stat().st_size
