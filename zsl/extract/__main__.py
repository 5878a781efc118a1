"""Images to features: ``zsl extract IMAGES --to FILE.npz --network lite0``.

The file holds ``features`` (n, d) float32, ``labels`` counted from 1, ``class_names``, ``files``, ``skipped`` (images
that could not be read) and ``network`` (what made the features, as JSON); ``dataset=tabular`` reads it. A folder
``NAME.zarr`` has the same arrays, and is written and read a chunk of rows at a time.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from zsl.checks import Array
from zsl.data.readers.files import need, read_npz
from zsl.errors import Parser, UserError, atomic, exit_status, reason, writing
from zsl.extract.choice import add_flags, network_of, parse
from zsl.extract.images import Images, find_images
from zsl.extract.networks import POOLS, Network

log = logging.getLogger(__name__)

# Sides of the square that --size may set: networks shrink it up to 32-fold, and a batch must fit into memory.
_SIZES = (32, 2048)
# Rows of a chunk in a .zarr folder.
_CHUNK_ROWS = 8192


def extract(
    images: Images,
    network: Network,
    target: Path,
    *,
    batch_size: int = 32,
    workers: int = 1,
    progress: bool = False,
) -> list[str]:
    """Write the features of every readable image, in order, to ``target`` (``.npz`` or ``.zarr``).

    Finished batches are kept beside the target (``NAME.part``). After a kill the same call goes on from there, and ends
    in the same numbers.

    Parameters
    ----------
    images : Images
        From :func:`zsl.extract.images.find_images`.
    network : Network
        From :func:`zsl.extract.networks.load_network`.
    target : Path
        The file to write; it must not exist.
    batch_size : int
        The number of images that go through the network at once.
    workers : int
        Threads that prepare the images of a batch while the one before is computed. At most two batches of images are
        in memory, and the numbers do not depend on it.
    progress : bool
        Show progress in the terminal.

    Returns
    -------
    list of str
        The images that could not be read. They are left out, and named in the file.

    Raises
    ------
    UserError
        If the target exists, unfinished work of other settings lies beside it, a batch does not fit into memory, or no
        image can be read.
    """
    check_target(target)
    with writing(target, "choose another place with --to"):
        return _extract(images, network, target, batch_size, workers, progress)


def check_target(target: Path) -> None:
    """Raise a UserError if features cannot be written to ``target``."""
    if target.suffix not in (".npz", ".zarr"):
        raise UserError(f"--to {target}: the name must end in .npz, or in .zarr for a folder that is read in chunks.")
    if target.suffix == ".zarr" and find_spec("zarr") is None:
        raise UserError(f"--to {target} needs the package zarr; pip install -e '.[dask]', or write to an .npz.")
    if target.exists():
        raise UserError(f"{target} exists already and is not overwritten; remove it or choose another name.")


def _extract(
    images: Images, network: Network, target: Path, batch_size: int, workers: int, progress: bool
) -> list[str]:
    n, work = len(images.files), target.with_name(target.name + ".part")
    plan = {
        "network": network.record,
        "batch_size": batch_size,
        "images": hashlib.sha256("\n".join(images.files).encode()).hexdigest(),
        "written": stamps(images.root / f for f in images.files),
    }
    known = work / "plan.json"
    if known.is_file() and _stored(known) != json.loads(json.dumps(plan)):
        raise UserError(
            f"{work} is unfinished work on other images or with other settings; remove it, or repeat its settings."
        )
    with atomic(known) as part:
        part.write_text(json.dumps(plan), encoding="utf-8")
    batches = {work / f"{start}.npz": range(start, min(start + batch_size, n)) for start in range(0, n, batch_size)}
    left = [file for file in batches if not file.is_file()]
    prepared = _prepared(images, [batches[file] for file in left], network, workers)
    for file, (found, pixels) in zip(_shown(left, len(batches), progress), prepared):
        features = _features(network, pixels)
        with atomic(file) as part:
            np.savez(part, rows=np.array(found, dtype=np.int64), features=features)
    rows = np.concatenate([need(read_npz(file, ["rows"]), "rows", file) for file in batches])
    parts = (need(read_npz(file, ["features"]), "features", file) for file in batches)
    if not len(rows):
        raise UserError(f"{images.root}: none of the {n} images can be read; see the messages above.")
    classes = [images.classes[i] for i in rows]
    names = sorted(set(classes) - {""})
    # Labels are numbers, which count class_names, or names where some images have no class.
    labels = classes if "" in classes else [names.index(c) + 1 for c in classes]
    there = set(rows.tolist())
    skipped = [*(f for i, f in enumerate(images.files) if i not in there), *images.nameless]
    arrays = {
        "labels": np.array(labels), "class_names": np.array(names, dtype=str),
        "files": np.array([images.files[i] for i in rows]), "skipped": np.array(skipped, dtype=str),
        "network": np.array(json.dumps(network.record)),
    }  # fmt: skip
    if target.suffix == ".zarr":
        write_zarr(work / target.name, (len(rows), network.dimensions), parts, arrays)
        os.replace(work / target.name, target)
    else:
        with atomic(target) as part:
            np.savez(part, features=np.concatenate(list(parts)), **arrays)  # type: ignore[arg-type]
    shutil.rmtree(work)
    return skipped


def write_zarr(place: Path, shape: tuple[int, int], features: Iterable[Array], arrays: dict[str, Array]) -> None:
    """Write a Zarr group (format 2): ``features`` of this shape from its batches, chunk by chunk, and other arrays.

    No more than a chunk and a batch of features is in memory.
    """
    import zarr

    shutil.rmtree(place, ignore_errors=True)
    group = zarr.open_group(place, mode="w", zarr_format=2)
    for name, array in arrays.items():
        if array.size:
            group.create_array(name, data=np.atleast_1d(array))
    rows = min(_CHUNK_ROWS, shape[0])
    out = group.create_array("features", shape=shape, chunks=(rows, shape[1]), dtype=np.float32)
    held, start = np.empty((0, shape[1]), np.float32), 0
    for batch in features:
        held = np.concatenate([held, batch])
        while len(held) >= rows or (len(held) and start + len(held) == shape[0]):
            part, held = held[:rows], held[rows:]
            out[start : start + len(part)] = part
            start += len(part)


def stamps(files: Iterable[Path]) -> list[tuple[str, int, int]]:
    """What changes when a file is written again: of each file its name, size and time."""
    found = ((file, file.stat()) for file in files)
    return [(file.name, about.st_size, about.st_mtime_ns) for file, about in found]


def _stored(plan: Path) -> Any:
    try:
        return json.loads(plan.read_text(encoding="utf-8"))
    except ValueError:  # damaged, so that it is no plan of this work
        return None


def _prepared(
    images: Images, batches: Sequence[range], network: Network, workers: int
) -> Iterator[tuple[list[int], Array]]:
    """The rows and pixels of each batch's readable images; while one is used, threads prepare the next."""

    def read(row: int, place: Array) -> bool:
        try:
            place[:] = network.read(images.root / images.files[row])
        except Exception as error:
            # Pillow raises all kinds of exceptions (SyntaxError, struct.error, MemoryError, ...), and no single image
            # may end the work on all others.
            log.warning("%s is left out: %s", images.files[row], reason(error))
            return False
        return True

    with ThreadPoolExecutor(workers) as pool:

        def start(batch: range) -> tuple[range, Array, list[Future[bool]]]:
            pixels = np.empty((len(batch), *network.shape), np.float32)
            return batch, pixels, [pool.submit(read, row, place) for row, place in zip(batch, pixels)]

        try:
            ahead = start(batches[0]) if batches else None
            for after in range(1, len(batches) + 1):
                assert ahead is not None
                batch, pixels, jobs = ahead
                good = [job.result() for job in jobs]
                pixels = pixels if all(good) else pixels[good]
                ahead = start(batches[after]) if after < len(batches) else None
                yield [row for row, fine in zip(batch, good) if fine], pixels
        finally:
            pool.shutdown(cancel_futures=True)


