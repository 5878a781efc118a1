"""What the benchmarks' command lines accept: sizes that mean something, and a folder that can be written."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from zsl.errors import UserError, writing


def whole(least: int) -> Callable[[str], int]:
    """An argument's type: a whole number of at least ``least``."""

    def number(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise argparse.ArgumentTypeError(
                f"{text} is not accepted: it should be a whole number of at least {least}"
            ) from None
        return value

    return number


def need_writable(folder: Path, names: list[str]) -> None:
    """Make ``folder``, and find out now whether files of these names can be written there.

    Raises
    ------
    UserError
        If one of them could not.
    """
    with writing(folder, "set --out to another folder"):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    for path in (folder / name for name in names):
        if path.is_dir() or (path.exists() and not os.access(path, os.W_OK)):
            raise UserError(f"{path} is a folder or protected, and would have to be replaced; remove it, or set --out.")
