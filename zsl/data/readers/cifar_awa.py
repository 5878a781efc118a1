"""CIFAR images with the attributes of AwA2: 25 kinds of animals, 4904 images, 85 attributes; comes with zsl.

``cifar_awa.npz`` holds for every image 128 features in half precision, its class, and its name in the archives of
CIFAR-10 and CIFAR-100. The features are outputs of EfficientNet-Lite0 (1280 numbers, see :mod:`zsl.extract`), scaled to
unit length, centred, and projected on 128 orthonormal directions. The directions are those of a published file; which
images they are principal directions of is not recorded. Nothing was fitted on this dataset's labels or attributes.

The classes are those that AwA2 and CIFAR share. Images of ``moose`` and ``deer`` are both from CIFAR-10's deer, of
``ox`` and ``cow`` both from CIFAR-100's cattle, of ``chihuahua`` from CIFAR-10's dogs, by the word in their file names.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import numpy as np

from zsl.checks import Array
from zsl.data.cache import Folder
from zsl.data.readers.features import feature_file, read_features
from zsl.data.table import ImageTable, Split
from zsl.errors import UserError

FEATURE = "lite0_pca128"
PRETRAINED = (
    "EfficientNet-Lite0 was trained on ImageNet, whose classes include kinds of animals that are unseen here, so these "
    "accuracies are higher than they would be for animals that the network has never seen."
)
_SPLITS = ("proposed", "standard")
_TABLES = ("continuous", "original")
# The role of an image in a split, as the arrays of that name in the packaged file number it.
_TRAINVAL, _TEST_SEEN, _TEST_UNSEEN = 1, 2, 3


def load(
    features_dir: str, *, feature: str = FEATURE, name: str = "cifar_awa", semantics: str | None = None,
    cache: str | None = None,
) -> ImageTable:  # fmt: skip
    """Read the images of the package, or other features of the same images.

    Parameters
    ----------
    features_dir : folder
        The folder that holds ``FEATURE.npz`` or ``FEATURE.mat`` for any ``feature`` but ``lite0_pca128``, as
        ``zsl data build cifar_awa`` and ``zsl extract`` write it. Images are matched by class and
        file name.
    semantics : str, optional
        ``continuous`` (default: each class's row has unit length) or ``original`` (0 to 100, per cent of people).
    cache : str, optional
        The folder of converted copies, which load faster; ``off``: none (:class:`zsl.data.cache.Folder`).

    Raises
    ------
    UserError
        For an attribute table that does not exist, features that are missing, and features of other images.
    """
    if semantics not in (None, *_TABLES):
        raise UserError(
            f"dataset.semantics={semantics}: {name} has no such attribute table; it has: continuous, original."
        )
    own = packaged()
    attributes = own["attributes"]
    if semantics != "original":
        attributes = attributes / np.linalg.norm(attributes, axis=1, keepdims=True)
    class_names = tuple(own["class_names"].tolist())
    provenance = {
        "images": "CIFAR-10 and CIFAR-100 (Krizhevsky 2009)",
        "attributes": "AwA2 (Xian, Lampert, Schiele, Akata 2018)",
        "network": "EfficientNet-Lite0 (Tan, Le 2019, and the Lite variants published with it)",
        "caution": PRETRAINED,
    }
    features = own["features"].astype(np.float32)
    if feature != FEATURE:
        features, network = _others(Path(features_dir).expanduser(), feature, name, cache, own)
        provenance["network"] = network
        if "lite0" not in feature:
            del provenance["caution"]
    return ImageTable(
        name=name,
        feature=feature,
        features=features,
        labels=own["labels"].astype(np.int64),
        class_names=class_names,
        attributes=attributes,
        attribute_names=tuple(own["attribute_names"].tolist()),
        image_names=tuple(own["files"].tolist()),
        semantics=semantics or "continuous",
        splits={split: _split(split, own[split], own["labels"]) for split in _SPLITS},
        n_unseen=4,
        provenance=provenance,
    )


def packaged() -> dict[str, Array]:
    """The arrays of the file that comes with zsl."""
    with (files("zsl.data.readers") / "cifar_awa.npz").open("rb") as file, np.load(file, allow_pickle=False) as stored:
        return dict(stored)


def image_key(file: str, class_name: str) -> str:
    """What identifies an image in any archive or folder: ``c100:test/bear/a.png`` -> ``grizzly_bear/a.png``."""
    return f"{class_name.replace('+', '_')}/{file.rpartition('/')[2]}"


def _split(name: str, role: Array, labels: Array) -> Split:
    trainval, test_seen, test_unseen = (np.flatnonzero(role == r) for r in (_TRAINVAL, _TEST_SEEN, _TEST_UNSEEN))
    return Split(name, trainval, test_seen, test_unseen, np.unique(labels[test_unseen]).astype(np.int64),
                 {"file": "cifar_awa.npz"})  # fmt: skip


def _others(folder: Path, feature: str, name: str, cache: str | None, own: dict[str, Array]) -> tuple[Array, str]:
    """Features of the same images from a file, in the package's order, and the network that made them."""
    how = f"zsl data build {name} --images FOLDER makes lite0_1280 from CIFAR's archives"
    if not folder.is_dir():
        raise UserError(
            f"dataset={name}, feature={feature}: the folder {folder} does not exist; {how}, and feature.name={FEATURE} "
            "comes with zsl."
        )
    path = feature_file(folder, feature, name, how)
    found = read_features(Folder(folder, cache), path)
    class_names = own["class_names"][own["labels"]].tolist()
    wanted = [image_key(file, c) for file, c in zip(own["files"].tolist(), class_names, strict=True)]
    theirs = found.class_names or tuple(own["class_names"].tolist())
    place = {image_key(file, theirs[c]): i for i, (file, c) in enumerate(zip(found.image_names, found.labels))}
    absent = [key for key in wanted if key not in place]
    if absent:
        raise UserError(
            f"{path} lacks {len(absent)} of the {len(wanted)} images of {name} (first: {absent[0]}); {how}."
        )
    return found.rows[[place[key] for key in wanted]], found.network or feature
