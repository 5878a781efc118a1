"""Tables and lists of classes: attributes in any published form, missing values, lists of class names."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from zsl.checks import Array, as_matrix
from zsl.data.cache import Folder
from zsl.data.readers.columns import NUMBER_COLUMNS, is_number, read_csv, without_numbering
from zsl.data.readers.files import as_text, need, read_lines, read_npy, read_npz, read_table, reading
from zsl.data.readers.mat import read_mat
from zsl.data.table import check_class_names, first_repeated
from zsl.errors import UserError, did_you_mean
from zsl.text import as_cell

log = logging.getLogger(__name__)


class Semantics(NamedTuple):
    """An attribute table as a reader finds it; the fields are those of :class:`zsl.data.table.ImageTable`."""

    attributes: Array
    """(C, q)"""
    missing: Array | None = None
    image_attributes: Array | None = None


def class_semantics(rows: Array) -> Semantics:
    """Attributes that come as one row per class."""
    return Semantics(rows, missing_values(rows))


def image_semantics(rows: Array, n_classes: int) -> Semantics:
    """Attributes that come as one row per image; rows of classes are made of these for each split."""
    return Semantics(np.zeros((n_classes, rows.shape[1])), None, rows)


def class_rows(table: Array, n_classes: int, path: Path, what: str = "att", *, published: str = "columns") -> Array:
    """Attributes with one row per class (C, q); ``published`` says where classes lie in a square ``table``."""
    table = as_matrix(table, f"{path}: {what}", finite=False)
    if n_classes not in table.shape:
        raise UserError(
            f"{path}: {what} has shape {table.shape}, but there are {n_classes} classes; one side must be the classes."
        )
    as_columns = published == "columns" if table.shape[0] == table.shape[1] else table.shape[1] == n_classes
    return np.ascontiguousarray(table.T if as_columns else table, dtype=np.float64)


def missing_values(rows: Array) -> Array | None:
    """Where a table says that it has no value: NaN, and -1 in a table of percentages (AwA); ``None`` if nowhere.

    A -1 is a value in tables of -1 and 1 and in standardised ones, so it counts as missing only where it is the one
    negative number, is rare, and the others go beyond 1.
    """
    gaps = np.isnan(rows)
    negative = rows < 0
    if negative.any() and np.all(rows[negative] == -1) and np.nanmax(rows) > 1 and negative.mean() < 0.1:
        gaps |= negative
    return gaps if gaps.any() else None


def numbered_names(path: Path) -> tuple[str, ...]:
    """Names from lines ``NUMBER NAME`` (AwA's classes.txt and predicates.txt, CUB's classes.txt), in that order."""
    names = []
    for i, line in enumerate(read_lines(path), start=1):
        number, _, name = line.partition("\t") if "\t" in line else line.partition(" ")
        if number.strip() != str(i) or not name.strip():
            raise UserError(
                f"{path}: line {i} is {line[:60]!r}; each line must be NUMBER NAME, with the numbers 1, 2, 3, ..."
            )
        names.append(name.strip())
    return tuple(names)


def fitting_names(names: tuple[str, ...], q: int, path: Path, semantics: str | None) -> tuple[str, ...]:
    """The names of q attributes, or none where there are not q names; a warning if the table is the dataset's own."""
    if names and len(names) != q and semantics in (None, "continuous", "original", "binary", "image"):
        log.warning("%s has %d names and is not used: the table has %d attributes; name each.", path, len(names), q)
    return names if len(names) == q else ()


def class_list(folder: Folder, file: str, class_names: Sequence[str]) -> tuple[str, ...] | None:
    """The class names in ``file`` of the folder, each of them known; ``None`` if there is no such file."""
    path = folder / file
    if not path.is_file():
        return None
    names = tuple(read_lines(folder.use(path), class_names))
    check_class_names(names, class_names, path)
    return names


