"""The flags that choose a network, for every command that makes features of images."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from zsl.errors import UserError
from zsl.extract.networks import ALIASES, PRECISIONS, Network, load_network
from zsl.system import usable_cores

NAMES = "lite0, timm/NAME, open_clip/NAME[:TAG], hf/REPOSITORY, torchvision/NAME"


def add_flags(parser: argparse.ArgumentParser, default: str) -> None:
    """Add ``--network``, ``--weights`` and what belongs to them to a command line; ``default`` is for the help."""
    add = parser.add_argument_group("network").add_argument
    add("--network", metavar="NAME", help=f"{NAMES}, or {', '.join(ALIASES)} (default: {default})")
    add("--weights", metavar="FILE|FOLDER", type=Path, help="the network's weights (default: its library's hub)")
    add("--pickled", action="store_true", help="read weights in a pickle too; of its content only tensors are read")
    add(
        "--device",
        default="cpu",
        help="cpu (default) or what torch calls an accelerator, as cuda, where zsl predict computes as well",
    )
    add("--precision", choices=PRECISIONS, default="auto", help="auto (default): half on cuda, else single")
    add("--workers", type=int, metavar="N", default=min(4, usable_cores()),
        help="threads that read images (default: the cores, at most 4)")  # fmt: skip


def parse(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> argparse.Namespace:
    """Read a command line with these flags; raises UserError for the words that they had before."""
    import sys

    words = sys.argv[1:] if argv is None else list(argv)
    for old, new in (("feature.weights=", "--weights"), ("feature=", "--network")):
        for word in words:
            if word.startswith(old):
                raise UserError(f"{word} is now written {new} {word.removeprefix(old) or 'NAME'}.")
    arguments = parser.parse_intermixed_args(words)
    if arguments.workers < 1:
        raise UserError(f"--workers must be at least 1, not {arguments.workers}.")
    return arguments


def network_of(arguments: argparse.Namespace, default: str, **settings: Any) -> Network:
    """Load the network of a command line; ``settings`` are pool and size for :func:`load_network`."""
    return load_network(
        arguments.network or default, arguments.weights and arguments.weights.expanduser(), pickled=arguments.pickled,
        device=arguments.device, precision=arguments.precision, **settings,
    )  # fmt: skip
