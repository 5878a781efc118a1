"""Learning in pieces: statistics, both couplings, online learning, and going on after a kill."""

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
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

from zsl.data.readers.synthetic import draw
from zsl.errors import UserError
from zsl.models.base import Rows
from zsl.models.coupled import CoupledDictionaries
from zsl.models.coupling import ImageAttributes, Joint, Visual
from zsl.sparse import Codes, learning, objective, sparse_encode
from zsl.sparse.checkpoint import Checkpoint, fingerprint
from zsl.sparse.dictionary import duplicate_atoms
from zsl.sparse.progress import Bar
from zsl.sparse.statistics import accumulate, compressed, total_objective


@pytest.fixture(scope="module")
def problem():
    X, y, C, _ = draw(n_classes=12, n_images=240, p=20, q=15, n_atoms=24, n_nonzero=4, seed=1)
    seen = y < 9
    return X[seen], y[seen], C[y[seen]], C[9:]


def sparse_codes(rng, n, r, density):
    return rng.standard_normal((n, r)) * (rng.random((n, r)) < density)


@pytest.mark.parametrize("density", [0.0, 0.05, 0.6])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_statistics_are_the_dense_products(rng, density, dtype):
    A, X = sparse_codes(rng, 50, 13, density).astype(dtype), rng.standard_normal((50, 7)).astype(dtype)
    D = rng.standard_normal((13, 7)).astype(dtype)
    codes = compressed(A)
    assert_array_equal(codes.toarray(), A)
    AtA, AtX = np.ones((13, 13)), np.ones((13, 7), dtype)
    accumulate(codes, X, AtA, AtX, keep=0.5, add=0.1)
    rtol = 1e-12 if dtype == np.float64 else 1e-4
    assert_allclose(AtA, 0.5 + 0.1 * A.T @ A, rtol=rtol, atol=rtol)
    assert_allclose(AtX, 0.5 + 0.1 * A.T @ X, rtol=rtol, atol=rtol)
    assert_allclose(total_objective(X, D, codes, 0.3), objective(X, D, A, 0.3).sum(), rtol=1e-6)


@pytest.mark.parametrize("repeated", [True, False])
def test_attribute_products_from_class_sums(rng, repeated):
    y = np.r_[0:5, rng.integers(5, size=25)]
    Z = rng.standard_normal((5, 3))[y]
    if not repeated:
        Z[-1, 0] += 1
    A = sp.csr_array(sparse_codes(rng, 30, 6, 0.3))
    attributes = ImageAttributes(Z, y)
    assert attributes.repeat == repeated
    total = sum(attributes.products(rows, A[rows]) for rows in (slice(0, 12), slice(12, 30)))
    assert_allclose(attributes.mean_products(total), A.toarray().T @ Z / 30, atol=1e-14)
    assert_allclose(attributes.mean_square, (Z**2).sum() / 30)


def test_duplicate_atoms_are_the_shorter_ones_of_a_pair(rng):
    D = rng.standard_normal((8, 5))
    D[3], D[6], D[7] = -0.5 * D[1], 2 * D[2] + 1e-9, 0
    assert [found.tolist() for found in duplicate_atoms(D)] == [[2, 3], [6, 1]]
    D[6, 0] += 0.1
    assert duplicate_atoms(D.astype(np.float32))[0].tolist() == [3]


def test_duplicate_atoms_are_drawn_again(problem):
    X, y, Z, Z_unseen = problem
    twice = np.vstack([X[:1]] * 40 + [X])  # so that the initial dictionary has copies of one image
    y, Z = np.r_[[y[0]] * 40, y], np.vstack([Z[:1]] * 40 + [Z])
    m = CoupledDictionaries(n_atoms=60, n_iter=2).fit(twice, y, Z, Z_unseen)
    assert m.redrawn_[0] >= 2
    assert not duplicate_atoms(m.Dx_)[0].size


