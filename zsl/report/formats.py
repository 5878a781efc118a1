"""A table as Markdown, LaTeX, CSV and HTML, and on the terminal."""

from __future__ import annotations

import html
import math
import re
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from zsl.text import as_cell

_LATEX = str.maketrans({
    **{c: f"\\{c}" for c in "&%$#_{}"}, "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}", "±": r"$\pm$", "<": "$<$", ">": "$>$", "|": "$|$", "†": r"$\dagger$",
})  # fmt: skip
MISSING, NONE = "missing", "-"
# How many letters in small print fit across a page of LaTeX's article, and what the gap of a column takes of them; how
# many a column of words (the only one, one of several) and the head of one of numbers have before they are broken into
# lines; where a long word may be broken.
_LETTERS, _GAP, _WORDS, _HEAD, _BREAKS = 74, 1.4, (22, 14), 8, re.compile(r"(?<=[=/,.:-])(?=\S)|(?=[_\[])")


class Number(float):
    """A number that is printed rounded, with its standard deviation and its footnotes, and stored in full."""

    text = ""

    def __str__(self) -> str:
        return self.text


def number(value: float | None, digits: int = 1, std: float = math.nan, *, sign: bool = False, marks: str = "") -> Any:
    """A number as a table shows it; a dash for None and NaN."""
    if value is None or math.isnan(value):
        return NONE + marked("", marks)
    out = Number(value)
    out.text = f"{value:+.{digits}f}" if sign else f"{value:.{digits}f}"
    out.text += "" if math.isnan(std) else f" ± {std:.{digits}f}"
    out.text = marked(out.text, marks)
    return out


def percent(row: pd.Series) -> Any:
    """The mean of a row of :func:`zsl.report.statistics.summarise` in percent, with its standard deviation."""
    return number(100 * row["mean"], 1, 100 * row["std"])


def marked(text: str, marks: str) -> str:
    """Text followed by the marks of its footnotes: ``CUB [b]``."""
    return " ".join(filter(None, (text, "".join(f"[{mark}]" for mark in marks))))


@dataclass
class Table:
    """A table with its caption, notes and footnotes."""

    name: str
    """File name"""
    title: str
    selection: str
    """How settings were chosen"""
    columns: list[str]
    rows: list[list[Any]] = field(default_factory=list)
    """Text, or numbers of :func:`number`"""
    left: int = 1
    """How many columns of words come before those of numbers"""
    together: int = 1
    """How many neighbouring columns of numbers stay on one printed page"""
    notes: list[str] = field(default_factory=list)
    """Paragraphs under the table"""
    footnotes: dict[str, str] = field(default_factory=dict)
    """Mark -> text; those that no cell carries are left out"""
    commands: list[str] = field(default_factory=list)
    """Commands that fill the missing cells"""
    empty: list[Any] = field(default_factory=list)
    """These cells"""
    ours: dict[str, list[str]] = field(default_factory=dict)
    """Columns of our results -> the columns beside each that the screen leaves out where there is no result"""
    n_records: int = 1
    """How many runs the table is made of"""

    @property
    def text(self) -> pd.DataFrame:
        """The table as it is printed."""
        return pd.DataFrame([[str(v) for v in row] for row in self.rows], columns=self.columns, dtype=object)

    def has_result(self, row: Sequence[Any]) -> bool:
        """Whether a row holds a result of ours; every row does in a table that is not beside the paper's."""
        return not self.ours or any(isinstance(row[self.columns.index(c)], Number) for c in self.ours)

    @property
    def filled_first(self) -> list[list[Any]]:
        """The rows that hold a result of ours, then the others."""
        return sorted(self.rows, key=lambda row: not self.has_result(row))

    def below(self, shown: Sequence[Sequence[Any]] = ()) -> list[str]:
        """Footnotes and notes; of the footnotes those that are in the table, or in the part of it that is shown."""
        printed = " ".join(str(value) for row in shown or (self.columns, *self.rows) for value in row)
        return [f"[{m}] {text}" for m, text in self.footnotes.items() if f"[{m}]" in printed] + self.notes


