"""The cache of large files: read instead of made, made again when a source changes or an entry is damaged."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.io import savemat

from archives import write_awa, write_xlsa17
from zsl.data import cache
from zsl.data.cache import Folder
from zsl.data.readers import awa, tabular, xlsa17


@pytest.fixture(autouse=True)
def _cache_everything(monkeypatch):
    monkeypatch.setattr(cache, "_WORTH_CACHING", 0)


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "data" / "f.txt"
    path.parent.mkdir()
    path.write_text("1 2\n3 4\n")
    return path


class Load:
    """Reads a file through the cache and counts how often it is parsed."""

    def __init__(self, path: Path, where: str | None = None) -> None:
        self.path, self.where, self.calls = path, where, 0

    def __call__(self) -> list:
        def make():
            self.calls += 1
            return {"features": np.loadtxt(self.path, dtype=np.float32, ndmin=2), "names": np.array(["a", "ü"])}

        folder = Folder(self.path.parent, self.where)
        found = folder.cached("f", [self.path], make)
        assert folder.files == {"f.txt": cache.file_hash(self.path)[:16]}
        assert found["names"].tolist() == ["a", "ü"]
        return found["features"].tolist()


def test_made_once_and_again_only_when_the_content_changes(source):
    load = Load(source)
    for _ in range(2):
        assert load() == [[1, 2], [3, 4]]
    os.utime(source, (1, 1))  # another time, the same content
    load()
    assert load.calls == 1
    time_of = source.stat().st_mtime_ns
    source.write_text("5 6\n7 8\n")  # another content of the same size and time
    os.utime(source, ns=(time_of, time_of))
    assert load() == [[5, 6], [7, 8]]
    assert load.calls == 2
    assert len(list((source.parent / ".zsl-cache").iterdir())) == 1  # older entries are gone


@pytest.mark.parametrize("damage", ["truncated", "empty", "other", "value", "pickle"])
def test_a_damaged_entry_is_made_again(source, caplog, damage):
    load = Load(source)
    load()
    entry = next((source.parent / ".zsl-cache").glob("*.npz"))
    content = entry.read_bytes()
    at = content.index(np.float32([1, 2, 3, 4]).tobytes())
    if damage == "pickle":
        np.savez(entry, features=np.array([print], dtype=object))
    else:
        entry.write_bytes({
            "truncated": content[:-40], "empty": b"", "other": b"x" * len(content),
            "value": content[:at] + b"\x01" + content[at + 1 :],
        }[damage])  # fmt: skip
    for _ in range(2):
        assert load() == [[1, 2], [3, 4]]
    assert load.calls == 2
    assert "is damaged" in caplog.text


def test_where_the_cache_goes(source, tmp_path, caplog):
    Load(source, "off")()
    Load(source, str(tmp_path / "elsewhere"))()
    assert not (source.parent / ".zsl-cache").exists()
    assert list((tmp_path / "elsewhere").glob("data-*/f-*.npz"))
    (tmp_path / "file").write_text("")
    assert Load(source, str(tmp_path / "file"))() == [[1, 2], [3, 4]]
    assert "set cache_dir=FOLDER" in caplog.text


def test_small_files_are_not_cached(source, monkeypatch):
    monkeypatch.setattr(cache, "_WORTH_CACHING", 1000)
    load = Load(source)
    load()
    load()
    assert load.calls == 2
    assert not (source.parent / ".zsl-cache").exists()


def test_a_source_that_changes_while_it_is_read_is_not_kept(source):
    def make():
        source.write_text("9 9\n")
        return {"features": np.zeros(1)}

    Folder(source.parent).cached("f", [source], make)
    assert not (source.parent / ".zsl-cache").exists()


def test_a_killed_build_leaves_nothing_behind(source, monkeypatch):
    def interrupted(path, **_):
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Load(source)()
    assert not any((source.parent / ".zsl-cache").iterdir())


def _build(root: str, barrier, results) -> None:
    barrier.wait()
    for _ in range(5):
        results.put(float(np.asarray(awa.load(root).features, np.float64).sum()))
        for entry in (Path(root) / ".zsl-cache").glob("*.npz"):
            entry.unlink(missing_ok=True)


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


def test_two_readers_of_one_file_do_not_share_an_entry(tmp_path):
    stored = write_xlsa17(tmp_path)
    names = np.array(["a", "b", "c", "d", "e", "f"])
    np.savez(tmp_path / "own.npz", features=stored["features"], labels=stored["labels"] + 1, class_names=names)
    (tmp_path / "c.csv").write_text("class,x\n" + "".join(f"{n},1\n" for n in names))
    (tmp_path / "allclasses.txt").write_text("\n".join(names))
    savemat(
        tmp_path / "att_splits.mat",
        {k: v for k, v in stored.items() if k not in {"labels", "features", "allclasses_names"}},
    )
    for _ in range(2):
        table = xlsa17.load(str(tmp_path), feature="own")
        assert_array_equal(table.features, stored["features"])
        assert set(table.provenance["files"]) == {"own.npz", "att_splits.mat", "allclasses.txt"}
        own = tabular.load("own.npz", attributes="c.csv", root=str(tmp_path))
        assert_array_equal(own.labels, stored["labels"])


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


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="peak memory is read from /proc, which is Linux's")
def test_peak_memory_of_an_awa2_sized_float64_file(tmp_path):
    n, d = 37322, 2048
    labels = np.arange(n) % 6
    loc = {key: np.flatnonzero(part)[:, None] + 1 for key, part in
           (("trainval_loc", labels < 4), ("test_unseen_loc", labels >= 4))}  # fmt: skip
    rows = np.random.default_rng(0).random((4, 6))
    write_xlsa17(tmp_path, {"labels": labels, "att": rows}, np.zeros((n, 1), np.float32), **loc)
    X = np.random.default_rng(0).random((d, n))  # stored as float64, as published files of that size are
    savemat(tmp_path / "res101.mat", {"features": X, "labels": labels[:, None] + 1.0})
    for where in ("off", str(tmp_path / "cache"), str(tmp_path / "cache")):
        command = [sys.executable, "-c", _PEAK, str(tmp_path), where]
        out = subprocess.run(command, capture_output=True, text=True, check=True)
        print(f"cache {where}: peak {float(out.stdout):.2f} times the float32 array")
        assert float(out.stdout) <= 3.5


@pytest.mark.long
def test_second_load_of_an_awa2_sized_text_archive_is_much_faster(tmp_path):
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
    assert seconds[0] >= 5 * min(seconds[1:])
