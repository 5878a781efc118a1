"""The folder of a dataset: the hashes of the files that were read, and a cache of what readers make of large ones.

An entry of the cache is one ``.npz`` file, named after the SHA-256 of the files that it was made from: a changed file
has another name, so a stale entry cannot be read. The format holds plain arrays (nothing in it is ever executed) and
has a checksum for each, so a damaged entry is noticed and made again.
"""

from __future__ import annotations

import glob
import hashlib
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from zsl.checks import Array
from zsl.data.readers.files import file_hash
from zsl.errors import atomic, reason

log = logging.getLogger(__name__)

# Raise this number whenever a reader changes what it makes of a file: older entries are then not found.
_FORMAT = 5
_NAMES = "names of the arrays"
# Smaller files are read about as fast as the cache.
_WORTH_CACHING = 16 * 2**20


class Folder:
    """The folder of a dataset, as its reader sees it.

    Parameters
    ----------
    root : str or Path
        The folder; ``~`` is expanded.
    cache : str, optional
        Where the cache lies: a folder, ``"off"`` for no cache, or ``None`` for ``.zsl-cache`` in ``root``.

    Attributes
    ----------
    files : dict of str
        SHA-256 (first 16 hex digits) of every file that was read, by its path inside the folder.
    """

    def __init__(self, root: str | Path, cache: str | None = None) -> None:
        self.root = Path(root).expanduser()
        self.cache = cache
        self.files: dict[str, str] = {}

    def __truediv__(self, name: str) -> Path:
        return self.root / name

    def use(self, path: Path) -> Path:
        """Note that ``path`` is read (its hash becomes part of the record) and return it."""
        self.files[self._key(path)] = file_hash(path)[:16]
        return path

    def cached(self, label: str, sources: list[Path], make: Callable[[], Mapping[str, Array]]) -> Mapping[str, Array]:
        """What ``make`` makes of ``sources``: read from the cache, or made and stored there.

        Several processes may build the same entry at once, because an entry is complete before it gets its name.

        Parameters
        ----------
        label : str
            Says what is made; unique among the readers that may read the folder.
        sources : list of Path
            The files that ``make`` reads. If they are small together, nothing is stored.
        make : callable
            Returns arrays by name, none of them of Python objects.
        """
        hashes = [file_hash(path) for path in sources]
        if len(sources) > 20:  # one file per image: the record gets one line
            self.files[f"{label} ({len(sources)} files)"] = _digest(*hashes)
        else:
            self.files.update({self._key(path): known[:16] for path, known in zip(sources, hashes, strict=True)})
        if self.cache == "off" or sum(path.stat().st_size for path in sources) < _WORTH_CACHING:
            return make()
        own = Path(self.cache).expanduser() / f"{self.root.name}-{_digest(str(self.root.resolve()))[:8]}"\
            if self.cache else self.root / ".zsl-cache"  # fmt: skip
        entry = own / f"{label}-{_digest(str(_FORMAT), *hashes)}.npz"
        try:
            with np.load(entry, allow_pickle=False) as stored:
                # The names, because the directory of an archive has no checksum.
                return {name: stored[name] for name in stored[_NAMES].tolist()}
        except OSError:  # there is no such entry, or none can be read
            pass
        except MemoryError:
            raise
        except Exception as error:  # whatever zipfile and NumPy raise for bytes that are not theirs
            log.warning("the cache entry %s is damaged (%s) and is made again.", entry, reason(error))
        arrays = make()
        if hashes == [file_hash(path) for path in sources]:  # else a source changed while it was read
            _write(entry, arrays)
        return arrays

    def _key(self, path: Path) -> str:
        return os.path.relpath(path, self.root).replace(os.sep, "/")


def _digest(*texts: str) -> str:
    return hashlib.sha256("".join(texts).encode()).hexdigest()[:16]


def _write(entry: Path, arrays: Mapping[str, Array]) -> None:
    """Store an entry and remove older ones of the same label; a cache that cannot be written is done without."""
    try:
        with atomic(entry) as part:
            np.savez(part, **arrays, **{_NAMES: np.array(list(arrays))})  # type: ignore[arg-type]
        for old in entry.parent.glob(f"{glob.escape(entry.stem[:-16])}{'[0-9a-f]' * 16}.npz"):
            if old != entry:
                old.unlink(missing_ok=True)
    except OSError as error:
        log.warning(
            "the cache %s cannot be written (%s) and is not used; set cache_dir=FOLDER, or cache_dir=off.",
            entry.parent, reason(error),
        )  # fmt: skip
