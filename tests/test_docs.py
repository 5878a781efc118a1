"""The documentation: the site builds without a warning, commands exist, notebooks run, numbers have a source."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys

import pytest
import yaml

from conftest import ROOT
from zsl import compose
from zsl.__main__ import COMMANDS
from zsl.errors import UserError

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))


def lines():
    for page in PAGES:
        for line in page.read_text(encoding="utf-8").splitlines():
            match = re.match(r" {4}(?:\$ )?(zsl .*)", line)
            if match:
                yield page.name, re.split(r"\s{2,}(?:#|\S)", match[1])[0].removesuffix("\\").strip()


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path):
    pytest.importorskip("sphinx", reason="Sphinx comes with the extra docs")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", str(DOCS), str(tmp_path)]
    out = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert out.returncode == 0, out.stderr
    assert "model.lam_relative" in (tmp_path / "_generated" / "settings.html").read_text(encoding="utf-8")
    assert not re.search(r'(?:src|href)="https?://[^"]*\.(?:js|css)', (tmp_path / "index.html").read_text()), (
        "needs no network"
    )


@pytest.mark.parametrize(("page", "command"), sorted(set(lines())))
def test_commands_of_the_documentation_are_understood(page, command):
    words = shlex.split(command)
    if words[0] == "python":
        words = ["zsl", "run", *words[3:]]
    if words[1] == "--help":
        return
    assert words[1] in COMMANDS, f"{page}: zsl has no command {words[1]}"
    settings = [w for w in words[2:] if "=" in w and not w.startswith("-")]
    placeholder = any(re.search(r"\b[A-Z]{2,}\b|\.\.\.|PATH", w.partition("=")[2]) for w in settings)
    if words[1] == "run" and not placeholder and "--config-dir" not in words and "launcher" not in command:
        single = [re.sub(r"^([^=]*)=(?![\[{'])([^,]*),.*$", r"\1=\2", w) for w in settings]
        try:
            compose([re.sub(r"=range\(\d+\)$", "=0", w) for w in single if not w.startswith("hydra")])
        except UserError as error:
            pytest.fail(f"{page}: {command}: {error}")


def test_links_between_pages_exist():
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_number_has_a_row():
    spec = importlib.util.spec_from_file_location("check_numbers", DOCS / "check_numbers.py")
    numbers = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(numbers)
    for entry in yaml.safe_load((DOCS / "numbers.yaml").read_text(encoding="utf-8")):
        text = (ROOT / entry["file"]).read_text(encoding="utf-8").splitlines()
        (line,) = [line for line in text if entry["row"] in line]
        written, _ = numbers.compared(line, entry["row"], ["0.000"] * len(entry["metrics"]))
        assert "-" not in written, f"{entry['file']}: {entry['row']} has no number yet"
    assert numbers.described([0.5, 0.7]) == "0.600 ± 0.141"
    assert numbers.compared("| a | 0.1 ± 0.2 | - |", "a", ["0.3", "0.4"]) == (["0.1 ± 0.2", "-"], "| a | 0.3 | 0.4 |")


@pytest.mark.long
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebooks_run(path, tmp_path, monkeypatch):
    nbclient = pytest.importorskip("nbclient", reason="nbclient comes with the extra docs")
    import nbformat

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    # The outputs that the site shows are those of the code that stands there.
    shown = nbformat.read(path, as_version=4)
    for ran, saved in zip(notebook.cells, shown.cells):
        if ran.cell_type == "code":
            texts = [[o.get("text", "") for o in cell.outputs if o.output_type == "stream" and o.name == "stdout"]
                     for cell in (ran, saved)]  # fmt: skip
            assert texts[0] == texts[1]
