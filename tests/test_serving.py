"""The fitted pipeline in MLflow: logged, loaded, registered, and served for real."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from conftest import ROOT
from zsl import compose, run
from zsl.config import resolve
from zsl.experiment.loading import read_data


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    """A run in a store of its own: its result, its raw data, the store, the address of its model."""
    import mlflow
    from mlflow import MlflowClient

    out = tmp_path_factory.mktemp("out")
    overrides = ["dataset=synthetic", "model.n_iter=2", "inference=aag", f"output_dir={out}", "tracking.register=test"]
    cfg = compose(overrides)
    before = mlflow.get_tracking_uri()
    result = run(cfg, out / "run")
    assert mlflow.get_tracking_uri() == before  # the user's own store stays what it was
    uri = f"sqlite:///{out / 'mlflow.db'}"
    client = MlflowClient(uri)
    (found,) = client.search_runs([client.get_experiment_by_name("zsl").experiment_id])
    (model,) = client.search_logged_models([found.info.experiment_id])
    assert [m.model_id for m in found.outputs.model_outputs] == [model.model_id]
    return result, read_data(resolve(cfg)), client, model


@pytest.fixture
def loaded(logged, monkeypatch):
    import mlflow

    *_, client, model = logged
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(client.tracking_uri)
    yield mlflow.pyfunc.load_model(model.model_uri)
    mlflow.set_tracking_uri(before)


def test_the_model_answers_with_labels_and_scores(logged, loaded):
    result, raw, *_ = logged
    answers = loaded.predict(raw.X_unseen.astype(np.float64))
    scores = result.prediction.scores
    assert [a["label"] for a in answers] == [raw.unseen_names[m] for m in scores.argmax(axis=1)]
    assert next(iter(answers[0]["scores"])) == answers[0]["label"]
    assert_allclose([[a["scores"][name] for name in raw.unseen_names] for a in answers], scores, rtol=1e-9)


def test_new_classes_as_parameters(logged, loaded):
    result, raw, *_ = logged
    new = json.dumps({f"new {m}": row.tolist() for m, row in enumerate(raw.Z_unseen)})
    X = raw.X_unseen.astype(np.float64)
    answers = loaded.predict(X, params={"classes": "none", "new_classes": new, "top": 2})
    best = result.prediction.scores.argmax(axis=1)
    assert [a["label"] for a in answers] == [f"new {m}" for m in best]
    assert {len(a["scores"]) for a in answers} == {2}
    with pytest.raises(Exception, match="new_classes is no JSON"):
        loaded.predict(X, params={"new_classes": "zebra"})
    with pytest.raises(Exception, match="classes=others does not exist"):
        loaded.predict(X, params={"classes": "others"})


def test_signature_example_and_version(logged, loaded):
    _, raw, client, model = logged
    signature = loaded.metadata.signature
    assert signature.inputs.inputs[0].shape == (-1, raw.X.shape[1])
    assert [p.name for p in signature.params.params] == ["classes", "new_classes", "top"]
    with pytest.raises(Exception, match=r"-1, 40"):
        loaded.predict(np.zeros((1, 3)))
    example = loaded.input_example
    assert_allclose(example, raw.X_unseen[:2])
    (version,) = client.search_model_versions("name='test'")
    assert version.source == model.artifact_location
    assert version.run_id == model.source_run_id


def test_nothing_is_pickled(logged):
    *_, model = logged
    files = [p for p in Path(model.artifact_location.removeprefix("file://")).rglob("*") if p.is_file()]
    assert {p.name for p in files} >= {"MLmodel", "serving.py", "model.skops"}
    assert not [p for p in files if p.suffix in {".pkl", ".pickle", ".joblib"}]
    with np.load(next(p for p in files if p.name == "model.skops"), allow_pickle=False) as stored:
        assert all(stored[name].dtype.kind != "O" for name in stored.files)


@pytest.mark.slow
def test_a_server_answers(logged):
    result, raw, client, model = logged
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {
        **os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT),
        "MLFLOW_TRACKING_URI": client.tracking_uri, "MLFLOW_DISABLE_TELEMETRY": "true",
    }  # fmt: skip
    command = [sys.executable, "-m", "mlflow", "models", "serve", "-m", model.model_uri, "--env-manager", "local",
               "--host", "127.0.0.1", "-p", str(port)]  # fmt: skip
    server = subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )

    def ask(body):
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/invocations", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    try:
        end = time.monotonic() + 120
        while True:
            assert server.poll() is None, server.stdout.read().decode()
            assert time.monotonic() < end
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/ping", timeout=2)
                break
            except OSError:
                time.sleep(0.2)
        rows = raw.X_unseen[:5].astype(float).tolist()
        status, answer = ask({"inputs": rows})
        assert status == 200
        best = result.prediction.scores[:5].argmax(axis=1)
        assert [a["label"] for a in answer["predictions"]] == [raw.unseen_names[m] for m in best]
        scores = [[a["scores"][name] for name in raw.unseen_names] for a in answer["predictions"]]
        assert_allclose(scores, result.prediction.scores[:5], rtol=1e-6)
        new = {f"new {m}": row.tolist() for m, row in enumerate(raw.Z_unseen)}
        status, answer = ask({"inputs": rows, "params": {"classes": "none", "new_classes": json.dumps(new)}})
        assert status == 200
        assert [a["label"] for a in answer["predictions"]] == [f"new {m}" for m in best]
        status, answer = ask({"inputs": [[1.0, 2.0]]})
        assert status == 400
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def test_what_is_wrong_with_run_and_target_is_said(tmp_path, capsys):
    from zsl.predict.__main__ import main

    assert main(["0123456789abcdef0123456789abcdef", "x.npz"]) == 1
    assert "RUN is a run's folder, not its id in MLflow" in capsys.readouterr().err
    assert main(["run", "x.npz", "--to", str(tmp_path / "no" / "x.csv")]) == 1
    assert f"the folder {tmp_path / 'no'} does not exist" in capsys.readouterr().err
