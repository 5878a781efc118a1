"""Checkpoints: a fit that was killed goes on and ends at the same numbers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from zsl import ZeroShotClassifier
from zsl.data.readers.synthetic import draw
from zsl.errors import UserError
from zsl.models import CoupledDictionaries
from zsl.sparse import learner, sparse_encode
from zsl.sparse.checkpoint import Checkpoint, fingerprint


@pytest.fixture(scope="module")
def problem():
    X, y, C, _ = draw(n_classes=12, n_images=240, p=20, q=15, n_atoms=24, n_nonzero=4, seed=1)
    seen = y < 9
    return X[seen], y[seen], C[y[seen]], C[9:]


class Killed(BaseException):
    pass


@pytest.mark.parametrize("batch_size", [None, 60])
@pytest.mark.parametrize("coupling", ["sequential", "joint"])
def test_resumed_fit_is_the_same_to_the_bit(problem, tmp_path, monkeypatch, caplog, coupling, batch_size):
    X, y, Z, Z_unseen = problem
    path = tmp_path / "new" / "state.npz"
    settings = {"n_atoms": 30, "n_iter": 3, "coupling": coupling, "batch_size": batch_size, "lam_relative": 0.4}
    monkeypatch.setattr(learner, "piece_rows", lambda D: 70)
    whole = CoupledDictionaries(**settings).fit(X, y, Z, Z_unseen)
    encode = CoupledDictionaries._encode
    for after in (3, 6):
        calls = []

        def stops(self, X, D, init=None, rough=0.0, calls=calls, after=after):
            calls.append(1)
            if len(calls) > after:
                raise Killed
            return encode(self, X, D, init, rough)

        monkeypatch.setattr(CoupledDictionaries, "_encode", stops)
        m = CoupledDictionaries(checkpoint=str(path), checkpoint_minutes=1e-9, **settings)
        with pytest.raises(Killed):
            m.fit(X, y, Z, Z_unseen)
        assert len(files(path)) == 1
    monkeypatch.setattr(CoupledDictionaries, "_encode", encode)
    left = {p: p.read_bytes() for p in files(path)}
    # Other settings, data or labels are another problem, which has a file of its own.
    for other, data, labels in (({"beta": 0.5}, X, y), ({}, X + 1e-12, y), ({}, X, y[::-1].copy())):
        with caplog.at_level("INFO"):
            caplog.clear()
            CoupledDictionaries(checkpoint=path, **settings | other).fit(data, labels, Z, Z_unseen)
        (said,) = [r.message for r in caplog.records if "other data or settings, left alone" in r.message]
        assert said.startswith(f"{next(iter(left)).name} beside ")
        assert "going on from" not in caplog.text
        assert {p: p.read_bytes() for p in files(path)} == left
    with caplog.at_level("INFO"):
        caplog.clear()
        m = CoupledDictionaries(checkpoint=path, **settings).fit(X, y, Z, Z_unseen)
    assert "going on from" in caplog.text
    assert_array_equal(m.Dx_, whole.Dx_)
    assert_array_equal(m.Dz_, whole.Dz_)
    assert m.redrawn_ == whole.redrawn_
    assert not list(path.parent.iterdir())


def files(path):
    """The checkpoints of a name."""
    return sorted(path.parent.glob(f"{path.stem}-????????.npz"))


@pytest.mark.parametrize("damage", ["array", "half", "bit", "without", "misshapen"])
def test_a_damaged_checkpoint_is_named(problem, tmp_path, monkeypatch, damage):
    settings = {"n_atoms": 12, "n_iter": 2, "checkpoint": tmp_path / "ck"}
    monkeypatch.setattr(Checkpoint, "remove", lambda self: None)
    CoupledDictionaries(**settings).fit(*problem)
    (path,) = tmp_path.iterdir()
    with np.load(path) as file:
        arrays = dict(file)
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[whole.index(arrays["D"].tobytes()[:32])] ^= 1
    if damage == "array":
        with path.open("wb") as out:
            np.save(out, np.zeros(3))
    elif damage in ("half", "bit"):
        path.write_bytes({"half": whole[: len(whole) // 2], "bit": bytes(flipped)}[damage])
    else:
        rest = {k: v for k, v in arrays.items() if k != "D"}
        np.savez(path, **rest | ({} if damage == "without" else {"D": arrays["D"][:3]}))
    damaged = path.read_bytes()
    with pytest.raises(UserError, match=r"ck-\w{8}\.npz is .*damaged.*; remove it to start anew\.$"):
        CoupledDictionaries(**settings).fit(*problem)
    assert path.read_bytes() == damaged


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("file/ck", "cannot be written"),
        ("x" * 300, "cannot be written"),
        ("folder", "is a folder"),
        ("new/", "is a folder"),
        ("", "is not accepted"),
    ],
)
def test_an_impossible_checkpoint_is_refused_before_training(problem, tmp_path, monkeypatch, name, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    monkeypatch.setattr("zsl.models.coupled.initial_atoms", lambda *_: pytest.fail("training has begun"))
    with pytest.raises(UserError, match=rf"(?s)(?=.*model\.checkpoint).*{words}"):
        CoupledDictionaries(checkpoint=name).fit(*problem)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_disk_that_fills_up_does_not_end_the_work(problem, tmp_path, monkeypatch, caplog):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    m = CoupledDictionaries(n_atoms=12, n_iter=1, checkpoint=tmp_path / "ck", checkpoint_minutes=1e-9).fit(*problem)
    assert m.Dx_.shape == (12, 20)
    assert "ck-" in caplog.text
    assert "No space left on device" in caplog.text
    assert not list(tmp_path.iterdir())


WAYS = {
    "tune": ("tune=class_cv", "tune.n_folds=2", "tune.grid={model.lam_relative:[0.1,0.3]}"),
    "sweep": ("-m", "model.lam_relative=0.1,0.3"),
}


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
def test_a_killed_tune_or_sweep_goes_on_by_the_same_command(tmp_path, way):
    def start(folder, *more):
        command = [sys.executable, "-m", "zsl.main", "dataset=synthetic", "model=coupled_paper", "model.n_iter=40",
                   "inference=aag", "tracking=none", "save_precision=double", f"output_dir={folder}",
                   *WAYS[way], *more]  # fmt: skip
        env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
        return subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def found(folder):
        runs = []
        for path in sorted(tmp_path.glob(f"{folder}/**/results.json")):
            model = ZeroShotClassifier.load(path.with_name("model.skops")).model_
            numbers = {"Dx": model.Dx_.tobytes(), "Dz": model.Dz_.tobytes()}
            record = json.loads(path.read_text(encoding="utf-8"))
            runs.append((numbers, record["trials"], record["metrics"]["acc_class"]))
        return runs

    whole = start("whole")
    keeping = ("model.checkpoint=ck/fit.npz", "model.checkpoint_minutes=1e-9")
    killed, seen = start("killed", *keeping), set()
    # Wait for the middle of the second fit, when the file of the first fit is gone.
    while len(seen) < 2 and killed.poll() is None:
        seen |= {p.name for p in tmp_path.glob("ck/fit-*.npz")}
        time.sleep(0.001)
    killed.kill()
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    assert len(list(tmp_path.glob("ck/fit-*.npz"))) == 1
    resumed = start("resumed", *keeping)
    for one in (resumed, whole):
        out, _ = one.communicate(timeout=120)
        assert one.returncode == 0, out.decode()
    logs = "".join(p.read_text(encoding="utf-8") for p in tmp_path.glob("resumed/**/zsl.log"))
    assert logs.count("going on from ck/fit-") == 1
    assert len(found("whole")) == {"tune": 1, "sweep": 2}[way]
    assert found("resumed") == found("whole")
    assert not list(tmp_path.glob("ck/*"))


def test_checkpoint_files(tmp_path):
    problem = fingerprint({"a": 1}, [np.ones(3)])
    c = Checkpoint(tmp_path / "c.npz", problem, 1e9)
    assert c.path == Checkpoint(str(tmp_path / "c"), problem, 1e9).path == tmp_path / f"c-{problem[:8]}.npz"
    assert Checkpoint(tmp_path / "lam0.1", problem, 1e9).path.name == f"lam0.1-{problem[:8]}.npz"
    assert c.load() is None
    assert not c.due()
    c.save({"x": np.arange(3)})
    assert_array_equal(c.load()["x"], np.arange(3))
    assert list(tmp_path.iterdir()) == [c.path]
    other = Checkpoint(tmp_path / "c", problem[:8] + "f" * 24, 1e9)
    with pytest.raises(UserError, match="is a checkpoint of other data or settings"):
        other.load()
    c.path.write_bytes(b"no zip")
    with pytest.raises(UserError, match="is not a checkpoint of zsl"):
        c.load()
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    halves = [c._partial.with_name(c._partial.name.replace(str(os.getpid()), str(k))) for k in (gone.pid, 1)]
    for path in halves:
        path.touch()
    c.remove()
    c.remove()
    assert list(tmp_path.iterdir()) == halves[1:]


def encode_loosely(X, D, lam, *, init=None):
    return sparse_encode(X, D, lam, init=init, tol=1e-3)


class Solver:
    def __init__(self, tol):
        self.tol = tol

    def __call__(self, X, D, lam, *, init=None):
        return sparse_encode(X, D, lam, init=init, tol=self.tol)


SOLVERS = [
    None, sparse_encode, encode_loosely, partial(sparse_encode, tol=1e-3), partial(sparse_encode, tol=1e-4),
    partial(sparse_encode, solver=encode_loosely, tol=1e-3), Solver(1e-3), Solver(1e-4),
]  # fmt: skip


@pytest.mark.slow
def test_settings_are_told_apart_and_known_again_in_another_process():
    code = (
        "from test_checkpoints import SOLVERS, fingerprint\n"
        "print(*[fingerprint({'solver': s}, []) for s in SOLVERS])"
    )  # fmt: skip
    paths = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[1])])
    env = {**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": "1"}
    found = subprocess.run([sys.executable, "-c", code], text=True, env=env, capture_output=True, check=True).stdout
    here = [fingerprint({"solver": s}, []) for s in SOLVERS]
    assert found.split() == here
    assert len(set(here)) == len(SOLVERS)
    with pytest.raises(UserError, match="not as a lambda"):
        fingerprint({"solver": lambda X: X}, [])
