"""CSV files as spreadsheets and programs write them, and columns that number rows.

A table has one way of writing numbers. Whether a comma or a dot stands before decimals is decided for the whole of
it, and a table of which both may be true is refused.
"""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Callable, Container, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from zsl.checks import Array
from zsl.data.readers.files import read_text, reading
from zsl.data.table import counting, first_repeated
from zsl.errors import UserError
from zsl.text import from_cell

# What stands for "no value" in a column of numbers. In columns of text nothing does: "NA" may be a class.
NO_NUMBER = {"", "nan", "na", "n/a", "#n/a", "<na>", "null", "none", "?"}
_WORDS = {**dict.fromkeys(NO_NUMBER, float("nan")), "true": 1.0, "false": 0.0}
# Columns that number rows rather than describe them.
NUMBER_COLUMNS = {"id", "index", "idx", "image_id", "class_id", "row", "number", "nr", "no", "no.", "#", "label",
                  "labels"}  # fmt: skip
# A mark of thousands or of decimals: 1.200 is either.
_EITHER = re.compile(r"[+-]?[1-9]\d{0,2}[.,]\d{3}")
_COMMA = re.compile(r"[+-]?(\d+,\d*|,\d+)([eE][+-]?\d+)?|[+-]?\d{1,3}(,\d{3})+(\.\d*)?")
_ONE_MARK = "write all numbers of the table with a dot before decimals and no mark of thousands"


class Columns(NamedTuple):
    """A table with a header, its columns of text apart from those of numbers."""

    texts: dict[str, list[str]]
    """Fields of each column of text, by name"""
    names: list[str]
    """q names of the columns of numbers"""
    numbers: Array
    """(n, q) float64; NaN where a field is empty"""


def read_csv(
    path: Path, text_columns: Callable[[list[str], list[str]], Container[int]], *, may_be_empty: bool = False
) -> Columns:
    """A CSV with a header; commas, semicolons or tabs, and decimal commas where the whole table has them.

    Lines and unnamed columns without any value, as spreadsheets leave them, are left out.

    Parameters
    ----------
    text_columns : callable
        The places of the columns that hold text, which is kept as it stands ("NA", "01"), by the names of all columns
        and the first row. All other columns must hold numbers.
    may_be_empty : bool
        Whether a header without any row is a table.

    Raises
    ------
    UserError
        For a file that is no table, rows of another length than the header, fields that are no numbers, and numbers of
        which it cannot be told what their commas or dots mean.
    """
    with reading(path, "CSV"):
        text = read_text(path, "CSV")
        named = re.match(r'"?sep=(.)"?\n', text, re.IGNORECASE)  # Excel's own first line
        text = text[named.end() :] if named else text
        delimiter = named[1] if named else max(",;\t", key=lambda d: _width(text, d))
        rows = _rows(text, delimiter)
        header = [re.sub(r"Unnamed: \d+\Z", "", from_cell(name.strip())) for name in next(rows, (0, []))[1]]
        _, first = next(rows, (0, None))
        if first is None and not (may_be_empty and header):
            raise ValueError("it needs a header and at least one row")
        counted = [float(name) for name in header if is_number(name)]
        # Whole numbers in order are names: programs that know no better write them.
        in_order = bool(counted) and counted[0] in (0, 1) and bool((np.diff(counted) == 1).all())
        if len(counted) >= max(len(header) - 1, 1) and not in_order:
            raise ValueError(f"its first line holds numbers ({header[-1]}, ...); put a header of column names above")
        chosen = text_columns(header, first or [])
        table = _Table(path, header, [i for i in range(len(header)) if i in chosen], delimiter)
        try:
            return table.read(text, ".")
        except _DecimalComma:
            return table.read(text, ",")


