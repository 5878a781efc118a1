"""One small or large run on simulated features whose parts are timed: it calibrates or tests the model of costs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from zsl.checks import Array
from zsl.costs.machine import forget
from zsl.costs.work import Shape
from zsl.data.dataset import ZeroShotData
from zsl.data.preprocess import Preprocess, preprocess
from zsl.data.table import ImageTable, Split
from zsl.inference import Inference
from zsl.inference.stages import Stages
from zsl.linalg import unit_rows
from zsl.models import AveragedDictionaries
from zsl.models.initial_atoms import initial_atoms, mean_lambda_max
from zsl.sparse import Codes, sparse_encode

N_CLASSES = 40
# Images that are coded to learn how many non-zeros a code has.
_PROBED = 64


@dataclass
class Timed:
    """What a run measured, in seconds."""

    fit: float = 0.0
    aag: float = 0.0
    aaw: float = 0.0
    taaw: float = 0.0
    codings: list[tuple[float, float]] = field(default_factory=list)
    """Non-zeros of a code and seconds of each pass"""
    test_k: float = 0.0
    test_coding: float = 0.0


def sampler(p: int, rng: np.random.Generator) -> Callable[[Array], Array]:
    """A function from labels (m,) to unit ReLU features (m, p): a heavy common part, class means, and noise."""
    common = rng.gamma(1.0, 1.0, p) - 0.3
    means = 0.8 * rng.standard_normal((N_CLASSES, p))
    mixing = rng.standard_normal((64, p)) / 8

    def sample(labels: Array) -> Array:
        m = len(labels)
        F = common + means[labels]
        F += rng.standard_normal((m, 64)) @ mixing + 0.4 * rng.standard_normal((m, p))
        return unit_rows(np.maximum(F, 0))

    return sample


def features(t: Shape, seed: int = 0) -> tuple[Array, Array, Array]:
    """Features X (n + L, p), labels y (n + L,) of seen, then unseen classes, and attributes Z of all classes."""
    rng = np.random.default_rng(seed)
    sample, n = sampler(t.p, rng), t.n
    seen = np.r_[np.arange(N_CLASSES), rng.integers(N_CLASSES, size=max(n - N_CLASSES, 0))][:n]
    X = np.empty((n + t.L, t.p), np.float32 if t.single else np.float64)
    y = np.r_[seen, N_CLASSES + np.arange(t.L) % t.M]
    for i in range(0, len(X), 2048):
        X[i : i + 2048] = sample(y[i : i + 2048] % N_CLASSES)
    Z = unit_rows(rng.standard_normal((N_CLASSES + t.M, t.q)))
    return X, y, Z


def dataset(t: Shape, X: Array, y: Array, Z: Array) -> ZeroShotData:
    """The data of a run whose first n rows train."""
    none = np.empty(0, np.int64)
    return ZeroShotData(
        "simulated", "simulated", "given", X[: t.n], y[: t.n], X[:0], none, X[t.n :], y[t.n :] - N_CLASSES,
        tuple(map(str, range(len(Z)))), Z, np.arange(N_CLASSES), np.arange(N_CLASSES, len(Z)),
    )  # fmt: skip


def write(t: Shape, folder: str, seed: int = 7) -> None:
    """Make the data of a run, in files."""
    for name, array in zip(("X", "y", "Z"), features(t, seed)):
        np.save(Path(folder) / f"{name}.npy", array)


def read(t: Shape, folder: str) -> tuple[ZeroShotData, float]:
    """Read these files from the disk as a run reads a dataset: a checked table, hashed, divided; and the seconds."""
    path = Path(folder) / "X.npy"
    with path.open("rb") as file:
        forget(file.fileno())
    start = time.perf_counter()
    X, y, Z = (np.load(path.with_name(f"{name}.npy")) for name in ("X", "y", "Z"))
    none = np.empty(0, np.int64)
    table = ImageTable("simulated", "simulated", X, y, tuple(map(str, range(len(Z)))), Z)
    rows = np.arange(len(X))
    split = Split("given", rows[: t.n], none, rows[t.n :], np.arange(len(Z) - t.M, len(Z)), {})
    data = ZeroShotData.from_table(table, split)
    return data, time.perf_counter() - start


def non_zeros(X: Array, r: int, lam: float | None, share: float, init: str, seed: int) -> float:
    """Mean non-zeros of the codes of some rows of X (n, p), which are no atoms, under the initial dictionary."""
    D = initial_atoms(X, r, init, np.random.default_rng(seed))
    penalty = lam if lam is not None else share * mean_lambda_max(X, D)
    rows = np.ascontiguousarray(X[np.linspace(0, len(X) - 1, min(4 * _PROBED, len(X))).astype(np.int64)])
    rows = rows[np.abs(unit_rows(rows) @ D.T).max(axis=1) < 1 - 1e-5][:_PROBED]
    if not len(rows):
        return 1.0
    return max(1.0, float(np.count_nonzero(sparse_encode(rows, D, penalty, tol=1e-3).A)) / len(rows))


def run(t: Shape, data: ZeroShotData) -> Timed:
    """Fit and predict as a run does, and time every part; the classes of the test are the unseen ones.

    What :func:`probed` counts is left to it, because its memory is no part of the run's.
    """
    out, log = Timed(), []

    def solver(X: Array, D: Array, lam: float, *, init: Array | None = None, rough: float = 0.0) -> Codes:
        start = time.perf_counter()
        codes = sparse_encode(X, D, lam, init=init, rough=rough)
        log.append((len(X), np.count_nonzero(codes.A), time.perf_counter() - start))
        return codes

    clock = time.perf_counter()
    transforms = Preprocess(), Preprocess()
    ready = preprocess(data, *transforms)
    model = AveragedDictionaries(
        n_atoms=t.r, n_dictionaries=t.K, lam_relative=t.share, n_iter=t.n_iter, batch_size=t.batch_size, solver=solver
    )
    model.fit(ready.X, ready.y, ready.Z, ready.Z_unseen)
    out.fit = time.perf_counter() - clock
    passes = t.K * (t.n_iter + 1)
    if len(log) == passes:
        out.codings = [(nnz / n, seconds) for n, nnz, seconds in log]
    log.clear()
    clock = time.perf_counter()
    X = transforms[0].transform(data.X_unseen)
    stages = Stages(Inference(), model, X, ready.Z_unseen, None, np.full(len(X), -1))
    for name, pair in (("aag", ("agnostic", "nearest")), ("aaw", ("aware", "nearest")), ("taaw", ("aware", "spread"))):
        stages.stage(pair)
        setattr(out, name, time.perf_counter() - clock)
        clock = time.perf_counter()
        if name == "aag":
            out.test_k = sum(m for _, m, _ in log) / len(X) / t.K
            out.test_coding = sum(s for _, _, s in log)
    return out


def probed(t: Shape, data: ZeroShotData) -> float:
    """Non-zeros of a code under the initial dictionary, of which a prediction makes use."""
    return non_zeros(preprocess(data, Preprocess(), Preprocess()).X, t.r, None, t.share, "samples", 0)


def simulated(t: Shape, seed: int = 0) -> tuple[Shape, Timed]:
    """The shape with its number of non-zeros, and what a run of it on data of its own measured."""
    X, y, Z = features(t, seed)
    data = dataset(t, X, y, Z)
    timed = run(t, data)
    return replace(t, k=probed(t, data)), timed
