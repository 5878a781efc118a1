"""The images that a run is most certain of, class by class."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from zsl.errors import UserError
from zsl.report.figures.style import SMALL, TEXT
from zsl.runs.files import CONFIG, PREDICTIONS
from zsl.text import from_cell

if TYPE_CHECKING:
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
    from PIL import Image

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
            with Image.open(root / file) as image:
                shown = image.convert("RGB")
                shown.thumbnail((_SIDE, _SIDE))
            ax.imshow(shown)
            if true and true != name:
                ax.set_title(f"is {true}", fontsize=SMALL, color="#D55E00")
        axes[0].set_title(name, fontsize=TEXT, loc="left", fontweight="bold")
    return figure


def _root(folder: Path, file: str, images: str | Path | None) -> Path:
    """The folder that the names of images start from."""
    places = [Path(images)] if images is not None else _places(folder)
    found = next((place for place in places if (place / file).is_file()), None)
    if found is None:
        where = " or ".join(map(str, places)) or "any known place"
        raise UserError(f"the image {file} is not in {where}; give the folder that names of images start from.")
    return found


def _places(folder: Path) -> list[Path]:
    import yaml

    try:
        dataset = yaml.safe_load((folder / CONFIG).read_text(encoding="utf-8"))["dataset"]
        features = Path(dataset.get("root") or ".") / Path(dataset["features"]).expanduser()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError):
        return []
    return [features.with_suffix(""), features.parent]
