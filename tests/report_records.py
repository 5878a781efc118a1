"""What the tests of reports share: records made up without a run, and those of the fixture ``report_runs``."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr

import pytest

from zsl.report import __main__ as command
from zsl.report.records import as_frame, row

# The runs of the fixture are made with the user's own override, which is part of the cell's name.
EXTRA = ["model.n_iter=2"]
CELL = "digits/model.n_iter-2"


def stored(folder):
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*/results.json"))]


def fails(*words):
    """What the command says on standard error, where it is to end with status 1."""
    with pytest.raises(SystemExit) as ended, redirect_stderr(io.StringIO()) as said:
        command.main([str(w) for w in words])
    assert ended.value.code == 1
    return said.getvalue()


def refused(*words):
    """The one line in which the command refuses something."""
    error = fails(*words)
    assert error.count("\n") == 1
    return error


def record(split="ab", seed=0, acc=0.5, per_class=(), *, n_seen=20, metrics=None, chosen=None, tried=(), **key):
    """A record with unseen classes named by the letters of ``split``; ``key`` replaces parts of its key."""
    tune = {"name": "class_cv", "chosen": chosen, "folds": []} if chosen else None
    values = per_class or [acc] * len(split)
    return {
        "key": {
            "experiment": None, "cell": None, "seed": seed, "tune": tune,
            "dataset": {"name": "d", "content": "c", "semantics": {"l2": True}, "shuffle_attributes": None},
            "feature": {"name": "f"}, "evaluation": {}, "information_used": ["images", "attributes"],
            "split": {"name": "random", "seed": 0, "rows": "".join(split), "unseen": list(split), "n_seen": n_seen},
            "model": {"name": "m", "lam_relative": 0.1, "seed": seed},
            "inference": {"attributes": "own", "labels": "own"},
            "selection": "none: settings as given",
            **key,
        },
        "metrics": {"acc_class": acc, "hit_1": acc, "time_fit_s": 1.0, **(metrics or {})},
        "per_class": [{"class": c, "images": 9, "predicted": 9, "own/acc": v} for c, v in zip(split, values)],
        "trials": [{"settings": settings} for settings in tried],
    }  # fmt: skip


def frame(records):
    """Records as the table that reports are made from; each has a folder of its own."""
    return as_frame([row(one, f"run{i}") for i, one in enumerate(records)])
