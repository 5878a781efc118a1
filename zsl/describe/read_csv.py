"""Class descriptions in CSV: columns of text are sentences, columns of numbers are attributes."""

from __future__ import annotations

import math
import re
from pathlib import Path

from zsl.data.readers.columns import Columns, read_csv, without_numbering
from zsl.data.readers.tables import name_column
from zsl.data.table import first_repeated
from zsl.describe.written import Written
from zsl.errors import UserError

# What is a number in a table, whatever its comma or dot means; the reader of CSV files decides that.
_NUMBER = re.compile(r"[+-]?[\d.,]*\d[\d.,]*([eE][+-]?\d+)?|true|false", re.IGNORECASE)
_UNKNOWN = {"", "nan", "na", "n/a", "#n/a", "<na>", "null", "none", "?"}


def read_csv_classes(path: Path) -> list[Written]:
    """The classes of a CSV, in the order of their first rows; several rows of a class are several sentences.

    The first column holds the names. Of the others, one in which any field is a number holds an attribute.

    Raises
    ------
    UserError
        For a file that is no table, a column without values, one that numbers the classes, and rows of one class that
        give an attribute different values.
    """
    header: list[str] = []
    place = 0

    def all_as_text(names: list[str], first: list[str]) -> set[int]:
        nonlocal header, place
        header, place = names, name_column(names, first)
        return {place} | {i for i, name in enumerate(names) if name}

    # What a column holds is known once all of it is read, so the file is read twice.
    fields = read_csv(path, all_as_text).texts
    texts = {i for i, name in enumerate(header) if name and _is_text(fields[name])} - {place}
    found = read_csv(path, lambda *_: {place} | texts)
    names = [" ".join(name.split()) for name in found.texts[header[place]]]
    return _classes(names, [found.texts[header[i]] for i in sorted(texts)], found, path)


def _is_text(column: list[str]) -> bool:
    known = [field.strip() for field in column if field.strip().lower() not in _UNKNOWN]
    return bool(known) and not any(_NUMBER.fullmatch(field) for field in known)


def _classes(names: list[str], sentences: list[list[str]], found: Columns, path: Path) -> list[Written]:
    """Rows of one class are brought together."""
    repeated = first_repeated(found.names)
    if repeated is not None:
        raise UserError(f"{path}: {repeated!r} is not the name of one column; each column needs its own name.")
    kept = without_numbering(found.numbers, found.names, path, "classes")
    classes: dict[str, Written] = {}
    for i, name in enumerate(names):
        c = classes.setdefault(name, Written(name, [] if sentences else None, {}))
        if c.sentences is not None:
            c.sentences.extend(text for column in sentences if (text := " ".join(column[i].split())))
        for j in kept.nonzero()[0]:
            attribute, value = found.names[j], float(found.numbers[i, j])
            known = c.attributes.get(attribute, math.nan)
            if known != value and not math.isnan(known) and not math.isnan(value):
                raise UserError(
                    f"{path}: rows of the class {name!r} give {attribute!r} as {known:g} and {value:g}; keep one."
                )
            c.attributes[attribute] = known if math.isnan(value) else value
    empty = [a for j, a in enumerate(found.names) if kept[j] and all(math.isnan(v) for v in found.numbers[:, j])]
    if empty:
        raise UserError(f"{path}: the column {empty[0]!r} has no value; fill it, or remove it.")
    return list(classes.values())
