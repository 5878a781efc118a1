"""MATLAB files of the versions 4, 5 and 7.3, read without trust in what they say of themselves.

Versions 4 and 5 are read here rather than by ``scipy.io``, whose compiled reader ends the process on some damaged
files. Every size is checked against the bytes that are there before it is used.
"""

from __future__ import annotations

import logging
import math
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from zsl.checks import Array
from zsl.data.readers.files import check_memory, reading

log = logging.getLogger(__name__)

_HDF5 = b"\x89HDF\r\n\x1a\n"
# The types of elements in version 5, by number.
_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_MATRIX, _COMPRESSED = 14, 15
_LETTERS = {1: "utf-8", 2: "utf-8", 4: "utf-16", 16: "utf-8", 17: "utf-16", 18: "utf-32"}
_CELL, _CHARACTERS, _SPARSE, _NUMERIC = 1, 4, 5, range(6, 16)
# The types of numbers in version 4, by number.
_NUMBERS_4 = ("f8", "f4", "i4", "i2", "u2", "u1")
# A variable's type, shape and name lie in so many of its first bytes.
_HEAD = 1024
_ENDS = "it ends in the middle of a variable"


def read_mat(path: Path, keys: list[str] | None = None) -> dict[str, Array]:
    """Variables of a MATLAB file, v4, v5 or v7.3 (HDF5); cell arrays of strings become arrays of ``str``.

    ``keys`` limits what is read; names that are absent are simply not in the result.

    Raises
    ------
    UserError
        If the file is missing, truncated, or something else (an HTML page, a Git LFS pointer), does not fit into
        memory, or fetches what it says from other files.
    """
    with reading(path, "MATLAB file") as start:
        if start[:8] == _HDF5 or start[512:520] == _HDF5:
            return _read_hdf5(path, keys)
        with path.open("rb") as file:
            found = _variables_4(file) if 0 in start[:4] else _variables_5(file, start, keys)
            return {name: value for name, value in found if keys is None or name in keys}


class _Element(NamedTuple):
    kind: int
    data: memoryview
    rest: memoryview


def _element(data: memoryview, order: str) -> _Element:
    """The first element of ``data`` and what follows it."""
    if len(data) < 8:
        raise ValueError(_ENDS)
    kind, size = struct.unpack(f"{order}II", data[:8])
    if kind >> 16:  # up to four bytes lie within the tag
        kind, size, start, end = kind & 0xFFFF, kind >> 16, 4, 8
    else:
        start, end = 8, 8 + size + -size % 8
    if size > len(data) - start or (start == 4 and size > 4):
        raise ValueError(_ENDS)
    return _Element(kind, data[start : start + size], data[end:])


def _variables_5(file: BinaryIO, start: bytes, keys: list[str] | None) -> Iterator[tuple[str, Array]]:
    order = {b"IM": "<", b"MI": ">"}.get(start[126:128])
    if order is None:
        raise ValueError("it does not begin as one")
    end, place = os.fstat(file.fileno()).st_size, 128
    while place < end:
        file.seek(place)
        tag = file.read(8)
        kind, size = struct.unpack(f"{order}II", tag) if len(tag) == 8 else (0, end)
        if size > end - place - 8:
            raise ValueError(_ENDS)
        place += 8 + size
        if kind == _COMPRESSED:
            packed = file.read(size)
            head = memoryview(zlib.decompressobj().decompress(packed, _HEAD))
            kind, size = struct.unpack(f"{order}II", head[:8]) if len(head) >= 8 else (0, 0)
            head = head[8:]
        else:
            packed, head = b"", memoryview(file.read(min(size, _HEAD)))
        if kind != _MATRIX:
            raise ValueError(f"it holds an element of the unknown type {kind}")
        name = _Header.of(head, order).name
        if not name or (keys is not None and name not in keys):
            continue
        check_memory(size)
        if packed:
            data = _inflated(packed, size)
        else:
            data = bytearray(size)
            file.seek(place - size)
            if file.readinto(data) != size:  # type: ignore[attr-defined]
                raise ValueError(_ENDS)
        value = _matrix(memoryview(data), order)
        if value is not None:
            yield name, value
            continue
        what, remedy = f"the variable {name!r} is neither numbers nor text", "save it as a matrix or as cells of text"
        if keys is not None:
            raise ValueError(f"{what}; {remedy}")
        log.warning("%s: %s and is not read; %s.", file.name, what, remedy)