def markdown(table: Table) -> str:
    """The table in GitHub's Markdown."""

    def line(cells: Sequence[Any]) -> str:
        return "| " + " | ".join(str(c).replace("|", r"\|") for c in cells) + " |"

    rule = ["---" if i < table.left else "---:" for i in range(len(table.columns))]
    out = [f"## {table.title}", "", f"Settings: {table.selection}.", ""]
    out += map(line, (table.columns, rule, *table.filled_first))
    out += [part for note in table.below() for part in ("", note)]
    if table.commands:
        out += ["", "Missing cells are filled by", "", *(f"    {command}" for command in table.commands)]
    return "\n".join(out) + "\n"


def latex(table: Table) -> str:
    """``longtable`` environments for the packages array, booktabs and longtable; a wide table becomes several parts.

    The parts share one number. Their width is that of a page of LaTeX's class article.
    """
    words, numbers = table.columns[: table.left], table.columns[table.left :]
    most = _WORDS[table.left > 1]
    inside = {c: max(map(len, table.text[c]), default=0) for c in table.columns}
    heads = {c: [c] if c in words else textwrap.wrap(c, max(inside[c], _HEAD)) for c in table.columns}
    lengths = {c: max(inside[c], *map(len, heads[c])) for c in table.columns}
    broken = {c for c in words if lengths[c] > most}
    widths = {c: _GAP + (most if c in broken else lengths[c]) for c in table.columns}
    parts: list[list[str]] = [[]]
    for i in range(0, len(numbers), table.together):
        group = numbers[i : i + table.together]
        if parts[-1] and sum(widths[c] for c in words + parts[-1] + group) > _LETTERS:
            parts.append([])
        parts[-1] += group
    out = [r"% needs \usepackage[T1]{fontenc} \usepackage{array} \usepackage{booktabs} \usepackage{longtable}"]
    paragraph = rf">{{\raggedright\arraybackslash}}p{{{most * 0.5:.1f}em}}"
    for i, part in enumerate(parts):
        text = table.text[words + part].map(escape).rename(columns=lambda c: _stacked(heads[c]))
        more = f" Part {i + 1} of {len(parts)}." if len(parts) > 1 else ""
        head = r"\addtocounter{table}{-1}" if i else ""
        out += [rf"{{\footnotesize\setlength{{\tabcolsep}}{{3pt}}{head}", text.to_latex(
            index=False, longtable=True, escape=False,
            column_format="".join(paragraph if c in broken else "l" for c in words) + "r" * len(part),
            caption=f"{escape(table.title)}. Settings: {escape(table.selection)}.{more}",
            label=f"tab:{table.name}" + (f"-{i + 1}" if len(parts) > 1 else ""),
        ).strip(), "}"]  # fmt: skip
    # Settings and addresses are words as long as a line.
    out += [rf"{{\footnotesize\sloppy\noindent {_breakable(note)}\par}}" for note in table.below()]
    return "\n".join([*out, *(f"% missing: {command}" for command in table.commands)]) + "\n"


def _stacked(lines: Sequence[str]) -> str:
    """The head of a column, one line above the other."""
    text = r"\\{}".join(map(escape, lines))  # \\[ would begin a distance
    return rf"\shortstack[r]{{{text}}}" if len(lines) > 1 else text


def _breakable(note: str) -> str:
    pieces = ([word] if len(word) <= _WORDS[0] else _BREAKS.split(word) for word in note.split())
    return " ".join(r"\allowbreak ".join(map(escape, parts)) for parts in pieces)


def escape(words: Any) -> str:
    """Text for LaTeX."""
    return str(words).translate(_LATEX)


def comma_separated(table: Table) -> str:
    """Numbers in full precision, words as they are printed; the last column says how settings were chosen."""
    rows = [
        [float(v) if isinstance(v, Number) else as_cell(v) if isinstance(v, str) else v for v in row]
        for row in table.filled_first
    ]
    frame = pd.DataFrame(rows, columns=table.columns, dtype=object).assign(settings=as_cell(table.selection))
    return str(frame.to_csv(index=False, lineterminator="\n"))


