"""Your own data: features in several formats, labels by name, a CSV of class attributes."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import zsl
from archives import features_for
from zsl.config import compose
from zsl.data.readers import tabular
from zsl.data.readers.tables import read_class_csv, write_class_csv
from zsl.data.signs import constant_attributes, equal_rows
from zsl.errors import UserError
from zsl.experiment.run import run

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


def written(folder, X, names, **more):
    """A CSV of the features, its columns called f0, f1, ..."""
    return pd.DataFrame(X, columns=[f"f{i}" for i in range(X.shape[1])]).assign(label=names, **more)


def test_every_format_gives_the_same_table(own):
    folder, X, labels, names = own
    frame = pd.DataFrame(X.astype(np.float64)).rename(columns=str)
    frame = frame.assign(Class=names, file=[f"{n}/{i}.jpg" for i, n in enumerate(names)])
    frame.to_csv(folder / "own.csv", index=False)
    frame.to_parquet(folder / "own.parquet")
    np.save(folder / "own.npy", X.astype(np.float64))
    (folder / "labels.txt").write_text("\n".join(names) + "\n")
    np.save(folder / "labels.npy", names)
    np.savez(folder / "numbers.npz", features=X, labels=labels + 1, class_names=np.array(NAMES))
    (folder / "own.npz").rename(folder / "OWN.NPZ")
    forms = [("OWN.NPZ", None), ("own.csv", None), ("own.parquet", None), ("numbers.npz", None)]
    for file, beside in [*forms, ("own.npy", "labels.txt"), ("own.npy", "labels.npy")]:
        table = load(folder, file, labels=beside)
        assert_allclose(table.features, X, rtol=1e-6)
        assert_array_equal(table.labels, labels)
        assert table.class_names == NAMES
        assert table.attribute_names == ("legs", "wings")
        assert_array_equal(np.argwhere(table.gaps), [[1, 1]])  # an empty field
        assert table.image_names[:1] == (("cat/0.jpg",) if file in {"OWN.NPZ", "own.csv", "own.parquet"} else ())


def test_unseen_file_makes_the_proposed_split_and_a_near_miss_is_named(own):
    folder, *_ = own
    (folder / "unseen.txt").write_text("# to find\nowl\n")
    data = zsl.load_dataset(
        "tabular", split="proposed", root=folder, features="own.npz", attributes="classes.csv", unseen="unseen.txt"
    )
    assert data.unseen_names == ["owl"]
    assert data.names_unseen[0] == "owl/18.jpg"
    (folder / "unseen.txt").write_text("giraffe tall\n")
    with pytest.raises(UserError, match=r"'giraffe tall' is not a class .*did you mean giraffe\+tall"):
        load(folder, unseen="unseen.txt")


def test_image_level_attributes_by_file_name(own):
    folder, X, _, _ = own
    rows = np.arange(2.0 * len(X)).reshape(-1, 2)
    order = np.random.default_rng(0).permutation(len(X))
    names = load(folder).image_names
    write_class_csv(folder / "images.csv", [names[i] for i in order], ["a", "b"], rows[order])
    found = load(folder, attributes="images.csv")
    assert_array_equal(found.image_attributes, rows)
    assert found.semantics == "image"


@pytest.mark.parametrize("named", [True, False])
def test_images_of_unknown_class_are_predicted_by_a_run(own, tmp_path, named):
    folder, X, _, names = own
    unknown = np.where(np.arange(24) < 18, names, "unlabelled" if named else "")
    files = {"files": np.array([f"{i}.jpg" for i in range(24)])} if named else {}
    np.savez(folder / "own.npz", features=X, labels=unknown, **files)
    table = load(folder)
    assert_array_equal(table.labels[18:], -1)
    assert_array_equal(table.splits["proposed"].test_unseen, np.arange(18, 24))
    assert_array_equal(table.splits["proposed"].unseen, [3])
    arguments = ["dataset=tabular", f"dataset.root={folder}", "dataset.features=own.npz",
                 "dataset.attributes=classes.csv", "inference=aag", "tracking=none"]  # fmt: skip
    result = run(compose(arguments), tmp_path / "run")
    assert "acc_class" not in result.metrics  # nothing is known that could be counted
    lines = (tmp_path / "run" / "predictions.csv").read_text().splitlines()
    first = [f"{i}.jpg" for i in range(18, 24)] if named else range(19, 25)  # rows count from 1
    assert lines == [f"{'file' if named else 'row'},predicted,true", *(f"{name},owl," for name in first)]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is empty"),
        ("class\ncat\n", r"is empty \(shape \(1, 0\)\)"),
        ("class,a\ncat,1\ncat,2\n", "'cat' is not the name of one row"),
        ("class,a\n,1\n", "'' is not the name of one row"),
        ("class,a,a\ncat,1,2\n", "'a' is not the name of one column"),
        ("class,a,\ncat,1,2\n", "'' is not the name of one column"),
        ("class,a\ncat,1,2\n", "line 2 has 3 fields where the header has 2"),
        ("class,a\ncat,1\ndog,1,2\n", "line 3 has 3 fields where the header has 2"),
        ("class,a\ncat,four\n", "the column 'a' holds 'four' in row 1, which is not a number"),
        ("cat,4,0\ndog,4,1\n", "its first line holds numbers"),
        ("<html>\n</html>\n", "it is an HTML page"),
        ("class,a,b\ncat,4,0\ndog,4,\ngiraffe+tall,,\nowl,2,2\n", "'giraffe.tall' has no attribute value at all"),
        ("class,a\ncat,inf\ndog,1\ngiraffe+tall,2\nowl,2\n", "attributes holds inf"),
        ("class,a\ncat,1\ndgo,1\nowl,1\ngiraffe+tall,2\n", r"no row for the class 'dog'.*did you mean dgo"),
    ],
)
def test_a_wrong_attribute_table_is_refused_with_a_sentence(own, text, sentence):
    folder, *_ = own
    (folder / "classes.csv").write_text(text)
    with pytest.raises(UserError, match=sentence):
        load(folder)


@pytest.mark.parametrize(
    ("text", "names", "rows"),
    [
        ("class,a,b\ncat,1,\nNA,?,2\n", ("cat", "NA"), [[1, np.nan], [np.nan, 2]]),
        ("\ufeffclass;a\ncat;1\n", ("cat",), [[1]]),
        ("class;a;b\ncat;1;0,5\ndog;2;3\n", ("cat", "dog"), [[1, 0.5], [2, 3]]),
        ("class;a;b\ncat, big;1;0.5\ndog;2;3\n", ("cat, big", "dog"), [[1, 0.5], [2, 3]]),
        ("class\ta\n01\t1e-3\n1\t2\n", ("01", "1"), [[0.001], [2]]),
        ('class , 1 ,2\n"cat, big" , 1 , 2\n\nnone,,nan\n,,\n', ("cat, big", "none"), [[1, 2], [np.nan, np.nan]]),
        ("class,a\ncafe\u0301,1\n", ("caf\u00e9",), [[1]]),
    ],
)
def test_class_tables_as_spreadsheets_write_them(tmp_path, text, names, rows):
    (tmp_path / "c.csv").write_text(text, encoding="utf-8")
    found = read_class_csv(tmp_path / "c.csv")
    assert found[0] == names
    assert_array_equal(found[2], rows)
    write_class_csv(tmp_path / "d.csv", *found)
    assert_array_equal(read_class_csv(tmp_path / "d.csv")[2], rows)


def test_a_number_of_a_class_table_keeps_every_digit(tmp_path):
    rows = np.random.default_rng(0).standard_normal((50, 40)) * 10.0 ** np.arange(-20, 20)
    write_class_csv(tmp_path / "c.csv", [f"c{i}" for i in range(50)], [f"a{i}" for i in range(40)], rows)
    assert_array_equal(read_class_csv(tmp_path / "c.csv")[2], rows)


def test_wrong_features_are_refused_with_a_sentence(own):
    folder, X, labels, names = own
    np.save(folder / "own.npy", X)
    np.savez(folder / "numbers.npz", features=X, labels=labels)
    (folder / "labels.txt").write_text("cat\n")
    (folder / "own.txt").write_text("1 2\n")
    pd.DataFrame({"label": names, "note": names, "x": 1.0}).to_csv(folder / "note.csv", index=False)
    X = X.copy()
    X[3, 1] = np.nan
    written(folder, X, names).to_csv(folder / "nan.csv", index=False)
    for file, more, sentence in (
        ("no.npz", {}, r"dataset\.features=no\.npz: there is no file"),
        (".", {"feature": "other"}, r"dataset\.features=\. is a folder without other\.npz"),
        ("own.npy", {}, r"holds no labels.*dataset\.labels=FILE"),
        ("own.npy", {"labels": "labels.txt"}, "1 labels for 24 rows"),
        ("numbers.npz", {}, "labels are numbers and there are no 'class_names'"),
        ("note.csv", {}, "the column 'note' holds 'cat' in row 1, which is not a number"),
        ("own.txt", {}, r"\.npz, \.zarr, \.npy, \.csv or \.parquet"),
        ("nan.csv", {}, r"features of nan\.csv holds nan in row 3, column 1"),
    ):
        with pytest.raises(UserError, match=sentence):
            load(folder, file, **more)


def test_a_column_that_counts_the_rows_is_never_a_feature(own):
    folder, X, _, names = own
    written(folder, X, names).to_csv(folder / "index.csv")  # as pandas writes it unless told otherwise
    table = load(folder, "index.csv")
    assert_array_equal(table.features, X)
    assert table.provenance["columns"].startswith("f0, f1, f2, f3, f4 (a column without a name")
    count = np.arange(len(X))
    for name, values, sentence in (
        ("id", 1000 + count, "'id' numbers the images"),
        ("anything", count.astype(float), "'anything' numbers the images"),
        ("ID", count[::-1] ** 2, "'ID' numbers the images"),
        ("", X[:, 0], "has no name"),
        ("number", names, "'number' holds 'cat' in row 1, which is not a number"),
    ):
        written(folder, X, names, **{name: values}).to_csv(folder / "own.csv", index=False)
        with pytest.raises(UserError, match=sentence):
            load(folder, "own.csv")


@pytest.mark.parametrize("classes", [("NA", "none", "unknown", "nan"), ("00", "01", "02", "1e3"), ("1", "2", "3", "4")])
def test_labels_of_a_csv_are_the_text_that_stands_there(own, classes):
    folder, X, labels, _ = own
    written(folder, X, np.array(classes)[labels]).to_csv(folder / "own.csv", index=False)
    write_class_csv(folder / "classes.csv", classes, ["a"], np.arange(4.0)[:, None])
    assert_array_equal(load(folder, "own.csv").labels, labels)


def test_whole_numbers_with_a_point_are_the_class_without_it(own):
    folder, X, labels, _ = own
    write_class_csv(folder / "classes.csv", ["0", "1", "2", "3"], ["a"], np.arange(4.0)[:, None])
    written(folder, X, labels.astype(float)).to_csv(folder / "own.csv", index=False)
    assert_array_equal(load(folder, "own.csv").labels, labels)


def test_semicolons_decimal_commas_and_missing_headers(own):
    folder, X, labels, names = own
    for decimal in ".,":
        written(folder, X.astype(float), names).to_csv(folder / "own.csv", sep=";", decimal=decimal, index=False)
        assert_allclose(load(folder, "own.csv").features, X, rtol=1e-6)
    (folder / "labels.txt").write_text("\n".join(names))
    pd.DataFrame(X).to_csv(folder / "own.csv", header=False, index=False)
    with pytest.raises(UserError, match=r"its first line holds numbers \(.*put a header of column names above"):
        load(folder, "own.csv", labels="labels.txt")
    pd.DataFrame(X).to_csv(folder / "own.csv", index=False)  # 0, 1, 2, ... are names
    assert_array_equal(load(folder, "own.csv", labels="labels.txt").labels, labels)


def test_a_wide_table_is_read(own):
    folder, _, _, names = own
    X = np.random.default_rng(0).random((24, 10_000)).round(4)
    written(folder, X, names).to_csv(folder / "wide.csv", index=False)
    write_class_csv(folder / "wide-classes.csv", NAMES, [f"a{i}" for i in range(10_000)], X[:4])
    table = load(folder, "wide.csv", attributes="wide-classes.csv")
    assert_allclose(table.features, X, rtol=1e-6)
    assert_array_equal(table.attributes, X[:4])


@pytest.mark.parametrize(
    ("stored", "sentence"),
    [
        ({"X": 1, "y": 2}, r"has no variable 'features'"),
        ({"labels": np.zeros(0, int), "class_names": np.array(NAMES)}, "0 labels for 24 rows"),
        ({"labels": np.full(24, 5), "class_names": np.array(NAMES)}, "labels must be whole numbers from 1 to 4"),
        ({"labels": np.array([b"\xe4"] * 24)}, r"labels are bytes that are not UTF-8 \(b'\\xe4'\)"),
        ({"labels": np.array([None] * 24)}, r"holds Python objects.*\.astype\(str\)"),
        (pickle.dumps({"features": 1}), "holds Python objects"),
        (b"junk", r"is not a readable \.npz file"),
        (b"<html>", "it is an HTML page"),
    ],
)
def test_a_wrong_npz_is_refused_with_a_sentence(own, stored, sentence):
    folder, X, *_ = own
    if isinstance(stored, bytes):
        (folder / "own.npz").write_bytes(stored)
    else:
        np.savez(folder / "own.npz", **({} if "X" in stored else {"features": X}), **stored)
    with pytest.raises(UserError, match=sentence):
        load(folder)


def test_classes_that_cannot_be_told_apart_are_noted(own):
    folder, *_ = own
    (folder / "classes.csv").write_text("class,a,b\ncat,1,0\ndog,2,2\ngiraffe+tall,1,3\nowl,1,\n")
    table = load(folder)
    assert constant_attributes(table.attributes, table.attribute_names) == []
    assert equal_rows(np.nan_to_num(table.attributes, nan=9), table.class_names) == []
    (folder / "classes.csv").write_text("class,a,b\ncat,1,0\ndog,1,2\ngiraffe+tall,1,0\nowl,1,4\n")
    table = load(folder)
    (constant,) = constant_attributes(table.attributes, table.attribute_names)
    (same,) = equal_rows(table.attributes, table.class_names)
    assert "1 of 2 attributes (first: a)" in constant
    assert "(first: 'giraffe+tall', as 'cat')" in same
