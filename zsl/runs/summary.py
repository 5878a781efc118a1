"""What a run prints at its end: what was run, how well it did, under which protocol, and where everything is."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from zsl.runs.files import PREDICTIONS
from zsl.runs.result import Result

# Metrics that the table shows, and what it calls them; all metrics are in results.json.
_SHOWN = {
    "hit_1": "hit@1", "hit_3": "hit@3", "hit_5": "hit@5", "acc_class": "class accuracy",
    "gzsl_unseen": "unseen among all", "gzsl_seen": "seen among all", "gzsl_h": "harmonic mean", "gzsl_ausuc": "AUSUC",
}  # fmt: skip

_COMMON = ("training", "test", "protocol", "caution", "settings", "time")


def show(result: Result, folder: Path, link: str | None, *, brief: bool = False) -> None:
    """Print the metrics of every stage as a table, and the facts that a reader of the table needs.

    Parameters
    ----------
    result : Result
    folder : Path
        The run's folder.
    link : str, optional
        The address of the run's page in the tracking store.
    brief : bool
        Leave out what the jobs of a sweep have in common.
    """
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = Console(width=140)  # a pipe or a log file has no width of its own
    console.print(f"[bold]{heading(result)}[/bold]", highlight=False)
    metrics = result.metrics
    columns = [name for name in _SHOWN if any(known.endswith(f"/{name}") for known in metrics)]
    if columns:
        table = Table("stage", "what it does")
        for column in columns:
            table.add_column(_SHOWN[column], justify="right", no_wrap=True)
        for stage in result.prediction.stages:
            answer = stage is result.prediction.chosen
            values = [f"{metrics.get(f'{stage.name}/{column}', math.nan):.3f}" for column in columns]
            if "acc_class" in columns:
                values[columns.index("acc_class")] += _plus_minus(result.per_class, stage.name)
            table.add_row(f"{stage.name} (the answer)" if answer else stage.name, stage.meaning, *values)
        console.print(table)
    for word, text in _facts(result, bool(columns), folder, link).items():
        if text and not (brief and word in _COMMON):
            console.print(f"{word:8} {text}", soft_wrap=True, highlight=False, markup=False)


def heading(result: Result) -> str:
    """The model, the data, the split and the seed of a result."""
    key = result.key
    drawn = key["split"].get("seed")
    split = key["split"]["name"] + ("" if drawn in (None, key["seed"]) else f" (split.seed {drawn})")
    name = key["model"]["name"]
    return f"{name} / {key['dataset']['name']} / {key['feature']['name']} / {split} / seed {key['seed']}"


def _facts(result: Result, accurate: bool, folder: Path, link: str | None) -> dict[str, Any]:
    key = result.key
    decided = key.get("decision")
    fallback = ""
    if decided:
        used = "is used" if decided["use_transductive"] else "is not used, and the inductive rule stands"
        fallback = f"the transductive rule {used}: {decided['reason']}"
        if decided["use_transductive"]:
            fallback += "; the unseen classes may differ from those, so this is no guarantee"
    shuffled = key["dataset"].get("shuffle_attributes") is not None
    return {
        "control": "the attribute table is shuffled over classes" if shuffled else "",
        "accuracy": ""
        if accurate
        else f"unknown: no test image has a known class; answers are in {folder / PREDICTIONS}",
        "training": training(result),
        "test": tested(result),
        "protocol": protocol(key["information_used"]),
        "caution": key["dataset"].get("provenance", {}).get("caution", ""),
        "settings": settings(key),
        "fallback": fallback,
        "time": _time(result.metrics),
        "folder": folder,
        "tracking": link,
    }


def _time(metrics: Mapping[str, float]) -> str:
    compiled = metrics.get("time_compile_s", 0.0)
    return f"fit {metrics['time_fit_s']:.2f} s, inference {metrics['time_infer_s']:.2f} s" + (
        f"; compiling kernels, once: {compiled:.0f} s" if compiled else ""
    )


def _plus_minus(per_class: Sequence[Mapping[str, Any]], stage: str) -> str:
    """The standard error of a stage's class accuracy, as it stands behind the number."""
    rows = [(row[f"{stage}/acc"], row["images"]) for row in per_class if row.get(f"{stage}/acc") is not None]
    return f" ± {standard_error(rows):.3f}" if rows else ""


