"""The images that are asked about, what they are called, and where their files are."""

from __future__ import annotations

import argparse
from collections.abc import Container, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from zsl.checks import Array, as_matrix
from zsl.classifier import ZeroShotClassifier
from zsl.data.labelled import left_out, rows_as_labelled, without
from zsl.errors import UserError
from zsl.inference.statistics import seen_statistics
from zsl.predict.inputs import read_input
from zsl.runs.files import CONFIG


class TestImages(NamedTuple):
    """The images that a classifier is asked about."""

    X: Array
    """(L, p) features before pre-processing"""
    names: Sequence[str | int]
    """File names, or row numbers as in ``predictions.csv``"""
    column: str
    """What ``predictions.csv`` calls them: file, row or image"""
    y: Array
    """(L,) positions of the true classes among the unseen ones, -1 where unknown"""
    rows: Sequence[int]
    """Row numbers in the data or in INPUT, from 1, which tell images of one name apart"""
    taken: Container[str] = ()
    """Names and rows of images that the run itself has labels of"""


def read_images(folder: Path, classifier: ZeroShotClassifier, arguments: argparse.Namespace) -> TestImages:
    """The images of INPUT, or the test images of the run, read again as its configuration says."""
    classes = [str(name) for name in classifier.classes_]
    if arguments.input is not None:
        from zsl.predict.evaluation import not_counted, places_of, true_classes

        path = arguments.input.expanduser()
        X, files = read_input(path, classifier, arguments)
        y = np.full(len(X), -1)
        if arguments.truth:
            y = places_of(true_classes(path, files), classes, path)
        X = as_matrix(X, str(path), n_columns=classifier.n_features_in_)
        known = rows_as_labelled(classifier.labelled_, X)
        if arguments.truth and known.any():
            y[known] = -1
            print(not_counted(int(known.sum()), path))
        return TestImages(X, files, "image", y, range(1, len(X) + 1))
    from omegaconf import OmegaConf

    from zsl.config import compose
    from zsl.experiment.loading import load
    from zsl.experiment.setup import checked

    if not (folder / CONFIG).is_file():
        raise UserError(f"{folder} holds no {CONFIG}, so its test images are not known; give them: zsl ask RUN INPUT.")
    cfg = OmegaConf.create(_literal(OmegaConf.to_container(OmegaConf.load(folder / CONFIG))))
    # Nothing is tracked, and a file cannot allow any package.
    cfg.tracking, cfg.allow_targets = compose(["tracking=none"]).tracking, list(arguments.allow)
    setup = checked(cfg)
    data = load(setup)
    if [str(name) for name in data.unseen_names] != classes:
        raise UserError(f"{folder}: the data have other unseen classes now than in the run; run it again.")
    if classifier.statistics_ is None:  # the run's own rule did not need them
        X, Z = classifier.preprocess_.transform(data.X), classifier.semantics_.transform(data.Z)
        classifier.statistics_ = seen_statistics(classifier.model_, X, data.y, Z)
    # The run's labels are those that its classifier holds, whatever has become of the file that they were read from.
    few = classifier.labelled_
    aside = left_out(few, data.X_unseen)
    if few and len(aside) < len(few[1]):
        raise UserError(
            f"{folder}: the data are not those of the run any more ({len(few[1]) - len(aside)} of its "
            f"{len(few[1])} labelled images are not among them); give the images to ask about: zsl ask RUN INPUT."
        )
    taken = {str(called[i]) for called in (data.names_unseen, data.rows_unseen) if called for i in aside}
    data = without(data, aside)
    names: tuple[str, ...] | tuple[int, ...] = data.names_unseen or data.rows_unseen
    column = "file" if data.names_unseen else "row"
    return TestImages(data.X_unseen, names, column, data.y_unseen, data.rows_unseen, taken - set(map(str, names)))


def image_places(folder: Path, arguments: argparse.Namespace) -> list[Path]:
    """Folders that may hold the image files."""
    from zsl.report.figures.images import places

    if arguments.images is not None:
        if not arguments.images.expanduser().is_dir():
            raise UserError(f"--images {arguments.images} is not a folder; give the one that holds the image files.")
        return [arguments.images.expanduser()]
    if arguments.input is not None:
        path = arguments.input.expanduser()
        return [path] if path.is_dir() else [path.with_suffix(""), path.parent]
    return places(folder)


class ImageFiles:
    """The files of images that tables know by name.

    Parameters
    ----------
    places : sequence of Path
        Folders. A name is tried as a path below each folder, then as the name of a file anywhere below the first folder
        that exists. Names that several files have there are not used.
    shared : iterable of str
        Names that several images have, so that a file of that name may be of any of them.
    """

    def __init__(self, places: Sequence[Path], shared: Iterable[str] = ()) -> None:
        self.shared = set(shared)
        self.places = [place for place in places if place.is_dir()]
        self._by_name: dict[str, Path | None] = {}
        for path in sorted(self.places[0].rglob("*.*")) if self.places else ():
            # Of files that share a name none can be meant.
            self._by_name[path.name] = None if path.name in self._by_name else path

    def find(self, name: str | int) -> Path | None:
        """The file of an image, or None."""
        if isinstance(name, int) or name in self.shared:
            return None
        paths = (place / name for place in self.places)
        return next((p for p in paths if p.is_file()), self._by_name.get(name.rpartition("/")[2]))


def _literal(node: Any) -> Any:
    """A configuration in which ``${`` is text: in a run's file all references are resolved."""
    if isinstance(node, dict):
        return {key: _literal(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_literal(value) for value in node]
    return node.replace("${", "\\${") if isinstance(node, str) else node
