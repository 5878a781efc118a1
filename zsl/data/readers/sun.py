"""SUN Attribute: the xlsa17 folder or the official archive ``SUNAttributeDB``.

The official archive holds ``images.mat`` (paths ``a/abbey/sun_x.jpg``: the class is the folder, levels joined by
``_``), ``attributes.mat`` (102 names) and ``attributeLabels_continuous.mat`` (``labels_cv``, images x attributes, the
share of three annotators), and no features: those are read from ``NAME.npz`` or ``NAME.mat`` beside them.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from zsl.data.cache import Folder
from zsl.data.readers import xlsa17
from zsl.data.readers.files import need, read_mat
from zsl.data.readers.layout import CLASS_LISTS, archive_provenance, choose, with_class_splits
from zsl.data.readers.tables import (
    feature_file,
    in_image_order,
    missing_values,
    named_table,
    need_same_classes,
    read_features,
    validation_lists,
)
from zsl.data.table import ImageTable
from zsl.errors import UserError


def load(
    root: str,
    *,
    feature: str = "resnet101",
    name: str = "sun",
    semantics: str | None = None,
    layout: Literal["auto", "xlsa17", "official"] = "auto",
    table: str = "att_splits.mat",
    cache: str | None = None,
) -> ImageTable:
    """SUN Attribute from ``root``, whichever form lies there.

    Parameters
    ----------
    root, feature, name, cache : see :func:`zsl.data.readers.xlsa17.load`.
    semantics : ``continuous`` (default: class means of the images' annotations), ``image`` (each image's own), or a
        table of that name in the folder (``wordvec``).
    layout, table : see :func:`zsl.data.readers.awa.load`.

    Raises
    ------
    UserError
        As :func:`zsl.data.readers.xlsa17.load`.
    """
    found, where = choose(
        root, layout, name=name, marker="attributeLabels_continuous.mat", archive="SUNAttributeDB",
        how_to_get=xlsa17.HOW_TO_GET,
    )  # fmt: skip
    if found == "xlsa17":
        return xlsa17.load(str(where), feature=feature, name=name, semantics=semantics, table=table, cache=cache)
    folder = Folder(where, cache)
    images_path = folder.use(folder / "images.mat")
    images = tuple(str(i).strip() for i in need(read_mat(images_path), "images", images_path).ravel())
    of_image = [_class_of(path) for path in images]
    class_names = tuple(sorted(set(of_image)))
    index = {c: i for i, c in enumerate(class_names)}
    labels = np.array([index[c] for c in of_image], dtype=np.int64)

    labels_path = folder.use(folder / "attributeLabels_continuous.mat")
    own = need(read_mat(labels_path), "labels_cv", labels_path)
    if own.ndim != 2 or len(images) not in own.shape:
        raise UserError(f"{labels_path}: labels_cv has shape {own.shape}, but images.mat lists {len(images)} images.")
    if not np.issubdtype(own.dtype, np.number) or np.iscomplexobj(own):
        raise UserError(f"{labels_path}: labels_cv holds {own.dtype} values; numbers from 0 to 1 are needed.")
    own = np.ascontiguousarray(own if own.shape[0] == len(images) else own.T, dtype=np.float32)
    strange = np.argwhere(~((own >= 0) & (own <= 1) | np.isnan(own)))
    if len(strange):
        i, a = strange[0]
        raise UserError(
            f"{labels_path}: attribute {a + 1} of image {i + 1} is {own[i, a]}, but labels_cv holds shares of "
            "annotators, from 0 to 1; unpack the archive again."
        )
    image_rows = None
    if semantics in (None, "continuous", "image"):
        sums = np.zeros((len(class_names), own.shape[1]))
        np.add.at(sums, labels, np.nan_to_num(own))
        counts = np.zeros_like(sums)
        np.add.at(counts, labels, ~np.isnan(own))
        rows = np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)
        image_rows = own if semantics == "image" else None
    else:
        other = named_table(folder, semantics, class_names, len(images))
        if other is None:
            raise UserError(
                f"dataset.semantics={semantics}: {where} has no {semantics}.mat, .npz, .npy, .csv or .txt; "
                "there is: continuous, image."
            )
        image_rows = other[0] if other[1] else None
        rows = np.zeros((len(class_names), other[0].shape[1])) if other[1] else other[0]

    path = feature_file(
        where,
        feature,
        name,
        f"the archive holds no features; python -m zsl.extract IMAGES --to {where / 'lite0.npz'} feature=lite0, "
        "with the folder that SUNAttributeDB_Images unpacks to, makes some (then: feature=lite0)",
    )
    stored = read_features(folder, path)
    order = in_image_order(stored, images, path)
    need_same_classes(stored, order, labels, class_names, path, images_path)
    in_order = len(order) == len(stored.rows) and bool((order == np.arange(len(order))).all())
    attributes_path = folder / "attributes.mat"
    attribute_names: tuple[str, ...] = ()
    if attributes_path.is_file():
        named = need(read_mat(folder.use(attributes_path)), "attributes", attributes_path)
        attribute_names = tuple(str(a).strip() for a in named.ravel())
    result = ImageTable(
        name=name,
        feature=feature,
        features=stored.rows if in_order else stored.rows[order],
        labels=labels,
        class_names=class_names,
        attributes=rows,
        missing=missing_values(rows),
        image_attributes=image_rows,
        attribute_names=attribute_names if len(attribute_names) == rows.shape[1] else (),
        image_names=images,
        semantics=semantics or "continuous",
        n_unseen=72 if len(class_names) == 717 else None,
        validation=validation_lists(folder, class_names),
        provenance=archive_provenance(folder, path, stored.network),
    )
    return with_class_splits(result, folder, dict(CLASS_LISTS))


def _class_of(path: str) -> str:
    parts = path.replace("\\", "/").split("/")[:-1]
    if len(parts) > 1 and len(parts[0]) == 1:
        parts = parts[1:]  # the first level is the class's initial
    if not parts:
        raise UserError(f"images.mat: {path!r} names no class; paths must be like a/abbey/sun_x.jpg.")
    return "_".join(parts)
