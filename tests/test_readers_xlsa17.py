"""The xlsa17 layout: real class tables with features that the tests write, and every form in which files occur."""

from __future__ import annotations

import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.io import loadmat, savemat
from scipy.sparse import csc_array

from archives import AWA_LIKE, cells, features_for, real_labels, small, write_v73, write_xlsa17
from zsl.data import splits
from zsl.data.readers import xlsa17
from zsl.errors import UserError

# From the data's own README: images, attributes, classes, seen, trainval, test_seen, test_unseen, first class names.
PUBLISHED = {
    "AWA1": (30475, 85, 50, 40, 19832, 4958, 5685, ("antelope", "grizzly+bear", "killer+whale")),
    "AWA2": (37322, 85, 50, 40, 23527, 5882, 7913, ("antelope", "grizzly+bear", "killer+whale")),
    "CUB": (11788, 312, 200, 150, 7057, 1764, 2967, ("002.Laysan_Albatross", "003.Sooty_Albatross")),
    "SUN": (14340, 102, 717, 645, 10320, 2580, 1440, ("abbey", "access_road", "airfield")),
}  # fmt: skip


def real_folder(shared: Path, tmp_path: Path, name: str) -> tuple[Path, np.ndarray]:
    """The real class table and lists, with features of the right size written beside them."""
    folder = tmp_path / name
    folder.mkdir()
    for file in (shared / "xlsa17" / name).iterdir():
        shutil.copyfile(file, folder / file.name)  # not its permissions: the original is read-only
    labels = real_labels(folder)
    X = np.outer(np.arange(len(labels)), [1, 0, -1]).astype(np.float32)
    savemat(folder / "res101.mat", {"features": X.T, "labels": (labels + 1)[:, None].astype(float)})
    return folder, labels


def load(folder, **settings):
    return xlsa17.load(str(folder), **settings)


@pytest.mark.parametrize("name", PUBLISHED)
def test_real_tables_have_the_published_sizes_and_class_order(shared, tmp_path, name):
    folder, _ = real_folder(shared, tmp_path, name)
    n, q, n_classes, n_seen, trainval, test_seen, test_unseen, first = PUBLISHED[name]
    table = load(folder)
    assert table.features.shape == (n, 3)
    assert table.attributes.shape == (n_classes, q)
    assert table.class_names[: len(first)] == first
    split = table.splits["proposed"]
    assert [len(split.trainval), len(split.test_seen), len(split.test_unseen)] == [trainval, test_seen, test_unseen]
    stored = loadmat(folder / "att_splits.mat")["trainval_loc"].ravel().astype(int)
    assert_array_equal(split.trainval, stored - 1)  # locations above 32767 did not overflow
    assert table.n_unseen == n_classes - n_seen
    listed = (folder / "testclasses.txt").read_text().split()
    assert sorted(table.class_names[c] for c in split.unseen) == sorted(listed)
    for i, (train, val) in enumerate(table.validation, start=1):
        assert sorted([*train, *val]) == sorted(set(table.class_names) - set(listed))
        assert list(val) == (folder / f"valclasses{i}.txt").read_text().split()
    assert len(table.validation) == 3


def test_awa_has_four_missing_values_and_the_2018_table_leaks(shared, tmp_path):
    folder, _ = real_folder(shared, tmp_path, "AWA2")
    table = load(folder)
    assert_array_equal(np.argwhere(table.gaps), [[0, 0], [0, 1], [0, 2], [0, 3]])
    assert table.attributes[0, 0] == pytest.approx(-0.0037535816)  # as published
    assert table.attribute_names[:2] == ("black", "white")
    assert table.notes == ()
    old = load(folder, table="att_splits_2018.mat")
    assert len(old.notes) == 1
    assert "5882 of the 5882 images of test_seen_loc" in old.notes[0]
    assert np.intersect1d(old.splits["proposed"].trainval, old.splits["proposed"].test_seen).size == 0


