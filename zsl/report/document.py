"""A table as Markdown, LaTeX (booktabs), CSV and HTML."""

from __future__ import annotations

import csv
import html
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

Value = str | float | int | None

_LATEX = {"&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}",
          "^": r"\textasciicircum{}", "\\": r"\textbackslash{}", "±": r"$\pm$", "<": r"$<$", ">": r"$>$",
          "|": r"$|$"}  # fmt: skip


@dataclass
class Cell:
    """What stands in one place: text for people, the number for machines, the marks of its footnotes."""

    text: str
    number: float | None = None
    marks: tuple[str, ...] = ()


@dataclass
class Table:
    """Rows of cells under columns; text and numbers are put into cells by :func:`number` and :func:`text`."""

    name: str
    """File name"""
    title: str
    selection: str
    """How settings were chosen, printed over the table"""
    columns: list[str]
    rows: list[list[Cell]] = field(default_factory=list)
    left: int = 1
    """Columns of words before those of numbers"""
    notes: list[str] = field(default_factory=list)
    """Paragraphs under the table"""
    footnotes: dict[str, str] = field(default_factory=dict)
    """Mark -> text"""
    commands: list[str] = field(default_factory=list)
    """What fills the missing cells"""
    n_records: int | None = None
    """Runs behind the table, where cells may be missing"""
    together: Sequence[Sequence[int]] | None = None
    """Columns after the words that stay on one printed page; None: each may stand alone"""

    def used_footnotes(self) -> list[tuple[str, str]]:
        used = {mark for row in self.rows for cell in row for mark in cell.marks}
        return [(mark, text) for mark, text in self.footnotes.items() if mark in used]


def number(value: float | None, digits: int = 1, std: float | None = None, *, sign: bool = False,
           marks: Sequence[str] = ()) -> Cell:  # fmt: skip
    """A number, with its standard deviation if that is known; None is a dash."""
    if value is None or math.isnan(value):
        return Cell("-", None, tuple(marks))
    text = f"{value:+.{digits}f}" if sign else f"{value:.{digits}f}"
    if std is not None and not math.isnan(std):
        text += f" ± {std:.{digits}f}"
    return Cell(text, float(value), tuple(marks))


def text(value: str, *marks: str) -> Cell:
    return Cell(value, None, tuple(marks))


def missing() -> Cell:
    """A cell whose runs are not there."""
    return Cell("missing")


def markdown(table: Table) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(c.replace("|", r"\|") for c in cells) + " |"

    out = [f"## {table.title}", "", f"Settings: {table.selection}.", "", line(table.columns)]
    out.append(line(["---" if i < table.left else "---:" for i in range(len(table.columns))]))
    out += [line([c.text + "".join(f"[{m}]" for m in c.marks) for c in row]) for row in table.rows]
    out += ["", *(f"[{mark}] {text}" + "  " for mark, text in table.used_footnotes())]
    out += [part for note in table.notes for part in ("", note)]
    if table.commands:
        out += ["", "Missing cells are filled by", "", *(f"    {command}" for command in table.commands)]
    return "\n".join(out) + "\n"


# What LaTeX's article class holds in small print: letters across, with a column's gaps as letters, and rows on a page.
_LETTERS, _GAP, _ROWS = 78, 1.4, 40


def numbers_in(text: str) -> int:
    """How many cells of a table in Markdown hold a number."""
    cells = (c for line in text.splitlines() if line.startswith("| ") for c in re.split(r"(?<!\\)\|", line))
    return sum(bool(re.fullmatch(r"[+-]?[\d.]+( ± [\d.]+)?(\[\w\])*", c.strip())) for c in cells)


