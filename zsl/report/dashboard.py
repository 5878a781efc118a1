"""A sweep as one page that opens from disk: ``zsl report dashboard FOLDER``."""

from __future__ import annotations

import html
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import pandas as pd

from zsl.errors import UserError
from zsl.report.figures.runs import confusion_counts
from zsl.report.figures.style import COLOURS
from zsl.report.records import settings_of, text_of, varying
from zsl.report.statistics import last_accuracy
from zsl.runs.result import SELECTED
from zsl.runs.status import STATUS, page_of, read
from zsl.runs.summary import settings as how_chosen

# The value of a setting that tuning chose.
_TUNED = "tuned"
# Keys from which others of their group may follow, such as a rule's settings from the rule's name.
_NAMES = ("dataset", "split", "selection", "model.name", "feature.name", "inference.attributes", "inference.labels",
          "split.seed", "split.fold")  # fmt: skip
# A browser draws so many runs without waiting.
MAX_RUNS = 5000
# Confusion matrices take most of a page's size; the best runs have theirs until so many cells are in it.
_MAX_CELLS = 200_000
# What the page says of a metric. A metric that is not explained here is in results.json alone.
_MEANINGS = {
    "acc_class": "the accuracy of each unseen class, averaged over the classes, from 0 to 1; higher is better",
    "gzsl_h": "the harmonic mean of gzsl_seen and gzsl_unseen, from 0 to 1; higher is better",
    "gzsl_seen": "accuracy on images of seen classes where all classes are choices, averaged over classes; higher is "
    "better",
    "gzsl_unseen": "accuracy on images of unseen classes where all classes are choices, averaged over classes; higher "
    "is better",
    "gzsl_ausuc": "the area under the curve of gzsl_seen against gzsl_unseen, from 0 to 1; higher is better, and no "
    "offset between seen and unseen classes has to be chosen",
    "ece": "the expected calibration error: by how much the confidence of answers differs from their accuracy, from 0 "
    "to 1; lower is better",
    "nll": "the negative logarithm of the probability of the true class, averaged over images; lower is better",
    "aurc": "the area under the curve of risk against coverage: the mean error if only the most certain images are "
    "answered; lower is better",
    "hubness_skew": "the skewness of how often each class is the answer: near 0 if all are about as frequent, large if "
    "a few classes attract most images; lower is better",
    "objective": "the objective of training at its end; lower is better, between runs of the same objective only",
    "lasso_gap_max": "the largest duality gap of a code, which bounds how far sparse coding stopped from its optimum; "
    "lower is better",
    "time_fit_s": "seconds to fit the model; lower is better",
    "time_infer_s": "seconds to answer all test images; lower is better",
    "peak_rss_mb": "the largest memory of the process so far in MB; lower is better",
}
_NOT_OF_TEST_CLASSES = ("objective", "lasso_gap_max", "time_fit_s", "time_infer_s", "peak_rss_mb")
# Columns of the table beside the chosen metric.
_COLUMNS = ("acc_class", "hit_1", "hit_3", "hit_5", "gzsl_h", "gzsl_seen", "gzsl_unseen", "time_fit_s")
# On a dark page the last two, yellow and black, change places with white and a lighter yellow.
_DARK = ("#56B4E9", "#E69F00", "#2FC49A", "#E29CC4", "#F0E442", "#8FB8FF", "#FF8A5B", "#E6EDF3")


