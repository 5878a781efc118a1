"""Your own data: a file of features, labels by name, and a table of class attributes.

``zsl extract`` writes the feature file from images; any other program may.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from zsl.checks import Array
from zsl.data.cache import Folder
from zsl.data.readers.chunked import read_zarr
from zsl.data.readers.columns import Columns, number_columns, read_csv, without_numbering
from zsl.data.readers.features import NAME_KEYS, as_float32, named_labels
from zsl.data.readers.files import as_text, need, read_lines, read_npy, read_npz, reading
from zsl.data.readers.tables import class_semantics, image_semantics, read_class_table
from zsl.data.splits import hold_out, named_classes
from zsl.data.table import ImageTable, content_hash
from zsl.errors import UserError, did_you_mean

_LABEL_COLUMNS = ("label", "class", "class_name", "labels")
_FILE_COLUMNS = ("file", "filename", "path", "image")
# Images of such a label, in a folder of such a name or without any label are only ever predicted.
UNKNOWN = {"unlabelled", "unlabeled", "unknown", "", "nan", "na", "n/a", "none", "null", "?"}


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
        ``.npz`` (``features`` n x d; optional ``labels``, ``class_names``, ``files``) or a ``.zarr`` folder of the same
        arrays, ``.npy`` (n x d), ``.csv`` or
        ``.parquet`` (numeric columns; a column ``label`` or ``class`` holds class names, ``file`` image names). Of a
        folder, the file ``FEATURE.npz`` in it.
    attributes : file
        ``.csv``: a header, then one row per class: its name, then numbers (an empty field is missing). If the first
        column holds the file names of all images instead, the attributes are image-level. Or ``.npz``, as ``zsl
        describe`` makes it of sentences: ``attributes`` C x q, ``class_names``, perhaps ``attribute_names``.
    labels : file, optional
        Class names, one per line in the order of the features (``?`` or ``unlabelled``: only to be predicted), or
        ``.npy`` of names. Default: in ``features``.
    unseen : file, optional
        Names of the unseen classes, one per line: what ``split=proposed`` uses. Default: the classes of
        the table that have no labelled image, where there are any.
    feature : str
        What to call the features in results; in a folder of features, the name of the file.
    root : folder, optional
        What relative paths start from.
    cache : see :class:`zsl.data.cache.Folder`.

    Raises
    ------
    UserError
        For a file that is missing or unreadable, counts that disagree, and an image whose class has no attributes.
    """
    folder = Folder(root or ".", cache)
    path = _existing(folder, features, "features", f"{feature}.npz")
    found = _read(folder, path)
    X, files = found["features"], tuple(found["files"].tolist()) if "files" in found else ()
    beside = None if labels is None else folder.use(_existing(folder, labels, "labels"))
    if beside is None and "labels" not in found:
        raise UserError(
            f"{path} holds no labels; add them ('labels' in .npz, a column 'label' in a table) "
            "or set dataset.labels=FILE."
        )
    table = folder.use(_existing(folder, attributes, "attributes"))
    names, attribute_names, rows, about = read_class_table(table)
    y = found["labels"].tolist() if beside is None else _read_labels(beside, names)
    if len(y) != len(X):
        raise UserError(f"dataset={name}: {len(y)} labels for {len(X)} rows of {path}; there must be one each.")
    image_level = bool(files) and len(rows) == len(X) and set(names) == set(files)
    if image_level:
        order = {n: i for i, n in enumerate(names)}
        names = tuple(sorted({label for label in y if label.strip().lower() not in UNKNOWN}))
        semantics = image_semantics(rows[[order[f] for f in files]].astype(np.float32), len(names))
    else:
        semantics = class_semantics(rows)
    blocks = () if image_level else tuple(size for _, size in about.get("attribute_blocks", ()))
    columns = _text(found, "columns")
    result = ImageTable(
        name=name,
        feature=feature,
        features=X,
        labels=_class_numbers(y, names, table),
        class_names=names,
        attribute_names=attribute_names,
        attribute_blocks=blocks if len(blocks) > 1 else (),
        image_names=files,
        semantics="image" if image_level else "continuous",
        provenance={
            "root": str(folder.root),
            "layout": "tabular",
            "feature_file": path.name,
            "network": _text(found, "network"),
            **({"columns": columns, "column_order": _text(found, "order")} if columns else {}),
            **about,
            "files": folder.files,
            "missing_splits": {"proposed": "name the unseen classes in a file and set dataset.unseen=FILE, "},
        },
        **semantics._asdict(),
    )
    if unseen is not None:
        path = folder.use(_existing(folder, unseen, "unseen"))
        classes, origin = named_classes(result, read_lines(path, names), str(path)), path.name
    else:
        classes, origin = np.setdiff1d(np.arange(len(names)), result.labels), "classes without labelled images"
        if not classes.size or (result.labels >= 0).all():
            return result
    split = hold_out(result, classes, np.random.default_rng(0), "proposed", {"unseen": origin, "seed": 0})
    return replace(result, splits={"proposed": split}, n_unseen=len(classes))


