"""Writing any dataset as an xlsa17 folder, or as the files that ``dataset=tabular`` reads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from zsl.checks import Array
from zsl.data.readers.features import STORED_AS
from zsl.data.readers.tables import write_class_csv
from zsl.data.table import ImageTable, Split
from zsl.errors import UserError, writing

# The largest variable that MATLAB's v5 format can hold.
_V5_LIMIT = 2**31 - 1


def to_xlsa17(table: ImageTable, splits: dict[str, Split], folder: Path) -> list[Path]:
    """Write ``FEATURE.mat``, ``att_splits.mat`` (and ``att_splits_ss.mat``), the class lists and image attributes.

    ``att`` holds the attributes as they are; where a value is missing, ``original_att`` has NaN. Reading the folder
    back gives the same features, labels, attributes, missing values and splits.

    Parameters
    ----------
    splits : dict
        ``proposed`` (needed: what ``att_splits.mat`` holds) and ``standard``.

    Raises
    ------
    UserError
        If a file is there already, images have no class, or the features are too large for the format.
    """
    from scipy.io import savemat

    unknown, size = int((table.labels < 0).sum()), table.features.nbytes
    if unknown or size > _V5_LIMIT:
        why = f"{unknown} images without a class" if unknown else f"{size / 2**30:.1f} GiB of features, 2 at most"
        raise UserError(f"{table.name} does not fit into the xlsa17 layout ({why}); use --format npz.")
    images = {"features": np.asarray(table.features).T, "labels": (table.labels + 1.0)[:, None]}
    if table.image_names:
        images["image_files"] = _cells(table.image_names)
    mats = {f"{STORED_AS.get(table.feature, table.feature)}.mat": images}
    texts = {"allclasses.txt": table.class_names}
    if table.attribute_names:
        texts["predicates.txt"] = tuple(f"{i + 1}\t{a}" for i, a in enumerate(table.attribute_names))
    for i, (train, val) in enumerate(table.validation, start=1):
        texts |= {f"trainclasses{i}.txt": train, f"valclasses{i}.txt": val}
    for name, suffix in (("proposed", ""), ("standard", "_ss")):
        if name in splits:
            split = splits[name]
            rows = {"trainval": split.trainval, "test_seen": split.test_seen, "test_unseen": split.test_unseen}
            mats[f"att_splits{suffix}.mat"] = {
                "att": table.attributes.T,
                "original_att": np.where(table.gaps, np.nan, table.attributes).T,
                "allclasses_names": _cells(table.class_names),
                **{f"{part}_loc": (found + 1.0)[:, None] for part, found in rows.items()},
            }
            texts[f"testclasses{suffix}.txt"] = tuple(table.class_names[c] for c in split.unseen)
    files: dict[str, Callable[[Path], Any]] = {
        **{file: partial(savemat, mdict=variables, do_compression=True) for file, variables in mats.items()},
        **{file: partial(_write_lines, lines=lines) for file, lines in texts.items()},
    }
    if table.image_attributes is not None:
        files["image_attributes.npz"] = partial(np.savez_compressed, att=table.image_attributes)
    return _write(folder, files)


def to_npz(table: ImageTable, splits: dict[str, Split], folder: Path) -> list[Path]:
    """Write ``features.npz``, ``attributes.csv`` and ``unseen.txt``, which ``dataset=tabular`` reads.

    Raises
    ------
    UserError
        If a file is there already, or images have attributes of their own and no names.
    """
    labels = np.array([*table.class_names, ""])[table.labels]  # -1 is the last: no class
    names = {"files": np.array(table.image_names)} if table.image_names else {}
    attribute_names = table.attribute_names or tuple(f"attribute_{a + 1}" for a in range(table.attributes.shape[1]))
    rows, row_names = np.where(table.gaps, np.nan, table.attributes), table.class_names
    if table.image_attributes is not None:
        if not table.image_names:
            raise UserError(f"{table.name}: image-level attributes need file names, and there are none.")
        rows, row_names = table.image_attributes.astype(np.float64), table.image_names
    unseen = tuple(table.class_names[c] for c in splits["proposed"].unseen)
    arrays: dict[str, Array] = {"features": table.features, "labels": labels, **names}
    return _write(
        folder,
        {
            "features.npz": partial(np.savez, **arrays),  # type: ignore[arg-type]
            "attributes.csv": partial(write_class_csv, names=row_names, attribute_names=attribute_names, rows=rows),
            "unseen.txt": partial(_write_lines, lines=unseen),
        },
    )


def _write(folder: Path, files: dict[str, Callable[[Path], Any]]) -> list[Path]:
    """Call each writer with its path; nothing is written if one of the files is there."""
    paths = [folder / file for file in files]
    with writing(folder, "choose another folder with --to"):
        for path in paths:
            if path.exists():
                raise UserError(f"{path} exists already and is not overwritten; choose another folder with --to.")
        folder.mkdir(parents=True, exist_ok=True)
        for path, write in zip(paths, files.values(), strict=True):
            write(path)
    return paths


def _write_lines(path: Path, lines: tuple[str, ...]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _cells(names: tuple[str, ...]) -> Array:
    out = np.empty((len(names), 1), dtype=object)
    out[:, 0] = names
    return out
