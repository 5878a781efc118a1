"""The xlsa17 layout: real class tables with features that the tests write, and every form in which files occur."""

from __future__ import annotations

import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.io import loadmat, savemat

from archives import cells, features_for, real_labels, small, write_v73, write_xlsa17
from zsl.data.dataset import ZeroShotData
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


@pytest.mark.parametrize("name", PUBLISHED)
def test_real_tables_have_the_published_sizes_and_class_order(shared, tmp_path, name):
    folder, _ = real_folder(shared, tmp_path, name)
    n, q, n_classes, n_seen, trainval, test_seen, test_unseen, first = PUBLISHED[name]
    table = xlsa17.load(str(folder), name=name.lower())
    assert table.features.shape == (n, 3)
    assert table.attributes.shape == (n_classes, q)
    assert table.class_names[: len(first)] == first
    data = ZeroShotData.from_table(table, table.splits["proposed"])
    assert [len(data.seen), len(data.unseen)] == [n_seen, n_classes - n_seen]
    assert [len(data.X), len(data.X_test_seen), len(data.X_unseen)] == [trainval, test_seen, test_unseen]
    assert sorted(data.unseen_names) == sorted((folder / "testclasses.txt").read_text().split())
    assert_array_equal(data.X[:, 0], table.splits["proposed"].trainval)  # locations above 32767 did not overflow
    assert len(data.validation) == 3
    for train, val in data.validation:
        assert_array_equal(np.sort(np.r_[train, val]), np.arange(n_seen))
    names = [data.class_names[data.seen[c]] for c in data.validation[1][1]]
    assert sorted(names) == sorted((folder / "valclasses2.txt").read_text().split())


def test_awa_has_four_missing_values_which_take_the_mean_of_seen_classes(shared, tmp_path):
    folder, _ = real_folder(shared, tmp_path, "AWA2")
    table = xlsa17.load(str(folder), name="awa2")
    assert table.missing is not None
    assert_array_equal(np.argwhere(table.missing), [[0, 0], [0, 1], [0, 2], [0, 3]])
    assert table.attributes[0, 0] == pytest.approx(-0.0037535816)
    data = ZeroShotData.from_table(table, table.splits["proposed"])
    others = data.seen[data.seen != 0]
    assert_allclose(data.attributes[0, :4], table.attributes[others, :4].mean(axis=0))
    assert data.key["semantics"]["missing"] == {"values": 4, "classes_without": 1, "treated": "mean"}
    dropped = ZeroShotData.from_table(table, table.splits["proposed"], missing="drop")
    assert dropped.attributes.shape == (50, 81)
    assert dropped.attribute_names[:2] == ("gray", "orange")  # black, white, blue, brown are gone
    kept = ZeroShotData.from_table(table, table.splits["proposed"], missing="keep")
    assert_array_equal(kept.attributes, table.attributes)


def test_the_leak_of_the_2018_file_is_found_and_does_no_harm(shared, tmp_path):
    folder, _ = real_folder(shared, tmp_path, "AWA2")
    assert xlsa17.load(str(folder)).notes == ()
    old = xlsa17.load(str(folder), table="att_splits_2018.mat")
    assert len(old.notes) == 1
    assert "5882 of the 5882 images of test_seen_loc" in old.notes[0]
    assert np.intersect1d(old.splits["proposed"].trainval, old.splits["proposed"].test_seen).size == 0