def validation_lists(folder: Folder, class_names: Sequence[str]) -> tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]:
    """The published divisions of the training classes: ``trainclassesN.txt`` with ``valclassesN.txt``."""
    out = []
    for i in range(1, 10):
        train = class_list(folder, f"trainclasses{i}.txt", class_names)
        val = class_list(folder, f"valclasses{i}.txt", class_names)
        if train is None or val is None:
            if train is not None or val is not None:
                there, lacking = ("train", "val") if val is None else ("val", "train")
                log.warning(
                    "%s is not used, because there is no %sclasses%d.txt beside it; add that one.",
                    folder / f"{there}classes{i}.txt", lacking, i,
                )  # fmt: skip
            continue
        if set(train) & set(val):
            both, path = min(set(train) & set(val)), folder / f"valclasses{i}.txt"
            raise UserError(f"{path}: {both!r} is in trainclasses{i}.txt as well; the lists must be disjoint.")
        out.append((train, val))
    return tuple(out)


def named_semantics(
    folder: Folder, source: str, class_names: Sequence[str], n_images: int, available: Sequence[str], file: str = ""
) -> Semantics:
    """The attribute table of ``dataset.semantics=SOURCE``: a file SOURCE ``.mat|npz|npy|csv|txt`` in the folder.

    ``.mat`` and ``.npz`` hold one matrix (or one named ``att`` or SOURCE; with ``class_names``, as ``zsl describe``
    writes them, ``attributes`` in any order of classes); ``.csv`` a header and a class name first in
    each row; ``.txt`` numbers, or a class name and numbers in each line, as word vectors come. A table of as many rows
    as there are images is image-level. ``file`` is the stem of the file if it is not called SOURCE.

    Raises
    ------
    UserError
        If there is no such file (the sentence names ``available``), or its table does not fit the classes.
    """
    stem = file or source
    places = [folder / f"{stem}{suffix}" for suffix in (".mat", ".npz", ".npy", ".csv", ".txt")]
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        raise UserError(
            f"dataset.semantics={source}: {folder.root} has no table of that name ({stem}.mat, .npz, .npy, .csv or "
            f".txt); there is: {', '.join(available)}."
        )
    folder.use(path)
    if path.suffix == ".csv" or (path.suffix == ".npz" and "class_names" in read_npz(path, ["class_names"])):
        names, _, rows, _ = read_class_table(path)
        return class_semantics(_ordered(rows, names, class_names, path))
    if path.suffix == ".txt":
        vectors = _word_vectors(path, class_names)
        if vectors is not None:
            return class_semantics(vectors)
        table = read_table(path)
    elif path.suffix == ".npy":
        table = read_npy(path)
    else:
        stored = (read_npz if path.suffix == ".npz" else read_mat)(path)
        matrices = [k for k, v in stored.items() if v.ndim == 2 and min(v.shape) > 1]
        key = next((k for k in ("att", stem) if k in stored), matrices[0] if len(matrices) == 1 else None)
        if key is None:
            raise UserError(
                f"{path} holds {', '.join(sorted(stored)) or 'nothing'}; name the table 'att' so that it is found."
            )
        table = stored[key]
    if len(class_names) not in table.shape and n_images in table.shape:
        return image_semantics(class_rows(table, n_images, path, stem, published="rows"), len(class_names))
    published = "columns" if path.suffix == ".mat" else "rows"
    return class_semantics(class_rows(table, len(class_names), path, stem, published=published))


def _ordered(rows: Array, names: Sequence[str], class_names: Sequence[str], path: Path) -> Array:
    """``rows`` (one per name) in the order of ``class_names``; every class must have exactly one."""
    known, index = set(class_names), {n: i for i, n in enumerate(names)}
    repeated = first_repeated([name for name in names if name in known])
    if repeated is not None:
        raise UserError(f"{path}: the class {repeated!r} has more than one row; keep one.")
    for name in class_names:
        if name not in index:
            raise UserError(
                f"{path} has no row for the class {name!r}{did_you_mean(name, names)}; every class needs one."
            )
    return rows[[index[n] for n in class_names]]


def _word_vectors(path: Path, class_names: Sequence[str]) -> Array | None:
    """Rows of lines ``NAME NUMBER NUMBER ...`` under an optional header of two counts; None if no names come first."""
    lines = [line.split() for line in read_lines(path)]
    if len(lines) > 1 and len(lines[0]) == 2 and lines[0][1] == str(len(lines[1]) - 1):
        lines = lines[1:]  # word2vec writes the number of words and of dimensions first
    if not lines or is_number(lines[0][0]):
        return None
    with reading(path, "table of names and numbers"):
        rows = np.array([line[1:] for line in lines], dtype=np.float64)
    return _ordered(rows, [line[0] for line in lines], class_names, path)


