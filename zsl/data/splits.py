"""Class splits: functions of an :class:`ImageTable`, chosen and set by ``conf/split/*.yaml``.

Each function takes the table first and its settings by keyword, and returns a :class:`Split` called ``name``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import annotated_types as at
import numpy as np

from zsl.checks import Array, Count, Seed
from zsl.data.readers.files import read_lines
from zsl.data.table import ImageTable, Split
from zsl.errors import UserError
from zsl.linalg import most_similar


def auto(table: ImageTable, *, name: str = "auto", seed: Seed = 0) -> Split:
    """The split of a dataset that names none: its stored split ``proposed`` if it has one, otherwise :func:`random`.

    The split is called what it is, ``proposed`` or ``random``, so that results under either name can be compared;
    ``name`` is what the configuration calls this choice. ``seed`` is that of :func:`random`.
    """
    if "proposed" in table.splits:
        return stored(table, name="proposed")
    if table.n_unseen is None:
        raise UserError(
            f"split={name}: {table.name} has no proposed split and suggests no number of unseen classes; use "
            "split=random split.n_unseen=NUMBER or split=file split.path=FILE."
        )
    return random(table, seed=seed)


def stored(
    table: ImageTable,
    *,
    name: str,
    source: str | None = None,
    n_seen: Count | None = None,
    n_unseen: Count | None = None,
) -> Split:
    """A split that comes with the data.

    Parameters
    ----------
    source : str, optional
        The table's own name of the split; default ``name``.
    n_seen, n_unseen : int, optional
        The numbers of classes that the split must have.
    """
    source = source or name
    if source not in table.splits:
        root = str(table.provenance.get("root", "."))
        where = "" if root == "." else f" in {root}"
        has = f"it has {', '.join(table.splits)}" if table.splits else "no split comes with its files"
        hint = table.provenance.get("missing_splits", {}).get(source, "")
        hint += "or " if hint else ""
        drawn = "split=random" if table.n_unseen else "split=random split.n_unseen=K"
        raise UserError(f"split={name}: {table.name} has no {source} split{where} ({has}); {hint}use {drawn}.")
    split = table.splits[source]
    seen = np.unique(table.labels[split.trainval]).size
    for expected, found, kind in ((n_seen, seen, "seen"), (n_unseen, split.unseen.size, "unseen")):
        if expected is not None and expected != found:
            raise UserError(
                f"split={name} has {expected} {kind} classes, but the {source} split of {table.name} has {found}; "
                "check that the folder holds the right dataset."
            )
    return replace(split, name=name, origin={**split.origin, "source": source})


def random(
    table: ImageTable,
    *,
    name: str = "random",
    n_unseen: Count | None = None,
    fraction: Annotated[float, at.Gt(0), at.Lt(1)] | None = None,
    seed: Seed = 0,
) -> Split:
    """The unseen classes are ``sorted(known[default_rng(seed).permutation(len(known))[:n_unseen]])``.

    ``known`` are the classes with labelled images. A drawn split leaves other classes, and images of unknown class,
    out. :func:`hold_out` says which images train and which test.

    Parameters
    ----------
    n_unseen : int, optional
        Default: as many as the dataset's own split leaves unseen.
    fraction : float, optional
        A share of the classes (rounded, at least one) instead of ``n_unseen``.
    seed : int
        The seed that draws the classes, and then the images.
    """
    known, n_unseen = _with_images(table), _number(table, name, n_unseen, fraction)
    rng = np.random.default_rng(seed)
    unseen = np.sort(known[rng.permutation(len(known))[:n_unseen]])
    return _drawn(table, unseen, rng, name, {"n_unseen": n_unseen, "seed": seed})


def alike(
    table: ImageTable,
    *,
    name: str = "alike",
    n_unseen: Count | None = None,
    fraction: Annotated[float, at.Gt(0), at.Lt(1)] | None = None,
    seed: Seed = 0,
) -> Split:
    """Unseen classes are a random class and the classes most similar to it, so that they are hard to tell apart.

    Similarity is the cosine of the class attributes, centred on their mean over all classes; a missing value counts as
    the mean. Parameters as for :func:`random`, images by :func:`hold_out`.
    """
    n_unseen = _number(table, name, n_unseen, fraction)
    rng = np.random.default_rng(seed)
    gaps = table.gaps
    known = np.where(gaps, 0, table.attributes)
    centred = np.where(gaps, 0, known - known.sum(axis=0) / np.maximum((~gaps).sum(axis=0), 1))
    images = _with_images(table)
    centred = centred[images]
    unseen = images[most_similar(centred, int(rng.integers(len(centred))), n_unseen)]
    return _drawn(table, unseen, rng, name, {"n_unseen": n_unseen, "seed": seed})


def _number(table: ImageTable, name: str, n_unseen: int | None, fraction: float | None) -> int:
    """How many classes are unseen: ``n_unseen``, a share of all, or as many as the dataset's own split leaves."""
    n_classes = len(_with_images(table))
    if n_unseen is not None and fraction is not None:
        raise UserError(f"split.n_unseen={n_unseen} and split.fraction={fraction} exclude each other; set one.")
    if fraction is not None:
        n_unseen = max(1, round(fraction * n_classes))
        if n_unseen >= n_classes:
            raise UserError(
                f"split.fraction={fraction} leaves no seen class of the {n_classes} of {table.name}; choose a smaller "
                "share."
            )
    n_unseen = n_unseen or table.n_unseen
    if n_unseen is None:
        raise UserError(
            f"split={name}: {table.name} suggests no number of unseen classes; set split.n_unseen or split.fraction."
        )
    return _some_seen(table, n_unseen)