@pytest.mark.parametrize("coupling", ["sequential", "joint"])
@pytest.mark.parametrize("atoms", ["unit_ball", "ridge"])
@pytest.mark.parametrize("size", [1.0, 1e-3])
def test_atoms_drawn_again_do_not_raise_the_objective(rng, coupling, atoms, size):
    # Fewer images than atoms, some of them copies: at every iteration most atoms are unused or duplicates, and some
    # used ones are copies of unused ones. With atoms at a price (ridge) and small features, every one may be unused.
    X = rng.standard_normal((60, 20)) * size / 20**0.5
    X[40:50] = X[:10]
    y = np.arange(60) % 10
    Z, Z_unseen = rng.random((10, 8))[y], rng.random((3, 8))
    m = CoupledDictionaries(n_atoms=100, n_iter=6, atoms=atoms, coupling=coupling).fit(X, y, Z, Z_unseen)
    assert sum(m.redrawn_) > 50
    values = np.array(m.objective_ if coupling == "joint" else m.objective_x_)
    assert (np.diff(values) <= 1e-6 * values[0]).all()


def test_stacked_rows_are_one_lasso(problem, rng):
    # 1/P |s - a D|^2 = 1/p |x - a Dx|^2 + 1/q |z - a Dz|^2.
    X, y, Z, Z_unseen = problem
    task = Joint(X, ImageAttributes(Z, y), Z_unseen, 0.0, 0.1, 0.5, sparse_encode, 0.3)
    Dx, Dz, A = rng.standard_normal((6, 20)), rng.standard_normal((6, 15)), rng.standard_normal((len(X), 6))
    D = task.stacked(Dx, Dz)
    for part, whole in zip(task.split(D), (Dx, Dz)):
        assert_allclose(part, whole)
    by_hand = ((X - A @ Dx) ** 2).sum(1) / 20 + ((Z - A @ Dz) ** 2).sum(1) / 15 + 0.3 / 6 * np.abs(A).sum(1)
    assert_allclose(objective(task.rows(slice(None)), D, A, 0.3), by_hand)


@pytest.mark.parametrize("weight", ["eq2", "eq4", "none"])
@pytest.mark.parametrize("atoms", ["unit_ball", "ridge"])
def test_joint_objective_is_eq_2_and_never_rises(problem, weight, atoms):
    X, y, Z, Z_unseen = problem
    m = CoupledDictionaries(
        n_atoms=30, n_iter=5, lam=0.3, beta=0.01, coupling="joint", unseen_weight=weight, atoms=atoms
    )
    m.fit(X, y, Z, Z_unseen)
    n, p, q, r = len(X), 20, 15, 30
    w = {"eq2": 1 / len(Z_unseen), "eq4": 1 / n, "none": 0.0}[weight]
    B = m.B_ if w else np.zeros((len(Z_unseen), r))
    assert m.B_.shape == ((len(Z_unseen) if w else 0), r)
    by_hand = (
        ((X - m.A_ @ m.Dx_) ** 2).sum() / (n * p)
        + ((Z - m.A_ @ m.Dz_) ** 2).sum() / (n * q)
        + 0.3 / r * np.abs(m.A_).sum() / n
        + w * (((Z_unseen - B @ m.Dz_) ** 2).sum() / q + 0.3 / r * np.abs(B).sum())
        + 0.01 / q * (m.Dz_**2).sum()
        + (0.01 / p * (m.Dx_**2).sum() if atoms == "ridge" else 0)
    )
    assert_allclose(m.objective_[-1], by_hand)
    assert len(m.objective_) == len(m.gap_) == 6
    for k in range(1, 6):
        assert m.objective_[k] <= m.objective_[k - 1] + m.gap_[k] + 1e-12 or (atoms == "ridge" and m.redrawn_[k - 1])
    assert m.objective_[-1] < m.objective_[0]
    if atoms == "unit_ball":
        assert max(np.linalg.norm(D, axis=1).max() for D in (m.Dx_, m.Dz_)) <= 1 + 1e-9
    assert m.scores(X).shape == (n, len(Z_unseen))


