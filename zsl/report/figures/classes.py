"""Confusion between classes, accuracy by class, errors by attribute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd

from zsl.checks import Array
from zsl.errors import UserError
from zsl.report.figures.runs import Run, confusion_counts, is_run, last_stage, points_of, record_of
from zsl.report.figures.style import COLOURS, COLUMN_IN, FAINT, SMALL, axes, from_to
from zsl.report.statistics import last_accuracy

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def confusion(source: Run | Array, names: Sequence[str] | None = None, *, ax: Axes | None = None) -> Axes:
    """Draw a confusion matrix: true classes down, predicted classes across.

    The colour is the share of the images of the true class; with at most 15 classes the numbers of images stand in it.

    Parameters
    ----------
    source : run or (M, M)
        The folder or the record of a run, or numbers of images by true (rows) and predicted class.
    names : M names of the classes, optional

    Raises
    ------
    UserError
        If the true classes of the run are not known, or an array is not square.

    Examples
    --------
    >>> ax = confusion(np.array([[8, 2], [0, 5]]), ["cat", "dog"])
    >>> ax.images[0].get_array().tolist()
    [[0.8, 0.2], [0.0, 1.0]]
    """
    if is_run(source):
        record = record_of(source)
        names = [row["class"] for row in record["per_class"]]
        counts = confusion_counts(record, "" if isinstance(source, Mapping) else source)
        if not counts:
            raise UserError("the true classes of this run's test images are not known, so nothing can be confused.")
        table = np.array([[counts.get((t, p), 0) for p in names] for t in names])
    else:
        table = np.asarray(source)
        if table.ndim != 2 or table.shape[0] != table.shape[1] or (names is not None and len(names) != len(table)):
            raise UserError(f"the matrix has shape {table.shape}; a row and a column for each class are needed.")
        names = [str(m) for m in range(len(table))] if names is None else names
    M, total = len(table), table.sum(axis=1, keepdims=True)
    share = np.divide(table, total, out=np.zeros(table.shape), where=total > 0)
    ax = axes(ax, height=COLUMN_IN)
    ax.imshow(share, cmap="Blues", vmin=0, vmax=1)
    size = SMALL if M <= 25 else max(3, SMALL * 25 / M)
    ax.set_xticks(range(M), names, rotation=0 if M <= 4 else 90, fontsize=size)
    ax.set_yticks(range(M), names, fontsize=size)
    ax.set(xlabel="predicted class", ylabel="true class")
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    if M <= 15:
        for i, j in zip(*np.nonzero(table)):
            ink = "white" if share[i, j] > 0.6 else "black"
            ax.text(j, i, f"{table[i, j]:g}", ha="center", va="center", fontsize=SMALL, color=ink)
    return ax


def per_class(
    source: Run | Sequence[Run] | pd.DataFrame, *, stage: str | None = None, ax: Axes | None = None
) -> Axes:  # fmt: skip
    """Draw the accuracy of each class as bars, the best on top, with standard errors where there are repetitions.

    Parameters
    ----------
    source : run, sequence of runs, or DataFrame
        Folders or records of one run or of its repetitions. A table has a row for each class and a column for each
        repetition, with accuracies from 0 to 1 and NaN where a class was not tested.
    stage : str, optional
        The stage of inference; the last one unless given.

    Raises
    ------
    UserError
        If no accuracy is known, or a run has no such stage.

    Examples
    --------
    >>> ax = per_class(pd.DataFrame({"seed 0": [0.9, 0.2], "seed 1": [0.7, 0.2]}, index=["cat", "dog"]))
    >>> [float(bar.get_width().round(6)) for bar in ax.patches], [text.get_text() for text in ax.get_yticklabels()]
    ([20.0, 80.0], ['dog', 'cat'])
    """
    if not isinstance(source, pd.DataFrame):
        runs = [source] if is_run(source) else list(cast(Sequence[Run], source))
        source = pd.concat([pd.Series(_accuracies(run, stage), dtype=float) for run in runs], axis=1)
    table = 100 * source.dropna(how="all")
    if table.empty:
        raise UserError("no accuracy of any class is known; the true classes of the test images are needed.")
    table = table.loc[table.mean(axis=1).sort_values(kind="stable").index]
    mean, n = table.mean(axis=1), table.notna().sum(axis=1)
    error = (table.std(axis=1, ddof=1) / np.sqrt(n)).to_numpy()
    ax = axes(ax, height=0.75 + 0.17 * len(table))
    bars: dict[str, Any] = {}
    if (n > 1).any():
        bars = {"xerr": np.nan_to_num(error), "error_kw": {"elinewidth": 0.9, "capsize": 2}}
    ax.barh(range(len(table)), mean, height=0.72, color=COLOURS[0], **bars)
    size = SMALL if len(table) <= 60 else 4
    ax.set_yticks(range(len(table)), [str(name) for name in table.index], fontsize=size)
    ax.set_ylim(-0.6, len(table) - 0.4)
    ax.set_xlim(0, 100)
    over = f"; bars: standard error, {from_to(n)} runs" if bars else ""
    ax.set_xlabel(f"accuracy (%){over}")
    ax.axvline(mean.mean(), color="black", linewidth=0.9, linestyle=(0, (3, 2)))
    ax.set_title(f"mean of the classes {mean.mean():.1f} %", fontsize=SMALL, loc="right")
    return ax


def _accuracies(run: Run, stage: str | None) -> dict[str, float | None]:
    rows = record_of(run)["per_class"]
    if stage is not None and any(f"{stage}/acc" not in row for row in rows):
        raise UserError(f"the run has no stage {stage}; leave stage out for the last one.")
    return {row["class"]: last_accuracy(row) if stage is None else row[f"{stage}/acc"] for row in rows}


def attribute_errors(
    Z_hat: Array | str | Path, Z: Array | None = None, y: Array | None = None, names: Sequence[str] | None = None, *,
    n_shown: int = 20, ax: Axes | None = None,
) -> Axes:  # fmt: skip
    """Draw the root mean square error of each predicted attribute as bars, the attributes with the largest errors.

    Parameters
    ----------
    Z_hat : (L, q) or folder of a run
        Predicted attributes; of a run with ``save_predictions=true``, everything else is read as well.
    Z : (M, q)
        Attributes of the classes, pre-processed as they were for the model.
    y : (L,) int
        True classes 0..M-1; images of class -1 are left out.
    names : q names of the attributes, optional
    n_shown : int
        So many attributes are drawn.

    Raises
    ------
    UserError
        If no true class is known, or the run has no predicted attributes.

    Examples
    --------
    >>> ax = attribute_errors(np.array([[3.0, 1.0], [3.0, 1.0]]), np.array([[0.0, 1.0]]), np.array([0, 0]), ["a", "b"])
    >>> [float(bar.get_width()) for bar in ax.patches]
    [0.0, 3.0]
    """
    if isinstance(Z_hat, str | Path):
        points = points_of(Z_hat)
        Z_hat, Z, y = points[last_stage(points, "Z_hat") + "/Z_hat"], points["Z_unseen"], points["y"]
        if names is None and "attributes" in points:
            names = [str(name) for name in points["attributes"]]
    if Z is None or y is None or not (np.asarray(y) >= 0).any():
        raise UserError("errors of attributes need the attributes Z of the classes and the true classes y of images.")
    y = np.asarray(y)
    errors = np.sqrt(np.mean((Z_hat[y >= 0] - np.asarray(Z)[y[y >= 0]]) ** 2, axis=0))
    words = [f"attribute {k}" for k in range(len(errors))] if names is None else [str(name) for name in names]
    order = np.argsort(errors, kind="stable")[-n_shown:]
    ax = axes(ax, height=0.7 + 0.17 * len(order))
    ax.barh(range(len(order)), errors[order], height=0.72, color=COLOURS[0])
    ax.set_yticks(range(len(order)), [words[k] for k in order], fontsize=SMALL)
    ax.set_ylim(-0.6, len(order) - 0.4)
    ax.set_xlabel("root mean square error of the attribute")
    ax.axvline(np.sqrt(np.mean(errors**2)), color=FAINT, linewidth=0.9, linestyle=(0, (3, 2)))
    if len(order) < len(errors):
        ax.set_title(f"the {len(order)} largest of {len(errors)}; dashed: all", fontsize=SMALL, loc="right")
    return ax