def _inflated(packed: bytes, size: int) -> bytearray:
    """``size`` bytes that follow the tag in a compressed element, in place: a feature matrix may fill half the memory.

    The element is read to its end, where its checksum stands.
    """
    out, at, machine, rest = bytearray(size), -8, zlib.decompressobj(), packed
    while not machine.eof:
        piece = machine.decompress(rest, 2**20)
        rest = machine.unconsumed_tail
        if at + len(piece) > size + 8 or not (piece or rest or machine.eof):
            raise ValueError(_ENDS)
        cut = max(-at, 0)
        if at + len(piece) > 0:
            out[max(at, 0) : at + len(piece)] = piece[cut:][: size - max(at, 0)]
        at += len(piece)
    if at < size:
        raise ValueError(_ENDS)
    return out


class _Header(NamedTuple):
    """What stands before a variable's values."""

    kind: int
    is_complex: bool
    shape: tuple[int, ...]
    name: str
    rest: memoryview

    @classmethod
    def of(cls, data: memoryview, order: str) -> _Header:
        flags = _element(data, order)
        dimensions = _element(flags.rest, order)
        name = _element(dimensions.rest, order)
        if len(flags.data) != 8 or len(dimensions.data) % 4 or not 8 <= len(dimensions.data) <= 128:
            raise ValueError("a variable has no shape")
        word = struct.unpack(f"{order}I", flags.data[:4])[0]
        shape = struct.unpack(f"{order}{len(dimensions.data) // 4}i", dimensions.data)
        if min(shape) < 0:
            raise ValueError(f"a variable has the shape {shape}")
        return cls(word & 0xFF, bool(word & 0x800), shape, bytes(name.data).decode("ascii"), name.rest)


def _matrix(data: memoryview, order: str, depth: int = 0) -> Array | None:
    """A variable of numbers or text; None for another kind (structures, functions)."""
    header = _Header.of(data, order)
    kind, shape, n = header.kind, header.shape, math.prod(header.shape)
    if kind == _CELL:
        return _cells(header, n, order, depth)
    if kind == _CHARACTERS:
        return _characters(header, n, order)
    if kind == _SPARSE:
        return _full(header, order)
    if kind not in _NUMERIC:
        return None
    values, rest = _numbers(header.rest, order)
    if len(values) != n:
        raise ValueError(f"a variable of the shape {shape} has {len(values)} values")
    if header.is_complex:
        imaginary, _ = _numbers(rest, order)
        values = values + 1j * imaginary
    return values.reshape(shape, order="F")


def _numbers(data: memoryview, order: str) -> tuple[Array, memoryview]:
    found = _element(data, order)
    if found.kind not in _NUMBERS:
        raise ValueError(f"it holds numbers of the unknown type {found.kind}")
    return np.frombuffer(found.data, np.dtype(order + _NUMBERS[found.kind])), found.rest


def _cells(header: _Header, n: int, order: str, depth: int) -> Array:
    """The text of each cell; of numbers, the first."""
    if 8 * n > len(header.rest) or depth > 3:
        raise ValueError(f"a cell array of the shape {header.shape} has {len(header.rest)} bytes")
    texts, rest = [], header.rest
    for _ in range(n):
        cell = _element(rest, order)
        rest = cell.rest
        value = _matrix(cell.data, order, depth + 1) if cell.data else None
        texts.append(str(value.ravel()[0]) if value is not None and value.size else "")
    return np.array(texts, dtype=str).reshape(header.shape, order="F").ravel()