def test_every_form_gives_the_same_table(tmp_path):
    """v5 and v7.3, either orientation of both matrices, labels from 0 or 1, .mat and .npz, float32 and float64."""
    published = write_xlsa17(tmp_path / "v5")
    expected = xlsa17.load(str(tmp_path / "v5"))
    X, labels, table = published["features"], published["labels"], {k: v for k, v in small().items() if k != "labels"}
    assert_array_equal(expected.features, X)
    assert_array_equal(expected.labels, labels)

    forms = {}
    for form in ("v73", "transposed", "zero_based", "npz", "npz_transposed", "float64", "extra", "att_transposed"):
        folder = forms[form] = tmp_path / form
        folder.mkdir()
        columns, one_based = X.T, (labels + 1)[:, None]
        if form == "v73":
            write_v73(folder / "res101.mat", {"features": columns, "labels": one_based.astype(float)})
            write_v73(folder / "att_splits.mat", table)
            continue
        changed = {**table, "att": table["att"].T, "original_att": table["original_att"].T}
        extra = {"image_files": cells([f"{i}.jpg" for i in range(len(X))]), "junk": np.eye(3)}
        savemat(folder / "att_splits.mat", changed if form == "att_transposed" else {**table, "unknown": np.eye(2)})
        if form.startswith("npz"):
            rows = columns if form == "npz_transposed" else X
            np.savez(folder / "res101.npz", features=rows, labels=labels + 1)
        else:
            savemat(folder / "res101.mat", {
                "features": X if form == "transposed" else columns.astype(np.float64) if form == "float64" else columns,
                "labels": labels[:, None].astype(np.uint8) if form == "zero_based" else one_based.T,
                **(extra if form == "extra" else {}),
            })  # fmt: skip
    for form, folder in forms.items():
        found = xlsa17.load(str(folder))
        assert found.features.dtype == np.float32, form
        assert_array_equal(found.features, expected.features, err_msg=form)
        assert_array_equal(found.labels, expected.labels, err_msg=form)
        assert_array_equal(found.attributes, expected.attributes, err_msg=form)
        assert found.class_names == expected.class_names, form
        assert_array_equal(found.splits["proposed"].trainval, expected.splits["proposed"].trainval, err_msg=form)
    assert xlsa17.load(str(forms["extra"])).image_names[2] == "2.jpg"


def test_square_features_lie_as_published(tmp_path):
    table = small(per_class=2)
    X = features_for(table["labels"], d=len(table["labels"]))
    write_xlsa17(tmp_path, table, X)
    assert_array_equal(xlsa17.load(str(tmp_path)).features, X)


def test_names_from_allclasses_txt_else_numbers(tmp_path):
    write_xlsa17(tmp_path, allclasses_names=None)
    assert xlsa17.load(str(tmp_path)).class_names == tuple(f"class_{c}" for c in range(1, 7))
    (tmp_path / "allclasses.txt").write_text("a\nb\nc\nd\ne\nf\n")
    assert xlsa17.load(str(tmp_path)).class_names == tuple("abcdef")


def test_without_names_and_with_a_class_without_images(tmp_path):
    table = small()
    keep = table["labels"] < 5
    table["labels"] = np.where(keep, table["labels"], 4)
    write_xlsa17(tmp_path, table, allclasses_names=None)
    assert len(xlsa17.load(str(tmp_path)).class_names) == 6


def test_semantics_by_name(tmp_path):
    stored = write_xlsa17(tmp_path, sentences=np.arange(18.0).reshape(3, 6))
    load = lambda source: xlsa17.load(str(tmp_path), semantics=source)  # noqa: E731
    assert_array_equal(load("original").attributes, stored["original_att"].T)
    assert_array_equal(load("sentences").attributes, np.arange(18.0).reshape(3, 6).T)
    savemat(tmp_path / "binaryAtt_splits.mat", {"att": (stored["original_att"] > 50).astype(float)})
    assert set(np.unique(load("binary").attributes)) == {0, 1}
    names = [str(c[0]) for c in stored["allclasses_names"].ravel()]
    (tmp_path / "wordvec.txt").write_text("".join(f"{n} {i} 0.5\n" for i, n in reversed(list(enumerate(names)))))
    assert_array_equal(load("wordvec").attributes[:, 0], np.arange(6))
    np.savez(tmp_path / "image_attributes.npz", rows=np.arange(120.0).reshape(60, 2))
    assert load("image").image_attributes.shape == (60, 2)
    with pytest.raises(UserError, match=r"dataset\.semantics=nothing: .*there is: continuous, original, binary, image"):
        load("nothing")
    (tmp_path / "wordvec.txt").write_text("antelope 1 2\n")
    with pytest.raises(UserError, match=r"no row for the class 'grizzly\+bear'"):
        load("wordvec")


def test_nothing_is_unpickled(tmp_path):
    write_xlsa17(tmp_path)
    np.savez(tmp_path / "own.npz", features=np.ones((60, 2)), labels=np.array([{}] * 60, dtype=object))
    with pytest.raises(UserError, match=r"own\.npz: 'labels' holds Python objects, which are not read"):
        xlsa17.load(str(tmp_path), feature="own")


