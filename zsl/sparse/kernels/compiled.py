# numba's classes are not typed.
# mypy: allow-untyped-calls, disallow-subclassing-any=False
"""numba's ``njit`` with a cache that survives damage and refuses a folder that others may write.

numba keeps compiled functions in files that it unpickles, so whoever may write there decides what runs. Each file
begins with a digest of its contents, because a file that lost a bit may unpickle to wrong machine code.
"""

from __future__ import annotations

import hashlib
import io
import logging
import os
import pickle
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import FunctionCache, IndexDataCacheFile

from zsl.errors import UserError, reason
from zsl.progress import compilation

log = logging.getLogger(__name__)
_DIGEST = hashlib.sha256().digest_size


def njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """``numba.njit(cache=True)`` whose cache is checked; ``options`` as numba's."""

    def decorate(function: Callable[..., Any]) -> Any:
        kernel = numba.njit(**options)(function)
        kernel._cache = _CheckedCache(kernel.py_func)
        return kernel

    return decorate


class _CheckedCache(FunctionCache):
    """Compiles again, once, what it cannot read, and goes on where it cannot write."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        check_private(Path(self.cache_path))
        plain = self._cache_file
        self._cache_file = _CheckedFile(plain._cache_path, self._impl.filename_base, plain._source_stamp)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        found = self._load(sig, target_context)
        if found is None:
            compilation.begin()
        return found

    def _load(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except (MemoryError, SystemError) as error:
            raise MemoryError("compiled kernels cannot be loaded") from error
        except Exception as error:
            # Unpickling and linking damaged code fails in many ways.
            log.info("compiled kernels are damaged (%s) and are compiled again, about a minute.", reason(error))
            for path in Path(self.cache_path).glob(f"{self._impl.filename_base}.*nb[ic]"):
                with suppress(OSError):
                    path.unlink()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        compilation.end()
        try:
            super().save_overload(sig, data)
        except OSError as error:
            log.info("compiled kernels cannot be kept (%s); the next process compiles them again.", reason(error))


class _CheckedFile(IndexDataCacheFile):
    """numba's files of one function, each with a digest in front."""

    @contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[io.BytesIO]:
        content = io.BytesIO()
        yield content
        with super()._open_for_write(filepath) as file:
            file.write(hashlib.sha256(content.getvalue()).digest() + content.getvalue())

    def _load_index(self) -> Any:
        try:
            file = _checked(self._index_path)
        except FileNotFoundError:
            return {}
        if pickle.load(file) != self._version:
            return {}
        stamp, overloads = pickle.load(file)
        return overloads if stamp == self._source_stamp else {}

    def _load_data(self, name: str) -> Any:
        return pickle.load(_checked(self._data_path(name)))


def _checked(path: str) -> io.BytesIO:
    about = os.stat(path)
    if os.name != "nt" and (about.st_uid not in (0, os.getuid()) or about.st_mode & stat.S_IWOTH):
        raise ValueError(f"{path} may have been written by others")
    data = Path(path).read_bytes()
    if hashlib.sha256(data[_DIGEST:]).digest() != data[:_DIGEST]:
        raise ValueError(f"{path} does not have its digest")
    return io.BytesIO(data[_DIGEST:])


def check_private(folder: Path) -> None:
    """Refuse a folder of compiled kernels in which another user may put files.

    Raises
    ------
    UserError
        If the folder, or one above it, may be written by everybody, or if the folder belongs to another user than root
        and oneself. The owners of folders above it, and groups that may write, are not checked.
    """
    if os.name == "nt" or not folder.exists():
        return
    for place in (folder.resolve(), *folder.resolve().parents):
        about = place.stat()
        everybody = about.st_mode & stat.S_IWOTH and not about.st_mode & stat.S_ISVTX
        if everybody or (place == folder.resolve() and about.st_uid not in (0, os.getuid())):
            raise UserError(
                f"other users may write into {place}, where compiled code lies that zsl would run; take that right "
                f"away (chmod o-w {place}), or set NUMBA_CACHE_DIR to a folder of your own."
            )
