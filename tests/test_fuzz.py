"""A short run of ``make fuzz``: damage that Hypothesis draws, to the formats that Python code reads."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fuzz
from fuzz_formats import FOREIGN, FORMATS, SHARE

# Their good files are those of a run.
SLOW = {"results.json", "status.json"}


@pytest.mark.parametrize("name", [name for name in FORMATS if name not in {*FOREIGN, *SHARE, *SLOW}])
def test_damage_ends_in_a_sentence(name, tmp_path):
    path, load = FORMATS[name](tmp_path)
    good, reference = path.read_bytes(), fuzz.fingerprint(load())

    @settings(max_examples=15)
    @given(st.integers(0, 2**32))
    def damage(seed):
        path.write_bytes(fuzz.mutated(good, random.Random(seed)))
        what, where = fuzz.outcome(load, reference)
        assert what in ("sentence", "same", "changed"), where

    damage()


CHILD = """
import os, time
for i in range({first}, 3):
    print(i, flush=True)
    {ends} if i == 1 else print("same", flush=True)
"""


@pytest.mark.parametrize(
    ("ends", "word"),
    [("os.abort()", "crash"), ("print('traceback here', flush=True)", "traceback"), ("time.sleep(60)", "hang")],
)
def test_crashes_hangs_and_tracebacks_are_counted_and_the_work_goes_on(monkeypatch, ends, word):
    start = fuzz.start

    def child(words):
        return start(["-c", CHILD.format(first=words[words.index("--first") + 1], ends=ends)])

    monkeypatch.setattr(fuzz, "start", child)
    monkeypatch.setattr(fuzz, "_HUNG", 1.5)
    found, bad = fuzz.fuzz("f.csv", 3, "1", time.monotonic() + 60)
    assert dict(found) == {"same": 2, word: 1}
    assert list(bad.values()) == [1]
