"""What docs/repeatable.md promises: which runs agree to the bit, and which to a tolerance."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numba
import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from conftest import ROOT, models
from zsl import ZeroShotClassifier, compose, run
from zsl.experiment.loading import load
from zsl.experiment.run import steady_products
from zsl.experiment.setup import checked

QUIET = ["tracking=none", "model.n_iter=2"]
RUNS = {
    "taaw": [*QUIET, "model.n_atoms=96", "inference=taaw"],
    "transductive": [*QUIET, "inference=transductive"],
    "tuned": ["tracking=none", "model=eszsl", "tune=class_cv"],
    "synthetic": [*QUIET, "dataset=synthetic"],
}


def numbers(overrides):
    """The scores of every stage, and the dictionaries."""
    with tempfile.TemporaryDirectory() as folder:
        result = run(compose([*overrides, "save_precision=double", "figures=false"]), Path(folder))
        model = ZeroShotClassifier.load(Path(folder) / "model.skops").model_
    dictionaries = {name: getattr(model, name) for name in ("Dx_", "Dz_") if hasattr(model, name)}
    return {**{stage.name: stage.scores for stage in result.prediction.stages}, **dictionaries}


def digests(overrides):
    return {k: hashlib.sha256(np.ascontiguousarray(v).tobytes()).hexdigest() for k, v in numbers(overrides).items()}


def in_process(overrides, **environment):
    """The digests, or with ``path`` the arrays, of a run in a process of its own."""
    path = environment.pop("path", None)
    code = (
        "import sys, json, numpy; sys.path.insert(0, 'tests'); from test_determinism import digests, numbers\n"
        "path, *overrides = sys.argv[1:]\n"
        "numpy.savez(path, **numbers(overrides)) if path else print(json.dumps(digests(overrides)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path or ""), *overrides],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    # The run prints its result before.
    return dict(np.load(path)) if path else json.loads(done.stdout.splitlines()[-1])


def threads(n):
    return {f"{name}_NUM_THREADS": str(n) for name in ("OPENBLAS", "OMP", "MKL", "NUMBA")}


@pytest.mark.slow
def test_threads_change_no_digit():
    found = []
    now = numba.get_num_threads()
    try:
        for n in (1, 2, 4):
            numba.set_num_threads(min(n, numba.config.NUMBA_NUM_THREADS))
            with threadpool_limits(n, user_api="blas"):
                found.append(digests(RUNS["taaw"]))
    finally:
        numba.set_num_threads(now)
    assert found[0] == found[1] == found[2]


@pytest.mark.slow
def test_single_precision_agrees_to_four_digits():
    double, single = (numbers([*RUNS["taaw"], *extra]) for extra in ([], SINGLE))
    for name, values in double.items():
        assert np.abs(values - single[name]).max() <= 1e-4 * np.abs(values).max(), name
    assert (double["taaw"].argmax(axis=1) == single["taaw"].argmax(axis=1)).all()


def test_only_small_runs_are_kept_to_one_thread():
    # n p^2 of 2e6, 7e9 and 2e10 multiplications; a kernel matrix of the last two has n^3.
    setup = checked(compose(["tracking=none", "model=kernel_eszsl"]))
    data = load(setup)

    def threads_of(setup, n, p):
        data.__dict__["X"] = np.empty((n, p))
        with threadpool_limits(2, user_api="blas") as limits, steady_products(setup, data):
            return {pool["num_threads"] for pool in limits._controller.info() if pool["user_api"] == "blas"}

    linear = checked(compose(["tracking=none", "model=eszsl"]))
    assert threads_of(linear, 1010, 64) == {1}
    assert threads_of(linear, 4000, 1280) == {1}
    assert threads_of(linear, 5000, 2048) == {2}
    assert threads_of(setup, 1010, 64) == {1}
    assert threads_of(setup, 4000, 64) == {2}


SINGLE = ["feature.dtype=float32", "dataset.semantics.dtype=float32"]


@pytest.mark.long
@pytest.mark.parametrize("name", RUNS)
def test_processes_agree_to_the_bit(name):
    first = in_process(RUNS[name], **threads(1), PYTHONHASHSEED="0")
    for n in (1, 2, 4):
        assert in_process(RUNS[name], **threads(n), PYTHONHASHSEED=str(n)) == first


@pytest.mark.long
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_ways_to_start_a_process_agree_to_the_bit(method):
    with multiprocessing.get_context(method).Pool(2) as pool:
        found = pool.map(digests, [RUNS["taaw"]] * 2)
    assert found[0] == found[1] == in_process(RUNS["taaw"])


@pytest.mark.long
@pytest.mark.parametrize("model", models())
def test_every_model_agrees_to_the_bit_for_any_number_of_threads(model):
    # A run is small up to 1e10 multiplications (docs/repeatable.md), which for this kernel are 2000^3.
    kernel = ["model.max_images=2000"] if model == "kernel_eszsl" else []
    overrides = ["tracking=none", f"model={model}", *kernel]
    found = []
    for n in (1, 2, 4):
        with threadpool_limits(n, user_api="blas"):
            found.append(digests(overrides))
    assert found[0] == found[1] == found[2]


@pytest.mark.long
@pytest.mark.parametrize("kernel", ["Haswell", "Nehalem"])
@pytest.mark.parametrize("name", RUNS)
def test_processors_agree_to_ten_digits(name, kernel, tmp_path):
    here = in_process(RUNS[name], path=tmp_path / "a.npz")
    there = in_process(RUNS[name], path=tmp_path / "b.npz", OPENBLAS_CORETYPE=kernel)
    for key, values in here.items():
        assert np.abs(values - there[key]).max() <= 1e-10 * np.abs(values).max(), key
        if values.shape[1] == 3:  # the scores of digits
            assert (values.argmax(axis=1) == there[key].argmax(axis=1)).all()


@pytest.mark.long
def test_a_large_run_agrees_to_ten_digits_for_any_number_of_threads():
    overrides = ["tracking=none", "dataset=synthetic", "dataset.preset=cub", "model=eszsl"]
    found = []
    for n in (1, 2):
        with threadpool_limits(n, user_api="blas"):
            found.append(numbers(overrides)["own"])
    assert np.abs(found[0] - found[1]).max() <= 1e-10 * np.abs(found[0]).max()