def test_class_order_of_a_feature_file_with_names(tmp_path):
    stored = write_xlsa17(tmp_path)
    names = [str(c[0]) for c in stored["allclasses_names"].ravel()]
    order = np.array([3, 1, 5, 0, 2, 4])
    np.savez(
        tmp_path / "own.npz", features=stored["features"], labels=np.argsort(order)[stored["labels"]] + 1,
        class_names=np.array([names[c].replace("+", " ") for c in order]),
    )  # fmt: skip
    assert_array_equal(xlsa17.load(str(tmp_path), feature="own").labels, stored["labels"])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"att": np.ones((4, 5))}, r"att has shape \(4, 5\), but there are 6 classes"),
        ({"att": np.full((4, 6), np.inf)}, "attribute 1 of class 1 is inf"),
        ({"att": None}, r"has no variable 'att' \(it has:"),
        ({"trainval_loc": np.array([[61.0]])}, "trainval_loc points to image 61, but there are 60 images"),
        ({"trainval_loc": np.array([[0.0]])}, "trainval_loc points to image 0"),
        ({"trainval_loc": np.array([[1, 1]])}, "trainval_loc lists 1 images twice"),
        ({"test_unseen_loc": None}, "has no variable 'test_unseen_loc'"),
        ({"allclasses_names": cells(["a", "b", "c", "d", "e"])}, "att has shape|label 6, but .* has 5 classes"),
        ({"allclasses_names": cells(["a", "a", "c", "d", "e", "f"])}, "the class name 'a' occurs more than once"),
    ],
)  # fmt: skip
def test_a_wrong_class_table_is_refused_with_a_sentence(tmp_path, change, sentence):
    write_xlsa17(tmp_path, **change)
    with pytest.raises(UserError, match=sentence):
        xlsa17.load(str(tmp_path))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"features": np.ones((3, 59))}, r"features have shape \(3, 59\) and there are 60 labels"),
        ({"features": np.full((3, 60), np.nan)}, "feature 1 of image 1 is nan"),
        ({"features": np.full((3, 60), 1e300)}, "feature 1 of image 1 is 1e.300"),
        ({"labels": np.full((60, 1), 1.5)}, "not whole numbers"),
        ({"labels": np.full((60, 1), -1.0)}, "the smallest label is -1"),
        ({"labels": np.full((60, 1), 9.0)}, "image 1 has label 9, but .* has 6 classes"),
        ({"features": None}, "has no variable 'features'"),
    ],
)  # fmt: skip
def test_a_wrong_feature_file_is_refused_with_a_sentence(tmp_path, change, sentence):
    write_xlsa17(tmp_path)
    good = {k: v for k, v in loadmat(tmp_path / "res101.mat").items() if not k.startswith("__")}
    savemat(tmp_path / "res101.mat", {k: v for k, v in {**good, **change}.items() if v is not None})
    with pytest.raises(UserError, match=sentence):
        xlsa17.load(str(tmp_path))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "it is empty"),
        (b"<!DOCTYPE html><html></html>", "it is an HTML page"),
        (b"version https://git-lfs.github.com/spec/v1\n", "it is a Git LFS pointer"),
        (b"\x89HDF\r\n\x1a\n" + b"\x00" * 100, r"v7\.3"),
        (None, "damaged or truncated"),
    ],
)
def test_a_file_that_is_something_else_is_called_so(tmp_path, content, sentence):
    write_xlsa17(tmp_path)
    path = tmp_path / "res101.mat"
    path.write_bytes(path.read_bytes()[:700] if content is None else content)
    with pytest.raises(UserError, match=sentence):
        xlsa17.load(str(tmp_path))


def test_what_is_missing_is_named_with_what_is_there(tmp_path):
    with pytest.raises(UserError, match="does not exist; download xlsa17"):
        xlsa17.load(str(tmp_path / "nowhere"))
    write_xlsa17(tmp_path)
    with pytest.raises(UserError, match=r"vgg19\.mat \(or \.npz\) is missing; the folder has: res101"):
        xlsa17.load(str(tmp_path), feature="vgg19")
    (tmp_path / "att_splits.mat").unlink()
    with pytest.raises(UserError, match=r"att_splits\.mat is missing"):
        xlsa17.load(str(tmp_path))


def test_a_split_that_disagrees_with_the_class_list_is_refused(tmp_path):
    stored = write_xlsa17(tmp_path)
    (tmp_path / "testclasses.txt").write_text("dalmatian\nhorse\n")
    assert xlsa17.load(str(tmp_path)).notes == ()
    (tmp_path / "testclasses.txt").write_text("dalmatian\nbeaver\n")
    with pytest.raises(UserError, match=r"of other classes than testclasses\.txt names \(such as 'beaver'\)"):
        xlsa17.load(str(tmp_path))
    # A split of one's own may leave other classes unseen than the list that came with the published one.
    savemat(tmp_path / "mine.mat", {k: v for k, v in stored.items() if k not in {"labels", "features"}})
    assert "such as 'beaver'" in xlsa17.load(str(tmp_path), table="mine.mat").notes[0]