@pytest.mark.parametrize("coupling", ["sequential", "joint"])
@pytest.mark.parametrize("atoms", ["unit_ball", "ridge"])
def test_gradient_steps_learn_a_dictionary_and_never_rise(problem, coupling, atoms):
    settings = {"n_atoms": 20, "n_iter": 60, "lam": 0.2, "beta": 0.01, "coupling": coupling, "atoms": atoms}
    name, gaps = ("objective_", "gap_") if coupling == "joint" else ("objective_x_", "gap_x_")
    m, exact = (CoupledDictionaries(update=update, **settings).fit(*problem) for update in ("gradient", "exact"))
    values = getattr(m, name)
    for k in range(1, 61):
        assert values[k] <= values[k - 1] + getattr(m, gaps)[k] + 1e-12 or (atoms == "ridge" and m.redrawn_[k - 1])
    assert values[-1] < 1.05 * getattr(exact, name)[-1] < values[0]
    assert np.abs(m.Dx_ - exact.Dx_).max() > 1e-6
    if atoms == "unit_ball":
        assert np.linalg.norm(m.Dx_, axis=1).max() <= 1 + 1e-9


def test_joint_converges_to_a_stationary_point(problem):
    # With the penalty alone both dictionaries end where the gradient of Eq. (2) vanishes.
    X, y, Z, Z_unseen = problem
    m = CoupledDictionaries(n_atoms=8, n_iter=300, lam=0.3, beta=0.05, coupling="joint", atoms="ridge")
    m.fit(X, y, Z, Z_unseen)
    n, M, A, B = len(X), len(Z_unseen), m.A_, m.B_
    of_Dx = A.T @ (A @ m.Dx_ - X) / n + 0.05 * m.Dx_
    of_Dz = A.T @ (A @ m.Dz_ - Z) / n + B.T @ (B @ m.Dz_ - Z_unseen) / M + 0.05 * m.Dz_
    for gradient, scale in ((of_Dx, A.T @ X / n), (of_Dz, A.T @ Z / n)):
        assert np.abs(gradient).max() <= 1e-3 * np.abs(scale).max()


def test_pieces_change_nothing(problem, monkeypatch):
    X, y, Z, Z_unseen = problem
    settings = {"n_atoms": 40, "n_iter": 3, "lam_relative": 0.5}
    whole = CoupledDictionaries(**settings).fit(X, y, Z, Z_unseen)
    monkeypatch.setattr(learning._Learner, "piece_rows", staticmethod(lambda D: 50))
    pieces = CoupledDictionaries(**settings).fit(X, y, Z, Z_unseen)
    assert pieces.redrawn_ == whole.redrawn_
    assert_allclose(pieces.Dx_, whole.Dx_, atol=1e-6)
    assert_allclose(pieces.objective_x_, whole.objective_x_, rtol=1e-8)
    assert_allclose(pieces.objective_z_, whole.objective_z_, rtol=1e-6)


@pytest.mark.parametrize("coupling", ["sequential", "joint"])
@pytest.mark.parametrize("atoms", ["unit_ball", "ridge"])
def test_online_learning_comes_near_batch_learning(problem, coupling, atoms):
    X, y, Z, Z_unseen = problem
    settings = {"n_atoms": 24, "coupling": coupling, "atoms": atoms, "lam": 0.2}
    batch = CoupledDictionaries(n_iter=20, **settings).fit(X, y, Z, Z_unseen)
    online = CoupledDictionaries(n_iter=20, batch_size=40, **settings).fit(X, y, Z, Z_unseen)
    name = "objective_" if coupling == "joint" else "objective_x_"
    assert len(getattr(online, name)) == 21
    assert getattr(online, name)[-1] < 1.1 * getattr(batch, name)[-1]
    assert online.codes_ is None
    assert not hasattr(online, "A_")
    if coupling == "sequential":
        A = online.codes(X).A
        assert_allclose(online.objective_x_[-1], objective(X, online.Dx_, A, 0.2).mean()
                        + (1e-3 / 20 * (online.Dx_**2).sum() if atoms == "ridge" else 0), rtol=1e-5)  # fmt: skip


