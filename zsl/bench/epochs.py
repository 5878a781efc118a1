"""Epochs of the ranking models against plain NumPy loops, over images and over mini-batches."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from zsl.checks import Array
from zsl.models import ALE, SJE, DeViSE, LatEm
from zsl.models.compatibility import Compatibility, row_space

# p features, q attributes and C seen classes as in the datasets; an image costs the same among more of them.
SHAPES = {"cub": (2048, 312, 150), "awa2": (2048, 85, 40), "sun": (2048, 102, 645), "cifar_awa": (128, 85, 21)}
N_IMAGES = 1000
_BATCH = 64


def problem(p: int, q: int, n_classes: int, n: int, dtype: str) -> tuple[Array, Array, Array]:
    """X (n, p), y (n,), S (C, q): features as of a network, rectified, of unit length, whose classes overlap."""
    rng = np.random.default_rng(0)
    S, y = rng.random((n_classes, q)), rng.permutation(np.arange(n) % n_classes)
    X = np.maximum(S[y] @ rng.standard_normal((q, p)) + rng.standard_normal((n, p)), 0)
    X, S = (A / np.linalg.norm(A, axis=1, keepdims=True) for A in (X, S))
    return X.astype(dtype), y, S.astype(dtype)


def image_by_image(
    learner: type[Compatibility], X: Array, y: Array, S: Array, *, lr: float, W: Array
) -> tuple[Array, float]:
    """A plain loop of subgradient steps over the images, with margin 1; return the weights and the mean loss."""
    W, total, harmonic = W.copy(), 0.0, np.cumsum(1 / np.arange(1, len(S) + 1))
    for x, own in zip(X, y):
        if learner is LatEm:
            each = np.stack([S @ (x @ V) for V in W])
            f, best = each.max(axis=0), each.argmax(axis=0)
        else:
            f = S @ (x @ W)
        cost = 1 + f - f[own]
        cost[own] = 0
        wrong = np.flatnonzero(cost > 0)
        if wrong.size == 0:
            continue
        if learner is SJE:
            wrong = np.flatnonzero(cost == cost.max())
            total += cost[wrong[0]]
            W -= np.outer(x, X.dtype.type(lr) * (S[wrong].mean(axis=0) - S[own]))
        elif learner is LatEm:
            total += cost[wrong].sum()
            for k, V in enumerate(W):
                step = S[wrong[best[wrong] == k]].sum(axis=0)
                if best[own] == k:
                    step -= len(wrong) * S[own]
                V -= np.outer(x, X.dtype.type(lr) * step)
        else:
            weight = harmonic[len(wrong) - 1] / len(wrong) if learner is ALE else 1.0
            total += weight * cost[wrong].sum()
            W -= np.outer(x, X.dtype.type(lr * weight) * (S[wrong].sum(axis=0) - len(wrong) * S[own]))
    return W, total / len(X)


def batch_by_batch(
    learner: type[Compatibility], X: Array, y: Array, S: Array, *, lr: float, W: Array, batch_size: int = _BATCH
) -> tuple[Array, float]:
    """The same with one step for every ``batch_size`` images."""
    W, total, ranks = W.copy(), 0.0, np.arange(1, len(S) + 1)
    weights = {SJE: 1 / ranks, ALE: np.cumsum(1 / ranks) / ranks}.get(learner, np.ones(len(S)))
    weights = np.concatenate([[0.0], weights]).astype(X.dtype)
    for first in range(0, len(X), batch_size):
        x, own = X[first : first + batch_size], y[first : first + batch_size]
        rows, F = np.arange(len(x)), (x @ W) @ S.T
        E = F.max(axis=0) if learner is LatEm else F
        E = np.maximum(E - E[rows, own][:, None] + 1, 0)
        E[rows, own] = 0
        counts = (E > 0) & (E.max(axis=1, keepdims=True) == E) if learner is SJE else E > 0
        G = weights[counts.sum(axis=1)][:, None] * counts
        total += float((G * E).sum())
        G[rows, own] = -G.sum(axis=1)
        if learner is LatEm:
            G = G * (np.arange(len(W))[:, None, None] == F.argmax(axis=0))
        W -= x.T @ (G @ S) * X.dtype.type(lr / len(x))
    return W, total / len(X)


def epochs(rounds: int, n: int = N_IMAGES) -> list[dict[str, Any]]:
    """Microseconds an image takes in an epoch with batches of 1 and 64, and in the plain loops.

    Twenty epochs with ``lr=1`` are the default; plain steps for images then leave few images within the margin, and
    those without a step cost little. With ``lr=0.001`` every image makes a step.
    """
    return [
        {"shape": shape, "dtype": dtype, "model": learner.__name__.lower(), "lr": lr, "epochs": n_epochs,
         **_row(learner, lr, n_epochs, *problem(*SHAPES[shape], n, dtype), rounds)}
        for shape in SHAPES for dtype in ("float32", "float64") for lr, n_epochs in ((0.001, 1), (1.0, 20))
        for learner in (SJE, ALE, DeViSE, LatEm)
    ]  # fmt: skip


def _row(
    learner: type[Compatibility], lr: float, n_epochs: int, X: Array, y: Array, S: Array, rounds: int
) -> dict[str, float]:
    Q = row_space(S)
    start = learner()._start(X.shape[1], S.shape[1], np.random.default_rng(0)).astype(X.dtype)

    def plain(loop: Callable[..., tuple[Array, float]]) -> None:
        rng, W = np.random.default_rng(0), start
        for _ in range(n_epochs):
            order = rng.permutation(len(X))
            W, _ = loop(learner, X[order], y[order], S, lr=lr, W=W)

    def ours(batch_size: int) -> None:
        model = learner(n_epochs=n_epochs, batch_size=batch_size, lr=lr)
        model._descend(X, y, S @ Q, start @ Q, np.random.default_rng(0))

    runs: dict[str, Callable[[], None]] = {
        "images": lambda: plain(image_by_image), "batches": lambda: plain(batch_by_batch),
        "zsl 1": lambda: ours(1), "zsl 64": lambda: ours(_BATCH),
    }  # fmt: skip
    for size in (1, _BATCH):  # compiles
        ours(size)
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            clock = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - clock)
    us = {name: 1e6 * float(np.median(values)) / len(X) / n_epochs for name, values in seconds.items()}
    return {**us, "images / zsl 1": us["images"] / us["zsl 1"], "images / zsl 64": us["images"] / us["zsl 64"],
            "batches / zsl 64": us["batches"] / us["zsl 64"]}  # fmt: skip