def fragment(table: Table) -> str:
    """The table in HTML, without a page around it."""
    body = table.text.to_html(index=False, border=0, classes=f"left{table.left}", justify="left")
    below = "".join(f"<p>{html.escape(note)}</p>" for note in table.below())
    if table.commands:
        below += "<p>Missing cells are filled by</p><pre>" + html.escape("\n".join(table.commands)) + "</pre>"
    return (
        f"<h2>{html.escape(table.title)}</h2><p>Settings: {html.escape(table.selection)}.</p>"
        f'<div class="scroll">{body}</div><div class="foot">{below}</div>'
    )


STYLE = """
body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:1400px;padding:0 1rem;color:#1b1f24;background:#fff}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{padding:.2rem .5rem;border-bottom:1px solid #d8dee4;white-space:nowrap}thead th{border-bottom:2px solid #57606a}
.w{text-align:left}.n{text-align:right}.scroll{overflow-x:auto}
.dataframe{font-size:.85rem}.dataframe td{text-align:right}.left1 td:nth-child(1),.left2 td:nth-child(-n+2),
.left4 td:nth-child(-n+4){text-align:left}
/* Row names stay in sight while the rest of a wide table scrolls. */
.dataframe td:first-child{position:sticky;left:0;background:#fff}
.foot{font-size:.85rem;color:#424a53;max-width:70rem}pre{background:#f6f8fa;padding:.6rem;overflow-x:auto}
img{max-width:100%}
"""


def save(tables: Sequence[Table], folder: Path, name: str, figures: Sequence[str] = ()) -> list[Path]:
    """Write ``NAME.md``, ``.tex``, ``.html``, and one CSV per table.

    Files stay as they are where no table has a run behind it: nothing that was filled is replaced by nothing.

    Parameters
    ----------
    figures : sequence of str
        Names of PNG files in the same folder, which the Markdown and HTML show.
    """
    if not any(table.n_records for table in tables) and (folder / f"{name}.md").exists():
        print(f"zsl: no record belongs to any cell, so {folder / name}.md and its like stay.", file=sys.stderr)
        return []
    folder.mkdir(parents=True, exist_ok=True)
    pictures = "".join(f'<p><img src="{html.escape(f)}" alt=""></p>' for f in figures)
    head = f'<meta charset="utf-8"><title>{html.escape(tables[0].title)}</title><style>{STYLE}</style>'
    body = pictures + "".join(map(fragment, tables))
    texts = {
        f"{name}.md": "\n".join([*map(markdown, tables), *(f"![]({f})\n" for f in figures)]),
        f"{name}.tex": "\n".join(map(latex, tables)),
        f"{name}.html": f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{body}</body></html>\n',
    }
    texts |= {f"{table.name}.csv": comma_separated(table) for table in tables}
    for file, content in texts.items():
        (folder / file).write_text(content, encoding="utf-8")
    return [folder / file for file in texts]


def show(table: Table, advice: Sequence[str] = ()) -> None:
    """Print a table: the rows and columns that hold a result of ours, then a line for each dataset that has none.

    Parameters
    ----------
    table : Table
    advice : sequence of str
        How the empty cells are filled, by dataset.
    """
    from rich.console import Console
    from rich.table import Table as Lines
    from rich.text import Text

    at = {c: i for i, c in enumerate(table.columns)}
    mine = [row for row in table.rows if table.has_result(row)]
    void = {c for c in table.ours if not any(isinstance(row[at[c]], Number) for row in mine)}
    hidden = {c for ours in void for c in table.ours[ours]}
    shown = [c for c in table.columns if c not in hidden]
    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    if mine:
        lines = Lines(title=Text(f"{table.title}\nSettings: {table.selection}"), title_justify="left")
        for column in shown:
            lines.add_column(Text(column), justify="left" if at[column] < table.left else "right")
        for row in mine:
            lines.add_row(*(Text(str(row[at[column]])) for column in shown))
        console.print(lines)
        print(*table.below([shown, *([row[at[c]] for c in shown] for row in mine)]), sep="\n")
    else:
        print(f"{table.title}: no results yet.")
    print(*advice, sep="\n", end="\n" if advice else "")
