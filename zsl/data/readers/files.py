"""Reading NumPy and text files without executing anything in them; a bad file ends in one sentence."""

from __future__ import annotations

import contextlib
import hashlib
import math
import re
import unicodedata
import zipfile
from collections.abc import Container, Iterator
from pathlib import Path
from typing import IO

import numpy as np

from zsl.checks import Array
from zsl.errors import UserError, reason, too_large
from zsl.system import machine_memory

# Byte order marks, longest first; text without one is UTF-8.
_MARKS = ((b"\xff\xfe\0\0", "utf-32"), (b"\0\0\xfe\xff", "utf-32"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
# How libraries say that memory does not suffice, if not by a MemoryError.
_NO_MEMORY = re.compile("out of memory|memory allocation failed|cannot allocate memory", re.IGNORECASE)
# How files of spreadsheet programs begin.
_WORKBOOKS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")


def read_npz(path: Path, keys: list[str] | None = None) -> dict[str, Array]:
    """Arrays of an ``.npz`` file, never unpickling.

    Raises
    ------
    UserError
        If the file is missing, truncated, or something else (an HTML page, a Git LFS pointer), or does not fit into
        memory.
    """
    found = {}
    with reading(path, ".npz file"), zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            key = member.filename.removesuffix(".npy")
            if key != member.filename and (keys is None or key in keys):
                with archive.open(member) as file:
                    found[key] = _array(file, member.file_size)
    return found


def read_npy(path: Path) -> Array:
    """The array of an ``.npy`` file, never unpickling; raises UserError as :func:`read_npz` does."""
    with reading(path, ".npy file"), path.open("rb") as file:
        return _array(file, path.stat().st_size)


def _array(file: IO[bytes], size: int) -> Array:
    """An array in NumPy's format of ``size`` bytes; its header is not trusted before memory is taken."""
    try:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
    except Exception:  # NumPy evaluates the header, so that anything may be wrong in it
        raise ValueError("its header cannot be read") from None
    if min(shape, default=0) < 0 or (not dtype.hasobject and math.prod(shape) * dtype.itemsize > size - file.tell()):
        raise ValueError(f"it says that it holds an array of the shape {shape}, but it has {size} bytes")
    check_memory(math.prod(shape) * dtype.itemsize)
    file.seek(0)
    return np.asarray(np.lib.format.read_array(file, allow_pickle=False))


def check_memory(n_bytes: int) -> None:
    """Raise MemoryError for more bytes than the machine has, before the system ends the process for taking them."""
    if 0 < (there := machine_memory()) < n_bytes:
        raise MemoryError(f"{n_bytes / 2**30:.1f} GiB are needed, and the machine has {there / 2**30:.1f}")


def read_table(path: Path, dtype: type = np.float64) -> Array:
    """A text file of numbers separated by blanks, one row per line; raises UserError as :func:`read_npz` does."""
    with reading(path, "table of numbers") as start, np.errstate(over="ignore"):
        if not start.strip():
            raise ValueError
        return np.loadtxt(path, dtype=dtype, comments=None, ndmin=2, encoding=_encoding(start))


def read_text(path: Path, kind: str = "text file in UTF-8") -> str:
    """A text file in UTF-8, or in what its byte order mark says; characters composed, so that equal names are equal."""
    with reading(path, kind) as start:
        if foreign(start):
            raise ValueError
        if start.startswith(_WORKBOOKS):
            raise ValueError("it is a workbook or an archive; save its table as CSV in UTF-8")
        try:
            text = unicodedata.normalize("NFC", path.read_text(encoding=_encoding(start)))
        except UnicodeDecodeError as error:
            raise ValueError(f"its letters are not in UTF-8 (byte {error.start + 1}); save it in UTF-8") from None
        if "\0" in text:
            raise ValueError("it holds characters of the number 0; save it in UTF-8")
        return text


def read_lines(path: Path, known: Container[str] = ()) -> list[str]:
    """The non-empty lines of a text file, stripped, without comments.

    A comment starts with ``#`` and a blank, and is none of the names ``known``.
    """
    lines = [line.strip() for line in read_text(path).split("\n")]
    return [line for line in lines if line and not is_comment(line, known)]


def is_comment(line: str, known: Container[str] = ()) -> bool:
    """Whether a stripped line of a list is a comment; ``#1 dogs`` is a name."""
    return (line == "#" or line.startswith(("# ", "#\t"))) and line not in known


def _encoding(start: bytes) -> str:
    return next((name for mark, name in _MARKS if start.startswith(mark)), "utf-8-sig")


@contextlib.contextmanager
def reading(path: Path, kind: str) -> Iterator[bytes]:
    """Give the first bytes of a file (none of a folder), and turn what a library raises meanwhile into a UserError."""
    try:
        start = b""
        if not path.is_dir():
            with path.open("rb") as f:
                start = f.read(1024)
    except OSError as error:
        raise _unreadable(path, error) from None
    try:
        yield start
    except UserError:
        raise
    except Exception as error:  # the libraries raise whatever their parsers stumble over
        if too_large(error) or _NO_MEMORY.search(str(error)):
            raise UserError(
                f"{path} does not fit into memory ({reason(error).rstrip('.')}); free some, or store fewer images or "
                "columns, and numbers as float32."
            ) from None
        if "Object arrays" in str(error) or start[:1] == b"\x80":  # every pickle since protocol 2 starts so
            raise UserError(
                f"{path} holds Python objects, which are not read because that could run a program hidden in them; "
                "save text with .astype(str) and numbers with .astype(float), by numpy.savez."
            ) from None
        what = foreign(start) or ("it is empty" if not start.strip() else reason(error).split("; use")[0].rstrip("."))
        remedy = "" if "; " in what else "; save or download it again"
        raise UserError(f"{path} is not a readable {kind}: {what}{remedy}.") from None


def foreign(start: bytes) -> str:
    """Recognise an HTML page or a Git LFS pointer in place of data, by its first bytes; ``""`` for anything else."""
    text = start.lstrip().lower()
    if text.startswith((b"<!doctype", b"<html", b"<?xml")):
        return "it is an HTML page, as a failed download leaves it"
    if text.startswith(b"version https://git-lfs"):
        return "it is a Git LFS pointer, not the file itself"
    return ""


def file_hash(path: Path) -> str:
    """SHA-256 of a file, 64 hex digits."""
    try:
        with path.open("rb") as f:
            return hashlib.file_digest(f, "sha256").hexdigest()
    except OSError as error:
        raise _unreadable(path, error) from None


def as_text(values: Array, path: Path, what: str) -> Array:
    """Names as one flat array of ``str``, characters composed (NFC); bytes must be UTF-8."""
    flat = np.asarray(values).ravel()
    if flat.dtype.kind == "S":
        try:
            flat = np.char.decode(flat, "utf-8")
        except UnicodeDecodeError as error:
            raise UserError(
                f"{path}: {what} are bytes that are not UTF-8 ({error.object!r}); save them as text (str)."
            ) from None
    return np.array([unicodedata.normalize("NFC", str(v)) for v in flat], dtype=str) if flat.size else flat.astype(str)


def need(arrays: dict[str, Array], key: str, path: Path) -> Array:
    """``arrays[key]``, or a sentence that names the file, the key and what the file has instead."""
    if key in arrays:
        return arrays[key]
    there = ", ".join(sorted(arrays)) or "nothing else"
    raise UserError(f"{path} has no variable {key!r} (read from it: {there}); save it under that name.")


def _unreadable(path: Path, error: OSError) -> UserError:
    return UserError(
        f"{path} cannot be read: {reason(error)}; check that it is complete (unpack the whole archive) and readable."
    )
