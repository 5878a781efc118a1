"""What an image shows, upright and as 8-bit RGB: any range of pixels, transparent pixels on white."""

from __future__ import annotations

import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np

# 16 bits to 8: 65535 is 257 times 255.
_PER_LEVEL = 257
# A longer strip is cut to its middle before it is resized, since a network sees no more than a square of it.
_LONGEST = 16
# Python keeps the filters of warnings for all threads together.
_filters = threading.Lock()


def open_image(path: Path) -> Any:
    """Read an image file as every network sees it: an image of Pillow, upright, RGB, of a strip the middle.

    Raises
    ------
    Exception
        Of any kind, as Pillow does for damaged files; also for images of more pixels than Pillow holds for safe.
    """
    from PIL import Image, ImageOps

    with _filters, warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        opened = Image.open(path)
    with opened:
        image = as_rgb(ImageOps.exif_transpose(opened), opened.format)
    short = min(image.size)
    if max(image.size) > _LONGEST * short:
        left, top = (max(0, side - _LONGEST * short) // 2 for side in image.size)
        image = image.crop((left, top, image.width - left, image.height - top))
    return image


def as_rgb(image: Any, form: str | None) -> Any:
    """An image of Pillow, of a file of the format ``form``, in the mode RGB.

    Pillow's own conversion cuts pixels of more than 8 bits at 255, and shows the colours that transparency hides.

    Raises
    ------
    ValueError
        If the range of the pixels cannot be told.
    """
    from PIL import Image

    if image.mode == "F" or image.mode.startswith("I"):
        return _of_more_bits(image, form)
    palette = getattr(image, "palette", None)
    hides = "transparency" in image.info or (palette is not None and palette.mode.endswith("A"))
    if hides or image.mode in ("RGBA", "LA", "PA", "RGBa", "La"):
        # Premultiplied colours first become ordinary ones.
        image = image.convert({"RGBa": "RGBA", "La": "LA"}.get(image.mode, image.mode)).convert("RGBA")
        if image.getextrema()[3][1] == 0:
            raise ValueError("all of its pixels are transparent")
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image).convert("RGB")
    return image.convert("RGB")


def _of_more_bits(image: Any, form: str | None) -> Any:
    """Grey pixels of 16 or 32 bits, or of floating point."""
    from PIL import Image

    pixels = np.asarray(image)
    low, high = (float(pixels.min()), float(pixels.max())) if pixels.size else (0.0, 0.0)
    if image.mode == "F":
        if not 0 <= low <= high <= 1:  # also where a pixel is NaN
            raise ValueError(f"its pixels go from {low:g} to {high:g}, and those of floating point go from 0 to 1")
        levels = np.rint(pixels * 255)
    else:
        # Pillow reads PNG and PGM of 16 bits as 32 bits in some versions.
        sixteen = image.mode != "I" or form in ("PNG", "PPM")
        if low < 0 or high > 65535 or not (sixteen or high > 255 or high == 0):
            raise ValueError(f"its pixels go from {low:g} to {high:g}, so their range is unknown; save it with 8 bits")
        levels = pixels // _PER_LEVEL
    hidden = image.info.get("transparency")
    if isinstance(hidden, int):
        levels = np.where(pixels == hidden, 255, levels)
    return Image.fromarray(levels.astype(np.uint8)).convert("RGB")
