"""Tables, lists and names as other programs write them: read, or refused in one sentence.

Where a sentence offers a remedy, the test does what it says.
"""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from archives import cells, small, write_xlsa17
from report_records import record
from test_download import Handler, fetch, server, tarred, zipped  # noqa: F401
from zsl.data.class_table import as_table
from zsl.data.dataset import ZeroShotData
from zsl.data.readers import tabular, xlsa17
from zsl.data.readers.features import Features, in_image_order
from zsl.data.readers.files import read_lines, read_table, read_text
from zsl.data.readers.tables import read_class_csv, write_class_csv
from zsl.data.table import ImageTable, Split
from zsl.errors import UserError
from zsl.extract.images import find_images
from zsl.predict.__main__ import Ranking, write
from zsl.report import records
from zsl.runs.files import write_predictions
from zsl.text import as_cell, from_cell

NAN = np.nan


def both(path, text, encoding="utf-8"):
    """The table as the class table and as the feature table: names and columns, or the sentence, of each."""
    path.write_text(text, encoding=encoding)
    found = []
    for read in (lambda: read_class_csv(path)[1:], lambda: tabular._from_columns(path)):
        try:
            one = read()
            found.append(one[1] if isinstance(one, tuple) else one["features"].astype(float))
        except UserError as error:
            found.append(str(error))
    return found


# --- CSV: one leniency and one check for class tables and feature tables ------------------------------------------


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("label;a;b\npanda, red;0.5;1.5\nfox;0.25;1.0\n", [[0.5, 1.5], [0.25, 1]]),  # the comma is in a name
        ("label;a;b\nfox;1;2\nowl;1,5;2,5\n", [[1, 2], [1.5, 2.5]]),  # decimals come late
        ("label\ta\tb\nfox\t1,5\t2\nowl\t0,25\t3,5\n", [[1.5, 2], [0.25, 3.5]]),
        ('label,a,b\nfox,"1,5",2\nowl,"0,25","3,5"\n', [[1.5, 2], [0.25, 3.5]]),
        ("label;a;b\nfox;1,5E+03;-2\nowl;+0,25;,5\n", [[1500, -2], [0.25, 0.5]]),
        ("sep=;\nlabel;a;b\nfox;1;2\nowl;3;5\n", [[1, 2], [3, 5]]),  # Excel's own first line
        ("label,a,b,,\nfox,1,2,,\nowl,3,5,,\n,,,,\n\n", [[1, 2], [3, 5]]),  # empty columns and lines of a sheet
        ("label,a,b\nfox,1,2,\nowl,3,5,\n", [[1, 2], [3, 5]]),
        ("label,a,b\r\nfox,#N/A,TRUE\r\nowl,3,FALSE\r\n", [[NAN, 1], [3, 0]]),
        ("label,a,b\rfox,1,2\rowl,3,5\r", [[1, 2], [3, 5]]),
        ('"label","a","b"\n"fox",1,2\n"owl, small",3,5\n', [[1, 2], [3, 5]]),
        (",label,a,b\n0,fox,1,2\n1,owl,3,5\n2,eel,4,4\n", [[1, 2], [3, 5], [4, 4]]),  # the index that pandas writes
        (",label,a,b\n0,fox,1,2\n1,owl,3,5\n", [[1, 2], [3, 5]]),
        ("Unnamed: 0,label,a,b\n0,fox,1,2\n1,owl,3,5\n2,eel,4,4\n", [[1, 2], [3, 5], [4, 4]]),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_tables_of_spreadsheets_are_read_alike(tmp_path, text, rows, encoding):
    for found in both(tmp_path / "t.csv", text, encoding):
        assert_array_equal(found, rows)


MARKS = "write all numbers of the table with a dot before decimals and no mark of thousands"