def test_the_published_set_without_names_loads(shared, tmp_path):
    """What is published for AWA2: testclasses.txt and more lists, but no allclasses.txt."""
    folder, labels = real_folder(shared, tmp_path, "AWA2")
    stored = loadmat(folder / "att_splits.mat")
    savemat(folder / "att_splits.mat", {k: v for k, v in stored.items() if k[0] != "_" and k != "allclasses_names"})
    table = load(folder)
    assert_array_equal(table.labels, labels)
    assert table.class_names[:2] == ("class_1", "class_2")
    assert "put the names in the table's order, one per line, into" in table.notes[0]
    names = [str(c[0]) for c in stored["allclasses_names"].ravel()]
    (folder / "allclasses.txt").write_text("\n".join(names))
    assert load(folder).class_names == tuple(names)


def test_cifar_awa_both_features_and_splits(cifar_awa):
    low, whole = (load(cifar_awa, feature=feature) for feature in ("lite0_pca128", "lite0_1280"))
    assert (low.features.shape, whole.features.shape) == ((4904, 128), (4904, 1280))
    assert_array_equal(low.labels, whole.labels)
    assert {name: len(split.unseen) for name, split in low.splits.items()} == {"proposed": 4, "standard": 4}


FORMS = {
    "transposed": lambda X, y: {"features": X, "labels": y + 1.0},
    "labels in a row from 0": lambda X, y: {"features": X.T, "labels": y.T.astype(np.uint8)},
    "float64": lambda X, y: {"features": X.T.astype(np.float64), "labels": y + 1},
    "sparse": lambda X, y: {"features": csc_array(X.T), "labels": y + 1},
    "names": lambda X, y: {"features": X.T, "labels": y + 1, "image_files": cells([f"{i}.jpg" for i in range(len(y))])},
    "v7.3": lambda X, y: {"features": X.T, "labels": y + 1.0},
    "npz": lambda X, y: {"features": X, "labels": y + 1},
    "npz transposed": lambda X, y: {"features": X.T, "labels": y + 1},
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_features_gives_the_same_table(tmp_path, form):
    stored = write_xlsa17(tmp_path)
    variables = FORMS[form](stored["features"], stored["labels"][:, None])
    (tmp_path / "res101.mat").unlink()
    if form.startswith("npz"):
        np.savez(tmp_path / "res101.npz", **variables)
    else:
        (write_v73 if form == "v7.3" else savemat)(tmp_path / "res101.mat", variables)
    table = load(tmp_path)
    assert table.features.dtype == np.float32
    assert_array_equal(table.features, stored["features"])
    assert_array_equal(table.labels, stored["labels"])
    assert table.class_names == AWA_LIKE
    assert_allclose(table.attributes, stored["att"].T)
    assert_array_equal(table.splits["proposed"].unseen, [4, 5])
    assert table.image_names[:2] == (("0.jpg", "1.jpg") if form == "names" else ())


@pytest.mark.parametrize("turned", [("att",), ("original_att",), ("att", "original_att")])
def test_each_class_table_may_lie_its_own_way(tmp_path, turned):
    table = small()
    table["original_att"][0, 0] = -1
    write_xlsa17(tmp_path, {k: v.T if k in turned else v for k, v in table.items()}, unknown=np.eye(2))
    found = load(tmp_path)
    assert_allclose(found.attributes, table["att"].T)
    assert_array_equal(np.argwhere(found.gaps), [[0, 0]])


def test_square_features_lie_as_published(tmp_path):
    X = features_for(small(per_class=2)["labels"], d=12)
    write_xlsa17(tmp_path, small(per_class=2), X)
    assert_array_equal(load(tmp_path).features, X)


def test_a_class_table_in_v73_and_names_however_hdf5_holds_them(tmp_path):
    """By MATLAB: references to cells or a character matrix; by h5py: text of any or of one length."""
    write_xlsa17(tmp_path)
    expected = load(tmp_path)
    table = {k: v for k, v in small().items() if k != "labels"}
    codes = np.array([[ord(c) for c in n.ljust(20)] for n in AWA_LIKE], np.uint16).T
    write_v73(tmp_path / "att_splits.mat", table)
    for names in (None, list(AWA_LIKE), np.array(AWA_LIKE, "S"), codes, "marked"):
        if names is not None:
            write_v73(tmp_path / "att_splits.mat", {k: v for k, v in table.items() if k != "allclasses_names"})
            with h5py.File(tmp_path / "att_splits.mat", "r+") as f:
                f["allclasses_names"] = codes if isinstance(names, str) else names
                if isinstance(names, str):
                    f["allclasses_names"].attrs["MATLAB_class"] = np.bytes_("char")
        found = load(tmp_path)
        assert found.content == expected.content  # of which the names are a part
        assert found.splits["proposed"].rows == expected.splits["proposed"].rows


def test_names_from_allclasses_txt_else_numbers(tmp_path):
    table = small()
    table["labels"] = np.where(table["labels"] < 5, table["labels"], 4)  # the last class has no image
    write_xlsa17(tmp_path, table, allclasses_names=None)
    assert load(tmp_path).class_names == tuple(f"class_{c}" for c in range(1, 7))
    (tmp_path / "allclasses.txt").write_text("a\nb\nc\nd\ne\nf\n")
    assert load(tmp_path).class_names == tuple("abcdef")


def test_semantics_by_name(tmp_path):
    stored = write_xlsa17(tmp_path, sentences=np.arange(18.0).reshape(3, 6))
    assert_array_equal(load(tmp_path, semantics="original").attributes, stored["original_att"].T)
    assert_array_equal(load(tmp_path, semantics="sentences").attributes, np.arange(18.0).reshape(3, 6).T)
    savemat(tmp_path / "binaryAtt_splits.mat", {"att": (stored["original_att"] > 50).astype(float)})
    assert set(np.unique(load(tmp_path, semantics="binary").attributes)) == {0, 1}
    np.savez(tmp_path / "image_attributes.npz", rows=np.arange(120.0).reshape(60, 2))
    assert load(tmp_path, semantics="image").image_attributes.shape == (60, 2)
    with pytest.raises(UserError, match=r"semantics=nothing.*there is: continuous, original, binary, image, sentences"):
        load(tmp_path, semantics="nothing")


def test_word_vectors_with_and_without_the_header_of_word2vec(tmp_path):
    write_xlsa17(tmp_path)
    rows = np.random.default_rng(0).random((6, 5)).round(3)
    lines = [f"{n} {' '.join(map(str, row))}" for n, row in reversed(list(zip(AWA_LIKE, rows)))]
    for header in ([], ["6 5"]):
        # A class that is not asked for may occur twice.
        (tmp_path / "wordvec.txt").write_text("\n".join([*header, *lines, "zebra 1 2 3 4 5", "zebra 1 2 3 4 6"]))
        assert_allclose(load(tmp_path, semantics="wordvec").attributes, rows)
    for text, sentence in (
        ("\n".join([*lines, lines[3]]), r"the class 'killer\+whale' has more than one row"),
        ("antelope 1 2\n", r"no row for the class 'grizzly\+bear'"),
    ):
        (tmp_path / "wordvec.txt").write_text(text)
        with pytest.raises(UserError, match=sentence):
            load(tmp_path, semantics="wordvec")


def test_class_order_of_a_feature_file_with_names(tmp_path):
    stored = write_xlsa17(tmp_path)
    order = np.array([3, 1, 5, 0, 2, 4])
    np.savez(
        tmp_path / "own.npz", features=stored["features"], labels=np.argsort(order)[stored["labels"]] + 1,
        class_names=np.array([AWA_LIKE[c].replace("+", " ") for c in order]),
    )  # fmt: skip
    assert_array_equal(load(tmp_path, feature="own").labels, stored["labels"])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"att": np.ones((4, 5))}, r"att has shape \(4, 5\), but there are 6 classes"),
        ({"att": np.full((4, 6), np.inf)}, "attributes holds inf in row 0, column 0"),
        ({"att": None}, r"has no variable 'att' \(read from it: .*trainval_loc"),
        ({"trainval_loc": np.array([[61.0]])}, "trainval_loc points to image 61, but there are 60 images"),
        ({"trainval_loc": np.array([[0.0]])}, "trainval_loc points to image 0"),
        ({"trainval_loc": np.array([[1, 1]])}, "trainval_loc lists 1 images twice"),
        ({"test_unseen_loc": None}, "has no variable 'test_unseen_loc'"),
        ({"allclasses_names": cells(["a", "b", "c", "d", "e"])}, "is of class 6, counted from 1, and .* has 5 classes"),
        ({"allclasses_names": cells(["a", "a", "c", "d", "e", "f"])}, "the class name 'a' occurs more than once"),
        ({"allclasses_names": cells(["a", "", "c", "d", "e", "f"])}, "class 2 has an empty name"),
    ],
)  # fmt: skip
def test_a_wrong_class_table_is_refused(tmp_path, change, sentence):
    write_xlsa17(tmp_path, **change)
    with pytest.raises(UserError, match=sentence):
        load(tmp_path)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"features": np.ones((3, 59))}, r"features have shape \(3, 59\) and there are 60 labels"),
        ({"features": np.full((60, 3), np.nan)}, "features of own.npz holds nan in row 0, column 0"),
        ({"features": np.full((60, 3), 1e300)}, "features of own.npz holds inf"),
        ({"features": np.full((60, 3), "a")}, "type <U1; a matrix"),
        ({"features": None}, r"has no variable 'features' \(read from it: labels"),
        ({"labels": np.full(60, 9)}, "image 1 is of class 9, counted from 1, and .* has 6 classes"),
        ({"labels": np.full(60, 1.5)}, "whole number"),
        ({"labels": np.full(60, -1)}, "whole number"),
        ({"labels": np.full(60, np.inf)}, "whole number"),
        ({"labels": np.full(60, 2**64 - 1, np.uint64)}, "whole number"),
        ({"labels": np.array(["a"] * 60)}, "labels are text"),
        ({"labels": np.array([{}] * 60, dtype=object)}, r"own\.npz holds Python objects, which are not read"),
    ],
)
def test_a_wrong_feature_file_is_refused(tmp_path, change, sentence):
    stored = write_xlsa17(tmp_path)
    variables = {"features": stored["features"], "labels": stored["labels"] + 1, **change}
    np.savez(tmp_path / "own.npz", **{k: v for k, v in variables.items() if v is not None})
    with pytest.raises(UserError, match=sentence):
        load(tmp_path, feature="own")


