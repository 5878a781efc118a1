"""Text from outside: names in CSV files that spreadsheets open, and names that are no text at all."""

from __future__ import annotations

import re
from collections.abc import Iterable

# What spreadsheets take for the beginning of a formula, also behind blanks and quotes: these letters in both widths.
_FORMULA = re.compile("['\\s]*[-=+@\uff0d\uff1d\uff0b\uff20].*\\S|'*[\t\r\n]", re.DOTALL)


def as_cell(text: str) -> str:
    """A text as a cell of a CSV: behind an apostrophe if a spreadsheet would take it for a formula.

    Examples
    --------
    >>> as_cell("=1+1"), as_cell("fox")
    ("'=1+1", 'fox')
    """
    return f"'{text}" if _FORMULA.match(text) else text


def from_cell(text: str) -> str:
    """The inverse of :func:`as_cell`.

    Examples
    --------
    >>> from_cell("'=1+1"), from_cell("'tis")
    ('=1+1', "'tis")
    """
    return text[1:] if text.startswith("'") and _FORMULA.match(text[1:]) else text


def not_text(names: Iterable[str]) -> str | None:
    """The first name that cannot be written as UTF-8, with its foreign bytes as escapes, or None.

    The names of files are bytes on many systems; those of old archives need not be UTF-8.

    Examples
    --------
    >>> not_text(["fox.png", "caf\\udce9.png"])
    'caf\\\\xe9.png'
    """
    for name in names:
        if not name.isascii() and any("\ud800" <= letter <= "\udfff" for letter in name):
            escaped = all("\udc80" <= letter <= "\udcff" for letter in name if "\ud800" <= letter <= "\udfff")
            found = name.encode("utf-8", "surrogateescape" if escaped else "backslashreplace")
            return found.decode("utf-8", "backslashreplace")
    return None