def dashboard(records: pd.DataFrame, title: str, base: Path = Path()) -> str:
    """The page with its data and the plotting library in it; no request leaves it.

    Parameters
    ----------
    records : DataFrame
        Of :func:`zsl.report.records.read_records`.
    title : str
    base : Path
        The folder that the page will lie in, from which links to run folders start.

    Raises
    ------
    UserError
        If there are more runs than a page can hold.
    """
    from plotly.offline import get_plotlyjs

    records = records.drop_duplicates("folder")
    if len(records) > MAX_RUNS:
        raise UserError(
            f"{len(records)} runs are too many for one page (at most {MAX_RUNS}); name a folder with fewer."
        )
    data = json.dumps(content(records, base), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # "</script>" in a class name must not end the script, nor "<!--" begin a comment in it.
    data = data.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    page = Path(__file__).with_name("page")
    parts = {"TITLE": html.escape(title), "DATA": data, "PLOTLY": get_plotlyjs(),
             "SCRIPT": (page / "dashboard.js").read_text(encoding="utf-8")}  # fmt: skip
    first, *pieces = (page / "dashboard.html").read_text(encoding="utf-8").split("{{")
    # One pass, so that braces in the data are not taken for parts of the frame.
    return first + "".join(parts[name] + rest for name, _, rest in (piece.partition("}}") for piece in pieces))


def content(records: pd.DataFrame, base: Path = Path()) -> dict[str, Any]:
    """What the page shows: the keys that vary, and of each run their values, metrics, classes and confusion."""
    flat = [_settings(key) for key in records["key"]]
    names = list(dict.fromkeys(k for f in flat for k in f))
    known = [read(Path(folder) / STATUS) for folder in records["folder"]]
    varied, said = _columns(flat, known)
    constant = [k for k in names if len({text_of(f.get(k, "absent")) for f in flat}) == 1]
    # The settings that the runs of one model share, and that other models do not have.
    own: dict[str, dict[str, str]] = {}
    for f in flat:
        mine = {k: _words(v) for k, v in f.items() if k not in (*varied, *said, *constant)}
        own.setdefault(f["model.name"], mine)
    keys, places = zip(*(_key(k, flat) for k in varied)) if varied else ((), ())
    metrics = _metrics(records["record"])
    classes = {text: i for i, text in enumerate(dict.fromkeys(_classes(r) for r in records["record"]))}
    splits = {text: i for i, text in enumerate(dict.fromkeys(records["split"]))}
    main = _main(records, [m["name"] for m in metrics])
    runs = []
    for number, (record, folder, values, state) in enumerate(zip(records["record"], records["folder"], flat, known)):
        rows = record["per_class"]
        accuracy = [last_accuracy(row) for row in rows]
        runs.append({
            "number": number, "name": f"{values['model.name']} #{number + 1}", "model": values["model.name"],
            "values": [place[text_of(values[k])] if k in values else -1 for k, place in zip(varied, places)],
            "metrics": [record["metrics"].get(m["name"]) for m in metrics],
            "split": splits[records["split"].iloc[number]], "classes": classes[_classes(record)],
            "accuracy": [None if a is None else round(a, 4) for a in accuracy],
            "images": [row["images"] for row in rows], "predicted": [row["predicted"] for row in rows],
            "confusion": None, "how": how_chosen(record["key"]), **_links(folder, base, state),
            "more": [[k, _words(values[k])] for k in said if k in values],
        })  # fmt: skip
    _add_confusion(runs, records, metrics[main])
    return {
        "about": _about(records, varied), "keys": keys, "metrics": metrics, "metric": main, "runs": runs,
        "classes": [json.loads(text) for text in classes],
        "constant": [[k, _words(flat[0].get(k))] for k in constant],
        "own": {model: [*values.items()] for model, values in own.items()},
        "colours": {"light": COLOURS, "dark": _DARK},
    }  # fmt: skip


def _settings(key: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run, with one word for what tuning chose: its choice is a result, which differs by split."""
    split = key["split"]
    unseen = ", ".join(split["unseen"])
    which = {f"split.{k}": split[k] for k in ("seed", "fold", "index") if k in split}
    tuned = dict.fromkeys((key.get("tune") or {}).get("chosen", {}), _TUNED)
    rule = {"selection": key["selection"].removeprefix("none: ")}
    which |= {"unseen classes": unseen if len(unseen) < 80 else split["rows"], "seed": key["seed"]}
    out = {**settings_of(key), **tuned, **rule, **which}
    # 1 and 1.0 are the same setting.
    return {k: int(v) if isinstance(v, float) and v.is_integer() else v for k, v in out.items()}


def _columns(
    flat: Sequence[Mapping[str, Any]], known: Sequence[Mapping[str, Any]]
) -> tuple[list[str], list[str]]:  # fmt: skip
    """The keys that vary, those of the sweep first; and those left out, which follow from the name of their group."""
    swept = [str(word).partition("=")[0].lstrip("+") for state in known for word in state.get("overrides") or ()]
    place = {key: i for i, key in reversed([*enumerate(dict.fromkeys(swept))])}
    varied = sorted(varying(flat), key=lambda k: place.get(k, place.get(k.removesuffix(".name"), len(place))))

    def follows(key: str, name: str) -> bool:
        values: dict[str, set[str]] = {}
        for f in flat:
            values.setdefault(text_of(f.get(name, "absent")), set()).add(text_of(f.get(key, "absent")))
        return all(len(found) == 1 for found in values.values())

    said = [
        key
        for key in varied
        if key not in place and key not in _NAMES
        and any(follows(key, name) for name in _NAMES if name in varied and _group(name) == _group(key))
    ]  # fmt: skip
    return [key for key in varied if key not in said], said


def _group(key: str) -> str:
    return {"selection": "tune", "unseen classes": "split"}.get(key, key.split(".")[0])


def _is_repetition(key: str) -> bool:
    """Whether a key says which repetition a run is."""
    return key in ("split.fold", "split.index", "unseen classes") or key.split(".")[-1] == "seed"


def _key(name: str, flat: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], dict[str, int]]:
    """A key that varies with its values in their order, and the place of each value there."""
    found = {text_of(f[name]): f[name] for f in flat if name in f}
    ordered = sorted(found, key=lambda text: _order(found[text]))
    numbers = [found[text] if _is_number(found[text]) else None for text in ordered]
    some = any(n is not None for n in numbers)
    about = {
        "name": name, "values": [_words(found[text]) for text in ordered], "repetition": _is_repetition(name),
        "numbers": numbers if some and all(_is_number(v) or v in (None, _TUNED) for v in found.values()) else None,
    }  # fmt: skip
    return about, {text: i for i, text in enumerate(ordered)}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _order(value: Any) -> tuple[Any, ...]:
    """Where a value stands: nothing first, then numbers, then words with the numbers in them by their size."""
    if value in (None, _TUNED):
        return (0, value is not None)
    if _is_number(value):
        return (1, value)
    return (2, [(int(t), "") if t.isdecimal() else (-1, t) for t in re.split(r"(\d+)", _words(value))])


def _words(value: Any) -> str:
    """A setting as people read it."""
    if value is None:
        return "not set"
    return value if isinstance(value, str) else text_of(value)


def _metrics(found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The metrics that some run has and that can be explained, those of the answer before those of single stages."""
    names = list(dict.fromkeys(m for record in found for m, v in record["metrics"].items() if v is not None))
    out = []
    for name in sorted(names, key=lambda n: "/" in n) or ["acc_class"]:
        stage, _, plain = name.rpartition("/")
        if hit := re.fullmatch(r"hit_(\d+)", plain):
            k = int(hit[1])
            best = "first choice" if k == 1 else f"first {k} choices"
            meaning = f"the share of test images whose true class is among the {best}; higher is better"
        elif (meaning := _MEANINGS.get(plain, "")) == "":
            continue
        of_stage = f" Here it is that of the stage {stage} of inference." if stage else ""
        out.append(
            {
                "name": name,
                "about": f"{name} is {meaning}.{of_stage}",
                "lower": "lower is" in meaning,
                "oracle": plain not in _NOT_OF_TEST_CLASSES,
                "column": name in _COLUMNS,
            }
        )
    nothing = {"name": "acc_class", "about": "No metric is known.", "lower": False, "oracle": False, "column": True}
    return out or [nothing]


def _main(records: pd.DataFrame, names: Sequence[str]) -> int:
    """The metric that the page opens with: gzsl_h if every run is generalised, else acc_class, else the first."""
    generalised = "gzsl_h" in records and bool(records["gzsl_h"].notna().all())
    return next((names.index(m) for m in (*(["gzsl_h"] if generalised else []), "acc_class") if m in names), 0)


def _classes(record: Mapping[str, Any]) -> str:
    return text_of([row["class"] for row in record["per_class"]])


def _links(folder: str, base: Path, state: Mapping[str, Any]) -> dict[str, str | None]:
    """Where a run's folder is, as seen from the page, and its page in MLflow with what that needs."""
    there = os.path.relpath(os.path.abspath(folder), os.path.abspath(base))
    out: dict[str, str | None] = {"folder": quote(there.replace(os.sep, "/")) + "/", "page": None, "pageNeeds": None}
    tracking = state.get("tracking") or {}
    run, uri = tracking.get("run_id"), tracking.get("uri") or ""
    if isinstance(run, str) and run.isalnum():
        parts = urlsplit(uri)
        if parts.scheme in ("http", "https"):  # without a login, which is nobody's business
            server = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))
            out |= {"page": f"{server}/#/runs/{run}", "pageNeeds": "the run on its MLflow server"}
        else:
            shown = page_of(Path(state.get("output_dir") or "")) or "http://127.0.0.1:5000"
            out |= {"page": f"{shown}/#/runs/{run}", "pageNeeds": "the run in MLflow, while zsl ui runs"}
    return out


