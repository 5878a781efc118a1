"""Loads one dataset, before any split, as its configuration says; of several networks, features beside each other."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from zsl.checks import Array, check_value
from zsl.config.objects import build, locate
from zsl.data.table import ImageTable
from zsl.errors import UserError


def load_transforms(
    dataset: Mapping[str, Any], feature: Mapping[str, Any], allow: Iterable[str] = ()
) -> tuple[Any, Any]:
    """The transforms of features and of attributes that a configuration describes."""
    chosen = {k: v for k, v in dataset["semantics"].items() if k not in ("source", "missing")}
    return (
        build(feature, "feature", allow_targets=allow),
        build({"_target_": feature["_target_"], **chosen}, "dataset.semantics", allow_targets=allow),
    )


def load_table(dataset: Mapping[str, Any], feature: str, source: str | None, allow: Iterable[str] = ()) -> ImageTable:
    """Every image of a dataset before any split; ``source`` names one of its attribute tables, ``None`` its default.

    Features of several networks, ``A+B``, are read one after the other and stand beside each other.
    """
    check_value(str | None, source, "dataset.semantics.source")
    check_value(str, feature, "feature.name")
    target = dataset.get("_target_")
    parameters = inspect.signature(locate(target, "dataset", allow)).parameters.values()
    if not any(p.name == "feature" or p.kind is p.VAR_KEYWORD for p in parameters):
        raise UserError(f"{target} has no parameter feature, the name of the features to read; add it to the function.")
    return beside([_read(dataset, one, source, allow) for one in feature.split("+")])


def _read(dataset: Mapping[str, Any], feature: str, source: str | None, allow: Iterable[str]) -> ImageTable:
    target, given = dataset["_target_"], {} if source is None else {"semantics": source}
    try:
        table = build(dataset, "dataset", skip=("semantics", "shuffle_attributes"), allow_targets=allow,
                      feature=feature, **given)  # fmt: skip
    except TypeError as error:
        if source is None or "'semantics'" not in str(error):
            raise
        raise UserError(
            f"dataset.semantics={source}: dataset={dataset['name']} has one attribute table; leave it at null."
        ) from None
    if not isinstance(table, ImageTable):
        raise UserError(
            f"{target} returned a value of type {type(table).__name__}; a dataset returns a zsl.data.table.ImageTable."
        )
    return table


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
