"""Predicted attributes in two dimensions: of arrays or a run, and the 2 x 3 panel of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from zsl.checks import Array
from zsl.errors import UserError
from zsl.linalg import unit_rows
from zsl.report.figures.runs import last_stage, points_of, record_of
from zsl.report.figures.style import SMALL, TEXT, axes, legend_below, legend_under, style
from zsl.report.records import row
from zsl.runs.files import POINTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

METHODS = ("tsne", "pca")
# With more classes a legend is longer than the picture is high; names then stand beside the prototypes.
_IN_LEGEND = 16


def plane(V: Array, method: str = "tsne", seed: int = 0) -> Array:
    """The rows of V (n, q) in two dimensions (n, 2); the perplexity of t-SNE is at most 30.

    Raises
    ------
    UserError
        For another method.
    """
    if method not in METHODS:
        raise UserError(f"method={method!r} is not known; choose one of {', '.join(METHODS)}.")
    if method == "pca":
        from sklearn.decomposition import PCA

        return np.asarray(PCA(n_components=2, random_state=seed).fit_transform(V))
    from sklearn.manifold import TSNE

    # The perplexity must stay below the number of points.
    perplexity = min(30, (len(V) - 1) / 3)
    return np.asarray(TSNE(perplexity=perplexity, init="pca", random_state=seed).fit_transform(V))


def embedding(
    Z_hat: Array | str | Path, Z: Array | None = None, y: Array | None = None, predicted: Array | None = None,
    names: Sequence[str] | None = None, *, method: str = "tsne", colour: str = "true", stage: str | None = None,
    seed: int = 0, max_images: int = 1500, legend: bool = True, ax: Axes | None = None,
) -> Axes:  # fmt: skip
    """Draw predicted attributes and the attributes of the classes in two dimensions.

    Images are small markers, and the attributes of a class (its prototype) are a large marker of the same colour and
    shape with a black edge. The marker of an image that was given to a wrong class is hollow.

    Parameters
    ----------
    Z_hat : (L, q) or folder of a run
        Predicted attributes. Rows are brought to unit length, unless q = 2: two columns are drawn as they are. Of a
        run with ``save_predictions=true``, everything else is read as well.
    Z : (M, q)
        Attributes of the classes.
    y : (L,) int, optional
        True classes 0..M-1, and -1 where unknown.
    predicted : (L,) int, optional
        Predicted classes.
    names : M names of the classes, optional
    method : {"tsne", "pca"}
        t-SNE keeps neighbours together, and its distances mean nothing further; PCA is linear.
    colour : {"true", "predicted"}
        The class that gives an image its colour.
    stage : str, optional
        The stage of inference of a run; the last one with attributes unless given.
    seed : int
        Of t-SNE, and of the choice of images.
    max_images : int
        Of more images a random part is drawn.
    legend : bool
        Whether to explain colours and markers under the axes.

    Raises
    ------
    UserError
        If shapes do not fit, labels are absent, or the run has no predicted attributes.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> Z, y = np.eye(3), np.repeat([0, 1, 2], 20)
    >>> ax = embedding(Z[y] + rng.normal(scale=0.2, size=(60, 3)), Z, y, y, ["cat", "dog", "fox"], method="pca")
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['cat', 'dog', 'fox', 'attributes of a class']
    """
    if isinstance(Z_hat, str | Path):
        points = points_of(Z_hat)
        stage = stage or last_stage(points, "Z_hat")
        if f"{stage}/Z_hat" not in points:
            raise UserError(
                f"{Z_hat} has no predicted attributes of a stage {stage}; leave stage out for the last one."
            )
        Z_hat, Z, y = points[f"{stage}/Z_hat"], points["Z_unseen"], points["y"]
        predicted, names = points[f"{stage}/scores"].argmax(axis=1), [str(c) for c in points["classes"]]
    if Z is None or Z_hat.ndim != 2 or Z_hat.shape[1:] != np.asarray(Z).shape[1:]:
        raise UserError(
            f"Z_hat has shape {Z_hat.shape}, Z has {None if Z is None else Z.shape}; both need rows of q attributes."
        )
    if colour not in ("true", "predicted"):
        raise UserError(f"colour={colour!r} is not known; choose true or predicted.")
    shown = predicted if colour == "predicted" or y is None else y
    if shown is None or any(labels is not None and len(labels) != len(Z_hat) for labels in (y, predicted)):
        raise UserError(f"{len(Z_hat)} images need as many labels in y or predicted.")
    M = len(Z)
    names = [f"class {m}" for m in range(M)] if names is None else [str(name) for name in names]
    keep = np.sort(np.random.default_rng(seed).permutation(len(Z_hat))[:max_images])
    both = np.vstack([Z, Z_hat[keep]])
    at = both if both.shape[1] == 2 else plane(unit_rows(both), method, seed)
    shown = np.asarray(shown)[keep]
    wrong = np.zeros(len(keep), bool)
    if y is not None and predicted is not None:
        wrong = (np.asarray(y)[keep] >= 0) & (np.asarray(y)[keep] != np.asarray(predicted)[keep])
    _draw(ax := axes(ax, height=3.0), at[:M], at[M:], shown, wrong, names, legend=legend)
    return ax


def _draw(
    ax: Axes, prototypes: Array, images: Array, labels: Array, wrong: Array, names: Sequence[str], *, legend: bool
) -> None:
    from matplotlib.patheffects import withStroke

    def put(points: Array, **look: Any) -> None:
        ax.scatter(points[:, 0], points[:, 1], **look)

    halo = [withStroke(linewidth=1.8, foreground="white")]
    put(images[labels < 0], s=9, color="0.75", marker=".", linewidths=0)
    for m, (name, point) in enumerate(zip(names, prototypes)):
        colour, marker = (look := style(m))["color"], look["marker"]
        put(images[(labels == m) & ~wrong], s=10, alpha=0.75, linewidths=0, **look)
        put(images[(labels == m) & wrong], s=9, facecolors="none", edgecolors=colour, marker=marker, linewidths=0.7)
        # The white ring keeps a prototype apart from a cloud of its own colour.
        put(point[None], s=105, color="white", marker=marker, zorder=3, linewidths=2.6)
        put(point[None], s=60, zorder=3.1, edgecolors="black", linewidths=1.1, **look)
        if len(names) > _IN_LEGEND:
            ax.annotate(name, point, xytext=(4, 4), textcoords="offset points", fontsize=SMALL - 1, zorder=4,
                        path_effects=halo)  # fmt: skip
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(True)
    ax.spines[:].set_color("0.7")
    if legend:
        legend_under(ax, handles_of(names, wrong=bool(wrong.any()), unknown=bool((labels < 0).any())))


def handles_of(names: Sequence[str], *, wrong: bool, unknown: bool) -> list[Line2D]:
    """What a legend explains; of many classes the names stand beside the prototypes instead."""
    from matplotlib.lines import Line2D

    classes = range(len(names)) if len(names) <= _IN_LEGEND else ()
    out = [Line2D([], [], linestyle="", markersize=4.5, label=names[m], **style(m)) for m in classes]
    out.append(Line2D([], [], linestyle="", marker="o", markersize=7, markerfacecolor="0.85", markeredgecolor="black",
                      label="attributes of a class"))  # fmt: skip
    if wrong:
        out.append(
            Line2D([], [], linestyle="", marker="o", color="0.3", fillstyle="none", markersize=4, label="wrong class")
        )
    if unknown:
        out.append(Line2D([], [], linestyle="", marker=".", color="0.75", label="class unknown"))
    return out


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
