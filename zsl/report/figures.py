"""Figures. ``matplotlib.figure.Figure`` only: pyplot would start a window system."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from zsl.checks import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe & Ito's colours, told apart by people with any kind of colour vision; markers help in print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#000000")
MARKERS = "os^Dv<>P"


def embedding(
    Z_hat: Array, Z_unseen: Array, panels: Mapping[str, Array], names: Sequence[str], *, seed: int = 0
) -> Figure:
    """Predicted attributes in two dimensions (t-SNE), once per labelling; classes as large, black-edged markers.

    Parameters
    ----------
    Z_hat : (L, q)
        Predicted attributes. Scaled to unit length, as spreading sees them.
    Z_unseen : (M, q)
        Attributes of the classes.
    panels : mapping
        Title -> labels (L,) 0..M-1 by which the images are coloured.
    names : M class names.
    """
    from matplotlib.figure import Figure
    from sklearn.manifold import TSNE

    from zsl.inference.labels import unit_rows

    V = np.vstack([unit_rows(Z_unseen), unit_rows(Z_hat)])
    # Perplexity must stay below the number of points; 30 is the usual choice.
    points = TSNE(perplexity=min(30, (len(V) - 1) / 3), init="pca", random_state=seed).fit_transform(V)
    M = len(Z_unseen)
    figure = Figure(figsize=(4 * len(panels), 4.2), layout="constrained")
    for axes, (title, labels) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items()):
        for m, name in enumerate(names):
            style = {"color": COLOURS[m % len(COLOURS)], "marker": MARKERS[m % len(MARKERS)]}
            own = points[M:][labels == m]
            axes.scatter(*own.T, s=9, alpha=0.7, linewidths=0, **style)
            axes.scatter(*points[m], s=170, edgecolors="black", linewidths=1.6, label=name, zorder=3, **style)
        axes.set(title=title, xticks=[], yticks=[])
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=min(M, 8), frameon=False)
    return figure