@pytest.mark.parametrize("coupling", ["sequential", "joint"])
def test_online_learning_of_one_batch_is_batch_learning(problem, coupling):
    # A batch of all rows leaves nothing of older statistics to remember: the same updates but for cold starts.
    settings = {
        "n_atoms": 24,
        "coupling": coupling,
        "lam": 0.2,
        "n_iter": 6,
        "solver": partial(sparse_encode, tol=1e-12),
    }
    batch, online = (CoupledDictionaries(batch_size=size, **settings).fit(*problem) for size in (None, 1000))
    assert batch.redrawn_ == online.redrawn_ == [0] * 6
    assert_allclose(online.Dx_, batch.Dx_, atol=1e-4)
    name = "objective_" if coupling == "joint" else "objective_x_"
    assert_allclose(getattr(online, name), getattr(batch, name), rtol=1e-5)


def test_one_online_pass_sees_the_unseen_classes(problem):
    X, y, Z, Z_unseen = problem
    settings = {"n_atoms": 24, "coupling": "joint", "lam": 0.2, "n_iter": 1, "batch_size": 60}
    one, other = (CoupledDictionaries(**settings).fit(X, y, Z, V) for V in (Z_unseen, Z_unseen[::-1] + 1))
    assert np.abs(one.Dz_ - other.Dz_).max() > 1e-3


def test_statistics_remember_one_pass_or_everything(problem):
    # Weights of 8 batches, newest first, 4 to a pass: batch t multiplies older ones by (1 - 1/min(t, 4))^forgetting.
    X, y, Z, _ = problem
    task = Visual(X[:160], ImageAttributes(Z[:160], y[:160]), 0.0)
    for forgetting, expected in (
        (0.0, [1 / 8] * 8),
        (1.0, 0.75 ** np.array([0, 1, 2, 3, 4, 5, 5, 5]) * [1, 1, 1, 1, 1, 1, 2 / 3, 1 / 3]),
    ):
        seen = []

        def encode(X, D, init, seen=seen):
            seen.append(X)
            return Codes(np.ones((len(X), 1)), np.zeros(len(X)), 1)

        D = np.zeros((1, 20))
        state = learning.learn(
            task, D, encode, 0.1, 2, np.random.default_rng(0), batch_size=40, forgetting=forgetting, last_pass=False
        )
        means = np.array([V.mean(axis=0) for V in reversed(seen)])
        assert len(means) == 8
        assert_allclose(state.AtX[0], np.asarray(expected) / np.sum(expected) @ means, rtol=1e-10)


def test_online_learning_reads_any_rows(problem, tmp_path):
    import h5py

    X, y, Z, Z_unseen = problem
    kept = {}
    np.save(tmp_path / "X.npy", X)
    with h5py.File(tmp_path / "X.h5", "w") as file:
        file["X"] = X
        for name, source in (("array", X), ("map", np.load(tmp_path / "X.npy", mmap_mode="r")), ("h5", file["X"])):
            m = CoupledDictionaries(n_atoms=12, n_iter=2, batch_size=70).fit(source, y, Z, Z_unseen)
            kept[name] = m.Dx_
    assert_array_equal(kept["map"], kept["array"])
    assert_array_equal(kept["h5"], kept["array"])