@pytest.mark.parametrize(
    ("text", "sentence", "remedy"),
    [
        (
            "label;a;b\nfox;5.500;0,25\nowl;450;1\n",
            f"'5.500' in row 1, .* decimal commas.*{MARKS}",
            ("5.500;0,25", "5500;0.25"),
        ),
        (
            "label;a;b\nfox;0,5;1\nowl;1;1.200.000\n",
            "'1.200.000' in row 2",
            ("0,5;1\nowl;1;1.200.000", "0.5;1\nowl;1;1200000"),
        ),
        ("label;a;b\nfox;5.500;1\nowl;450;1\n", "'5.500' may mean 5500 or 5.500, ", ("5.500", "5.5000")),
        ("label;a;b\nfox;5,500;1\nowl;450;1\n", "'5,500' may mean 5500 or 5.500, ", ("5,500", "5500.0")),
        ('label,a,b\nfox,"1,234",1\nowl,450,1\n', "may mean 1234 or 1.234", ('"1,234"', "1234")),
        ('label,a,b\nfox,"1,234",0.5\nowl,450,1\n', "'0.5' in row 1", ('"1,234"', "1234")),
        ("label,a,b\nfox,1_000,2\nowl,3,5\n", "'1_000' in row 1, which is not a number", ("1_000", "1000")),
        ("label,a,b\nfox,50%,2\nowl,3,5\n", "'50%' in row 1, which is not a number", ("50%", "0.5")),
        ("label,a,b\nfox,1'200,2\nowl,3,5\n", "which is not a number .leave it empty", ("1'200", "")),
        ("label,a,b\nfox,1\nowl,3,5\n", "line 2 has 2 fields where the header has 3", ("fox,1\n", "fox,1,2\n")),
        ('label,a,"b\nfox,1,2\nowl,3,5\n', "a header and at least one row", ('"b', "b")),
        (
            'label,a,b\nfox,1,2\nowl,3,"5\neel,4,4\n',
            "a quote .* is opened and not closed; close or remove it",
            ('"', ""),
        ),
        (
            "label,id,a\nfox,7,2\nowl,9,5\neel,8,4\n",
            "'id' numbers the .*; remove it, or give it another name",
            ("id", "size"),
        ),
        (
            "label,nr,a\nfox,1,2\nowl,2,5\neel,3,4\n",
            "'nr' numbers the ",
            (",nr,a\nfox,1,2\nowl,2,5\neel,3,4", ",a\nfox,2\nowl,5\neel,4"),
        ),
        (
            "label,x,a\nfox,5,2\nowl,6,5\neel,7,4\n",
            "'x' numbers the .* another order",
            ("fox,5,2\nowl,6,5\n", "owl,6,5\nfox,5,2\n"),
        ),
        (
            "label,a,\nfox,1,3\nowl,2,5\neel,4,4\n",
            "'' is not the name of|column 2 has no name; name it",
            (",a,\n", ",a,b\n"),
        ),
        ("label,a\nf\0x,1\n", "characters of the number 0; save it in UTF-8", ("\0", "o")),
    ],
)
def test_what_cannot_be_told_is_refused_alike_and_the_remedy_works(tmp_path, text, sentence, remedy):
    for found in both(tmp_path / "t.csv", text):
        assert isinstance(found, str), found
        assert re.search(sentence, found), found
    for found in both(tmp_path / "t.csv", text.replace(*remedy)):
        assert not isinstance(found, str), found


def test_a_data_frame_with_its_row_numbers_is_refused():
    frame = pd.DataFrame({"a": [0.5, 1, 0]}, index=["fox", "owl", "eel"])
    numbered = frame.assign(index=range(3))
    with pytest.raises(UserError, match=r"the column 'index' of attributes counts the rows .*; drop it"):
        as_table(numbered)
    assert_array_equal(as_table(numbered.drop(columns="index")), frame)


def test_a_column_without_a_name_that_counts_the_rows_is_named():
    X, Z = np.eye(6, 3), np.eye(3)
    X[:, 1], labels = np.arange(6) + 4, np.arange(6) % 3
    table = ImageTable("toy", "raw", X, labels, ("a", "b", "c"), Z)
    split = Split("s", np.array([0, 1, 3, 4]), np.array([], int), np.array([2, 5]), np.array([2]))
    assert ZeroShotData.from_table(table, split).notes == (
        "toy: column 2 of the features counts the rows; remove it if it only numbers them.",
    )
    assert ZeroShotData.from_table(replace(table, features=np.delete(X, 1, axis=1)), split).notes == ()


