"""The examples in the docstrings run and print what they say."""

from __future__ import annotations

import doctest
import importlib

import numpy as np
import pytest

from conftest import ROOT
from zsl.inference import rules

MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in sorted((ROOT / "zsl").rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name, monkeypatch):
    # Rules that an example registers are forgotten after it, and those of zsl are not, since all are imported before.
    monkeypatch.setattr(rules, "_RULES", {kind: dict(rules.rules(kind)) for kind in rules._RULES})
    found = doctest.testmod(importlib.import_module(name), extraglobs={"np": np})
    assert found.attempted
    assert not found.failed
