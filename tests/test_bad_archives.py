"""Archives that are damaged, too large or ask for more than their content; MATLAB files without scipy's reader."""

from __future__ import annotations

import struct
import tarfile
import zipfile

import h5py
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.io import loadmat, savemat
from scipy.sparse import csc_matrix

from archives import cells
from test_download import Handler, fetch, server, tarred, zipped  # noqa: F401
from zsl.data import cache, download
from zsl.data.cache import Folder
from zsl.data.readers.files import read_npy, read_npz
from zsl.data.readers.mat import read_mat
from zsl.errors import UserError

# --- MATLAB and NumPy ----------------------------------------------------------------------------------------------

VALUES = {
    "double": np.arange(6.0).reshape(2, 3),
    "bytes": np.arange(6).reshape(3, 2).astype(np.uint8),
    "cells": cells(["a", "größe", "狐🦓"]),
    "text": "hello",
    "rows": np.array(["ab ", "cde"]),
    "complex": np.array([[1 + 2j]]),
    "cube": np.ones((2, 3, 4)),
    "none": np.empty((0, 3)),
    "wide": np.arange(3, dtype=np.int64)[:, None],
}


@pytest.mark.parametrize("compressed", [False, True])
def test_version_5_is_read_as_scipy_reads_it(tmp_path, compressed):
    sparse = csc_matrix(np.diag([1.0, 0, 3]))
    savemat(tmp_path / "a.mat", {**VALUES, "sparse": sparse, "struct": {"a": 1}}, do_compression=compressed)
    found, expected = read_mat(tmp_path / "a.mat"), loadmat(tmp_path / "a.mat")
    assert found.keys() == {*VALUES, "sparse"}
    for name in VALUES:
        wanted = expected[name]
        wanted = wanted if wanted.dtype != object else np.array([cell.ravel()[0] for cell in wanted.ravel()])
        assert_array_equal(found[name], wanted, strict=True)
    assert_array_equal(found["sparse"], sparse.toarray())
    assert read_mat(tmp_path / "a.mat", ["text"]).keys() == {"text"}
    with pytest.raises(UserError, match="'struct' is neither numbers nor text; save it as a matrix"):
        read_mat(tmp_path / "a.mat", ["struct"])


def test_a_variable_that_is_not_read_is_named(tmp_path, caplog):
    savemat(tmp_path / "a.mat", {"x": np.ones((2, 2)), "allclasses_names": {"a": 1}})
    assert read_mat(tmp_path / "a.mat").keys() == {"x"}
    assert "'allclasses_names' is neither numbers nor text and is not read; save it as" in caplog.text


def test_version_5_of_the_other_byte_order(tmp_path):
    def element(kind, data):
        return struct.pack(">II", kind, len(data)) + data + bytes(-len(data) % 8)

    X = np.arange(6, dtype=">f8").reshape(2, 3)
    parts = (element(6, struct.pack(">II", 6, 0)), element(5, struct.pack(">ii", 2, 3)), element(1, b"x"))
    variable = element(14, b"".join(parts) + element(9, X.tobytes(order="F")))
    (tmp_path / "a.mat").write_bytes(b"MATLAB 5.0 MAT-file".ljust(124) + b"\1\0MI" + variable)
    assert_array_equal(read_mat(tmp_path / "a.mat")["x"], loadmat(tmp_path / "a.mat")["x"])
    assert_array_equal(read_mat(tmp_path / "a.mat")["x"], X)


def test_version_4_is_read(tmp_path):
    savemat(tmp_path / "a.mat", {k: VALUES[k] for k in ("double", "bytes", "text")}, format="4")
    assert_array_equal(read_mat(tmp_path / "a.mat")["double"], VALUES["double"])
    assert read_mat(tmp_path / "a.mat")["text"].tolist() == ["hello"]


@pytest.mark.parametrize("shape", [(-7, 60), (2**31 - 1, 2**31 - 1), (8, 60), (0, 60)])
def test_shapes_that_do_not_fit_the_values_are_damage(tmp_path, shape):
    savemat(tmp_path / "a.mat", {"features": np.ones((7, 60))})
    raw = (tmp_path / "a.mat").read_bytes()
    (tmp_path / "a.mat").write_bytes(raw.replace(struct.pack("<ii", 7, 60), struct.pack("<ii", *shape)))
    with pytest.raises(UserError, match=r"a variable (has|of) the shape"):
        read_mat(tmp_path / "a.mat")
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    array = b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + bytes(4)
    (tmp_path / "a.npy").write_bytes(array)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as z:
        z.writestr("features.npy", array)
    if 0 not in shape:  # nothing is there of nothing
        for read, file in ((read_npy, "a.npy"), (read_npz, "a.npz")):
            with pytest.raises(UserError, match="it says that it holds an array of the shape"):
                read(tmp_path / file)