def latex(table: Table) -> str:
    """``table`` environments for the package booktabs; ``longtable`` where there are more rows than a page has.

    What is wider than a page becomes several tables, each with the columns of words.
    """
    parts = _parts(table)
    long = len(table.rows) > _ROWS
    out = ["% needs " + r"\usepackage{booktabs}" + (r" and \usepackage{longtable}" if long else "")]
    foot = [rf"$^{{{mark}}}$ {escape(text)}" for mark, text in table.used_footnotes()]
    foot += [escape(note) for note in table.notes]
    for i, columns in enumerate(parts):
        caption = f"{escape(table.title)}. Settings: {escape(table.selection)}."
        label = rf"\label{{tab:{table.name}}}"
        if len(parts) > 1:
            caption += f" Part {i + 1} of {len(parts)}."
            label = rf"\label{{tab:{table.name}-{i + 1}}}"
        head = " & ".join(escape(table.columns[c]) for c in columns) + r" \\"
        body = [" & ".join(_latex_cell(row[c]) for c in columns) + r" \\" for row in table.rows]
        alignment = "".join("l" if c < table.left else "r" for c in columns)
        last = foot if i == len(parts) - 1 else []
        out += (_longtable if long else _float)(alignment, caption, label, head, body, last)
    return "\n".join([*out, *(f"% missing: {c}" for c in table.commands)]) + "\n"


def _parts(table: Table) -> list[list[int]]:
    """Columns of each printed table."""
    widths = [
        _GAP + max(len(t) for t in (name, *(row[i].text for row in table.rows))) for i, name in enumerate(table.columns)
    ]
    words = list(range(table.left))
    groups = table.together or [[i] for i in range(table.left, len(table.columns))]
    parts: list[list[int]] = [[*words]]
    for group in groups:
        full = sum(widths[i] for i in (*parts[-1], *group)) > _LETTERS
        if full and len(parts[-1]) > len(words):
            parts.append([*words])
        parts[-1] += group
    return parts


def _latex_cell(cell: Cell) -> str:
    return escape(cell.text) + (f"$^{{{','.join(cell.marks)}}}$" if cell.marks else "")


def _float(alignment: str, caption: str, label: str, head: str, body: list[str], foot: list[str]) -> list[str]:
    out = [r"\begin{table}", r"\centering\footnotesize\setlength{\tabcolsep}{3pt}", rf"\caption{{{caption}}}", label,
           rf"\begin{{tabular}}{{{alignment}}}", r"\toprule", head, r"\midrule", *body, r"\bottomrule",
           r"\end{tabular}"]  # fmt: skip
    if foot:
        out += [r"\par\smallskip\begin{minipage}{\linewidth}\footnotesize", r"\\ ".join(foot), r"\end{minipage}"]
    return [*out, r"\end{table}"]


def _longtable(alignment: str, caption: str, label: str, head: str, body: list[str], foot: list[str]) -> list[str]:
    # The group keeps the small print to the table. The head is set again on every page.
    out = [r"{\footnotesize\setlength{\tabcolsep}{3pt}", rf"\begin{{longtable}}{{{alignment}}}",
           rf"\caption{{{caption}}}{label}\\", r"\toprule", head, r"\midrule", r"\endfirsthead",
           r"\toprule", head, r"\midrule", r"\endhead", r"\bottomrule", r"\endfoot", *body,
           r"\end{longtable}"]  # fmt: skip
    if foot:
        out += [r"\noindent " + r"\\ ".join(foot) + r"\par"]
    return [*out, "}"]


def escape(words: str) -> str:
    """Text for LaTeX."""
    return re.sub("[" + re.escape("".join(_LATEX)) + "]", lambda m: _LATEX[m[0]], words)


def comma_separated(table: Table) -> str:
    """Numbers as numbers, to full precision; words as they are. How settings were chosen is the last column."""
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow([*table.columns, "footnotes", "settings"])
    for row in table.rows:
        marks = " ".join(dict.fromkeys(m for c in row for m in c.marks))
        rows.writerow([*(c.text if c.number is None else repr(c.number) for c in row), marks, table.selection])
    return out.getvalue()


