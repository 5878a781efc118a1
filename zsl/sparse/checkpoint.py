"""Checkpoints: a file that keeps the state of a long fit, so that the fit can go on after a kill.

A checkpoint is replaced in one step, and it is read back only for the same data and settings.
"""

from __future__ import annotations

import glob
import json
import logging
import os
import socket
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import joblib
import numpy as np

from zsl.checks import Array
from zsl.errors import UserError, process_runs, reason, writing

log = logging.getLogger(__name__)

# The file's name holds this many digits of the fingerprint; the file holds the whole fingerprint.
_DIGITS = 8
_REMEDY = "set model.checkpoint to another name"


class Checkpoint:
    """A file of named arrays that belongs to one problem (data and settings).

    The file's name contains a part of the problem's fingerprint, so the fits of a sweep may share one ``name``.

    Parameters
    ----------
    name : str or Path
        The beginning of the file's name: with ``ck`` or ``ck.npz`` the file is ``ck-1a2b3c4d.npz``, where the digits
        are the first ones of ``problem``. A missing folder is created.
    problem : str
        Fingerprint of the data and settings, see :func:`fingerprint`.
    minutes : float
        :meth:`due` is true when this time has passed since the last write.

    Raises
    ------
    UserError
        If the file cannot be written.
    """

    def __init__(self, name: str | Path, problem: str, minutes: float) -> None:
        check_name(name)
        stem = Path(name).name.removesuffix(".npz")
        self.path = Path(name).with_name(f"{stem}-{problem[:_DIGITS]}.npz")
        self.problem, self.minutes = problem, minutes
        # Two jobs of a sweep may have the same problem, so each process writes a partial file of its own.
        self._partial = self.path.with_name(f"{self.path.name}.{socket.gethostname()}-{os.getpid()}.partial")
        if os.path.isdir(self.path):
            raise UserError(f"model.checkpoint: {self.path} is a folder; {_REMEDY}.")
        with writing(self.path, f"set model.checkpoint={name} to another place"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._partial.touch()
            self._partial.unlink()
        self._written = time.monotonic()

    def due(self) -> bool:
        """Whether it is time for the next write."""
        return time.monotonic() - self._written >= 60 * self.minutes

    def save(self, arrays: dict[str, Array]) -> None:
        """Replace the file in one step, so that a kill at any moment leaves the old file or the new one.

        An error of the operating system, such as a full disk, is logged as a warning, and the fit goes on.
        """
        about = {"problem": np.array(self.problem), "contents": np.array(_contents(arrays))}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self._partial.open("wb") as file:
                np.savez(file, **about, **arrays)  # type: ignore[arg-type]
                file.flush()
                os.fsync(file.fileno())
            self._partial.replace(self.path)
        except OSError as error:
            log.warning("the checkpoint %s cannot be written (%s); the fit goes on without.", self.path, reason(error))
        finally:
            _unlink(self._partial)
        self._written = time.monotonic()

    def load(self) -> dict[str, Array] | None:
        """Read the arrays; None if there is no file.

        Raises
        ------
        UserError
            If the file is not a checkpoint, is damaged or belongs to another problem.
        """
        if not self.path.exists():
            self._mention_others()
            return None
        try:
            with np.load(self.path) as file:
                arrays = {name: file[name] for name in file.files}
            problem, contents = str(arrays.pop("problem")), str(arrays.pop("contents"))
        except FileNotFoundError:
            return None  # another job of the same problem has just ended and removed the file
        except MemoryError:
            raise
        except Exception as error:
            # zipfile and NumPy raise many types of error for a file that is not an archive, or half of one.
            raise UserError(
                f"{self.path} is not a checkpoint of zsl, or damaged ({reason(error)}); remove it to start anew."
            ) from None
        if contents != _contents(arrays):
            raise UserError(f"{self.path} is a damaged checkpoint; remove it to start anew.")
        if problem != self.problem:
            raise UserError(f"{self.path} is a checkpoint of other data or settings; {_REMEDY}, or remove it.")
        return arrays

    def remove(self) -> None:
        """Remove the file and the partial files of processes that were killed on this machine."""
        _unlink(self.path)
        for path in self.path.parent.glob(
            f"{glob.escape(self.path.name)}.{glob.escape(socket.gethostname())}-*.partial"
        ):
            process = path.name.removesuffix(".partial").rpartition("-")[2]
            if process.isdecimal() and not process_runs(int(process)):
                _unlink(path)

    def _mention_others(self) -> None:
        """Log the checkpoints of the same name that belong to other problems."""
        stem = self.path.name.removesuffix(f"{self.problem[:_DIGITS]}.npz")
        pattern = glob.escape(stem) + "[0-9a-f]" * _DIGITS + ".npz"
        others = sorted(path.name for path in self.path.parent.glob(pattern))
        if others:
            more = f" and {len(others) - 1} more" if len(others) > 1 else ""
            log.info(
                "%s%s beside %s: checkpoints of other data or settings, left alone; this fit starts anew.",
                others[0], more, self.path,
            )  # fmt: skip


def check_name(name: str | Path) -> None:
    """Raise UserError if ``name`` cannot be the beginning of a file's name, because it is empty or a folder."""
    if not str(name) or "\0" in str(name):
        raise UserError(f"model.checkpoint={str(name)!r} is not accepted: it should be a path, or null for none.")
    if not Path(name).name or str(name).endswith(("/", os.sep)) or os.path.isdir(name):
        raise UserError(f"model.checkpoint={name} is a folder; {_REMEDY}, such as {Path(name) / 'fit'}.")


def fingerprint(settings: Mapping[str, Any], pieces: Iterable[Array]) -> str:
    """Digest of settings and data that is the same in every process.

    Parameters
    ----------
    settings : mapping
        A function counts by its module and name, a partial function also by its bound arguments.
    pieces : iterable of arrays
        The data, piece by piece.

    Returns
    -------
    str

    Raises
    ------
    UserError
        For a function without a name, such as a lambda.

    Examples
    --------
    >>> import numpy as np
    >>> fingerprint({"lam": 0.1}, [np.ones(3)]) == fingerprint({"lam": 0.2}, [np.ones(3)])
    False
    """
    try:
        about = joblib.hash(dict(settings))
    except Exception as error:
        raise UserError(
            f"model.checkpoint cannot tell these settings from others ({reason(error)}); give the solver as a function "
            "of a module, not as a lambda."
        ) from None
    return str(joblib.hash([about, *(joblib.hash(np.ascontiguousarray(piece)) for piece in pieces)]))


def _contents(arrays: Mapping[str, Array]) -> str:
    """Names, shapes and types of the arrays; the zip format itself has checksums of the numbers."""
    return json.dumps(sorted([name, list(A.shape), A.dtype.str] for name, A in arrays.items()))


def _unlink(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("%s cannot be removed (%s).", path, reason(error))
