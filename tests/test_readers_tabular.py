"""Your own data: arrays or tables, labels by name, and a CSV of class attributes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import zsl
from archives import features_for
from zsl.data import splits
from zsl.data.dataset import ZeroShotData
from zsl.data.readers import tabular
from zsl.data.readers.tabular import read_class_csv, write_class_csv
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
        ("class,a,a\ncat,1,2\n", "the header names 'a' more than once"),
        ("class,a,\ncat,1,2\n", "column 3 has no name"),
        ("cat,4,0\ndog,4,1\n", "its first line holds numbers"),
        ("class,a\ncat," + "1" * 200_000 + "\n", "is not a readable CSV"),
        (
            "class,legs,wings\ncat,4,0\ndog,4,\ngiraffe+tall,,\nowl,2,2\n",
            "'giraffe.tall' has no attribute value at all",
        ),
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


def written(folder, X, names, **more):
    """A CSV of the features, its columns called f0, f1, ..."""
    return pd.DataFrame(X, columns=[f"f{i}" for i in range(X.shape[1])]).assign(label=names, **more)


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
    ):
        written(folder, X, names, **{name: values}).to_csv(folder / "own.csv", index=False)
        with pytest.raises(UserError, match=sentence):
            load(folder, "own.csv")
    written(folder, X, names, number=names).to_csv(folder / "own.csv", index=False)
    with pytest.raises(UserError, match="'number' is neither a number nor called label"):
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
    (folder / "comma.csv").write_text("class;a\ncat;0,5\n")
    assert read_class_csv(folder / "comma.csv")[2] == [[0.5]]
    pd.DataFrame(X).to_csv(folder / "own.csv", header=False, index=False)
    (folder / "labels.txt").write_text("\n".join(names))
    with pytest.raises(UserError, match=r"its first line holds numbers \(.*put a header of column names above"):
        load(folder, "own.csv", labels="labels.txt")
    pd.DataFrame(X).to_csv(folder / "own.csv", index=False)  # 0, 1, 2, ... are names
    assert_array_equal(load(folder, "own.csv", labels="labels.txt").labels, labels)
    (folder / "own.csv").write_text("f0,f1\n1,2,3\n")
    with pytest.raises(UserError, match="line 2 has 3 fields where the header has 2"):
        load(folder, "own.csv", labels="labels.txt")


def test_a_missing_number_of_a_csv_is_named(own):
    folder, X, _, names = own
    X = X.copy()
    X[3, 1] = np.nan
    written(folder, X, names).to_csv(folder / "own.csv", index=False)
    with pytest.raises(UserError, match="feature 2 of image 4 is nan"):
        load(folder, "own.csv")


@pytest.mark.parametrize(
    ("stored", "sentence"),
    [
        ({"X": 1, "y": 2}, r"has no variable 'features' \(it has: X, y\)"),
        ({"labels": np.zeros(0, int), "class_names": np.array(NAMES)}, "there are no labels"),
        ({"labels": np.array([b"\xe4"] * 24)}, r"labels are bytes that are not UTF-8 \(b'\\xe4'\)"),
        ({"labels": np.array([None] * 24)}, r"'labels' holds Python objects.*\.astype\(str\)"),
    ],
)
def test_a_wrong_npz_is_refused_with_a_sentence(own, stored, sentence):
    folder, X, *_ = own
    np.savez(folder / "own.npz", **({} if "X" in stored else {"features": X}), **stored)
    with pytest.raises(UserError, match=sentence):
        load(folder)


def test_what_is_no_npz_is_told_apart(own):
    folder, *_ = own
    import pickle

    for content, sentence in (
        (pickle.dumps({"features": 1}), "is a pickle"),
        (b"junk", "it is something else"),
        (b"<html>", "it is an HTML page"),
    ):
        for name in ("own.npz", "own.npy"):
            (folder / name).write_bytes(content)
            with pytest.raises(UserError, match=sentence) as caught:
                load(folder, name)
            assert "unsafe" not in str(caught.value)


def test_names_are_equal_however_their_accents_are_coded(own):
    folder, X, labels, _ = own
    classes = ["caf\u00e9", "b", "c", "d"]
    write_class_csv(folder / "classes.csv", classes, ["a"], np.arange(4.0)[:, None])
    np.savez(folder / "own.npz", features=X, labels=np.array(["cafe\u0301", "b", "c", "d"])[labels])
    assert_array_equal(load(folder).labels, labels)


def test_suffixes_in_capitals_and_folders(own):
    folder, X, *_ = own
    (folder / "own.npz").rename(folder / "OWN.NPZ")
    assert_array_equal(load(folder, "OWN.NPZ").features, X)
    with pytest.raises(UserError, match=r"dataset\.features=\. is a folder"):
        load(folder, ".")


def test_classes_that_cannot_be_told_apart_are_noted(own):
    folder, *_ = own
    (folder / "classes.csv").write_text("class,a,b\ncat,1,0\ndog,2,2\ngiraffe+tall,1,3\nowl,1,\n")
    assert load(folder).doubts() == []
    (folder / "classes.csv").write_text("class,a,b\ncat,1,0\ndog,1,2\ngiraffe+tall,1,0\nowl,1,4\n")
    assert load(folder).doubts() == [
        "tabular: 1 of 2 attributes (first: a) are the same for all classes and tell nothing.",
        "tabular: 1 classes have the attributes of another one and cannot be told from it "
        "(first: 'giraffe+tall', as 'cat').",
    ]


def test_without_file_names_predictions_have_row_numbers(own, tmp_path):
    from zsl.config import compose
    from zsl.experiment.run import run

    folder, X, _, names = own
    unknown = names.copy()
    unknown[18:] = "unlabelled"
    np.savez(folder / "own.npz", features=X, labels=unknown)
    arguments = ["dataset=tabular", f"dataset.root={folder}", "dataset.features=own.npz",
                 "dataset.attributes=classes.csv", "inference=aag", "tracking=none"]  # fmt: skip
    run(compose(arguments), tmp_path / "run")
    lines = (tmp_path / "run" / "predictions.csv").read_text().splitlines()
    assert lines == ["row,predicted,true", *(f"{i},owl," for i in range(19, 25))]


def test_a_run_predicts_images_of_unknown_class(own, tmp_path):
    from zsl.config import compose
    from zsl.experiment.run import run

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
    from zsl.experiment.selection import fold

    folder, X, _, _ = own
    table = load(folder)
    rows = np.random.default_rng(0).random((len(X), 3))
    write_class_csv(folder / "images.csv", table.image_names, ["a", "b", "c"], rows)
    found = load(folder, attributes="images.csv")
    data = ZeroShotData.from_table(found, splits.random(found, n_unseen=1))
    inner = fold(data, np.array([0]))
    assert data.Z_images is not None
    assert_array_equal(inner.Z, data.Z_images[data.y != 0])
