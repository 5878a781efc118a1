"""Efficiency of learning on 1 and 2 Dask workers: ``python docs/measure_dask.py [FOLDER] [--rows 1000000]``.

Features of 512 dimensions with class structure (simulated, float32) are written to FOLDER as .npy files, unless it has
such files, which are then used whatever ``--rows`` says. Each
cluster has workers of one thread; the efficiency of two workers is half of the time of one over the time of two.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from distributed import Client, LocalCluster

from zsl import CoupledDictionaries
from zsl.bench.process import memory_mb
from zsl.data.readers.chunked import open_features

FEATURES, CLASSES, ATTRIBUTES, FILE_ROWS = 512, 200, 64, 50_000


def write(folder: Path, n: int) -> None:
    """Rows of unit length, in files of 50,000 rows."""
    rng = np.random.default_rng(0)
    classes = rng.standard_normal((CLASSES, FEATURES)).astype(np.float32)
    for i in range(0, n, FILE_ROWS):
        y = np.arange(i, min(i + FILE_ROWS, n)) % CLASSES
        X = classes[y] + 1.5 * rng.standard_normal((len(y), FEATURES), dtype=np.float32)
        np.save(folder / f"{i:09d}.npy", X / np.linalg.norm(X, axis=1, keepdims=True))


def main() -> None:
    """Print the seconds of a fit with 1 and 2 workers, the efficiency, and the memory of workers and client."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--rows", type=int, default=1_000_000)
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    if not list(folder.glob("*.npy")):
        write(folder, given.rows)
    X = open_features(folder)
    y = np.arange(len(X)) % CLASSES
    S = np.random.default_rng(1).standard_normal((CLASSES + 10, ATTRIBUTES)).astype(np.float32)
    model = CoupledDictionaries(n_atoms=640, lam_relative=0.3, n_iter=1)
    seconds, dictionaries = {}, {}
    for workers in (1, 2):
        cluster = LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0", memory_limit="6GB")
        with cluster, Client(cluster) as client:
            model.fit(X[:8192], y[:8192], S[y[:8192]], S[CLASSES:])  # workers load and compile what they need
            began = time.perf_counter()
            model.fit(X, y, S[y], S[CLASSES:])
            seconds[workers], dictionaries[workers] = time.perf_counter() - began, model.Dx_
            peaks = client.run(memory_mb, "VmHWM").values()
        memory = f"peak of a worker {max(peaks):.0f} MB, of the client {memory_mb('VmHWM'):.0f} MB"
        print(
            f"{workers} workers: {seconds[workers]:.1f} s, {model.density_ * 640:.0f} non-zeros, {memory}", flush=True
        )
    same = np.array_equal(dictionaries[1], dictionaries[2])
    print(f"efficiency {seconds[1] / 2 / seconds[2]:.2f}; the same bits: {same}")


if __name__ == "__main__":
    main()
