"""What the readers of AwA, CUB and SUN share: which published form lies in a folder, and what official archives lack.

Each of these datasets comes as an xlsa17 folder or as its official archive. The archives of CUB and SUN have neither
features nor class splits: features are read from a file beside them, splits from lists of unseen classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from zsl.checks import Array
from zsl.data.cache import Folder
from zsl.data.catalogue import ENTRIES
from zsl.data.readers import xlsa17
from zsl.data.readers.features import check_same_classes, feature_file, in_image_order, read_features
from zsl.data.readers.tables import Semantics, class_list, validation_lists
from zsl.data.splits import hold_out, named_classes
from zsl.data.table import ImageTable
from zsl.errors import UserError

# Lists of unseen classes that may be put beside an archive that has no class split.
CLASS_LISTS = {"proposed": "testclasses.txt", "standard": "testclasses_ss.txt"}
_LOAD = """
    layout : "auto", "xlsa17" or "official"
        Which published form to read; ``auto`` takes the xlsa17 form where both are there, since it brings splits.
    root, feature, name, table, cache : see :func:`zsl.data.readers.xlsa17.load`.

    Raises
    ------
    UserError
        As :func:`zsl.data.readers.xlsa17.load`.
    """


def reader(name: str, marker: str) -> Callable[[Callable[..., ImageTable]], Callable[..., ImageTable]]:
    """Make the reader of a dataset from the reader of its official archive.

    Parameters
    ----------
    name : str
        The dataset in the catalogue, and its default name in results.
    marker : str
        A file by which the official archive is known. The archive may lie in ``root`` itself, unpacked inside it, or
        unpacked beside it.
    """
    default = name

    def decorate(read: Callable[..., ImageTable]) -> Callable[..., ImageTable]:
        def load(
            root: str,
            *,
            feature: str = "resnet101",
            name: str = default,
            semantics: str | None = None,
            layout: Literal["auto", "xlsa17", "official"] = "auto",
            table: str = "att_splits.mat",
            cache: str | None = None,
        ) -> ImageTable:
            base = Path(root).expanduser()
            if layout != "official":
                folder = xlsa17.unpacked(root)
                if layout == "xlsa17" or (folder / "att_splits.mat").is_file():
                    return xlsa17.load(
                        str(folder), feature=feature, name=name, semantics=semantics, table=table, cache=cache
                    )
            archive = ENTRIES.get(name, ENTRIES[default]).official
            for folder in (base, base / archive, base.parent / archive):
                if (folder / marker).is_file():
                    return read(Folder(folder, cache), feature, name, semantics)
            what = f"{base} has neither att_splits.mat (xlsa17) nor {marker} (the official archive)"
            what = what if base.is_dir() else f"the folder {base} does not exist"
            raise UserError(f"dataset={name} is not here: {what}; {xlsa17.how_to_get(name, feature)}.")

        load.__module__, load.__doc__ = read.__module__, f"{(read.__doc__ or '').rstrip()}{_LOAD}"
        return load

    return decorate


def image_table(
    folder: Folder,
    name: str,
    feature: str,
    *,
    images: tuple[str, ...],
    labels: Array,
    labels_file: Path,
    class_names: tuple[str, ...],
    found: Semantics,
    image_folder: str,
    **fields: Any,
) -> ImageTable:
    """A table of an archive without features and splits: features by file name, splits from :data:`CLASS_LISTS`.

    Parameters
    ----------
    images, labels, class_names : what the archive says of its images, in its order.
    labels_file : Path
        Where the archive says so, for a sentence about features that disagree.
    found : Semantics
        The attribute table.
    image_folder : str
        The folder from which features can be extracted, for a sentence about features that are missing.
    fields : further fields of :class:`ImageTable`.
    """
    to = folder / "lite0.npz"
    path = feature_file(
        folder.root, feature, name,
        f"the archive holds no features; zsl extract {image_folder} --to {to} --network lite0 makes some "
        "(then: feature=lite0)",
    )  # fmt: skip
    stored = read_features(folder, path)
    order = in_image_order(stored, images, path)
    check_same_classes(stored, order, labels, class_names, path, labels_file)
    table = ImageTable(
        name=name,
        feature=feature,
        features=stored.rows if np.array_equal(order, np.arange(len(stored.rows))) else stored.rows[order],
        labels=labels,
        class_names=class_names,
        image_names=images,
        validation=validation_lists(folder, class_names),
        provenance={
            "root": str(folder.root),
            "layout": "official archive",
            "feature_file": path.name,
            "network": stored.network,
            "files": folder.files,
            "missing_splits": {
                split: f"it would be read from {folder / file}, the class list of xlsa17; "
                for split, file in CLASS_LISTS.items()
            },
        },
        **found._asdict(),
        **fields,
    )
    return with_class_splits(table, folder, dict(CLASS_LISTS))


def with_class_splits(table: ImageTable, folder: Folder, lists: dict[str, str | tuple[str, ...]]) -> ImageTable:
    """The table with a split for each list of unseen classes (a file of the folder, or names) that there is.

    A list of classes says nothing about images, so the seen test images are drawn here (``hold_out`` under seed 0);
    the record says so.
    """
    splits = dict(table.splits)
    for name, source in lists.items():
        names = class_list(folder, source, table.class_names) if isinstance(source, str) else source
        if names is not None:
            unseen = named_classes(table, list(names), source if isinstance(source, str) else name)
            origin = {
                "file": source if isinstance(source, str) else "published class list",
                "test_seen": "drawn: a fifth of each seen class, seed 0",
            }
            splits[name] = hold_out(table, unseen, np.random.default_rng(0), name, origin)
    n_unseen = len(next(iter(splits.values())).unseen) if splits else table.n_unseen
    return replace(table, splits=splits, n_unseen=n_unseen)