def test_the_archive_may_lie_as_it_unpacks(tmp_path):
    write_xlsa17(tmp_path / "xlsa17" / "data" / "APY")
    for root in (tmp_path / "APY", tmp_path / "xlsa17" / "data" / "APY"):
        assert xlsa17.load(str(root)).provenance["root"] == str(tmp_path / "xlsa17" / "data" / "APY")


def test_standard_split_must_list_the_same_classes(tmp_path):
    folder = tmp_path / "DATA"
    stored = write_xlsa17(folder)
    beside = tmp_path / "standard_split" / "DATA"
    beside.mkdir(parents=True)
    table = {k: v for k, v in small().items() if k != "labels"}
    savemat(beside / "att_splits.mat", table)
    assert set(xlsa17.load(str(folder)).splits) == {"proposed", "standard"}
    savemat(beside / "att_splits.mat", {**table, "allclasses_names": stored["allclasses_names"][::-1]})
    with pytest.raises(UserError, match="lists other classes, or in another order"):
        xlsa17.load(str(folder))


@pytest.mark.parametrize("names", ["vlen", "fixed", "characters", "marked characters"])
def test_names_in_hdf5_however_they_are_written(tmp_path, names):
    """By MATLAB: references to cells (see above) or a character matrix; by h5py: text of any or of one length."""
    write_xlsa17(tmp_path / "a")
    expected = xlsa17.load(str(tmp_path / "a"))
    table = {k: v for k, v in small().items() if k not in {"labels", "allclasses_names"}}
    write_v73(tmp_path / "a" / "att_splits.mat", table)
    given = list(expected.class_names)
    with h5py.File(tmp_path / "a" / "att_splits.mat", "r+") as f:
        if names == "vlen":
            f.create_dataset("allclasses_names", data=given, dtype=h5py.string_dtype())
        elif names == "fixed":
            f.create_dataset("allclasses_names", data=np.array(given, "S"))
        else:
            width = max(map(len, given))
            codes = np.array([[ord(c) for c in n.ljust(width)] for n in given], np.uint16).T
            stored = f.create_dataset("allclasses_names", data=codes)
            if names.startswith("marked"):
                stored.attrs["MATLAB_class"] = np.bytes_("char")
    assert xlsa17.load(str(tmp_path / "a")).class_names == expected.class_names


@pytest.mark.parametrize("turned", [("att",), ("original_att",), ("att", "original_att")])
def test_each_table_may_lie_its_own_way(tmp_path, turned):
    table = small()
    table["original_att"][0, 0] = -1
    write_xlsa17(tmp_path, {k: v.T if k in turned else v for k, v in table.items()})
    found = xlsa17.load(str(tmp_path))
    assert found.missing is not None
    assert_array_equal(np.argwhere(found.missing), [[0, 0]])


def test_the_published_set_without_names_loads(shared, tmp_path):
    """What is published for AWA2: testclasses.txt and more lists, but no allclasses.txt."""
    folder, labels = real_folder(shared, tmp_path, "AWA2")
    stored = loadmat(folder / "att_splits.mat")
    savemat(folder / "att_splits.mat", {k: v for k, v in stored.items() if k[0] != "_" and k != "allclasses_names"})
    table = xlsa17.load(str(folder))
    assert_array_equal(table.labels, labels)
    assert table.class_names[:2] == ("class_1", "class_2")
    assert "put the names in the table's order, one per line, into" in table.notes[0]
    names = [str(c[0]) for c in stored["allclasses_names"].ravel()]
    (folder / "allclasses.txt").write_text("\n".join(names))
    assert xlsa17.load(str(folder)).class_names == tuple(names)


def zero_based(folder, drop: int) -> dict:
    """A folder whose labels count from 0, without images of class ``drop``."""
    stored = write_xlsa17(folder)
    labels = stored["labels"]
    kept = np.flatnonzero(labels != drop)
    position = np.full(len(labels), -1)
    position[kept] = np.arange(len(kept))
    savemat(folder / "res101.mat", {"features": stored["features"][kept].T, "labels": labels[kept][:, None]})
    changed = {k: v for k, v in stored.items() if k not in {"labels", "features"}}
    for key in ("trainval_loc", "test_seen_loc", "test_unseen_loc"):
        rows = position[stored[key].ravel().astype(int) - 1]
        changed[key] = rows[rows >= 0][:, None] + 1
    savemat(folder / "att_splits.mat", changed)
    return {"labels": labels[kept]}