def fragment(table: Table) -> str:
    """The table as HTML without a page around it."""
    kinds = [("w" if i < table.left else "n") + (" first" if i == 0 else "") for i in range(len(table.columns))]
    wide = ' class="wide"' if len(table.columns) > 8 else ""
    head = "".join(f'<th class="{kind}">{html.escape(c)}</th>' for kind, c in zip(kinds, table.columns))
    body = []
    for row in table.rows:
        line = []
        for kind, c in zip(kinds, row):
            note = "".join(f"<sup>{html.escape(m)}</sup>" for m in c.marks)
            line.append(
                f'<td class="{kind}{" missing" if c.text == "missing" else ""}">{html.escape(c.text)}{note}</td>'
            )
        body.append("<tr>" + "".join(line) + "</tr>")
    foot = [f"<p><sup>{html.escape(m)}</sup> {html.escape(t)}</p>" for m, t in table.used_footnotes()]
    foot += [f"<p>{html.escape(n)}</p>" for n in table.notes]
    if table.commands:
        foot.append("<p>Missing cells are filled by</p><pre>" + html.escape("\n".join(table.commands)) + "</pre>")
    return (
        f"<h2>{html.escape(table.title)}</h2><p>Settings: {html.escape(table.selection)}.</p>"
        f'<div class="scroll"><table{wide}><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table></div>'
        f'<div class="foot">{"".join(foot)}</div>'
    )


STYLE = """
body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:1400px;padding:0 1rem;color:#1b1f24;background:#fff}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{padding:.2rem .5rem;border-bottom:1px solid #d8dee4;white-space:nowrap}thead th{border-bottom:2px solid #57606a}
.w{text-align:left}.n{text-align:right}.missing{color:#7a828b;font-style:italic}.scroll{overflow-x:auto}
/* Wide tables: small print, headings that wrap, and row names that stay while the rest scrolls. */
.wide th,.wide td{font-size:.82rem;padding:.15rem .35rem}.wide thead th{white-space:normal;vertical-align:bottom}
.wide .first{position:sticky;left:0;background:#fff;white-space:normal;min-width:6rem;max-width:15rem}
.foot{font-size:.85rem;color:#424a53;max-width:70rem}pre{background:#f6f8fa;padding:.6rem;overflow-x:auto}
sup{color:#0072B2;line-height:0}img{max-width:100%}
"""


def page(title: str, body: str) -> str:
    """A page that needs nothing else."""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{STYLE}</style></head><body>{body}</body></html>\n"
    )


def save(tables: Sequence[Table], folder: Path, name: str, figures: Sequence[str] = ()) -> list[Path]:
    """``NAME.md .tex .csv .html`` in ``folder``; of several tables one CSV each. Figures are PNG files beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    pictures = "".join(f'<p><img src="{html.escape(f)}" alt=""></p>' for f in figures)
    texts = {
        f"{name}.md": "\n".join([*map(markdown, tables), *(f"![]({f})\n" for f in figures)]),
        f"{name}.tex": "\n".join(map(latex, tables)),
        f"{name}.html": page(tables[0].title if tables else name, pictures + "".join(map(fragment, tables))),
    }
    texts |= {f"{table.name}.csv": comma_separated(table) for table in tables}
    for file, content in texts.items():
        (folder / file).write_text(content, encoding="utf-8")
    return [folder / file for file in texts]


def show(table: Table) -> None:
    """Print it."""
    import sys

    from rich.console import Console
    from rich.markup import escape as plain
    from rich.table import Table as Lines

    lines = Lines(title=f"{plain(table.title)}\nSettings: {plain(table.selection)}", title_justify="left")
    for i, column in enumerate(table.columns):
        lines.add_column(column, justify="left" if i < table.left else "right")
    for row in table.rows:
        lines.add_row(*(plain(c.text + "".join(f"[{m}]" for m in c.marks)) for c in row))
    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    console.print(lines)
    for mark, note in table.used_footnotes():
        console.print(plain(f"[{mark}] {note}"), soft_wrap=True)
    for note in table.notes:
        console.print(plain(note), soft_wrap=True)
    if table.commands:
        console.print("Missing cells are filled by")
        for command in table.commands:
            console.print(plain(f"    {command}"), soft_wrap=True)
