"""Imports flow one way, heavy libraries stay behind their fences, and the command starts light."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from conftest import ROOT

PACKAGE = ROOT / "zsl"
# A module may import modules of a lower rank, or of its own folder.
RANK = {
    "errors": 0, "interruption": 0, "records": 0, "checks": 1, "config": 2, "sparse": 3, "data": 4, "inference": 4,
    "evaluation": 4, "models": 5, "search": 5, "stages": 6, "tuning": 7, "validation": 8, "theory": 6,
    "networks": 2, "extract": 6,
    "loading": 5, "pipeline": 6, "report": 8, "tracking": 8, "bench": 9, "bench_learning": 7, "bench_spreading": 7,
    "bench_report": 1, "bench_arguments": 1, "summary": 9, "experiment": 10, "sweeps": 9, "predict": 10, "serving": 11,
    "main": 11,
}  # fmt: skip
# Third-party packages and the only places that may import them.
FENCES = {
    "mlflow": {"tracking", "serving"},
    "matplotlib": {"report", "bench_report"},
    "torch": {"networks"},
    "onnxruntime": {"networks"},
    "spams": {"bench", "bench_learning"},
    "hydra": {"config", "main", "sweeps"},
    "optuna": {"search"},
    "numba": {"sparse", "bench"},
    "h5py": {"data"},
    "pynndescent": {"inference"},
    "pooch": {"data"},
}
MODULES = sorted(p for p in PACKAGE.rglob("*.py") if p != PACKAGE / "__init__.py")


def place(path):
    """The first name under zsl: the folder or the module."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path):
    """Names imported anywhere in a file, except for type checking only."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        for child in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            # "from zsl import inference" names a part of zsl as well.
            yield from ([f"zsl.{a.name}" for a in node.names] if node.module == "zsl" else [node.module or ""])


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_flow_one_way(path):
    here = place(path)
    assert here in RANK, f"zsl/{here} has no rank yet: say in RANK where it stands"
    for name in imports(path):
        top, _, rest = name.partition(".")
        if top == "zsl" and rest:
            there = rest.split(".")[0]
            assert there == here or RANK[there] < RANK[here], f"{here} may not import zsl.{rest}"
        assert here in FENCES.get(top, {here}), f"only {FENCES[top]} may import {top}, not zsl/{here}"


def test_only_the_agreed_top_level_names():
    import zsl

    assert set(zsl.__all__) == {
        "CoupledDictionaries", "UserError", "ZeroShotData", "__version__", "compose", "load_dataset", "run",
    }  # fmt: skip
    for name in (*zsl.__all__, "sparse", "models", "inference", "data", "evaluation"):
        assert getattr(zsl, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        zsl.nonsense  # noqa: B018


@pytest.mark.parametrize("arguments", [["--help"], ["--cfg", "job"]])
def test_command_answers_without_heavy_imports(arguments, tmp_path):
    # A limit in seconds would fail on a busy machine; what takes the seconds is named instead.
    code = (
        "import sys, zsl.main\n"
        "sys.argv = ['zsl', *sys.argv[1:]]\n"
        "try:\n    zsl.main.main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'mlflow', 'sklearn', 'pandas', 'numba', 'matplotlib', 'scipy', 'numpy', 'pydantic', 'rich'}\n"
        "print('heavy:', sorted(heavy & set(sys.modules)))\n"
    )
    out = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert out.stdout.splitlines()[-1] == "heavy: []"
    assert "coupled" in out.stdout


def test_no_absolute_path_or_unpickling():
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        assert "/root/" not in text
        assert "/work/" not in text
        assert "allow_pickle=True" not in text
        assert "import pickle" not in text
