"""The README's recipes for extensions, executed as they stand there, in a folder outside the package."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys

import pytest

from conftest import ROOT

EXTEND = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Extend")[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The files of the recipes: blocks of one name are one file, in the order of the page."""
    there = tmp_path_factory.mktemp("extension")
    for name, text in re.findall(r"```(?:python|yaml)\n# (\S+)\n(.*?)```", EXTEND, re.S):
        path = there / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as f:
            f.write(text)
    return there


def test_every_yaml_has_at_most_three_lines(folder):
    found = list((folder / "conf").rglob("*.yaml"))
    assert {p.parent.name for p in found} == {"dataset", "model", "solver", "inference"}
    assert all(len(p.read_text().splitlines()) <= 3 for p in found)


@pytest.mark.parametrize("command", re.findall(r"^    (python -m zsl.main --config-dir.*)$", EXTEND, re.M))
def test_commands_of_the_recipes_run(folder, command):
    words = [*shlex.split(command), "tracking=none", "output_dir=out"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    out = subprocess.run([sys.executable, *words[1:]], cwd=folder, env=env, capture_output=True, text=True)
    assert out.returncode == 0, out.stderr
    assert "shapes / own / auto" in out.stdout or "shapes / own / random" in out.stdout
    accuracy = float(re.findall(r"│ [^│]+ │ +[\d.]+ │ +([\d.]+) │", out.stdout)[-1])
    assert accuracy > 0.6  # chance is one half
