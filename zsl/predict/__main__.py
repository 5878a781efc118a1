"""Predictions of a finished run for new images: ``zsl predict RUN INPUT``.

RUN is a run's folder (or its ``model.skops``). INPUT is a file of raw features (``.npz``, ``.npy``, ``.csv``,
``.parquet``), or a folder of images (which needs the extra ``extract-lite0``, ``extract`` or ``modern``). Nothing is
fitted. A new class needs its attributes only: ``--add FILE.csv``, or the ``.npz`` that ``zsl describe`` makes of its
description.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import logging
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import pandas as pd

from zsl.checks import Array, as_matrix
from zsl.classifier import ZeroShotClassifier
from zsl.data.class_table import align, as_table
from zsl.data.labelled import rows_as_labelled
from zsl.device import on_device
from zsl.errors import Parser, UserError, exit_status, writing
from zsl.extract.choice import add_flags, parse
from zsl.linalg import largest
from zsl.predict.inputs import is_folder_of_images, read_input
from zsl.progress import Bar
from zsl.runs.model_file import MODEL
from zsl.runs.status import STATUS, read, walk
from zsl.text import as_cell

log = logging.getLogger(__name__)


@dataclass
class Ranking:
    """The classes of each image by their scores."""

    class_names: list[str]
    """C names"""
    scores: Array
    """(L, C) larger is likelier"""

    def best(self, k: int | None = None) -> list[list[tuple[str, float]]]:
        """The k best classes (all without k) of each image with their scores, best first."""
        order = largest(self.scores, k or len(self.class_names))
        return [[(self.class_names[c], float(self.scores[i, c])) for c in row] for i, row in enumerate(order)]


def rank(
    classifier: ZeroShotClassifier,
    X: Array,
    classes: str = "unseen",
    new_classes: pd.DataFrame | Mapping[str, Sequence[float]] | None = None,
) -> Ranking:
    """Rank classes known from training and new classes for raw features X (L, p).

    Parameters
    ----------
    classifier : ZeroShotClassifier
        Fitted.
    X : (L, p) array
        Features before pre-processing.
    classes : "unseen", "seen", "all" or "none"
        Which of the classes known from training to choose from.
    new_classes : DataFrame or mapping, optional
        Name -> attributes (q,) before pre-processing, as in training's table; NaN or None is unknown.

    Raises
    ------
    UserError
        For a wrong number of features or attributes, or a name that is taken.
    """
    table = candidates(classifier, classes, new_classes)
    return Ranking([str(name) for name in table.index], classifier.predict_stages(X, table).scores)


def candidates(
    classifier: ZeroShotClassifier,
    classes: str,
    new_classes: pd.DataFrame | Mapping[str, Sequence[float]] | None,
) -> pd.DataFrame:
    """The attributes of the classes to choose from, before pre-processing; arguments and errors as of :func:`rank`."""
    table = classifier.class_attributes(classes)
    if new_classes is not None and len(new_classes):
        added = align(as_table(new_classes), table.columns, "the table of new classes")
        known = {str(name) for name in table.index}  # as answers have them
        taken = next((name for name in added.index if str(name) in known), None)
        if taken is not None:
            raise UserError(f"the new class {taken!r} is known already; give it another name.")
        table = pd.concat([table, added])
    return table


def twins(known: pd.DataFrame, added: pd.DataFrame) -> list[str]:
    """A sentence for each new class that has exactly the attributes of another class."""
    table = pd.concat([known, align(as_table(added), known.columns, "the table of new classes")])
    first: dict[bytes, str] = {}
    found = []
    for name, row in zip(table.index, table.to_numpy(float)):
        other = first.setdefault((row + 0.0).tobytes(), str(name))
        if other != str(name) and name in added.index:
            found.append(f"the new class {str(name)!r} has the attributes of {other!r}, so both get the same scores.")
    return found


def read_classes(path: Path, trained: Mapping[str, Any] | None = None) -> pd.DataFrame:
    """Read new classes: a CSV of names and attributes (an empty field is unknown), or what ``zsl describe`` wrote.

    Parameters
    ----------
    trained : mapping, optional
        The record of the encoder of training's classes; the new classes need the same.

    Raises
    ------
    UserError
        For a file that cannot be read, and texts that another encoder has encoded, or the same one otherwise.
    """
    from zsl.data.readers.tables import read_class_table

    names, attribute_names, rows, about = read_class_table(path)
    _check_encoder(path, dict(trained or {}), about.get("encoder") or {})
    return pd.DataFrame(rows, pd.Index(names, dtype=object), list(attribute_names) or None)


def _check_encoder(path: Path, trained: dict[str, Any], new: dict[str, Any]) -> None:
    name = trained.get("name") or new.get("name")
    if name is None:
        return
    if not trained.get("name"):
        log.warning("training does not say which encoder made its classes; it must be that of %s (%s).", path, name)
        return
    together = "describe old and new classes in one file, and train on it"
    if name == "tfidf":
        raise UserError(f"{path}: tfidf weighs words by the classes of one file; {together}, or train with hashed.")
    if trained.get("centred") or new.get("centred"):
        raise UserError(
            f"{path}: --centre subtracts the mean of one file's classes; {together}, or leave --centre out."
        )
    for key in ("name", "sha256", "dimensions", "pooling", "prompts", "l2"):
        if trained.get(key) != new.get(key):
            raise UserError(
                f"{path}: its texts were encoded otherwise than training's ({key} {new.get(key)} against "
                f"{trained.get(key)}); describe the new classes with training's encoder and settings, as .npz."
            )


def best_classes(
    classifier: ZeroShotClassifier, X: Array, table: pd.DataFrame, k: int
) -> Iterator[list[tuple[str, float]]]:
    """The k best classes of each image of X (L, p) with their scores, among those whose attributes ``table`` has.

    Images are taken a block at a time, see :meth:`zsl.ZeroShotClassifier.predict_top`; a bar shows the time left.
    """
    with Bar("predicting images", len(X)) as bar:
        for names, scores in classifier.predict_top(X, k, table):
            yield from ([*zip(map(str, name), map(float, score))] for name, score in zip(names, scores))
            bar.step(len(names))


def write(best: Iterable[list[tuple[str, float]]], rows: Sequence[str], out: TextIO, *, as_json: bool) -> None:
    """Write the best classes of every image and their scores: CSV, one line for each image, or a JSON list."""
    lines = zip(rows, best)
    if as_json:
        every_letter = "utf" in (getattr(out, "encoding", None) or "utf").lower()
        for number, (row, line) in enumerate(lines):
            found = {"image": row, "classes": [{"class": c, "score": s} for c, s in line]}
            out.write(("[\n" if number == 0 else ",\n") + json.dumps(found, ensure_ascii=not every_letter))
        out.write("\n]\n")
        return
    table = csv.writer(out, lineterminator="\n")
    for number, (row, line) in enumerate(lines):
        if number == 0:
            columns = (name for i in range(1, len(line) + 1) for name in (f"class_{i}", f"score_{i}"))
            table.writerow(["image", *columns])
        table.writerow([as_cell(row), *(value for c, s in line for value in (as_cell(c), f"{s:.6g}"))])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status: 0, 1 after a sentence on what is wrong, or 130 after Ctrl-C."""
    parser = Parser("zsl predict", description=(__doc__ or "").partition(":")[0] + ".")
    parser.add_argument("run", metavar="RUN", type=Path, help="a run's folder or id, or its model.skops")
    parser.add_argument("input", metavar="INPUT", type=Path, help="a file of raw features, or a folder of images")
    parser.add_argument("--top", type=int, default=3, metavar="K", help="classes named for each image (default 3)")
    parser.add_argument("--classes", default="unseen", metavar="unseen|seen|all|none",
                        help="classes of training to choose from (default unseen)")  # fmt: skip
    parser.add_argument("--add", type=Path, metavar="FILE",
                        help="new classes: a .csv of names and raw attributes, or an .npz of zsl describe")  # fmt: skip
    parser.add_argument("--evaluate", action="store_true",
                        help="count the right answers: INPUT has labels or a folder per class")  # fmt: skip
    parser.add_argument("--to", type=Path, metavar="FILE", help=".csv or .json (default: CSV to the terminal)")
    parser.add_argument("--json", action="store_true", help="JSON to the terminal")
    add_flags(parser, "the one that made training's features")
    parser.add_argument("--allow", action="append", default=[], metavar="PACKAGE",
                        help="a package outside zsl whose model the run used")  # fmt: skip
    logging.basicConfig(format="%(message)s", level=logging.INFO, stream=sys.stderr)
    smaller = "free some, or predict for fewer images at a time"
    return exit_status("zsl predict", lambda: _on_device(parse(parser, argv)), smaller=smaller)


