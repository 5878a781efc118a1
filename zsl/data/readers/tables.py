"""What the readers share: features in either orientation, class tables, missing values, lists of classes."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from zsl.checks import Array
from zsl.data.cache import Folder
from zsl.data.readers.files import as_text, need, read_lines, read_mat, read_npy, read_npz, read_table
from zsl.data.table import near
from zsl.errors import UserError

# Feature names of this project that published archives store under another.
STORED_AS = {"resnet101": "res101"}
# Where the file names of images are kept beside features, by whoever wrote them.
_NAME_KEYS = ("files", "image_files", "image_names")
# No table has as many classes: a larger label is damage, and would overflow or fill the memory.
_MOST = 2**31


def feature_file(folder: Path, feature: str, name: str, how_to_get: str) -> Path:
    """``NAME.mat`` or ``NAME.npz`` in ``folder``, or a sentence on what is there instead."""
    for stem in dict.fromkeys((STORED_AS.get(feature, feature), feature)):
        for suffix in (".mat", ".npz"):
            if (folder / f"{stem}{suffix}").is_file():
                return folder / f"{stem}{suffix}"
    there = stored_features(folder)
    remedy = f"the folder has: {', '.join(there)} (choose with feature.name=NAME)" if there else how_to_get
    stem = STORED_AS.get(feature, feature)
    raise UserError(f"dataset={name}, feature={feature}: {folder / stem}.mat (or .npz) is missing; {remedy}.")


def stored_features(folder: Path) -> list[str]:
    """Names of the feature files of a folder: ``.mat`` and ``.npz`` files that are no class table."""
    tables = ("att_splits", "binaryAtt", "attribute", "images", "image_attributes", "wordvec")
    found = {p.stem for p in folder.iterdir() if p.suffix in {".mat", ".npz"} and not p.name.startswith(tables)}
    return sorted(found)


class Features(NamedTuple):
    """What a feature file holds."""

    rows: Array
    """(n, d) float32"""
    labels: Array
    """(n,) counted from 0"""
    image_names: tuple[str, ...] = ()
    """n names, or none"""
    class_names: tuple[str, ...] = ()
    """Names of the classes that the labels count, or none"""
    network: str = ""
    """What made the features and from which weights, as :mod:`zsl.extract` writes it"""
    from_one: bool = False
    """Whether the file counts its labels from 1, or has no 0 that would tell otherwise"""


def read_features(folder: Folder, path: Path) -> Features:
    """A feature file ``.mat`` or ``.npz``: ``features``, ``labels``, and file and class names where it has them.

    Memory stays near what the file holds plus the float32 rows; large files come back memory-mapped from the cache.

    Raises
    ------
    UserError
        For shapes that do not fit, labels that are no class numbers, values that are not finite (or not in float32).
    """

    def make() -> dict[str, Array]:
        keys = ["features", "labels", "class_names", "network", *_NAME_KEYS]
        stored = (read_npz if path.suffix == ".npz" else read_mat)(path, keys)
        given = need(stored, "labels", path)
        labels = class_numbers(given, path)
        rows = oriented(need(stored, "features", path), labels, path)
        del stored["features"]
        names = next((stored[k] for k in _NAME_KEYS if k in stored), np.empty(0, "U1"))
        return {
            "features": as_float32(rows, path),
            "labels": labels,
            "names": as_text(names, path, "file names"),
            "classes": as_text(stored.get("class_names", np.empty(0, "U1")), path, "class_names"),
            "from_one": np.array([given.min() > 0]),
            "network": as_text(stored.get("network", np.array("")), path, "network"),
        }

    found = folder.cached(f"{path.stem}{path.suffix.replace('.', '-')}", [path], make)
    names = tuple(found["names"].tolist())
    if names and len(names) != len(found["labels"]):
        raise UserError(f"{path}: {len(names)} file names for {len(found['labels'])} images; there must be one each.")
    return Features(
        found["features"],
        np.array(found["labels"]),
        names,
        tuple(found["classes"].tolist()),
        str(found["network"][0]),
        bool(found["from_one"][0]),
    )


def in_class_order(stored: Features, class_names: Sequence[str], path: Path, table: Path) -> Array:
    """Labels that count ``class_names``, whatever order the feature file counts its classes in."""
    labels = stored.labels
    if stored.class_names:
        if labels.max() >= len(stored.class_names):
            raise UserError(f"{path}: label {labels.max() + 1}, but it names {len(stored.class_names)} classes.")
        index = {plain_name(c): i for i, c in enumerate(class_names)}
        for name in stored.class_names:
            if plain_name(name) not in index:
                raise UserError(f"{path}: {name!r} is not a class of this dataset{near(name, tuple(class_names))}.")
        return np.array([index[plain_name(c)] for c in stored.class_names])[labels]
    if labels.max() >= len(class_names):
        raise UserError(
            f"{path}: image {int(labels.argmax()) + 1} has label {labels.max() + 1}, "
            f"but {table} has {len(class_names)} classes."
        )
    return labels


def plain_name(name: str) -> str:
    """A class name without the marks that stand for a blank in one archive and not in another."""
    return name.replace("+", " ").replace("_", " ").lower().strip()


def in_image_order(stored: Features, image_names: Sequence[str], path: Path) -> Array:
    """Rows of ``stored`` for ``image_names``: matched by file name, else by position if there are as many."""
    if not stored.image_names:
        if len(stored.rows) != len(image_names):
            raise UserError(
                f"{path} has {len(stored.rows)} rows and no file names, but there are {len(image_names)} images; "
                "store the file names as 'files' (python -m zsl.extract does)."
            )
        return np.arange(len(image_names))
    image_names = [unicodedata.normalize("NFC", n) for n in image_names]
    index = {n.replace("\\", "/"): i for i, n in enumerate(stored.image_names)}
    last = {n.rsplit("/", 1)[-1]: i for n, i in index.items()}
    if len(last) < len(index):
        last = {}  # the same name in two folders: only the path identifies an image
    found = [index.get(n, last.get(n.rsplit("/", 1)[-1], -1)) for n in image_names]
    if min(found) < 0:
        absent = found.count(-1)
        raise UserError(
            f"{path} lacks {absent} of the {len(found)} images that the archive lists (first: "
            f"{image_names[found.index(-1)]!r}); extract them again."
        )
    return np.array(found)


def need_same_classes(
    stored: Features, order: Array, labels: Array, class_names: Sequence[str], path: Path, table: Path
) -> None:
    """Refuse features whose own labels divide the images into other classes than the archive does.

    Features are matched to images by name or position; where they have labels, these tell whether the match is right.
    Numbers and names of classes may differ between the two (another order, ``a_abbey`` for ``abbey``), the division
    into classes may not; and where both name a class alike, it must be the same.

    Parameters
    ----------
    order : (n,)
        Rows of ``stored`` for the images of the archive.
    labels : (n,)
        The archive's labels.
    table : Path
        The archive's file of labels, for the sentence.
    """
    theirs = stored.labels[order]
    names = [f"class {c + 1}" for c in range(int(theirs.max()) + 1)]
    if len(stored.class_names) >= len(names):
        names = [plain_name(c) for c in stored.class_names]
        known = {plain_name(c): i for i, c in enumerate(class_names)}
        index = np.array([known.get(c, -1) for c in names])[theirs]
        wrong = (index >= 0) & (index != labels)
    else:
        wrong = np.zeros(len(labels), bool)
    for a, b in ((theirs, labels), (labels, theirs)):
        # The other's class of the first image of each class must be that of all its images.
        _, first, which = np.unique(a, return_index=True, return_inverse=True)
        wrong |= b != b[first][which]
    if wrong.any():
        i = int(wrong.argmax())
        raise UserError(
            f"{path}: its labels disagree with {table} for {wrong.sum()} of {len(labels)} images (first: {i + 1}, "
            f"{names[theirs[i]]!r}, {class_names[labels[i]]!r}); the rows are in another order or of other images: "
            "store the file names as 'files' (python -m zsl.extract does), or extract them again."
        )


def class_numbers(labels: Array, path: Path) -> Array:
    """Labels as int64 counted from 0: 1-based (the published form) unless a 0 occurs."""
    labels = np.asarray(labels).ravel()
    if labels.dtype.kind in "US":
        raise UserError(f"{path}: labels are text; class numbers are needed here (names are read by dataset=tabular).")
    if not labels.size:
        raise UserError(f"{path}: there are no labels; one class number per image is needed.")
    if not np.issubdtype(labels.dtype, np.number) or np.iscomplexobj(labels) or np.any(labels != np.floor(labels)):
        raise UserError(
            f"{path}: labels hold {labels.dtype} values that are not whole numbers; class numbers are needed."
        )
    for what, bad in (("smallest", labels.min()), ("largest", labels.max())):
        if not 0 <= bad < _MOST:
            raise UserError(f"{path}: the {what} label is {bad:.10g}; labels count classes from 1 (or 0).")
    labels = labels.astype(np.int64)
    return labels if labels.min() == 0 else labels - 1


def oriented(features: Array, labels: Array, path: Path) -> Array:
    """Images as rows, whichever way ``features`` lies; a square matrix is taken to lie as published.

    Published ``.mat`` files are features x images, ``.npz`` files images x features.
    """
    if features.ndim != 2 or len(labels) not in features.shape:
        raise UserError(
            f"{path}: features have shape {features.shape} and there are {len(labels)} labels; "
            "one side must be as long as the labels."
        )
    if features.shape[0] == features.shape[1]:
        return features.T if path.suffix == ".mat" else features
    return features if features.shape[0] == len(labels) else features.T


def as_float32(rows: Array, path: Path) -> Array:
    """Rows as C-ordered float32, all finite; networks compute in float32, so nothing is lost."""
    if not (np.issubdtype(rows.dtype, np.number) or rows.dtype == bool) or np.iscomplexobj(rows):
        raise UserError(f"{path}: features hold {rows.dtype} values; real numbers are needed.")
    with np.errstate(over="ignore"):
        out = np.ascontiguousarray(rows, dtype=np.float32)
    # In blocks: a mask of the whole matrix would take a quarter of its size again.
    for start in range(0, len(out), 4096):
        finite = np.isfinite(out[start : start + 4096])
        if not finite.all():
            i, column = np.argwhere(~finite)[0]
            raise UserError(
                f"{path}: feature {column + 1} of image {start + i + 1} is {rows[start + i, column]}; "
                "repair or drop the image."
            )
    return out


def class_rows(table: Array, n_classes: int, path: Path, what: str = "att", *, published: str = "columns") -> Array:
    """One row per class (C, q), whichever way ``table`` lies; ``published`` says how a square one does."""
    if table.ndim != 2 or n_classes not in table.shape:
        raise UserError(
            f"{path}: {what} has shape {table.shape}, but there are {n_classes} classes; one side must be the classes."
        )
    if not np.issubdtype(table.dtype, np.number) and table.dtype != bool:
        raise UserError(f"{path}: {what} holds {table.dtype} values; numbers are needed.")
    as_columns = published == "columns" if table.shape[0] == table.shape[1] else table.shape[1] == n_classes
    rows = np.ascontiguousarray(table.T if as_columns else table, dtype=np.float64)
    if np.isinf(rows).any():
        c, a = np.argwhere(np.isinf(rows))[0]
        raise UserError(f"{path}: attribute {a + 1} of class {c + 1} is {rows[c, a]}; impute or remove it.")
    return rows


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
    for i, line in enumerate(read_lines(path)):
        number, _, name = line.partition("\t") if "\t" in line else line.partition(" ")
        if not number.strip().isdigit() or not name.strip():
            raise UserError(f"{path}: line {i + 1} is {line[:60]!r}; each line must be NUMBER NAME.")
        if int(number) != i + 1:
            raise UserError(f"{path}: line {i + 1} has number {number.strip()}; numbers must run 1, 2, 3, ...")
        names.append(name.strip())
    if not names:
        raise UserError(f"{path} is empty; each line must be NUMBER NAME.")
    return tuple(names)


def class_list(folder: Folder, file: str, class_names: Sequence[str]) -> tuple[str, ...] | None:
    """The class names in ``file`` of the folder, each of them known; ``None`` if there is no such file."""
    path = folder / file
    if not path.is_file():
        return None
    names = tuple(read_lines(folder.use(path)))
    for name in names:
        if name not in class_names:
            raise UserError(f"{path}: {name!r} is not a class of this dataset{near(name, tuple(class_names))}.")
    if len(set(names)) < len(names):
        twice = next(n for n in names if names.count(n) > 1)
        raise UserError(f"{path}: the class {twice!r} is named more than once; name each class once.")
    return names


def validation_lists(folder: Folder, class_names: Sequence[str]) -> tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]:
    """The published divisions of the training classes: ``trainclassesN.txt`` with ``valclassesN.txt``."""
    out = []
    for i in range(1, 10):
        train = class_list(folder, f"trainclasses{i}.txt", class_names)
        val = class_list(folder, f"valclasses{i}.txt", class_names)
        if train is None or val is None:
            break
        both = set(train) & set(val)
        if both:
            raise UserError(
                f"{folder / f'valclasses{i}.txt'}: {min(both)!r} is a training class as well "
                f"(trainclasses{i}.txt); the lists must be disjoint."
            )
        out.append((train, val))
    return tuple(out)


def named_table(folder: Folder, source: str, class_names: Sequence[str], n_images: int) -> tuple[Array, bool] | None:
    """A table ``SOURCE.mat|npz|npy|csv|txt`` of the folder: rows and whether they are images; ``None`` if absent.

    ``.mat`` and ``.npz`` hold one matrix (or one named ``att`` or SOURCE); ``.csv`` a header and a class name first in
    each row; ``.txt`` numbers, or a class name and numbers in each line, as word vectors come.
    """
    for suffix in (".mat", ".npz", ".npy", ".csv", ".txt"):
        path = folder / f"{source}{suffix}"
        if path.is_file():
            break
    else:
        return None
    folder.use(path)
    if suffix == ".csv":
        from zsl.data.readers.tabular import read_class_csv

        names, _, rows = read_class_csv(path)
        return ordered(rows, names, class_names, path), False
    if suffix == ".txt":
        lines = read_lines(path)
        first = lines[0].split() if lines else []
        if len(lines) > 1 and len(first) == 2 and all(v.isdigit() for v in first) and _is_header(first, lines[1]):
            lines, first = lines[1:], lines[1].split()
        if first and not _is_number(first[0]):
            return _word_vectors(lines, class_names, path), False
        table = read_table(path)
    elif suffix == ".npy":
        table = read_npy(path)
    else:
        stored = (read_npz if suffix == ".npz" else read_mat)(path)
        matrices = {k: v for k, v in stored.items() if v.ndim == 2 and min(v.shape) > 1}
        key = next((k for k in ("att", source) if k in stored), None)
        if key is None and len(matrices) != 1:
            raise UserError(
                f"{path} holds {', '.join(sorted(stored)) or 'nothing'}; name the table 'att' so that it is found."
            )
        table = stored[key] if key else next(iter(matrices.values()))
    if table.ndim == 2 and len(class_names) not in table.shape and n_images in table.shape:
        return class_rows(table, n_images, path, source, published="rows"), True
    return class_rows(table, len(class_names), path, source, published="columns" if suffix == ".mat" else "rows"), False


def ordered(rows: Array, names: Sequence[str], class_names: Sequence[str], path: Path) -> Array:
    """``rows`` (one per name) in the order of ``class_names``; every class must have one."""
    index = {n: i for i, n in enumerate(names)}
    if len(index) < len(names):
        twice = next((n for n, k in Counter(names).items() if k > 1 and n in set(class_names)), None)
        if twice is not None:
            raise UserError(f"{path}: the class {twice!r} has more than one row; keep one.")
    for name in class_names:
        if name not in index:
            raise UserError(
                f"{path} has no row for the class {name!r}{near(name, tuple(names))}; every class needs one."
            )
    return rows[[index[n] for n in class_names]]


def _word_vectors(lines: list[str], class_names: Sequence[str], path: Path) -> Array:
    names, rows = [], []
    for i, line in enumerate(lines):
        name, *numbers = line.split()
        try:
            rows.append([float(v) for v in numbers])
        except ValueError:
            raise UserError(f"{path}: line {i + 1} is not a name and numbers; write NAME 0.1 0.2 ...") from None
        if len(rows[-1]) != len(rows[0]):
            raise UserError(f"{path}: line {i + 1} has {len(rows[-1])} numbers where the first has {len(rows[0])}.")
        names.append(name)
    return ordered(np.array(rows), names, class_names, path)


def _is_header(first: list[str], line: str) -> bool:
    """Whether a file of word vectors starts as word2vec writes it: number of words, number of dimensions."""
    name, *numbers = line.split()
    return not _is_number(name) and len(numbers) == int(first[1])


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
