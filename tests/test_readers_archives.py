"""The official archives of AwA1, AwA2, CUB and SUN, and which form of a dataset is taken."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.io import savemat

import zsl
from archives import AWA_LIKE, write_awa, write_cub, write_sun, write_xlsa17
from zsl.data.dataset import ZeroShotData
from zsl.data.readers import awa, cub, sun
from zsl.data.splits import random
from zsl.errors import UserError

CUB, SUN = (write_cub, cub.load, "CUB_200_2011"), (write_sun, sun.load, "SUNAttributeDB")


def test_awa2_archive(tmp_path):
    stored = write_awa(tmp_path)
    table = awa.load(str(tmp_path))
    assert table.class_names == AWA_LIKE
    assert table.attribute_names == ("black", "white", "big", "furry")
    assert_array_equal(table.features, stored["features"])
    assert_array_equal(table.labels, stored["labels"])
    assert_allclose(table.attributes, stored["matrix"])
    assert table.image_names[7] == "grizzly+bear_7.jpg"
    assert list(table.splits) == ["standard"]
    assert [table.class_names[c] for c in table.splits["standard"].unseen] == list(AWA_LIKE[-2:])
    assert_array_equal(np.argwhere(table.gaps), [[0, 0], [0, 1]])
    assert set(table.provenance["files"]) >= {"classes.txt", "predicate-matrix-continuous.txt", "testclasses.txt"}
    assert set(np.unique(awa.load(str(tmp_path), semantics="binary").attributes)) <= {0, 1}


def test_awa_has_the_proposed_split_where_it_has_its_classes(tmp_path):
    write_awa(tmp_path, names=(*awa.PROPOSED, "antelope", "beaver"), per_class=2)
    split = awa.load(str(tmp_path)).splits["proposed"]
    assert_array_equal(split.unseen, np.arange(10))
    assert split.origin["file"] == "published class list"


def test_awa1_archive_has_a_file_per_image(tmp_path):
    stored = write_awa(tmp_path, version=1)
    table = awa.load(str(tmp_path), name="awa1", feature="vgg19")
    assert_array_equal(table.features, stored["features"])
    assert_array_equal(table.labels, stored["labels"])
    assert len(table.provenance["files"]) < 10  # one line for all images
    with pytest.raises(UserError, match="the archive has the features: vgg19"):
        awa.load(str(tmp_path), name="awa1")
    for numbers, sentence in (("1 2 3", "holds 3 numbers"), ("5", "holds 1 numbers"), ("", "it is empty")):
        (tmp_path / "Features/vgg19/horse/horse_0031.txt").write_text(numbers)
        with pytest.raises(UserError, match=rf"horse_0031\.txt .*{sentence}"):
            awa.load(str(tmp_path), name="awa1", feature="vgg19")


@pytest.mark.parametrize(
    ("file", "content", "sentence"),
    [
        ("classes.txt", "1\ta\n3\tb\n", r"classes\.txt: line 2 .* must be NUMBER NAME"),
        ("classes.txt", "antelope\n", "must be NUMBER NAME"),
        ("predicate-matrix-continuous.txt", "1 2\n3 4\n", r"the matrix has shape \(2, 2\), but there are 6 classes"),
        ("predicate-matrix-continuous.txt", "1 x\n3 4\n", "is not a readable table of numbers"),
        ("predicate-matrix-continuous.txt", "<html></html>", "is an HTML page"),
        ("testclasses.txt", "hors\n", r"'hors' is not a class of this dataset \(did you mean horse\?\)"),
        ("Features/ResNet101/AwA2-labels.txt", "1\n2\n", "36 rows and AwA2-labels.txt 2 labels"),
        ("Features/ResNet101/AwA2-filenames.txt", "a\n", "1 image names for 36 images"),
        ("Features/ResNet101/AwA2-features.txt", "1 1e300\n" * 36, "features holds inf in row 0, column 1"),
        ("Features/ResNet101/AwA2-features.txt", "1 2\n3 4 5\n", "number of columns changed from 2 to 3"),
        ("Features/ResNet101/AwA2-features.txt", "1 2 3\n3 4\n", "number of columns changed from 3 to 2"),
    ],
)
def test_a_damaged_awa_archive_is_refused_with_a_sentence(tmp_path, file, content, sentence):
    write_awa(tmp_path)
    (tmp_path / file).write_text(content)
    with pytest.raises(UserError, match=sentence):
        awa.load(str(tmp_path))


def test_cub_archive_matches_features_by_file_name(tmp_path):
    stored = write_cub(tmp_path / "CUB_200_2011")
    table = cub.load(str(tmp_path / "CUB_200_2011"), feature="lite0")
    assert table.class_names == stored["names"]
    assert_array_equal(table.labels, stored["labels"])
    assert_array_equal(table.features, stored["features"])
    assert_allclose(table.attributes, stored["class_level"])
    assert table.attribute_names[0] == "has_part::0"
    assert table.image_names == tuple(stored["images"])


def test_image_level_attributes_of_cub_and_what_class_rows_are_made_of(tmp_path):
    stored = write_cub(tmp_path / "CUB_200_2011")
    table = cub.load(str(tmp_path / "CUB_200_2011"), feature="lite0", semantics="image")
    assert_array_equal(table.image_attributes, stored["rows"].astype(np.float32))
    split = random(table, n_unseen=2)
    data = ZeroShotData.from_table(table, split)
    own = stored["rows"][split.trainval]
    assert_allclose(data.Z[~np.isnan(own)], own[~np.isnan(own)])  # every image's own row
    training = np.isin(np.arange(len(table.labels)), split.trainval)
    for rows, classes, used in ((data.Z_seen, data.seen, training), (data.Z_unseen, data.unseen, True)):
        for row, c in zip(rows, classes, strict=True):
            mine = stored["rows"][(table.labels == c) & used]
            has = ~np.isnan(mine).all(axis=0)
            assert_allclose(row[has], np.nanmean(mine[:, has], axis=0))


@pytest.mark.parametrize("content", ["", "1 999999999 1 3 1.0\n", "9999 1 1 3 1.0\n", "1 1 7 3 1.0\n", "1 x 1 3 1.0\n"])
def test_wrong_image_attributes_of_cub_are_refused(tmp_path, content):
    write_cub(tmp_path / "C" / "CUB")
    (tmp_path / "C/CUB/attributes/image_attribute_labels.txt").write_text(content)
    with pytest.raises(UserError, match=r"image_attribute_labels\.txt is not a readable table"):
        cub.load(str(tmp_path / "C" / "CUB"), feature="lite0", semantics="image")


def test_sun_archive(tmp_path):
    stored = write_sun(tmp_path / "SUNAttributeDB")
    for semantics in ("continuous", "image"):
        table = sun.load(str(tmp_path / "SUNAttributeDB"), feature="lite0", semantics=semantics)
        assert table.class_names == stored["names"]
        assert_array_equal(table.labels, stored["labels"])
        assert table.attribute_names == ("sailing", "driving", "biking")
        means = [stored["rows"][stored["labels"] == c].mean(axis=0) for c in range(4)]
        assert_allclose(table.attributes, means, atol=1e-6)
    assert_allclose(table.image_attributes, stored["rows"], atol=1e-7)


@pytest.mark.parametrize("value", [np.inf, -7])
def test_wrong_attribute_labels_of_sun_are_refused(tmp_path, value):
    rows = write_sun(tmp_path / "S")["rows"]
    rows[0, 0] = value
    savemat(tmp_path / "S" / "attributeLabels_continuous.mat", {"labels_cv": rows})
    with pytest.raises(UserError, match="labels_cv must hold shares of annotators"):
        sun.load(str(tmp_path / "S"), feature="lite0")


@pytest.mark.parametrize(("write", "load", "name"), [CUB, SUN])
@pytest.mark.parametrize("damage", ["no files", "other labels", "no names", "numbers"])
def test_labels_beside_features_must_agree_with_the_archive(tmp_path, write, load, name, damage):
    """CUB and SUN bring no features: those of another program may stand in another order."""
    write(tmp_path / name)
    stored = dict(np.load(tmp_path / name / "lite0.npz"))
    rng = np.random.default_rng(0)
    if damage == "other labels":
        stored["labels"] = np.roll(stored["labels"], 3)
    else:
        order = rng.permutation(len(stored["labels"]))
        del stored["files"]
        stored["features"], stored["labels"] = stored["features"][order], stored["labels"][order]
    if damage in {"no names", "numbers"}:
        del stored["class_names"]
    if damage == "numbers":
        stored["labels"] = rng.permutation(stored["labels"].max())[stored["labels"] - 1] + 1
    np.savez(tmp_path / name / "lite0.npz", **stored)
    with pytest.raises(UserError, match=r"lite0\.npz: its labels disagree with .* store the file names as 'files'"):
        load(str(tmp_path / name), feature="lite0")


def test_labels_that_count_classes_in_another_order_agree(tmp_path):
    stored = write_cub(tmp_path / "C" / "CUB")
    path = tmp_path / "C" / "CUB" / "lite0.npz"
    found = dict(np.load(path))
    found["labels"] = np.random.default_rng(0).permutation(8)[found["labels"] - 1] + 1
    del found["class_names"]  # as the xlsa17 files count them: numbers of an order that the archive does not have
    np.savez(path, **found)
    assert_array_equal(cub.load(str(path.parent), feature="lite0").labels, stored["labels"])


def test_images_that_have_no_features_are_named(tmp_path):
    stored = write_sun(tmp_path / "S")
    arrays = {"features": stored["features"][1:], "labels": stored["labels"][1:] + 1}
    np.savez(tmp_path / "S" / "lite0.npz", **arrays, files=np.array([f"x{i}" for i in range(19)]))
    with pytest.raises(UserError, match=r"lacks 20 of the 20 images .*\(first: 'a/abbey/sun_0\.jpg'\)"):
        sun.load(str(tmp_path / "S"), feature="lite0")
    np.savez(tmp_path / "S" / "lite0.npz", **arrays)
    with pytest.raises(UserError, match="has 19 rows and no file names, but there are 20 images"):
        sun.load(str(tmp_path / "S"), feature="lite0")
    (tmp_path / "S" / "lite0.npz").unlink()
    with pytest.raises(UserError, match=r"the archive holds no features; zsl extract IMAGES"):
        sun.load(str(tmp_path / "S"), feature="lite0")


def test_class_lists_beside_an_archive_make_its_splits(tmp_path):
    stored = write_cub(tmp_path / "CUB")
    load = lambda: cub.load(str(tmp_path / "CUB"), feature="lite0")  # noqa: E731
    assert load().splits == {}
    (tmp_path / "CUB/testclasses.txt").write_text("\n".join(stored["names"][2:5]))
    table = load()
    assert_array_equal(table.splits["proposed"].unseen, [2, 3, 4])
    assert_array_equal(table.splits["proposed"].test_unseen, np.flatnonzero(np.isin(stored["labels"], [2, 3, 4])))
    assert table.n_unseen == 3
    assert "testclasses_ss.txt" in table.provenance["missing_splits"]["standard"]


def test_named_tables_of_an_archive(tmp_path):
    stored = write_cub(tmp_path / "CUB")
    load = lambda source: cub.load(str(tmp_path / "CUB"), feature="lite0", semantics=source)  # noqa: E731
    rows = np.random.default_rng(0).random((8, 3))
    for suffix, save in ((".npy", np.save), (".npz", lambda path, att: np.savez(path, att=att, other=np.eye(2)))):
        save(tmp_path / f"CUB/sentences{suffix}", rows)
        assert_array_equal(load("sentences").attributes, rows)
        (tmp_path / f"CUB/sentences{suffix}").unlink()
    lines = [f"{name},{','.join(map(str, row))}" for name, row in zip(stored["names"], rows)][::-1]
    (tmp_path / "CUB/sentences.csv").write_text("\n".join(["class,a,b,c", *lines]))
    assert_array_equal(load("sentences").attributes, rows)
    np.savez(tmp_path / "CUB/two.npz", a=np.eye(8), b=np.eye(8))
    with pytest.raises(UserError, match="holds a, b; name the table 'att'"):
        load("two")
    with pytest.raises(UserError, match=r"semantics=nothing: .*there is: continuous, image\."):
        load("nothing")


def test_the_form_that_lies_in_the_folder_is_taken(tmp_path):
    root = tmp_path / "AWA2"
    with pytest.raises(UserError, match=r"dataset=awa2 is not here: the folder .*AWA2 does not exist"):
        awa.load(str(root))
    root.mkdir()
    with pytest.raises(UserError, match=r"has neither att_splits\.mat \(xlsa17\) nor predicate-matrix-continuous\.txt"):
        awa.load(str(root))
    write_awa(tmp_path / "Animals_with_Attributes2")  # unpacked beside the folder
    assert awa.load(str(root)).provenance["layout"] == "official archive"
    write_xlsa17(root)
    assert awa.load(str(root)).provenance["layout"] == "xlsa17"
    assert awa.load(str(root), layout="official").provenance["layout"] == "official archive"


def test_every_archive_is_reached_by_the_command_line_names(tmp_path):
    write_awa(tmp_path / "AWA2")
    write_awa(tmp_path / "AWA1", version=1)
    write_cub(tmp_path / "CUB")
    write_sun(tmp_path / "SUN")
    for name, feature in (("awa1", "vgg19"), ("awa2", "resnet101"), ("cub", "lite0"), ("sun", "lite0")):
        data = zsl.load_dataset(
            name, feature=feature, split="random", overrides=(f"data_dir={tmp_path}", "split.n_unseen=2")
        )
        assert len(data.unseen) == 2, name
