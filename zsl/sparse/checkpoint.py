"""Where a long computation stands, on disk: written whole or not at all, and read back only for the same problem."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from zsl.checks import Array
from zsl.errors import UserError


class Checkpoint:
    """A file of named arrays.

    Parameters
    ----------
    path : Path
        The file; its folder is made where it is missing.
    problem : str
        What the arrays belong to, see :func:`fingerprint`.
    minutes : float
        Time between two writes of :meth:`due`.
    """

    def __init__(self, path: Path, problem: str, minutes: float) -> None:
        self.path, self.problem, self.minutes = path, problem, minutes
        self._written = time.monotonic()

    def due(self) -> bool:
        return time.monotonic() - self._written >= 60 * self.minutes

    def save(self, arrays: dict[str, Array]) -> None:
        """Replace the file in one step: a kill at any moment leaves the old one or the new one."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_name(self.path.name + ".partial")
        with partial.open("wb") as file:
            np.savez(file, problem=np.array(self.problem), **arrays)  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self.path)
        self._written = time.monotonic()

    def load(self) -> dict[str, Array] | None:
        """The arrays, or None where there is no file.

        Raises
        ------
        UserError
            If the file is of another problem or no checkpoint at all.
        """
        if not self.path.exists():
            return None
        try:
            with np.load(self.path) as file:
                arrays = {name: file[name] for name in file.files}
            problem = str(arrays.pop("problem"))
        except (OSError, ValueError, KeyError, BadZipFile):
            raise UserError(f"{self.path} is not a checkpoint of zsl; choose another path or remove it.") from None
        if problem != self.problem:
            raise UserError(
                f"{self.path} is a checkpoint of other data or settings; restore those, or remove it to start anew."
            )
        return arrays

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


def fingerprint(settings: dict[str, Any], pieces: Iterable[Array]) -> str:
    """A digest of settings and of data that comes in pieces."""
    digest = hashlib.blake2b(json.dumps(settings, sort_keys=True, default=str).encode(), digest_size=16)
    for piece in pieces:
        digest.update(str((piece.shape, piece.dtype)).encode())
        digest.update(np.ascontiguousarray(piece).tobytes())
    return digest.hexdigest()
