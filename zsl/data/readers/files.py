"""Reading MATLAB, NumPy and text files without executing anything in them; a bad file ends in one sentence."""

from __future__ import annotations

import contextlib
import hashlib
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from zsl.checks import Array
from zsl.errors import UserError, reason

_HDF5 = b"\x89HDF\r\n\x1a\n"


def read_mat(path: Path, keys: list[str] | None = None) -> dict[str, Array]:
    """Variables of a MATLAB file, v5 or v7.3 (HDF5); cell arrays of strings become arrays of ``str``.

    ``keys`` limits what is read; names that are absent are simply not in the result.

    Raises
    ------
    UserError
        If the file is missing, truncated, or something else (an HTML page, a Git LFS pointer).
    """
    with reading(path, "MATLAB file") as start:
        if _is_hdf5(start):
            return _read_hdf5(path, keys)
        from scipy.io import loadmat

        raw = loadmat(path, variable_names=keys)
        return {k: _unwrapped(v) for k, v in raw.items() if not k.startswith("__")}


def read_npz(path: Path, keys: list[str] | None = None) -> dict[str, Array]:
    """Arrays of an ``.npz`` file, never unpickling; raises UserError as :func:`read_mat` does."""
    with reading(path, ".npz file"), np.load(path, allow_pickle=False) as archive:
        return {key: archive[key] for key in archive.files if keys is None or key in keys}


def read_npy(path: Path) -> Array:
    """The array of an ``.npy`` file, never unpickling; raises UserError as :func:`read_mat` does."""
    with reading(path, ".npy file"):
        return np.asarray(np.load(path, allow_pickle=False))


def read_table(path: Path, dtype: type = np.float64) -> Array:
    """A text file of numbers separated by blanks, one row per line; raises UserError as :func:`read_mat` does."""
    with reading(path, "table of numbers") as start, np.errstate(over="ignore"):
        if not start.strip():
            raise ValueError
        return np.loadtxt(path, dtype=dtype, comments=None, ndmin=2, encoding="utf-8")


def text_lines(path: Path) -> list[str]:
    """The lines of a text file in UTF-8, characters composed (NFC), so that equal names are equal strings."""
    with reading(path, "text file in UTF-8") as start:
        if foreign(start):
            raise ValueError
        return unicodedata.normalize("NFC", path.read_text(encoding="utf-8-sig")).splitlines()


def read_lines(path: Path) -> list[str]:
    """The non-empty lines of a text file, stripped, without those that start with ``#``."""
    lines = [line.strip() for line in text_lines(path)]
    return [line for line in lines if line and not line.startswith("#")]


@contextlib.contextmanager
def reading(path: Path, kind: str) -> Iterator[bytes]:
    """Give the first bytes of a file, and turn what a library raises while it reads the file into a UserError."""
    try:
        with path.open("rb") as f:
            start = f.read(1024)
    except OSError as error:
        raise _unreadable(path, error) from None
    try:
        yield start
    except UserError:
        raise
    except Exception as error:  # the libraries raise whatever their parsers stumble over
        if "Object arrays" in str(error) or start[:1] == b"\x80":  # every pickle since protocol 2 starts so
            raise UserError(
                f"{path} holds Python objects, which are not read because that could run a program hidden in them; "
                "save text with .astype(str) and numbers with .astype(float), by numpy.savez."
            ) from None
        what = foreign(start) or ("it is empty" if not start.strip() else reason(error).split("; use")[0].rstrip("."))
        raise UserError(f"{path} is not a readable {kind}: {what}; save or download it again.") from None


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


def _is_hdf5(start: bytes) -> bool:
    return start[:8] == _HDF5 or start[512:520] == _HDF5


def _unwrapped(value: Any) -> Array:
    """A cell array of strings as an array of str, a sparse matrix as a full one; anything else as it is."""
    import scipy.sparse

    if scipy.sparse.issparse(value):
        return value.toarray()
    if value.dtype != object:
        return value
    return np.array([_cell_text(cell) for cell in value.ravel()])


def _cell_text(cell: Any) -> str:
    while isinstance(cell, np.ndarray):
        if cell.size == 0:
            return ""
        cell = cell.ravel()[0]
    return str(cell)


def _read_hdf5(path: Path, keys: list[str] | None) -> dict[str, Array]:
    """MATLAB v7.3: dimensions come reversed, strings as uint16 character codes behind references."""
    import h5py

    def value_of(item: Any) -> Array:
        if h5py.check_ref_dtype(item.dtype):
            return np.array(["".join(chr(c) for c in np.asarray(f[ref]).ravel()) for ref in item[()].ravel()])
        value = item[()]
        if h5py.check_string_dtype(item.dtype):  # as h5py and other programs than MATLAB write text
            return np.array([v.decode("utf-8") if isinstance(v, bytes) else str(v) for v in np.ravel(value)])
        value = np.asarray(value).T
        if item.attrs.get("MATLAB_class") in (b"char", "char"):  # a character matrix: each row a name, blanks after it
            return np.array(["".join(map(chr, row)).strip() for row in np.atleast_2d(value)])
        return value

    with h5py.File(path, "r") as f:
        return {
            name: value_of(item)
            for name, item in f.items()
            if not name.startswith("#") and isinstance(item, h5py.Dataset) and (keys is None or name in keys)
        }
