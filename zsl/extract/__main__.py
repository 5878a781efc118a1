"""Images to features: ``python -m zsl.extract IMAGES --to FILE.npz feature=lite0``.

The file holds ``features`` (n, d) float32, ``labels`` counted from 1, ``class_names``, ``files``, ``skipped`` (images
that could not be read) and ``network`` (what made them, as JSON); every reader of this package takes it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from zsl.checks import Array
from zsl.errors import UserError, reason, unforeseen, writing
from zsl.extract.networks import NETWORKS, Network, load_network, prepare

log = logging.getLogger(__name__)

_SUFFIXES = {".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm"}
# Folders of images without a class: they are only ever predicted. See zsl.data.readers.tabular.
_UNKNOWN = {"unlabelled", "unlabeled", "unknown"}
_TODO, _DONE, _DAMAGED = 0, 1, 2
# Sides of the square that --size may set: networks of this kind shrink it 32-fold, and a batch must fit into memory.
_SIZES = (32, 2048)


class Images(NamedTuple):
    """What is to be extracted, in order."""

    root: Path
    files: tuple[str, ...]
    """Paths below ``root``, with ``/``"""
    classes: tuple[str, ...]
    """The class of each; empty if unknown"""


def find_images(root: Path, listed: Path | None = None) -> Images:
    """The images of a folder, class per sub-folder, ascending by name; or those of a list, in its order.

    Parameters
    ----------
    listed : Path, optional
        Lines ``PATH`` or ``PATH<TAB>CLASS``, paths relative to ``root``; the class of a bare path is its folder.

    Raises
    ------
    UserError
        If a folder or file is missing, an image stands outside a class folder, or there is none at all.
    """
    if not root.is_dir():
        raise UserError(f"{root} is not a folder; give the folder that holds one folder of images per class.")
    if listed is not None:
        files, classes = _listed(root, listed)
    else:
        files = list(image_files(root))
        classes = [_class_of(f, root) for f in files]
    if not files:
        raise UserError(f"{listed} lists no images.")
    if len(set(files)) < len(files):
        twice = next(f for f in files if files.count(f) > 1)
        raise UserError(f"{listed}: the image {twice} is listed more than once.")
    return Images(root, tuple(files), tuple("" if c.lower() in _UNKNOWN else c for c in classes))


def image_files(root: Path) -> tuple[str, ...]:
    """Paths below ``root``, ascending, of all images in it, whatever folder they are in. UserError without any."""
    if not root.is_dir():
        raise UserError(f"{root} is not a folder.")
    files = _walk(root)
    if not files:
        raise UserError(f"{root} holds no images ({', '.join(sorted(_SUFFIXES))}).")
    return tuple(files)


def _walk(root: Path) -> list[str]:
    """Images anywhere below ``root``; what else lies there is counted aloud, and a folder that cannot be read named."""

    def refuse(error: OSError) -> None:
        raise UserError(f"{error.filename} cannot be read ({reason(error)}); give access to it, or move it elsewhere.")

    files, others = [], Counter[str]()
    for folder, below, names in os.walk(root, onerror=refuse):
        # Unfinished features (NAME.npz.part) may lie among the images.
        below[:] = [d for d in below if not d.startswith(".") and not d.endswith(".npz.part")]
        for d in below:
            if os.path.islink(os.path.join(folder, d)):
                log.warning("%s is a link to a folder and is not followed.", os.path.join(folder, d))
        for name in names:
            path = Path(folder, name)
            if name.startswith("."):
                continue
            if path.suffix.lower() in _SUFFIXES and path.is_file():
                files.append(path.relative_to(root).as_posix())
            elif path.suffix != ".npz":
                others[path.suffix.lower() or "no suffix"] += 1
    if others:
        log.warning(
            "%d files are not read, since their suffix is that of no image known here: %s", others.total(),
            ", ".join(f"{n} {suffix}" for suffix, n in others.most_common()),
        )  # fmt: skip
    return sorted(files)


def _listed(root: Path, listed: Path) -> tuple[list[str], list[str]]:
    """Files and classes of a list of images."""
    from zsl.data.readers.files import text_lines

    files, classes = [], []
    for i, line in enumerate(text_lines(listed), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        file, *more = (field.strip() for field in line.split("\t"))
        if len(more) > 1:
            raise UserError(f"{listed}: line {i} has {len(more) + 1} fields; lines are PATH or PATH<TAB>CLASS.")
        if not (root / file).is_file():
            raise UserError(f"{listed}: line {i}: there is no image {root / file}; paths start from {root}.")
        if more == [""]:
            raise UserError(
                f"{listed}: line {i} has no class after its TAB; write one, or 'unlabelled' where it is unknown."
            )
        files.append(file)
        classes.append(more[0] if more else _class_of(file, root))
    if not files:
        raise UserError(f"{listed} names no image; lines are PATH or PATH<TAB>CLASS.")
    return files, classes


def _class_of(file: str, root: Path) -> str:
    folder = file.rpartition("/")[0]
    if not folder:
        raise UserError(f"{root / file} is in no class folder; put images of unknown class into a folder 'unlabelled'.")
    return folder.replace("/", "_")


def extract(
    images: Images,
    network: str,
    target: Path,
    *,
    weights: Path | None = None,
    batch_size: int = 32,
    device: str = "cpu",
    size: int | None = None,
    progress: bool = False,
) -> list[str]:
    """Features of every readable image, in order, to ``target`` (``.npz``).

    What is done is kept beside it (``NAME.part``) batch by batch: after a kill the same call goes on, and ends in the
    same numbers, since batches are cut at the same places.

    Returns
    -------
    list of str
        The images that could not be read; they are left out, and named in the file.

    Raises
    ------
    UserError
        If the target exists, unfinished work of other settings lies beside it, torch or the weights are missing or do
        not fit, or no image can be read.
    """
    if target.suffix != ".npz":
        raise UserError(f"--to {target}: the name must end in .npz.")
    if target.exists():
        raise UserError(f"{target} exists already and is not overwritten; remove it or choose another name.")
    if network not in NETWORKS:
        raise UserError(f"feature={network} cannot be extracted; there are: {', '.join(NETWORKS)}.")
    settings = NETWORKS[network]
    if size is not None:
        # The same margin around the centre as at the network's own size.
        settings = Network(
            **{**asdict(settings), "size": size, "resize": round(size * settings.resize / settings.size)}
        )
    run, about = load_network(settings, weights, device)
    with writing(target, "choose another place with --to"):
        return _extract(images, settings, run, about, target, batch_size, progress)


def _extract(
    images: Images,
    settings: Network,
    run: Callable[[Array], Array],
    about: dict[str, Any],
    target: Path,
    batch_size: int,
    progress: bool,
) -> list[str]:
    plan: dict[str, Any] = {
        "network": {**asdict(settings), **about},
        "batch_size": batch_size,
        "images": hashlib.sha256("\n".join(images.files).encode()).hexdigest(),
        "sizes": [(images.root / f).stat().st_size for f in images.files],
    }
    work = target.with_name(target.name + ".part")
    features, status = _open_work(work, plan, len(images.files), settings.dimensions)
    for start in _batches(status, batch_size, progress):
        rows = range(start, min(start + batch_size, len(images.files)))
        pixels = {}
        for i in rows:
            try:
                pixels[i] = prepare(images.root / images.files[i], settings)
            except Exception as error:
                # Pillow's decoders raise whatever they stumble over (SyntaxError, struct.error, DecompressionBombError,
                # MemoryError, ...), and no single image may end the work on all others.
                log.warning("%s is left out: %s", images.files[i], reason(error))
        if pixels:
            try:
                features[list(pixels)] = run(np.stack(list(pixels.values())))
            except (MemoryError, RuntimeError) as error:  # torch raises the latter when its memory is full
                raise UserError(
                    f"a batch of {len(pixels)} images of {settings.size} pixels cannot be computed "
                    f"({reason(error)[:150]}); "
                    "use a smaller --batch-size or --size."
                ) from None
            features.flush()
        # Marked after the features are on disk, so that a kill in between repeats the batch.
        status[start : rows.stop] = [_DONE if i in pixels else _DAMAGED for i in rows]
        status.flush()
    _finish(images, features, status, plan["network"], target)
    shutil.rmtree(work)
    return [f for f, s in zip(images.files, status, strict=True) if s == _DAMAGED]


def _open_work(work: Path, plan: dict[str, Any], n: int, d: int) -> tuple[Any, Any]:
    """The unfinished features and the status of each image, from an earlier call or new."""
    if (work / "plan.json").is_file():
        known = json.loads((work / "plan.json").read_text(encoding="utf-8"))
        if known != json.loads(json.dumps(plan)):
            raise UserError(
                f"{work} is unfinished work on other images or with other settings; remove it, or repeat its settings."
            )
        return np.lib.format.open_memmap(work / "features.npy", "r+"), np.lib.format.open_memmap(
            work / "status.npy", "r+"
        )
    shutil.rmtree(work, ignore_errors=True)  # killed before the plan was written: nothing was done yet
    work.mkdir(parents=True)
    features = np.lib.format.open_memmap(work / "features.npy", "w+", np.float32, (n, d))
    status = np.lib.format.open_memmap(work / "status.npy", "w+", np.uint8, (n,))
    part = work / "plan.json.new"
    part.write_text(json.dumps(plan), encoding="utf-8")
    os.replace(part, work / "plan.json")
    return features, status


def _batches(status: Array, batch_size: int, progress: bool) -> Iterator[int]:
    """Starts of the batches that are not complete."""
    starts = [s for s in range(0, len(status), batch_size) if (status[s : s + batch_size] == _TODO).any()]
    if not progress:
        yield from starts
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(starts, description="batches", console=Console(stderr=True))


def _finish(images: Images, features: Array, status: Array, network: dict[str, Any], target: Path) -> None:
    good = np.flatnonzero(status == _DONE)
    if not good.size:
        raise UserError(f"{images.root}: none of the {len(status)} images can be read; see the messages above.")
    names = sorted({images.classes[i] for i in good} - {""})
    index = {c: i + 1 for i, c in enumerate(names)}
    unknown = any(not images.classes[i] for i in good)
    # Numbers that count class_names; names where some images have no class.
    labels = (
        np.array([images.classes[i] for i in good]) if unknown else np.array([index[images.classes[i]] for i in good])
    )
    part = target.with_name(target.name + f".{os.getpid()}.new")
    with part.open("wb") as f:
        np.savez(
            f, features=features[good], labels=labels, class_names=np.array(names),
            files=np.array([images.files[i] for i in good]),
            skipped=np.array([f for f, s in zip(images.files, status, strict=True) if s == _DAMAGED], dtype="U"),
            network=np.array(json.dumps(network)),
        )  # fmt: skip
    os.replace(part, target)


# --- networks -----------------------------------------------------------------------------------------------


# --- the command --------------------------------------------------------------------------------------------


def main(argv: list[str] | None = None) -> int:
    """Run the command line; 0, or 1 after a sentence on what is wrong, or 2 for a wrong command line."""
    parser = argparse.ArgumentParser("python -m zsl.extract", description=__doc__.splitlines()[0].split(":")[0] + ".")
    parser.add_argument("images", metavar="IMAGES", type=Path, help="a folder with one folder of images per class")
    parser.add_argument("settings", metavar="KEY=VALUE", nargs="*", default=[],
                        help=f"feature={'|'.join(NETWORKS)} (default lite0), feature.weights=FILE")  # fmt: skip
    parser.add_argument("--to", metavar="FILE.npz", type=Path, help="default: FEATURE.npz in IMAGES")
    parser.add_argument("--list", metavar="FILE", type=Path, help="the images instead: lines PATH or PATH<TAB>CLASS")
    parser.add_argument("--batch-size", type=int, default=32, metavar="N")
    parser.add_argument("--size", type=int, metavar="PIXELS", help="another input size than the network's own")
    parser.add_argument("--device", default="cpu", help="cpu (default) or what torch calls an accelerator, as cuda")
    arguments, rest = parser.parse_known_args(argv)
    settings = {}
    for word in [*arguments.settings, *rest]:
        key, separator, value = word.partition("=")
        if key not in {"feature", "feature.weights"} or not separator or not value:
            parser.error(f"not understood: {word}; there are feature=NAME and feature.weights=FILE")
        settings[key] = value
    for name in ("batch_size", "size"):
        value = getattr(arguments, name)
        if value is not None and value < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1, not {value}")
    if arguments.size is not None and not _SIZES[0] <= arguments.size <= _SIZES[1]:
        parser.error(f"--size must be from {_SIZES[0]} to {_SIZES[1]}, not {arguments.size}")
    logging.basicConfig(format="%(message)s", level=logging.INFO)
    feature = settings.get("feature", "lite0")
    target = (arguments.to or arguments.images / f"{feature}.npz").expanduser()
    weights = Path(settings["feature.weights"]).expanduser() if "feature.weights" in settings else None
    try:
        images = find_images(arguments.images.expanduser(), arguments.list and arguments.list.expanduser())
        skipped = extract(
            images, feature, target, weights=weights, batch_size=arguments.batch_size, device=arguments.device,
            size=arguments.size, progress=sys.stderr.isatty(),
        )  # fmt: skip
    except UserError as error:
        print(f"zsl.extract: {error}", file=sys.stderr)
        return 1
    except (OSError, MemoryError) as error:
        print(f"zsl.extract: {unforeseen(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("zsl.extract: interrupted; the same command goes on where it stopped.", file=sys.stderr)
        return 1
    print(f"{target}: {len(images.files) - len(skipped)} images, {len(skipped)} left out")
    return 0


if __name__ == "__main__":
    sys.exit(main())
