"""Caltech-UCSD Birds 200-2011: the xlsa17 folder or the official archive.

The official archive holds ``images.txt``, ``image_class_labels.txt``, ``classes.txt``,
``attributes/class_attribute_labels_continuous.txt`` (0..100) and ``attributes/image_attribute_labels.txt``, and no
features: those are read from ``NAME.npz`` or ``NAME.mat`` beside them (``python -m zsl.extract`` writes it).
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from zsl.checks import Array
from zsl.data.cache import Folder
from zsl.data.readers import xlsa17
from zsl.data.readers.files import read_lines, read_table
from zsl.data.readers.layout import CLASS_LISTS, archive_provenance, choose, with_class_splits
from zsl.data.readers.tables import (
    class_rows,
    feature_file,
    in_image_order,
    missing_values,
    named_table,
    need_same_classes,
    numbered_names,
    read_features,
    validation_lists,
)
from zsl.data.table import ImageTable
from zsl.errors import UserError

# Certainty 1 means that the part was not visible, so that absent says nothing about the bird.
_NOT_VISIBLE = 1


def load(
    root: str,
    *,
    feature: str = "resnet101",
    name: str = "cub",
    semantics: str | None = None,
    layout: Literal["auto", "xlsa17", "official"] = "auto",
    table: str = "att_splits.mat",
    cache: str | None = None,
) -> ImageTable:
    """Caltech-UCSD Birds from ``root``, whichever form lies there.

    Parameters
    ----------
    root, feature, name, cache : see :func:`zsl.data.readers.xlsa17.load`.
    semantics : ``continuous`` (default), ``image`` (each image's own 0/1 annotations; an attribute marked "not visible"
        is missing), or a table of that name in the folder (``wordvec``, ``sentences``).
    layout, table : see :func:`zsl.data.readers.awa.load`.

    Raises
    ------
    UserError
        As :func:`zsl.data.readers.xlsa17.load`.
    """
    found, where = choose(
        root, layout, name=name, marker="image_class_labels.txt", archive="CUB_200_2011", how_to_get=xlsa17.HOW_TO_GET
    )
    if found == "xlsa17":
        return xlsa17.load(str(where), feature=feature, name=name, semantics=semantics, table=table, cache=cache)
    folder = Folder(where, cache)
    class_names = numbered_names(folder.use(folder / "classes.txt"))
    images = numbered_names(folder.use(folder / "images.txt"))
    labels = _labels(folder, len(images), len(class_names))

    path = feature_file(
        where,
        feature,
        name,
        f"the archive holds no features; python -m zsl.extract {where / 'images'} --to {where / 'lite0.npz'} "
        "feature=lite0 makes some (then: feature=lite0)",
    )
    stored = read_features(folder, path)
    order = in_image_order(stored, images, path)
    need_same_classes(stored, order, labels, class_names, path, folder / "image_class_labels.txt")
    in_order = len(order) == len(stored.rows) and bool((order == np.arange(len(order))).all())
    image_rows, rows = None, np.empty((0, 0))
    if semantics in (None, "continuous"):
        table_path = folder.use(folder / "attributes/class_attribute_labels_continuous.txt")
        rows = class_rows(read_table(table_path), len(class_names), table_path, "the table", published="rows")
    elif semantics == "image":
        image_rows = _image_attributes(folder, len(images))
    else:
        other = named_table(folder, semantics, class_names, len(images))
        if other is None:
            raise UserError(
                f"dataset.semantics={semantics}: {where} has no {semantics}.mat, .npz, .npy, .csv or .txt; "
                "there is: continuous, image."
            )
        image_rows, rows = (other[0], rows) if other[1] else (None, other[0])
    if image_rows is not None:
        rows = np.zeros((len(class_names), image_rows.shape[1]))
    result = ImageTable(
        name=name,
        feature=feature,
        features=stored.rows if in_order else stored.rows[order],
        labels=labels,
        class_names=class_names,
        attributes=rows,
        missing=missing_values(rows),
        image_attributes=image_rows,
        attribute_names=_attribute_names(folder, rows.shape[1]),
        image_names=images,
        semantics=semantics or "continuous",
        n_unseen=50 if len(class_names) == 200 else None,
        validation=validation_lists(folder, class_names),
        provenance=archive_provenance(folder, path, stored.network),
    )
    return with_class_splits(result, folder, dict(CLASS_LISTS))


def _labels(folder: Folder, n_images: int, n_classes: int) -> Array:
    path = folder.use(folder / "image_class_labels.txt")
    table = read_table(path, n_columns=2)
    if len(table) != n_images or not np.array_equal(table[:, 0], np.arange(1, n_images + 1)):
        raise UserError(f"{path} does not list the {n_images} images of images.txt in their order.")
    labels = table[:, 1].astype(np.int64) - 1
    if labels.min() < 0 or labels.max() >= n_classes:
        bad = int(np.flatnonzero((labels < 0) | (labels >= n_classes))[0])
        raise UserError(
            f"{path}: image {bad + 1} has class {labels[bad] + 1}, but classes.txt has {n_classes} classes."
        )
    return labels


def _image_attributes(folder: Folder, n_images: int) -> Array:
    """(n, q) 0 or 1, NaN where the attribute was not visible or not annotated."""
    path = folder / "attributes/image_attribute_labels.txt"

    def make() -> dict[str, Array]:
        import pandas as pd

        # A few lines carry one or two fields too many before the time; only the first four matter.
        try:
            lines = pd.read_csv(
                path, sep=r"\s+", header=None, names=list(range(8)), dtype=dict.fromkeys(range(4), np.int32)
            )
        except ValueError as error:
            raise UserError(
                f"{path}: {' '.join(str(error).split())}; lines must be IMAGE ATTRIBUTE PRESENT CERTAINTY TIME."
            ) from None
        image, attribute, present, certainty = (lines[i].to_numpy() for i in range(4))
        if not len(lines):
            raise UserError(f"{path} is empty; unpack the whole archive again.")
        # Every attribute is annotated for some image, so a number beyond that many lines is damage.
        for what, values, lowest, highest in (
            ("image", image, 1, n_images),
            ("attribute", attribute, 1, _most_attributes(folder, len(lines))),
            ("PRESENT", present, 0, 1),
            ("CERTAINTY", certainty, 1, 4),
        ):
            bad = np.flatnonzero((values < lowest) | (values > highest))
            if bad.size:
                raise UserError(
                    f"{path}: line {bad[0] + 1} has the {what} {values[bad[0]]}, which must be from {lowest} to "
                    f"{highest}; unpack the archive again."
                )
        rows = np.full((n_images, int(attribute.max())), np.nan, np.float32)
        visible = certainty != _NOT_VISIBLE
        rows[image[visible] - 1, attribute[visible] - 1] = present[visible]
        return {"rows": rows}

    if not path.is_file():
        raise UserError(f"dataset.semantics=image needs {path}, which is not there; unpack all of the archive.")
    return folder.cached("image_attribute_labels", [path], make)["rows"]


def _attribute_lists(folder: Folder) -> list[Path]:
    # The archive unpacks attributes.txt beside its own folder.
    places = (folder / "attributes", folder.root, folder.root.parent)
    return [place / "attributes.txt" for place in places if (place / "attributes.txt").is_file()]


def _most_attributes(folder: Folder, n_lines: int) -> int:
    """The highest attribute number that can be right: as many as are named, else no more than there are lines."""
    return max((len(read_lines(path)) for path in _attribute_lists(folder)), default=n_lines)


def _attribute_names(folder: Folder, q: int) -> tuple[str, ...]:
    for path in _attribute_lists(folder):
        if len(read_lines(path)) == q:
            return numbered_names(folder.use(path))
    return ()
