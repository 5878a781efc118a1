"""The facts that ``zsl data check`` prints about a dataset, gathered as plain values."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from zsl.checks import check_value
from zsl.config.objects import build
from zsl.data.cache import Folder
from zsl.data.dataset import ZeroShotData
from zsl.data.load import load_table, load_transforms
from zsl.data.preprocess import fit_both
from zsl.data.readers import xlsa17
from zsl.data.readers.mat import read_mat
from zsl.data.signs import of_data
from zsl.data.table import ImageTable, Split
from zsl.errors import UserError


@dataclass
class Report:
    """Findings on one dataset."""

    facts: list[tuple[str, str]] = field(default_factory=list)
    """(what, how much), in order"""
    splits: list[dict[str, str]] = field(default_factory=list)
    """One row per split"""
    warnings: list[str] = field(default_factory=list)
    """What is allowed and yet rarely meant, such as leaks"""
    problems: list[str] = field(default_factory=list)
    """Why the dataset cannot be used as configured; empty if it can"""

    def add(self, what: str, value: object) -> None:
        self.facts.append((what, str(value)))

    def add_problem(self, error: UserError) -> None:
        """Note a problem once, although several parts of a check may meet it."""
        if str(error) not in self.problems:
            self.problems.append(str(error))


def check(config: Mapping[str, Any]) -> Report:
    """Everything that can be said about the dataset that a resolved configuration names.

    Where the features are missing, the class tables of an xlsa17 folder are still reported.
    """
    dataset, allow = config["dataset"], tuple(config.get("allow_targets", ()))
    report, semantics = Report([("dataset", dataset["name"])]), dataset["semantics"]
    try:
        transforms = load_transforms(dataset, config["feature"], allow)
        check_value(Literal["mean", "drop", "keep"], semantics.get("missing", "mean"), "dataset.semantics.missing")
        table = load_table(dataset, config["feature"]["name"], semantics.get("source"), allow)
    except UserError as error:
        report.add_problem(error)
        root = dataset.get("root")
        if isinstance(root, str) and root != "???":
            _class_tables(report, xlsa17.unpacked(root))
        return report
    _describe(report, table)
    for split in table.splits.values():
        _add_split(report, table, split)
    if table.provenance.get("layout") == "xlsa17":
        _class_tables(report, Path(table.provenance["root"]), used=table.provenance["files"])
    try:
        split = build(config["split"], "split", allow_targets=allow)(table)
        data = ZeroShotData.from_table(table, split, missing=semantics.get("missing", "mean"))
        fit_both(data, *transforms)
        report.warnings += of_data(data, *transforms)
    except UserError as error:
        report.add_problem(error)
        return report
    report.warnings += data.notes
    if split.name not in table.splits:
        _add_split(report, table, split)
    report.add("content", f"{table.content} (part of every result's key)")
    report.add(
        "validation", f"{len(data.validation)} published divisions of the seen classes" if data.validation
        else "no published division of the seen classes; folds over classes are drawn",
    )  # fmt: skip
    return report


def _describe(report: Report, table: ImageTable) -> None:
    where, X = table.provenance, table.features
    for what, key in (("folder", "root"), ("layout", "layout"), ("images from", "images"), ("caution", "caution")):
        if key in where:
            report.add(what, where[key])
    report.add("images", len(X))
    report.add("features", f"{table.feature}, {X.shape[1]} columns, {X.dtype}")
    if "columns" in where:
        report.add("columns", where["columns"])
    sizes = np.bincount(table.labels[table.labels >= 0], minlength=len(table.class_names))
    filled = sizes[sizes > 0]
    report.add("classes", f"{len(sizes)}, of {filled.min()} to {filled.max()} images (median {np.median(filled):.0f})")
    if (sizes == 0).any():
        empty = [table.class_names[c] for c in np.flatnonzero(sizes == 0)]
        report.add("without images", f"{len(empty)} classes: {', '.join(empty[:5])}{', ...' if len(empty) > 5 else ''}")
    if (table.labels < 0).any():
        report.add("of unknown class", f"{(table.labels < 0).sum()} images, to be predicted only")
    kind = "each image's own" if table.image_attributes is not None else "one row per class"
    report.add("attributes", f"{table.attributes.shape[1]} ({table.semantics}, {kind})")
    report.add("missing values", _missing(table.gaps, table.class_names, table.attribute_names))
    if table.image_attributes is not None:
        gaps = np.isnan(table.image_attributes)
        report.add("missing in images", f"{gaps.sum()} values ({gaps.mean():.1%})")
    same = len(X) - len({hashlib.blake2b(row.tobytes(), digest_size=12).digest() for row in X})
    if same:
        report.add("identical images", f"{same} images have the features of another one")
    for file, digest in where.get("files", {}).items():
        report.add("file", f"{file}  {digest}")
    report.warnings += table.notes


def _missing(gaps: np.ndarray, classes: tuple[str, ...], attributes: tuple[str, ...]) -> str:
    places = np.argwhere(gaps)
    if not len(places):
        return "none"
    named = [f"{classes[c]}: {attributes[a] if attributes else f'attribute {a + 1}'}" for c, a in places[:6]]
    return f"{len(places)} ({'; '.join(named)}{'; ...' if len(places) > 6 else ''})"


def _add_split(report: Report, table: ImageTable, split: Split) -> None:
    parts = {"trainval": split.trainval, "test_seen": split.test_seen, "test_unseen": split.test_unseen}
    seen = np.unique(table.labels[split.trainval]).size
    report.splits.append({
        "split": split.name, "seen": str(seen), "unseen": str(split.unseen.size),
        **{name: str(rows.size) for name, rows in parts.items()},
        "from": str(split.origin.get("file", split.origin.get("path", "drawn"))),
    })  # fmt: skip
    try:
        ZeroShotData.from_table(table, split)
    except UserError as error:
        report.add_problem(error)


def _class_tables(report: Report, root: Path, used: Mapping[str, str] | None = None) -> None:
    """What the class tables of a folder say without features, such as an older one that leaks; not those ``used``."""
    for path in sorted(root.glob("att_splits*.mat")):
        if used is not None and path.name in used:
            continue
        try:
            stored, folder = read_mat(path), Folder(root)
            names = xlsa17.names_of(stored, folder, path, 0)
            found = xlsa17.read_semantics(folder, stored, path, names, None, 0)
            q, gaps = found.attributes.shape[1], np.isnan(found.attributes)
            gaps = gaps if found.missing is None else gaps | found.missing
            report.add(path.name, f"{len(names)} classes, {q} attributes{', not used' if used is not None else ''}")
            report.add("missing values", _missing(gaps, names, xlsa17.predicate_names(folder, q)))
            for part in ("trainval", "test_seen", "test_unseen"):
                if f"{part}_loc" in stored:
                    report.add(part, f"{xlsa17.locations(stored, f'{part}_loc', None, path).size} images")
            report.warnings += xlsa17.leaks(stored, path)
        except UserError as error:
            if used is None:
                report.add_problem(error)
            else:
                report.add(path.name, error)