def _features(network: Network, pixels: Array) -> Array:
    if not len(pixels):
        return np.empty((0, network.dimensions), dtype=np.float32)
    try:
        return network.run(pixels)
    except (MemoryError, RuntimeError) as error:  # torch raises RuntimeError when its memory is full
        raise UserError(
            f"a batch of {len(pixels)} images of {network.shape[-1]} pixels cannot be computed "
            f"({reason(error)[:150]}); use a smaller --batch-size or --size."
        ) from None


def _shown(batches: Sequence[Path], total: int, progress: bool) -> Iterable[Path]:
    if not progress:
        return batches
    from rich.console import Console
    from rich.progress import track

    return track(batches, description="batches", total=total, console=Console(stderr=True))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status: 0, 1 after a sentence on what is wrong, or 130 after Ctrl-C."""
    parser = Parser("zsl extract", description="Images to features.")
    parser.add_argument("images", metavar="IMAGES", type=Path, help="a folder with one folder of images per class")
    parser.add_argument("--to", metavar="FILE.npz", type=Path,
                        help="or NAME.zarr, for reading in chunks; default: the network's name in IMAGES")  # fmt: skip
    parser.add_argument("--list", metavar="FILE", type=Path, help="the images instead: lines PATH or PATH<TAB>CLASS")
    parser.add_argument("--batch-size", type=int, default=32, metavar="N")
    add_flags(parser, "lite0")
    parser.add_argument("--pool", choices=POOLS, default="own",
                        help="the network's own output (default), the mean of its patches, or both")  # fmt: skip
    parser.add_argument("--size", type=int, metavar="PIXELS", help="another input size than the network's own")
    logging.basicConfig(format="%(message)s", level=logging.INFO)
    interrupted = "interrupted; the same command goes on where it stopped."
    return exit_status("zsl extract", lambda: _work(parse(parser, argv)), interrupted=interrupted)


def _work(arguments: argparse.Namespace) -> None:
    if arguments.batch_size < 1:
        raise UserError(f"--batch-size must be at least 1, not {arguments.batch_size}.")
    if arguments.size is not None and not _SIZES[0] <= arguments.size <= _SIZES[1]:
        raise UserError(f"--size must be from {_SIZES[0]} to {_SIZES[1]}, not {arguments.size}.")
    name = re.sub(r"\W+", "_", arguments.network or "lite0")
    target = (arguments.to or arguments.images / f"{name}.npz").expanduser()
    check_target(target)
    images = find_images(arguments.images.expanduser(), arguments.list and arguments.list.expanduser())
    network = network_of(arguments, "lite0", pool=arguments.pool, size=arguments.size)
    skipped = extract(
        images, network, target, batch_size=arguments.batch_size, workers=arguments.workers,
        progress=sys.stderr.isatty(),
    )  # fmt: skip
    n_images = len(images.files) + len(images.nameless)
    print(f"{target}: {n_images - len(skipped)} images, {len(skipped)} left out")


if __name__ == "__main__":
    sys.exit(main())
