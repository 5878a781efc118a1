"""The figures of a run as files of its folder."""

from __future__ import annotations

import logging
from pathlib import Path

from zsl.errors import atomic, reason
from zsl.runs.files import FIGURES

log = logging.getLogger(__name__)

# Wide enough for a screen, at the size of a column of a paper.
_DPI = 200


def draw(folder: Path) -> None:
    """Write the figures of a complete run into ``figures/`` as PNG; failing costs a warning, not the run."""
    try:
        from zsl.report.figures import of_run

        for name, figure in of_run(folder).items():
            with atomic(folder / FIGURES / f"{name}.png") as part:
                figure.savefig(part, dpi=_DPI)
                _reduce(part)
    except Exception as error:
        # Whatever Matplotlib, its fonts or the disk raise: the result itself is written already.
        log.warning("the figures of the run are not drawn (%s); figures=false leaves them out.", reason(error))


def _reduce(image: Path) -> None:
    """Keep 256 colours, which takes a third of the space; hardly a pixel changes, and by too little to be seen."""
    from PIL import Image

    with Image.open(image) as full:
        reduced = full.convert("RGB").quantize(method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    reduced.save(image, optimize=True)
