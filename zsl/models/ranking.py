# numba's functions are typed by their arguments.
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
"""Subgradients of ranking losses, and steps for one small batch after another, as compiled code on one thread."""

from __future__ import annotations

import numpy as np

from zsl.sparse.kernels.compiled import njit


@njit(error_model="numpy")
def subgradients(F, y, margin, weights, only_worst):
    """Turn scores F (K, b, C) of images with labels y (b,) into subgradients of their losses; return the losses' sum.

    The score of a class is the largest of its K scores. With r classes within the margin of the image's own class, or
    only the worst of them (r counts ties), the loss is ``weights[r]`` times the sum of their violations.
    """
    best, total = np.zeros(F.shape[2], np.int64), 0.0
    for i in range(len(y)):
        total += _subgradient(F[:, i], y[i], margin, weights, only_worst, best)
    return total


@njit(error_model="numpy")
def _subgradient(F, own, margin, weights, only_worst, best):
    n_maps, n_classes = F.shape
    f = F[0]
    for m in range(1, n_maps):
        for c in range(n_classes):
            if m == 1:
                best[c] = 0
            if F[m, c] > f[c]:
                f[c] = F[m, c]
                best[c] = m
    floor = f[own] - margin
    least = f[own] - f[own]
    for c in range(n_classes):
        f[c] = max(f[c] - floor, least)
    f[own] = 0
    if only_worst:
        for c in range(n_classes):
            least = max(least, f[c])
    rank, total = 0, 0.0
    for c in range(n_classes):
        if f[c] > 0 and f[c] >= least:
            rank += 1
            total += f[c]
            f[c] = 1
        else:
            f[c] = 0
    weight = weights[rank]
    for c in range(n_classes):
        f[c] *= weight
    f[own] = -weight * rank
    for m in range(1, n_maps):
        for c in range(n_classes):
            F[m, c] = f[c] if best[c] == m else 0
    if n_maps > 1:
        for c in range(n_classes):
            if best[c] > 0:
                f[c] = 0
    return weight * total


@njit(error_model="numpy")
def small_steps(P, K, S, T, y, batch_size, lr, margin, weights, only_worst):
    """Steps for one batch after another, from products with the weights V that held before the first of them.

    Parameters
    ----------
    P : (K, b, k)
        ``X V`` of all images. Afterwards the weights after all steps are ``V - X'P``.
    K : (b, b)
        ``X X'``, which tells how a step for one image changes the products of another.
    S, T : (C, k), (k, C)
        Attributes of the classes, and their transpose.

    Returns
    -------
    float
        Sum of the losses, each before its batch's step.
    """
    n_maps, b, k = P.shape
    F, best, total = np.empty((n_maps, len(S)), P.dtype), np.zeros(len(S), np.int64), 0.0
    for i in range(b):
        first = i - i % batch_size
        for m in range(n_maps):
            p, f = P[m, i], F[m]
            for j in range(first):
                a, h = K[i, j], P[m, j]
                for d in range(k):
                    p[d] -= a * h[d]
            f[:] = 0
            for d in range(k):
                a, t = p[d], T[d]
                for c in range(len(S)):
                    f[c] += a * t[c]
        total += _subgradient(F, y[i], margin, weights, only_worst, best)
        rate = lr / P.dtype.type(min(batch_size, b - first))
        for m in range(n_maps):
            p, f = P[m, i], F[m]
            p[:] = 0
            for c in range(len(S)):
                if f[c] != 0:
                    a, s = rate * f[c], S[c]
                    for d in range(k):
                        p[d] += a * s[d]
    return total