def test_rows_refuse_what_is_no_matrix():
    with pytest.raises(UserError, match="X has shape"):
        Rows(np.zeros(3), "X")
    X = np.zeros((9, 2), np.float16)
    X[7, 1] = np.nan
    assert Rows(X, "X")[:3].dtype == np.float64
    with pytest.raises(UserError, match="row 7, column 1"):
        Rows(X, "X")[5:]


class Killed(BaseException):
    pass


@pytest.mark.parametrize("batch_size", [None, 60])
@pytest.mark.parametrize("coupling", ["sequential", "joint"])
def test_resumed_fit_is_the_same_to_the_bit(problem, tmp_path, monkeypatch, caplog, coupling, batch_size):
    X, y, Z, Z_unseen = problem
    path = tmp_path / "new" / "state.npz"
    settings = {"n_atoms": 30, "n_iter": 3, "coupling": coupling, "batch_size": batch_size, "lam_relative": 0.4}
    monkeypatch.setattr(learning._Learner, "piece_rows", staticmethod(lambda D: 70))
    whole = CoupledDictionaries(**settings).fit(X, y, Z, Z_unseen)
    encode = CoupledDictionaries._encode
    for after in (3, 6):
        calls = []

        def stops(self, X, D, init=None, calls=calls, after=after):
            calls.append(1)
            if len(calls) > after:
                raise Killed
            return encode(self, X, D, init)

        monkeypatch.setattr(CoupledDictionaries, "_encode", stops)
        m = CoupledDictionaries(checkpoint=str(path), checkpoint_minutes=1e-9, **settings)
        with pytest.raises(Killed):
            m.fit(X, y, Z, Z_unseen)
        assert len(files(path)) == 1
    monkeypatch.setattr(CoupledDictionaries, "_encode", encode)
    left = {p: p.read_bytes() for p in files(path)}
    # Other settings, data, or labels are other problems, each with a file of its own.
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


