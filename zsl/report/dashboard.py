"""A sweep as one page that opens from disk: ``python -m zsl.report dashboard FOLDER``; frame: ``dashboard.html``."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from zsl.errors import UserError
from zsl.report.document import STYLE
from zsl.report.figures import COLOURS
from zsl.report.sweeps import settings_of, varying
from zsl.runs.files import settings as how_chosen

# What a page can hold and a browser can draw without waiting; a larger sweep is shown in parts.
MAX_RUNS = 5000


def dashboard(records: Sequence[Mapping[str, Any]], title: str) -> str:
    """The page: no request leaves it, and its data are in it.

    Raises
    ------
    UserError
        If there are more runs than a page can hold.
    """
    if len(records) > MAX_RUNS:
        raise UserError(
            f"{len(records)} runs are too many for one page (at most {MAX_RUNS}); name a folder with fewer."
        )
    template = Path(__file__).with_name("dashboard.html").read_text(encoding="utf-8")
    data = json.dumps(content(records, title), ensure_ascii=False, allow_nan=False)
    # "</script>" in a class name must not end the script, nor "<!--" begin a comment in it.
    data = data.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    parts = {"TITLE": html.escape(title), "STYLE": STYLE, "COLOURS": json.dumps(COLOURS), "DATA": data}
    before, *rest = template.split("{{")
    out = [before]
    for piece in rest:
        name, _, after = piece.partition("}}")
        out += [parts[name], after]
    return "".join(out)


def content(records: Sequence[Mapping[str, Any]], title: str) -> dict[str, Any]:
    """What the page shows: the keys that vary, and of each run their values, metrics, classes and confusion."""
    flat = [_settings(r["key"]) for r in records]
    keys = list(dict.fromkeys(k for f in flat for k in f))
    varied = varying(flat)
    constant = {k: flat[0].get(k) for k in keys if len({json.dumps(f.get(k, "absent")) for f in flat}) == 1}
    # What a model's runs share and other models' do not have.
    own: dict[str, dict[str, Any]] = {}
    for f in flat:
        own.setdefault(f["model.name"], {k: v for k, v in f.items() if k not in varied and k not in constant})
    metrics = list(dict.fromkeys(m for r in records for m, v in r["metrics"].items() if v is not None))
    runs = []
    for record, values in zip(records, flat):
        runs.append({
            "model": values["model.name"],
            "settings": {k: values.get(k) for k in varied},
            "metrics": record["metrics"],
            "per_class": [{"class": row["class"], "images": row["images"], "predicted": row["predicted"],
                           "acc": _last(row)} for row in record["per_class"]],
            "confusion": record.get("confusion", {}),
            "selection": how_chosen(record["key"]),
        })  # fmt: skip
    rules = list(dict.fromkeys(r["key"]["selection"].removeprefix("none: ") for r in records))
    return {"title": title, "varied": varied, "constant": constant, "own": own, "metrics": metrics, "runs": runs,
            "rules": rules}  # fmt: skip


def _settings(key: Mapping[str, Any]) -> dict[str, Any]:
    split = key["split"]
    unseen = ", ".join(split["unseen"])
    which = {f"split.{k}": split[k] for k in ("seed", "fold", "index") if k in split}
    tuned = (key.get("tune") or {}).get("chosen", {})
    return {**settings_of(key), **tuned, **which, "unseen classes": unseen if len(unseen) < 80 else split["rows"],
            "seed": key["seed"]}  # fmt: skip


def _last(row: Mapping[str, Any]) -> float | None:
    """A class's accuracy at the last stage: the one that ``predicted`` and the confusion belong to."""
    return [v for k, v in row.items() if k.endswith("/acc")][-1]
