"""From the configuration of a dataset to its table: what the experiment and ``python -m zsl.data`` share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from zsl.checks import check_value
from zsl.config import build
from zsl.data.dataset import ImageTable
from zsl.errors import UserError


def load_table(dataset: Mapping[str, Any], feature: str, source: str | None, allow: Iterable[str] = ()) -> ImageTable:
    """Every image of a dataset before any split; ``source`` names one of its attribute tables, ``None`` its default."""
    check_value(str | None, source, "dataset.semantics.source")
    given = {} if source is None else {"semantics": source}
    try:
        return build(dataset, "dataset", skip=("semantics", "shuffle_attributes"), allow_targets=allow,
                     feature=feature, **given)  # fmt: skip
    except TypeError as error:
        if source is None or "'semantics'" not in str(error):
            raise
        raise UserError(
            f"dataset.semantics={source}: dataset={dataset['name']} has one attribute table; leave it at null."
        ) from None
