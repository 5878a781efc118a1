"""Features of several networks beside each other: one table of images from several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from zsl.checks import Array
from zsl.data.table import ImageTable
from zsl.errors import UserError


def beside(tables: Sequence[ImageTable]) -> ImageTable:
    """The images of several tables with the features of all of them, as one table.

    Parameters
    ----------
    tables : sequence of ImageTable
        The same dataset with other features each. Images are matched by name where all tables have names, else by row.

    Returns
    -------
    ImageTable
        The first table with the columns of all; ``feature_blocks`` says how many each of them has.

    Raises
    ------
    UserError
        If the tables hold different images, labels or classes, or two have the same features.

    Examples
    --------
    >>> one = ImageTable("data", "a", np.array([[1.0], [2.0]]), np.array([0, 1]), ("zebra", "horse"), np.eye(2))
    >>> both = beside([one, replace(one, feature="b", features=np.array([[5.0, 6.0], [7.0, 8.0]]))])
    >>> both.features.tolist(), both.feature_blocks
    ([[1.0, 5.0, 6.0], [2.0, 7.0, 8.0]], (1, 2))
    """
    first = tables[0]
    if len(tables) == 1:
        return first
    columns = [first.features]
    for table in tables[1:]:
        same_number = len(table.labels) == len(first.labels)
        rows = rows_by_name(first.image_names, table.image_names, len(first.labels)) if same_number else None
        names = f"{first.feature} and {table.feature} of dataset={first.name}"
        if rows is None or not (table.labels[rows] == first.labels).all():
            raise UserError(f"{names} are not of the same images; extract both from the same folder.")
        if table.class_names != first.class_names or not np.array_equal(table.attributes, first.attributes, True):
            raise UserError(f"{names} come with different classes or attributes; give both the same table.")
        columns.append(table.features[rows])
    for i, one in enumerate(columns):
        for other, of in zip(columns[i + 1 :], tables[i + 1 :]):
            if np.array_equal(one, other):
                raise UserError(
                    f"{tables[i].feature} and {of.feature} are the same features; name different ones (of "
                    "dataset=tabular give the folder of their files, dataset.features=FOLDER)."
                )
    provenance = dict(first.provenance)
    provenance["files"] = {name: hash for table in tables for name, hash in table.provenance.get("files", {}).items()}
    if "feature_file" in provenance:
        provenance["feature_file"] = ", ".join(str(table.provenance["feature_file"]) for table in tables)
    if "network" in provenance:
        provenance["network"] = [table.provenance["network"] for table in tables]
    return replace(
        first,
        feature="+".join(table.feature for table in tables),
        features=np.hstack(columns),
        feature_blocks=tuple(one.shape[1] for one in columns),
        provenance=provenance,
    )


def rows_by_name(names: Sequence[str], others: Sequence[str], n: int) -> Array | None:
    """The position (n,) among ``others`` of each of n images called ``names``; None if the images differ.

    Without names, or with equal ones, images are matched by row.
    """
    if not (names and others) or names == others:
        return np.arange(n)
    place = {name: i for i, name in enumerate(others)}
    if len(others) != n or len(place) < n or set(place) != set(names):
        return None
    return np.array([place[name] for name in names])
