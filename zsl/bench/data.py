"""The data of the benchmarks: features like those of a network, simulated or of images, and dictionaries of them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from zsl.checks import Array
from zsl.costs.trial import N_CLASSES, sampler
from zsl.linalg import unit_rows


def perturbed(S: Array, size: float, rng: np.random.Generator) -> Array:
    """S with noise of norm ``size`` on every row, of unit length again."""
    return unit_rows(S + size * rng.standard_normal(S.shape) / S.shape[1] ** 0.5)


def synthetic(n: int, p: int, r: int, seed: int = 0) -> tuple[Array, Array]:
    """Samples X (n, p), and a dictionary D (r, p) of perturbed other samples."""
    rng = np.random.default_rng(seed)
    sample = sampler(p, rng)
    X, atoms = (sample(rng.integers(N_CLASSES, size=m)) for m in (n, r))
    return X, perturbed(atoms, 0.5, rng)


def real(n: int, r: int, seed: int = 0) -> tuple[Array, Array] | None:
    """The same of image features (cifar_awa); None where they are not on this machine or are fewer than ``n + r``."""
    shared = Path(os.environ.get("ZSL_SHARED", Path(__file__).resolve().parents[2] / ".." / "shared"))
    path = shared / "data" / "cifar_awa" / "lite0_1280.npz"
    if not path.exists():
        return None
    rng = np.random.default_rng(seed)
    with np.load(path) as file:
        F = unit_rows(file["features"].astype(np.float64))
    if n + r > len(F):
        print(f"cifar_awa is left out: it has {len(F)} images, and {n} to encode and {r} as atoms make {n + r}.")
        return None
    rows = rng.permutation(len(F))
    return F[rows[:n]], perturbed(F[rows[n : n + r]], 0.5, rng)


def stored(n: int, p: int, path: Path | None, seed: int = 0) -> tuple[Array, Array]:
    """Features (n, p) float32, in a memory map at ``path`` if that is given, and labels (n,)."""
    rng = np.random.default_rng(seed)
    sample = sampler(p, rng)
    X: Array = np.lib.format.open_memmap(path, "w+", np.float32, (n, p)) if path else np.empty((n, p), np.float32)
    y = np.r_[np.arange(N_CLASSES), rng.integers(N_CLASSES, size=max(n - N_CLASSES, 0))][:n]
    for i in range(0, n, 2048):
        X[i : i + 2048] = sample(y[i : i + 2048])
    return X, y
