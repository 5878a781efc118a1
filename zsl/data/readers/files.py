"""Reading MATLAB and NumPy files without executing anything in them, and saying what is wrong with a bad one."""

from __future__ import annotations

import hashlib
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np

from zsl.checks import Array
from zsl.errors import UserError, reason

_HDF5 = b"\x89HDF\r\n\x1a\n"
_NO_PICKLE = (
    "holds Python objects, which are not read because that could run a program hidden in them; save text with "
    ".astype(str) and numbers with .astype(float)"
)


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
    start, key, found = _first_bytes(path, 1024), "", {}
    try:
        with np.load(path, allow_pickle=False) as archive:
            if isinstance(archive, np.ndarray):
                raise UserError(
                    f"{path} holds a single array, as .npy files do; rename it, or save it with numpy.savez."
                )
            for key in archive.files:
                if keys is None or key in keys:
                    found[key] = archive[key]
    except UserError:
        raise
    except Exception as error:
        _refuse_pickle(path, start, error, key)
        raise UserError(
            f"{path} is not a readable .npz file: {_what_it_is(start, error)}; save or download it again."
        ) from None
    return found


def read_npy(path: Path) -> Array:
    """The array of an ``.npy`` file, never unpickling; raises UserError as :func:`read_mat` does."""
    start = _first_bytes(path, 1024)
    try:
        return np.asarray(np.load(path, allow_pickle=False))
    except Exception as error:
        _refuse_pickle(path, start, error, "")
        raise UserError(
            f"{path} is not a readable .npy file: {_what_it_is(start, error)}; save or download it again."
        ) from None


def _refuse_pickle(path: Path, start: bytes, error: Exception, key: str) -> None:
    if "Object arrays" in str(error):
        raise UserError(f"{path}{f': {key!r}' if key else ''} {_NO_PICKLE}.") from None
    if start[:1] == b"\x80":  # what every pickle since protocol 2 starts with
        raise UserError(f"{path} is a pickle: it {_NO_PICKLE}, in a file that numpy.savez writes.") from None


def text_lines(path: Path) -> list[str]:
    """The lines of a text file in UTF-8, characters composed (NFC), so that equal names are equal strings."""
    start = _first_bytes(path, 1024)
    try:
        lines = unicodedata.normalize("NFC", path.read_text(encoding="utf-8-sig")).splitlines()
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not text in UTF-8 ({error.reason} at byte {error.start}); save it as UTF-8."
        ) from None
    if foreign(start):
        raise UserError(f"{path} is not the list it should be: {foreign(start)}; download it again.")
    return lines


def read_lines(path: Path) -> list[str]:
    """The non-empty lines of a text file, stripped, without those that start with ``#``."""
    lines = [line.strip() for line in text_lines(path)]
    return [line for line in lines if line and not line.startswith("#")]


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
        with np.errstate(over="ignore"):  # a value too large for the type is told below
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
        said = _first_bad_number(path, dtype) or reason(error).removeprefix("Error tokenizing data. C error: ")
        raise UserError(f"{path} is not a table of numbers: {said}; repair the line or download it again.") from None
    table = np.concatenate(blocks) if len(blocks) > 1 else blocks[0]
    if n_columns is not None and table.shape[1] != n_columns:
        raise UserError(f"{path} has {table.shape[1]} numbers in a row where {n_columns} are needed.")
    return table


def _first_bad_number(path: Path, dtype: type) -> str:
    """Where the first value stands that is no finite number of that type; empty if there is none."""
    with path.open(encoding="utf-8", errors="replace") as f:
        for i, line in enumerate(f, start=1):
            for j, field in enumerate(line.split(), start=1):
                try:
                    with np.errstate(over="ignore"):
                        finite = np.isfinite(dtype(field))
                except ValueError:
                    return f"value {j} of line {i} is {field[:40]!r}"
                if not finite:
                    return f"value {j} of line {i} is {field[:40]!r}, which is no finite number in {dtype.__name__}"
    return ""


def file_hash(path: Path) -> str:
    """SHA-256 of a file, 64 hex digits."""
    try:
        with path.open("rb") as f:
            return hashlib.file_digest(f, "sha256").hexdigest()
    except OSError as error:
        raise unreadable(path, error) from None


def need(arrays: dict[str, Array], key: str, path: Path) -> Array:
    """``arrays[key]``, or a sentence that names the file, the key and what the file has instead."""
    if key in arrays:
        return arrays[key]
    there = sorted(set(arrays) | set(variables(path)))
    if not there:
        raise UserError(f"{path} holds no variable at all: it is empty or cut short; save or download it again.")
    raise UserError(f"{path} has no variable {key!r} (it has: {', '.join(there)}); save it under that name.")


def variables(path: Path) -> list[str]:
    """The names of a file's variables, whether or not they can be read."""
    start = _first_bytes(path, 1024)
    try:
        if path.suffix.lower() == ".npz":
            with np.load(path, allow_pickle=False) as archive:
                return list(archive.files)
        if start[:8] == _HDF5 or start[512:520] == _HDF5:
            import h5py

            with h5py.File(path, "r") as f:
                return [name for name in f if not name.startswith("#")]
        from scipy.io import whosmat

        return [name for name, *_ in whosmat(path)]
    except Exception:
        return []  # only for a message: what was readable is known without it


def unreadable(path: Path, error: OSError) -> UserError:
    """The sentence for a file that the operating system does not let be read."""
    return UserError(
        f"{path} cannot be read: {reason(error)}; check that it is complete (unpack the whole archive) and readable."
    )


def _first_bytes(path: Path, n: int) -> bytes:
    try:
        with path.open("rb") as f:
            return f.read(n)
    except OSError as error:
        raise unreadable(path, error) from None


def _what_it_is(start: bytes, error: Exception) -> str:
    if not start:
        return "it is empty"
    if "pickle" in str(error):  # numpy says so of whatever it does not know
        return foreign(start) or "it is something else"
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

    def plain(item: Any) -> Array:
        if h5py.check_ref_dtype(item.dtype):
            return np.array([text(f[ref]) for ref in item[()].ravel()])
        value = item[()]
        if h5py.check_string_dtype(item.dtype):  # as h5py and other programs than MATLAB write text
            return np.array([v.decode("utf-8") if isinstance(v, bytes) else str(v) for v in np.ravel(value)])
        value = np.asarray(value).T
        if item.attrs.get("MATLAB_class") in (b"char", "char"):  # a character matrix: each row a name, blanks after it
            return np.array(["".join(map(chr, row)).strip() for row in np.atleast_2d(value)])
        return value

    try:
        with h5py.File(path, "r") as f:
            return {
                name: plain(item)
                for name, item in f.items()
                if not name.startswith("#") and isinstance(item, h5py.Dataset) and (keys is None or name in keys)
            }
    except Exception as error:
        raise UserError(
            f"{path} is not a readable MATLAB v7.3 file: {_what_it_is(b'.', error)}; download it again."
        ) from None
