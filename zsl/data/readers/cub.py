"""Caltech-UCSD Birds 200-2011: the xlsa17 folder or the official archive.

The official archive holds ``images.txt``, ``image_class_labels.txt``, ``classes.txt``,
``attributes/class_attribute_labels_continuous.txt`` (0..100) and ``attributes/image_attribute_labels.txt``, and no
features: those are read from ``NAME.npz`` or ``NAME.mat`` beside them (``zsl extract`` writes it).
"""

from __future__ import annotations

import numpy as np

from zsl.checks import Array
from zsl.data.cache import Folder
from zsl.data.readers import official
from zsl.data.readers.files import read_lines, read_table, reading
from zsl.data.readers.tables import (
    Semantics,
    class_rows,
    class_semantics,
    image_semantics,
    named_semantics,
    numbered_names,
)
from zsl.data.table import ImageTable
from zsl.errors import UserError

# Certainty 1 means that the part was not visible, so that absent says nothing about the bird.
_NOT_VISIBLE = 1


@official.reader("cub", marker="image_class_labels.txt")
def load(folder: Folder, feature: str, name: str, semantics: str | None) -> ImageTable:
    """Caltech-UCSD Birds from ``root``, whichever form lies there.

    Parameters
    ----------
    semantics : ``continuous`` (default), ``image`` (each image's own 0/1 annotations; an attribute marked "not visible"
        is missing), or a table of that name in the folder (``wordvec``, ``sentences``).
    """
    class_names = numbered_names(folder.use(folder / "classes.txt"))
    images = numbered_names(folder.use(folder / "images.txt"))
    labels_file = folder.use(folder / "image_class_labels.txt")
    numbers = read_table(labels_file)
    if not np.array_equal(numbers[:, 0], np.arange(1, len(images) + 1)):
        raise UserError(f"{labels_file} does not list the {len(images)} images of images.txt in their order.")
    labels = numbers[:, -1].astype(np.int64) - 1
    if labels.min() < 0 or labels.max() >= len(class_names):
        raise UserError(f"{labels_file} names classes that classes.txt does not have; unpack the whole archive again.")
    found = _semantics(folder, semantics, class_names, len(images))
    return official.image_table(
        folder, name, feature, images=images, labels=labels, labels_file=labels_file, class_names=class_names,
        found=found, image_folder=str(folder / "images"), n_unseen=50 if len(class_names) == 200 else None,
        attribute_names=_attribute_names(folder, found.attributes.shape[1]),
        semantics=semantics or "continuous",
    )  # fmt: skip


def _semantics(folder: Folder, source: str | None, class_names: tuple[str, ...], n_images: int) -> Semantics:
    if source in (None, "continuous"):
        path = folder.use(folder / "attributes/class_attribute_labels_continuous.txt")
        return class_semantics(class_rows(read_table(path), len(class_names), path, "the table", published="rows"))
    if source == "image":
        return image_semantics(_image_attributes(folder, n_images), len(class_names))
    return named_semantics(folder, source, class_names, n_images, ("continuous", "image"))


def _image_attributes(folder: Folder, n_images: int) -> Array:
    """(n, q) 0 or 1, NaN where the attribute was not visible or not annotated."""
    path = folder / "attributes/image_attribute_labels.txt"

    def make() -> dict[str, Array]:
        import pandas as pd

        with reading(path, "table of IMAGE ATTRIBUTE PRESENT CERTAINTY TIME"):
            # A few lines carry one or two fields too many before the time; only the first four matter.
            lines = pd.read_csv(path, sep=r"\s+", header=None, names=range(8), dtype=dict.fromkeys(range(4), np.int32))
            image, attribute, present, certainty = (lines[i].to_numpy() for i in range(4))
            # A number beyond these is damage, and would fill the memory.
            bad = (image < 1) | (image > n_images) | (attribute < 1) | (attribute > len(lines)) | (present > 1)
            if bad.any():
                raise ValueError(f"line {bad.argmax() + 1} holds a number out of range")
            rows = np.full((n_images, int(attribute.max())), np.nan, np.float32)
        visible = certainty != _NOT_VISIBLE
        rows[image[visible] - 1, attribute[visible] - 1] = present[visible]
        return {"rows": rows}

    if not path.is_file():
        raise UserError(f"dataset.semantics=image needs {path}, which is not there; unpack all of the archive.")
    return folder.cached("image_attribute_labels", [path], make)["rows"]


def _attribute_names(folder: Folder, q: int) -> tuple[str, ...]:
    for place in (folder / "attributes", folder.root, folder.root.parent):  # the archive unpacks the list beside itself
        path = place / "attributes.txt"
        if path.is_file() and len(read_lines(path)) == q:
            return numbered_names(folder.use(path))
    return ()
