"""``zsl serve``: a real server in a thread, asked rightly and wrongly."""

from __future__ import annotations

import json
import socket
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import uvicorn

from zsl import ZeroShotClassifier, compose
from zsl.errors import UserError
from zsl.experiment.loading import load
from zsl.experiment.run import run
from zsl.experiment.setup import checked
from zsl.predict.__main__ import model_of
from zsl.predict.answers import answer
from zsl.predict.server import application, main


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    cfg = compose(["dataset=synthetic", "model=ridge", "tracking=none"])
    return folder, run(cfg, folder), load(checked(cfg))


@pytest.fixture(scope="module")
def port(trained):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = free.getsockname()[1]
    app = application(ZeroShotClassifier.load(model_of(trained[0])), most_bytes=2_000_000)
    server = uvicorn.Server(uvicorn.Config(app, port=number, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield number
    server.should_exit = True
    thread.join()


def ask(port, body):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/invocations", data)
    try:
        with urllib.request.urlopen(request, timeout=60) as found:
            return found.status, json.loads(found.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_answers_are_those_of_the_run(trained, port):
    _, result, raw = trained
    rows = raw.X_unseen[:5].astype(float).tolist()
    expected = [raw.unseen_names[m] for m in result.prediction.scores[:5].argmax(axis=1)]
    status, found = ask(port, {"inputs": rows})
    assert (status, [a["label"] for a in found["predictions"]]) == (200, expected)
    new = {f"new {m}": row.tolist() for m, row in enumerate(raw.Z_unseen)}
    for written in (new, json.dumps(new)):
        params = {"classes": "none", "new_classes": written, "top": 1}
        status, found = ask(port, {"inputs": rows, "params": params})
        assert [a["label"] for a in found["predictions"]] == [f"new {raw.unseen_names.index(n)}" for n in expected]
        assert {len(a["scores"]) for a in found["predictions"]} == {1}


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"top": -1}, "top=-1 is not accepted"), ({"top": 1e300}, "top=1e+300"), ({"top": True}, "top=True"),
        ({"top": "2"}, "top='2'"), ({"tpo": 2}, "there is no parameter 'tpo' (did you mean top?)"),
        ({"classes": "others"}, "classes=others does not exist"), ({"classes": 3}, "classes=3 is not accepted"),
        ({"new_classes": "zebra"}, "new_classes is no JSON"), ({"new_classes": [1]}, "new_classes is not accepted"),
        ({"new_classes": {"zebra": [1]}}, "attributes"), ({"new_classes": {"zebra": "ab"}}, "new_classes is not"),
        ([1], "params should be an object"), ({"classes": "none"}, "there is no class to choose from"),
    ],
)  # fmt: skip
def test_wrong_parameters_are_one_sentence(trained, port, params, words):
    status, found = ask(port, {"inputs": trained[2].X_unseen[:1].astype(float).tolist(), "params": params})
    assert status == 400
    assert words in found["error"]
    assert "Traceback" not in found["error"]
    assert "\n" not in found["error"]


@pytest.mark.parametrize(
    "body",
    [
        b"", b"no JSON", b"[" * 100_000, b"\xff\xfe", b"{}", b"[]", b'{"inputs": null}', b'{"inputs": []}',
        b'{"inputs": [[1, 2]]}', b'{"inputs": [["a"]]}', b'{"inputs": [[1], [1, 2]]}', b'{"inputs": 3}',
        b'{"inputs": [[NaN]]}', b'{"inputs": [[1]], "more": 1}', b'{"inputs": {"a": [1]}}',
    ],
)  # fmt: skip
def test_wrong_requests_are_one_sentence(port, body):
    status, found = ask(port, body)
    assert status == 400
    assert found["error"].endswith(".")
    assert "\n" not in found["error"]


def test_numbers_that_are_not_finite(trained, port):
    row = trained[2].X_unseen[0].astype(float).tolist()
    for value in (float("nan"), float("inf"), 1e400):
        status, found = ask(port, {"inputs": [[value, *row[1:]]]})
        assert status == 400
        assert "inputs" in found["error"]


def test_requests_are_bounded(trained, port):
    assert ask(port, b" " * 2_100_000)[0] == 413
    rows = np.zeros((10_001, trained[2].X.shape[1]))
    with pytest.raises(UserError, match="send at most 10000"):
        answer(ZeroShotClassifier.load(model_of(trained[0])), rows)


def test_a_client_that_stalls_does_not_hold_up_others(trained, port):
    rows = {"inputs": trained[2].X_unseen[:5].astype(float).tolist()}
    with socket.create_connection(("127.0.0.1", port)) as stalled:
        stalled.sendall(b"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
        with ThreadPoolExecutor(10) as clients:
            found = list(clients.map(lambda _: ask(port, rows)[0], range(40)))
    assert set(found) == {200}


def test_a_run_is_named_by_folder_or_id(tmp_path, trained, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "multirun" / "a"
    folder.mkdir(parents=True)
    (folder / "status.json").write_text(json.dumps(
        {"status": "FINISHED", "process": {}, "started": 1, "tracking": {"run_id": "0" * 32}}))  # fmt: skip
    (folder / "model.skops").write_bytes((trained[0] / "model.skops").read_bytes())
    assert model_of(Path("0" * 32)).resolve() == folder / "model.skops"
    assert main(["1" * 32]) == 1
    assert "no folder under multirun is of the run" in capsys.readouterr().err
    assert main(["nowhere"]) == 1
    assert "does not exist" in capsys.readouterr().err
