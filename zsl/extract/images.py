"""Finding the images of a folder and their classes."""

from __future__ import annotations

import logging
import os
import unicodedata
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from zsl.errors import UserError, reason
from zsl.text import not_text

log = logging.getLogger(__name__)

_SUFFIXES = {".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm"}
# Folders that hold features and no images, and those of an extraction that is not complete.
_FEATURES = (".zarr", ".zarr.part", ".npz.part")
# Folders of images whose class is unknown, see zsl.data.readers.tabular. They are test images.
_UNKNOWN = {"unlabelled", "unlabeled", "unknown"}


class Images(NamedTuple):
    """Images of a folder, in order."""

    root: Path
    files: tuple[str, ...]
    """Paths below ``root``, with ``/``"""
    classes: tuple[str, ...]
    """The class of each image; empty if unknown"""
    nameless: tuple[str, ...] = ()
    """Files and folders that are left out because their names are no text, with escapes for what is not UTF-8"""


def find_images(root: Path, listed: Path | None = None) -> Images:
    """Find the images of a folder, ascending by path, or those of a list, in its order.

    Parameters
    ----------
    root : Path
        A folder with one folder of images for each class.
    listed : Path, optional
        Lines ``PATH`` or ``PATH<TAB>CLASS`` with paths relative to ``root``; the class of a bare path is its folder.

    Raises
    ------
    UserError
        If a folder or file is missing, an image stands outside a class folder, or there is no image at all.
    """
    nameless: list[str] = []
    if listed is None:
        files = list(image_files(root, nameless))
        classes = _classes_of(files, root)
    else:
        files, classes = _read_list(root, listed)
    classes = ["" if c.lower() in _UNKNOWN else c for c in classes]
    return Images(root, tuple(files), tuple(classes), tuple(nameless))


def image_files(root: Path, nameless: list[str] | None = None) -> tuple[str, ...]:
    """The paths below ``root`` of all images in it, ascending; raises UserError if there is none.

    Files and folders whose names are no text are left out; ``nameless`` takes their names.
    """
    nameless = [] if nameless is None else nameless

    def refuse(error: OSError) -> None:
        raise UserError(f"{error.filename} cannot be read ({reason(error)}); give access to it, or move it elsewhere.")

    if not root.is_dir():
        raise UserError(f"{root} is not a folder; give the folder that holds one folder of images per class.")
    files, others = [], Counter[str]()
    for folder, below, names in os.walk(root, onerror=refuse):
        for link in (os.path.join(folder, d) for d in below if os.path.islink(os.path.join(folder, d))):
            log.warning("%s is a link to a folder and is not followed.", link)
        for name in [name for name in [*below, *names] if not_text([name])]:
            nameless.append(not_text([os.path.relpath(os.path.join(folder, name), root)]) or name)
            log.warning("%s is left out: its name is not text in UTF-8; rename it.", nameless[-1])
        below[:], names[:] = ([name for name in some if not not_text([name])] for some in (below, names))
        # Features, or the work of an extraction that was stopped, may lie among the images.
        below[:] = [d for d in below if not d.startswith(".") and not d.endswith(_FEATURES)]
        for path in (Path(folder, name) for name in names if not name.startswith(".")):
            if path.suffix.lower() in _SUFFIXES and path.is_file():
                files.append(path.relative_to(root).as_posix())
            elif path.suffix != ".npz":
                others[path.suffix.lower() or "no suffix"] += 1
    if others:
        counts = ", ".join(f"{n} {suffix}" for suffix, n in others.most_common())
        log.warning("%d files are no images by their suffix and are not read: %s", others.total(), counts)
    if not files:
        raise UserError(f"{root} holds no images; give a folder with some ({', '.join(sorted(_SUFFIXES))}).")
    return tuple(sorted(files))


def _read_list(root: Path, listed: Path) -> tuple[list[str], list[str]]:
    from zsl.data.readers.files import is_comment, read_text

    found: dict[str, str] = {}
    bare_paths: list[str] = []
    for i, line in enumerate(read_text(listed).split("\n"), start=1):
        bare = line.strip()
        if not bare or (is_comment(bare) and not (root / bare.partition("\t")[0].strip()).is_file()):
            continue
        file, *more = (field.strip() for field in line.split("\t"))
        if len(more) > 1 or more == [""]:
            raise UserError(f"{listed}: line {i} must be PATH or PATH<TAB>CLASS ('unlabelled' for an unknown class).")
        # Lists are read in composed characters, and some systems store names in decomposed ones.
        file = next((f for f in (file, unicodedata.normalize("NFD", file)) if (root / f).is_file()), file)
        if not (root / file).is_file():
            raise UserError(f"{listed}: line {i}: there is no image {root / file}; paths start from {root}.")
        if file in found:
            raise UserError(f"{listed}: line {i}: the image {file} is listed more than once; leave one line.")
        found[file] = more[0] if more else ""
        if not more:
            bare_paths.append(file)
    if not found:
        raise UserError(f"{listed} names no image; lines are PATH or PATH<TAB>CLASS.")
    found |= zip(bare_paths, _classes_of(bare_paths, root))
    return list(found), list(found.values())


def _classes_of(files: list[str], root: Path) -> list[str]:
    """The classes that the folders of images stand for; different folders stand for different classes."""
    from zsl.data.table import check_folders

    for file in files:
        if "/" not in file:
            raise UserError(
                f"{root / file} is in no class folder; put images of unknown class into a folder 'unlabelled'."
            )
    classes = [file.rpartition("/")[0].replace("/", "_") for file in files]
    check_folders(files, classes, root)
    return classes
