"""Your own data: a file of features, labels by name, and a table of class attributes.

``python -m zsl.extract`` writes the feature file from images; any other program may.
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from zsl.checks import Array
from zsl.data.cache import Folder
from zsl.data.readers.files import as_text, need, read_lines, read_npy, read_npz, text_lines
from zsl.data.readers.tables import as_float32, class_rows, missing_values
from zsl.data.splits import hold_out, named_classes
from zsl.data.table import ImageTable, near
from zsl.errors import UserError

_LABEL_COLUMNS = ("label", "class", "class_name", "labels")
_FILE_COLUMNS = ("file", "filename", "path", "image")
# Columns that number the images rather than describe them.
_NUMBER_COLUMNS = {"id", "index", "idx", "image_id", "row", "number", "nr"}
# Images in a folder or with a label of this name, or with no label at all, are only ever predicted.
_UNKNOWN = {"unlabelled", "unlabeled", "unknown"}
_EMPTY = {"", "nan", "na", "n/a", "none", "null", "?"}
# What stands for "no value" in a column of numbers. In columns of text nothing does: "NA" may be a class.
_NO_NUMBER = ["", "nan", "NaN", "NAN", "NA", "N/A", "n/a", "null", "NULL", "None", "?"]


def load(
    features: str,
    *,
    attributes: str,
    labels: str | None = None,
    unseen: str | None = None,
    feature: str = "own",
    name: str = "tabular",
    root: str | None = None,
    cache: str | None = None,
) -> ImageTable:
    """Read features, labels and attributes; classes are numbered in the order of the attribute table.

    Parameters
    ----------
    features : file
        ``.npz`` (``features`` n x d; optional ``labels``, ``class_names``, ``files``), ``.npy`` (n x d), ``.csv`` or
        ``.parquet`` (numeric columns; a column ``label`` or ``class`` holds class names, ``file`` image names).
    attributes : file
        ``.csv``: a header, then one row per class: its name, then numbers (an empty field is missing). With a first
        column ``file`` instead, and as many rows as images, it is image-level.
    labels : file, optional
        Class names, one per line in the order of the features (``?`` or ``unlabelled``: only to be predicted), or
        ``.npy`` of names. Default: in ``features``.
    unseen : file, optional
        Names of the unseen classes, one per line: what ``split=proposed`` uses. Default: the classes of
        the table that have no labelled image, where there are any.
    feature : str
        What to call the features in results.
    root : folder, optional
        What relative paths start from.

    Raises
    ------
    UserError
        For a file that is missing or unreadable, counts that disagree, an image whose class has no attributes (near
        misses are named), a class named twice.
    """
    folder = Folder(root or ".", cache)
    path = _existing(folder, features, "features")
    X, y, files, network, columns = _read_features(folder, path)
    if labels is not None:
        y = _read_labels(folder.use(_existing(folder, labels, "labels")))
    if y is None:
        raise UserError(
            f"{path} holds no labels; add them ('labels' in .npz, a column 'label' in a table) "
            "or set dataset.labels=FILE."
        )
    if len(y) != len(X):
        raise UserError(f"dataset={name}: {len(y)} labels for {len(X)} rows of {path}; there must be one each.")
    table = folder.use(_existing(folder, attributes, "attributes"))
    names, attribute_names, rows = read_class_csv(table)
    image_rows = None
    if files and len(rows) == len(X) and set(names) == set(files):
        order = {n: i for i, n in enumerate(names)}
        image_rows = rows[[order[f] for f in files]].astype(np.float32)
        names = tuple(sorted({label for label in y if label.strip().lower() not in _EMPTY | _UNKNOWN}))
        rows = np.zeros((len(names), image_rows.shape[1]))
    index = {c: i for i, c in enumerate(names)}
    # A name of the table is a class, whatever else it could mean (NA, none, unknown).
    y = ["" if label not in index and label.strip().lower() in _EMPTY | _UNKNOWN else label for label in y]
    y = [_as_whole(label) if label not in index and _as_whole(label) in index else label for label in y]
    for label in dict.fromkeys(y):
        if label and label not in index:
            raise UserError(
                f"{table} has no row for the class {label!r}, which has images{near(label, names)}; "
                "every class needs one."
            )
    result = ImageTable(
        name=name,
        feature=feature,
        features=X,
        labels=np.array([index.get(label, -1) for label in y], dtype=np.int64),
        class_names=names,
        attributes=rows,
        missing=missing_values(rows),
        image_attributes=image_rows,
        attribute_names=attribute_names,
        image_names=files,
        semantics="image" if image_rows is not None else "continuous",
        provenance={
            "root": str(folder.root),
            "layout": "tabular",
            "network": network,
            **({"columns": columns} if columns else {}),
            "files": folder.files,
            "missing_splits": {"proposed": "name the unseen classes in a file and set dataset.unseen=FILE, "},
        },
    )
    if unseen is not None:
        path = folder.use(_existing(folder, unseen, "unseen"))
        classes, origin = named_classes(result, read_lines(path), str(path)), path.name
        if not 0 < len(classes) < len(names):
            raise UserError(f"{path} names {len(classes)} of {len(names)} classes; some must be seen.")
    else:
        classes, origin = np.setdiff1d(np.arange(len(names)), result.labels), "classes without labelled images"
        if not classes.size or (result.labels >= 0).all():
            return result
    split = hold_out(result, classes, np.random.default_rng(0), "proposed", {"unseen": origin, "seed": 0})
    return replace(result, splits={"proposed": split}, n_unseen=len(classes))


def read_features(path: Path) -> tuple[Array, tuple[str, ...], str]:
    """Rows (n, d) float32 of a feature file alone, their file names (or none), and what made them (or nothing).

    Raises
    ------
    UserError
        For a file that is missing, of another kind, or unreadable.
    """
    if not path.is_file():
        raise UserError(f"there is no file {path}; give a file of features, or a folder of images.")
    # Labels are not wanted, so they need no names either.
    X, _, files, network, _ = _read_features(Folder(path.parent, "off"), path, labelled=False)
    return X, files, network


def read_class_csv(path: Path) -> tuple[tuple[str, ...], tuple[str, ...], Array]:
    """Names (C), attribute names (q) and rows (C, q) of a CSV with a header; empty fields are NaN.

    Raises
    ------
    UserError
        For rows of differing length, fields that are no numbers, names that are empty or occur twice.
    """
    lines = text_lines(path)
    if not lines:
        raise UserError(f"{path} is empty; it needs a header and one row per class.")
    delimiter = _delimiter(lines[0])
    try:
        reader = [[field.strip() for field in row] for row in csv.reader(lines, delimiter=delimiter) if any(row)]
    except csv.Error as error:
        raise UserError(f"{path} is not a readable CSV ({error}); save it again.") from None
    header, body = reader[0], reader[1:]
    if len(header) < 2 or not body:
        raise UserError(f"{path} has {len(header)} columns and {len(body)} rows; it needs a header, names and numbers.")
    _need_header(header[1:], path)
    for a, name in enumerate(header[1:]):
        if not name:
            raise UserError(f"{path}: column {a + 2} has no name in the header; name the attribute or remove it.")
        if header[1:].count(name) > 1:
            raise UserError(f"{path}: the header names {name!r} more than once; each attribute needs its own name.")
    names, rows = [], np.empty((len(body), len(header) - 1))
    for i, row in enumerate(body):
        if len(row) != len(header):
            raise UserError(f"{path}: row {i + 2} has {len(row)} fields where the header has {len(header)}.")
        names.append(row[0])
        for a, field in enumerate(row[1:]):
            try:
                if delimiter == ";":  # where lists are separated so, a comma stands in numbers
                    field = field.replace(",", ".")
                rows[i, a] = np.nan if field.lower() in _EMPTY else float(field)
            except ValueError:
                raise UserError(
                    f"{path}: {header[a + 1]!r} of {row[0]!r} is {field!r}, which is not a number (leave it empty if "
                    "it is unknown)."
                ) from None
    if "" in names:
        raise UserError(f"{path}: row {names.index('') + 2} has no name in its first column.")
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice is not None:
        raise UserError(f"{path}: {twice!r} occurs more than once; each name may have one row.")
    return tuple(names), tuple(header[1:]), class_rows(rows, len(rows), path, "the table", published="rows")


def _delimiter(header: str) -> str:
    """Spreadsheets of some countries write semicolons."""
    return max(",;\t", key=header.count)


def _need_header(header: Sequence[str], path: Path) -> None:
    """Refuse a first line of data. Whole numbers in order are names, as programs that know no better write them."""
    try:
        numbers = [float(name) for name in header]
    except ValueError:
        return
    start = numbers[0] if numbers else 0
    if start not in (0, 1) or numbers != [start + i for i in range(len(numbers))]:
        raise UserError(f"{path}: its first line holds numbers ({header[0]}, ...); put a header of column names above.")


def _as_whole(label: str) -> str:
    """``3.0`` as ``3``: what a table makes of whole numbers where one is missing."""
    head, point, tail = label.partition(".")
    return head if point and head.lstrip("-").isdigit() and not tail.strip("0") else label


def _existing(folder: Folder, file: str, key: str) -> Path:
    path = folder / str(Path(file).expanduser())
    if path.is_dir():
        raise UserError(f"dataset.{key}={file} is a folder; give the file in it.")
    if not path.is_file():
        raise UserError(f"dataset.{key}={file}: there is no file {path}; give its path (relative to dataset.root).")
    return path


def _read_features(
    folder: Folder, path: Path, *, labelled: bool = True
) -> tuple[Array, list[str] | None, tuple[str, ...], str, str]:
    """Rows (n, d) float32, class names of the images (or None), file names (or none), what made the rows, columns."""
    suffix = path.suffix.lower()

    def make() -> dict[str, Array]:
        if suffix == ".npy":
            return {"features": as_float32(_matrix(read_npy(path), path), path)}
        if suffix == ".npz":
            return _from_npz(path, labelled)
        if suffix in {".csv", ".parquet"}:
            return _from_frame(path)
        raise UserError(
            f"dataset.features={path}: {path.suffix or 'no suffix'}; .npz, .npy, .csv or .parquet is needed."
        )

    found = folder.cached(f"{path.stem}{path.suffix.replace('.', '-')}", [path], make)
    labels = found["labels"].tolist() if "labels" in found else None
    files = tuple(found["files"].tolist()) if "files" in found else ()
    if files and len(files) != len(found["features"]):
        raise UserError(f"{path}: {len(files)} file names for {len(found['features'])} rows; there must be one each.")
    said = {k: str(found[k][0]) if k in found else "" for k in ("network", "columns")}
    return found["features"], labels, files, said["network"], said["columns"]


def _matrix(X: Array, path: Path) -> Array:
    if X.ndim != 2:
        raise UserError(f"{path}: features have shape {X.shape}; one row per image is needed.")
    return X


def _from_npz(path: Path, labelled: bool) -> dict[str, Array]:
    stored = read_npz(path, ["features", *(["labels", "class_names"] if labelled else []), "files", "network"])
    out = {"features": as_float32(_matrix(need(stored, "features", path), path), path)}
    if "labels" in stored:
        out["labels"] = _names_of(stored["labels"].ravel(), stored.get("class_names"), path)
    for key in ("network", "files"):
        if key in stored:
            out[key] = as_text(stored[key], path, key)
    return out


def _names_of(labels: Array, class_names: Array | None, path: Path) -> Array:
    """Labels as names: they are names already, or 1-based numbers into ``class_names``."""
    if not labels.size:
        raise UserError(f"{path}: there are no labels; one for each row of features is needed.")
    if labels.dtype.kind in "US":
        return as_text(labels, path, "labels")
    if class_names is None:
        raise UserError(
            f"{path}: labels are numbers and there are no 'class_names' that they could count; store names."
        )
    names = as_text(class_names, path, "class_names")
    if not np.issubdtype(labels.dtype, np.integer) or labels.min() < 1 or labels.max() > len(names):
        raise UserError(f"{path}: labels must be whole numbers from 1 to {len(names)}, the number of class_names.")
    return names[labels.astype(np.int64) - 1]


def _from_frame(path: Path) -> dict[str, Array]:
    import pandas as pd

    try:
        frame = pd.read_parquet(path) if path.suffix.lower() == ".parquet" else _read_csv(path)
    except UserError:
        raise
    except Exception as error:
        # pandas and its parquet engines raise whatever they stumble over.
        raise UserError(f"{path} cannot be read: {' '.join(str(error).split())[:150]}; save it again.") from None
    out: dict[str, Array] = {}
    lower = {str(c).strip().lower(): c for c in frame.columns}
    for key, columns in (("labels", _LABEL_COLUMNS), ("files", _FILE_COLUMNS)):
        column = next((lower[c] for c in columns if c in lower), None)
        if column is not None:
            text = [_as_whole(str(v)).strip() if isinstance(v, float) else str(v).strip()
                    for v in frame.pop(column).astype(object).fillna("")]  # fmt: skip
            out[key] = as_text(np.array(text, dtype=str), path, key)
    frame, left_out = _without_numbering(frame, path)
    text = [str(c) for c in frame.columns if not pd.api.types.is_numeric_dtype(frame[c])]
    if text:
        raise UserError(f"{path}: the column {text[0]!r} is neither a number nor called label or file; remove it.")
    out["features"] = as_float32(_matrix(frame.to_numpy(), path), path)
    names = [str(c) for c in frame.columns]
    shown = names if len(names) <= 6 else [*names[:3], "...", names[-1]]
    out["columns"] = np.array([f"{', '.join(shown)}{left_out}"])
    return out


def _read_csv(path: Path) -> Any:
    """A data frame whose label and file columns are the text that stands in the file: ``NA``, ``01`` and all."""
    import pandas as pd

    with path.open(encoding="utf-8-sig", newline="") as f:
        start = [line.rstrip("\r\n") for line in itertools.islice(f, 2)]
    if len(start) < 2:
        raise UserError(f"{path} has {len(start)} lines; it needs a header and one row per image.")
    delimiter = _delimiter(start[0])
    header, first = csv.reader(start, delimiter=delimiter)
    _need_header(header, path)
    if len(first) != len(header):
        raise UserError(
            f"{path}: line 2 has {len(first)} fields where the header has {len(header)}; there must be one each."
        )
    texts = [c for c in header if c.strip().lower() in {*_LABEL_COLUMNS, *_FILE_COLUMNS}]
    # Where lists are separated by semicolons, a comma stands in numbers.
    decimal = "," if delimiter == ";" and any("," in field for field in first) else "."
    return pd.read_csv(
        path, sep=delimiter, decimal=decimal, dtype=dict.fromkeys(texts, str), keep_default_na=False,
        na_values={c: _NO_NUMBER for c in header if c not in texts}, encoding="utf-8-sig",
    )  # fmt: skip


def _without_numbering(frame: Any, path: Path) -> tuple[Any, str]:
    """The frame without the index that pandas writes before a table; any other numbering of rows is refused."""
    left_out = ""
    for column in list(frame.columns):
        values = frame[column].to_numpy()
        whole = values.dtype.kind in "iu" or (values.dtype.kind == "f" and bool((values == np.floor(values)).all()))
        counts = whole and len(values) > 2 and bool((np.diff(values.astype(np.float64)) == 1).all())
        name = str(column).strip()
        nameless = not name or name.startswith("Unnamed:")
        if nameless and counts:
            frame = frame.drop(columns=column)
            left_out = " (a column without a name, which counts the rows, is left out)"
        elif nameless:
            raise UserError(f"{path}: column {frame.columns.get_loc(column) + 1} has no name; name it or remove it.")
        elif counts or (whole and name.lower() in _NUMBER_COLUMNS):
            raise UserError(
                f"{path}: the column {name!r} numbers the images and would be read as a feature of theirs; remove it, "
                "or call it file if it identifies them."
            )
    return frame, left_out


def _read_labels(path: Path) -> list[str]:
    if path.suffix.lower() == ".npy":
        labels = read_npy(path).ravel()
        if labels.dtype.kind not in "US":
            raise UserError(f"{path}: labels are {labels.dtype}; store class names.")
        return list(as_text(labels, path, "labels").tolist())
    return read_lines(path)


def write_class_csv(path: Path, names: Sequence[str], attribute_names: Sequence[str], rows: Array) -> None:
    """The inverse of :func:`read_class_csv`: NaN becomes an empty field."""
    with path.open("w", newline="", encoding="utf-8") as f:
        writer = csv.writer(f)
        writer.writerow(["class", *attribute_names])
        for name, row in zip(names, rows, strict=True):
            writer.writerow([name, *("" if np.isnan(v) else repr(float(v)) for v in row)])
