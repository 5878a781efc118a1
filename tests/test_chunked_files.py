"""Features in files that are read and written in chunks of rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

from zsl import UserError
from zsl.data.readers.chunked import open_features, read_names
from zsl.predict.evaluation import true_classes

da = pytest.importorskip("dask.array", reason="Dask is not installed: pip install -e '.[dask]'")


def test_features_are_opened_from_every_kind_of_file(tmp_path):
    import h5py
    import zarr

    X = np.random.default_rng(0).normal(size=(50, 6)).astype(np.float32)
    np.save(tmp_path / "one.npy", X)
    folder = tmp_path / "parts"
    folder.mkdir()
    np.save(folder / "a.npy", X[:20])
    np.save(folder / "b.npy", X[20:])
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["features"] = X
    group = zarr.open_group(tmp_path / "x.zarr", mode="w", zarr_format=2)
    group.create_array("features", data=X, chunks=(16, 6))
    group.create_array("labels", data=np.arange(50) % 2 + 1)
    group.create_array("class_names", data=np.array(["cat", "dog"]))
    pd.DataFrame(X, columns=list("abcdef")).assign(label="cat").to_parquet(tmp_path / "x.parquet")
    for name in ("one.npy", "parts", "x.h5", "x.zarr", "x.parquet"):
        opened = open_features(tmp_path / name, rows=16)
        assert isinstance(opened, da.Array), name
        assert_array_equal(opened.compute(), X, err_msg=name)
    assert read_names(tmp_path / "x.zarr").tolist() == ["cat", "dog"] * 25
    # Labels that count from 0 gave images of the first class the name of the last one.
    group["labels"][:] -= 1
    with pytest.raises(UserError, match="labels must be whole numbers from 1 to 2, the number of class_names"):
        read_names(tmp_path / "x.zarr")
    zarr.create_array(tmp_path / "bare.zarr", data=X)
    assert_array_equal(open_features(tmp_path / "bare.zarr").compute(), X)
    assert read_names(tmp_path / "bare.zarr") is None
    zarr.create_array(tmp_path / "numbers.zarr" / "labels", data=np.array([7, 9]))
    zarr.open_group(tmp_path / "numbers.zarr", mode="a")
    assert read_names(tmp_path / "numbers.zarr").tolist() == ["7", "9"]
    (tmp_path / "empty").mkdir()
    for name, message in (("nothing", "there is no file"), ("empty", "none of the kinds")):
        with pytest.raises(UserError, match=message):
            open_features(tmp_path / name)
    for name, message in (("x.h5", "it has: features"), ("x.zarr", "it has: class_names, features, labels")):
        with pytest.raises(UserError, match=f"{name} has no array 'nope'; {message}"):
            open_features(tmp_path / name, dataset="nope")
    for wrong in ("features/x", "nope/x", "/"):
        with pytest.raises(UserError, match="has no array"):
            open_features(tmp_path / "x.h5", dataset=wrong)
    with pytest.raises(UserError, match="rows=0 is not accepted"):
        open_features(tmp_path / "one.npy", rows=0)
    with pytest.raises(UserError, match="only these have class names"):
        read_names(tmp_path / "one.npy")
    (tmp_path / "bad.h5").write_bytes(b"no")
    with pytest.raises(UserError, match=r"bad\.h5"):
        open_features(tmp_path / "bad.h5")


def test_prediction_reads_a_zarr_folder(tmp_path):
    import zarr

    from zsl.data.readers.tabular import read_features

    group = zarr.open_group(tmp_path / "x.zarr", mode="w", zarr_format=2)
    group.create_array("features", data=np.eye(3, dtype=np.float32))
    group.create_array("files", data=np.array(["a", "b", "c"]))
    group.create_array("labels", data=np.array(["cat", "dog", "cat"]))
    X, files, _ = read_features(tmp_path / "x.zarr")
    assert_array_equal(X, np.eye(3))
    assert files == ("a", "b", "c")
    assert true_classes(tmp_path / "x.zarr", files) == ["cat", "dog", "cat"]


@pytest.mark.parametrize("rows", [4, 7, 100])
def test_features_are_written_to_zarr_chunk_by_chunk(tmp_path, monkeypatch, rows):
    import zarr

    from zsl.extract import __main__ as extract

    monkeypatch.setattr(extract, "_CHUNK_ROWS", rows)
    X = np.random.default_rng(0).normal(size=(23, 5)).astype(np.float32)
    batches = (X[i : i + 5] for i in range(0, 23, 5))
    labels = {"labels": np.arange(23) % 2 + 1, "class_names": np.array(["cat", "dog"]), "skipped": np.array([], str)}
    extract.write_zarr(tmp_path / "x.zarr", X.shape, batches, labels)
    opened = open_features(tmp_path / "x.zarr")
    assert opened.chunks[0][0] == min(rows, 23)
    assert_array_equal(opened.compute(), X)
    assert read_names(tmp_path / "x.zarr").tolist() == (["cat", "dog"] * 12)[:23]
    assert "skipped" not in zarr.open_group(tmp_path / "x.zarr", mode="r")
