"""Images to features: ``zsl extract IMAGES --to FILE.npz feature=lite0``.

The file holds ``features`` (n, d) float32, ``labels`` counted from 1, ``class_names``, ``files``, ``skipped`` (images
that could not be read) and ``network`` (what made the features, as JSON); ``dataset=tabular`` reads it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from zsl.checks import Array
from zsl.data.readers.files import need, read_npz
from zsl.errors import Parser, UserError, atomic, exit_status, reason, writing
from zsl.extract.images import Images, find_images
from zsl.extract.networks import NETWORKS, Network, load_network, prepare

log = logging.getLogger(__name__)

# Sides of the square that --size may set: these networks shrink it 32-fold, and a batch must fit into memory.
_SIZES = (32, 2048)


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
    """Write the features of every readable image, in order, to ``target`` (``.npz``).

    Finished batches are kept beside the target (``NAME.part``). After a kill the same call goes on from there, and ends
    in the same numbers.

    Parameters
    ----------
    images : Images
        From :func:`zsl.extract.images.find_images`.
    network : str
        A name in :data:`zsl.extract.networks.NETWORKS`.
    target : Path
        The file to write; it must not exist.
    weights : Path, optional
        The network's weights; needed for all but ``lite0``.
    batch_size : int
        The number of images that go through the network at once.
    device : str
        Where torch computes.
    size : int, optional
        Another input size than the network's own.
    progress : bool
        Show progress in the terminal.

    Returns
    -------
    list of str
        The images that could not be read. They are left out, and named in the file.

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
        # The margin around the centre keeps its share of the size.
        settings = replace(settings, size=size, resize=round(size * settings.resize / settings.size))
    run, about = load_network(settings, weights, device)
    with writing(target, "choose another place with --to"):
        return _extract(images, settings, run, {**asdict(settings), **about}, target, batch_size, progress)


def _extract(
    images: Images, settings: Network, run: Callable[[Array], Array], network: dict[str, Any], target: Path,
    batch_size: int, progress: bool,
) -> list[str]:  # fmt: skip
    n, work = len(images.files), target.with_name(target.name + ".part")
    plan = {
        "network": network,
        "batch_size": batch_size,
        "images": hashlib.sha256("\n".join(images.files).encode()).hexdigest(),
        "sizes": [(images.root / f).stat().st_size for f in images.files],
    }
    known = work / "plan.json"
    if known.is_file() and _stored(known) != json.loads(json.dumps(plan)):
        raise UserError(
            f"{work} is unfinished work on other images or with other settings; remove it, or repeat its settings."
        )
    with atomic(known) as part:
        part.write_text(json.dumps(plan), encoding="utf-8")
    batches = {work / f"{start}.npz": range(start, min(start + batch_size, n)) for start in range(0, n, batch_size)}
    for file in _shown((b for b in batches if not b.is_file()), len(batches), progress):
        pixels = _pixels(images, batches[file], settings)
        features = _features(run, list(pixels.values()), settings)
        with atomic(file) as part:
            np.savez(part, rows=np.array(list(pixels), dtype=np.int64), features=features)
    done = [
        (need(batch, "rows", file), need(batch, "features", file)) for file in batches for batch in [read_npz(file)]
    ]
    rows = np.concatenate([rows for rows, _ in done])
    if not len(rows):
        raise UserError(f"{images.root}: none of the {n} images can be read; see the messages above.")
    classes = [images.classes[i] for i in rows]
    names = sorted(set(classes) - {""})
    # Labels are numbers, which count class_names, or names where some images have no class.
    labels = classes if "" in classes else [names.index(c) + 1 for c in classes]
    there = set(rows.tolist())
    skipped = [*(f for i, f in enumerate(images.files) if i not in there), *images.nameless]
    with atomic(target) as part:
        np.savez(
            part, features=np.concatenate([features for _, features in done]), labels=np.array(labels),
            class_names=np.array(names, dtype=str), files=np.array([images.files[i] for i in rows]),
            skipped=np.array(skipped, dtype=str), network=np.array(json.dumps(network)),
        )  # fmt: skip
    shutil.rmtree(work)
    return skipped


def _stored(plan: Path) -> Any:
    try:
        return json.loads(plan.read_text(encoding="utf-8"))
    except ValueError:  # damaged, so that it is no plan of this work
        return None


