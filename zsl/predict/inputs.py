"""The raw features that a fitted classifier predicts from: of a file, of several files, or of a folder's images."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from zsl.checks import Array
from zsl.classifier import ZeroShotClassifier
from zsl.data.load import rows_by_name
from zsl.data.space import record
from zsl.errors import UserError


def read_input(path: Path, classifier: ZeroShotClassifier, arguments: argparse.Namespace) -> tuple[Array, list[str]]:
    """Read raw features (L, p) from a file, or make them of a folder's images; and a name for each row.

    Where training had features of several networks, ``path`` is a folder with a file ``NAME.npz`` for each.

    Raises
    ------
    UserError
        For files that cannot be read, and features of another network than training's.
    """
    trained = classifier.about_.get("network")
    if isinstance(trained, list):
        return _beside(path, str(classifier.about_["feature"]).split("+"), trained)
    if is_folder_of_images(path):
        return _from_images(path, classifier, arguments)
    return _from_file(path, trained, classifier.about_.get("column_order", ""))


def is_folder_of_images(path: Path) -> bool:
    """Whether ``path`` is a folder, but for the folder of a Zarr group, which is a file of features."""
    return path.is_dir() and path.suffix != ".zarr"


def _from_file(path: Path, trained: str | None, order: str = "") -> tuple[Array, list[str]]:
    from zsl.data.readers.tabular import read_features
    from zsl.extract.networks import same

    X, files, network = read_features(path, order)
    if trained and network and not same(record(trained), record(network)):
        raise UserError(
            f"{path} holds features of another network than training's; extract them with the network of the run."
        )
    return X, list(files) or [str(i) for i in range(1, len(X) + 1)]  # as in predictions.csv


def _beside(folder: Path, names: list[str], trained: list[str]) -> tuple[Array, list[str]]:
    """The features of several networks beside each other, image by image."""
    lacking = [f"{name}.npz" for name in names if not (folder / f"{name}.npz").is_file()]
    if lacking:
        raise UserError(
            f"{folder} is no folder with {', '.join(lacking)}; the run is on features of several networks, so give a "
            f"folder with {', '.join(f'{name}.npz' for name in names)}."
        )
    first, *others = (_from_file(folder / f"{name}.npz", one) for name, one in zip(names, trained, strict=True))
    columns = [first[0]]
    for name, (X, files) in zip(names[1:], others):
        rows = rows_by_name(first[1], files, len(first[1]))
        if rows is None:
            raise UserError(f"{folder}: {names[0]}.npz and {name}.npz are of different images; extract both again.")
        columns.append(X[rows])
    return np.hstack(columns), first[1]


def _from_images(
    folder: Path, classifier: ZeroShotClassifier, arguments: argparse.Namespace
) -> tuple[Array, list[str]]:
    from zsl.data.readers.tabular import read_features
    from zsl.extract.__main__ import extract
    from zsl.extract.choice import NAMES, network_of
    from zsl.extract.images import Images, image_files
    from zsl.extract.networks import ALIASES, same

    files = image_files(folder)
    trained = record(classifier.about_.get("network"))
    name = arguments.network or trained.get("name")
    if name is None:
        raise UserError(
            f"{folder} holds images, and the run's features do not say which network made them; add --network, one of: "
            f"{NAMES}."
        )
    if len({ALIASES.get(n, n) for n in (name, trained.get("name", name))}) > 1:
        raise UserError(f"--network {name} did not make training's features, {trained['name']} did; leave it out.")
    network = network_of(arguments, name, pool=trained.get("pool", "own"), size=trained.get("size"))
    if trained and not same(network.record, trained):
        raise UserError(
            f"--network {name} as it is here is not the network that made training's features (its weights or its "
            "pre-processing differ); give the same --weights."
        )
    with tempfile.TemporaryDirectory() as scratch:
        target = Path(scratch) / "features.npz"
        extract(Images(folder, files, ("",) * len(files)), network, target, workers=arguments.workers)
        X, kept, _ = read_features(target)
    return np.array(X), list(kept)
