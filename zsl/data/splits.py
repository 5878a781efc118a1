"""Class splits: functions of an :class:`ImageTable`, chosen and set by ``conf/split/*.yaml``."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from zsl.checks import Array, Count, Seed
from zsl.data.dataset import ImageTable, Split
from zsl.errors import UserError


def stored(
    table: ImageTable,
    *,
    name: str,
    source: str | None = None,
    n_seen: Count | None = None,
    n_unseen: Count | None = None,
) -> Split:
    """A split that comes with the data: ``source`` (default: ``name``), checked to have the class counts given."""
    source = source or name
    if source not in table.splits:
        has = ", ".join(table.splits) or "none"
        where = table.provenance.get("root", "its folder")
        hint = table.provenance.get("missing_splits", {}).get(source, "")
        raise UserError(
            f"split={name}: {table.name} has no {source} split in {where} (it has: {has}); {hint}or use split=random."
        )
    split = table.splits[source]
    seen = np.unique(table.labels[split.trainval]).size
    for expected, found, kind in ((n_seen, seen, "seen"), (n_unseen, split.unseen.size, "unseen")):
        if expected is not None and expected != found:
            raise UserError(
                f"split={name} has {expected} {kind} classes, but the {source} split of {table.name} has {found}; "
                "check that the folder holds the right dataset."
            )
    return Split(
        name,
        split.trainval,
        split.test_seen,
        split.test_unseen,
        split.unseen,
        {**split.origin, "source": source},
    )


def random(table: ImageTable, *, name: str = "random", n_unseen: Count | None = None, seed: Seed = 0) -> Split:
    """``unseen = sorted(default_rng(seed).permutation(C)[:n_unseen])``; then :func:`hold_out` under the same generator.

    ``n_unseen=None`` takes as many as the dataset's own split leaves unseen.
    """
    n_classes = len(table.class_names)
    n_unseen = n_unseen or table.n_unseen
    if n_unseen is None:
        raise UserError(f"split=random: {table.name} suggests no number of unseen classes; set split.n_unseen.")
    if n_unseen >= n_classes:
        raise UserError(f"split.n_unseen={n_unseen} leaves no seen class; {table.name} has {n_classes} classes.")
    rng = np.random.default_rng(seed)
    unseen = np.sort(rng.permutation(n_classes)[:n_unseen])
    return hold_out(table, unseen, rng, name, {"n_unseen": n_unseen, "seed": seed})


def combination(
    table: ImageTable,
    *,
    index: Seed,
    name: str = "combination",
    n_unseen: Count | None = None,
    seed: Seed = 0,
) -> Split:
    """The ``index``-th of all choices of ``n_unseen`` classes, in lexicographic order: every split in one sweep."""
    n_classes, n_unseen = len(table.class_names), n_unseen or table.n_unseen or 1
    total = math.comb(n_classes, n_unseen)
    if index >= total:
        raise UserError(f"split.index={index} is out of range: {table.name} has {total} choices of {n_unseen} classes.")
    unseen = np.array(next(itertools.islice(itertools.combinations(range(n_classes), n_unseen), index, None)))
    origin = {"n_unseen": n_unseen, "index": index, "seed": seed}
    return hold_out(table, unseen, np.random.default_rng(seed), name, origin)


def from_file(table: ImageTable, *, path: str | None, name: str = "file", seed: Seed = 0) -> Split:
    """Unseen classes by name, one per line, in a text file (blank lines and lines that start with ``#`` ignored)."""
    if path is None:
        raise UserError("split=file needs split.path=FILE: a text file with one unseen class name per line.")
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"split.path={path} cannot be read as text ({error}); give one class name per line.") from None
    names = [line.strip() for line in lines if line.strip() and not line.strip().startswith("#")]
    if len(set(names)) < len(names):
        raise UserError(f"{path}: a class is named more than once; name each unseen class once.")
    unseen = np.sort(table.class_ids(names, str(path)))
    if not 0 < len(unseen) < len(table.class_names):
        raise UserError(
            f"{path} names {len(unseen)} of {len(table.class_names)} classes; some must be seen, some unseen."
        )
    return hold_out(table, unseen, np.random.default_rng(seed), name, {"path": str(path), "seed": seed})


def hold_out(table: ImageTable, unseen: Array, rng: np.random.Generator, name: str, origin: Mapping[str, Any]) -> Split:
    """Test images: all of an unseen class; of each seen class the last fifth of its images, permuted by ``rng``.

    The fifth is rounded down, so a class of fewer than five images trains with all of them. Classes are visited
    in ascending order; a class without images is left out.
    """
    train, test = [], []
    for c in np.setdiff1d(np.arange(len(table.class_names)), unseen):
        rows = rng.permutation(np.flatnonzero(table.labels == c))
        n_train = len(rows) - len(rows) // 5
        train.append(rows[:n_train])
        test.append(rows[n_train:])
    return Split(
        name,
        np.sort(np.concatenate(train)),
        np.sort(np.concatenate(test)),
        np.flatnonzero(np.isin(table.labels, unseen)),
        unseen,
        origin,
    )
