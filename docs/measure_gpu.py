"""Speed of a GPU against the CPU: ``python docs/measure_gpu.py [--rows 4096] [--device cuda]``.

The first table is that of the LASSO solvers, the second that of what else ``device=cuda`` computes on a GPU.

The problem has the size of the fits of docs/costs.md: p = 2048 features, r = 2560 atoms. Features have class structure
and a decaying spectrum, and are rectified and centred; training images are the atoms. Every contender codes the same
rows in turn, and the median of the rounds counts. The CPU uses all cores; a GPU is warmed up by one block of rows.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from zsl.device import by_torch, on_device, torch_device
from zsl.graph import gaussian_weights, neighbours, normalised, solve_spreading
from zsl.inference.entropy import entropy_gradient
from zsl.inference.mixture import expectation_maximisation
from zsl.sparse import Codes, sparse_encode
from zsl.sparse.dictionary import ridge_atoms, unit_ball_atoms
from zsl.sparse.problem import scale
from zsl.sparse.statistics import accumulate

FEATURES, ATOMS, CLASSES, PENALTIES = 2048, 2560, 200, (0.01, 0.1)
ATTRIBUTES, UNSEEN = 312, 500


def features(n: int, rng: np.random.Generator) -> np.ndarray:
    """Rows of unit length with class structure and a decaying spectrum, rectified and then centred."""
    spectrum = np.arange(1, FEATURES + 1) ** -0.5
    axes = np.linalg.qr(rng.standard_normal((FEATURES, FEATURES)))[0]
    classes = rng.standard_normal((CLASSES, FEATURES)) * spectrum
    rows = classes[rng.integers(CLASSES, size=n)] + rng.standard_normal((n, FEATURES)) * spectrum
    X = np.maximum(rows @ axes, 0.0)
    X -= X.mean(axis=0)
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def timed(encode: Callable[..., Codes], X: Any, D: Any, lam: float) -> tuple[float, Codes]:
    """Seconds of a coding, and its codes."""
    began = time.perf_counter()
    codes = encode(X, D, lam)
    return time.perf_counter() - began, codes


def on_cuda_or_torch(name: str) -> Any:
    """The device ``cuda``, or PyTorch on the CPU, with which this script can be tried where there is no GPU."""
    return name if name == "cuda" else by_torch(torch_device("cpu"))


def others(X: np.ndarray, D: np.ndarray, device: Any, rounds: int) -> None:
    """Print a table of the other kernels: seconds on the CPU and the device, the ratio, and the largest difference."""
    rng = np.random.default_rng(1)
    A = sparse_encode(X, D, 0.01).A
    codes = sp.csr_array(A)
    AtA, AtX = A.T @ A / len(A), A.T @ X / len(A)
    means = rng.standard_normal((UNSEEN, FEATURES))
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    Z = rng.standard_normal((UNSEEN, ATTRIBUTES))
    V = rng.standard_normal((len(X), ATTRIBUTES))
    S = normalised(gaussian_weights(neighbours(V, 15), None))

    def sums() -> np.ndarray:
        G, C = np.zeros((ATOMS, ATOMS)), np.zeros((ATOMS, FEATURES))
        accumulate(codes, X, G, C, keep=0.0, add=1.0)
        return G

    kernels: dict[str, Callable[[], np.ndarray]] = {
        "sums over codes": sums,
        "atoms in the unit ball": lambda: unit_ball_atoms(AtA, AtX, D),
        "ridge atoms": lambda: ridge_atoms(AtA, AtX, 0.1),
        "entropy and its gradient": lambda: entropy_gradient(V, Z, 1.0)[1],
        "mixture, 20 iterations": lambda: (
            expectation_maximisation(X, means, 50.0, np.zeros((len(X), UNSEEN)), max_iter=20, tol=0.0).P
        ),
        "neighbours of each image": lambda: neighbours(V, 15).distance,
        "spreading": lambda: solve_spreading(S, np.eye(len(V), UNSEEN), 0.1).F,
    }
    print("\n| kernel | CPU, seconds | device, seconds | ratio | largest difference |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, compute in kernels.items():
        results, seconds = [], []
        for place in ["cpu", device]:
            with on_device(place):
                results.append(compute())
                times = []
                for _ in range(rounds):
                    began = time.perf_counter()
                    compute()
                    times.append(time.perf_counter() - began)
            seconds.append(float(np.median(times)))
        expected, found = results
        difference = np.abs(found - expected).max() / np.abs(expected).max()
        print(
            f"| {name} | {seconds[0]:.3f} | {seconds[1]:.3f} | {seconds[0] / seconds[1]:.1f} | {difference:.0e} |",
            flush=True,
        )


def main() -> None:
    """Read the command line, and print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--device", default="cuda", choices=["cpu", "cuda"], help="cpu: PyTorch on the CPU")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    X = features(ATOMS + given.rows, rng)
    D, X = X[:ATOMS].copy(), X[ATOMS:].copy()
    contenders = {
        "active_set": partial(sparse_encode, solver="active_set"),
        "auto": partial(sparse_encode, solver="auto"),
        f"torch ({given.device})": partial(sparse_encode, solver="torch"),
    }
    with on_device(given.device):
        solvers(contenders, X, D, given.rounds)
    others(X, D, on_cuda_or_torch(given.device), given.rounds)


def solvers(contenders: dict[str, Callable[..., Codes]], X: np.ndarray, D: np.ndarray, n_rounds: int) -> None:
    """Print a table: seconds, non-zeros and the largest gap of every contender, and the ratio to the first one."""
    for encode in contenders.values():
        encode(X[:512], D, 0.1)  # kernels are compiled, and a GPU has begun to work
    print("| lam | solver | seconds | ms a row | non-zeros | largest gap | against active_set |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for lam in PENALTIES:
        found = {name: [timed(encode, X, D, lam) for _ in range(n_rounds)] for name, encode in contenders.items()}
        first = None
        for name, rounds in found.items():
            seconds, codes = float(np.median([s for s, _ in rounds])), rounds[0][1]
            first = first or seconds
            gap = float((codes.gap / scale(X)).max())
            print(f"| {lam} | {name} | {seconds:.2f} | {1000 * seconds / len(X):.2f} | "
                  f"{codes.density * ATOMS:.0f} | {gap:.0e} | {first / seconds:.1f} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