def model_of(run: Path) -> Path:
    """The file of the fitted classifier of a run.

    Parameters
    ----------
    run : Path
        The run's folder, its file ``model.skops``, or the run's id in MLflow, which folders under ``multirun`` know.

    Raises
    ------
    UserError
        If there is no such run, or it has no file of its classifier.
    """
    run = run.expanduser()
    if not run.exists() and re.fullmatch("[0-9a-f]{32}", run.name):
        folders = (p.parent for p in walk(Path("multirun"), STATUS) if run.name.encode() in p.read_bytes())
        found = next((f for f in folders if (read(f / STATUS).get("tracking") or {}).get("run_id") == run.name), None)
        if found is None:
            raise UserError(f"no folder under multirun is of the run {run.name}; give the folder that its page names.")
        run = found
    if not run.exists():
        raise UserError(f"RUN={run} does not exist; give the folder of a run, which the run printed last.")
    if run.is_dir() and not (run / MODEL).is_file():
        raise UserError(
            f"{run} holds no {MODEL}; give a run's folder (those of a sweep are its subfolders 0, 1, ...), of a run "
            "with save_model=true."
        )
    return run / MODEL if run.is_dir() else run


def _on_device(arguments: argparse.Namespace) -> None:
    if arguments.device not in ("cpu", "cuda") and not is_folder_of_images(arguments.input.expanduser()):
        raise UserError(f"--device {arguments.device} is for a network; predictions are computed on cpu or cuda.")
    with on_device("cuda" if arguments.device == "cuda" else "cpu"):
        _work(arguments)