@pytest.mark.parametrize("damage", ["empty", "array", "half", "bit", "bare", "without", "misshapen", "retyped"])
def test_a_damaged_checkpoint_is_named(problem, tmp_path, monkeypatch, damage):
    settings = {"n_atoms": 12, "n_iter": 2, "checkpoint": tmp_path / "ck"}
    monkeypatch.setattr(Checkpoint, "remove", lambda self: None)
    CoupledDictionaries(**settings).fit(*problem)
    (path,) = tmp_path.iterdir()
    with np.load(path) as file:
        arrays = dict(file)
    whole = path.read_bytes()
    if damage == "array":
        with path.open("wb") as out:
            np.save(out, np.zeros(3))
    elif damage in ("empty", "half", "bit"):
        flipped = bytearray(whole)
        flipped[whole.index(arrays["D"].tobytes()[:32])] ^= 1
        path.write_bytes({"empty": b"", "half": whole[: len(whole) // 2], "bit": bytes(flipped)}[damage])
    else:
        changed = {
            "bare": {"problem": arrays["problem"]},
            "without": {k: v for k, v in arrays.items() if k != "D"},
            "misshapen": arrays | {"D": arrays["D"][:3]},
            "retyped": arrays | {"D": arrays["D"].astype(np.float32)},
        }
        np.savez(path, **changed[damage])
    damaged = path.read_bytes()
    with pytest.raises(UserError, match=r"ck-\w{8}\.npz is .*damaged.*; remove it to start anew\.$") as caught:
        CoupledDictionaries(**settings).fit(*problem)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == damaged
    path.unlink()
    CoupledDictionaries(**settings).fit(*problem)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("file/ck", "cannot be written"), ("file/below/ck", "cannot be written"), ("x" * 300, "cannot be written"),
        ("folder", "is a folder"), ("new/", "is a folder"), ("", "is not accepted"), ("a\0b", "is not accepted"),
        pytest.param("/proc/nope/ck.npz", "cannot be written", marks=pytest.mark.skipif(
            not sys.platform.startswith("linux"), reason="/proc is Linux's")),
        pytest.param("closed/ck", "cannot be written", marks=pytest.mark.skipif(
            os.geteuid() == 0, reason="nothing is closed to the administrator")),
    ],
)  # fmt: skip
def test_where_no_checkpoint_can_be_is_said_before_training(problem, tmp_path, monkeypatch, name, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "closed").mkdir(mode=0o500)
    monkeypatch.setattr("zsl.models.coupled.initial_atoms", lambda *_: pytest.fail("training has begun"))
    with pytest.raises(UserError, match=rf"(?s)(?=.*model\.checkpoint).*{words}") as caught:
        CoupledDictionaries(checkpoint=name).fit(*problem)
    assert "\n" not in str(caught.value)
    assert len(list(tmp_path.iterdir())) == 3


def test_a_folder_may_have_taken_the_place_of_the_file(problem, tmp_path):
    settings = {"n_atoms": 12, "n_iter": 1, "checkpoint": tmp_path / "ck"}
    X, y, Z, Z_unseen = problem
    m = CoupledDictionaries(**settings)
    m._checkpoint(X, y, Z, Z_unseen).path.mkdir()
    with pytest.raises(UserError, match=r"model\.checkpoint: .*ck-\w{8}\.npz is a folder"):
        m.fit(*problem)


def test_a_disk_that_fills_up_does_not_end_the_work(problem, tmp_path, monkeypatch, caplog):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    m = CoupledDictionaries(n_atoms=12, n_iter=1, checkpoint=tmp_path / "ck", checkpoint_minutes=1e-9).fit(*problem)
    assert m.Dx_.shape == (12, 20)
    assert "ck-" in caplog.text
    assert "No space left on device" in caplog.text
    assert not list(tmp_path.iterdir())


SCRIPT = """
import sys, numpy as np
from zsl.models.coupled import CoupledDictionaries
rng = np.random.default_rng(0)
X, y = np.maximum(rng.standard_normal((600, 30)), 0).astype(np.float32), np.arange(600) % 6
C = rng.standard_normal((8, 5)).astype(np.float32)
m = CoupledDictionaries(n_atoms=50, n_iter=40, batch_size=eval(sys.argv[3]), checkpoint=sys.argv[1] or None,
                        checkpoint_minutes=1e-6)
m.fit(X, y, C[y], C[6:])
np.savez(sys.argv[2], Dx=m.Dx_, Dz=m.Dz_, curve=m.objective_x_)
"""


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", ["None", "100"])
def test_a_killed_process_goes_on(tmp_path, batch_size):
    path, outs = tmp_path / "state.npz", [tmp_path / "whole.npz", tmp_path / "resumed.npz"]

    def start(checkpoint, out):
        return subprocess.Popen([sys.executable, "-c", SCRIPT, str(checkpoint), str(out), batch_size])

    assert start("", outs[0]).wait() == 0
    kills = 0
    while kills < 3:
        before = [p.stat().st_mtime_ns for p in files(path)]
        process = start(path, outs[1])
        while process.poll() is None and [p.stat().st_mtime_ns for p in files(path)] == before:
            time.sleep(0.001)
        time.sleep(0.01 * kills)
        if process.poll() is not None:
            break
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        kills += 1
    assert kills
    assert start(path, outs[1]).wait() == 0
    with np.load(outs[0]) as whole, np.load(outs[1]) as resumed:
        for name in whole:
            assert_array_equal(whole[name], resumed[name])


WAYS = {
    "tune": ("tune=class_cv", "tune.n_folds=2", "tune.grid={model.lam_relative:[0.1,0.3]}"),
    "sweep": ("-m", "model.lam_relative=0.1,0.3"),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_killed_tune_or_sweep_goes_on_by_the_same_command(tmp_path, way):
    def start(folder, *more):
        command = [sys.executable, "-m", "zsl.main", "dataset=synthetic", "model.n_iter=40", "inference=aag",
                   "tracking=none", f"output_dir={folder}", *WAYS[way], *more]  # fmt: skip
        env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
        return subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def found(folder):
        runs = []
        for path in sorted(tmp_path.glob(f"{folder}/**/results.json")):
            with np.load(path.with_name("dictionaries.npz")) as arrays:
                numbers = {name: array.tobytes() for name, array in arrays.items()}
            record = json.loads(path.read_text(encoding="utf-8"))
            runs.append((numbers, record["trials"], record["metrics"]["acc_class"]))
        return runs

    whole = start("whole")
    keeping = ("model.checkpoint=ck/fit.npz", "model.checkpoint_minutes=1e-9")
    killed, seen = start("killed", *keeping), set()
    # In the midst of the second fit, when the file of the first is gone.
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


def test_bar_is_silent_unless_on_a_terminal(monkeypatch, capsys):
    with Bar("work", 3, patience=0) as bar:
        bar.step(objective=1.0)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with Bar("work", 3, patience=0) as bar:
        bar.step(objective=0.125, gap=1e-7)
        bar.step(objective=0.125, gap=1e-7)
    assert "objective 0.125" in capsys.readouterr().err


def encode_loosely(X, D, lam, *, init=None):
    return sparse_encode(X, D, lam, init=init, tol=1e-3)


class Solver:
    def __init__(self, tol):
        self.tol = tol

    def __call__(self, X, D, lam, *, init=None):
        return sparse_encode(X, D, lam, init=init, tol=self.tol)

    def method(self, X, D, lam, *, init=None):
        return self(X, D, lam, init=init)


def enclosing(tol):
    def encode(X, D, lam, *, init=None):
        return sparse_encode(X, D, lam, init=init, tol=tol)

    return encode


SOLVERS = """
from functools import partial
from test_learning import Solver, enclosing, encode_loosely
from zsl.sparse import sparse_encode
solvers = [
    None, sparse_encode, encode_loosely, partial(sparse_encode, tol=1e-3), partial(sparse_encode, tol=1e-4),
    partial(encode_loosely), partial(sparse_encode, solver=encode_loosely, tol=1e-3),
    partial(sparse_encode, solver=partial(encode_loosely, init=None), tol=1e-3), Solver(1e-3), Solver(1e-4),
    Solver(1e-3).method, enclosing(1e-3), enclosing(1e-4), lambda X, D, lam, *, init=None: 1,
    lambda X, D, lam, *, init=None: 2, lambda X, D, lam, *, init=None: X in {"a", "b", "c"},
]
"""


def test_solvers_are_told_apart_and_known_again_in_another_process():
    code = SOLVERS + (
        "from zsl.sparse.checkpoint import fingerprint\n"
        "print(*[fingerprint({'solver': s}, []) for s in solvers])"
    )  # fmt: skip
    found = []
    for seed in "01":
        paths = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[1])])
        # Addresses differ from process to process, and so does the order of sets.
        out = subprocess.run([sys.executable, "-c", f"x = [object() for _ in range(10**{seed})]\n" + code], text=True,
                             env={**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": seed}, capture_output=True,
                             check=True)  # fmt: skip
        found.append(out.stdout.split())
    assert found[0] == found[1]
    assert len(set(found[0])) == len(found[0]) == 16


def test_a_function_that_encloses_itself_has_a_description():
    def encode(X, D, lam, *, init=None):
        return encode

    assert fingerprint({"solver": encode}, []) == fingerprint({"solver": encode}, [])


def test_solver_settings_are_part_of_a_checkpoint(problem, tmp_path):
    prints = set()
    for solver in (None, partial(sparse_encode, tol=1e-3), partial(sparse_encode, tol=1e-4), encode_loosely):
        m = CoupledDictionaries(solver=solver, checkpoint=str(tmp_path / "c"))
        prints.add(m._checkpoint(*problem).problem)
    assert len(prints) == 4
