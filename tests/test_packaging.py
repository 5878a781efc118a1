"""What is installed: the wheel carries the configuration, and works from any folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile

import pytest

from conftest import ROOT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


def test_wheel_holds_code_and_configuration_only(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    tops = {n.split("/")[0] for n in names}
    assert {t for t in tops if not t.endswith(".dist-info")} == {"zsl"}
    in_wheel = {n.removeprefix("zsl/") for n in names if n.startswith("zsl/conf/")}
    in_checkout = {p.relative_to(ROOT).as_posix() for p in (ROOT / "conf").rglob("*.yaml")}
    assert in_wheel == in_checkout
    assert "zsl/py.typed" in names


@pytest.mark.long
def test_wheel_works_from_any_folder(wheel, tmp_path):
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    # The unpacked wheel stands before the checkout that this environment has installed.
    env = {**os.environ, "PYTHONPATH": str(site)}
    where = subprocess.run(
        [sys.executable, "-c", "import zsl.config; print(zsl.config.conf_dir())"],
        cwd=elsewhere, env=env, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert where.stdout.strip() == str(site / "zsl" / "conf")
    command = [sys.executable, "-m", "zsl.main", "dataset=synthetic", "model.n_iter=1", "tracking=none", "solver=fista"]
    out = subprocess.run(command, cwd=elsewhere, env=env, capture_output=True, text=True, timeout=120)
    assert out.returncode == 0, out.stderr
    assert [p.name for p in elsewhere.iterdir()] == ["multirun"]


def test_make_help_lists_every_target():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", makefile, re.M))
    phony = set(re.search(r"^\.PHONY: (.*)$", makefile, re.M)[1].split())
    # Under `make test` this is a sub-make, which would announce its folder among the targets.
    env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    command = ["make", "--no-print-directory", "help"]
    out = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True).stdout
    listed = {line.split()[1] for line in out.splitlines()}
    assert targets == phony == listed


def test_readme_commands_exist():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(readme.splitlines()) < 120
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"make ([a-z0-9-]+)", readme)):
        assert re.search(rf"^{target}:", makefile, re.M), f"README names `make {target}`"
    # A figure that was to be filled in later.
    assert set(re.findall(r"\b[A-Z]+_[A-Z_]+\b", readme)) <= {"HYDRA_FULL_ERROR", "ZSL_DATA"}
    for path in re.findall(r"`((?:zsl|conf|docs)/[\w./-]+)`", readme):
        if "NAME" not in path:
            assert (ROOT / path).exists(), f"README names {path}"


def test_version_is_one():
    import tomllib

    import zsl

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == zsl.__version__
    if ".dev" not in zsl.__version__:  # until then the citation names the version before
        assert f"version: {zsl.__version__}" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_commands_in_the_documentation_survive_a_shell():
    # bash takes an unquoted range(10) for a syntax error and expands {a,b}.
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for line in path.read_text(encoding="utf-8").splitlines():
            if re.match(r"    (python|make|tune\.|pip|\. )", line):
                command = re.split(r"\s{2,}#|\s{3,}", line.strip())[0]
                bare = re.sub(r"'[^']*'|\"[^\"]*\"", "", command)
                assert not re.search(r"[({]", bare), f"{path.name}: quote what bash would take apart in: {command}"
