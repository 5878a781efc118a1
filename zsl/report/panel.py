"""The 2 x 3 panel of predicted attributes, from the ``predictions.npz`` of a run (``save_predictions=true``)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import BadZipFile

import numpy as np

from zsl.errors import UserError, reason
from zsl.report.compare import lacking
from zsl.report.figures import six_panels
from zsl.runs.files import POINTS
from zsl.runs.status import RESULTS

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
    """The figure for one run folder, and what it shows in a sentence.

    Both rows are embedded together (t-SNE of unit rows, as spreading sees them), so that positions compare. Of more
    than ``max_images`` images a random part is drawn; labels and accuracies are those of all.
    """
    from sklearn.manifold import TSNE

    from zsl.inference import spread
    from zsl.linalg import unit_rows

    path = folder / POINTS
    try:
        with np.load(path) as file:
            stored = {k: file[k] for k in file.files}
        path = folder / RESULTS
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, EOFError, BadZipFile, KeyError) as error:
        raise UserError(
            f"{path} cannot be read ({reason(error)}); run it again, or name another run's folder."
        ) from None
    if lacks := lacking(record):
        raise UserError(f"{path} is no complete record (it lacks {lacks}); run it again.")
    if "aaw/Z_hat" not in stored:
        raise UserError(f"{folder / POINTS} has no attribute-aware stage; run with inference=taaw.")
    key, settings = record["key"], record["key"]["inference"]
    y, Z_unseen, names = stored["y"], stored["Z_unseen"], [str(c) for c in stored["classes"]]
    rows = {"AAg": "aag", "AAw": "aaw"}
    chosen = np.sort(np.random.default_rng(seed).permutation(len(y))[:max_images])
    stack = [unit_rows(Z_unseen), *(unit_rows(stored[f"{s}/Z_hat"])[chosen] for s in rows.values())]
    V = np.vstack(stack)
    perplexity = min(30, (len(V) - 1) / 3)
    P = TSNE(perplexity=perplexity, init="pca", random_state=seed).fit_transform(V)
    M, n = len(Z_unseen), len(chosen)
    points, labels = {}, {}
    for i, (title, stage) in enumerate(rows.items()):
        points[title] = np.vstack([P[:M], P[M + i * n : M + (i + 1) * n]])
        near = stored[f"{stage}/scores"].argmax(axis=1)
        passed = {k: settings[k] for k in ("mu", "sigma", "n_neighbors", "unit") if k in settings}
        spreading = spread(stored[f"{stage}/Z_hat"], Z_unseen, **passed).argmax(axis=1)
        labels[title] = {f"{title}: true classes": y[chosen]}
        for words, guess in (("nearest class", near), ("labels spread", spreading)):
            accuracy = np.mean([(guess[y == m] == m).mean() for m in np.unique(y[y >= 0])])
            labels[title][f"{title}: {words}, {accuracy:.1%}"] = guess[chosen]
    where = f"{key['dataset']['name']}, {key['feature']['name']}, {key['split']['name']} split, seed {key['seed']}"
    caption = (
        f"{where}: predicted attributes of {n} of {len(y)} test images (t-SNE, perplexity {perplexity:.0f}, seed "
        f"{seed}) and the attributes of the {M} unseen classes (circles with a black edge). Percentages: mean "
        f"per-class accuracy on all test images. Settings: {key['selection'].removeprefix('none: ')}."
    )
    return six_panels(points, labels, names), caption