def test_labels_from_0_without_an_image_of_class_0(tmp_path, caplog):
    expected = zero_based(tmp_path, 0)["labels"]
    found = xlsa17.load(str(tmp_path))  # nothing tells the base: said aloud, in the record and in the log
    assert "no image has the label 6" in found.notes[0]
    assert "put testclasses.txt" in caplog.text
    (tmp_path / "testclasses.txt").write_text("dalmatian\nhorse\n")
    found = xlsa17.load(str(tmp_path))
    assert_array_equal(found.labels, expected)
    assert "labels count from 0" in found.notes[0]
    (tmp_path / "testclasses.txt").write_text("beaver\ndalmatian\n")
    assert_array_equal(xlsa17.load(str(tmp_path)).labels, expected - 1)  # the other reading
    (tmp_path / "testclasses.txt").write_text("antelope\nbeaver\n")
    with pytest.raises(UserError, match="belong to different datasets or count classes differently"):
        xlsa17.load(str(tmp_path))


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        (np.full(60, np.inf), "the largest label is inf|not whole numbers|smallest label is inf"),
        (np.full(60, 2**64 - 1, np.uint64), r"label is 1\.844674407e\+19"),
        (np.full(60, 1e300), r"label is 1e\+300"),
        (np.array(["a"] * 60), "labels are text"),
    ],
)
def test_labels_that_are_no_class_numbers_are_refused(tmp_path, labels, sentence):
    stored = write_xlsa17(tmp_path)
    (tmp_path / "res101.mat").unlink()
    np.savez(tmp_path / "res101.npz", features=stored["features"], labels=labels)
    with pytest.raises(UserError, match=sentence):
        xlsa17.load(str(tmp_path))


def test_a_huge_label_without_names_is_refused_at_once(tmp_path):
    stored = write_xlsa17(tmp_path, allclasses_names=None)
    labels = stored["labels"] + 1
    labels[0] = 10**9
    savemat(tmp_path / "res101.mat", {"features": stored["features"].T, "labels": labels[:, None]})
    with pytest.raises(UserError, match=r"att has shape \(4, 6\), but there is an image of class 1000000000"):
        xlsa17.load(str(tmp_path))


@pytest.mark.parametrize(("value", "sentence"), [(np.inf, "not whole numbers"), (0, "points to image 0")])
def test_wrong_locations_are_refused_without_features_too(tmp_path, value, sentence):
    stored = write_xlsa17(tmp_path)
    loc = stored["test_unseen_loc"].astype(float)
    loc[0] = value
    with pytest.raises(UserError, match=sentence) as caught:
        xlsa17.locations({"test_unseen_loc": loc}, "test_unseen_loc", None, tmp_path / "att_splits.mat")
    assert "None" not in str(caught.value)


def test_a_file_that_ends_after_its_header_is_named(tmp_path):
    write_xlsa17(tmp_path)
    whole = (tmp_path / "att_splits.mat").read_bytes()
    (tmp_path / "att_splits.mat").write_bytes(whole[:128])
    with pytest.raises(UserError, match="holds no variable at all: it is empty or cut short"):
        xlsa17.load(str(tmp_path))


def test_word_vectors_as_word2vec_writes_them(tmp_path):
    stored = write_xlsa17(tmp_path)
    names = [str(c[0]) for c in stored["allclasses_names"].ravel()]
    rows = np.random.default_rng(0).random((6, 5)).round(3)
    lines = [f"{n} {' '.join(map(str, row))}" for n, row in zip(names, rows)]
    for header in ([], ["6 5"]):
        (tmp_path / "wordvec.txt").write_text("\n".join(header + lines))
        assert_allclose(xlsa17.load(str(tmp_path), semantics="wordvec").attributes, rows)
    (tmp_path / "wordvec.txt").write_text("\n".join([*lines, f"{names[2]} 1 2 3 4 5"]))
    with pytest.raises(UserError, match=r"the class 'killer\+whale' has more than one row"):
        xlsa17.load(str(tmp_path), semantics="wordvec")
    (tmp_path / "wordvec.txt").write_text("\n".join([*lines, "zebra 1 2 3 4 5", "zebra 1 2 3 4 6"]))
    xlsa17.load(str(tmp_path), semantics="wordvec")  # a class that is not asked for may occur twice


def test_a_class_without_a_name_is_refused(tmp_path):
    write_xlsa17(tmp_path, allclasses_names=cells(["a", "", "c", "d", "e", "f"]))
    with pytest.raises(UserError, match="class 2 has an empty name"):
        xlsa17.load(str(tmp_path))
