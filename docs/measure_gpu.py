"""Speed of ``solver=torch`` against the CPU: ``python docs/measure_gpu.py [--rows 4096] [--device cuda]``.

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

from zsl.sparse import Codes, sparse_encode
from zsl.sparse.problem import scale

FEATURES, ATOMS, CLASSES, PENALTIES = 2048, 2560, 200, (0.01, 0.1)


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


def main() -> None:
    """Print a table: seconds, non-zeros and the largest gap of every contender, and the ratio to the first one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda"])
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    X = features(ATOMS + given.rows, rng)
    D, X = X[:ATOMS].copy(), X[ATOMS:].copy()
    contenders = {
        "active_set": partial(sparse_encode, solver="active_set"),
        "auto": partial(sparse_encode, solver="auto"),
        f"torch ({given.device})": partial(sparse_encode, solver="torch", device=given.device),
    }
    for encode in contenders.values():
        encode(X[:512], D, 0.1)  # kernels are compiled, and a GPU has begun to work
    print("| lam | solver | seconds | ms a row | non-zeros | largest gap | against active_set |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for lam in PENALTIES:
        found = {name: [timed(encode, X, D, lam) for _ in range(given.rounds)] for name, encode in contenders.items()}
        first = None
        for name, rounds in found.items():
            seconds, codes = float(np.median([s for s, _ in rounds])), rounds[0][1]
            first = first or seconds
            gap = float((codes.gap / scale(X)).max())
            print(f"| {lam} | {name} | {seconds:.2f} | {1000 * seconds / len(X):.2f} | "
                  f"{codes.density * ATOMS:.0f} | {gap:.0e} | {first / seconds:.1f} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