def test_two_columns_that_may_hold_the_class_are_refused(tmp_path):
    (tmp_path / "t.csv").write_text("label,class,a\n1,fox,1\n2,owl,3\n")
    with pytest.raises(UserError, match="'label' and 'class' both may hold the labels of the images; keep one"):
        tabular._from_columns(tmp_path / "t.csv")
    (tmp_path / "t.csv").write_text("label,a\n1,1\n2,3\n")
    assert tabular._from_columns(tmp_path / "t.csv")["labels"].tolist() == ["1", "2"]


@pytest.mark.parametrize("content", [b"PK\3\4rest", b"\xd0\xcf\x11\xe0rest", b"caf\xe9,1\n", b"a,b\nc\0,1\n"])
def test_files_that_are_no_text_name_the_remedy(tmp_path, content):
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(UserError, match=r"save (its table as CSV|it) in UTF-8"):
        read_text(tmp_path / "t.csv")


@pytest.mark.parametrize("wide", ["classes", "features"])
def test_a_header_takes_linear_time(tmp_path, wide):
    # A quadratic check takes minutes here.
    n = 100_000
    rows = "".join(f"{c}," + ",".join(["0.5"] * n) + "\n" for c in ("fox", "owl"))
    (tmp_path / "t.csv").write_text("label," + ",".join(f"x{i}" for i in range(n)) + "\n" + rows)
    read = read_class_csv if wide == "classes" else tabular._from_columns
    assert len(read(tmp_path / "t.csv")) == (3 if wide == "classes" else 4)


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=6),
    st.sampled_from([(",", "."), (";", "."), (";", ","), ("\t", ",")]),
)
def test_numbers_come_back_from_every_locale(tmp_path_factory, numbers, marks):
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    frame = pd.DataFrame({"label": ["a, b", "c;d"], "plain": [0.1, 0.25], "x": numbers[:2]})
    frame.to_csv(path, sep=marks[0], decimal=marks[1], index=False)
    assert_array_equal(read_class_csv(path)[2][:, 1], numbers[:2])


# --- lists ---------------------------------------------------------------------------------------------------------


def test_a_comment_is_a_mark_and_a_blank(tmp_path):
    (tmp_path / "l.txt").write_text("# a comment\n#\n#1 dogs\n# cats\n\nowl\n")
    assert read_lines(tmp_path / "l.txt") == ["#1 dogs", "owl"]
    assert read_lines(tmp_path / "l.txt", ["# cats"]) == ["#1 dogs", "# cats", "owl"]
    for folder in ("#1 dogs", "# cats"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.png").touch()
    (tmp_path / "i.txt").write_text("# of the images\n#1 dogs/a.png\tdog\n# cats/a.png\tcat\n")
    assert find_images(tmp_path, tmp_path / "i.txt").classes == ("dog", "cat")


def test_text_in_utf_16_is_read_and_lines_are_those_of_editors(tmp_path):
    (tmp_path / "l.txt").write_bytes("größe\r\nb\u2028c\x0bd\r\n".encode("utf-16"))
    assert read_lines(tmp_path / "l.txt") == ["größe", "b\u2028c\x0bd"]
    (tmp_path / "n.txt").write_bytes("1 2\r\n3 4\r\n".encode("utf-16"))
    assert_array_equal(read_table(tmp_path / "n.txt"), [[1, 2], [3, 4]])


# --- class names ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "stored", "places"),
    [
        (("had", "hAd", "owl"), ("hAd", "had", "owl"), [1, 0, 2]),  # exact names win
        (("polar+bear", "owl", "a_b"), ("Polar bear", "owl", "A b"), [0, 1, 2]),
        (("a b", "a_b", "owl"), ("a+b", "a_b", "owl"), "'a.b' is not told from others: 'a b', 'a_b' differ only in"),
        (("had", "owl", "eel"), ("had", "hAd", "owl"), "'hAd' is not told from others: 'hAd', 'had' differ only in"),
        (("had", "owl", "eel"), ("had", "had", "owl"), None),
    ],
)
def test_classes_are_never_merged(tmp_path, table, stored, places):
    archive = small(3)
    write_xlsa17(tmp_path, {**archive, "allclasses_names": cells(table)})
    X, labels = np.eye(30)[:, :7] + np.arange(30)[:, None] % 3, np.arange(30) % 3
    np.savez(tmp_path / "mine.npz", features=X, labels=labels + 1, class_names=np.array(stored))
    if isinstance(places, list):
        assert_array_equal(xlsa17.load(str(tmp_path), feature="mine").labels, np.array(places)[labels])
        return
    with pytest.raises(UserError, match=places):
        xlsa17.load(str(tmp_path), feature="mine")
    np.savez(tmp_path / "mine.npz", features=X, labels=labels + 1, class_names=np.array(table))
    assert_array_equal(xlsa17.load(str(tmp_path), feature="mine").labels, labels)


