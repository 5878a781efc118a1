"""Folders in the layout of "Zero-shot learning: the good, the bad and the ugly" (Xian et al.), ``xlsa17``.

``NAME.mat`` or ``NAME.npz`` holds ``features`` and ``labels``, ``att_splits.mat`` the class table and the proposed
split, ``att_splits_ss.mat`` (or ``../standard_split/FOLDER/att_splits.mat``, as published) the standard one.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from zsl.checks import Array
from zsl.data.dataset import ImageTable, Split
from zsl.data.files import need, read_mat, read_npz
from zsl.errors import UserError

# Feature names of this project that the published archive stores under another.
_STORED_AS = {"resnet101": "res101"}

HOW_TO_GET = (
    "download xlsa17.zip from the page of 'Zero-shot learning: the good, the bad and the ugly' (Xian et al.) "
    "and put its folder there, or set ZSL_DATA (or dataset.root) to where it is"
)


def load(root: str, *, feature: str = "resnet101", name: str = "xlsa17") -> ImageTable:
    """Read a folder: features of every image, the class table, and the splits that are stored with it.

    Parameters
    ----------
    root : folder
        Holds ``att_splits.mat`` and the feature file.
    feature : str
        ``resnet101`` is ``res101.mat``; any other name is ``NAME.mat`` or ``NAME.npz``.
    name : str
        What to call the dataset in results.

    Raises
    ------
    UserError
        For a file or key that is missing or unreadable, shapes that do not fit, labels or locations out of range.
    """
    folder = Path(root).expanduser()
    if not folder.is_dir():
        raise UserError(f"dataset={name} is not here: the folder {folder} does not exist; {HOW_TO_GET}.")
    path = _feature_file(folder, feature, name)
    arrays = (read_npz if path.suffix == ".npz" else read_mat)(path, ["features", "labels"])
    features, labels = _features(need(arrays, "features", path), need(arrays, "labels", path), path)

    table = folder / "att_splits.mat"
    if not table.is_file():
        raise UserError(f"dataset={name}: {table} is missing; {HOW_TO_GET}.")
    stored = read_mat(table)
    class_names, attributes = _class_table(stored, labels, table)
    if labels.max() >= len(class_names):
        bad = int(labels.argmax())
        raise UserError(
            f"{path}: image {bad + 1} has label {labels.max() + 1}, but {table} has {len(class_names)} classes."
        )

    splits = {"proposed": _split(stored, "proposed", labels, table)}
    standard = [
        folder / "att_splits_ss.mat",
        folder.parent / "standard_split" / folder.name / "att_splits.mat",
    ]
    for candidate in standard:
        if candidate.is_file():
            other = read_mat(candidate)
            if _class_table(other, labels, candidate)[0] != class_names:
                raise UserError(f"{candidate} lists other classes, or in another order, than {table}; they must agree.")
            splits["standard"] = _split(other, "standard", labels, candidate)
            break
    return ImageTable(
        name=name,
        feature=feature,
        features=features,
        labels=labels,
        class_names=class_names,
        attributes=attributes,
        splits=splits,
        n_unseen=len(splits["proposed"].unseen),
        provenance={
            "root": str(folder),
            "feature_file": path.name,
            "missing_splits": {"standard": f"it would be read from {standard[0]} or {standard[1]}; "},
        },
    )


def _feature_file(folder: Path, feature: str, name: str) -> Path:
    stem = _STORED_AS.get(feature, feature)
    for suffix in (".mat", ".npz"):
        if (folder / f"{stem}{suffix}").is_file():
            return folder / f"{stem}{suffix}"
    there = sorted(
        p.stem
        for p in folder.iterdir()
        if p.suffix in {".mat", ".npz"} and not p.name.startswith(("att_splits", "binaryAtt"))
    )
    remedy = f"the folder has: {', '.join(there)} (choose with feature.name=NAME)" if there else HOW_TO_GET
    raise UserError(f"dataset={name}, feature={feature}: {folder / stem}.mat (or .npz) is missing; {remedy}.")


def _features(features: Array, labels: Array, path: Path) -> tuple[Array, Array]:
    """Images as rows whatever the orientation, labels 0-based."""
    labels = labels.ravel()
    if not np.issubdtype(labels.dtype, np.number) or np.any(labels != np.floor(labels)):
        raise UserError(
            f"{path}: labels hold {labels.dtype} values that are not whole numbers; class numbers are needed."
        )
    labels = labels.astype(np.int64)
    if features.ndim != 2 or len(labels) not in features.shape:
        raise UserError(
            f"{path}: features have shape {features.shape} and there are {len(labels)} labels; "
            "one side must be as long as the labels."
        )
    # Published .mat files are features x images, .npz files images x features: this decides a square matrix only.
    as_published = features.shape[0] if path.suffix == ".npz" else features.shape[1]
    images_first = as_published == len(labels) if path.suffix == ".npz" else as_published != len(labels)
    rows = features if images_first else features.T
    if labels.min() not in (0, 1):
        raise UserError(f"{path}: the smallest label is {labels.min()}; labels count classes from 1 (or 0).")
    if not np.isfinite(rows).all():
        image, column = np.argwhere(~np.isfinite(rows))[0]
        raise UserError(
            f"{path}: feature {column + 1} of image {image + 1} is {rows[image, column]}; repair or drop the image."
        )
    dtype = np.float64 if rows.dtype == np.float64 else np.float32
    return np.ascontiguousarray(rows, dtype=dtype), labels - labels.min()


def _class_table(stored: dict[str, Array], labels: Array, path: Path) -> tuple[tuple[str, ...], Array]:
    """Class names and one attribute row per class, whichever way the table lies."""
    att = need(stored, "att", path)
    names = tuple(str(c).strip() for c in stored["allclasses_names"].ravel()) if "allclasses_names" in stored else None
    n_classes = len(names) if names else int(labels.max()) + 1
    if att.ndim != 2 or n_classes not in att.shape:
        raise UserError(
            f"{path}: att has shape {att.shape}, but there are {n_classes} classes; one side must be the classes."
        )
    attributes = np.ascontiguousarray(att.T if att.shape[1] == n_classes else att, dtype=np.float64)
    if not np.isfinite(attributes).all():
        c, a = np.argwhere(~np.isfinite(attributes))[0]
        raise UserError(f"{path}: attribute {a + 1} of class {c + 1} is {attributes[c, a]}; impute or remove it.")
    return names or tuple(f"class_{c + 1}" for c in range(n_classes)), attributes


def _split(stored: dict[str, Array], name: str, labels: Array, path: Path) -> Split:
    def rows(key: str, *, required: bool = True) -> Array:
        if key not in stored and not required:
            return np.empty(0, np.int64)
        # Stored as uint16 or double; int64 first, since arithmetic on uint16 overflows.
        loc = need(stored, key, path).ravel().astype(np.int64)
        if loc.size and (loc.min() < 1 or loc.max() > len(labels)):
            raise UserError(
                f"{path}: {key} points to image {loc.max() if loc.max() > len(labels) else loc.min()}, but there are "
                f"{len(labels)} images (counted from 1); features and splits belong to different datasets."
            )
        return loc - 1

    test_unseen = rows("test_unseen_loc")
    return Split(
        name=name,
        trainval=rows("trainval_loc"),
        test_seen=rows("test_seen_loc", required=False),
        test_unseen=test_unseen,
        unseen=np.unique(labels[test_unseen]),
        origin={"file": path.name},
    )
