"""Help on every group and key, completion in a shell, and the version."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from conftest import ROOT
from zsl import UserError, compose
from zsl.completion import candidates
from zsl.config import groups, options
from zsl.config.manual import _all_keys, asked_for, group_titles, keys_of, manual, title
from zsl.config.registry import conf_dir


def test_every_key_and_option_is_explained():
    assert [key for _, key in _all_keys() if not key.meaning] == []
    for group in groups():
        assert group_titles()[group][1], group
        for option in options(group):
            assert title(conf_dir() / group / f"{option}.yaml"), (group, option)


def flat(node, prefix=""):
    for key, value in node.items():
        if isinstance(value, dict) and value:
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield prefix + str(key)


@pytest.mark.parametrize("overrides", [
    [], ["model=eszsl", "dataset=synthetic", "tune=class_cv", "split=folds"],
    ["dataset=awa2", "feature=resnet101", "split=proposed"],
])  # fmt: skip
def test_the_help_has_exactly_the_keys_that_there_are(overrides):
    from omegaconf import OmegaConf

    chosen = {g: default for g, (default, _) in group_titles().items() if g != "experiment"}
    chosen |= {"split": "proposed", "feature": "lite0_pca128"} if not overrides else {"feature": "drawn"}
    chosen |= dict(o.split("=") for o in overrides)
    explained = {k.name for g, o in [("", "config"), *chosen.items()] for k in keys_of(g, o)}
    config = OmegaConf.to_container(compose(overrides))
    there = {key for key in flat(config) if not re.search(r"(_target_|_partial_|\.datasets|\.grid.*)$", key)}
    there -= {f"{group}.name" for group in groups()} - {"feature.name"}
    assert explained == {k for k in there if k.partition(".")[0] != "hydra"} | ({"tune.grid"} & explained)


def test_kinds_and_meanings_come_from_docstrings():
    found = {key.name: key for key in keys_of("model", "eszsl")}
    assert found["model.gamma"].kind == "float > 0"
    assert found["model.gamma"].meaning == "The penalty on the side of the features."
    assert found["model.gamma"].default == "10.0"
    spread = {key.name: key for key in keys_of("inference", "taaw")}["inference.spread.mu"]
    assert spread.kind == "float > 0"
    assert "the larger mu is" in spread.meaning


def test_words_choose_what_is_explained():
    assert manual(["model=ridge"]).startswith("model=ridge: Ridge regression")
    assert "eszsl" in manual(["model"])
    assert manual(["seed"]).strip().startswith("seed=0")
    assert "inference.spread.mu=0.1" in manual(["inference.spread"])
    lines = manual(["model.lam"]).splitlines()
    assert "model.lam=null" in lines[lines.index("model=coupled:") + 1]
    assert asked_for(["--config-dir", "conf", "allow_targets=[mine]", "--help", "model=ridge"]) == ["model=ridge"]
    with pytest.raises(UserError, match=r"model=eszl is no option of zsl's own \(did you mean eszsl"):
        manual(["model=eszl"])
    with pytest.raises(UserError, match="there is no group or key modle"):
        manual(["modle"])


def test_completion_proposes_what_is_accepted():
    assert "model=" in candidates("mod", [])
    assert candidates("split=64", []) == ["split=645_72"]
    assert candidates("model.y_n", ["model=eszsl"]) == ["model.y_negative="]
    assert candidates("model.y_n", []) == []


def shell(line: str) -> list[str]:
    """What bash would show after TAB at the end of ``line``, by argcomplete's protocol."""
    environment = {**os.environ, "_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "COMP_LINE": line,
                   "COMP_POINT": str(len(line)), "_ARGCOMPLETE_STDOUT_FILENAME": "/dev/stdout",
                   "_ARGCOMPLETE_SUPPRESS_SPACE": "1"}  # fmt: skip
    out = subprocess.run([sys.executable, "-m", "zsl"], env=environment, capture_output=True, text=True, cwd=ROOT)
    return out.stdout.split("\n")


def test_the_shell_is_answered():
    assert {"run", "report", "ui"} <= set(shell("zsl "))
    assert shell("zsl run solver=act") in (["solver=active_set"], ["active_set"])
    out = subprocess.run([sys.executable, "-m", "zsl", "completion", "zsh"], capture_output=True, text=True, cwd=ROOT)
    assert "compdef" in out.stdout


def test_version_names_the_commit_of_a_checkout(tmp_path):
    out = subprocess.run([sys.executable, "-m", "zsl", "--version"], capture_output=True, text=True, cwd=ROOT)
    head = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, cwd=ROOT)
    if head.returncode:
        pytest.skip("this is no git checkout")
    assert re.fullmatch(rf"zsl \S+ \(commit {head.stdout.strip()}\+?\)\n", out.stdout)
