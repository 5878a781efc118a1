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
        total += _subgradient(F, i, y[i], margin, weights, only_worst, best)
    return total


@njit(error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
def _subgradient(F, i, own, margin, weights, only_worst, best):
    n_maps, n_classes, f = len(F), F.shape[2], F[0, i]
    for m in range(1, n_maps):
        g = F[m, i]
        for c in range(n_classes):
            best[c] = m if g[c] > f[c] else (best[c] if m > 1 else 0)
            f[c] = max(f[c], g[c])
    # Constants of the type of F, so that the loops below are vectorised.
    zero, one, floor = F.dtype.type(0), F.dtype.type(1), f[own] - margin
    for c in range(n_classes):
        f[c] = max(f[c] - floor, zero)
    f[own] = zero
    least, rank, total = zero, zero, zero
    if only_worst:
        for c in range(n_classes):
            least = max(least, f[c])
    for c in range(n_classes):
        counts = (f[c] > zero) & (f[c] >= least)
        total += f[c] if counts else zero
        f[c] = one if counts else zero
        rank += f[c]
    weight = weights[int(rank)]
    for c in range(n_classes):
        f[c] *= weight
    f[own] = -weight * rank
    for m in range(1, n_maps):
        g = F[m, i]
        for c in range(n_classes):
            g[c] = f[c] if best[c] == m else zero
    if n_maps > 1:
        for c in range(n_classes):
            f[c] = zero if best[c] > 0 else f[c]
    return weight * total


@njit(error_model="numpy", fastmath={"contract"})
def _add_rows(out, a, B, rows):
    """Add ``a[rows] B[rows]`` to ``out``, four rows at a time, because ``out`` is then read and written less often."""
    n_fours = len(rows) - len(rows) % 4
    for i in range(0, n_fours, 4):
        r0, r1, r2, r3 = rows[i], rows[i + 1], rows[i + 2], rows[i + 3]
        a0, a1, a2, a3 = a[r0], a[r1], a[r2], a[r3]
        b0, b1, b2, b3 = B[r0], B[r1], B[r2], B[r3]
        for d in range(len(out)):
            out[d] += a0 * b0[d] + a1 * b1[d] + a2 * b2[d] + a3 * b3[d]
    for i in range(n_fours, len(rows)):
        a0, b0 = a[rows[i]], B[rows[i]]
        for d in range(len(out)):
            out[d] += a0 * b0[d]


@njit(error_model="numpy")
def small_steps(P, gram, S, T, y, batch_size, lr, margin, weights, only_worst):
    """Steps for one batch after another, from products with the weights V that held before the first of them.

    Parameters
    ----------
    P : (K, b, k)
        ``X V`` of all images. Afterwards the weights after all steps are ``V + X'P``.
    gram : (b, b)
        ``X X'``, which tells how a step for one image changes the products of another.
    S, T : (C, k), (k, C)
        Attributes of the classes, and their transpose.

    Returns
    -------
    float
        Sum of the losses, each before its batch's step.
    """
    n_maps, b, k = P.shape
    F, best, total = np.empty((n_maps, 1, len(S)), P.dtype), np.zeros(len(S), np.int64), 0.0
    moved, n_moved, n_before, columns = np.empty(b, np.int64), 0, 0, np.arange(k)
    for i in range(b):
        first = i - i % batch_size
        if i == first:
            n_before = n_moved
        for m in range(n_maps):
            _add_rows(P[m, i], gram[i], P[m], moved[:n_before])
            F[m] = 0
            _add_rows(F[m, 0], P[m, i], T, columns)
            P[m, i] = 0
        loss = _subgradient(F, 0, y[i], margin, weights, only_worst, best)
        if loss > 0:
            total += loss
            moved[n_moved] = i
            n_moved += 1
            F *= -lr / P.dtype.type(min(batch_size, b - first))
            for m in range(n_maps):
                _add_rows(P[m, i], F[m, 0], S, np.flatnonzero(F[m, 0]))
    return total
