"""The images that a run is most certain of, class by class."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from zsl.errors import UserError
from zsl.extract.pixels import open_image
from zsl.report.figures.style import COLOURS, SMALL, TEXT
from zsl.runs.files import CONFIG, PREDICTIONS
from zsl.text import from_cell

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Pixels of the longer side of an image as it is drawn.
_SIDE = 160


def most_certain(
    folder: str | Path, images: str | Path | None = None, *, per_class: int = 6, classes: int = 8
) -> Figure:
    """The test images with the largest margin, a row for each class that they are put in.

    Parameters
    ----------
    folder : str or Path
        The folder of a run, whose ``predictions.csv`` names files.
    images : str or Path, optional
        The folder that the names of files start from. Default: what lies beside the feature file of
        ``dataset=tabular`` under its name (``photos/`` beside ``photos.npz``), or the folder of the feature file.
    per_class : int
        The number of images in a row.
    classes : int
        The number of rows; the classes with the most images come first.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    UserError
        If the run names no files, or the images are not found.

    Examples
    --------
    >>> most_certain("nothing here")
    Traceback (most recent call last):
    zsl.errors.UserError: nothing here holds no predictions.csv; name the folder of a complete run.
    """
    from matplotlib.figure import Figure

    path = Path(folder) / PREDICTIONS
    if not path.is_file():
        raise UserError(f"{folder} holds no {PREDICTIONS}; name the folder of a complete run.")
    table = pd.read_csv(path, dtype=str, keep_default_na=False).map(from_cell)
    if "file" not in table or "margin" not in table:
        raise UserError(f"{path} names no files of images with a margin; run again on features that have file names.")
    root = _root(Path(folder), table["file"].iloc[0], images)
    table["margin"] = table["margin"].astype(float)
    rows = list(table["predicted"].value_counts().index[:classes])
    figure = Figure(figsize=(1.1 * per_class, 1.25 * len(rows)), layout="constrained")
    grid = figure.subplots(len(rows), per_class, squeeze=False)
    for name, axes in zip(rows, grid):
        best = table[table["predicted"] == name].nlargest(per_class, "margin")
        for ax in axes:
            ax.set_axis_off()
        for ax, file, true in zip(axes, best["file"], best["true"]):
            _show(ax, root / file)
            if true and true != name:
                ax.set_title(f"is {true}", fontsize=SMALL, color="#D55E00")
        axes[0].set_title(name, fontsize=TEXT, loc="left", fontweight="bold")
    return figure


def contact_sheet(rows: Sequence[tuple[str, Sequence[tuple[str, Path]]]], per_row: int = 8) -> Figure:
    """Rows of images, each with a title above it and the last part of each image's name below it.

    Parameters
    ----------
    rows : sequence of (title, [(name, file), ...])
        The first image of a row has a frame.
    per_row : int
        The number of images in a row.

    Returns
    -------
    matplotlib.figure.Figure
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.15 * per_row, 1.7 * len(rows)), layout="constrained")
    parts = figure.subfigures(len(rows), 1, squeeze=False, hspace=0.08)
    for part, (title, images) in zip(np.ravel(parts), rows):
        part.suptitle(title, x=0.01, ha="left", fontsize=TEXT + 1, fontweight="bold")
        axes = part.subplots(1, per_row, squeeze=False)[0]
        for i, (ax, (name, file)) in enumerate(zip(axes, images)):
            _show(ax, file)
            ax.set(xticks=[], yticks=[])
            ax.spines[:].set(visible=i == 0, linewidth=2.5, color=COLOURS[1])
            name = name.rpartition("/")[2]
            # Of a long name the end fits below a small image, which tells files of one kind apart.
            ax.set_xlabel(name if len(name) <= 18 else "…" + name[-17:], fontsize=SMALL - 1)
        for ax in axes[len(images) :]:
            ax.set_axis_off()
    return figure


def _show(ax: Axes, file: Path) -> None:
    """Draw an image as networks see it; the place of an image that cannot be read says so."""
    try:
        image = open_image(file)
        image.thumbnail((_SIDE, _SIDE))
    except Exception:  # Pillow raises all kinds; a figure without one image is better than none
        ax.text(0.5, 0.5, "cannot be read", ha="center", va="center", fontsize=SMALL, transform=ax.transAxes)
    else:
        ax.imshow(image, interpolation="bicubic")  # squares would hide what a small image shows


def _root(folder: Path, file: str, images: str | Path | None) -> Path:
    """The folder that the names of images start from."""
    known = [Path(images)] if images is not None else places(folder)
    found = next((place for place in known if (place / file).is_file()), None)
    if found is None:
        where = " or ".join(map(str, known)) or "any known place"
        raise UserError(f"the image {file} is not in {where}; give the folder that names of images start from.")
    return found


def places(folder: Path) -> list[Path]:
    """Folders in which the image files of a run may be, by its configuration."""
    import yaml

    try:
        dataset = yaml.safe_load((folder / CONFIG).read_text(encoding="utf-8"))["dataset"]
        if "features_dir" in dataset:  # zsl data build cifar_awa writes both
            return [Path(dataset["features_dir"]).expanduser() / "images"]
        features = Path(dataset.get("root") or ".") / Path(dataset["features"]).expanduser()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError):
        return []
    return [features.with_suffix(""), features.parent]
