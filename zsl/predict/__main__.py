"""Predictions of a finished run for new images: ``python -m zsl.predict RUN INPUT``.

RUN is a run's folder (or its ``model.skops``). INPUT is a file of raw features (``.npz``, ``.npy``, ``.csv``,
``.parquet``), or a folder of images (needs the extra ``extract-lite0`` or ``extract``). Nothing is fitted:
pre-processing, model and inference rule are those of the run. Classes that training never heard of need their
attributes only: ``--add FILE.csv``.
"""

from __future__ import annotations

import argparse
import csv
import json
import logging
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TextIO

import numpy as np
import pandas as pd

from zsl.checks import Array
from zsl.classifier import ZeroShotClassifier
from zsl.data.class_table import align, as_table
from zsl.errors import UserError, unforeseen, writing
from zsl.runs.model_file import MODEL

log = logging.getLogger(__name__)


@dataclass
class Ranking:
    """The classes of each image by their scores."""

    class_names: list[str]
    """C names"""
    scores: Array
    """(L, C) larger is likelier"""

    def best(self, k: int | None = None) -> list[list[tuple[str, float]]]:
        """Of each image the k best classes (all without k) with their scores, best first."""
        order = np.argsort(-self.scores, axis=1, kind="stable")[:, :k]
        return [[(self.class_names[c], float(self.scores[i, c])) for c in row] for i, row in enumerate(order)]


def rank(
    classifier: ZeroShotClassifier,
    X: Array,
    classes: str = "unseen",
    new_classes: pd.DataFrame | Mapping[str, Sequence[float]] | None = None,
) -> Ranking:
    """Rank classes known from training and new ones for raw features X (L, p).

    Parameters
    ----------
    classes : "unseen", "seen", "all" or "none"
        Of the classes known from training.
    new_classes : DataFrame or mapping, optional
        Name -> raw attributes (q,), as in training's table; NaN or None is unknown.

    Raises
    ------
    UserError
        For features or attributes of a wrong number, and names that are taken.
    """
    table = classifier.class_attributes(classes)
    if new_classes is not None and len(new_classes):
        added = align(as_table(new_classes), table.columns, "the table of new classes")
        taken = next((name for name in added.index if name in table.index), None)
        if taken is not None:
            raise UserError(f"the new class {taken!r} is known already; give it another name.")
        table = pd.concat([table, added])
    return Ranking([str(name) for name in table.index], classifier.predict_stages(X, table).scores)


# --- the command --------------------------------------------------------------------------------------------


def read_input(
    path: Path, classifier: ZeroShotClassifier, settings: Mapping[str, str], device: str
) -> tuple[Array, list[str]]:
    """Raw features (L, p) of a file or of a folder's images, and what to call each row."""
    if path.is_dir():
        return _from_images(path, classifier, settings, device)
    from zsl.data.readers.tabular import read_features

    X, files, network = read_features(path)
    made = classifier.about_.get("network")
    if made and network and _same_network(made) != _same_network(network):
        raise UserError(f"{path} holds features of another network than training's; extract them with the same.")
    return X, list(files) or [str(i) for i in range(len(X))]


def _same_network(text: str) -> Any:
    """What of a network's description changes the features; the version of torch does not."""
    try:
        about = json.loads(text)
    except ValueError:
        return text
    return {k: v for k, v in about.items() if k != "torch"} if isinstance(about, dict) else about


def _from_images(
    folder: Path, classifier: ZeroShotClassifier, settings: Mapping[str, str], device: str
) -> tuple[Array, list[str]]:
    from zsl.data.readers.tabular import read_features
    from zsl.extract.__main__ import Images, extract, image_files
    from zsl.extract.networks import NETWORKS

    made = classifier.about_.get("network") or ""
    about = _same_network(made) if made else {}
    name = settings.get("feature") or (about.get("name") if isinstance(about, dict) else None)
    if name is None:
        raise UserError(
            f"{folder} holds images, and the run's features do not say which network made them; "
            f"add feature=NAME, one of: {', '.join(NETWORKS)}."
        )
    size = about.get("size") if isinstance(about, dict) and name in NETWORKS else None
    weights = Path(settings["feature.weights"]).expanduser() if "feature.weights" in settings else None
    files = image_files(folder)
    with tempfile.TemporaryDirectory() as scratch:
        target = Path(scratch) / "features.npz"
        own = size if size is not None and size != NETWORKS[name].size else None
        extract(Images(folder, files, ("",) * len(files)), name, target, weights=weights, device=device, size=own)
        X, kept, network = read_features(target)
    if made and _same_network(network) != about:
        raise UserError(
            f"feature={name} as it is here is not the network that made training's features (weights or input size "
            "differ); give the same feature.weights=FILE."
        )
    return np.array(X), list(kept)


