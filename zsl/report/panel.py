"""The 2 x 3 panel of predicted attributes, from the ``predictions.npz`` of a run (``save_predictions=true``)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from zsl.errors import UserError
from zsl.linalg import unit_rows
from zsl.report.figures import embedding
from zsl.report.figures.runs import points_of, record_of
from zsl.report.figures.scatter import handles_of, plane
from zsl.report.figures.style import TEXT, legend_below
from zsl.report.records import row
from zsl.runs.files import POINTS

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def newest(folder: Path) -> Path:
    """The run folder under ``folder`` whose points were written last."""
    found = sorted(folder.rglob(POINTS), key=lambda p: p.stat().st_mtime)
    if not found:
        raise UserError(
            f"{folder} holds no {POINTS}; run `zsl run experiment=figure` first, or any run with "
            "save_predictions=true and inference=taaw."
        )
    return found[-1].parent


def panel(folder: Path, *, seed: int = 0, max_images: int = 1500) -> tuple[Figure, str]:
    """The figure of one run folder, and its caption.

    AAg stands above and AAw below; the columns are coloured by the true class, the nearest class and spread labels, and
    the markers of images that got a wrong class are hollow. Both rows are embedded together, so that positions compare.
    Of more than ``max_images`` images a random part is drawn; labels and accuracies are those of all.

    Raises
    ------
    UserError
        If the folder's files cannot be read, or lack the attribute-aware stage.
    """
    from matplotlib.figure import Figure

    from zsl.inference import spread

    record, stored = row(record_of(folder)), points_of(folder)
    if "aaw/Z_hat" not in stored:
        raise UserError(f"{folder / POINTS} has no attribute-aware stage; run with inference=taaw.")
    settings = record["key"]["inference"].get("spread", {})
    passed = {k: v for k, v in settings.items() if k in ("mu", "sigma", "n_neighbors", "unit")}
    y, Z, names = stored["y"], stored["Z_unseen"], [str(c) for c in stored["classes"]]
    chosen = np.sort(np.random.default_rng(seed).permutation(len(y))[:max_images])
    stages = {"aag": "AAg, attribute-agnostic", "aaw": "AAw, attribute-aware"}
    M, n = len(Z), len(chosen)
    points = plane(np.vstack([unit_rows(Z), *(unit_rows(stored[f"{s}/Z_hat"])[chosen] for s in stages)]), seed=seed)
    figure = Figure(figsize=(7.0, 4.9), layout="constrained")
    for i, (stage, grid) in enumerate(zip(stages, figure.subplots(2, 3))):
        guesses = {
            "nearest class": stored[f"{stage}/scores"].argmax(axis=1),
            "labels spread": spread(stored[f"{stage}/Z_hat"], Z, **passed).argmax(axis=1),
        }
        at = points[M + i * n : M + (i + 1) * n]
        embedding(at, points[:M], y[chosen], names=names, legend=False, max_images=n, ax=grid[0])
        grid[0].set_title("true classes", fontsize=TEXT)
        grid[0].set_ylabel(stages[stage], fontsize=TEXT)
        for ax, (words, guess) in zip(grid[1:], guesses.items()):
            embedding(
                at, points[:M], y[chosen], guess[chosen], names, colour="predicted", legend=False, max_images=n, ax=ax
            )
            accuracy = np.mean([(guess[y == m] == m).mean() for m in np.unique(y[y >= 0])])
            ax.set_title(f"{words}, {accuracy:.1%} right", fontsize=TEXT)
    handles = handles_of(names, wrong=True, unknown=bool((y < 0).any()))
    legend_below(figure, handles, [str(handle.get_label()) for handle in handles], columns=8)
    caption = (
        f"{record['dataset']}, {record['feature']}, {record['split_name']} split, seed {record['seed']}: predicted "
        f"attributes of {n} of {len(y)} test images (t-SNE, seed {seed}) and the attributes of the {M} unseen classes "
        "(large markers with a black edge). Colours: the true class, then the predicted one; hollow: a wrong class. "
        f"Percentages: mean per-class accuracy on all test images. Settings: {record['selection']}."
    )
    return figure, caption
