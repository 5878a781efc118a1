"""What attackers got through once, each with its whole kind."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import zipfile
from contextlib import closing
from importlib.util import find_spec

import numpy as np
import pytest
import scipy.sparse as sp
import skops.io
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from commands import zsl
from test_security import rewrite, stored  # noqa: F401
from test_tracking import DEFAULT, QUICK, recorded, start
from zsl import ZeroShotClassifier, compose
from zsl.config import credentials, resolve
from zsl.errors import UserError
from zsl.predict.answers import answer
from zsl.predict.server import _answer
from zsl.report.records import read_records
from zsl.runs import model_file, status
from zsl.tracking import opening
from zsl.tracking import store as stores
from zsl.tracking.__main__ import main
from zsl.tracking.store import open_store

# --- configuration files that sweep --------------------------------------------------------------------------------

EVIL = "# @package _global_\ndefaults: [fixed@split]\nhydra:\n  job_logging: {version: 1, handlers: {x: %s}}\n"
SWEEPS = {
    "an environment of the jobs": "{'+hydra.job.env_set.NUMBA_CACHE_DIR': EXECUTED, seed: '1,2'}",
    "a folder of the jobs": "{'hydra.sweep.dir': EXECUTED, seed: '1,2'}",
    "a launcher": "{'hydra/launcher': 'joblib', seed: '1,2'}",
    "packages": "{'++allow_targets': '[os],[sys]'}",
    "an option that reaches into Hydra": "{split: 'fixed,evil'}",
    "one such option": "{split: evil, seed: '1,2'}",
}


@pytest.mark.parametrize("params", SWEEPS.values(), ids=SWEEPS)
@pytest.mark.parametrize("flag", [(), ("-m",)])
def test_a_file_that_sweeps_reaches_nothing_of_hydra(tmp_path, params, flag):
    (tmp_path / "c" / "experiment").mkdir(parents=True)
    (tmp_path / "c" / "split").mkdir()
    mode = "" if flag else "mode: MULTIRUN, "
    text = f"# @package _global_\nhydra: {{{mode}sweeper: {{params: {params}}}}}\n"
    (tmp_path / "c" / "experiment" / "a.yaml").write_text(text)
    handler = "{class: logging.FileHandler, filename: precious.txt, mode: w}"
    (tmp_path / "c" / "split" / "evil.yaml").write_text(EVIL % handler)
    (tmp_path / "precious.txt").write_text("precious")
    words = ("dataset=synthetic", "model=ridge", "tracking=none")
    out = zsl("--config-dir", "c", "experiment=a", *words, *flag, cwd=tmp_path)
    assert out.returncode == 1
    assert "only the command line may" in out.err
    assert (tmp_path / "precious.txt").read_text() == "precious"
    assert not (tmp_path / "EXECUTED").exists()


@pytest.mark.parametrize("place", ["EXECUTED", "${output_dir}/../EXECUTED", "${oc.env:HOME}/x"])
@pytest.mark.slow
def test_a_file_puts_runs_below_the_output_folder_only(tmp_path, place):
    (tmp_path / "c" / "experiment").mkdir(parents=True)
    path = tmp_path / "c" / "experiment" / "a.yaml"
    path.write_text(f"# @package _global_\nhydra: {{run: {{dir: '{place}'}}}}\n")
    words = ("--config-dir", "c", "experiment=a", "dataset=synthetic", "model=ridge", "tracking=none")
    assert "sets hydra.run.dir" in zsl(*words, cwd=tmp_path).err
    path.write_text("# @package _global_\nhydra: {run: {dir: '${output_dir}/mine'}}\n")
    assert zsl(*words, cwd=tmp_path).returncode == 0
    assert (tmp_path / "multirun" / "mine" / "results.json").is_file()


# --- fitted classifiers -------------------------------------------------------------------------------------------


def test_a_classifier_holds_only_what_zsl_writes(tmp_path):
    values = [sp.csr_array(np.eye(3)), sp.csr_matrix(np.eye(3)), StandardScaler(), FunctionTransformer(), np.add,
              np.random.default_rng(0), {1: 2}.__class__, {3: "a key that is no text"}]  # fmt: skip
    for value in values:
        model_file.write(tmp_path / "x.skops", {"value": value})
        with pytest.raises(UserError, match="is no registered part of zsl"):
            model_file.read(tmp_path / "x.skops")
    with pytest.raises(UserError, match="so do not use it"):
        model_file.read(tmp_path / "x.skops")


def test_a_classifier_replaces_no_method(stored, tmp_path):  # noqa: F811
    def change(name, data):
        return (
            data.replace(b'"Dx_"', b'"scores"').replace(b'"example_"', b'"predict"') if name == "schema.json" else data
        )

    with pytest.raises(UserError, match=r"replaces (the|a) method"):
        ZeroShotClassifier.load(rewrite(stored, tmp_path / "x.skops", change, digest=True))


def test_sizes_are_looked_at_before_anything_is_unpacked(stored, tmp_path, monkeypatch):  # noqa: F811
    with zipfile.ZipFile(stored) as old, zipfile.ZipFile(tmp_path / "x.skops", "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name) + (b" " * 50_000_000 if name == "schema.json" else b""))
    for reader in ("get_untrusted_types", "load"):
        monkeypatch.setattr(skops.io, reader, lambda *_, **__: pytest.fail("the file was read"))
    with pytest.raises(UserError, match="would unpack to far more"):
        ZeroShotClassifier.load(tmp_path / "x.skops")


# --- requests -----------------------------------------------------------------------------------------------------


def test_work_for_one_request_is_bounded(stored):  # noqa: F811
    classifier = ZeroShotClassifier.load(stored)
    p, q = classifier.n_features_in_, classifier.attributes_.shape[1]
    many = {str(i): [0.5] * q for i in range(2000)}
    for params in ({"new_classes": many}, {"new_classes": many, "top": 3}):
        with pytest.raises(UserError, match="scores; send fewer images"):
            answer(classifier, np.ones((10_000, p)), params)
    with pytest.raises(UserError, match="send at most 10000 in one request"):
        answer(classifier, np.ones((1, p)), {"new_classes": {str(i): [1] for i in range(10_001)}})
    assert len(answer(classifier, np.ones((10, p)), {"new_classes": many, "top": 1})) == 10


@pytest.mark.parametrize(
    "params",
    ['{"\\ud800": 1}', '{"classes": "\\ud800"}', '{"new_classes": {"\\ud800": [1]}}', "[]", "0", '"x"',
     '{"new_classes": {"a": [%s]}}' % ("9" * 400)],
)  # fmt: skip
def test_odd_parameters_are_one_sentence(stored, params):  # noqa: F811
    classifier = ZeroShotClassifier.load(stored)
    row = json.dumps([0.5] * classifier.n_features_in_)
    with pytest.raises(UserError):
        _answer(classifier, f'{{"inputs": [{row}], "params": {params}}}'.encode())


# --- passwords ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("uri", ["http://me:a/pw@h:9/", "http://me:a#pw@h:9/", "http://me:a?pw@h:9/", "http://h:9/#pw"])
def test_a_password_that_cannot_be_told_apart_is_refused(tmp_path, uri, monkeypatch):
    out = zsl("dataset=synthetic", "model=ridge", f"tracking.uri='{uri}'", cwd=tmp_path)
    assert out.returncode == 1
    assert "%2F for /" in out.err
    assert "pw" not in out.err.replace("password", "")
    assert not (tmp_path / "multirun").exists()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    with pytest.raises(UserError, match="%2F for /"):
        resolve(compose(["dataset=synthetic"]))
    assert "pw" not in credentials.masked(f"no answer from {uri}") or "#pw" in uri


# --- the store and records ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_damaged_page_of_the_store_is_found_when_it_is_used(store, caplog):
    stores.forget()
    start(store / "a")
    path = store / "mlflow.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (size,) = connection.execute("PRAGMA page_size").fetchone()
        roots = [
            r for (r,) in connection.execute("SELECT rootpage FROM sqlite_master WHERE name IN ('params', 'metrics')")
        ]
    data = bytearray(path.read_bytes())
    for root in roots:
        for at in range((root - 1) * size, root * size):
            data[at] ^= 0x5A
    path.write_bytes(data)
    stores.forget()
    start(store / "b", "seed=1")
    assert "a new one takes its place" in caplog.text
    assert main(["upload", str(store)]) == 0
    assert [r.info.status for r in recorded(store)] == ["FINISHED"] * 2
    stores.forget()


@pytest.mark.slow
def test_what_is_no_regular_file_stays(tmp_path):
    stores.forget()
    os.mkfifo(tmp_path / "mlflow.db")
    with pytest.raises(OSError, match="no regular file"):
        open_store(DEFAULT, tmp_path)
    assert (tmp_path / "mlflow.db").is_fifo()


@pytest.mark.parametrize(
    ("path", "value"),
    [("metrics.acc_class", float("inf")), ("key.model", None), ("key.model", []), ("key.inference", 3),
     ("key.evaluation", "x"), ("key.tune", 3), ("key.decision", "x"), ("key.selection", None), ("per_class", [3]),
     ("key.dataset.semantics", None), ("key.information_used", "x"), ("key.split", 1)],
)  # fmt: skip
@pytest.mark.slow
def test_an_odd_record_is_left_out_and_named(tmp_path, path, value, caplog):
    from zsl.experiment.run import run

    for name in ("a", "b"):
        run(compose([*QUICK, "tracking=none", f"output_dir={tmp_path}", "save_model=false"]), tmp_path / name)
    record = status.read(tmp_path / "a" / "results.json")
    node = record
    *above, leaf = path.split(".")
    for part in above:
        node = node[part]
    node[leaf] = value
    status.write(tmp_path / "a" / "results.json", record)
    assert len(read_records(tmp_path)) == 1
    assert str(tmp_path / "a") in caplog.text


# --- files of settings that try to change how Hydra works ---------------------------------------------------------

TOUCHES = "x: {_target_: pathlib.Path.touch, self: EXECUTED}"
LOGS = "hydra: {job_logging: {handlers: {x: {(): pathlib.Path.touch, self: EXECUTED}}}}"
FILES = {
    "a sweep that does not compose": {
        "experiment/a": f"hydra:\n  sweeper: {{params: {{split: nosuch}}}}\n  callbacks: {{{TOUCHES}}}\n"
    },
    "an interpolation of jobs": {
        "experiment/a": "hydra: {mode: MULTIRUN, sweeper: {params: '${lp}'}}\nlp: {'hydra/job_logging': evil}\n",
        "hydra/job_logging/evil": "version: 1\n",
    },
    "a file that another file names": {
        "experiment/a": "defaults: [/zz@subset.extra: a]\n",
        "zz/a": "defaults: [/zz/inner@_global_]\n",
        "zz/inner": LOGS,
    },
    "a file that only a sweep of two groups reaches": {"experiment/a": "seed: 1\n", "zz/b_b": LOGS},
    "a package by its header": {"experiment/a": "seed: 1\n", "zz/c": f"# @package hydra.callbacks\n{TOUCHES}\n"},
    "a package by its place": {"experiment/a": "defaults: [/zz@hydra.callbacks: d]\n", "zz/d": TOUCHES},
    "a merge key": {"experiment/a": f"y: &y {{{LOGS}}}\n<<: *y\n"},
    "a name for Hydra's own folder": {"experiment/a": "hydra: {output_subdir: precious}\n"},
    "a name of the log": {"experiment/a": "hydra: {job: {name: ../../../precious}}\n"},
    "a folder by interpolation": {"experiment/a": "cell: ../../x\nhydra: {run: {dir: '${output_dir}/${cell}'}}\n"},
    "a launcher that is none": {"experiment/a": "seed: 1\n", "hydra/launcher/own": "_target_: os.system\n"},
}


@pytest.mark.parametrize("files", FILES.values(), ids=FILES)
@pytest.mark.parametrize("how", ["--config-dir", "searchpath", "both"])
def test_every_file_of_a_folder_is_looked_at(tmp_path, files, how):
    folder = tmp_path / "it's"
    for name, text in files.items():
        path = folder / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(("# @package _global_\n" if name.startswith("experiment") else "") + text)
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to(folder)
    flags = {
        "--config-dir": ("--config-dir", "it's"),
        "searchpath": (f"hydra.searchpath=[file://{tmp_path}/link]",),
        "both": ("--config-dir", "it's", f"hydra.searchpath=[file://{tmp_path}/other]"),
    }[how]
    out = zsl(*flags, "experiment=a", "dataset=synthetic", "model=ridge", "tracking=none", cwd=tmp_path)
    assert out.returncode == 1
    assert "only the command line may" in out.err
    assert not (tmp_path / "EXECUTED").exists()
    assert not (tmp_path / "multirun").exists()


def test_honest_files_go_on(tmp_path):
    (tmp_path / "c" / "model").mkdir(parents=True)
    (tmp_path / "c" / "model" / "mine.yaml").write_text("defaults: [ridge]\ngamma: 2\n")
    words = ("--config-dir", "c", "dataset=synthetic", "tracking=none", "save_model=false")
    assert zsl(*words, "model=mine", cwd=tmp_path).returncode == 0
    if find_spec("hydra_plugins") and find_spec("hydra_plugins.hydra_joblib_launcher"):
        assert zsl(*words, "model=mine", "hydra/launcher=joblib", "-m", "seed=1,2", cwd=tmp_path).returncode == 0
    assert zsl("--config-dir", "c", "experiment=digits_splits", "--cfg", "job", cwd=tmp_path).returncode == 0


def test_a_login_is_taken_back_before_another_server_is_asked(monkeypatch, tmp_path):
    for name in ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(credentials.VARIABLE, "http://me:word@one:1")
    opening.log_in("http://one:1")
    assert os.environ["MLFLOW_TRACKING_PASSWORD"] == "word"
    opening.log_in("http://two:1")
    assert "MLFLOW_TRACKING_PASSWORD" not in os.environ
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "the user's own")
    opening.log_in("http://two:1")
    assert os.environ["MLFLOW_TRACKING_PASSWORD"] == "the user's own"
    config = resolve(compose(["cell='${oc.env:ZSL_TRACKING_LOGIN}'"]))
    assert config["cell"] == "http://one:1"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"protocol": 2', b'"protocol": 0'),
        (b'"type": "numpy"', b'"type": "json"'),
    ],
)
def test_a_schema_of_another_kind_is_refused(stored, tmp_path, old, new):  # noqa: F811
    def change(name, data):
        return data.replace(old, new) if name == "schema.json" else data

    with pytest.raises(UserError, match=r"do not use it|another version"):
        ZeroShotClassifier.load(rewrite(stored, tmp_path / "x.skops", change, digest=True))


def test_a_part_that_another_part_stands_for_is_refused(tmp_path):
    for node in ({"__id__": 7}, {"content": {"__id__": 7}}):
        with pytest.raises(UserError, match="do not use it"):
            model_file._check_parts(tmp_path, node, (), {}, set())


def test_arrays_are_arrays_and_named_once(stored, tmp_path):  # noqa: F811
    def other(name, data):
        return b"PK\x03\x04" + data if name.endswith(".npy") else data

    with pytest.raises(UserError, match="which is no array"):
        ZeroShotClassifier.load(rewrite(stored, tmp_path / "x.skops", other, digest=True))

    def twice(name, data):
        names = sorted(set(re.findall(rb'"file": "(\d+\.npy)"', data)))
        return data.replace(names[0], names[1]) if name == "schema.json" else data

    with pytest.raises(UserError, match="not as zsl writes it"):
        ZeroShotClassifier.load(rewrite(stored, tmp_path / "x.skops", twice, digest=True))


@pytest.mark.slow
def test_a_record_of_odd_kinds_is_left_out_of_an_upload(store, caplog):
    stores.forget()
    for name in ("a", "b"):
        start(store / name, "tracking=none", f"seed={ord(name)}")
    path = store / "a" / "status.json"
    tracking = {**DEFAULT, "model": False, "register": None, "run_id": None, "parent": None, "model_logged": False,
                "complete": False}  # fmt: skip
    status.write(store / "b" / "status.json", {**status.read(store / "b" / "status.json"), "tracking": tracking})
    for odd in ({"experiment": ""}, {"experiment": 3}, {"uri": 3}):
        status.write(path, {**status.read(path), "tracking": {**tracking, **odd}})
        assert main(["upload", str(store)]) == 1
        assert str(path) in caplog.text
    assert [r.info.status for r in recorded(store)] == ["FINISHED"]
    stores.forget()
