"""Any dataset as an xlsa17 folder, or as the two files that ``dataset=tabular`` reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from zsl.checks import Array
from zsl.data.readers.tables import STORED_AS
from zsl.data.readers.tabular import write_class_csv
from zsl.data.table import ImageTable, Split
from zsl.errors import UserError, writing

_ELSEWHERE = "choose another folder with --to"
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

    if (table.labels < 0).any():
        raise UserError(
            f"{table.name}: {(table.labels < 0).sum()} images have no class, which the xlsa17 layout cannot express; "
            "use --format npz."
        )
    if table.features.nbytes > _V5_LIMIT:
        raise UserError(
            f"{table.name}: features of {table.features.nbytes / 2**30:.1f} GiB are more than a .mat file holds; "
            "use --format npz."
        )
    missing = np.zeros(table.attributes.shape, bool) if table.missing is None else table.missing
    class_table = {
        "att": table.attributes.T,
        "original_att": np.where(missing, np.nan, table.attributes).T,
        "allclasses_names": _cells(table.class_names),
    }
    stem = STORED_AS.get(table.feature, table.feature)
    images = {"features": np.asarray(table.features).T, "labels": (table.labels + 1.0)[:, None]}
    if table.image_names:
        images["image_files"] = _cells(table.image_names)
    texts = {"allclasses.txt": table.class_names}
    if table.attribute_names:
        texts["predicates.txt"] = tuple(f"{i + 1}\t{a}" for i, a in enumerate(table.attribute_names))
    for i, (train, val) in enumerate(table.validation, start=1):
        texts |= {f"trainclasses{i}.txt": train, f"valclasses{i}.txt": val}
    mats = {f"{stem}.mat": images}
    for name, file in (("proposed", "att_splits.mat"), ("standard", "att_splits_ss.mat")):
        if name in splits:
            mats[file] = {**class_table, **_locations(splits[name])}
            texts["testclasses.txt" if name == "proposed" else "testclasses_ss.txt"] = tuple(
                table.class_names[c] for c in splits[name].unseen
            )
    arrays = {} if table.image_attributes is None else {"image_attributes.npz": {"att": table.image_attributes}}
    paths = [folder / file for file in (*mats, *texts, *arrays)]
    with writing(folder, _ELSEWHERE):
        _refuse_existing(paths)
        folder.mkdir(parents=True, exist_ok=True)
        for file, variables in mats.items():
            savemat(folder / file, variables, do_compression=True)
        for file, lines in texts.items():
            (folder / file).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        for file, stored in arrays.items():
            np.savez_compressed(folder / file, **stored)  # type: ignore[arg-type]
    return paths


def to_npz(table: ImageTable, splits: dict[str, Split], folder: Path) -> list[Path]:
    """Write ``features.npz``, ``attributes.csv`` and ``unseen.txt``, which ``dataset=tabular`` reads.

    Raises
    ------
    UserError
        If a file is there already.
    """
    paths = [folder / "features.npz", folder / "attributes.csv", folder / "unseen.txt"]
    names = np.array([*table.class_names, ""])[table.labels]  # -1 is the last: no class
    files = {"files": np.array(table.image_names)} if table.image_names else {}
    attribute_names = table.attribute_names or tuple(f"attribute_{a + 1}" for a in range(table.attributes.shape[1]))
    rows, row_names = table.attributes, table.class_names
    if table.image_attributes is not None:
        if not table.image_names:
            raise UserError(f"{table.name}: image-level attributes need file names, and there are none.")
        rows, row_names = table.image_attributes.astype(np.float64), table.image_names
    elif table.missing is not None:
        rows = np.where(table.missing, np.nan, rows)
    unseen = splits["proposed"].unseen
    with writing(folder, _ELSEWHERE):
        _refuse_existing(paths)
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(paths[0], features=table.features, labels=names, **files)  # type: ignore[arg-type]
        write_class_csv(paths[1], row_names, attribute_names, rows)
        paths[2].write_text("".join(f"{table.class_names[c]}\n" for c in unseen), encoding="utf-8")
    return paths


def _locations(split: Split) -> dict[str, Array]:
    parts = {"trainval_loc": split.trainval, "test_seen_loc": split.test_seen, "test_unseen_loc": split.test_unseen}
    return {k: (rows + 1.0)[:, None] for k, rows in parts.items()}


def _cells(names: tuple[str, ...]) -> Array:
    out = np.empty((len(names), 1), dtype=object)
    out[:, 0] = names
    return out


def _refuse_existing(paths: list[Path]) -> None:
    for path in paths:
        if path.exists():
            raise UserError(f"{path} exists already and is not overwritten; choose another folder with --to.")
