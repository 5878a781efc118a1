"""What lies in a data folder: ``python -m zsl.data list`` and ``check`` as plain values, to be printed elsewhere."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from zsl.config.objects import build
from zsl.data.cache import Folder
from zsl.data.dataset import ZeroShotData
from zsl.data.load import check_missing, load_table, load_transforms
from zsl.data.readers import xlsa17
from zsl.data.readers.files import read_mat
from zsl.data.readers.tables import missing_values
from zsl.data.table import ImageTable, Split
from zsl.errors import UserError


@dataclass
class Report:
    """Findings on one dataset."""

    name: str
    facts: list[tuple[str, str]] = field(default_factory=list)
    """(what, how much), in order"""
    splits: list[dict[str, str]] = field(default_factory=list)
    """One row per split"""
    leaks: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """Why it cannot be used as configured; empty if it can"""

    def wrong(self, error: UserError) -> None:
        """Note a problem, once: several parts of a check may stumble over the same one."""
        if str(error) not in self.problems:
            self.problems.append(str(error))

    def say(self, what: str, value: object) -> None:
        self.facts.append((what, str(value)))


def check(plain: Mapping[str, Any]) -> Report:
    """Everything that can be said about the dataset that a resolved configuration names.

    Where the features are missing, the class table and its splits are still reported.
    """
    dataset, allow = plain["dataset"], tuple(plain.get("allow_targets", ()))
    report = Report(dataset["name"])
    semantics = dataset["semantics"]
    try:
        transforms = load_transforms(dataset, plain["feature"], allow)
        check_missing(semantics.get("missing", "mean"))
        table = load_table(dataset, plain["feature"]["name"], semantics.get("source"), allow)
    except UserError as error:
        report.wrong(error)
        _class_tables(report, _folder_of(dataset))
        return report
    _describe(report, table)
    for name, split in table.splits.items():
        _try_split(report, table, name, split)
    _other_tables(report, table)
    configured = plain["split"]
    try:
        split = build(configured, "split", allow_targets=allow)(table)
        data = ZeroShotData.from_table(table, split, missing=semantics.get("missing", "mean"))
        for key, transform, rows in (
            ("feature", transforms[0], data.X),
            ("dataset.semantics", transforms[1], data.Z_seen),
        ):
            _check_transform(key, transform, rows)
    except UserError as error:
        report.wrong(error)
        return report
    if split.name not in table.splits:
        _try_split(report, table, split.name, split)
    report.say("content", f"{data.key['content']} (part of every result's key)")
    report.say(
        "validation", f"{len(data.validation)} published divisions of the seen classes" if data.validation
        else "no published division of the seen classes; k folds over classes are drawn",
    )  # fmt: skip
    return report


def _check_transform(key: str, transform: Any, rows: np.ndarray) -> None:
    check = getattr(transform, "check", None)  # a transform of the user's own need not have one
    if check is not None:
        try:
            check(rows.shape)
        except UserError as error:
            raise UserError(f"{key}.{error}") from None


def _describe(report: Report, table: ImageTable) -> None:
    where = table.provenance
    report.say("folder", where.get("root", "-"))
    if "layout" in where:
        report.say("layout", where["layout"])
    report.say("images", len(table.features))
    report.say("features", f"{table.feature}, {table.features.shape[1]} columns, {table.features.dtype}")
    if where.get("columns"):
        report.say("columns", where["columns"])
    sizes = np.bincount(table.labels[table.labels >= 0], minlength=len(table.class_names))
    filled = sizes[sizes > 0]
    report.say(
        "classes",
        f"{len(table.class_names)}, of {filled.min()} to {filled.max()} images (median {np.median(filled):.0f})",
    )
    if (sizes == 0).any():
        empty = [table.class_names[c] for c in np.flatnonzero(sizes == 0)]
        report.say("without images", f"{len(empty)} classes: {', '.join(empty[:5])}{', ...' if len(empty) > 5 else ''}")
    if (table.labels < 0).any():
        report.say("of unknown class", f"{(table.labels < 0).sum()} images, to be predicted only")
    kind = "each image's own" if table.image_attributes is not None else "one row per class"
    report.say("attributes", f"{table.attributes.shape[1]} ({table.semantics}, {kind})")
    report.say("missing values", _missing(table.missing, table.class_names, table.attribute_names))
    if table.image_attributes is not None:
        gaps = np.isnan(table.image_attributes)
        report.say("missing in images", f"{gaps.sum()} values ({gaps.mean():.1%})")
    same = _duplicates(table.features)
    if same:
        report.say("identical images", f"{same} images have the features of another one")
    for file, digest in where.get("files", {}).items():
        report.say("file", f"{file}  {digest}")
    report.leaks += [*table.notes, *table.doubts()]


def _missing(missing: np.ndarray | None, classes: tuple[str, ...], attributes: tuple[str, ...]) -> str:
    if missing is None or not missing.any():
        return "none"
    places = np.argwhere(missing)
    named = [f"{classes[c]}: {attributes[a] if attributes else f'attribute {a + 1}'}" for c, a in places[:6]]
    return f"{len(places)} ({'; '.join(named)}{'; ...' if len(places) > 6 else ''})"


def _duplicates(X: np.ndarray) -> int:
    """How many rows equal an earlier one, by a digest of each."""
    return len(X) - len({hashlib.blake2b(row.tobytes(), digest_size=12).digest() for row in X})


def _try_split(report: Report, table: ImageTable, name: str, split: Split) -> None:
    seen = np.unique(table.labels[split.trainval])
    report.splits.append(
        {
            "split": name,
            "seen": str(seen.size),
            "unseen": str(split.unseen.size),
            "trainval": str(split.trainval.size),
            "test_seen": str(split.test_seen.size),
            "test_unseen": str(split.test_unseen.size),
            "from": str(split.origin.get("file", split.origin.get("path", "drawn"))),
        }
    )
    try:
        ZeroShotData.from_table(table, split)
    except UserError as error:
        report.wrong(error)


def _folder_of(dataset: Mapping[str, Any]) -> Path | None:
    root = dataset.get("root")
    if not isinstance(root, str) or root == "???":
        return None
    folder = xlsa17.unpacked(root)
    return folder if (folder / "att_splits.mat").is_file() else None


def _class_tables(report: Report, root: Path | None) -> None:
    """What ``att_splits*.mat`` say without features."""
    for path in sorted(root.glob("att_splits*.mat")) if root else []:
        try:
            stored, folder = read_mat(path), Folder(path.parent)
            names = xlsa17.names_of(stored, folder, path, 0)
            rows, missing, _ = xlsa17.read_semantics(folder, stored, path, names, None, 0)
            parts = ("trainval", "test_seen", "test_unseen")
            sizes = {k: xlsa17.locations(stored, f"{k}_loc", None, path).size for k in parts if f"{k}_loc" in stored}
            report.say(path.name, f"{len(names)} classes, {rows.shape[1]} attributes")
            named = _missing(missing, names, xlsa17.predicate_names(folder, rows.shape[1]))
            report.say("missing values", named)
            counts = {k: str(sizes.get(k, "-")) for k in parts}
            report.splits.append({"split": path.stem, "seen": "?", "unseen": "?", **counts, "from": path.name})
            report.leaks += xlsa17.leaks(stored, path)
        except UserError as error:
            report.wrong(error)


def _other_tables(report: Report, table: ImageTable) -> None:
    """Class tables in the folder that the reader did not use, such as an older split that leaks."""
    root = Path(str(table.provenance.get("root", "")))
    if table.provenance.get("layout") != "xlsa17":
        return
    for path in sorted(root.glob("att_splits*.mat")):
        if path.name in table.provenance["files"]:
            continue
        try:
            stored = read_mat(path)
            report.leaks += xlsa17.leaks(stored, path)
            names = xlsa17.names_of(stored, Folder(root), path, len(table.class_names))
            gaps = missing_values(
                xlsa17.read_semantics(Folder(root), stored, path, names, "original", 0)[0]
            ) if "original_att" in stored else None  # fmt: skip
            report.say(f"also here: {path.name}", f"not used; missing values: {0 if gaps is None else gaps.sum()}")
        except UserError as error:
            report.say(f"also here: {path.name}", str(error))


def folder_size(path: Path) -> int:
    """Bytes under ``path``, without following links."""
    return sum(p.stat().st_size for p in path.rglob("*") if p.is_file() and not p.is_symlink())