def read_classes(path: Path) -> pd.DataFrame:
    """New classes from a CSV: a header, then a name and raw attributes in each row; an empty field is unknown."""
    from zsl.data.readers.tables import read_class_csv

    names, attribute_names, rows = read_class_csv(path)
    return pd.DataFrame(rows, pd.Index(names, dtype=object), list(attribute_names) or None)


def write(prediction: Ranking, rows: Sequence[str], k: int, out: TextIO, *, as_json: bool) -> None:
    """Of every image the k best classes and their scores: CSV, one line for each image, or a JSON list."""
    best = prediction.best(k)
    if as_json:
        found = [
            {"image": row, "classes": [{"class": c, "score": s} for c, s in line]} for row, line in zip(rows, best)
        ]
        out.write(json.dumps(found, indent=2, ensure_ascii=False) + "\n")
        return
    table = csv.writer(out, lineterminator="\n")
    table.writerow(["image", *(name for i in range(1, len(best[0]) + 1) for name in (f"class_{i}", f"score_{i}"))])
    for row, line in zip(rows, best):
        table.writerow([row, *(value for c, s in line for value in (c, repr(s)))])


class _Parser(argparse.ArgumentParser):
    """Mistakes end in one sentence."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; see python -m zsl.predict --help.")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0, or 1 after a sentence on what is wrong."""
    parser = _Parser("python -m zsl.predict", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", metavar="RUN", type=Path, help="a run's folder, or its model.skops")
    parser.add_argument("input", metavar="INPUT", type=Path, help="a file of raw features, or a folder of images")
    parser.add_argument(
        "settings", metavar="KEY=VALUE", nargs="*", help="for images: feature=NAME, feature.weights=FILE"
    )
    parser.add_argument("--top", type=int, default=3, metavar="K", help="classes named for each image (default 3)")
    parser.add_argument("--classes", default="unseen", metavar="unseen|seen|all|none",
                        help="classes of training to choose from (default unseen)")  # fmt: skip
    parser.add_argument("--add", type=Path, metavar="FILE.csv", help="new classes: a name and raw attributes per row")
    parser.add_argument("--to", type=Path, metavar="FILE", help=".csv or .json (default: CSV to the terminal)")
    parser.add_argument("--json", action="store_true", help="JSON to the terminal")
    parser.add_argument("--device", default="cpu", help="for images: cpu (default), or cuda")
    parser.add_argument("--allow", action="append", default=[], metavar="PACKAGE",
                        help="a package outside zsl whose model the run used")  # fmt: skip
    logging.basicConfig(format="%(message)s", level=logging.INFO, stream=sys.stderr)
    try:
        arguments = parser.parse_intermixed_args(argv)
        settings = dict(_setting(word) for word in arguments.settings)
        if arguments.top < 1:
            raise UserError(f"--top {arguments.top}: at least one class must be named.")
        suffix = arguments.to.suffix if arguments.to else (".json" if arguments.json else ".csv")
        if suffix not in {".csv", ".json"}:
            raise UserError(f"--to {arguments.to}: the name must end in .csv or .json.")
        if arguments.to and not arguments.to.expanduser().parent.is_dir():
            raise UserError(f"--to {arguments.to}: the folder {arguments.to.parent} does not exist; make it first.")
        run = arguments.run.expanduser()
        if not run.exists() and re.fullmatch("[0-9a-f]{32}", run.name):
            raise UserError(
                f"RUN is a run's folder, not its id in MLflow ({run}); the tag zsl.folder on its page says where it is."
            )
        classifier = ZeroShotClassifier.load(run / MODEL if run.is_dir() else run, allow=arguments.allow)
        added = read_classes(arguments.add.expanduser()) if arguments.add else None
        X, rows = read_input(arguments.input.expanduser(), classifier, settings, arguments.device)
        found = rank(classifier, X, arguments.classes, added)
        if arguments.to:
            target = arguments.to.expanduser()
            part = target.with_name(target.name + ".part")
            with writing(target, "choose another --to"):
                with part.open("w", encoding="utf-8", newline="") as out:
                    write(found, rows, arguments.top, out, as_json=suffix == ".json")
                part.replace(target)
        else:
            write(found, rows, arguments.top, sys.stdout, as_json=suffix == ".json")
    except UserError as error:
        print(f"zsl.predict: {error}", file=sys.stderr)
        return 1
    except (OSError, MemoryError) as error:
        print(
            f"zsl.predict: {unforeseen(error, 'free some, or predict for fewer images at a time')}",
            file=sys.stderr,
        )
        return 1
    return 0


def _setting(word: str) -> tuple[str, str]:
    key, separator, value = word.partition("=")
    if key not in {"feature", "feature.weights"} or not separator or not value:
        raise UserError(f"not understood: {word}; there are feature=NAME and feature.weights=FILE.")
    return key, value


if __name__ == "__main__":
    sys.exit(main())
