"""The 2 x 3 panel of predicted attributes, from the ``predictions.npz`` of a run (``save_predictions=true``)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import BadZipFile

import numpy as np

from zsl.errors import UserError, reason
from zsl.linalg import unit_rows
from zsl.report.figures import panel_grid, tsne
from zsl.report.records import row
from zsl.runs.files import POINTS
from zsl.runs.status import RESULTS, read

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def newest(folder: Path) -> Path:
    """The run folder under ``folder`` whose points were written last."""
    found = sorted(folder.rglob(POINTS), key=lambda p: p.stat().st_mtime)
    if not found:
        raise UserError(
            f"{folder} holds no {POINTS}; run `python -m zsl.main experiment=figure` first, or any run with "
            "save_predictions=true and inference=taaw."
        )
    return found[-1].parent


def panel(folder: Path, *, seed: int = 0, max_images: int = 1500) -> tuple[Figure, str]:
    """The figure of one run folder, and its caption.

    AAg stands above and AAw below; the columns are coloured by the true class, the nearest class and spread labels.
    Both rows are embedded together, so that positions compare. Of more than ``max_images`` images a random part is
    drawn; labels and accuracies are those of all.

    Raises
    ------
    UserError
        If the folder's files cannot be read, or lack the attribute-aware stage.
    """
    from zsl.inference import spread

    path = folder / POINTS
    try:
        with np.load(path) as file:
            stored = {k: file[k] for k in file.files}
        path = folder / RESULTS
        record = row(read(path))
    except (OSError, ValueError, EOFError, BadZipFile, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} cannot be read ({reason(error)}); run it again, or name another folder.") from None
    if "aaw/Z_hat" not in stored:
        raise UserError(f"{folder / POINTS} has no attribute-aware stage; run with inference=taaw.")
    settings = record["key"]["inference"]
    y, Z_unseen, names = stored["y"], stored["Z_unseen"], [str(c) for c in stored["classes"]]
    chosen = np.sort(np.random.default_rng(seed).permutation(len(y))[:max_images])
    stages = {"AAg": "aag", "AAw": "aaw"}
    M, n = len(Z_unseen), len(chosen)
    points = tsne(np.vstack([unit_rows(Z_unseen), *(unit_rows(stored[f"{s}/Z_hat"])[chosen] for s in stages.values())]),
                  seed)  # fmt: skip
    rows = []
    for i, (title, stage) in enumerate(stages.items()):
        mine = np.vstack([points[:M], points[M + i * n : M + (i + 1) * n]])
        passed = {k: v for k, v in settings.get("spread", {}).items() if k in ("mu", "sigma", "n_neighbors", "unit")}
        guesses = {
            "nearest class": stored[f"{stage}/scores"].argmax(axis=1),
            "labels spread": spread(stored[f"{stage}/Z_hat"], Z_unseen, **passed).argmax(axis=1),
        }
        panels = {f"{title}: true classes": (mine, y[chosen])}
        for words, guess in guesses.items():
            accuracy = np.mean([(guess[y == m] == m).mean() for m in np.unique(y[y >= 0])])
            panels[f"{title}: {words}, {accuracy:.1%}"] = (mine, guess[chosen])
        rows.append(panels)
    caption = (
        f"{record['dataset']}, {record['feature']}, {record['split_name']} split, seed {record['seed']}: predicted "
        f"attributes of {n} of {len(y)} test images (t-SNE, seed {seed}) and the attributes of the {M} unseen classes "
        f"(large markers with a black edge). Percentages: mean per-class accuracy on all test images. Settings: "
        f"{record['selection']}."
    )
    return panel_grid(rows, names), caption