@pytest.mark.parametrize("file", ["res101.mat", "att_splits.mat"])
@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "it is empty"),
        (b"<!DOCTYPE html><html></html>", "it is an HTML page"),
        (b"version https://git-lfs.github.com/spec/v1\n", "it is a Git LFS pointer"),
        (b"\x89HDF\r\n\x1a\n" + b"\x00" * 100, "is not a readable MATLAB file"),
        (128, "has no variable"),
        (700, "is not a readable MATLAB file"),
        (0.95, "is not a readable MATLAB file"),
    ],
)
def test_a_file_that_is_something_else_or_cut_short_is_named(tmp_path, file, content, sentence):
    write_xlsa17(tmp_path)
    whole = (tmp_path / file).read_bytes()
    n = content if isinstance(content, int) else int(len(whole) * content) if isinstance(content, float) else 0
    (tmp_path / file).write_bytes(content if isinstance(content, bytes) else whole[:n])
    with pytest.raises(UserError, match=sentence) as caught:
        load(tmp_path)
    assert str(tmp_path / file) in str(caught.value)


def test_what_is_missing_is_named_with_what_is_there(tmp_path):
    for name, way in (("xlsa17", "dataset.root=FOLDER"), ("sun", "zsl data download sun fetches it")):
        with pytest.raises(UserError, match=f"does not exist; {way}"):
            load(tmp_path / "nowhere", name=name)
    write_xlsa17(tmp_path)
    with pytest.raises(UserError, match=r"vgg19\.mat \(or \.npz\) is missing; the folder has: res101"):
        load(tmp_path, feature="vgg19")
    with pytest.raises(UserError, match=r"table\.mat is missing"):
        load(tmp_path, table="table.mat")