def test_too_little_memory_is_not_called_damage(tmp_path, monkeypatch):
    monkeypatch.setattr("os.sysconf", lambda name: 40 if name == "SC_PHYS_PAGES" else 1)
    X = np.ones((9, 5), np.float32)
    np.savez(tmp_path / "a.npz", features=X)
    np.save(tmp_path / "a.npy", X)
    savemat(tmp_path / "a.mat", {"features": X})
    with h5py.File(tmp_path / "b.mat", "w") as f:
        f["features"] = X
    for read, file in ((read_npz, "a.npz"), (read_npy, "a.npy"), (read_mat, "a.mat"), (read_mat, "b.mat")):
        with pytest.raises(UserError, match=r"does not fit into memory .*as float32\.$") as refused:
            read(tmp_path / file)
        assert "download" not in str(refused.value)


def _virtual(f, other):
    layout = h5py.VirtualLayout((3, 2), "f8")
    layout[:] = h5py.VirtualSource(other, "features", (3, 2))
    f.create_virtual_dataset("features", layout)


@pytest.mark.parametrize(
    "make",
    [
        lambda f, other: f.__setitem__("features", h5py.ExternalLink(other, "/features")),
        lambda f, other: f.__setitem__("features", h5py.SoftLink("/elsewhere")),
        lambda f, other: f.create_dataset("features", (3, 2), "f8", external=[(other, 0, h5py.h5f.UNLIMITED)]),
        _virtual,
    ],
    ids=["link", "soft link", "storage", "virtual"],
)
def test_version_73_fetches_nothing_from_elsewhere(tmp_path, make):
    with h5py.File(tmp_path / "other.mat", "w") as f:
        f["features"] = np.ones((3, 2))
    with h5py.File(tmp_path / "a.mat", "w") as f:
        make(f, str(tmp_path / "other.mat"))
    with pytest.raises(UserError, match=r"(is a link|in another file), which is not (followed|read); store"):
        read_mat(tmp_path / "a.mat")


# --- downloads -----------------------------------------------------------------------------------------------------


def test_only_https_is_trusted_on_the_way(server, tmp_path, monkeypatch):  # noqa: F811
    for url in ("http://example.org/a.zip", "http://127.0.0.1.example.org/a.zip"):
        with pytest.raises(UserError, match=r"is not protected by https, .*give an address of https with --url"):
            download.download("awa2", tmp_path, url=url, known_hash="0" * 64)
    elsewhere = "http://example.org/archive.zip"
    monkeypatch.setattr(download, "urljoin", lambda *_: elsewhere)
    with pytest.raises(UserError, match=f"{elsewhere} is not protected by https"):
        fetch(f"{server}/moved/archive.zip", tmp_path)
    assert not any((tmp_path / "downloads").iterdir())


@pytest.mark.parametrize("pack", [zipped, tarred])
@pytest.mark.parametrize(("limit", "value"), [("_FREE", 1000), ("_MEMBERS", 2)])
def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch, pack, limit, value):
    content = {f"d/{i}.txt": bytes(300_000) for i in range(3)}
    if pack is zipped:
        with zipfile.ZipFile(tmp_path / "a", "w", zipfile.ZIP_DEFLATED) as z:
            for name, text in content.items():
                z.writestr(name, text)
    else:
        (tmp_path / "a").write_bytes(tarred(content))
    monkeypatch.setattr(download, limit, value)
    monkeypatch.setattr(download, "_RATIO", 200 if limit == "_FREE" else 10_000)
    with pytest.raises(UserError, match=r"unpacks to \d files and .*unpack it by hand if you trust it"):
        download.unpack(tmp_path / "a", tmp_path / "out")
    assert not any((tmp_path / "out").iterdir())
    with tarfile.open(tmp_path / "a") if pack is tarred else zipfile.ZipFile(tmp_path / "a") as by_hand:
        by_hand.extractall(tmp_path / "hand")
    assert len(list((tmp_path / "hand" / "d").iterdir())) == 3


def test_an_archive_of_nothing_is_refused(tmp_path):
    (tmp_path / "a.zip").write_bytes(zipped({}))
    with pytest.raises(UserError, match="holds no file; remove it and run this again"):
        download.unpack(tmp_path / "a.zip", tmp_path / "out")


# --- the cache -----------------------------------------------------------------------------------------------------


def test_a_cache_entry_without_its_arrays_is_made_again(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "_WORTH_CACHING", 0)
    (tmp_path / "a.txt").write_text("1")

    def read():
        return Folder(tmp_path).cached("a", [tmp_path / "a.txt"], lambda: {"a": np.ones(3), "b": np.ones(2)})

    assert read().keys() == {"a", "b"}
    entry = next((tmp_path / ".zsl-cache").iterdir())
    for kept in ([], ["a.npy"]):
        with zipfile.ZipFile(entry) as z:
            arrays = {name: z.read(name) for name in z.namelist() if name in kept or "names" in name}
        with zipfile.ZipFile(entry, "w") as z:
            for name, content in arrays.items():
                z.writestr(name, content)
        assert read().keys() == {"a", "b"}