def standard_error(classes: Sequence[tuple[float, int]]) -> float:
    """The standard error of the mean accuracy of classes, by the binomial variance of each.

    Parameters
    ----------
    classes : sequence of (float, int)
        The accuracy, 0..1, and the number of images of each class.

    Examples
    --------
    >>> standard_error([(0.5, 25), (0.5, 25)])
    0.07071067811865475
    """
    return math.sqrt(sum(p * (1 - p) / n for p, n in classes)) / len(classes)


def training(result: Result) -> str:
    """What the model was trained on, in words."""
    n = result.sizes
    several = f"{n['dictionaries']} dictionaries of " if n.get("dictionaries", 1) > 1 else ""
    atoms = f", {several}{n['atoms']} atoms" if "atoms" in n else ""
    return (
        f"{n['training_images']} images of {n['seen_classes']} seen classes, {n['features']} features, "
        f"{n['attributes']} attributes{atoms}"
    )


def tested(result: Result) -> str:
    """What the result was tested on, and the accuracy of guessing."""
    images, m = result.sizes["test_images"], result.sizes["unseen_classes"]
    unknown = images - sum(row["images"] for row in result.per_class)
    error = "; ± is the standard error over images" if unknown < images else ""
    return (
        f"{images} images"
        + (f" ({unknown} of unknown class)" if unknown else "")
        + f" of {m} unseen class{'es' if m > 1 else ''};"
        f" guessing is right for {1 / m:.3f}{error}"
    )


def is_transductive(information: Sequence[str]) -> bool:
    """Whether a result used other test images than the one that it answers for."""
    return any(use.startswith("unlabelled test images") for use in information)


def n_labelled(information: Sequence[str]) -> int:
    """How many images of unseen classes had labels that a result used."""
    start = "labels of images of unseen classes: "
    return next((int(use.removeprefix(start)) for use in information if use.startswith(start)), 0)


PROTOCOLS = ("inductive", "transductive", "with labels")
"""Kinds of results, of which none is ranked among those of another"""


def kind_of(information: Sequence[str]) -> str:
    """The one of :data:`PROTOCOLS` that a result belongs to by what it used."""
    return PROTOCOLS[2 if n_labelled(information) else int(is_transductive(information))]


def protocol(information: Sequence[str]) -> str:
    """What a result used of the unseen classes and of the test images, in words.

    Examples
    --------
    >>> protocol(["attributes of unseen classes in training", "unlabelled test images"])
    'transductive: all test images were used together; training used the attributes of the unseen classes'
    """
    words = ["inductive: each test image was classified by itself"]
    if is_transductive(information):
        words = ["transductive: all test images were used together"]
    if n := n_labelled(information):
        given, are = ("the class of 1 image", "is") if n == 1 else (f"the classes of {n} images", "are")
        of = "an unseen class was" if n == 1 else "unseen classes were"
        words.append(f"{given} of {of} given, which {are} not among the test images")
    if "attributes of unseen classes in training" in information:
        words.append("training used the attributes of the unseen classes")
    if any(use.startswith("class prior") for use in information):
        words.append("the frequencies of the unseen classes were assumed")
    if any(use.startswith("every class") for use in information):
        words.append("every class was assumed to have test images")
    if any(use.startswith("attributes of each training image") for use in information):
        words.append("each training image has attributes of its own")
    return "; ".join(words)


def settings(key: Mapping[str, Any]) -> str:
    """How the settings of a result were chosen, in words: the rule, the search, the settings."""
    tune = key.get("tune")
    if not tune:
        return "not tuned: as given"
    search = {"grid": "a grid", "random": "random search", "optuna": "Optuna"}.get(tune["search"], tune["search"])
    chosen = ", ".join(f"{k}={v}" for k, v in tune["chosen"].items())
    return f"{key['selection']} ({search}, {len(tune['folds'])} folds): {chosen}"
