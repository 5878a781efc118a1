"""Loads one dataset, before any split, as its configuration says."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from zsl.checks import check_value
from zsl.config.objects import build, locate
from zsl.data.beside import beside
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
