"""Rows in chunks on a Dask cluster: the same numbers as in one process, whatever becomes of the workers."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import zsl
from zsl import AveragedDictionaries, CoupledDictionaries, UserError, ZeroShotClassifier, sparse
from zsl.data.preprocess import Preprocess
from zsl.models import ESZSL

da = pytest.importorskip("dask.array", reason="Dask is not installed: pip install -e '.[dask]'")
distributed = pytest.importorskip("distributed")

N_ROWS = 130  # of a chunk


@pytest.fixture(scope="module")
def client():
    """Two workers, each a process with one thread."""
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", silence_logs=50
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def problem():
    """Images of twelve classes, their attributes, and four unseen classes."""
    rng = np.random.default_rng(0)
    y = np.sort(np.arange(600) % 12)
    S, W = rng.normal(size=(12, 10)), rng.normal(size=(10, 24))
    X = S[y] @ W + rng.normal(size=(600, 24))
    return X / np.linalg.norm(X, axis=1, keepdims=True), y, S[y], rng.normal(size=(4, 10))


def chunks(X):
    return da.from_array(X, chunks=(N_ROWS, 9))  # columns are divided, too


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"init": "pca"},
        {"atoms": "ridge"},  # whose atoms are drawn again
        {"batch_size": 100},
        {"coupling": "joint"},
        {"coupling": "joint", "batch_size": 100},
        {"update": "gradient"},
        {"tol": 0.05, "n_iter": 9},
    ],
    ids=str,
)
@pytest.mark.slow
def test_dictionaries_are_those_of_one_process(client, problem, settings):
    X, *others = problem
    settings = {"n_atoms": 40, "n_iter": 3, "lam_relative": 0.3, **settings}
    here = CoupledDictionaries(**settings).fit(X, *others)
    there = CoupledDictionaries(**settings).fit(chunks(X), *others)
    for name in ("Dx_", "Dz_", "B_"):
        assert_allclose(getattr(there, name), getattr(here, name), rtol=0, atol=1e-9)
    assert there.redrawn_ == here.redrawn_
    assert there.density_ == here.density_
    if here.codes_ is None:
        assert there.codes_ is None
    else:
        assert_allclose(there.codes_.compute().toarray(), here.A_, rtol=0, atol=1e-9)
        assert {type(part).__name__ for part in [there.codes_.blocks[0].compute()]} == {"csr_array"}


@pytest.mark.slow
def test_atoms_that_repeat_others_or_are_not_used_are_drawn_again_alike(client, problem):
    X, *others = problem
    X = X.copy()
    X[300:] = X[:300]  # samples, and so initial atoms, are there twice
    settings = {"n_atoms": 150, "n_iter": 3, "lam_relative": 0.6, "unseen_weight": "none"}
    here = CoupledDictionaries(**settings).fit(X, *others)
    there = CoupledDictionaries(**settings).fit(chunks(X), *others)
    assert max(here.redrawn_) > 0
    assert there.redrawn_ == here.redrawn_
    assert_allclose(there.Dx_, here.Dx_, rtol=0, atol=1e-9)


@pytest.mark.slow
def test_the_number_of_workers_changes_no_bit(client, problem):
    X, *others = problem
    settings = {"n_atoms": 40, "n_iter": 2, "lam_relative": 0.3}
    two = CoupledDictionaries(**settings).fit(chunks(X), *others)
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0", silence_logs=50) as cluster,
        distributed.Client(cluster, set_as_default=False) as alone,
        alone.as_current(),
    ):
        one = CoupledDictionaries(**settings).fit(chunks(X), *others)
        assert_array_equal(one.Dx_, two.Dx_)
        assert_array_equal(one.Dz_, two.Dz_)


@pytest.mark.slow
def test_a_worker_that_is_killed_changes_no_bit(problem):
    X, *others = problem
    settings = {"n_atoms": 40, "n_iter": 6, "lam_relative": 0.3}
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50) as cluster,
        distributed.Client(cluster) as client,
    ):
        whole = CoupledDictionaries(**settings).fit(chunks(X), *others)
        before = set(client.scheduler_info()["workers"])
        again = CoupledDictionaries(solver=DyingSolver(6), **settings).fit(chunks(X), *others)
        killed = before - set(client.scheduler_info()["workers"])
    assert killed
    assert_array_equal(again.Dx_, whole.Dx_)
    assert_array_equal(again.Dz_, whole.Dz_)


class DyingSolver:
    """A solver whose process ends without a word in its ``after``-th call, once in the life of a cluster."""

    def __init__(self, after):
        self.after = after

    def __call__(self, X, D, lam, *, init=None, rough=0.0):
        import os

        from distributed import Variable, get_worker

        try:
            worker = get_worker()
        except ValueError:  # on the client
            return sparse.sparse_encode(X, D, lam, init=init, rough=rough)
        state = worker.__dict__.setdefault("calls_of_dying_solver", [0])
        state[0] += 1
        flag = Variable("died")
        try:
            flag.get(timeout=0.01)
        except TimeoutError:
            if state[0] == self.after:
                flag.set(True)
                os._exit(1)
        return sparse.sparse_encode(X, D, lam, init=init, rough=rough)


@pytest.mark.slow
def test_a_scheduler_that_dies_is_named(problem):
    X, y, Z, Z_unseen = problem
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard"]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "scheduler.json"
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        scheduler = subprocess.Popen([*command, "--scheduler-file", str(file)], **quiet)
        worker = None
        try:
            worker = subprocess.Popen(
                [sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", str(file), "--nthreads", "1",
                 "--death-timeout", "20", "--no-dashboard"], **quiet,
            )  # fmt: skip
            with distributed.Client(scheduler_file=str(file), timeout=60) as client:
                client.wait_for_workers(1, timeout=60)
                threading.Timer(1.0, scheduler.kill).start()
                with pytest.raises(UserError, match="its scheduler ended; start the fit again on a new client"):
                    CoupledDictionaries(n_atoms=20, n_iter=10_000).fit(chunks(X), y, Z, Z_unseen)
        finally:
            for process in (scheduler, worker):
                if process is not None:
                    process.kill()
                    process.wait()


@pytest.mark.slow
def test_a_fit_goes_on_from_its_checkpoint(client, problem, tmp_path, monkeypatch):
    from zsl.sparse.chunked_learner import ChunkedLearner

    X, *others = problem
    settings = {"n_atoms": 40, "n_iter": 3, "lam_relative": 0.3}
    whole = CoupledDictionaries(**settings).fit(chunks(X), *others)
    step, steps = ChunkedLearner.step, []

    def stops(self):
        steps.append(self.state.iteration)
        if len(steps) == 3:
            raise KeyboardInterrupt
        step(self)

    model = CoupledDictionaries(checkpoint=str(tmp_path / "ck"), checkpoint_minutes=1e-9, **settings)
    monkeypatch.setattr(ChunkedLearner, "step", stops)
    with pytest.raises(KeyboardInterrupt):
        model.fit(chunks(X), *others)
    model.fit(chunks(X), *others)
    assert steps == [0, 1, 2, 2, 3]
    # Codes start anew, so the dictionaries agree to within the tolerance of the codes.
    assert_allclose(model.Dx_, whole.Dx_, rtol=0, atol=1e-3)
    assert not list(tmp_path.glob("ck-*"))


@pytest.mark.slow
def test_codes_and_predictions_of_a_chunked_array_are_lazy_and_the_same(client, problem):
    X, *others = problem
    X_chunked = chunks(X)
    model = AveragedDictionaries(n_dictionaries=2, n_atoms=40).fit(X_chunked, *others)
    codes = model.codes(X_chunked)
    assert_allclose(codes.A.compute().toarray(), model.codes(X).A, rtol=0, atol=1e-9)
    assert_allclose(codes.gap.compute(), model.codes(X).gap, rtol=0, atol=1e-9)
    for fitted in (model, ESZSL().fit(X, *others)):
        assert_array_equal(fitted.predict(X_chunked).compute(), fitted.predict(X))
        assert_allclose(fitted.scores(X_chunked).compute(), fitted.scores(X), rtol=0, atol=1e-9)
    found = sparse.sparse_encode(X_chunked, model.Dx_, 0.1)
    assert_allclose(found.A.compute().toarray(), sparse.sparse_encode(X, model.Dx_, 0.1).A, rtol=0, atol=1e-12)
    warm = sparse.sparse_encode(X_chunked, model.Dx_, 0.1, init=found.A)
    assert warm.n_iter.compute() <= 1 < found.n_iter.compute()


@pytest.mark.parametrize(
    "settings",
    [{}, {"standardise": True, "power": 0.5}, {"pca": 12, "dtype": "float32"}, {"l2": False, "centre": False}],
    ids=str,
)
def test_preprocessing_is_that_of_one_process(client, problem, settings):
    X = problem[0].copy()
    X[5, 3] = np.nan
    X[:, 7] = np.nan
    here, there = Preprocess(**settings).fit(X), Preprocess(**settings).fit(chunks(X))
    assert_allclose(there.transform(chunks(X)).compute(), here.transform(X), rtol=0, atol=1e-6)
    blocks = Preprocess().fit(chunks(X), blocks=[10, 14])
    assert_allclose(blocks.transform(X), Preprocess().fit(X, blocks=[10, 14]).transform(X), rtol=0, atol=1e-9)


@pytest.mark.parametrize("inference", ["inductive", "transductive", "taaw", "aag"])
@pytest.mark.slow
def test_the_classifier_is_that_of_one_process(client, inference):
    data = zsl.load_dataset("digits")
    names = np.array(data.class_names)
    table = pd.DataFrame(data.attributes, index=names)
    y, model = names[data.seen][data.y], AveragedDictionaries(n_dictionaries=2, n_iter=1)
    here = ZeroShotClassifier(model, inference).fit(data.X, y, table)
    there = ZeroShotClassifier(model, inference).fit(da.from_array(data.X, chunks=(300, 20)), y, table)
    X = data.X_unseen[:80]
    assert_allclose(there.decision_function(X), here.decision_function(X), rtol=0, atol=1e-9)
    chunked = da.from_array(X, chunks=(30, 64))
    if inference in ("inductive", "aag"):
        assert_array_equal(there.predict(chunked).compute(), here.predict(X))
        assert_allclose(there.predict_attributes(chunked).compute(), here.predict_attributes(X), rtol=0, atol=1e-9)
        best = list(there.predict_top(chunked, 2))
        assert [len(of_chunk) for of_chunk, _ in best] == [30, 30, 20]
        assert_array_equal(np.vstack([of_chunk for of_chunk, _ in best])[:, 0], here.predict(X))
    else:
        for predict in (there.predict, there.predict_top):
            with pytest.raises(UserError, match="looks at all test images together"):
                predict(chunked)
    if inference == "aag":
        bad = data.X.copy()
        bad[400, 3] = np.nan
        with pytest.raises(UserError, match=r"X \(from row 300\) holds nan in row 100, column 3"):
            ZeroShotClassifier(model, inference).fit(da.from_array(bad, chunks=(300, 20)), y, table)
        with pytest.raises(UserError, match="one class name for each is needed"):
            ZeroShotClassifier(model, inference).fit(da.from_array(bad, chunks=(300, 20)), y[:5], table)


@pytest.mark.slow
def test_chunks_that_were_divided_again_and_whole_numbers(client):
    rng = np.random.default_rng(0)
    y = np.arange(300) % 6
    S = rng.integers(0, 5, (8, 5)).astype(float)
    X = np.rint(10 * (S[y] @ rng.normal(size=(5, 12)) + rng.normal(size=(300, 12)))).astype(np.int64)
    names = np.array([f"class {i}" for i in range(8)])
    model = CoupledDictionaries(n_atoms=12, n_iter=1)
    here = ZeroShotClassifier(model, "aag").fit(X, names[y], dict(zip(names, S)))
    divided = da.from_array(X, chunks=(100, 12)).rechunk((100, 4))
    there = ZeroShotClassifier(model, "aag").fit(divided, names[y], dict(zip(names, S)))
    assert_allclose(there.decision_function(X), here.decision_function(X), rtol=0, atol=1e-9)
    assert_array_equal(there.predict(divided).compute(), here.predict(X))


@pytest.mark.slow
def test_chunks_without_rows_change_nothing(client, problem):
    X, *others = problem
    selected = da.concatenate([chunks(X), chunks(X) - 1e9])
    selected = selected[selected.min(axis=1) > -1e8].compute_chunk_sizes()
    assert 0 in selected.chunks[0]
    there = CoupledDictionaries(n_atoms=20, n_iter=1).fit(selected, *others)
    whole = CoupledDictionaries(n_atoms=20, n_iter=1).fit(chunks(X), *others)
    assert_allclose(there.Dx_, whole.Dx_, rtol=0, atol=1e-12)
    assert_array_equal(there.predict(selected).compute(), there.predict(X))


def test_no_chunk_comes_to_the_client(client, problem, monkeypatch):
    X, *others = problem
    gathered, gather = [], client.gather

    def watched(futures, *arguments, **named):
        found = gather(futures, *arguments, **named)
        gathered.append(found)
        return found

    monkeypatch.setattr(distributed.Client, "gather", lambda self, *a, **k: watched(*a, **k))
    CoupledDictionaries(n_atoms=20, n_iter=2, init="random").fit(chunks(X), *others)
    rows = [part for found in gathered for part in (found if isinstance(found, list) else [found])
            if getattr(part, "ndim", 0) == 2 and part.shape[1] == X.shape[1] and len(part) > 20]  # fmt: skip
    assert gathered
    assert not rows


def test_tasks_have_names_that_can_be_read(client, problem):
    from distributed import get_task_stream

    X, *others = problem
    with get_task_stream(client) as stream:
        CoupledDictionaries(n_atoms=20, n_iter=1).fit(chunks(X), *others)
    names = {str(task["key"]).split("-")[0] for task in stream.data}
    assert {"code_chunk", "statistics", "codes", "add_statistics", "any_nonzero"} <= names


def test_what_is_wrong_is_said_in_a_sentence(client, problem):
    X, *others = problem
    bad = X.copy()
    bad[400, 3] = np.nan
    with pytest.raises(UserError, match=r"X \(from row 390\) holds nan in row 10, column 3"):
        CoupledDictionaries(n_atoms=20).fit(da.from_array(bad, chunks=(N_ROWS, -1)), *others)
    with pytest.raises(UserError, match="only coupled dictionaries learn from"):
        ESZSL().fit(chunks(X), *others)
    with pytest.raises(UserError, match=r"X \(from row 390\) holds nan in row 10, column 3"):
        sparse.sparse_encode(da.from_array(bad, chunks=(N_ROWS, -1)), np.eye(24), 0.1).A.compute()
    with pytest.raises(UserError, match="one sample per row"):
        sparse.sparse_encode(da.ones(24), np.eye(24), 0.1)
    unknown = chunks(X)[da.from_array(np.ones(600, bool), chunks=100)]
    with pytest.raises(UserError, match="compute_chunk_sizes"):
        CoupledDictionaries(n_atoms=20).fit(unknown, *others)


def test_without_a_client_a_sentence_says_how_to_make_one(problem, monkeypatch):
    def no_client():
        raise ValueError("No global client found and no address provided")

    X, *others = problem
    monkeypatch.setattr(distributed, "get_client", no_client)
    with pytest.raises(UserError, match="from distributed import Client"):
        CoupledDictionaries(n_atoms=20).fit(chunks(X), *others)


@pytest.mark.slow
def test_a_run_learns_on_the_cluster(client, tmp_path):
    settings = ["dataset=digits", "model.n_dictionaries=1", "model.n_iter=1", "inference=inductive", "tracking=none"]
    here = zsl.run(zsl.compose(settings))
    there = zsl.run(zsl.compose([*settings, "model.backend=dask", f"dask.scheduler={client.scheduler.address}"]))
    assert there.metrics["hit_1"] == here.metrics["hit_1"]
    assert there.digest == here.digest
    with pytest.raises(UserError, match=r"set model\.backend=dask"):
        zsl.run(zsl.compose([*settings, "dask.scheduler=tcp://127.0.0.1:1"]))
    with pytest.raises(UserError, match="does not answer"):
        zsl.run(zsl.compose([*settings, "model.backend=dask", "dask.scheduler=no-address"]))


@pytest.mark.slow
def test_workers_give_up_statistics_once_they_are_added(client, problem, monkeypatch):
    from zsl.sparse import chunked_learner

    X, *others = problem
    held, gathered = [], chunked_learner.gathered

    def watched(futures):
        found = gathered(futures)
        for _ in range(50):  # the client's own thread lets futures go
            names = {str(key).split("-")[0] for key in client.futures}
            if not names & {"code_chunk", "statistics"}:
                break
            time.sleep(0.1)
        held.append(names)
        return found

    monkeypatch.setattr(chunked_learner, "gathered", watched)
    CoupledDictionaries(n_atoms=20, n_iter=2).fit(da.from_array(X, chunks=(20, -1)), *others)
    assert len(held) == 3  # passes
    assert not any(names & {"code_chunk", "statistics"} for names in held)


def test_workers_without_zsl_are_refused(client, monkeypatch):
    from zsl.experiment import dask_client

    monkeypatch.setattr(dask_client, "_version", NoModule())
    with pytest.raises(UserError, match="cannot import zsl"):
        dask_client._check_workers(client, "tcp://there:8786")


class NoModule:
    """A function that a worker cannot run for lack of a package."""

    def __call__(self):
        raise ModuleNotFoundError("No module named 'zsl'")