def read_class_csv(path: Path) -> tuple[tuple[str, ...], tuple[str, ...], Array]:
    """Names (C), attribute names (q) and rows (C, q) of a CSV with a header; empty fields are NaN.

    The first column holds the names, or one called class, name or label after a column that numbers the rows.

    Raises
    ------
    UserError
        For fields that are no numbers, columns that number the classes, and names of rows or columns that are empty or
        occur twice.
    """
    texts, found, rows = read_csv(path, lambda header, first: [name_column(header, first)])
    names = [name.strip() for name in next(iter(texts.values()))]
    for kind, given in (("row", names), ("column", [n for n in found if n] if found[:1] == [""] else found)):
        repeated = "" if "" in given else first_repeated(given)
        if repeated is not None:
            raise UserError(f"{path}: {repeated!r} is not the name of one {kind}; each {kind} needs its own name.")
    kept = without_numbering(rows, found, path, "classes")
    attribute_names = [name for name, has in zip(found, kept) if has]
    rows = class_rows(rows[:, kept], len(names), path, "the table", published="rows")
    return tuple(names), tuple(attribute_names), rows


class ClassTable(NamedTuple):
    """A table of class attributes, whatever file it comes from."""

    names: tuple[str, ...]
    """C"""
    attribute_names: tuple[str, ...]
    """q, or none"""
    rows: Array
    """(C, q) NaN is unknown"""
    about: dict[str, Any]
    """``encoder`` and ``attribute_blocks``, where ``zsl describe`` wrote the file"""


def read_class_table(path: Path) -> ClassTable:
    """Class attributes of a ``.csv`` (:func:`read_class_csv`), or of an ``.npz`` as ``zsl describe`` writes it.

    Raises
    ------
    UserError
        For a file that is unreadable, lacks ``attributes`` or ``class_names``, or whose parts do not fit together.
    """
    if path.suffix.lower() != ".npz":
        return ClassTable(*read_class_csv(path), {})
    keys = ("attributes", "class_names", "attribute_names", "encoder", "blocks")
    stored = read_npz(path, list(keys))
    rows = as_matrix(need(stored, "attributes", path), f"{path}: attributes", finite=False).astype(np.float64)
    names, attribute_names = (
        tuple(as_text(stored[key], path, key).tolist()) if key in stored else () for key in keys[1:3]
    )
    need(stored, "class_names", path)
    for kind, found, n in (("class", names, len(rows)), ("attribute", attribute_names, rows.shape[1])):
        if len(found) != n and (found or kind == "class"):
            raise UserError(f"{path} has {len(found)} {kind}_names for attributes of shape {rows.shape}; name each.")
        if first_repeated(found) is not None:
            raise UserError(f"{path}: {kind}_names has {first_repeated(found)!r} more than once; names must be unique.")
    about = {"encoder": _record(stored, "encoder", path), "attribute_blocks": _record(stored, "blocks", path)}
    if about["attribute_blocks"] and sum(size for _, size in about["attribute_blocks"]) != rows.shape[1]:
        raise UserError(f"{path}: blocks do not add up to the {rows.shape[1]} attributes; make the file again.")
    return ClassTable(names, attribute_names, rows, {key: value for key, value in about.items() if value})


def _record(stored: dict[str, Array], key: str, path: Path) -> Any:
    try:
        return json.loads(str(stored[key][()])) if key in stored else None
    except (ValueError, IndexError):
        raise UserError(f"{path}: {key} is no JSON; make the file again with zsl describe.") from None


def name_column(header: Sequence[str], first: Sequence[str]) -> int:
    """The column of class names: the first, unless it numbers the rows and another one is called so."""
    names = [i for i, name in enumerate(header) if name.lower() in ("class", "class_name", "name", "label")]
    numbered = header[0].lower() in {"", *NUMBER_COLUMNS} and first[0].strip().isdecimal()
    return names[0] if numbered and names else 0


def write_class_csv(path: Path, names: Sequence[str], attribute_names: Sequence[str], rows: Array) -> None:
    """The inverse of :func:`read_class_csv`: NaN becomes an empty field."""
    import pandas as pd

    index = pd.Index([as_cell(name) for name in names], name="class")
    frame = pd.DataFrame(rows, index=index, columns=[as_cell(name) for name in attribute_names])
    frame.to_csv(path, encoding="utf-8")
