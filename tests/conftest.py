"""Fixtures that every test file shares."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parents[1]

# Examples derived from the test itself: a failure on one machine is a failure on all. `deep` searches afresh.
settings.register_profile(
    "ci", derandomize=True, max_examples=25, deadline=None, suppress_health_check=list(HealthCheck)
)
settings.register_profile("deep", max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def images_by_attributes(rng, q=4, p=5):
    """Six seen classes with q attributes, p features, and three unseen classes: X, y, Z, Z_unseen."""
    y = np.arange(90) % 6
    S = rng.standard_normal((6, q))
    X = S[y] @ rng.standard_normal((q, p)) + 0.5 * rng.standard_normal((90, p))
    return X, y, S[y], rng.standard_normal((3, q))


def with_test_images(rng, noise=0.5):
    """Six seen classes with four attributes and three unseen ones, five features: X, y, Z, Z_unseen, test images."""
    y = np.arange(90) % 6
    S, U, B = rng.standard_normal((6, 4)) / 2, rng.standard_normal((3, 4)) / 2, rng.standard_normal((4, 5))
    X = S[y] @ B + noise * rng.standard_normal((90, 5))
    return X, y, S[y], U, U[np.arange(60) % 3] @ B + noise * rng.standard_normal((60, 5))


def central_differences(value: Callable[[np.ndarray], float], x: np.ndarray, step: float = 1e-3) -> np.ndarray:
    """The gradient (m,) of ``value`` at x (m,) to about eight digits where it is smooth: fourth order in the step."""
    d = step * np.eye(len(x))
    near, far = (np.array([value(x + k * e) - value(x - k * e) for e in d]) for k in (1, 2))
    return (8 * near - far) / (12 * step)


# They compare features with attributes, which common data are not made for: tests/test_clip.py.
IN_ONE_SPACE = ("clip", "clip_adapter")


def models(slow: Collection[str] = (), long: Collection[str] = (), quick: Collection[str] | None = None) -> list:
    """The models of conf/model/ as parameters of tests that fit them; without the package it needs, one is skipped.

    Models in ``slow`` get the mark ``slow``, and models in ``long`` the mark ``long``. With ``quick``, every model that
    is not in it gets the mark ``slow``.
    """
    from zsl.config import options, without_package

    absent = without_package("model")
    return [
        pytest.param(
            name,
            marks=[
                *([pytest.mark.slow] if name in slow or (quick is not None and name not in quick) else []),
                *([pytest.mark.long] if name in long else []),
                *([pytest.mark.skip(f"{absent[name]} is not installed: pip install -e '.[{absent[name]}]'")]
                  if name in absent else []),
            ],
        )
        for name in options("model")
        if name not in IN_ONE_SPACE
    ]  # fmt: skip


def for_any_number_of_threads(run: Callable[[], np.ndarray]) -> None:
    """Assert that ``run`` returns the same bits for any number of threads of numba and BLAS."""
    import numba
    from threadpoolctl import threadpool_limits

    threads, found = numba.get_num_threads(), []
    try:
        for n in range(1, threads + 1):
            numba.set_num_threads(n)
            with threadpool_limits(n, user_api="blas"):
                found.append(run())
    finally:
        numba.set_num_threads(threads)
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)


COMPILE = """
import sys
import numpy as np
from zsl.sparse import sparse_encode

X = np.random.default_rng(0).standard_normal((300, 12)).astype(sys.argv[1])
sparse_encode(X, X[:30], 0.1)
sparse_encode(X[:2], np.repeat(X, 2, axis=0), 0.1)
"""


def pytest_configure(config: pytest.Config) -> None:
    """Compile the kernels once, before workers start that would each compile them, and give each worker one core."""
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        # Threads of the linear algebra and of k-means that wait for each other's cores double the time of the suite.
        for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
            os.environ.setdefault(name, "1")
        compilers = [subprocess.Popen([sys.executable, "-c", COMPILE, dtype]) for dtype in ("float64", "float32")]
        assert [compiler.wait() for compiler in compilers] == [0, 0]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data beside a developer's checkout; tests that need it skip where it is absent."""
    folder = Path(os.environ.get("ZSL_SHARED", ROOT.parent / "shared")) / "data"
    if not folder.is_dir():
        pytest.skip(f"no real data: {folder} is not on this machine (set ZSL_SHARED)")
    return folder


@pytest.fixture(scope="session")
def cifar_awa(shared: Path) -> Path:
    """CIFAR images with AwA2 attributes: a small real benchmark in the xlsa17 layout."""
    return shared / "cifar_awa"


@pytest.fixture(scope="session")
def fresh_store(tmp_path_factory):
    """Creating a store takes seconds, so tests copy one."""
    folder = tmp_path_factory.mktemp("store")
    from zsl.tracking.store import open_store

    open_store({"uri": None, "experiment": "zsl"}, folder)
    return folder


@pytest.fixture
def store(fresh_store, tmp_path):
    folder = tmp_path / "out"
    shutil.copytree(fresh_store, folder)
    return folder


@pytest.fixture
def no_store_is_remembered():
    """A store that failed, or was open, in an earlier test is asked anew."""
    from zsl.tracking import store

    store.forget()
    yield
    store.forget()


@pytest.fixture(scope="session")
def report_runs(tmp_path_factory):
    """A folder of digits under three rules on two class splits, twice on the first: the cell of table1."""
    from report_records import CELL, EXTRA
    from zsl import compose, run

    folder = tmp_path_factory.mktemp("report")
    for split, seed in ((0, 0), (0, 1), (1, 0)):
        words = ["dataset=digits", "split=random", f"split.seed={split}", f"seed={seed}", *EXTRA, f"cell={CELL}"]
        run(compose(["experiment=table1", *words]), folder / f"{split}-{seed}")
    return folder


@pytest.fixture(autouse=True)
def _no_outside_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's own environment must not change what a test sees."""
    for name in ("MLFLOW_TRACKING_URI", "ZSL_DATA", "HYDRA_FULL_ERROR"):
        monkeypatch.delenv(name, raising=False)