def read_features(path: Path, order: str = "") -> tuple[Array, tuple[str, ...], str]:
    """Rows (n, d) float32 of a feature file alone, their file names (or none), and what made them (or nothing).

    ``order`` is the digest of the columns that training's features had in a table with names, if they had any.

    Raises
    ------
    UserError
        For a file that is missing, of another kind, or unreadable, and for other columns than ``order``.
    """
    if not path.is_file() and path.suffix != ".zarr":
        raise UserError(f"there is no file {path}; give a file of features, or a folder of images.")
    # Labels are not wanted, so they need no names either.
    found = _read(Folder(path.parent, "off"), path, labelled=False)
    if order and _text(found, "order") not in ("", order):
        raise UserError(
            f"{path} has the columns {_text(found, 'columns')}, which are not those of training's features in name and "
            "order; give the same columns in the same order."
        )
    return found["features"], tuple(found["files"].tolist()) if "files" in found else (), _text(found, "network")


def read_labels(path: Path) -> list[str]:
    """The class names of a feature file's rows.

    Raises
    ------
    UserError
        If the file has no labels, is missing or cannot be read.
    """
    found = _read(Folder(path.parent, "off"), path)
    if "labels" not in found:
        raise UserError(f"{path} holds no labels; add them ('labels' in .npz, a column 'label' in a table).")
    return [str(label) for label in found["labels"]]


def _class_numbers(y: list[str], names: tuple[str, ...], table: Path) -> Array:
    """Labels as positions in ``names``; -1 where the class is unknown."""
    index = {c: i for i, c in enumerate(names)}
    # A name of the table is a class, whatever else it could mean (NA, none, unknown).
    known = {**dict.fromkeys(set(y), -1), **index}
    for label in set(y) - set(names):
        if label.strip().lower() not in UNKNOWN:
            if _as_whole(label) not in index:
                raise UserError(
                    f"{table} has no row for the class {label!r}, which has images{did_you_mean(label, names)}; "
                    "every class needs one."
                )
            known[label] = index[_as_whole(label)]
    return np.array([known[label] for label in y], dtype=np.int64)


def _as_whole(label: str) -> str:
    """``3.0`` as ``3``: what a table makes of whole numbers where one is missing."""
    head, point, tail = label.partition(".")
    return head if point and head.lstrip("-").isdigit() and not tail.strip("0") else label


def _existing(folder: Folder, file: str, key: str, inside: str | None = None) -> Path:
    path = folder / str(Path(file).expanduser())
    if path.is_dir() and path.suffix == ".zarr":
        return path
    if path.is_dir() and inside is not None:
        if not (path / inside).is_file():
            there = ", ".join(sorted(p.stem for p in path.glob("*.npz"))) or "none"
            raise UserError(
                f"dataset.{key}={file} is a folder without {inside}; name one of its files, feature=NAME or "
                f"feature=[NAME,NAME] (there: {there})."
            )
        return path / inside
    if path.is_dir():
        raise UserError(f"dataset.{key}={file} is a folder; give the file in it.")
    if not path.is_file():
        raise UserError(f"dataset.{key}={file}: there is no file {path}; give its path (relative to dataset.root).")
    return path


def _text(found: Any, key: str) -> str:
    return str(found[key][0]) if key in found else ""


