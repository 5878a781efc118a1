"""Checkpoints: the state of a long fit in a file, which is written whole and read back for the same problem only."""

from __future__ import annotations

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
from zsl.errors import UserError, reason, writing

log = logging.getLogger(__name__)

# Digits of the fingerprint that stand in a file's name; the whole of it stands in the file.
_DIGITS = 8
_REMEDY = "set model.checkpoint to another name"


class Checkpoint:
    """A file of named arrays. Every problem has one of its own, so that many of one ``name`` may lie beside each other.

    Parameters
    ----------
    name : str or Path
        The beginning of the file's name: with ``ck`` or ``ck.npz`` the file is ``ck-1a2b3c4d.npz``, with the first
        digits of ``problem``. Its folder is made where it is missing.
    problem : str
        What the arrays belong to, see :func:`fingerprint`.
    minutes : float
        Time between two writes of :meth:`due`.

    Raises
    ------
    UserError
        If the file could not be written.
    """

    def __init__(self, name: str | Path, problem: str, minutes: float) -> None:
        check_name(name)
        stem = Path(name).name.removesuffix(".npz")
        self.path = Path(name).with_name(f"{stem}-{problem[:_DIGITS]}.npz")
        self.problem, self.minutes = problem, minutes
        # Two jobs of a sweep may have the same problem; neither may write into what the other is writing.
        self._partial = self.path.with_name(f"{self.path.name}.{socket.gethostname()}-{os.getpid()}.partial")
        if os.path.isdir(self.path):
            raise UserError(f"model.checkpoint: {self.path} is a folder; {_REMEDY}.")
        with writing(self.path, f"set model.checkpoint={name} to another place"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._partial.touch()
            self._partial.unlink()
        self._written = time.monotonic()

    def due(self) -> bool:
        return time.monotonic() - self._written >= 60 * self.minutes

    def save(self, arrays: dict[str, Array]) -> None:
        """Replace the file in one step: a kill at any moment leaves the old one or the new one.

        What the operating system refuses now, such as a full disk, is a warning: the work goes on.
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
            log.warning("the checkpoint %s cannot be written (%s); the work goes on without.", self.path, reason(error))
        finally:
            _unlink(self._partial)
        self._written = time.monotonic()

    def load(self) -> dict[str, Array] | None:
        """The arrays, or None where there is no file.

        Raises
        ------
        UserError
            If the file is no checkpoint, damaged or of another problem.
        """
        if not self.path.exists():
            self._mention_others()
            return None
        try:
            with np.load(self.path) as file:
                arrays = {name: file[name] for name in file.files}
            problem, contents = str(arrays.pop("problem")), str(arrays.pop("contents"))
        except FileNotFoundError:
            return None  # another job of the same problem has ended in this moment
        except MemoryError:
            raise
        except Exception as error:
            # Zip, NumPy and what they stumble over: it is another file, or half of one.
            raise UserError(
                f"{self.path} is not a checkpoint of zsl, or damaged ({reason(error)}); remove it to start anew."
            ) from None
        if contents != _contents(arrays):
            raise UserError(f"{self.path} is a damaged checkpoint; remove it to start anew.")
        if problem != self.problem:
            raise UserError(f"{self.path} is a checkpoint of other data or settings; {_REMEDY}, or remove it.")
        return arrays

    def remove(self) -> None:
        """Remove the file, and what killed processes left half written of it."""
        _unlink(self.path)
        for path in self.path.parent.glob(f"{_literal(self.path.name)}.{_literal(socket.gethostname())}-*.partial"):
            process = path.name.removesuffix(".partial").rpartition("-")[2]
            if process.isdecimal() and not _runs(int(process)):
                _unlink(path)

    def _mention_others(self) -> None:
        stem = self.path.name.removesuffix(f"{self.problem[:_DIGITS]}.npz")
        pattern = _literal(stem) + "[0-9a-f]" * _DIGITS + ".npz"
        others = sorted(path.name for path in self.path.parent.glob(pattern))
        if others:
            more = f" and {len(others) - 1} more" if len(others) > 1 else ""
            log.info(
                "%s%s beside %s: checkpoints of other data or settings, left alone; this fit starts anew.",
                others[0], more, self.path,
            )  # fmt: skip


def check_name(name: str | Path) -> None:
    """Refuse what cannot be the beginning of a file's name.

    Raises
    ------
    UserError
        If it is empty or a folder.
    """
    if not str(name) or "\0" in str(name):
        raise UserError(f"model.checkpoint={str(name)!r} is not accepted: it should be a path, or null for none.")
    if not Path(name).name or str(name).endswith(("/", os.sep)) or os.path.isdir(name):
        raise UserError(f"model.checkpoint={name} is a folder; {_REMEDY}, such as {Path(name) / 'fit'}.")


def fingerprint(settings: Mapping[str, Any], pieces: Iterable[Array]) -> str:
    """A digest of settings and of data that comes in pieces; it is the same in every process.

    Functions among the settings count by their module and name, partial functions by what they bind too.

    Raises
    ------
    UserError
        For a function without a name, such as a lambda.
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
    """Names, shapes and types: what a file must hold, whose archive format vouches for the numbers themselves."""
    return json.dumps(sorted([name, list(A.shape), A.dtype.str] for name, A in arrays.items()))


def _literal(text: str) -> str:
    """``text`` for a glob pattern."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in text)


def _unlink(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("%s cannot be removed (%s).", path, reason(error))


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True