def _rows(text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The rows that have a value, and the lines where they end."""
    lines = (match.group() for match in re.finditer(r"[^\n]*\n|[^\n]+", text))
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
    return ((reader.line_num, row) for row in reader if any(map(str.strip, row)))


def _width(text: str, delimiter: str) -> tuple[bool, int]:
    """How well a delimiter divides the first lines: into equally many fields, and into many."""
    try:
        header, first = [row for _, row in itertools.islice(_rows(text, delimiter), 2)]
    except (ValueError, csv.Error):
        return (False, text.partition("\n")[0].count(delimiter))
    return (1 < len(header) == len(first), len(header))


class _DecimalComma(Exception):
    """A field has a comma where a number is needed."""


class _Table:
    """The rows of a CSV behind its header."""

    def __init__(self, path: Path, header: list[str], texts: list[int], delimiter: str) -> None:
        self.path, self.header, self.places, self.delimiter = path, header, texts, delimiter
        self.names = [name for i, name in enumerate(header) if i not in set(texts)]
        repeated = first_repeated([header[i].lower() for i in texts])
        if repeated is not None:
            raise ValueError(f"it has two columns called {repeated!r}; keep one")

    def read(self, text: str, decimal: str) -> Columns:
        texts: list[list[str]] = [[] for _ in self.places]
        numbers, unbalanced = [], text.count('"') % 2 == 1
        # Where a comma divides fields, a dot divides numbers; otherwise one number must show what its mark means.
        either, sure = "", decimal == "." and self.delimiter == ","
        for i, (line, row) in enumerate(itertools.islice(_rows(text, self.delimiter), 1, None), start=1):
            if len(row) > len(self.header) and not any(row[len(self.header) :]):
                row = row[: len(self.header)]
            if len(row) != len(self.header):
                raise ValueError(f"line {line} has {len(row)} fields where the header has {len(self.header)}")
            if unbalanced and any("\n" in field for field in row):
                raise ValueError(f"a quote in or before line {line} is opened and not closed; close or remove it")
            for fields, place in zip(reversed(texts), reversed(self.places)):
                fields.append(from_cell(row.pop(place)))
            if not sure:
                marked = [field for field in map(str.strip, row) if decimal in field]
                sure = any(not _EITHER.fullmatch(field) and is_number(field, decimal) for field in marked)
                either = either or next(iter(marked), "")
            numbers.append(np.array(self._floats(row, decimal, i)))
        if either and not sure:
            whole = re.sub(r"[.,]", "", either)
            raise UserError(
                f"{self.path}: {either!r} may mean {whole} or {either.replace(',', '.')}, and no other number of the "
                f"table tells; {_ONE_MARK}, such as {whole}.0 or {either.replace(',', '.')}0."
            )
        X = np.array(numbers).reshape(len(numbers), len(self.names))
        named = np.array([bool(name) for name in self.names], dtype=bool)
        kept = named | ~np.isnan(X).all(axis=0)
        names = [name for name, has in zip(self.names, kept) if has]
        return Columns(dict(zip((self.header[i] for i in self.places), texts)), names, X[:, kept])

    def _floats(self, fields: list[str], decimal: str, row: int) -> list[float]:
        if decimal == "," and "." in "".join(fields):
            place = next(j for j, field in enumerate(fields) if "." in field)
            raise UserError(
                f"{self.path}: the column {self.names[place]!r} holds {fields[place]!r} in row {row}, in a table that "
                f"has decimal commas, so its dot may mark thousands or decimals; {_ONE_MARK}."
            )
        if decimal == ",":
            fields = [field.replace(",", ".") for field in fields]
        if "_" not in "".join(fields):  # which Python reads as a mark of thousands
            try:
                return list(map(float, fields))
            except ValueError:
                pass
        return [self._float(field, j, row, decimal) for j, field in enumerate(fields)]

    def _float(self, field: str, place: int, row: int, decimal: str) -> float:
        word = field.strip()
        value = _value(word)
        if value is not None:
            return value
        if decimal == "." and _COMMA.fullmatch(word):
            raise _DecimalComma
        raise _no_number(self.path, self.names[place], word if decimal == "." else word.replace(".", ","), row)


def is_number(text: str, decimal: str = ".") -> bool:
    """Whether a text is a number; ``1_000``, which Python reads as one, is a name."""
    try:
        float(text.replace(decimal, "."))
    except ValueError:
        return False
    return "_" not in text


def _value(word: str) -> float | None:
    """The number that a field says, NaN where it says that there is none, and None for any other text."""
    return float(word) if is_number(word) else _WORDS.get(word.lower())


def _no_number(path: Path, name: str, field: str, row: int) -> UserError:
    return UserError(
        f"{path}: the column {name!r} holds {field[:60]!r} in row {row}, which is not a number (leave it empty if it "
        "is unknown; names of classes and files belong into columns called label and file)."
    )


def number_columns(frame: Any, names: list[str], path: Path) -> Array:
    """The columns of a data frame as float64; refused if one of them does not hold numbers."""
    for name, column, dtype in zip(names, frame.columns, frame.dtypes, strict=True):
        if dtype.kind not in "biuf":
            fields = [str(field).strip() for field in frame[column]]
            values = list(map(_value, fields))
            if None in values:
                bad = values.index(None)
                raise _no_number(path, name, fields[bad], bad + 1)
            frame[column] = np.array(values, dtype=np.float64)
    return np.asarray(frame.to_numpy(np.float64, na_value=np.nan))


def _starts(column: Array) -> bool:
    """Whether a column is 0, 1, 2, ... or 1, 2, 3, ...: in a column without a name, two rows tell."""
    return len(column) > 1 and column[0] in (0, 1) and bool((np.diff(column) == 1).all())


def without_numbering(X: Array, names: list[str], path: Path, rows: str) -> Array:
    """The columns to keep. The index that pandas writes in front is dropped.

    Any other column that numbers the rows is an error.

    Parameters
    ----------
    names : p names of the columns of X (n, p)
    rows : what the rows are, for the sentence: images or classes.
    """
    with np.errstate(invalid="ignore"):
        whole = (np.floor(X) == X).all(axis=0)
    counts = counting(X)
    kept = np.ones(len(names), bool)
    for j, name in enumerate(names):
        if not name and (counts[j] or _starts(X[:, j])):
            kept[j] = False
        elif not name:
            raise UserError(f"{path}: column {j + 1} has no name; name it or remove it.")
        elif counts[j] or (whole[j] and name.lower() in NUMBER_COLUMNS):
            remedies = ["give it another name"] if name.lower() in NUMBER_COLUMNS else []
            remedies += ["put the rows into another order"] if counts[j] else []
            raise UserError(
                f"{path}: the column {name!r} numbers the {rows} and would be read as a number that describes them; "
                f"remove it, or {' and '.join(remedies)} if it does describe them."
            )
    return kept
