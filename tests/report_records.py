"""Records made up for the tests of reports: what ``results.json`` holds, without a run."""

from __future__ import annotations

from zsl.report.records import as_frame, row


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
