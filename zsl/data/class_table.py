"""Tables of class attributes that a user gives: a DataFrame, or a mapping of class names to rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from zsl.checks import Array, check_no_mask
from zsl.data.dataset import ZeroShotData
from zsl.data.readers.columns import NUMBER_COLUMNS
from zsl.data.table import counting
from zsl.errors import UserError, did_you_mean

Classes: TypeAlias = str | Sequence[Hashable] | pd.DataFrame | Mapping[Hashable, Sequence[float]]
"""Classes to choose from, as :func:`chosen` takes them"""

# What `classes` may be, for messages.
_CHOICES = (
    "unseen, seen, all, none, a list of class names, or a table: a DataFrame with a row for each class, or a mapping "
    "of class names to rows"
)
# Columns that pandas makes of row numbers.
_NUMBERING = {*NUMBER_COLUMNS, "unnamed: 0", "level_0"}


def as_table(attributes: Any, where: str = "attributes") -> pd.DataFrame:
    """Class attributes as a DataFrame of floats with one row for each class.

    Parameters
    ----------
    where : str
        What messages call the table.

    Raises
    ------
    UserError
        For something that is no table, rows of different lengths, values that are no numbers, repeated names, and a
        class without any value.
    """
    if isinstance(attributes, pd.Series):
        attributes = attributes.to_dict()
    if isinstance(attributes, Mapping):
        for name, row in attributes.items():
            check_no_mask(row, f"the class {name!r} of {where}", "give NaN for what is unknown")
        lengths = {np.size(row) for row in attributes.values()}
        if len(lengths) > 1:
            raise UserError(f"{where} has rows of {min(lengths)} to {max(lengths)} values; give all classes as many.")
        columns = _labels_of_rows(attributes, where)
        rows = {
            name: np.ravel(np.asarray(row if columns is None else row.loc[columns], dtype=object))
            for name, row in attributes.items()
        }
        attributes = pd.DataFrame.from_dict(rows, orient="index", columns=columns)
    if not isinstance(attributes, pd.DataFrame):
        raise UserError(
            f"{where} is needed: a DataFrame with a row for each class, or a mapping of class names to rows."
        )
    try:
        table = attributes.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise UserError(f"{where} must be numbers, with NaN or None for what is unknown ({error}).") from None
    repeated = table.index[table.index.duplicated()]
    if len(repeated):
        raise UserError(f"the class {repeated[0]!r} has more than one row of attributes; give each class one.")
    repeated = table.columns[table.columns.duplicated()]
    if len(repeated):
        raise UserError(f"{where} has more than one column {repeated[0]!r}; give each attribute one.")
    numbering = counting(table.to_numpy()) & [str(c).lower() in _NUMBERING for c in table.columns]
    if numbering.any():
        raise UserError(
            f"the column {table.columns[numbering][0]!r} of {where} counts the rows and would be read as a number that "
            "describes the classes; drop it."
        )
    empty = table.isna().all(axis=1).to_numpy() & (table.shape[1] > 0)
    if empty.any():
        raise UserError(
            f"the class {table.index[empty][0]!r} has no attribute value at all; give it some, or remove it."
        )
    infinite = np.isinf(table.to_numpy())
    if infinite.any():
        raise UserError(f"the class {table.index[infinite.any(axis=1)][0]!r} has an infinite attribute; give a number.")
    return table


def _labels_of_rows(rows: Mapping[Hashable, Any], where: str) -> pd.Index | None:
    """The labels of the values where every row of a mapping is a Series, in the order of the first; else None."""
    if not rows or not all(isinstance(row, pd.Series) for row in rows.values()):
        return None
    (first, one), *others = rows.items()
    if not one.index.is_unique:
        return None
    for name, row in others:
        if not row.index.is_unique or set(row.index) != set(one.index):
            raise UserError(
                f"the classes {first!r} and {name!r} of {where} have values of different attributes; give all classes "
                "the same."
            )
    return one.index


def of_data(data: ZeroShotData) -> pd.DataFrame:
    """The attributes of the seen classes, then of the unseen ones, before pre-processing."""
    known = [*data.seen, *data.unseen]
    names = pd.Index([data.class_names[c] for c in known], dtype=object)
    return pd.DataFrame(data.attributes[known], names, list(data.attribute_names) or None)


def column_names(columns: pd.Index) -> list[str]:
    """The names of columns as text; empty if they are counted from 0, as pandas does by itself."""
    return [] if columns.equals(pd.RangeIndex(len(columns))) else [str(c) for c in columns]


def align(table: pd.DataFrame, known: pd.Index, where: str = "classes") -> pd.DataFrame:
    """A table of new classes with the columns ``known``: by name where both have names, else by position.

    Parameters
    ----------
    where : str
        What messages call the table, such as a file name.

    Raises
    ------
    UserError
        For an attribute that the table does not have, or another number of columns.
    """
    labels, known_labels = [[str(c) for c in columns] for columns in (table.columns, known)]
    if column_names(table.columns) and (column_names(known) or set(labels) == set(known_labels)):
        table = table.set_axis(labels, axis=1)
        lacking = [a for a in known_labels if a not in labels]
        if lacking:
            raise UserError(
                f"{where} has no column {lacking[0]!r}; every attribute of training needs one (an empty field is "
                "unknown)."
            )
        return table[known_labels].set_axis(known, axis=1)
    if table.shape[1] != len(known):
        raise UserError(
            f"{where} has {table.shape[1]} attributes where training had {len(known)}; give the same attributes in the "
            "same order."
        )
    return table.set_axis(known, axis=1)


def part(table: pd.DataFrame, n_seen: int, which: str) -> pd.DataFrame:
    """The "unseen", "seen", "all" or "none" of the rows of a table whose first ``n_seen`` classes are seen.

    Where every class is seen, the seen classes are the ones to choose from.

    Raises
    ------
    UserError
        For another word.
    """
    everything = len(table) == n_seen
    parts = {
        "unseen": slice(0 if everything else n_seen, None), "seen": slice(n_seen), "all": slice(None), "none": slice(0),
    }  # fmt: skip
    if which not in parts:
        raise UserError(f"classes={which} does not exist; it may be: {_CHOICES}.")
    return table.iloc[parts[which]]


def name_array(names: Iterable[Any]) -> Array:
    """Class names as an array of their own type, as scikit-learn's metrics need it; mixed types stay objects.

    Examples
    --------
    >>> name_array([7, 8]), name_array(["zebra", 5])
    (array([7, 8]), array(['zebra', 5], dtype=object))
    """
    names = list(names)
    mixed = len({isinstance(name, str) for name in names}) > 1
    return np.array(names, dtype=object if mixed else None)


def check_some_known(y: Any, classes: Iterable[Any]) -> None:
    """Refuse labels of which none is among ``classes``, since every answer would count as wrong.

    Raises
    ------
    UserError
        With some of the classes.
    """
    check_no_mask(y, "y", "leave these images out")
    classes = list(classes)
    if len(y) and not set(np.asarray(y).tolist()) & set(classes):
        some = ", ".join(map(str, classes[:5])) + (", ..." if len(classes) > 5 else "")
        raise UserError(
            f"y has none of the classes that are chosen from ({some}); score images of these classes, set classes, or "
            "divide by zsl.model_selection.ClassFold."
        )


def labels_of(y: Array, table: pd.DataFrame) -> Array:
    """The position (n,) in the table of each class name y (n,).

    Raises
    ------
    UserError
        For a name that the table does not have.
    """
    index = {name: c for c, name in enumerate(table.index)}
    for name in pd.unique(y).tolist():
        if name not in index:
            other = next((repr(n) for n in index if str(n) == str(name)), None)
            remedy = f"it has {other}, of another type: give both the same type" if other else "add one"
            hint = "" if other else did_you_mean(str(name), map(str, index))
            raise UserError(f"attributes has no row for the class {name!r} of y{hint}; {remedy}.")
    return np.array([index[name] for name in y.tolist()], dtype=np.int64)


def chosen(table: pd.DataFrame, n_seen: int, classes: Classes) -> pd.DataFrame:
    """The rows of the classes to choose from: of a word (:func:`part`), of a list of names, or of another table.

    Raises
    ------
    UserError
        If there is no class to choose from, for a name that the table does not have or that the list has twice, for
        something that is no list of names, and as the functions for words and tables.
    """
    if isinstance(classes, str):
        found = part(table, n_seen, classes)
    elif isinstance(classes, pd.DataFrame | Mapping):
        found = align(as_table(classes, "classes"), table.columns)
    elif np.ndim(classes) != 1:  # type: ignore[arg-type]
        raise UserError(f"classes is of no kind that is accepted; it may be: {_CHOICES}.")
    else:
        names = list(classes)
        for name, n in Counter(names).items():
            if n > 1:
                raise UserError(f"classes names {name!r} {n} times; name each class once.")
            if name not in table.index:
                hint = did_you_mean(str(name), map(str, table.index))
                raise UserError(f"the class {name!r} is not known{hint}; give its attributes in a table.")
        found = table.loc[names]
    if not len(found):
        raise UserError("there is no class to choose from; add some, or take those of training.")
    return found


def values(table: pd.DataFrame) -> Array:
    """The numbers of a table (C, q), row by row in memory: sums over a row do not depend on how pandas keeps it."""
    return np.ascontiguousarray(table.to_numpy(np.float64))