def test_a_split_that_disagrees_with_the_class_list_is_refused(tmp_path):
    stored = write_xlsa17(tmp_path)
    (tmp_path / "testclasses.txt").write_text("dalmatian\nhorse\n")
    assert load(tmp_path).notes == ()
    (tmp_path / "testclasses.txt").write_text("dalmatian\nbeaver\n")
    with pytest.raises(UserError, match=r"of other classes than testclasses\.txt names \(such as 'beaver'\)"):
        load(tmp_path)
    # A split of one's own may leave other classes unseen than the list that came with the published one.
    savemat(tmp_path / "mine.mat", {k: v for k, v in stored.items() if k not in {"labels", "features"}})
    assert "such as 'beaver'" in load(tmp_path, table="mine.mat").notes[0]


def test_labels_from_0_without_an_image_of_class_0(tmp_path, caplog):
    stored = write_xlsa17(tmp_path)
    kept = np.flatnonzero(stored["labels"] != 0)
    position = np.cumsum(stored["labels"] != 0)  # of each image among those kept, from 1
    expected = stored["labels"][kept]
    savemat(tmp_path / "res101.mat", {"features": stored["features"][kept].T, "labels": expected[:, None]})
    changed = {k: v for k, v in stored.items() if k not in {"labels", "features"}}
    for key in ("trainval_loc", "test_seen_loc", "test_unseen_loc"):
        rows = stored[key].ravel().astype(int) - 1
        changed[key] = position[rows[stored["labels"][rows] != 0]][:, None]
    savemat(tmp_path / "att_splits.mat", changed)
    # Nothing tells where labels start: the reader says so, in the record and in the log.
    assert "no image has the label 6" in load(tmp_path).notes[0]
    assert "put testclasses.txt" in caplog.text
    (tmp_path / "testclasses.txt").write_text("dalmatian\nhorse\n")
    found = load(tmp_path)
    assert_array_equal(found.labels, expected)
    assert "labels count from 0" in found.notes[0]
    (tmp_path / "testclasses.txt").write_text("beaver\ndalmatian\n")
    assert_array_equal(load(tmp_path).labels, expected - 1)


