"""Reading MATLAB and NumPy files without executing anything in them, and saying what is wrong with a bad one."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from zsl.checks import Array
from zsl.errors import UserError

_HDF5 = b"\x89HDF\r\n\x1a\n"


def read_mat(path: Path, keys: list[str] | None = None) -> dict[str, Array]:
    """Variables of a MATLAB file, v5 or v7.3 (HDF5); cell arrays of strings become arrays of ``str``.

    ``keys`` limits what is read; names that are absent are simply not in the result.

    Raises
    ------
    UserError
        If the file is missing, truncated, or something else (an HTML page, a Git LFS pointer).
    """
    start = _first_bytes(path, 1024)
    if start[:8] == _HDF5 or start[512:520] == _HDF5:
        return _read_hdf5(path, keys)
    from scipy.io import loadmat

    try:
        raw = loadmat(path, variable_names=keys)
    except Exception as error:
        # scipy raises whatever its parser stumbles over: ValueError, TypeError, MatReadError, zlib.error, ...
        raise UserError(
            f"{path} is not a readable MATLAB file: {_what_it_is(start, error)}; download it again."
        ) from None
    return {k: _plain(v) for k, v in raw.items() if not k.startswith("__")}


def read_npz(path: Path, keys: list[str] | None = None) -> dict[str, Array]:
    """Arrays of an ``.npz`` file, never unpickling; raises UserError as :func:`read_mat` does."""
    start = _first_bytes(path, 1024)
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {k: archive[k] for k in archive.files if keys is None or k in keys}
    except Exception as error:
        raise UserError(
            f"{path} is not a readable .npz file: {_what_it_is(start, error)}; save or download it again."
        ) from None


def read_npy(path: Path) -> Array:
    """The array of an ``.npy`` file, never unpickling; raises UserError as :func:`read_mat` does."""
    start = _first_bytes(path, 1024)
    try:
        return np.asarray(np.load(path, allow_pickle=False))
    except Exception as error:
        raise UserError(
            f"{path} is not a readable .npy file: {_what_it_is(start, error)}; save or download it again."
        ) from None


def read_lines(path: Path) -> list[str]:
    """The non-empty lines of a text file, stripped, without those that start with ``#``."""
    start = _first_bytes(path, 1024)
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not text in UTF-8 ({error.reason} at byte {error.start}); save it as UTF-8."
        ) from None
    if foreign(start):
        raise UserError(f"{path} is not the list it should be: {foreign(start)}; download it again.")
    return [line for line in lines if line and not line.startswith("#")]


def read_table(path: Path, *, n_columns: int | None = None, dtype: type = np.float64) -> Array:
    """A text file of numbers separated by blanks, one row per line, read in blocks to save memory.

    Raises
    ------
    UserError
        If it is missing or empty, holds something else than numbers, or its rows differ in length.
    """
    import pandas as pd

    start = _first_bytes(path, 1024)
    if foreign(start) or not start.strip():
        raise UserError(f"{path} is not a table of numbers: {foreign(start) or 'it is empty'}; download it again.")
    try:
        # Every line must have as many values as the first: a line cut short would otherwise end in NaN unseen.
        blocks = [
            np.ascontiguousarray(block.to_numpy(dtype))
            for block in pd.read_csv(
                path,
                sep=r"\s+",
                header=None,
                dtype=dtype,
                chunksize=4096,
                na_values=[],
                keep_default_na=False,
                low_memory=True,
            )
        ]
    except (ValueError, pd.errors.ParserError) as error:
        reason = " ".join(str(error).split()).removeprefix("Error tokenizing data. C error: ")
        raise UserError(f"{path} is not a table of numbers: {reason}; repair the line or download it again.") from None
    table = np.concatenate(blocks) if len(blocks) > 1 else blocks[0]
    if n_columns is not None and table.shape[1] != n_columns:
        raise UserError(f"{path} has {table.shape[1]} numbers in a row where {n_columns} are needed.")
    return table


def file_hash(path: Path) -> str:
    """SHA-256 of a file, 64 hex digits."""
    try:
        with path.open("rb") as f:
            return hashlib.file_digest(f, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None


def need(arrays: dict[str, Array], key: str, path: Path) -> Array:
    """``arrays[key]``, or a sentence that names the file, the key and what is there instead."""
    if key not in arrays:
        raise UserError(f"{path} has no variable {key!r} (it has: {', '.join(sorted(arrays)) or 'nothing'}).")
    return arrays[key]


def _first_bytes(path: Path, n: int) -> bytes:
    try:
        with path.open("rb") as f:
            return f.read(n)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None


def _what_it_is(start: bytes, error: Exception) -> str:
    if not start:
        return "it is empty"
    return (
        foreign(start) or f"it is damaged or truncated ({' '.join(str(error).split())[:120] or type(error).__name__})"
    )


def foreign(start: bytes) -> str:
    """What a file is that stands where data should be; empty if it looks like neither of the usual accidents."""
    text = start.lstrip().lower()
    if text.startswith((b"<!doctype", b"<html", b"<?xml")):
        return "it is an HTML page, as a failed download leaves it"
    if text.startswith(b"version https://git-lfs"):
        return "it is a Git LFS pointer, not the file itself"
    return ""


def _plain(value: Any) -> Array:
    """A cell array of strings as an array of str, a sparse matrix as a full one; anything else as it is."""
    import scipy.sparse

    if scipy.sparse.issparse(value):
        return value.toarray()
    if value.dtype != object:
        return value
    return np.array([_text(cell) for cell in value.ravel()])


def _text(cell: Any) -> str:
    while isinstance(cell, np.ndarray):
        if cell.size == 0:
            return ""
        cell = cell.ravel()[0]
    return str(cell)


def _read_hdf5(path: Path, keys: list[str] | None) -> dict[str, Array]:
    """MATLAB v7.3: dimensions come reversed, strings as uint16 character codes behind references."""
    import h5py

    def text(dataset: Any) -> str:
        return "".join(chr(c) for c in np.asarray(dataset).ravel())

    try:
        with h5py.File(path, "r") as f:
            out = {}
            for name, item in f.items():
                if (
                    name.startswith("#")
                    or not isinstance(item, h5py.Dataset)
                    or (keys is not None and name not in keys)
                ):
                    continue
                if h5py.check_ref_dtype(item.dtype):
                    out[name] = np.array([text(f[ref]) for ref in item[()].ravel()])
                else:
                    out[name] = item[()].T
            return out
    except Exception as error:
        raise UserError(
            f"{path} is not a readable MATLAB v7.3 file: {_what_it_is(b'.', error)}; download it again."
        ) from None
