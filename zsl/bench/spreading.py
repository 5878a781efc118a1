"""Label spreading at scale: time, memory and growth against the number of test images, and scikit-learn's at 5,000."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from zsl.bench.encode import exponent
from zsl.bench.process import in_a_process, memory_mb
from zsl.checks import Array

SIZES = (25_000, 50_000, 100_000)
_SKLEARN_SIZE = 5_000
# Images of the problem that compiles the search for neighbours.
_FEW = 1_000


@dataclass(frozen=True)
class Measured:
    """One spreading of labels over L images."""

    who: str
    L: int
    seconds: float
    """Wall clock, after a small problem has compiled the neighbour search"""
    cpu_seconds: float
    """Processor time of all threads, comparable on a machine that others use too"""
    compile_seconds: float
    """Processor time of that small problem"""
    peak_mb: float
    residual: float
    recall: float
    stranded: int
    accuracy: float
    """Share of images whose label is that of the class they were drawn around"""


def problem(L: int, q: int = 85, M: int = 50, noise: float = 1.0, seed: int = 0) -> tuple[Array, Array, Array]:
    """Z_hat (L, q), Z_unseen (M, q), labels (L,): images around unit prototypes, on a sheet of ten dimensions.

    Real predictions are products of sparse codes and lie near few dimensions; isotropic noise in 85 would make
    neighbours meaningless and the search for them unnaturally hard.
    """
    rng = np.random.default_rng(seed)
    Z = rng.standard_normal((M, q))
    Z /= np.linalg.norm(Z, axis=1, keepdims=True)
    y = np.arange(L) % M
    sheet = rng.standard_normal((10, q)) / np.sqrt(q)
    Z_hat = Z[y] + noise / np.sqrt(10) * rng.standard_normal((L, 10)) @ sheet
    return Z_hat + 0.02 * noise / np.sqrt(q) * rng.standard_normal((L, q)), Z, y


def measure(L: int) -> Measured:
    """Spread labels over L images of :func:`problem`, in this process."""
    from zsl.graph import EXACT_UP_TO
    from zsl.inference.spreading import spread_report

    Z_hat, Z, y = problem(L)
    cpu = time.process_time()
    spread_report(Z_hat[:_FEW], Z, exact_neighbors_up_to=1 if L > EXACT_UP_TO else L)
    compiled, start = time.process_time(), time.perf_counter()
    report = spread_report(Z_hat, Z)
    seconds, used = time.perf_counter() - start, time.process_time() - compiled
    return Measured(
        "zsl", L, seconds, used, compiled - cpu, memory_mb("VmHWM"), float(report.residual.max()), report.recall,
        int(report.unreached.sum()), float((report.scores.argmax(axis=1) == y).mean()),
    )  # fmt: skip


def measure_sklearn(L: int, mu: float = 0.1, n_neighbors: int = 15) -> Measured:
    """The same by scikit-learn's ``LabelSpreading`` on its k-NN graph, whose edges all weigh the same."""
    from sklearn.semi_supervised import LabelSpreading

    Z_hat, Z, y = problem(L)
    V = np.vstack([Z, Z_hat / np.linalg.norm(Z_hat, axis=1, keepdims=True)])
    cpu, start = time.process_time(), time.perf_counter()
    model = LabelSpreading(kernel="knn", n_neighbors=n_neighbors, alpha=1 / (1 + mu), max_iter=1000, tol=1e-10)
    model.fit(V, np.r_[np.arange(len(Z)), np.full(L, -1)])
    seconds, used = time.perf_counter() - start, time.process_time() - cpu
    accuracy = float((model.transduction_[len(Z) :] == y).mean())
    return Measured("scikit-learn", L, seconds, used, 0.0, memory_mb("VmHWM"), float("nan"), 1.0, 0, accuracy)


def growth(measured: list[Measured]) -> float | None:
    """The b of ``cpu_seconds ~ L^b``."""
    return exponent([m.L for m in measured], [m.cpu_seconds for m in measured])


def spreading(sizes: tuple[int, ...] = SIZES) -> dict[str, Any]:
    """Measure both libraries at 5,000 images and ours at every size, each in a process of its own."""
    small = [in_a_process(measure_sklearn, _SKLEARN_SIZE), in_a_process(measure, _SKLEARN_SIZE)]
    large = [in_a_process(measure, L) for L in sizes]
    return {"runs": [asdict(m) for m in (*small, *large)], "exponent": growth(large)}
