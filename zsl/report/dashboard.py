"""A sweep as one page that opens from disk: ``python -m zsl.report dashboard FOLDER``."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from zsl.errors import UserError
from zsl.report.diff import varying
from zsl.report.figures import COLOURS
from zsl.report.formats import STYLE
from zsl.report.records import settings_of, text_of
from zsl.report.statistics import last_accuracy
from zsl.runs.summary import settings as how_chosen

# A browser draws so many runs without waiting.
MAX_RUNS = 5000


def dashboard(records: pd.DataFrame, title: str) -> str:
    """The page of ``dashboard.html`` with its data in it; no request leaves it.

    Raises
    ------
    UserError
        If there are more runs than a page can hold.
    """
    records = records.drop_duplicates("folder")
    if len(records) > MAX_RUNS:
        raise UserError(
            f"{len(records)} runs are too many for one page (at most {MAX_RUNS}); name a folder with fewer."
        )
    data = json.dumps(content(records, title), ensure_ascii=False, allow_nan=False)
    # "</script>" in a class name must not end the script, nor "<!--" begin a comment in it.
    data = data.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    parts = {"TITLE": html.escape(title), "STYLE": STYLE, "COLOURS": json.dumps(COLOURS), "DATA": data}
    first, *pieces = Path(__file__).with_name("dashboard.html").read_text(encoding="utf-8").split("{{")
    # One pass, so that braces in the data are not taken for parts of the frame.
    return first + "".join(parts[name] + rest for name, _, rest in (piece.partition("}}") for piece in pieces))


def content(records: pd.DataFrame, title: str) -> dict[str, Any]:
    """What the page shows: the keys that vary, and of each run their values, metrics, classes and confusion."""
    flat = [_settings(key) for key in records["key"]]
    keys = list(dict.fromkeys(k for f in flat for k in f))
    varied = varying(flat)
    constant = {k: flat[0].get(k) for k in keys if len({text_of(f.get(k, "absent")) for f in flat}) == 1}
    # The settings that the runs of one model share, and that other models do not have.
    own: dict[str, dict[str, Any]] = {}
    for f in flat:
        own.setdefault(f["model.name"], {k: v for k, v in f.items() if k not in varied and k not in constant})
    runs = [
        {
            "model": values["model.name"],
            "settings": {k: values.get(k) for k in varied},
            "metrics": record["metrics"],
            "per_class": [{"class": row["class"], "images": row["images"], "predicted": row["predicted"],
                           "acc": last_accuracy(row)} for row in record["per_class"]],
            "confusion": record.get("confusion", {}),
            "selection": how_chosen(record["key"]),
        }
        for record, values in zip(records["record"], flat)
    ]  # fmt: skip
    metrics = list(dict.fromkeys(m for run in runs for m, v in run["metrics"].items() if v is not None))
    return {"title": title, "varied": varied, "constant": constant, "own": own, "metrics": metrics, "runs": runs,
            "rules": list(dict.fromkeys(records["selection"]))}  # fmt: skip


def _settings(key: Mapping[str, Any]) -> dict[str, Any]:
    split = key["split"]
    unseen = ", ".join(split["unseen"])
    which = {f"split.{k}": split[k] for k in ("seed", "fold", "index") if k in split}
    tuned = (key.get("tune") or {}).get("chosen", {})
    return {**settings_of(key), **tuned, **which, "unseen classes": unseen if len(unseen) < 80 else split["rows"],
            "seed": key["seed"]}  # fmt: skip