def _work(arguments: argparse.Namespace) -> None:
    to = arguments.to and arguments.to.expanduser()
    if arguments.top < 1:
        raise UserError(f"--top {arguments.top}: at least one class must be named.")
    if to and to.suffix not in {".csv", ".json"}:
        raise UserError(f"--to {to}: the name must end in .csv or .json.")
    if to and not to.parent.is_dir():
        raise UserError(f"--to {to}: the folder {to.parent} does not exist; make it first.")
    classifier = ZeroShotClassifier.load(model_of(arguments.run), allow=arguments.allow)
    added = read_classes(arguments.add.expanduser(), classifier.about_.get("encoder")) if arguments.add else None
    X, rows = read_input(arguments.input.expanduser(), classifier, arguments)
    X = as_matrix(X, str(arguments.input), n_columns=classifier.n_features_in_)
    table = candidates(classifier, arguments.classes, added)
    if added is not None:
        for sentence in twins(classifier.class_attributes("all"), added):
            log.warning("%s", sentence)
    best: Iterable[list[tuple[str, float]]] = best_classes(classifier, X, table, arguments.top)
    counted, given = None, 0
    if arguments.evaluate:
        from zsl.predict.evaluation import Evaluation, not_counted, true_classes

        path = arguments.input.expanduser()
        own = rows_as_labelled(classifier.labelled_, X)
        given = int(own.sum())
        truth = ["" if labelled else name for name, labelled in zip(true_classes(path, rows), own)]
        counted = Evaluation(truth, [str(name) for name in table.index], path)
        best = counted.watch(best)
    _write(best, rows, to, as_json=arguments.json)
    for line in (*(counted.lines() if counted else ()), *([not_counted(given, path)] if given else ())):
        print(line, file=sys.stderr)


def _write(best: Iterable[list[tuple[str, float]]], rows: Sequence[str], to: Path | None, *, as_json: bool) -> None:
    if not to:
        write(best, rows, sys.stdout, as_json=as_json)
        return
    # Many images and classes take long, so what was answered before an interruption stays, under a name of its own.
    part = to.with_name(f"{to.stem}.part{to.suffix}")
    with writing(to, "choose another --to"):
        try:
            with part.open("w", encoding="utf-8", newline="") as out:
                write(best, rows, out, as_json=to.suffix == ".json")
                out.flush()
                os.fsync(out.fileno())
            part.replace(to)
        except BaseException as error:
            if isinstance(error, OSError):
                error.filename = str(to)
            with contextlib.suppress(OSError):
                if part.stat().st_size:
                    log.warning("%s has the answers that were ready", part)
                else:
                    part.unlink()
            raise


if __name__ == "__main__":
    sys.exit(main())
