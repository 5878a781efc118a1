"""Tables of class attributes that a user gives: a DataFrame, or a mapping of class names to rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from zsl.checks import Array
from zsl.errors import UserError, did_you_mean


def as_table(attributes: Any) -> pd.DataFrame:
    """Class attributes as a DataFrame of floats with one row for each class.

    Raises
    ------
    UserError
        For something that is no table, rows of different lengths, values that are no numbers, repeated names.
    """
    if isinstance(attributes, pd.Series):
        attributes = attributes.to_dict()
    if isinstance(attributes, Mapping):
        lengths = {np.size(row) for row in attributes.values()}
        if len(lengths) > 1:
            raise UserError(
                f"attributes has rows of {min(lengths)} to {max(lengths)} values; give all classes as many."
            )
        rows = {name: np.ravel(np.asarray(row, dtype=object)) for name, row in attributes.items()}
        attributes = pd.DataFrame.from_dict(rows, orient="index")
    if not isinstance(attributes, pd.DataFrame):
        raise UserError(
            "attributes is needed: a DataFrame with a row for each class, or a mapping of class names to rows."
        )
    try:
        table = attributes.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise UserError(f"attributes must be numbers, with NaN or None for what is unknown ({error}).") from None
    repeated = table.index[table.index.duplicated()]
    if len(repeated):
        raise UserError(f"the class {repeated[0]!r} has more than one row of attributes; give each class one.")
    infinite = np.isinf(table.to_numpy())
    if infinite.any():
        raise UserError(f"the class {table.index[infinite.any(axis=1)][0]!r} has an infinite attribute; give a number.")
    return table


def has_names(table: pd.DataFrame) -> bool:
    """Whether the columns of a table are named, rather than numbered."""
    return not isinstance(table.columns, pd.RangeIndex) and all(isinstance(c, str) for c in table.columns)


def align(table: pd.DataFrame, known: pd.Index, where: str = "classes") -> pd.DataFrame:
    """A table of new classes with the columns ``known``: by name where both have names, else in order.

    Parameters
    ----------
    where : str
        What messages call the table, such as a file name.

    Raises
    ------
    UserError
        For an attribute that the table does not have, or another number of columns.
    """
    if has_names(pd.DataFrame(columns=known)) and set(known) & set(map(str, table.columns)):
        table = table.rename(columns=str)
        lacking = [a for a in known if a not in table.columns]
        if lacking:
            raise UserError(
                f"{where} has no column {lacking[0]!r}; every attribute of training needs one (an empty field is "
                "unknown)."
            )
        return table[list(known)]
    if table.shape[1] != len(known):
        raise UserError(
            f"{where} has {table.shape[1]} attributes where training had {len(known)}; give the same attributes in the "
            "same order."
        )
    return table.set_axis(known, axis=1)


def rows_of(table: pd.DataFrame, names: Iterable[Any]) -> pd.DataFrame:
    """The rows of a table for these class names, in their order.

    Raises
    ------
    UserError
        For a name that the table does not have.
    """
    names = list(names)
    for name in names:
        if name not in table.index:
            hint = did_you_mean(str(name), map(str, table.index))
            raise UserError(f"the class {name!r} is not known{hint}; give its attributes in a table.")
    return table.loc[names]


def values(table: pd.DataFrame) -> Array:
    """The numbers of a table (C, q), row by row in memory: sums over a row do not depend on how pandas keeps it."""
    return np.ascontiguousarray(table.to_numpy(np.float64))
