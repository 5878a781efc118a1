"""What figures take from the folder of a run, from its record or from many runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard
from zipfile import BadZipFile

import numpy as np
import pandas as pd

from zsl.checks import Array
from zsl.errors import UserError, reason
from zsl.report.records import as_frame, read_records, row
from zsl.runs.files import POINTS, PREDICTIONS
from zsl.runs.status import RESULTS, read
from zsl.text import from_cell

Run = str | Path | Mapping[str, Any]
"""A run: its folder, or its record (the contents of ``results.json``)"""


def is_run(source: Any) -> TypeGuard[Run]:
    """Whether something is a folder or a record, and no array."""
    return isinstance(source, str | Path) or (isinstance(source, Mapping) and "per_class" in source)


def record_of(run: Run) -> Mapping[str, Any]:
    """The record of a run.

    Raises
    ------
    UserError
        If the folder has no complete record.
    """
    if isinstance(run, Mapping):
        return run
    path = Path(run) / RESULTS
    if not path.is_file():
        raise UserError(f"{run} holds no {RESULTS}; name the folder of a complete run.")
    try:
        record = read(path)
        row(record)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise UserError(f"{path} cannot be read ({reason(error)}); name the folder of a complete run.") from None
    return record


def points_of(run: Run) -> dict[str, Array]:
    """The arrays of ``predictions.npz``: ``classes``, ``Z_unseen``, ``y``, and of each stage ``scores`` and ``Z_hat``.

    Raises
    ------
    UserError
        If the run has no such file, or it cannot be read.
    """
    if isinstance(run, Mapping):
        raise UserError(
            f"this figure needs the folder of a run with {POINTS}; a record alone does not hold the points."
        )
    path = Path(run) / POINTS
    if not path.exists():
        raise UserError(f"{run} holds no {POINTS}; run it again with save_predictions=true.")
    try:
        with np.load(path) as file:
            out = {k: file[k] for k in file.files}
        out["classes"], out["Z_unseen"], out["y"]
    except (OSError, ValueError, EOFError, BadZipFile, KeyError) as error:
        raise UserError(f"{path} cannot be read ({reason(error)}); run it again, or name another folder.") from None
    return out


def last_stage(points: Mapping[str, Array], what: str) -> str:
    """The last stage of inference that has an array ``what``.

    Raises
    ------
    UserError
        If none has it.
    """
    found = [name.rpartition("/")[0] for name in points if name.endswith("/" + what)]
    if not found:
        raise UserError(
            f"no stage of {POINTS} has {what}; run with a rule that predicts attributes, such as inference=aag."
        )
    return found[-1]


def confusion_counts(record: Mapping[str, Any], folder: str | Path = "") -> dict[tuple[str, str], int]:
    """Number of images by true and predicted class, from the record, or else from the folder's ``predictions.csv``.

    The result is empty where no true class is known.
    """
    if record.get("confusion"):
        return {(t, p): n for t, line in record["confusion"].items() for p, n in line.items()}
    path = Path(folder) / PREDICTIONS
    if not folder or not path.is_file():
        return {}
    try:
        table = pd.read_csv(path, usecols=["true", "predicted"], dtype=str, keep_default_na=False)
    except (OSError, ValueError):
        return {}
    known = table[table["true"] != ""].map(from_cell)
    return dict(Counter(zip(known["true"], known["predicted"])))


def frame_of(runs: Run | Sequence[Run] | pd.DataFrame) -> pd.DataFrame:
    """Records as a table, of a folder above runs, of several folders or records, or the table itself."""
    if isinstance(runs, pd.DataFrame):
        return runs
    if isinstance(runs, str | Path):
        return read_records(Path(runs))
    if isinstance(runs, Mapping):
        runs = [runs]
    return as_frame(
        [row(record_of(run), str(run) if isinstance(run, str | Path) else f"run {i}") for i, run in enumerate(runs)]
    )
