"""Signs that data are not what their owner takes them for, each as a sentence.

Scales that drown each other, equal or constant attributes, images in training and in test at once, and labels that do
not belong to the images or to the rows of the class table. Labels of test images are not looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from zsl.checks import Array, row_squares
from zsl.linalg import class_means, class_sums, unit_rows
from zsl.sparse.chunks import is_chunked

if TYPE_CHECKING:
    from zsl.data.dataset import ZeroShotData

# Images that the statistics look at; more would not change a verdict.
_SAMPLE = 2000
# Squares of larger numbers overflow.
_LARGEST = 1e150
# Entries of permuted matrices that are held at once, and in all.
_BLOCK, _WORK = 2**20, 2e7


def of_data(data: ZeroShotData, feature: Any, semantics: Any) -> list[str]:
    """Every sign that the data show before anything is learned.

    Parameters
    ----------
    data : ZeroShotData
        Before pre-processing.
    feature, semantics : transformers
        Pre-processing as fitted to the training images and to the attributes of the seen classes.
    """
    if is_chunked(data.X):  # looking at the rows would mean reading all of them
        return []
    rows = _sample(data.y, _SAMPLE)
    X, y = feature.transform(data.X[rows]), data.y[rows]
    known = np.concatenate([data.seen, data.unseen])
    names = [data.class_names[c] for c in known]
    Z = semantics.transform(data.attributes)
    columns = data.attribute_names or [f"attribute {a + 1}" for a in range(data.attributes.shape[1])]
    features = [f"feature {j + 1}" for j in range(X.shape[1])]
    found = [
        *huge(data.X[rows], "features"),
        *huge(data.attributes, "attributes"),
        *outlying_rows(data.X, "features of training image"),
        *outlying_rows(data.attributes[known], "attributes of", names),
        *drowned(X, features, "feature.standardise=true"),
        *drowned(Z[data.seen], columns if Z.shape[1] == len(columns) else [], "dataset.semantics.standardise=true"),
        *(
            equal_rows(data.attributes[known], names)
            or equal_rows(Z[data.unseen], [data.class_names[c] for c in data.unseen], ready=True)
        ),
        *repeated_images(data.X, data.X_test_seen, "test images of seen classes", same_classes=True),
        *repeated_images(data.X, data.X_unseen, "test images of unseen classes"),
        *unrelated_labels(X, y),
        *misplaced_rows(class_means(X, y), Z, data.seen, data.class_names),
    ]
    if len(data.seen) == 1:
        found.append("only one class is seen, so nothing can be learned of how classes differ; take two or more.")
    if data.Z_images is None:
        found += constant_attributes(data.attributes[known], columns)
    return found


def huge(V: Array, what: str) -> list[str]:
    """Say that the numbers of V (n, k) are so large that their squares overflow (beyond 1e150)."""
    largest = float(np.abs(V).max(initial=0, where=~np.isnan(V)))
    if largest <= _LARGEST:
        return []
    return [f"{what} reach {largest:.0e}, whose squares overflow; is that a code for missing values? Divide them."]


def outlying_rows(V: Array, what: str, names: Sequence[str] = ()) -> list[str]:
    """Say that a row of V (n, k), not pre-processed, is more than 1000 times as long as the median row."""
    lengths = np.sqrt(row_squares(np.nan_to_num(V) if np.isnan(V.sum()) else V).astype(np.float64))
    longest, middle = int(lengths.argmax()), float(np.median(lengths))
    if not 1000 * middle < lengths[longest] or not middle > 0:
        return []
    row = repr(names[longest]) if names else longest + 1
    return [
        f"{what} {row} are {_many(lengths[longest] / middle)} times as long as the median and drown the mean; is that "
        "a code for missing values? Correct or remove them."
    ]


def drowned(V: Array, columns: Sequence[str], remedy: str) -> list[str]:
    """Say that some columns vary so much that the others hardly count in any distance.

    The statistic is the standard deviation of each column of V (n, k), pre-processed. Columns are drowned if one column
    has more than 90 % of the variance (99 % where fewer than five vary), or if the ordered deviations have a gap of a
    factor of 30 with at least a tenth of the columns below it. On digits the largest share is 11 % and the largest
    factor 3.3. Constant columns do not count.
    """
    deviation = V.std(axis=0, dtype=np.float64)
    varies = np.flatnonzero(deviation > 0)
    order = varies[np.argsort(-deviation[varies], kind="stable")]
    s = deviation[order]
    if len(s) < 2:
        return []
    gaps = s[:-1] / s[1:]
    n_large = int(gaps.argmax()) + 1
    if not (gaps.max() >= 30 and len(s) - n_large >= len(s) / 10):
        if s[0] ** 2 <= (0.9 if len(s) >= 5 else 0.99) * (s**2).sum():
            return []
        n_large = 1
    ratio, n_small = s[0] / s[n_large], len(s) - n_large
    large = columns[order[0]] if columns else f"column {order[0] + 1}"
    if n_large > 1:
        large += f" with {n_large - 1} more"
    return [
        f"{large} varies {_many(ratio)} times as much as {n_small} other columns, which hardly count; scale them "
        f"({remedy})."
    ]


def constant_attributes(Z: Array, columns: Sequence[str]) -> list[str]:
    """Say that attributes are the same for all classes Z (C, q); NaN is no value."""
    with np.errstate(invalid="ignore"):
        constant = np.flatnonzero(np.fmin.reduce(Z) >= np.fmax.reduce(Z))
    if not constant.size or len(Z) < 2:
        return []
    return [
        f"{constant.size} of {Z.shape[1]} attributes (first: {columns[constant[0]]}) are the same for all classes and "
        "tell nothing."
    ]


def equal_rows(Z: Array, names: Sequence[str], *, ready: bool = False) -> list[str]:
    """Say that classes have the attributes Z (C, q) of another: exactly, or, pre-processed (``ready``), to six digits.

    NaN is no value, which two classes may share.
    """
    if ready:
        Z = np.round(Z / max(float(np.abs(Z).max(initial=0)), 1e-300), 6) + 0.0  # adding 0 turns -0 into 0
    _, first, which = np.unique(np.nan_to_num(Z, nan=np.inf), axis=0, return_index=True, return_inverse=True)
    same = np.flatnonzero(first[which.ravel()] != np.arange(len(Z)))
    if not same.size:
        return []
    b, a = names[same[0]], names[first[which.ravel()[same[0]]]]
    when = "after pre-processing " if ready else ""
    remedy = ", or keep the lengths of rows (dataset.semantics.l2=false)" if ready else ""
    return [
        f"{when}{same.size} of {len(Z)} classes {'have' if same.size > 1 else 'has'} the attributes of another class "
        "and cannot be told from it "
        f"(first: {b!r}, as {a!r}); give attributes in which they differ{remedy}."
    ]


def repeated_images(X: Array, X_test: Array, what: str, *, same_classes: bool = False) -> list[str]:
    """Say that test images X_test (m, p) have exactly the features of a training image of X (n, p).

    Images of the same classes may coincide where features are coarse, such as a few integers. With ``same_classes``
    as large a share is therefore allowed as in the training images, that of those which equal another one, and three
    standard deviations of its binomial; but a fifth at most.
    """
    step = max(1, X.shape[1] // 32)  # few columns find candidates, which are then compared whole
    keys, test = (np.ascontiguousarray(V[:, ::step]) for V in (X, X_test))
    wanted = {key.tobytes() for key in test}
    if wanted.isdisjoint(key.tobytes() for key in keys):
        return []
    rows = Counter(row.tobytes() for row, key in zip(X, keys) if same_classes or key.tobytes() in wanted)
    n, m, share = sum(row.tobytes() in rows for row in X_test), len(X_test), 0.0
    if same_classes:
        share = sum(k for k in rows.values() if k > 1) / len(X)
    if n <= min(share * m + 3 * (share * (1 - share) * m) ** 0.5, 0.2 * m):
        return []
    return [f"{n} of {m} {what} have exactly the features of a training image; remove them."]


def unrelated_labels(X: Array, y: Array) -> list[str]:
    """Say that images X (n, p) of one class y (n,) are no more alike than images of any classes.

    The statistic is the scatter of the class means, ``sum_c n_c |m_c - m|^2``, over 128 to 255 columns where there are
    more. The labels are called unrelated if it is not above all of 19 random permutations of y: 1 in 20 unrelated lists
    of labels escapes. Twenty images and two for each class are needed.
    """
    sizes = np.bincount(y)
    if len(sizes) < 2 or len(y) < max(2 * len(sizes), 20):
        return []
    X = X[:, :: max(1, X.shape[1] // 128)]
    X = X - X.mean(axis=0)

    def scatter(labels: Array) -> float:
        return float((np.square(class_sums(X, labels)).sum(axis=1) / sizes).sum())

    rng = np.random.default_rng(0)
    if scatter(y) > max(scatter(rng.permutation(y)) for _ in range(19)):
        return []
    return ["training images of one class are no more alike than images of any classes; do labels and images agree?"]


def misplaced_rows(means: Array, Z: Array, seen: Array, names: Sequence[str]) -> list[str]:
    """Say that classes look shifted, reversed, sorted or otherwise permuted against the rows of their table.

    The statistic is Mantel's: the sum over pairs of seen classes of the cosine between their mean images times the
    cosine between their attributes (centred over the classes), as deviations from its mean under random
    permutations of the rows. Rows look displaced in a certain way if that displacement fits better than all but 1 in
    2000 permutations and by two standard deviations more than the table as it is; seven seen classes are needed. With
    fifteen or more, rows look permuted if more than a tenth of the permutations fit better than the table as it is.
    With fewer, some sound tables fit no better than that.

    Parameters
    ----------
    means : (C_seen, p)
        Mean pre-processed features of the seen classes.
    Z : (C, q)
        The whole class table, pre-processed.
    seen : (C_seen,)
        Rows of the table.
    names : sequence of str
        Names of all classes, in the order of the table.
    """
    if len(seen) < 7:
        return []
    some = np.unique(np.linspace(0, len(seen) - 1, min(len(seen), 200)).astype(int))  # enough for any power
    means, seen = means[some], seen[some]
    images, K = _similarity(means), _similarity(Z)
    own, null = _mantel(images, K, seen, 99)
    if not null.std() > 0:
        return []
    z_own, p_own = (own - null.mean()) / null.std(), float((null >= own).mean())
    best = (max(z_own + 2, 3.0), "", seen)
    for how, rows in _displacements(names):
        value = float((K[np.ix_(rows[seen], rows[seen])] * images).sum())
        # The spread of the table as it is tells which ways are worth more permutations.
        if (value - null.mean()) / null.std() > best[0] - 1 and not np.array_equal(rows[seen], seen):
            value, draws = _mantel(images, K, rows[seen], int(np.clip(_WORK / len(seen) ** 2, 200, 4999)))
            z = (value - draws.mean()) / draws.std()
            if z > best[0] and (draws >= value).mean() <= 1 / 2000:
                best = (z, how, rows)
    if best[1]:
        c = next(c for c in seen if best[2][c] != c)
        return [
            f"the rows of the attribute table look {best[1]} against the labels: training images of {names[c]!r} fit "
            f"the row of {names[best[2][c]]!r}, and so on; check the order of class names, labels and rows."
        ]
    if len(seen) >= 15 and p_own > 0.1:
        return [
            f"the attributes of the {len(seen)} seen classes fit their images no better than with rows permuted at "
            "random; do labels, class names and attribute rows agree?"
        ]
    return []


def _displacements(names: Sequence[str]) -> Iterator[tuple[str, Array]]:
    """Ways in which rows get displaced, and the row (C,) that would belong to each class."""
    n = len(names)
    for k in range(1, min(n // 2, 50) + 1):
        for sign in (1, -1):
            yield f"shifted by {k}", (np.arange(n) - sign * k) % n
    yield "reversed", np.arange(n)[::-1]
    by_name = np.argsort(np.array(names, dtype=str), kind="stable")
    yield "sorted by name", np.argsort(by_name)
    yield "unsorted", by_name


def _similarity(rows: Array) -> Array:
    """Cosines (C, C) between centred rows (C, k), without the diagonal."""
    unit = unit_rows(rows - rows.mean(axis=0))
    out: Array = unit @ unit.T
    np.fill_diagonal(out, 0)
    return out


def _mantel(images: Array, K: Array, rows: Array, n_draws: int) -> tuple[float, Array]:
    """Mantel's statistic of ``images`` (c, c) with ``rows`` (c,) of K (C, C), and (n_draws,) under permutations."""
    K, rng, n = K[np.ix_(rows, rows)], np.random.default_rng(0), len(rows)
    null = []
    for start in range(0, n_draws, size := max(1, _BLOCK // n**2)):
        orders = rng.permuted(np.tile(np.arange(n), (min(size, n_draws - start), 1)), axis=1)
        null.append((K[orders[:, :, None], orders[:, None, :]] * images).sum(axis=(1, 2)))
    return float((K * images).sum()), np.concatenate(null)


def _sample(y: Array, n: int) -> Array:
    """About n positions in y, as many of each class, at least two."""
    order = np.argsort(y, kind="stable")
    sizes = np.bincount(y)
    rank = np.arange(len(y)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    chosen: Array = np.sort(order[rank < max(2, n // len(sizes))])
    return chosen


def _many(ratio: float) -> str:
    """A factor as one writes it: 20, 3,000, 2e+18."""
    return f"{ratio:,.0f}" if ratio < 1e6 else f"{ratio:.0e}"