def test_an_image_that_is_named_twice_is_refused(tmp_path):
    rows, labels = np.eye(3, 4), np.arange(3)
    for names, wrong in ((("a", "b", "a"), True), (("c", "b", "a"), False)):
        stored = Features(rows, labels, names)
        if wrong:
            with pytest.raises(UserError, match="names the image 'a' more than once; keep one row of each image"):
                in_image_order(stored, ("a", "b"), tmp_path)
        else:
            assert_array_equal(in_image_order(stored, ("a", "b"), tmp_path), [2, 1])


@pytest.mark.parametrize("bad", [{"metrics": {"a": "x"}}, {"metrics": {"\ud800": 1}}, {"split": ["\udce9"]}])
def test_a_record_of_no_table_is_left_out(tmp_path, caplog, monkeypatch, bad):
    found = {"good": record(), "bad": record(**bad)}
    for name in found:
        (tmp_path / name).mkdir()
        (tmp_path / name / "results.json").touch()
    monkeypatch.setattr(records, "read", lambda path: found[path.parent.name])
    assert len(records.read_records(tmp_path)) == 1
    assert "bad/results.json is no complete record" in caplog.text


def test_folders_that_would_become_one_class_are_refused(tmp_path):
    for folder in ("a_b", "a/b"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "1.png").touch()
    with pytest.raises(UserError, match="'a/b' and 'a_b' would both be the class 'a_b'; rename one"):
        find_images(tmp_path)
    (listed := tmp_path / "list.txt").write_text("a_b/1.png\na/b/1.png\n")
    with pytest.raises(UserError, match="'a_b' and 'a/b' would both be the class 'a_b'; rename one"):
        find_images(tmp_path, listed)
    # A class that the list itself names may have images in several folders.
    listed.write_text("a_b/1.png\ta_b\na/b/1.png\n")
    assert find_images(tmp_path, listed).classes == ("a_b", "a_b")
    listed.unlink()
    (tmp_path / "a_b").rename(tmp_path / "c")
    assert find_images(tmp_path).classes == ("a_b", "c")


def test_features_among_the_images_are_no_warning(tmp_path, caplog):
    for file in ("a/1.png", "b.part/1.png", "f.zarr/features/0.0", "f.zarr.part/plan.json", "g.npz.part/x.npy"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    assert find_images(tmp_path).files == ("a/1.png", "b.part/1.png")
    assert not caplog.records


# --- what zsl writes for spreadsheets ------------------------------------------------------------------------------

FORMULAS = ["=1+1", "+1", "-1+1", "@SUM(A1)", "\tx", " =1", "'=1", "\uff1d1", "=cmd|' /C calc'!A0"]


@given(st.text(alphabet="='+-@\t\n \uff1da1"))
def test_a_cell_is_no_formula_and_comes_back(text):
    assert from_cell(as_cell(text)) == text
    assert as_cell(text)[:1] not in ("=", "+", "@", "\t", "\n") or len(text.strip()) < 2


def test_no_csv_holds_a_formula(tmp_path):
    names, scores = FORMULAS, np.eye(len(FORMULAS))
    write_predictions(names, names, scores, np.arange(len(names)), tmp_path)
    out = io.StringIO()
    write(Ranking(list(names), scores).best(2), list(names), out, as_json=False)
    write_class_csv(tmp_path / "attributes.csv", names, names, scores)
    for text in ((tmp_path / "predictions.csv").read_text(), out.getvalue(), (tmp_path / "attributes.csv").read_text()):
        for row in csv.reader(io.StringIO(text)):
            assert not [cell for cell in row if cell.strip()[:1] in tuple("=+-@\uff1d")], row
    found = read_class_csv(tmp_path / "attributes.csv")
    assert found[0] == tuple(name.strip() for name in names)