def _some_seen(table: ImageTable, n_unseen: int) -> int:
    """The number of unseen classes; a UserError if no class would be seen."""
    n_classes = len(_with_images(table))
    if n_unseen >= n_classes:
        raise UserError(
            f"split.n_unseen={n_unseen} leaves no seen class; {table.name} has {n_classes} classes{_of(table)}."
        )
    return n_unseen


def _with_images(table: ImageTable) -> Array:
    """Ascending numbers of the classes that have labelled images."""
    return np.unique(table.labels[table.labels >= 0])


def _of(table: ImageTable) -> str:
    return "" if len(_with_images(table)) == len(table.class_names) else " with images"


def _drawn(table: ImageTable, unseen: Array, rng: np.random.Generator, name: str, origin: dict[str, Any], *,
           test_seen: bool = True) -> Split:  # fmt: skip
    """:func:`hold_out` without the images of unknown class: theirs may be none of the classes that were drawn."""
    split = hold_out(table, unseen, rng, name, origin, test_seen=test_seen)
    return replace(split, test_unseen=split.test_unseen[table.labels[split.test_unseen] >= 0])


def folds(
    table: ImageTable,
    *,
    fold: Seed,
    n_folds: Annotated[int, at.Ge(2)] = 4,
    name: str = "folds",
    seed: Seed = 0,
    test_seen: bool = False,
) -> Split:
    """Classes in ``n_folds`` near-equal parts, of which part ``fold`` is unseen: each class is unseen in one of them.

    The parts are ``array_split(default_rng(seed).permutation(C), n_folds)``: sweep ``split.fold`` at one seed.

    Parameters
    ----------
    seed : int
        The seed of the parts, and of the draw of images. It does not follow the run's seed, so that repetitions
        with other seeds are on the same parts.
    test_seen : bool
        Whether some images of seen classes test, as :func:`hold_out` draws them; otherwise all of them train.
    """
    known = _with_images(table)
    n_classes = len(known)
    if fold >= n_folds:
        raise UserError(f"split.fold={fold} is out of range: there are {n_folds} folds, 0 to {n_folds - 1}.")
    if n_folds > n_classes:
        raise UserError(f"split.n_folds={n_folds} is more than the {n_classes} classes of {table.name}{_of(table)}.")
    rng = np.random.default_rng(seed)
    unseen = np.sort(known[np.array_split(rng.permutation(n_classes), n_folds)[fold]])
    origin = {"fold": fold, "n_folds": n_folds, "seed": seed, "test_seen": test_seen}
    return _drawn(table, unseen, rng, name, origin, test_seen=test_seen)