def _read(folder: Folder, path: Path, *, labelled: bool = True) -> Any:
    """Arrays of a feature file: ``features`` (n, d) float32 and, where it has them, labels, files, network, columns."""

    def make() -> dict[str, Array]:
        suffix = path.suffix.lower()
        if suffix == ".npy":
            return {"features": as_float32(read_npy(path), path)}
        if suffix in {".npz", ".zarr"}:
            return _from_arrays(path, labelled)
        if suffix in {".csv", ".parquet"}:
            return _from_columns(path)
        raise UserError(f"{path} is no file of features; give a .npz, .zarr, .npy, .csv or .parquet.")

    files = sorted(f for f in path.rglob("*") if f.is_file()) if path.is_dir() else [path]
    return folder.cached(f"tabular-{path.name}", files, make)


def _from_arrays(path: Path, labelled: bool) -> dict[str, Array]:
    keys = ["features", *(["labels", "class_names"] if labelled else []), *NAME_KEYS, "network"]
    if path.suffix.lower() == ".zarr":
        stored = {key: array for key, array in read_zarr(path, features=True).items() if key in keys}
    else:
        stored = read_npz(path, keys)
    stored |= next(({"files": stored[key]} for key in NAME_KEYS if key in stored), {})
    out = {"features": as_float32(need(stored, "features", path), path)}
    if "labels" in stored:
        labels = stored["labels"].ravel()
        if labels.dtype.kind not in "US":  # numbers that count class_names from 1
            if "class_names" not in stored:
                raise UserError(
                    f"{path}: labels are numbers and there are no 'class_names' that they could count; store names."
                )
            labels = named_labels(labels, stored["class_names"], path)
        out["labels"] = as_text(labels, path, "labels")
    return out | {key: as_text(stored[key], path, key) for key in ("network", "files") if key in stored}


def _from_columns(path: Path) -> dict[str, Array]:
    """Features of a CSV or parquet file: every column that is neither a label nor a file name."""
    texts, names, X = read_csv(path, _text_columns) if path.suffix.lower() == ".csv" else _read_parquet(path)
    out: dict[str, Array] = {}
    for key, columns in (("labels", _LABEL_COLUMNS), ("files", _FILE_COLUMNS)):
        found = {name: [field.strip() for field in texts[name]] for name in texts if name.lower() in columns}
        if len({tuple(fields) for fields in found.values()}) > 1:
            raise UserError(
                f"{path}: the columns {' and '.join(map(repr, found))} both may hold the {key} of the images; keep one."
            )
        if found:
            out[key] = as_text(np.array(next(iter(found.values())), dtype=str), path, key)
    features = without_numbering(X, names, path, "images")
    names = [name for name, kept in zip(names, features, strict=True) if kept]
    shown = names if len(names) <= 6 else [*names[:3], "...", names[-1]]
    left_out = "" if features.all() else " (a column without a name, which counts the rows, is left out)"
    out |= {"features": as_float32(X[:, features], path), "columns": np.array([f"{', '.join(shown)}{left_out}"])}
    return out | {"order": np.array([content_hash(np.array(names))])}


def _text_columns(header: list[str], _: list[str]) -> set[int]:
    return {i for i, name in enumerate(header) if name.lower() in {*_LABEL_COLUMNS, *_FILE_COLUMNS}}


def _read_parquet(path: Path) -> Columns:
    import pandas as pd

    with reading(path, "parquet file"):
        frame = pd.read_parquet(path)
        header = ["" if str(c).startswith("Unnamed:") else str(c).strip() for c in frame.columns]
        frame.columns = range(len(header))
        places = _text_columns(header, [])
        texts = {header[i]: [_as_whole(str(v)) if isinstance(v, float) else str(v)
                             for v in frame[i].astype(object).fillna("")] for i in places}  # fmt: skip
        names = [name for i, name in enumerate(header) if i not in places]
        return Columns(texts, names, number_columns(frame.drop(columns=list(places)), names, path))


def _read_labels(path: Path, names: tuple[str, ...]) -> list[str]:
    if path.suffix.lower() != ".npy":
        return read_lines(path, names)
    labels = read_npy(path)
    if labels.dtype.kind not in "US":
        raise UserError(f"{path}: labels are {labels.dtype}; store class names.")
    return list(as_text(labels, path, "labels").tolist())
