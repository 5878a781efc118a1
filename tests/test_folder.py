"""The cache of large files: hit, rebuilt when a source changes, never corrupt, memory-mapped."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from archives import write_awa, write_xlsa17
from zsl.data import cache as folder
from zsl.data.cache import Folder
from zsl.data.readers import awa, xlsa17


@pytest.fixture(autouse=True)
def _cache_everything(monkeypatch):
    monkeypatch.setattr(folder, "_WORTH_CACHING", 0)


def make_from(path: Path, calls: list[int]):
    def make():
        calls.append(1)
        return {"features": np.loadtxt(path, dtype=np.float32, ndmin=2), "names": np.array(["a", "ü"])}

    return make


def test_second_load_maps_the_first_one_and_makes_nothing(tmp_path):
    source = tmp_path / "f.txt"
    source.write_text("1 2\n3 4\n")
    calls: list[int] = []
    first = Folder(tmp_path).cached("f", [source], make_from(source, calls))
    used = Folder(tmp_path)
    second = used.cached("f", [source], make_from(source, calls))
    assert len(calls) == 1
    assert_array_equal(second["features"], [[1, 2], [3, 4]])
    assert isinstance(second["features"], np.memmap)
    assert second["names"].tolist() == ["a", "ü"]
    assert used.files == {"f.txt": folder.file_hash(source)[:16]}
    with pytest.raises(ValueError, match="read-only"):
        first["features"][0, 0] = 5


def test_rebuilt_when_a_source_changes_and_only_then(tmp_path):
    source = tmp_path / "f.txt"
    source.write_text("1 2\n3 4\n")
    calls: list[int] = []
    load = lambda: Folder(tmp_path).cached("f", [source], make_from(source, calls))["features"]  # noqa: E731
    load()
    os.utime(source, (1, 1))  # touched, same content: the hash decides, and the new time is noted
    load()
    assert len(calls) == 1
    assert json.loads((tmp_path / ".zsl-cache/f.json").read_text())["sources"][0]["mtime_ns"] == 10**9
    source.write_text("5 6\n7 8\n")  # same size, other content
    assert_array_equal(load(), [[5, 6], [7, 8]])
    source.write_text("5 6\n7 8\n9 9\n")
    assert len(load()) == 3
    assert len(calls) == 3
    assert len(list((tmp_path / ".zsl-cache").glob("*.npy"))) == 2  # arrays of older versions are gone


@pytest.mark.parametrize("damage", ["index", "truncated", "gone", "other", "format", "values", "no arrays", "null"])
def test_a_damaged_entry_is_made_again(tmp_path, damage):
    source = tmp_path / "f.txt"
    source.write_text("1 2\n3 4\n")
    calls: list[int] = []
    load = lambda: Folder(tmp_path).cached("f", [source], make_from(source, calls))["features"]  # noqa: E731
    load()
    index, array = tmp_path / ".zsl-cache/f.json", next((tmp_path / ".zsl-cache").glob("f-features-*.npy"))
    if damage == "index":
        index.write_text("{")
    elif damage == "truncated":
        array.write_bytes(array.read_bytes()[:-4])
    elif damage == "gone":
        array.unlink()
    elif damage == "other":
        array.write_bytes(b"x" * array.stat().st_size)
    elif damage == "values":
        array.write_bytes(array.read_bytes()[:-4] + b"\x00\x00\xc0\x7f")  # a NaN in place of a number
    elif damage in {"no arrays", "null"}:
        said = {**json.loads(index.read_text()), "arrays": {} if damage == "no arrays" else None}
        index.write_text(json.dumps(said))
    else:
        index.write_text(index.read_text().replace('"format": 2', '"format": 1'))
    assert_array_equal(load(), [[1, 2], [3, 4]])
    assert len(calls) == 2
    load()
    assert len(calls) == 2


def _build(root: str, barrier, results) -> None:
    folder._WORTH_CACHING = 0
    barrier.wait()
    for _ in range(5):
        X = awa.load(root).features
        results.put(float(np.asarray(X, np.float64).sum()))
        (Path(root) / ".zsl-cache" / "ResNet101-AwA2-features.json").unlink(missing_ok=True)


def test_processes_that_build_at_once_all_get_the_right_arrays(tmp_path):
    expected = float(write_awa(tmp_path, per_class=50)["features"].astype(np.float64).sum())
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(4), context.Queue()
    workers = [context.Process(target=_build, args=(str(tmp_path), barrier, results)) for _ in range(4)]
    for worker in workers:
        worker.start()
    found = [results.get(timeout=60) for _ in range(20)]
    for worker in workers:
        worker.join()
    assert found == pytest.approx([expected] * 20)
    assert not list((tmp_path / ".zsl-cache").glob(".*"))  # no temporary file is left


def test_where_the_cache_goes(tmp_path, monkeypatch):
    source = tmp_path / "data" / "f.txt"
    source.parent.mkdir()
    source.write_text("1 2\n")
    load = lambda cache: Folder(source.parent, cache).cached("f", [source], make_from(source, []))["features"]  # noqa: E731
    load("off")
    assert not (source.parent / ".zsl-cache").exists()
    assert isinstance(load(str(tmp_path / "elsewhere")), np.memmap)
    assert not (source.parent / ".zsl-cache").exists()
    monkeypatch.setattr(folder.os, "access", lambda *_: False)  # as for a read-only folder
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    load(None)
    assert list((tmp_path / "home" / "zsl").glob("data-*/f.json"))
    (tmp_path / "file").write_text("")
    assert_array_equal(load(str(tmp_path / "file")), [[1, 2]])  # a cache that cannot be written is done without


def test_a_killed_build_leaves_nothing_that_could_be_read(tmp_path, monkeypatch):
    source = tmp_path / "f.txt"
    source.write_text("1 2\n")

    def interrupted(f, *_, **__):
        f.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(np.lib.format, "write_array", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Folder(tmp_path).cached("f", [source], make_from(source, []))
    assert not any((tmp_path / ".zsl-cache").iterdir())


def test_xlsa17_features_come_back_mapped_without_a_copy(tmp_path):
    stored = write_xlsa17(tmp_path)
    for _ in range(2):
        table = xlsa17.load(str(tmp_path))
        assert isinstance(table.features, np.memmap)
        assert table.features.dtype == np.float32
        assert_array_equal(table.features, stored["features"])
    assert set(table.provenance["files"]) == {"res101.mat", "att_splits.mat"}


# VmHWM, because ru_maxrss of a child starts at what its parent had.
_PEAK = """
import re, sys
from pathlib import Path
from zsl.data.readers import xlsa17
table = xlsa17.load(sys.argv[1], cache=sys.argv[2])
assert table.features.dtype.name == "float32"
peak = int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024
print(peak / table.features.nbytes)
"""


def write_large(folder_: Path, n: int, d: int) -> None:
    """``res101.mat`` stored as float64, as published files of that size are."""
    from scipy.io import savemat

    labels = np.arange(n) % 6
    loc = lambda mask: (np.flatnonzero(mask) + 1).astype(np.uint16)[:, None]  # noqa: E731
    write_xlsa17(
        folder_, {"labels": labels, "att": np.random.default_rng(0).random((4, 6))}, np.zeros((n, 1), np.float32),
        trainval_loc=loc(labels < 4), test_unseen_loc=loc(labels >= 4),
    )  # fmt: skip
    X = np.random.default_rng(0).random((d, n))
    savemat(folder_ / "res101.mat", {"features": X, "labels": labels[:, None] + 1.0})


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="peak memory is read from /proc, which is Linux's")
@pytest.mark.parametrize("cache", ["off", "on"])
def test_peak_memory_of_an_awa2_sized_float64_file(tmp_path, cache):
    write_large(tmp_path, 37322, 2048)
    where = "off" if cache == "off" else str(tmp_path / "cache")
    for _ in range(1 if cache == "off" else 2):
        out = subprocess.run(
            [sys.executable, "-c", _PEAK, str(tmp_path), where], capture_output=True, text=True, check=True
        )
        print(f"cache {cache}: peak {float(out.stdout):.2f} times the float32 array")
        assert float(out.stdout) <= 3.5


@pytest.mark.slow
def test_second_load_of_an_awa2_sized_text_archive_is_twenty_times_faster(tmp_path):
    write_awa(tmp_path, per_class=1)
    base = tmp_path / "Features" / "ResNet101"
    block = np.random.default_rng(0).random((622, 2048)).round(6)
    text = "".join(" ".join(map(str, row)) + "\n" for row in block)
    with (base / "AwA2-features.txt").open("w") as f:
        for _ in range(60):
            f.write(text)
    (base / "AwA2-labels.txt").write_text("".join(f"{i % 6 + 1}\n" for i in range(622 * 60)))
    (base / "AwA2-filenames.txt").unlink()
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        table = awa.load(str(tmp_path))
        seconds.append(time.perf_counter() - start)
    assert table.features.shape == (37320, 2048)
    print(f"first load {seconds[0]:.1f} s, then {seconds[1]:.2f} s and {seconds[2]:.2f} s")
    assert seconds[0] >= 20 * min(seconds[1:])
