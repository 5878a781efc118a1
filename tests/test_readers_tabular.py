"""Your own data: arrays or tables, labels by name, and a CSV of class attributes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import zsl
from archives import features_for
from zsl.data import splits, tabular
from zsl.data.dataset import ZeroShotData
from zsl.data.tabular import read_class_csv, write_class_csv
from zsl.errors import UserError

NAMES = ("cat", "dog", "giraffe+tall", "owl")
CSV = "class,legs,wings\ncat,4,0\ndog,4,\ngiraffe+tall,4,0\nowl,2,2\n"


@pytest.fixture
def own(tmp_path):
    labels = np.repeat(np.arange(4), 6)
    X = features_for(labels, 5)
    (tmp_path / "classes.csv").write_text(CSV)
    names = np.array(NAMES)[labels]
    files = np.array([f"{n}/{i}.jpg" for i, n in enumerate(names)])
    np.savez(tmp_path / "own.npz", features=X, labels=names, files=files)
    return tmp_path, X, labels, names


def load(folder, features="own.npz", **changes):
    return tabular.load(features, attributes=changes.pop("attributes", "classes.csv"), root=str(folder), **changes)


def test_every_format_gives_the_same_table(own):
    folder, X, labels, names = own
    frame = pd.DataFrame(X.astype(np.float64)).assign(Class=names, file=[f"{n}/{i}.jpg" for i, n in enumerate(names)])
    frame.to_csv(folder / "own.csv", index=False)
    np.save(folder / "own.npy", X.astype(np.float64))
    (folder / "labels.txt").write_text("\n".join(names) + "\n")
    np.savez(folder / "numbers.npz", features=X, labels=labels + 1, class_names=np.array(NAMES))
    np.save(folder / "labels.npy", names)
    forms = {"own.npz": {}, "own.csv": {}, "own.npy": {"labels": "labels.txt"}, "numbers.npz": {}}
    for file, more in {**forms, "own.npy ": {"labels": "labels.npy"}}.items():
        table = load(folder, file.strip(), **more)
        assert_allclose(table.features, X, rtol=1e-6)
        assert_array_equal(table.labels, labels)
        assert table.class_names == NAMES
        assert table.attribute_names == ("legs", "wings")
    assert load(folder, "own.csv").image_names == load(folder).image_names


def test_parquet(own):
    pytest.importorskip("pyarrow", reason="pandas reads parquet with pyarrow, which comes with mlflow")
    folder, X, _, names = own
    pd.DataFrame(X).rename(columns=str).assign(label=names).to_parquet(folder / "own.parquet")
    assert_array_equal(load(folder, "own.parquet").features, X)


def test_an_empty_field_is_missing(own):
    folder, _, _, _ = own
    table = load(folder, unseen=None)
    assert table.missing is not None
    assert_array_equal(np.argwhere(table.missing), [[1, 1]])


def test_unseen_file_makes_the_proposed_split_and_a_near_miss_is_named(own):
    folder, _, _, _ = own
    (folder / "unseen.txt").write_text("# to find\nowl\n")
    data = zsl.load_dataset(
        "tabular", split="proposed", root=folder, features="own.npz", attributes="classes.csv", unseen="unseen.txt"
    )
    assert data.unseen_names == ["owl"]
    assert data.names_unseen[0] == "owl/18.jpg"
    (folder / "unseen.txt").write_text("giraffe tall\n")
    with pytest.raises(UserError, match=r"'giraffe tall' is not a class .*did you mean 'giraffe\+tall'"):
        load(folder, unseen="unseen.txt")


def test_image_level_attributes_by_file_name(own):
    folder, X, _, _ = own
    table = load(folder)
    rows = np.arange(2.0 * len(X)).reshape(-1, 2)
    order = np.random.default_rng(0).permutation(len(X))
    write_class_csv(folder / "images.csv", [table.image_names[i] for i in order], ["a", "b"], rows[order])
    found = load(folder, attributes="images.csv")
    assert_array_equal(found.image_attributes, rows)


def test_unlabelled_images_are_test_images(own):
    folder, X, _, names = own
    unknown = names.copy()
    unknown[18:] = ""
    np.savez(folder / "own.npz", features=X, labels=unknown)
    table = load(folder)
    assert_array_equal(table.labels[18:], -1)
    data = ZeroShotData.from_table(table, table.splits["proposed"])
    assert data.unseen_names == ["owl"]
    assert_array_equal(data.y_unseen, np.full(6, -1))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is empty"),
        ("class\ncat\n", "needs a header, names and numbers"),
        ("class,a\ncat,1\ncat,2\n", "'cat' occurs more than once"),
        ("class,a\ncat,1,2\n", "row 2 has 3 fields where the header has 2"),
        ("class,a\ncat,four\n", "'a' of 'cat' is 'four', which is not a number"),
        ("class,a\n,1\n", "row 2 has no name"),
        ("class,a\ncat,inf\n", "attribute 1 of class 1 is inf"),
        ("class,a\ncat,1\ndgo,1\nowl,1\ngiraffe+tall,2\n", r"no row for the class 'dog'.*did you mean 'dgo'"),
    ],
)
def test_a_wrong_attribute_table_is_refused_with_a_sentence(own, text, sentence):
    folder, *_ = own
    (folder / "classes.csv").write_text(text)
    with pytest.raises(UserError, match=sentence):
        load(folder)


def test_a_semicolon_csv_with_a_byte_order_mark(tmp_path):
    (tmp_path / "c.csv").write_bytes(b"\xef\xbb\xbfclass;a\ncat;1\n")
    assert read_class_csv(tmp_path / "c.csv")[:2] == (("cat",), ("a",))


def test_wrong_features_are_refused_with_a_sentence(own):
    folder, X, labels, names = own
    with pytest.raises(UserError, match=r"dataset\.features=no\.npz: there is no file"):
        load(folder, "no.npz")
    np.save(folder / "own.npy", X)
    with pytest.raises(UserError, match=r"holds no labels.*dataset\.labels=FILE"):
        load(folder, "own.npy")
    (folder / "labels.txt").write_text("cat\n")
    with pytest.raises(UserError, match="1 labels for 24 rows"):
        load(folder, "own.npy", labels="labels.txt")
    np.savez(folder / "own.npz", features=X, labels=labels)
    with pytest.raises(UserError, match="labels are numbers and there are no 'class_names'"):
        load(folder)
    np.savez(folder / "own.npz", features=X.astype(object), labels=names)
    with pytest.raises(UserError, match="'features' holds Python objects, which are not read"):
        load(folder)
    pd.DataFrame({"label": names, "note": names, "x": 1.0}).to_csv(folder / "own.csv", index=False)
    with pytest.raises(UserError, match="the column 'note' is neither a number nor called label or file"):
        load(folder, "own.csv")
    (folder / "own.txt").write_text("1 2\n")
    with pytest.raises(UserError, match=r"\.npz, \.npy, \.csv or \.parquet"):
        load(folder, "own.txt")


def test_a_run_predicts_images_of_unknown_class(own, tmp_path):
    from zsl.config import compose
    from zsl.experiment import run

    folder, X, _, names = own
    unknown = names.copy()
    unknown[18:] = "unlabelled"
    np.savez(folder / "own.npz", features=X, labels=unknown, files=np.array([f"{i}.jpg" for i in range(24)]))
    arguments = ["dataset=tabular", f"dataset.root={folder}", "dataset.features=own.npz",
                 "dataset.attributes=classes.csv", "inference=aag", "tracking=none"]  # fmt: skip
    result = run(compose(arguments), tmp_path / "run")
    assert "acc_class" not in result.metrics  # nothing is known that could be counted
    lines = (tmp_path / "run" / "predictions.csv").read_text().splitlines()
    assert lines[0] == "file,predicted,true"
    assert lines[1:] == [f"{i}.jpg,owl," for i in range(18, 24)]
    assert result.key["dataset"]["semantics"]["missing"]["values"] == 1


def test_image_level_attributes_reach_the_validation_folds(own):
    from zsl.tuning import fold

    folder, X, _, _ = own
    table = load(folder)
    rows = np.random.default_rng(0).random((len(X), 3))
    write_class_csv(folder / "images.csv", table.image_names, ["a", "b", "c"], rows)
    found = load(folder, attributes="images.csv")
    data = ZeroShotData.from_table(found, splits.random(found, n_unseen=1))
    inner = fold(data, np.array([0]))
    assert data.Z_images is not None
    assert_array_equal(inner.Z, data.Z_images[data.y != 0])
