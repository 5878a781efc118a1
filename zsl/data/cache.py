"""A dataset's folder: where its files are, what they held (hashes for the record), and a cache of the slow ones.

The cache keeps what a reader made of large files as ``.npy``, so that a second load maps it into memory instead of
parsing it. An entry is an index (``NAME.json``) that names its sources with size, time and SHA-256, and its arrays.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import tempfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from zsl.checks import Array
from zsl.data.readers.files import file_hash, unreadable

log = logging.getLogger(__name__)

# Raised whenever a reader changes what it makes of a file: entries of another format are built again.
_FORMAT = 2
# Below this size reading a file is about as fast as looking into the cache.
_WORTH_CACHING = 16 * 2**20


class Folder:
    """The folder of a dataset, as its reader sees it.

    Parameters
    ----------
    root : str or Path
        The folder; ``~`` is expanded.
    cache : str, optional
        Where cached arrays go: a folder, ``"off"`` for none, or ``None`` for ``.zsl-cache`` in ``root`` (in the user's
        cache folder if ``root`` cannot be written).

    Attributes
    ----------
    files : dict of str
        SHA-256 (first 16 hex digits) of every file used, by its path inside the folder.
    """

    def __init__(self, root: str | Path, cache: str | None = None) -> None:
        self.root = Path(root).expanduser()
        self.cache = cache
        self.files: dict[str, str] = {}

    def __truediv__(self, name: str) -> Path:
        return self.root / name

    def use(self, path: Path, digest: str | None = None) -> Path:
        """Note that ``path`` is read (its hash becomes part of the record) and return it."""
        key = os.path.relpath(path, self.root).replace(os.sep, "/")
        if key not in self.files:
            self.files[key] = (digest or file_hash(path))[:16]
        return path

    def cached(self, label: str, sources: list[Path], make: Callable[[], Mapping[str, Array]]) -> dict[str, Array]:
        """What ``make`` makes of ``sources``: from the cache where that is up to date, else made and stored.

        An entry is up to date while every source has the size and time it was made from, or, after a copy or a
        ``touch``, the same content. Arrays come back memory-mapped and read-only. Several processes may build the same
        entry at once: files are complete before they get their name, and the index is written last.

        Parameters
        ----------
        label : str
            The entry's name, unique within the folder.
        sources : list of Path
            Files that ``make`` reads; small ones (16 MB together) are not worth an entry.
        make : callable
            Returns arrays by name; no array of Python objects.
        """
        total = sum(path.stat().st_size for path in sources if path.is_file())
        store = self._cache_folder() if total >= _WORTH_CACHING else None
        if store is not None:
            found = self._load(store, label, sources)
            if found is not None:
                return found
        before = [_stamp(path) for path in sources]
        arrays = {k: np.ascontiguousarray(v) for k, v in make().items()}
        hashes = [file_hash(path) for path in sources]
        self._use_all(label, sources, hashes)
        if store is None or before != [_stamp(path) for path in sources]:
            return arrays  # a source changed while it was read: what was made of it is not kept
        index = {
            "format": _FORMAT,
            "sources": [self._source(p, s, h) for p, s, h in zip(sources, before, hashes, strict=True)],
        }
        try:
            self._store(store, label, index, arrays)
        except OSError as error:
            log.warning("the cache %s cannot be written (%s); reading goes on without it.", store, error.strerror)
            return arrays
        # Give the memory back: the mapped file holds the same numbers.
        del arrays
        found = self._load(store, label, sources)
        return found if found is not None else {k: np.ascontiguousarray(v) for k, v in make().items()}

    def _use_all(self, label: str, sources: list[Path], hashes: list[str]) -> None:
        if len(sources) > 20:  # one file per image: the record gets one line
            self.files[f"{label} ({len(sources)} files)"] = _together(hashes)
            return
        for path, digest in zip(sources, hashes, strict=True):
            self.use(path, digest)

    def _source(self, path: Path, stamp: tuple[int, int], digest: str) -> dict[str, Any]:
        return {"path": os.path.relpath(path, self.root), "size": stamp[0], "mtime_ns": stamp[1], "sha256": digest}

    def _load(self, store: Path, label: str, sources: list[Path]) -> dict[str, Array] | None:
        """The entry's arrays, or None if there is none that fits; whatever is wrong with an entry, it is made anew."""
        try:
            index = json.loads((store / f"{label}.json").read_text(encoding="utf-8"))
            if index["format"] != _FORMAT or len(index["sources"]) != len(sources):
                return None
            if index["check"] != _seal(index):
                log.warning("the cache entry %s is damaged and is made again.", store / f"{label}.json")
                return None
            stale = False
            for path, known in zip(sources, index["sources"], strict=True):
                size, mtime = _stamp(path)
                if known["path"] != os.path.relpath(path, self.root) or known["size"] != size:
                    return None
                if known["mtime_ns"] != mtime:
                    if file_hash(path) != known["sha256"]:
                        return None
                    known["mtime_ns"], stale = mtime, True
            arrays = {}
            for name, file in index["arrays"].items():
                path = store / file["file"]
                if path.stat().st_size != file["size"]:
                    return None
                arrays[name] = np.load(path, mmap_mode="r", allow_pickle=False)
                if _checksum(arrays[name]) != file["crc32"]:
                    log.warning("the cached array %s is damaged and is made again.", path)
                    return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        if stale:
            with contextlib.suppress(OSError):
                _write(store / f"{label}.json", json.dumps({**index, "check": _seal(index)}, indent=1).encode())
        self._use_all(label, sources, [known["sha256"] for known in index["sources"]])
        return arrays

    def _store(self, store: Path, label: str, index: dict[str, Any], arrays: Mapping[str, Array]) -> None:
        store.mkdir(parents=True, exist_ok=True)
        # The source's hash is in the file name, so that an index never finds arrays of another version.
        version = _together([s["sha256"] for s in index["sources"]])
        index["arrays"] = {}
        for name, array in arrays.items():
            path = store / f"{label}-{name}-{version}.npy"
            with _new_file(path) as f:
                np.lib.format.write_array(f, array, allow_pickle=False)
            index["arrays"][name] = {"file": path.name, "size": path.stat().st_size, "crc32": _checksum(array)}
        _write(store / f"{label}.json", json.dumps({**index, "check": _seal(index)}, indent=1).encode())
        kept = {a["file"] for a in index["arrays"].values()}
        for old in store.glob(f"{label}-*.npy"):
            name = old.name.removeprefix(f"{label}-").rsplit("-", 1)[0]
            if name in arrays and old.name not in kept:
                with contextlib.suppress(OSError):
                    old.unlink()

    def _cache_folder(self) -> Path | None:
        if self.cache == "off":
            return None
        if self.cache is not None:
            return Path(self.cache).expanduser() / _place(self.root)
        if os.access(self.root, os.W_OK):
            return self.root / ".zsl-cache"
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return home / "zsl" / _place(self.root)


def _together(hashes: list[str]) -> str:
    return hashlib.sha256("".join(hashes).encode()).hexdigest()[:16]


def _place(root: Path) -> str:
    """A folder name for the cache of ``root`` where several share one cache."""

    return f"{root.name}-{hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:8]}"


def _stamp(path: Path) -> tuple[int, int]:
    try:
        stat = path.stat()
    except OSError as error:
        raise unreadable(path, error) from None
    return stat.st_size, stat.st_mtime_ns


def _checksum(array: Array) -> int:
    """CRC-32 of an array's values: cheap beside the content hash that every run computes of what it read."""
    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data) if array.size else 0


def _seal(index: Mapping[str, Any]) -> str:
    """A digest of all that an index says, so that one that was cut or edited is not believed."""
    said = {k: v for k, v in index.items() if k != "check"}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]


@contextlib.contextmanager
def _new_file(path: Path) -> Any:
    """A file that gets its name only once it is complete."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "wb") as f:
            yield f
        os.chmod(temporary, 0o644)  # mkstemp makes files that nobody else may read
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _write(path: Path, content: bytes) -> None:
    with _new_file(path) as f:
        f.write(content)
