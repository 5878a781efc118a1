"""The official archives of AwA1, AwA2, CUB and SUN, and which form of a dataset is taken."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.io import savemat

import zsl
from archives import AWA_LIKE, write_awa, write_cub, write_sun, write_xlsa17
from zsl.config import compose
from zsl.data.dataset import ZeroShotData
from zsl.data.readers import awa, cub, sun
from zsl.data.splits import random
from zsl.errors import UserError
from zsl.experiment.run import run


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
    assert table.missing is not None
    assert table.missing.sum() == 2
    data = ZeroShotData.from_table(table, table.splits["standard"])
    assert_allclose(data.attributes[0, 0], stored["matrix"][1:4, 0].mean())
    assert set(table.provenance["files"]) >= {"classes.txt", "predicate-matrix-continuous.txt", "testclasses.txt"}
    assert set(np.unique(awa.load(str(tmp_path), semantics="binary").attributes)) <= {0, 1}


def test_awa1_archive_has_a_file_per_image(tmp_path):
    stored = write_awa(tmp_path, version=1)
    table = awa.load(str(tmp_path), name="awa1", feature="vgg19")
    assert_array_equal(table.features, stored["features"])
    assert_array_equal(table.labels, stored["labels"])
    (tmp_path / "Features/vgg19/horse/horse_0031.txt").write_text("1 2 3")
    with pytest.raises(UserError, match=r"horse_0031\.txt does not hold 5 numbers"):
        awa.load(str(tmp_path), name="awa1", feature="vgg19")
    with pytest.raises(UserError, match="the archive has the features: vgg19"):
        awa.load(str(tmp_path), name="awa1")


@pytest.mark.parametrize("numbers", ["5", "", "1 2", "1 2 3 4 5 6"])
def test_an_awa1_file_of_another_length_is_refused(tmp_path, numbers):
    write_awa(tmp_path, version=1)
    (tmp_path / "Features/vgg19/horse/horse_0031.txt").write_text(numbers)
    with pytest.raises(UserError, match=r"horse_0031\.txt does not hold 5 numbers"):
        awa.load(str(tmp_path), name="awa1", feature="vgg19")


def test_a_folder_of_features_that_is_no_class_is_named(tmp_path):
    write_awa(tmp_path, version=1)
    (tmp_path / "Features/vgg19/beaver").rename(tmp_path / "Features/vgg19/beavver")
    with pytest.raises(UserError, match=r"beavver is not the folder of a class \(did you mean 'beaver'\?\)"):
        awa.load(str(tmp_path), name="awa1", feature="vgg19")


def test_awa2_file_names_must_agree_with_the_labels(tmp_path):
    write_awa(tmp_path)
    path = tmp_path / "Features/ResNet101/AwA2-filenames.txt"
    names = path.read_text().splitlines()
    path.write_text("\n".join([*names[6:], *names[:6]]))
    with pytest.raises(UserError, match=r"image 1 is 'grizzly\+bear_6\.jpg', but its label says 'antelope'"):
        awa.load(str(tmp_path))
    path.write_text("\n".join(f"img_{i}.jpg" for i in range(36)))  # names that tell no class
    awa.load(str(tmp_path))


@pytest.mark.parametrize("damage", ["no files", "other labels", "no names", "numbers"])
def test_labels_beside_features_must_agree_with_the_archive(tmp_path, damage):
    """CUB and SUN bring no features: those of another program may stand in another order."""
    for write, load, root in ((write_cub, cub.load, tmp_path / "C" / "CUB"), (write_sun, sun.load, tmp_path / "SUN")):
        write(root)
        stored = dict(np.load(root / "lite0.npz"))
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
        np.savez(root / "lite0.npz", **stored)
        with pytest.raises(UserError, match=r"lite0\.npz: its labels disagree with .* store the file names as 'files'"):
            load(str(root), feature="lite0")


def test_labels_that_count_classes_in_another_order_agree(tmp_path):
    stored = write_cub(tmp_path / "C" / "CUB")
    path = tmp_path / "C" / "CUB" / "lite0.npz"
    found = dict(np.load(path))
    found["labels"] = np.random.default_rng(0).permutation(8)[found["labels"] - 1] + 1
    del found["class_names"]  # as the xlsa17 files count them: numbers of an order that the archive does not have
    np.savez(path, **found)
    assert_array_equal(cub.load(str(path.parent), feature="lite0").labels, stored["labels"])


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "is empty"),
        ("1 999999999 1 3 1.0\n", "the attribute 999999999, which must be from 1 to 6"),
        ("9999 1 1 3 1.0\n", "the image 9999, which must be from 1 to 40"),
        ("1 1 7 3 1.0\n", "the PRESENT 7, which must be from 0 to 1"),
        ("1 1 1 9 1.0\n", "the CERTAINTY 9, which must be from 1 to 4"),
    ],
)
def test_wrong_image_attributes_of_cub_are_refused(tmp_path, content, sentence):
    write_cub(tmp_path / "C" / "CUB")
    (tmp_path / "C/CUB/attributes/image_attribute_labels.txt").write_text(content)
    with pytest.raises(UserError, match=sentence):
        cub.load(str(tmp_path / "C" / "CUB"), feature="lite0", semantics="image")


@pytest.mark.parametrize(("value", "sentence"), [(np.inf, "is inf"), (-7, r"is -7\.0"), ("a", "holds <U1 values")])
def test_wrong_attribute_labels_of_sun_are_refused(tmp_path, value, sentence):
    stored = write_sun(tmp_path / "S")
    rows = stored["rows"].astype(object if isinstance(value, str) else float)
    rows[0, 0] = value
    rows = np.full(rows.shape, value) if isinstance(value, str) else rows
    if isinstance(value, str):
        from archives import write_v73

        write_v73(tmp_path / "S" / "attributeLabels_continuous.mat", {"labels_cv": np.zeros((0, 0))})
        import h5py

        with h5py.File(tmp_path / "S" / "attributeLabels_continuous.mat", "w") as f:
            f.create_dataset("labels_cv", data=rows.T.astype("S1"))
        sentence = "labels_cv (has shape|holds)"
    else:
        savemat(tmp_path / "S" / "attributeLabels_continuous.mat", {"labels_cv": rows})
    with pytest.raises(UserError, match=sentence):
        sun.load(str(tmp_path / "S"), feature="lite0")


def test_without_features_the_whole_command_is_told(tmp_path):
    write_cub(tmp_path / "C" / "CUB")
    root = tmp_path / "C" / "CUB"
    (root / "lite0.npz").unlink()
    with pytest.raises(UserError) as caught:
        cub.load(str(root))
    assert f"python -m zsl.extract {root / 'images'} --to {root / 'lite0.npz'} feature=lite0" in str(caught.value)


def test_awa_proposed_split_is_known_where_its_classes_are(tmp_path):
    write_awa(tmp_path, names=(*awa.PROPOSED, *AWA_LIKE[:5], "tiger", "lion"))
    table = awa.load(str(tmp_path))
    assert list(table.splits) == ["proposed", "standard"]
    assert {table.class_names[c] for c in table.splits["proposed"].unseen} == set(awa.PROPOSED)
    assert "drawn" in table.splits["proposed"].origin["test_seen"]


@pytest.mark.parametrize(
    ("file", "content", "sentence"),
    [
        ("classes.txt", "1\ta\n3\tb\n", r"classes\.txt: line 2 has number 3"),
        ("classes.txt", "antelope\n", "each line must be NUMBER NAME"),
        ("predicate-matrix-continuous.txt", "1 2\n3 4\n", r"the matrix has shape \(2, 2\), but there are 6 classes"),
        ("predicate-matrix-continuous.txt", "1 x\n3 4\n", "is not a table of numbers"),
        ("predicate-matrix-continuous.txt", "<html></html>", "is an HTML page"),
        ("testclasses.txt", "hors\n", r"'hors' is not a class of this dataset \(did you mean 'horse'\?\)"),
        ("testclasses.txt", "beaver\n", "'beaver' is in trainclasses.txt as well"),
        ("testclasses.txt", "horse\n", "'dalmatian' is neither in trainclasses.txt nor in testclasses.txt"),
        ("Features/ResNet101/AwA2-labels.txt", "1\n2\n", "36 rows and AwA2-labels.txt 2 labels"),
        ("Features/ResNet101/AwA2-filenames.txt", "a\n", "has 1 lines for 36 images"),
        ("Features/ResNet101/AwA2-features.txt", "1 2\n3 nan\n", "value 2 of line 2 is 'nan'"),
        ("Features/ResNet101/AwA2-features.txt", "1 1e300\n" * 36, "feature 2 of image 1 is inf"),
        ("Features/ResNet101/AwA2-features.txt", "1 2\n3 4 5\n", "Expected 2 fields in line 2, saw 3"),
        ("Features/ResNet101/AwA2-features.txt", "1 2 3\n3 4\n", "is not a table of numbers|nan"),
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


def test_cub_image_level_attributes(tmp_path):
    stored = write_cub(tmp_path / "CUB_200_2011")
    table = cub.load(str(tmp_path / "CUB_200_2011"), feature="lite0", semantics="image")
    assert_array_equal(table.image_attributes, stored["rows"].astype(np.float32))
    split = random(table, n_unseen=2)
    data = ZeroShotData.from_table(table, split)
    own, rows = stored["rows"][split.trainval], data.Z
    assert_allclose(rows[~np.isnan(own)], own[~np.isnan(own)])  # every image's own row
    for i, c in enumerate(data.seen):  # class rows: means over the training images
        mine = stored["rows"][split.trainval][table.labels[split.trainval] == c]
        has = ~np.isnan(mine).all(axis=0)
        assert_allclose(data.Z_seen[i][has], np.nanmean(mine[:, has], axis=0))
    for m, c in enumerate(data.unseen):
        mine = stored["rows"][table.labels == c]
        has = ~np.isnan(mine).all(axis=0)
        assert_allclose(data.Z_unseen[m][has], np.nanmean(mine[:, has], axis=0))
    assert data.key["semantics"]["missing"]["values"] == np.isnan(stored["rows"]).sum()
    with pytest.raises(UserError, match="permutes class rows"):
        data.shuffle_attributes(0)


def test_an_image_level_run_says_so_in_its_record(tmp_path):
    write_cub(tmp_path / "CUB")
    arguments = ["dataset=cub", f"dataset.root={tmp_path / 'CUB'}", "feature=lite0", "split=random", "split.n_unseen=2"]
    result = run(compose([*arguments, "dataset.semantics=image", "inference=aag", "tracking=none"]))
    assert result.key["dataset"]["semantics"]["image_level"] is True
    assert "class_rows" in result.key["dataset"]["semantics"]
    assert any("class rows are means over images" in used for used in result.key["information_used"])


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


def test_images_that_have_no_features_are_named(tmp_path):
    stored = write_sun(tmp_path / "S")
    np.savez(
        tmp_path / "S" / "lite0.npz", features=stored["features"][1:], labels=stored["labels"][1:] + 1,
        files=np.array([f"x{i}" for i in range(19)]),
    )  # fmt: skip
    with pytest.raises(UserError, match=r"lacks 20 of the 20 images .*\(first: 'a/abbey/sun_0\.jpg'\)"):
        sun.load(str(tmp_path / "S"), feature="lite0")
    np.savez(tmp_path / "S" / "lite0.npz", features=stored["features"][1:], labels=stored["labels"][1:] + 1)
    with pytest.raises(UserError, match="has 19 rows and no file names, but there are 20 images"):
        sun.load(str(tmp_path / "S"), feature="lite0")


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