def _add_confusion(runs: Sequence[dict[str, Any]], records: pd.DataFrame, metric: Mapping[str, Any]) -> None:
    """Give the best runs their confusion matrices as (true, predicted, images), until the page holds enough."""
    values = records[metric["name"]] if metric["name"] in records else pd.Series(0.0, index=records.index)
    cells = 0
    for i in values.reset_index(drop=True).sort_values(ascending=metric["lower"]).index:
        counts = confusion_counts(records["record"].iloc[i], records["folder"].iloc[i])
        cells += len(counts)
        if cells > _MAX_CELLS:
            return
        place = {row["class"]: k for k, row in enumerate(records["record"].iloc[i]["per_class"])}
        known = [(place[t], place[p], n) for (t, p), n in counts.items() if t in place and p in place]
        runs[i]["confusion"] = known or None


def _about(records: pd.DataFrame, varied: Sequence[str]) -> str:
    data, splits = (", ".join(dict.fromkeys(map(str, records[c]))) for c in ("dataset", "split_name"))
    settings, repeated = ([k for k in varied if _is_repetition(k) == kind] for kind in (False, True))
    n, tuned = len(records), records["selection"] == SELECTED
    more = f" and {len(settings) - 8} more" if len(settings) > 8 else ""
    return (
        f"{n} run{'s' if n > 1 else ''} on {data} ({splits} split). "
        + (f"What varies: {', '.join(settings[:8])}{more}. " if settings else "No setting varies. ")
        + (f"Repetitions: {', '.join(repeated)}. " if repeated else "")
        + ("Settings were not tuned." if tuned.sum() == 0 else
           f"The settings of {'all' if tuned.all() else tuned.sum()} runs were {SELECTED}.")
    )  # fmt: skip
