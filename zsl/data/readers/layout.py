"""Which of a dataset's published forms lies in a folder: the xlsa17 one, or its official archive."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from zsl.data.cache import Folder
from zsl.data.readers.tables import class_list
from zsl.data.readers.xlsa17 import unpacked
from zsl.data.splits import hold_out, named_classes
from zsl.data.table import ImageTable, Split
from zsl.errors import UserError

# The official archives of CUB and SUN have no class split; lists of unseen classes may be put beside them.
CLASS_LISTS = {"proposed": "testclasses.txt", "standard": "testclasses_ss.txt"}


def choose(root: str, layout: str, *, name: str, marker: str, archive: str, how_to_get: str) -> tuple[str, Path]:
    """The layout and the folder to read: ``auto`` takes xlsa17 where both are there, since it brings the splits.

    Looked at, in this order: ``root`` itself, the archive unpacked inside it, the archive unpacked beside it.

    Parameters
    ----------
    layout : "auto", "xlsa17" or "official"
    marker : str
        A file that tells the official archive.
    archive : str
        The folder that the official archive unpacks to.
    """
    base = Path(root).expanduser()
    places = {
        "xlsa17": ("att_splits.mat", [unpacked(root)]),
        "official": (marker, [base, base / archive, base.parent / archive]),
    }
    for found in ("xlsa17", "official") if layout == "auto" else (layout,):
        file, folders = places[found]
        for folder in folders:
            if (folder / file).is_file():
                return found, folder
    wanted = {
        "auto": f"att_splits.mat (xlsa17) nor {marker} (the official archive)",
        "xlsa17": "att_splits.mat",
        "official": marker,
    }
    what = f"the folder {base} does not exist" if not base.is_dir() else f"{base} has no {wanted[layout]}"
    if layout == "auto" and base.is_dir():
        what = f"{base} has neither {wanted[layout]}"
    raise UserError(f"dataset={name} is not here: {what}; {how_to_get}.")


def archive_provenance(folder: Folder, features: Path, network: str) -> dict[str, Any]:
    """The record of a table read from an official archive whose splits come from ``CLASS_LISTS``."""
    return {
        "root": str(folder.root),
        "layout": "official archive",
        "feature_file": features.name,
        "network": network,
        "files": folder.files,
        "missing_splits": {
            name: f"it would be read from {folder.root / file}, the class list of xlsa17; "
            for name, file in CLASS_LISTS.items()
        },
    }


def with_class_splits(table: ImageTable, folder: Folder, lists: dict[str, str | tuple[str, ...]]) -> ImageTable:
    """The table with a split for each list of unseen classes (a file of the folder, or names) that there is.

    A list of classes says nothing about images, so the seen test images are drawn here (``hold_out`` under seed 0);
    the record says so.
    """
    splits: dict[str, Split] = dict(table.splits)
    for name, source in lists.items():
        names = class_list(folder, source, table.class_names) if isinstance(source, str) else source
        if names is None:
            continue
        unseen = named_classes(table, list(names), source if isinstance(source, str) else name)
        origin = {
            "file": source if isinstance(source, str) else "published class list",
            "test_seen": "drawn: a fifth of each seen class, seed 0",
        }
        splits[name] = hold_out(table, unseen, np.random.default_rng(0), name, origin)
    n_unseen = len(next(iter(splits.values())).unseen) if splits else table.n_unseen
    return replace(table, splits=splits, n_unseen=n_unseen)