def _characters(header: _Header, n: int, order: str) -> Array:
    """Each row of a character matrix as one text."""
    if not n:
        return np.empty(0, "U1")
    found = _element(header.rest, order)
    codec = _LETTERS.get(found.kind)
    if codec is None:
        raise ValueError(f"it holds text of the unknown type {found.kind}")
    text = bytes(found.data).decode(codec if codec == "utf-8" else codec + ("-le" if order == "<" else "-be"))
    if header.shape[0] == 1:
        return np.array([text])
    if len(text) != n:
        raise ValueError(f"a character matrix of the shape {header.shape} has {len(text)} letters")
    return np.array(["".join(row) for row in np.array(list(text)).reshape(header.shape[0], -1, order="F")])


def _full(header: _Header, order: str) -> Array:
    """A sparse matrix as a full one."""
    check_memory(8 * math.prod(header.shape))
    rows, rest = _numbers(header.rest, order)
    starts, rest = _numbers(rest, order)
    values, _ = _numbers(rest, order)
    counts = np.diff(starts)
    out = np.zeros(header.shape, values.dtype)
    n = int(starts[-1]) if len(starts) else -1
    fits = len(header.shape) == 2 and len(counts) == header.shape[1] and (counts >= 0).all() and counts.sum() == n
    if not fits or n > min(len(rows), len(values)) or ((rows < 0) | (rows >= header.shape[0]))[:n].any():
        raise ValueError("a sparse matrix names values outside of it")
    out[rows[:n], np.repeat(np.arange(len(counts)), counts)] = values[:n]
    return out


def _variables_4(file: BinaryIO) -> Iterator[tuple[str, Array]]:
    """Version 4: a header of five numbers, the name and the values, for each variable."""
    end = os.fstat(file.fileno()).st_size
    while file.tell() < end:
        head = file.read(20)
        if len(head) < 20:
            raise ValueError(_ENDS)
        order = "<" if 0 <= struct.unpack("<i", head[:4])[0] < 5000 else ">"
        code, rows, columns, imaginary, length = struct.unpack(f"{order}5i", head)
        kind, what = code // 10 % 100, code % 10
        if not 0 <= code < 5000 or kind >= len(_NUMBERS_4) or what > 1 or min(rows, columns, length) < 0:
            raise ValueError("it does not begin as one")
        name = file.read(length).rstrip(b"\0").decode("ascii")
        dtype = np.dtype(order + _NUMBERS_4[kind])
        size = rows * columns * dtype.itemsize
        if imaginary or size > end - file.tell():
            raise ValueError(_ENDS)
        values = np.frombuffer(bytearray(file.read(size)), dtype).reshape(rows, columns, order="F")
        yield name, values if what == 0 else np.array(["".join(map(chr, row.astype(int))) for row in values])


def _read_hdf5(path: Path, keys: list[str] | None) -> dict[str, Array]:
    """MATLAB v7.3: dimensions come reversed, strings as uint16 character codes behind references."""
    import h5py

    def own(item: Any) -> Any:
        if item.external or item.is_virtual:
            raise ValueError(f"{item.name} lies in another file, which is not read; store its values in this one")
        check_memory(item.size * item.dtype.itemsize)
        return item[()]

    def letters(codes: Any) -> str:
        return np.asarray(codes).ravel().astype("<u2", casting="same_kind").tobytes().decode("utf-16-le")

    def value_of(item: Any) -> Array:
        if h5py.check_ref_dtype(item.dtype):
            return np.array([letters(own(f[ref])) if ref else "" for ref in np.ravel(own(item))])
        value = own(item)
        if h5py.check_string_dtype(item.dtype):  # as h5py and other programs than MATLAB write text
            return np.array([v.decode("utf-8") if isinstance(v, bytes) else str(v) for v in np.ravel(value)])
        value = np.asarray(value).T
        if item.attrs.get("MATLAB_class") in (b"char", "char"):  # a character matrix: each row a name, blanks after it
            return np.array([letters(row).strip() for row in np.atleast_2d(value)])
        return value

    found = {}
    with h5py.File(path, "r") as f:
        for name in f:
            if name.startswith("#") or (keys is not None and name not in keys):
                continue
            if not isinstance(f.get(name, getlink=True), h5py.HardLink):
                raise ValueError(f"{name} is a link, which is not followed; store the values themselves")
            if isinstance(f[name], h5py.Dataset):
                found[name] = value_of(f[name])
    return found