def combination(
    table: ImageTable, *, index: Seed, name: str = "combination", n_unseen: Count | None = None, seed: Seed = 0
) -> Split:
    """The ``index``-th of all choices of ``n_unseen`` classes, in lexicographic order: every split in one sweep."""
    known, n_unseen = _with_images(table), _some_seen(table, n_unseen or table.n_unseen or 1)
    n_classes = len(known)
    total = math.comb(n_classes, n_unseen)
    if index >= total:
        raise UserError(
            f"split.index={index} is out of range: {table.name} has {total} choices of {n_unseen} classes; choose an "
            f"index from 0 to {total - 1}."
        )
    unseen = known[list(next(itertools.islice(itertools.combinations(range(n_classes), n_unseen), index, None)))]
    origin = {"n_unseen": n_unseen, "index": index, "seed": seed}
    return _drawn(table, unseen, np.random.default_rng(seed), name, origin)


def from_file(
    table: ImageTable, *, path: str | None, name: str = "file", seed: Seed = 0, test_seen: bool = False
) -> Split:
    """Unseen classes by name, one per line of a text file (blank lines and comments, ``# ...``, are ignored).

    All images of the other classes train, unless ``test_seen`` asks for some that test (:func:`hold_out`).
    """
    if path is None:
        raise UserError("split=file needs split.path=FILE: a text file with one unseen class name per line.")
    where = str(Path(path).expanduser())
    if not Path(where).is_file():
        what = "is a folder" if Path(where).is_dir() else "does not exist"
        raise UserError(f"split.path={path} {what}; give a text file with one unseen class name per line.")
    unseen = named_classes(table, read_lines(Path(where), table.class_names), where)
    origin = {"path": where, "seed": seed, "test_seen": test_seen}
    return hold_out(table, unseen, np.random.default_rng(seed), name, origin, test_seen=test_seen)


def listed(
    table: ImageTable,
    *,
    file: str,
    name: str,
    n_unseen: Count,
    path: str | None = None,
    seed: Seed = 0,
    test_seen: bool = False,
) -> Split:
    """As :func:`from_file`, for a list of ``n_unseen`` names: ``file`` in the dataset's folder, or ``path``."""
    where = Path(path).expanduser() if path else Path(str(table.provenance.get("root", "."))) / file
    if not where.is_file():
        raise UserError(
            f"split={name} needs the names of its {n_unseen} unseen classes, one per line, in {where}, which does not "
            f"exist; no list is published with the data, so write it, or use split=random split.n_unseen={n_unseen}."
        )
    split = from_file(table, path=str(where), name=name, seed=seed, test_seen=test_seen)
    if len(split.unseen) != n_unseen:
        raise UserError(f"{where} names {len(split.unseen)} classes, but split={name} has {n_unseen} unseen ones.")
    return split


def named_classes(table: ImageTable, names: list[str], where: str) -> Array:
    """Ascending numbers of the unseen classes that ``where`` names.

    Raises
    ------
    UserError
        For unknown and repeated names, and for none or all of the classes.
    """
    unseen = np.sort(table.class_ids(names, where))
    if not 0 < len(unseen) < len(table.class_names):
        raise UserError(
            f"{where} names {len(unseen)} of {len(table.class_names)} classes; some must be seen, some unseen."
        )
    return unseen


def hold_out(
    table: ImageTable,
    unseen: Array,
    rng: np.random.Generator,
    name: str,
    origin: Mapping[str, Any],
    *,
    test_seen: bool = True,
) -> Split:
    """Make a split from unseen classes: their images are test images, and a random fifth of each seen class too.

    Images of unknown class test as well. The fifth is rounded down, so a class of fewer than five images trains with
    all of them. Classes are visited in ascending order; a class without images is neither seen nor unseen.

    Parameters
    ----------
    unseen : (M,)
        Ascending class numbers.
    test_seen : bool
        Whether the fifth is kept for tests of the generalised setting; otherwise it trains as well.

    Raises
    ------
    UserError
        If no seen class has an image.
    """
    seen = np.setdiff1d(np.arange(len(table.class_names)), unseen)
    if not np.isin(seen, table.labels).any():
        raise UserError(f"{table.name}, split {name}: no seen class has an image, so there is nothing to train on.")
    train, test = [], []
    for c in seen:
        rows = rng.permutation(np.flatnonzero(table.labels == c))
        n_train = len(rows) - (len(rows) // 5 if test_seen else 0)
        train.append(rows[:n_train])
        test.append(rows[n_train:])
    test_unseen = np.flatnonzero(np.isin(table.labels, unseen) | (table.labels < 0))
    return Split(name, np.sort(np.concatenate(train)), np.sort(np.concatenate(test)), test_unseen, unseen, origin)
