"""Locks a run folder for one process, and reserves disk space for the last ``status.json``."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from pathlib import Path

from zsl.errors import UserError

_LOCK, _RESERVE = ".lock", ".reserve"
_RESERVE_BYTES = 1 << 15


def check_free(folder: Path) -> None:
    """Raise UserError if another process runs in a folder."""
    if (folder / _LOCK).exists():
        lock = FolderLock(folder)
        lock.take()
        lock.release()


def remove_stale(folder: Path) -> None:
    """Remove, under a folder, the lock files that killed processes left."""
    for path in folder.rglob(_LOCK):
        with suppress(UserError):
            check_free(path.parent)


class FolderLock:
    """Keeps a run folder for one process.

    The lock is SQLite's, which works on Linux, macOS and Windows; the system frees it when the process dies.

    Parameters
    ----------
    folder : Path, optional
        The run folder; without one nothing is locked.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._held: sqlite3.Connection | None = None
        self.taken_by_another = False
        """Whether another process has the folder; nothing may be written then"""

    def take(self) -> None:
        """Lock the folder, and reserve room for the status of a run that finds the disk full.

        Raises
        ------
        UserError
            If another process has the folder.
        """
        if self._folder is None or self._held is not None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / _LOCK
        connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode=OFF")  # nothing is ever written into the file
            connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            connection.close()
            if "locked" not in str(error):
                # A file system without locks, or a full disk: the run goes on, as it could before there was a lock.
                return
            self.taken_by_another = True
            raise UserError(
                f"another process runs in {self._folder}; wait for it, or give this run another folder (hydra.run.dir)."
            ) from None
        self._held = connection
        with suppress(OSError):
            (self._folder / _RESERVE).write_bytes(b"\0" * _RESERVE_BYTES)

    def give_room(self) -> None:
        """Free what was reserved, so that the status can be written on a full disk."""
        if self._folder is not None:
            with suppress(OSError):
                (self._folder / _RESERVE).unlink(missing_ok=True)

    def release(self) -> None:
        """Unlock the folder and remove the files of the lock."""
        if self._held is None or self._folder is None:
            return
        self.give_room()
        with suppress(OSError):
            (self._folder / _LOCK).unlink(missing_ok=True)
        self._held.close()
        self._held = None
