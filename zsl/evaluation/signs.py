"""Signs that a fit or its answers are worthless, each as a sentence.

All images in one class, classes that receive none, accuracy no better than guessing, predictions or codes that are
empty or dense, codes that did not converge, and objectives that rise.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from zsl.checks import Array
from zsl.evaluation.hubness import choices
from zsl.evaluation.metrics import class_accuracy

# A class with fewer images may be missed by a sound classifier.
_FEW = 5
# The 99.9 % quantile of the standard normal distribution.
_Z = 3.09


def one_class(scores: Array, names: Sequence[str]) -> str | None:
    """Say that all of five images or more are put in one class of ``names`` (M,) by their scores (L, M)."""
    (n, m), given = scores.shape, _given(scores)
    if n < _FEW or m < 2 or given.max() < n:
        return None
    return f"all {n} images are put in one class of {m}, {names[int(given.argmax())]!r}{_ties(scores)}."


def left_out(scores: Array, y: Array, names: Sequence[str]) -> str | None:
    """Say that no image is put in a class that has five images or more.

    Parameters
    ----------
    scores : (L, M)
    y : (L,)
        True classes; -1 where unknown.
    names : sequence of str
        Of the M classes.
    """
    given, sizes = _given(scores), np.bincount(y[y >= 0], minlength=len(names))
    empty = np.flatnonzero((given == 0) & (sizes >= _FEW))
    if not empty.size or given.max() == len(scores):
        return None
    return (
        f"no image is put in {_some(empty, names)}, although the test has {sizes[empty].sum()} of them{_ties(scores)}."
    )


def at_chance(scores: Array, y: Array) -> str | None:
    """Say that the mean accuracy per class is no better than guessing.

    Guessing means answers that are independent of the truth: the same answers in random order. With n_c images of class
    c, of which there are L, and k_c answers c, the hits h_c in class c are hypergeometric with
    ``Cov(h_c, h_d) = n_c k_c (L [c = d] - n_d) (L [c = d] - k_d) / (L^2 (L - 1))``. The accuracy is the mean of
    ``h_c / n_c`` over the classes that have images; it counts as chance up to the mean plus 3.09 standard deviations,
    which 1 guess in 1000 exceeds, and as below chance under the mean minus as much. The interval concerns the choice of
    images; other classes may differ by more.

    Parameters
    ----------
    scores : (L, M)
    y : (L,)
        True classes, all known.
    """
    length, m = scores.shape
    if m < 2 or length < 2:
        return None
    by_class = class_accuracy(scores, y)
    tested = np.array(sorted(by_class))
    accuracy = float(np.mean([by_class[c] for c in tested]))
    n, k = np.bincount(y, minlength=m)[tested].astype(float), choices(scores, 1)[tested]
    same = np.eye(len(tested)) * length
    # The covariance of h_c / n_c and h_d / n_d.
    covariance = k[:, None] * (same - n) * (same - k) / (n * length**2 * (length - 1))
    mean, limit = float((k / length).mean()), _Z * float(np.sqrt(max(covariance.mean(), 0)))
    if accuracy > mean + limit or mean + limit >= 1:
        return None
    how = "below guessing" if accuracy < mean - limit - 1e-9 else "no better than guessing"
    return (
        f"acc_class is {accuracy:.3f}, {how}: the same answers given to the {length} images at random reach {mean:.3f} "
        f"+- {limit:.3f} (chance {1 / m:.3f}); do labels, class names and attribute rows agree?"
    )


def only_one(m: int) -> str | None:
    """Say that there is only one class to choose from."""
    return "only one class is unseen, so every answer is right; take two unseen classes or more." if m == 1 else None


def empty_predictions(Z_hat: Array) -> str | None:
    """Say that predicted attributes Z_hat (L, q) are zero for more than 1 % of the images."""
    empty = int((~Z_hat.any(axis=1)).sum())
    if empty <= 0.01 * len(Z_hat):
        return None
    return (
        f"{empty} of {len(Z_hat)} images have predicted attributes of zeros and cannot be told apart: their codes are "
        "empty (lower model.lam or lam_relative), or too few classes are seen."
    )


def density(share: float, r: int, p: int) -> str | None:
    """Say that the codes of the training images are all zero, or more than half full (``share`` of non-zeros).

    A complete dictionary (r >= p) of fewer than 16 atoms has so few to choose from that three quarters are allowed.
    """
    if share == 0:
        return "the codes of all training images are zero, so nothing was learned; lower model.lam (or lam_relative)."
    if share <= (0.75 if p <= r < 16 else 0.5):
        return None
    return (
        f"the codes are {share:.0%} full, so {r} atoms of {p} features are hardly chosen among; if sparse codes are "
        "meant, raise model.lam (or lam_relative) or model.n_atoms."
    )


def unconverged(gap: float, limit: float) -> str | None:
    """Say that the largest duality gap of the codes is above the solver's tolerance ``limit``."""
    if gap <= limit:
        return None
    return (
        f"lasso_gap_max is {gap:.1e}, above the tolerance of {limit:.1e}: the codes have not converged; raise "
        "solver.max_iter, or take another solver or feature.dtype=float64."
    )


def rising(name: str, values: Sequence[float], gaps: Sequence[float] | None = None) -> str | None:
    """Say that an objective rises where it should fall, or is no number.

    With ``gaps``, by how much each value may be above the minimum over the codes, an objective may not rise by more
    than its gap (NaN: it may rise, because atoms were drawn again) and one part in a million. Without, it belongs to a
    descent with random steps: it may not end above its lowest value by more than 5 % of what it fell.
    """
    curve = np.asarray(values, dtype=float)
    if not np.isfinite(curve).all():
        return f"the objective {name} is no finite number; the fit is worthless."
    if len(curve) < 2:
        return None
    if gaps is None:
        rise = curve[-1] - curve.min()
        wrong = rise > 0.05 * (curve[0] - curve.min()) and rise > 1e-6 * abs(curve[0])
    else:
        slack = np.asarray(gaps, dtype=float)[1:] + 1e-6 * np.abs(curve[:-1])
        rise = float((np.diff(curve) - slack).max(where=~np.isnan(slack), initial=0))
        wrong = rise > 0
    return f"the objective {name} rises by {rise:.1e} where it should fall; do not trust this fit." if wrong else None


def _given(scores: Array) -> Array:
    """Number of images (M,) that are put in each class; the first of equals is taken, as ``predict`` does."""
    given: Array = np.bincount(scores.argmax(axis=1), minlength=scores.shape[1])
    return given


def _ties(scores: Array) -> str:
    tied = int(((scores == scores.max(axis=1, keepdims=True)).sum(axis=1) > 1).sum())
    return f" ({tied} images have ties, and of equals the first is taken)" if tied else ""


def _some(which: Array, names: Sequence[str]) -> str:
    first = ", ".join(repr(names[c]) for c in which[:3])
    return f"{len(which)} of {len(names)} classes ({first}{', ...' if len(which) > 3 else ''})"
