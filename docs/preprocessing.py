"""The evidence for the defaults of pre-processing: python docs/preprocessing.py [JOB ...].

Validation classes only. Of the seen classes some are held out, everything else is fitted on the rest, and the mean
accuracy per class on those held out is compared, draw by draw, with that of the default. Nothing of an unseen class is
used. `digits`: three of the seven seen digits, all 35 choices. `cifar`: five of the 18 classes that
are seen in the proposed and in the standard split of the CIFAR images with AwA2 attributes, 12 random draws; left out
where that folder (shared/data/cifar_awa beside the checkout, or under ZSL_SHARED) is absent. Prints tables in Markdown.
"""

import itertools
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

import zsl
from zsl.config import resolve
from zsl.config.objects import build
from zsl.data.dataset import ZeroShotData
from zsl.data.preprocess import Preprocess, preprocess
from zsl.evaluation import class_accuracy
from zsl.experiment.loading import load
from zsl.experiment.search import Tuning
from zsl.experiment.setup import checked
from zsl.inference import nearest
from zsl.model_selection.holdout import folds, held_out
from zsl.models.base import fit_all

SHARED = Path(os.environ.get("ZSL_SHARED", Path(__file__).resolve().parents[2] / "shared")) / "data" / "cifar_awa"
OFF = {"centre": False, "l2": False}
# What is changed in `feature.*` and in `dataset.semantics.*`; the first is the default.
FEATURES = {
    "**centre, l2** (the default)": {},
    "l2 alone": {"centre": False},
    "centre alone": {"l2": False},
    "neither": OFF,
    "centre, standardise, l2": {"standardise": True},
    "power 0.5, centre, l2": {"power": 0.5},
    "power 0.5, centre, standardise, l2": {"power": 0.5, "standardise": True},
    "power 0.5, l2": {"power": 0.5, "centre": False},
}
SEMANTICS = {
    "attributes: l2 alone": {"centre": False},
    "attributes: centre alone": {"l2": False},
    "attributes: neither": OFF,
    "attributes: centre, standardise, l2": {"standardise": True},
}
# The models of a table, and what is set for all its rows.
JOBS = {
    "digits": (("ridge", "eszsl"), {}),
    "cifar": (("ridge", "eszsl"), {}),
    "digits-coupled": (("coupled_paper",), {}),
    "cifar-coupled": (("coupled_paper",), {"pca": 256}),
}
PCA = {"digits": (16, 32), "cifar": (64, 128, 256)}


def variants(data: str, base: dict) -> dict[str, tuple[Preprocess, Preprocess]]:
    """Name -> transforms of features and of attributes; ``base`` is set for all of them."""
    pca = {} if "pca" in base else {f"PCA {k}, centre, l2": {"pca": k} for k in PCA[data]}
    found = {}
    for name, changes in {**FEATURES, **pca}.items():
        if not ("pca" in base and not changes.get("centre", True)):  # principal axes need centre
            found[name] = (Preprocess(**{**base, **changes}), Preprocess())
    for name, changes in SEMANTICS.items():
        found[name] = (Preprocess(**base), Preprocess(**changes))
    return found


def accuracy(models: list, data: ZeroShotData, *, attributes: bool = False) -> list[float]:
    """Mean accuracy per class of each model fitted to ``data``, which is pre-processed."""
    given = (data.X, data.y, data.Z, data.Z_unseen)
    out = []
    for model in fit_all(models, *given):
        if attributes:  # attribute-agnostic inference (AAg)
            scores = nearest(model.predict_attributes(data.X_unseen), data.Z_unseen)
        else:
            scores = model.scores(data.X_unseen)
        out.append(float(np.mean(list(class_accuracy(scores, data.y_unseen).values()))))
    return out


def measured(name: str, data: ZeroShotData, feature: Preprocess, semantics: Preprocess) -> dict[str, float]:
    """Accuracy on the held-out classes: with the model's default settings, and with settings chosen inside."""
    node = resolve(zsl.compose([f"model={name}"]))["model"]
    ready = preprocess(data, feature, semantics)
    if name == "coupled_paper":
        return {name: accuracy([build(node, "model")], ready, attributes=True)[0]}
    trials = Tuning({f"model.{k}": v for k, v in node["grid"].items()}).trials()
    grid = [{k.removeprefix("model."): v for k, v in s.items()} for s in trials]
    inside = np.zeros(len(grid))
    for part in held_out(data, folds(data, 3, 0)):
        inner = preprocess(part, feature, semantics)
        inside += accuracy([build({**node, **s}, "model") for s in grid], inner)
    best = grid[int(inside.argmax())]
    default, tuned = accuracy([build(node, "model"), build({**node, **best}, "model")], ready)
    return {name: default, f"{name} tuned": tuned}


def draws(name: str) -> Iterator[ZeroShotData]:
    """Folds of the seen classes, before pre-processing."""
    if name == "digits":
        data = load(checked(zsl.compose(["dataset=digits"])))
        yield from held_out(data, [np.array(held) for held in itertools.combinations(range(len(data.seen)), 3)])
        return
    where = ["dataset=xlsa17", f"dataset.root='{SHARED}'", "feature.name=lite0_1280", "cache_dir=off"]
    both = [load(checked(zsl.compose([*where, f"split={split}"]))) for split in ("proposed", "standard")]
    data = both[0]
    kept = np.flatnonzero(np.isin(data.seen, both[1].seen))
    assert len(kept) == 18
    trains = np.isin(data.y, kept)
    data = replace(
        data, seen=data.seen[kept], X=data.X[trains], y=np.searchsorted(kept, data.y[trains]),
        X_test_seen=data.X_test_seen[:0], y_test_seen=data.y_test_seen[:0], validation=(),
    )  # fmt: skip
    for seed in range(12):
        yield data.hold_out(np.sort(np.random.default_rng(seed).permutation(18)[:5]))


def study(name: str, models: tuple[str, ...], base: dict) -> None:
    """One table: rows are variants, columns models."""
    rows = variants(name, base)
    found: dict[str, dict[str, list[float]]] = {row: {} for row in rows}
    for i, data in enumerate(draws(name)):
        for row, (feature, semantics) in rows.items():
            for model in models:
                for column, value in measured(model, data, feature, semantics).items():
                    found[row].setdefault(column, []).append(value)
        print(f"{name}: draw {i + 1}", file=sys.stderr, flush=True)
    default = found[next(iter(rows))]
    title = "".join(f", {k}={v}" for k, v in base.items())
    print(f"\n| {name}{title} | {' | '.join(default)} |\n| --- |{' --- |' * len(default)}")
    for row, columns in found.items():
        cells = []
        for column, values in columns.items():
            change = np.array(values) - default[column]
            error = change.std(ddof=1) / np.sqrt(len(change))
            cells.append(f"{np.mean(values):.3f}" + (f" ({change.mean():+.3f} ± {error:.3f})" if change.any() else ""))
        print(f"| {row} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    if not SHARED.is_dir():
        print(f"cifar left out: {SHARED} is not on this machine", file=sys.stderr)
    for job in sys.argv[1:] or JOBS:
        dataset = job.removesuffix("-coupled")
        if dataset == "digits" or SHARED.is_dir():
            study(dataset, *JOBS[job])
