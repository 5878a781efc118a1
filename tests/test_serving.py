"""The fitted classifier in MLflow: logged, loaded, registered, and served for real."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from numpy.testing import assert_allclose

from commands import wait_for
from conftest import ROOT
from zsl import compose, run
from zsl.experiment.loading import load
from zsl.experiment.setup import checked


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    """A run in a store of its own: its result, its data before pre-processing, the store, the model in it."""
    import mlflow
    from mlflow import MlflowClient

    out = tmp_path_factory.mktemp("out")
    cfg = compose(["dataset=synthetic", "model.n_iter=2", "inference=aag", f"output_dir={out}", "tracking.register=t"])
    before = mlflow.get_tracking_uri()
    result = run(cfg, out / "run")
    assert mlflow.get_tracking_uri() == before  # the user's own store stays what it was
    client = MlflowClient(f"sqlite:///{out / 'mlflow.db'}")
    (found,) = client.search_runs([client.get_experiment_by_name("zsl").experiment_id])
    (model,) = client.search_logged_models([found.info.experiment_id])
    assert [m.model_id for m in found.outputs.model_outputs] == [model.model_id]
    return result, load(checked(cfg)), client, model


@pytest.fixture
def loaded(logged):
    import mlflow

    *_, client, model = logged
    before = mlflow.get_tracking_uri()
    # MLflow keeps the address in the environment too, where later runs of this process would find it.
    with patch.dict(os.environ):
        mlflow.set_tracking_uri(client.tracking_uri)
        yield mlflow.pyfunc.load_model(model.model_uri)
        mlflow.set_tracking_uri(before)


def test_the_model_answers_with_labels_and_scores(logged, loaded):
    result, raw, *_ = logged
    answers = loaded.predict(raw.X_unseen.astype(np.float64))
    scores = result.prediction.scores
    assert [a["label"] for a in answers] == [raw.unseen_names[m] for m in scores.argmax(axis=1)]
    assert next(iter(answers[0]["scores"])) == answers[0]["label"]
    assert_allclose([[a["scores"][name] for name in raw.unseen_names] for a in answers], scores, rtol=1e-6)


def test_new_classes_as_parameters(logged, loaded):
    result, raw, *_ = logged
    new = json.dumps({f"new {m}": row.tolist() for m, row in enumerate(raw.Z_unseen)})
    X = raw.X_unseen.astype(np.float64)
    answers = loaded.predict(X, params={"classes": "none", "new_classes": new, "top": 2})
    assert [a["label"] for a in answers] == [f"new {m}" for m in result.prediction.scores.argmax(axis=1)]
    assert {len(a["scores"]) for a in answers} == {2}
    for params in ({"new_classes": "zebra"}, {"new_classes": "[1]"}, {"classes": "others"}):
        with pytest.raises(Exception, match=next(iter(params))):
            loaded.predict(X, params=params)


def test_signature_example_version_and_files(logged, loaded):
    _, raw, client, model = logged
    with pytest.raises(Exception, match=r"-1, 40"):
        loaded.predict(np.zeros((1, 3)))
    assert len(loaded.predict(loaded.input_example)) == 2
    (version,) = client.search_model_versions("name='t'")
    assert (version.source, version.run_id) == (model.artifact_location, model.source_run_id)
    # Nothing is pickled, and no file holds an image of the test set.
    files = [p for p in Path(model.artifact_location.removeprefix("file://")).rglob("*") if p.is_file()]
    assert {p.name for p in files} >= {"MLmodel", "serving.py", "model.skops"}
    assert not [p for p in files if p.suffix in {".pkl", ".pickle", ".joblib"}]
    assert loaded.input_example.shape == (2, raw.X.shape[1])


@pytest.mark.long
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
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )

    def ask(body, path="invocations"):
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/{path}", body and json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.loads(answer.read().strip() or "null")
        except urllib.error.HTTPError as error:
            return error.code, None
        except OSError:
            return None, None

    try:
        wait_for(lambda: ask(None, "ping")[0] == 200, server)
        rows = raw.X_unseen[:5].astype(float).tolist()
        expected = result.prediction.scores[:5]
        status, answer = ask({"inputs": rows})
        assert status == 200
        assert [a["label"] for a in answer["predictions"]] == [raw.unseen_names[m] for m in expected.argmax(axis=1)]
        scores = [[a["scores"][name] for name in raw.unseen_names] for a in answer["predictions"]]
        assert_allclose(scores, expected, rtol=1e-6)
        new = {f"new {m}": row.tolist() for m, row in enumerate(raw.Z_unseen)}
        status, answer = ask({"inputs": rows, "params": {"classes": "none", "new_classes": json.dumps(new)}})
        assert status == 200
        assert [a["label"] for a in answer["predictions"]] == [f"new {m}" for m in expected.argmax(axis=1)]
        assert ask({"inputs": [[1.0, 2.0]]})[0] == 400
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
