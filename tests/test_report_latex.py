"""The paper's tables as LaTeX: compiled, numbered once each, and not wider than the page."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from report_records import frame, record
from zsl.report import cells, formats, tables

HEAD = (
    r"\documentclass{article}\usepackage[T1]{fontenc}\usepackage{array,booktabs,longtable}"
    r"\begin{document}\begin{table}\caption{One before}\end{table}"
)


def filled(name):
    """A table whose every cell has two runs on each of two splits."""
    found = []
    for one in cells.cells(name):
        for split, seed in (("abc", 0), ("abc", 1), ("abd", 0), ("abd", 1)):
            acc = 0.123 + seed / 10 + (split == "abd") / 3
            metrics = {f"{stage}/{m}": acc for stage in tables.RULES for m in ("hit_1", "hit_3", "hit_5", "acc_class")}
            tuned = {} if one.variant == "coupled" else {"selection": "selected on validation classes"}
            made = record(split, seed, acc, metrics=metrics, experiment=name, cell=one.id, **tuned)
            made["key"]["dataset"]["name"] = one.data
            found.append(made)
    records = frame(found)
    return tables.table1(records) if name == "table1" else tables.methods(name, records)


@pytest.mark.parametrize("name", ["table1", "table2", "table3"])
def test_latex_compiles_and_fits_a_page(name, tmp_path):
    table = filled(name)
    assert not table.commands
    tex = formats.latex(table)
    parts = tex.split(r"\begin{longtable}")[1:]
    assert len(parts) == tex.count(r"\end{longtable}") > 1
    assert tex.count("{") == tex.count("}")
    assert not re.search(r"caption\{Table", tex)  # LaTeX writes "Table 2:" itself
    if shutil.which("pdflatex") is None:
        pytest.skip("pdflatex is not installed: the text is checked, not compiled")
    (tmp_path / "t.tex").write_text(HEAD + tex + r"\end{document}", encoding="utf-8")
    # Twice, because longtable learns its widths from the first time.
    for _ in range(3):
        subprocess.run(["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"], cwd=tmp_path, check=True,
                       capture_output=True)  # fmt: skip
    wide = re.findall(r"Overfull \\hbox.*", (tmp_path / "t.log").read_text(encoding="latin-1"))
    assert wide == []
    numbers = re.findall(rf"newlabel{{tab:{name}-\d}}{{{{(\d+)}}", (tmp_path / "t.aux").read_text())
    assert numbers == ["2"] * len(parts)  # the parts of one table are one table
