"""SUN Attribute: the xlsa17 folder or the official archive ``SUNAttributeDB``.

The official archive holds ``images.mat`` (paths ``a/abbey/sun_x.jpg``: the class is the folder, levels joined by
``_``), ``attributes.mat`` (102 names) and ``attributeLabels_continuous.mat`` (``labels_cv``, images x attributes, the
share of three annotators), and no features: those are read from ``NAME.npz`` or ``NAME.mat`` beside them.
"""

from __future__ import annotations

import numpy as np

from zsl.checks import Array
from zsl.data.cache import Folder
from zsl.data.readers import official
from zsl.data.readers.files import need
from zsl.data.readers.mat import read_mat
from zsl.data.readers.tables import Semantics, class_rows, class_semantics, fitting_names, named_semantics
from zsl.data.table import ImageTable, check_folders
from zsl.errors import UserError


@official.reader("sun", marker="attributeLabels_continuous.mat")
def load(folder: Folder, feature: str, name: str, semantics: str | None) -> ImageTable:
    """SUN Attribute from ``root``, whichever form lies there.

    Parameters
    ----------
    semantics : ``continuous`` (default: class means of the images' annotations), ``image`` (each image's own), or a
        table of that name in the folder (``wordvec``).
    """
    labels_file = folder.use(folder / "images.mat")
    images = tuple(str(i).strip() for i in need(read_mat(labels_file), "images", labels_file).ravel())
    of_image = [_class_of(path) for path in images]
    check_folders(images, of_image, labels_file)
    class_names, labels = np.unique(of_image, return_inverse=True)
    names = tuple(class_names.tolist())
    if semantics in (None, "continuous", "image"):
        found = _annotations(folder, labels, len(names), image_level=semantics == "image")
    else:
        found = named_semantics(folder, semantics, names, len(images), ("continuous", "image"))
    attribute_names: tuple[str, ...] = ()
    path = folder / "attributes.mat"
    if path.is_file():
        attribute_names = tuple(str(a).strip() for a in need(read_mat(folder.use(path)), "attributes", path).ravel())
    return official.image_table(
        folder, name, feature, images=images, labels=labels, labels_file=labels_file, class_names=names,
        found=found, image_folder="IMAGES (the folder that SUNAttributeDB_Images unpacks to)",
        attribute_names=fitting_names(attribute_names, found.attributes.shape[1], path, semantics),
        n_unseen=72 if len(names) == 717 else None, semantics=semantics or "continuous",
    )  # fmt: skip


def _annotations(folder: Folder, labels: Array, n_classes: int, *, image_level: bool) -> Semantics:
    """Rows of images from 0 to 1, and their means by class."""
    path = folder.use(folder / "attributeLabels_continuous.mat")
    rows = class_rows(need(read_mat(path), "labels_cv", path), len(labels), path, "labels_cv", published="rows")
    own = rows.astype(np.float32)
    if (own < 0).any() or (own > 1).any():
        raise UserError(f"{path}: labels_cv must hold shares of annotators, from 0 to 1; unpack the archive again.")
    sums, counts = np.zeros((n_classes, own.shape[1])), np.zeros((n_classes, own.shape[1]))
    np.add.at(sums, labels, np.nan_to_num(own))
    np.add.at(counts, labels, ~np.isnan(own))
    means = class_semantics(np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0))
    return means._replace(image_attributes=own) if image_level else means


def _class_of(path: str) -> str:
    parts = path.replace("\\", "/").split("/")[:-1]
    if len(parts) > 1 and len(parts[0]) == 1:
        parts = parts[1:]  # the first level is the class's initial
    if not parts:
        raise UserError(f"images.mat: {path!r} names no class; paths must be like a/abbey/sun_x.jpg.")
    return "_".join(parts)