def test_the_archive_may_lie_as_it_unpacks(tmp_path):
    write_xlsa17(tmp_path / "xlsa17" / "data" / "APY")
    for root in (tmp_path / "APY", tmp_path / "xlsa17" / "data" / "APY"):
        assert load(root).provenance["root"] == str(tmp_path / "xlsa17" / "data" / "APY")


@pytest.mark.parametrize("place", ["DATA/att_splits_ss.mat", "standard_split/DATA/att_splits.mat"])
def test_the_standard_split_must_list_the_same_classes(tmp_path, place):
    write_xlsa17(tmp_path / "DATA")
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    table = {k: v for k, v in small().items() if k not in {"labels", "test_seen_loc"}}
    savemat(tmp_path / place, table)
    found = load(tmp_path / "DATA").splits
    assert set(found) == {"proposed", "standard"}
    assert found["standard"].test_seen.size == 0
    savemat(tmp_path / place, {**table, "allclasses_names": table["allclasses_names"][::-1]})
    with pytest.raises(UserError, match="lists other classes, or in another order"):
        load(tmp_path / "DATA")


def test_the_command_that_fetches_a_missing_standard_split_is_named(tmp_path):
    write_xlsa17(tmp_path)
    with pytest.raises(
        UserError, match=r"has no standard split .*zsl data download sun --form standard_split fetches it"
    ):
        splits.stored(load(tmp_path, name="sun"), name="645_72", source="standard")


@pytest.mark.parametrize(
    ("name", "made"), [("awa2", r"zsl extract IMAGES --to FOLDER/vgg19\.npz"), ("awa1", "--form vgg19 says")]
)
def test_features_that_no_archive_holds_are_not_promised_from_one(tmp_path, name, made):
    with pytest.raises(
        UserError, match=rf"zsl data download {name} fetches it \(https:.*ResNet101 features only, .*{made}"
    ):
        load(tmp_path / "no", name=name, feature="vgg19")


def test_wrong_locations_are_refused_without_features_too(tmp_path):
    for value, sentence in ((np.inf, "not whole numbers"), (0, "points to image 0")):
        with pytest.raises(UserError, match=sentence):
            xlsa17.locations({"test_unseen_loc": np.array([value, 3.0])}, "test_unseen_loc", None, tmp_path / "a.mat")
