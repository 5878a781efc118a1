"""Label spreading at scale: time, memory and growth against the number of test images; scikit-learn's at 5,000.

``python -m zsl.bench.spreading``; two cores, about five minutes. Each size runs in a process of its own, so that its
peak memory is its own.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from zsl.bench.arguments import whole
from zsl.checks import Array
from zsl.errors import UserError, unforeseen

SIZES = (25_000, 50_000, 100_000)
_SKLEARN_SIZE = 5_000
# The problem that compiles the search; smaller ones would be nothing but that.
_LEAST = 1_000


@dataclass(frozen=True)
class Measured:
    """One spreading of L images."""

    who: str
    L: int
    seconds: float
    """Wall clock, after a small problem has compiled the neighbour search."""
    cpu_seconds: float
    """Processor time of all threads: what is comparable on a machine that others use too."""
    compile_seconds: float
    """Processor time of that small problem."""
    peak_mb: float
    """Largest resident memory of the process, Python and the data included."""
    residual: float
    recall: float
    stranded: int
    accuracy: float
    """Share of images whose label is that of the class they were drawn around."""


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


def measure(L: int, **settings: object) -> Measured:
    """Spread labels over L images drawn by :func:`problem`, in this process."""
    from zsl.inference.graph import EXACT_UP_TO
    from zsl.inference.spreading import spread_report

    Z_hat, Z, y = problem(L)
    cpu = time.process_time()
    spread_report(Z_hat[:_LEAST], Z, exact_neighbors_up_to=1 if L > EXACT_UP_TO else L)
    compiled = time.process_time()
    start = time.perf_counter()
    report = spread_report(Z_hat, Z, **settings)  # type: ignore[arg-type]
    seconds, used = time.perf_counter() - start, time.process_time() - compiled
    return Measured(
        "zsl", L, seconds, used, compiled - cpu, _peak_mb(), float(report.residual.max()), report.recall,
        int(report.stranded.sum()), float((report.scores.argmax(axis=1) == y).mean()),
    )  # fmt: skip


def measure_sklearn(L: int = _SKLEARN_SIZE, mu: float = 0.1, n_neighbors: int = 15) -> Measured:
    """The same by scikit-learn's ``LabelSpreading`` on its k-NN graph, whose edges all weigh the same."""
    from sklearn.semi_supervised import LabelSpreading

    Z_hat, Z, y = problem(L)
    V = np.vstack([Z, Z_hat / np.linalg.norm(Z_hat, axis=1, keepdims=True)])
    cpu, start = time.process_time(), time.perf_counter()
    model = LabelSpreading(kernel="knn", n_neighbors=n_neighbors, alpha=1 / (1 + mu), max_iter=1000, tol=1e-10)
    model.fit(V, np.r_[np.arange(len(Z)), np.full(L, -1)])
    seconds, used = time.perf_counter() - start, time.process_time() - cpu
    accuracy = float((model.transduction_[len(Z) :] == y).mean())
    return Measured("scikit-learn", L, seconds, used, 0.0, _peak_mb(), float("nan"), 1.0, 0, accuracy)


def growth(measured: list[Measured]) -> float:
    """The exponent b of ``cpu_seconds ~ L^b``, by least squares on logarithms."""
    return float(np.polyfit(np.log([m.L for m in measured]), np.log([m.cpu_seconds for m in measured]), 1)[0])


def bench(sizes: tuple[int, ...] = SIZES) -> dict[str, Any]:
    """Measure every size, and both libraries at 5,000, each in a process of its own; print and return."""
    jobs = [("scikit-learn", _SKLEARN_SIZE), ("zsl", _SKLEARN_SIZE), *(("zsl", L) for L in sizes)]
    found = []
    print(f"label spreading, q = 85, M = 50, 15 neighbours, mu = 0.1, {os.cpu_count()} cores")
    columns = "seconds", "cpu s", "compile", "peak MB", "residual", "recall", "stranded", "accuracy"
    print(f"{'':14}{'images':>8}" + "".join(f"{name:>10}" for name in columns))
    for who, L in jobs:
        m = _in_process(who, L)
        found.append(m)
        print(
            f"{m.who:14}{m.L:8d}{m.seconds:10.1f}{m.cpu_seconds:10.1f}{m.compile_seconds:10.1f}{m.peak_mb:10.0f}"
            f"{m.residual:10.1e}{m.recall:10.4f}{m.stranded:10d}{m.accuracy:10.4f}",
            flush=True,
        )
    large = [m for m in found[2:] if m.who == "zsl"]
    exponent = growth(large) if len(set(sizes)) > 1 else None
    if exponent is not None:
        print(f"growth exponent of processor time in the number of images: {exponent:.2f}")
    return {"runs": [asdict(m) for m in found], "largest": asdict(max(large, key=lambda m: m.L)), "exponent": exponent}


def _in_process(who: str, L: int) -> Measured:
    command = [sys.executable, "-m", "zsl.bench.spreading", "--one", who, str(L)]
    out = subprocess.run(command, capture_output=True, text=True)
    if out.returncode:
        said = (out.stderr.strip().splitlines() or [f"status {out.returncode}"])[-1]
        raise UserError(f"spreading over {L} images with {who} failed ({said.rstrip('.')}); use fewer images.")
    return Measured(**json.loads(out.stdout.splitlines()[-1]))


def _peak_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024 * 1024 if sys.platform == "darwin" else 1024)


def main(argv: list[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m zsl.bench.spreading", description=__doc__)
    parser.add_argument("--sizes", type=whole(_LEAST), nargs="+", default=list(SIZES), help="numbers of test images")
    parser.add_argument("--one", nargs=2, metavar=("WHO", "L"), help="measure one and print it as JSON")
    arguments = parser.parse_args(argv)
    try:
        if arguments.one:
            who, L = arguments.one[0], int(arguments.one[1])
            print(json.dumps(asdict(measure_sklearn(L) if who == "scikit-learn" else measure(L))))
        else:
            bench(tuple(arguments.sizes))
    except UserError as error:
        sys.exit(f"zsl.bench.spreading: {error}")
    except MemoryError as error:
        sys.exit(f"zsl.bench.spreading: {unforeseen(error, 'use fewer images')}")


if __name__ == "__main__":
    main()
