"""The recipes for extensions in docs/extend.md, executed as they stand there, in a folder outside the package."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys

import pytest

from commands import zsl
from conftest import ROOT
from zsl.inference import rules

EXTEND = (ROOT / "docs" / "extend.md").read_text(encoding="utf-8")


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


def start(folder, *words):
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, *words, "tracking=none", "output_dir=out"]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)


WRONG = """
import numpy as np


def array(feature):
    return np.eye(3)


def unnamed():
    return None
"""


@pytest.mark.parametrize("command", re.findall(r"^    (zsl run --config-dir.*)$", EXTEND, re.M))
@pytest.mark.slow
def test_commands_of_the_recipes_run(folder, command):
    # The command `zsl`, which does not have the working folder on its path, as `python -m` would.
    code = "import sys; sys.path.remove(''); from zsl.__main__ import main; main()"
    out = start(folder, "-c", code, *shlex.split(command)[1:])
    assert out.returncode == 0, out.stderr
    assert "shapes / own / auto" in out.stdout or "shapes / own / random" in out.stdout
    accuracy = float(re.findall(r"│ +([\d.]+) ±", out.stdout)[-1])
    assert accuracy > 0.6  # chance is one half


MINE = ("-m", "zsl.main", "--config-dir", "conf", "allow_targets=[mine,wrong]", "dataset=shapes")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "model=nearest_seen model.widht=1",
            "model.widht is not known to mine.NearestSeen (did you mean width?); it takes: ",
        ),
        (
            "model=ridge inference=manhattan inference.manhattan.powr=2",
            "inference.manhattan.powr does not exist; it has: power.",
        ),
        (
            "dataset._target_=wrong.array",
            "wrong.array returned a value of type ndarray; a dataset returns a zsl.data.table.",
        ),
        ("dataset._target_=wrong.unnamed", "wrong.unnamed has no parameter feature"),
        ("model=nearest_seen inference=manhattan", "inference.labels=manhattan do not go together: manhattan needs"),
        ("model=nearest_seen tune=class_cv", "such as 'tune.grid={model.width:[0.3,0.6]}'"),
        ("model=nearest_seen tune=class_cv tune.grid={model.widht:[1]}", "tune.grid: model.widht does not exist"),
    ],
)
def test_mistakes_with_the_components_end_in_one_sentence(folder, monkeypatch, words, message):
    (folder / "wrong.py").write_text(WRONG)
    monkeypatch.syspath_prepend(folder)
    # The modules and the rules that they register are forgotten after each case.
    monkeypatch.setattr(rules, "_RULES", {kind: dict(rules.rules(kind)) for kind in ("attributes", "labels")})
    # Another test may have a module of this name, too.
    for name in ("mine", "wrong"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    try:
        out = zsl(*MINE[2:], "tracking=none", *words.split(), cwd=folder)
    finally:
        for name in ("mine", "wrong"):
            sys.modules.pop(name, None)
    assert out.returncode == 1
    (line,) = out.err.strip().splitlines()
    assert message in line


@pytest.mark.slow
def test_settings_of_a_model_that_its_yaml_does_not_list_are_tuned(folder):
    out = start(folder, *MINE, "model=nearest_seen", "tune=class_cv", "tune.grid={model.width:[0.1,0.3]}")
    assert out.returncode == 0, out.stderr
    assert "model.width=0." in out.stdout