def _pixels(images: Images, rows: Iterable[int], settings: Network) -> dict[int, Array]:
    """The pixels of the images that can be read, by row."""
    found = {}
    for i in rows:
        try:
            found[i] = prepare(images.root / images.files[i], settings)
        except Exception as error:
            # Pillow raises all kinds of exceptions (SyntaxError, struct.error, MemoryError, ...), and no single image
            # may end the work on all others.
            log.warning("%s is left out: %s", images.files[i], reason(error))
    return found


def _features(run: Callable[[Array], Array], pixels: list[Array], settings: Network) -> Array:
    if not pixels:
        return np.empty((0, settings.dimensions), dtype=np.float32)
    try:
        return run(np.stack(pixels)).astype(np.float32)
    except (MemoryError, RuntimeError) as error:  # torch raises RuntimeError when its memory is full
        raise UserError(
            f"a batch of {len(pixels)} images of {settings.size} pixels cannot be computed ({reason(error)[:150]}); "
            "use a smaller --batch-size or --size."
        ) from None


def _shown(batches: Iterator[Path], total: int, progress: bool) -> Iterable[Path]:
    if not progress:
        return batches
    from rich.console import Console
    from rich.progress import track

    return track(batches, description="batches", total=total, console=Console(stderr=True))


def read_settings(words: Sequence[str]) -> dict[str, str]:
    """Read ``feature=NAME`` and ``feature.weights=FILE`` from a command line; raises UserError for anything else."""
    settings = {}
    for word in words:
        key, _, value = word.partition("=")
        if key not in {"feature", "feature.weights"} or not value:
            raise UserError(f"{word} is not understood; there are feature=NAME and feature.weights=FILE.")
        settings[key] = value
    return settings


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status: 0, 1 after a sentence on what is wrong, or 130 after Ctrl-C."""
    parser = Parser("zsl extract", description="Images to features.")
    parser.add_argument("images", metavar="IMAGES", type=Path, help="a folder with one folder of images per class")
    parser.add_argument("settings", metavar="KEY=VALUE", nargs="*", default=[],
                        help=f"feature={'|'.join(NETWORKS)} (default lite0), feature.weights=FILE")  # fmt: skip
    parser.add_argument("--to", metavar="FILE.npz", type=Path, help="default: FEATURE.npz in IMAGES")
    parser.add_argument("--list", metavar="FILE", type=Path, help="the images instead: lines PATH or PATH<TAB>CLASS")
    parser.add_argument("--batch-size", type=int, default=32, metavar="N")
    parser.add_argument("--size", type=int, metavar="PIXELS", help="another input size than the network's own")
    parser.add_argument("--device", default="cpu", help="cpu (default) or what torch calls an accelerator, as cuda")
    logging.basicConfig(format="%(message)s", level=logging.INFO)
    interrupted = "interrupted; the same command goes on where it stopped."
    return exit_status("zsl.extract", lambda: _work(parser.parse_intermixed_args(argv)), interrupted=interrupted)


def _work(arguments: argparse.Namespace) -> None:
    settings = read_settings(arguments.settings)
    if arguments.batch_size < 1:
        raise UserError(f"--batch-size must be at least 1, not {arguments.batch_size}.")
    if arguments.size is not None and not _SIZES[0] <= arguments.size <= _SIZES[1]:
        raise UserError(f"--size must be from {_SIZES[0]} to {_SIZES[1]}, not {arguments.size}.")
    feature = settings.get("feature", "lite0")
    target = (arguments.to or arguments.images / f"{feature}.npz").expanduser()
    weights = Path(settings["feature.weights"]).expanduser() if "feature.weights" in settings else None
    images = find_images(arguments.images.expanduser(), arguments.list and arguments.list.expanduser())
    skipped = extract(
        images, feature, target, weights=weights, batch_size=arguments.batch_size, device=arguments.device,
        size=arguments.size, progress=sys.stderr.isatty(),
    )  # fmt: skip
    n_images = len(images.files) + len(images.nameless)
    print(f"{target}: {n_images - len(skipped)} images, {len(skipped)} left out")


if __name__ == "__main__":
    sys.exit(main())
