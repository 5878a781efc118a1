"""The xlsa17 reader on small files, in every shape they are found in, and on real ones where present."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.io import savemat
from scipy.sparse import csc_array

from zsl import load_dataset
from zsl.data.readers import xlsa17
from zsl.errors import UserError

# 5 classes of 4 images; 1-based classes 2 and 5 are unseen.
LABELS = np.repeat(np.arange(1, 6), 4)
UNSEEN = np.isin(LABELS, [2, 5])
FEATURES = np.random.default_rng(0).random((20, 3)).astype(np.float32)
ATT = np.random.default_rng(1).random((5, 6))
NAMES = ["ant", "bee", "cat+fish", "dog", "eel"]


def cells(names):
    return np.array([[np.array([n])] for n in names], dtype=object)


def locations(mask):
    # As published: 1-based uint16 columns.
    return (np.flatnonzero(mask) + 1).astype(np.uint16)[:, None]


def splits(**change):
    held_out = np.arange(20) % 4 == 3
    stored = {
        "att": ATT.T,
        "original_att": ATT.T,
        "allclasses_names": cells(NAMES),
        "trainval_loc": locations(~UNSEEN & ~held_out),
        "test_seen_loc": locations(~UNSEEN & held_out),
        "test_unseen_loc": locations(UNSEEN),
        "something_else": np.ones(3),
    }
    return {k: v for k, v in {**stored, **change}.items() if v is not None}


@pytest.fixture
def folder(tmp_path):
    savemat(tmp_path / "res101.mat", {"features": FEATURES.T, "labels": LABELS[:, None].astype(np.float64)})
    savemat(tmp_path / "att_splits.mat", splits())
    return tmp_path


def check(table):
    assert_array_equal(table.features, FEATURES)
    assert_array_equal(table.labels, LABELS - 1)
    assert table.class_names == tuple(NAMES)
    assert_allclose(table.attributes, ATT)
    split = table.splits["proposed"]
    assert split.unseen.tolist() == [1, 4]
    assert_array_equal(split.test_unseen, np.flatnonzero(UNSEEN))
    assert split.trainval.tolist() == [0, 1, 2, 8, 9, 10, 12, 13, 14]
    assert split.trainval.dtype == np.int64


def test_published_layout(folder):
    table = xlsa17.load(str(folder))
    check(table)
    assert table.n_unseen == 2
    assert list(table.splits) == ["proposed"]


@pytest.mark.parametrize(
    "features",
    [
        {"features": FEATURES, "labels": LABELS},  # transposed by another tool
        {"features": FEATURES.T, "labels": LABELS - 1},  # 0-based
        {"features": FEATURES.T.astype(np.float64), "labels": LABELS.astype(np.uint8)},
        {"features": FEATURES.T, "labels": LABELS[None, :], "image_files": cells(["a"] * 20)},
        {"features": csc_array(FEATURES.T), "labels": LABELS},
    ],
)
def test_features_in_other_shapes(folder, features):
    savemat(folder / "res101.mat", features)
    check(xlsa17.load(str(folder)))


def test_attributes_transposed(folder):
    savemat(folder / "att_splits.mat", splits(att=ATT))
    check(xlsa17.load(str(folder)))


def test_other_feature_names_and_npz(folder):
    np.savez(folder / "mine.npz", features=FEATURES.astype(np.float16), labels=LABELS.astype(np.uint8))
    table = xlsa17.load(str(folder), feature="mine")
    assert_allclose(table.features, FEATURES, atol=1e-3)
    assert table.features.dtype == np.float32
    assert table.feature == "mine"
    with pytest.raises(UserError, match=r"none.mat \(or .npz\) is missing; the folder has: mine, res101 .choose with"):
        xlsa17.load(str(folder), feature="none")


def test_v73_file(folder):
    import h5py

    with h5py.File(folder / "res101.mat", "w", userblock_size=512) as f:
        # MATLAB writes dimensions in reverse.
        f["features"] = FEATURES
        f["labels"] = LABELS[None, :].astype(np.float64)
    with (folder / "res101.mat").open("r+b") as f:
        f.write(b"MATLAB 7.3 MAT-file")
    with h5py.File(folder / "att_splits.mat", "w") as f:
        references = f.create_dataset("allclasses_names", (1, 5), dtype=h5py.ref_dtype)
        for i, name in enumerate(NAMES):
            f[f"#refs#/{i}"] = np.array([[ord(c)] for c in name], dtype=np.uint16)
            references[0, i] = f[f"#refs#/{i}"].ref
        f["att"] = ATT
        for key in ("trainval_loc", "test_seen_loc", "test_unseen_loc"):
            f[key] = splits()[key].T
    check(xlsa17.load(str(folder)))


def test_standard_split_beside_or_as_published(folder):
    other = splits(test_unseen_loc=locations(LABELS == 1), trainval_loc=locations(LABELS > 1), test_seen_loc=None)
    savemat(folder / "att_splits_ss.mat", other)
    split = xlsa17.load(str(folder)).splits["standard"]
    assert split.unseen.tolist() == [0]
    assert split.test_seen.size == 0
    (folder / "att_splits_ss.mat").unlink()
    published = folder.parent / "standard_split" / folder.name
    published.mkdir(parents=True)
    savemat(published / "att_splits.mat", other)
    assert "standard" in xlsa17.load(str(folder)).splits
    savemat(published / "att_splits.mat", splits(allclasses_names=cells(NAMES[::-1])))
    with pytest.raises(UserError, match="lists other classes, or in another order"):
        xlsa17.load(str(folder))


def test_files_without_class_names(folder):
    savemat(folder / "att_splits.mat", splits(allclasses_names=None))
    assert xlsa17.load(str(folder)).class_names[4] == "class_5"


BAD_TABLES = [
    ({"att": None}, r"has no variable 'att' .it has: .*trainval_loc"),
    ({"trainval_loc": None}, "has no variable 'trainval_loc'"),
    ({"att": ATT[:4].T}, r"att has shape \(6, 4\), but there are 5 classes"),
    ({"att": np.where(ATT.T > 0.9, np.inf, ATT.T)}, "attribute . of class . is inf; impute or remove it"),
    ({"test_unseen_loc": np.array([[21]])}, r"test_unseen_loc points to image 21, but there are 20 images"),
    ({"trainval_loc": np.array([[0]])}, "trainval_loc points to image 0"),
]


@pytest.mark.parametrize(("change", "message"), BAD_TABLES)
def test_bad_tables(folder, change, message):
    savemat(folder / "att_splits.mat", splits(**change))
    with pytest.raises(UserError, match=message) as caught:
        xlsa17.load(str(folder))
    assert str(folder / "att_splits.mat") in str(caught.value)


BAD_FEATURES = [
    ({"features": FEATURES.T}, "has no variable 'labels'"),
    ({"features": FEATURES[:9].T, "labels": LABELS}, r"shape \(3, 9\) and there are 20 labels"),
    ({"features": FEATURES.T, "labels": LABELS + 1}, "image 17 has label 6, but .* has 5 classes"),
    (
        {"features": FEATURES.T, "labels": np.where(LABELS == 5, 6, LABELS)},
        "image 17 has label 6, but .* has 5 classes",
    ),
    ({"features": FEATURES.T, "labels": LABELS + 0.5}, "not whole numbers"),
    (
        {"features": np.where(FEATURES[4, 1] == FEATURES.T, np.inf, FEATURES.T), "labels": LABELS},
        "feature 2 of image 5 is inf",
    ),
]


@pytest.mark.parametrize(("content", "message"), BAD_FEATURES)
def test_bad_features(folder, content, message):
    savemat(folder / "res101.mat", content)
    with pytest.raises(UserError, match=message) as caught:
        xlsa17.load(str(folder))
    assert str(folder / "res101.mat") in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<!DOCTYPE html><html>404</html>", "it is an HTML page"),
        (b"version https://git-lfs.github.com/spec/v1\noid", "Git LFS pointer"),
        (b"", "it is empty"),
        (b"MATLAB 5.0 MAT-file" + b" " * 105 + b"\x00\x01IM" + b"\xff" * 300, "damaged or truncated"),
        (b"\x89HDF\r\n\x1a\n" + b"\x00" * 100, "damaged or truncated"),
    ],
)
def test_files_that_are_something_else(folder, content, message):
    (folder / "att_splits.mat").write_bytes(content)
    with pytest.raises(UserError, match=message):
        xlsa17.load(str(folder))


@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
@pytest.mark.parametrize("name", ["res101.mat", "att_splits.mat"])
def test_truncated_files(folder, name, share):
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: int(len(content) * share)])
    with pytest.raises(UserError, match=f"{name} "):
        xlsa17.load(str(folder))


def test_pickles_are_not_opened(folder):
    np.savez(folder / "evil.npz", features=np.array([print], dtype=object), labels=LABELS)
    with pytest.raises(UserError, match=r"'features' holds Python objects, which are not read"):
        xlsa17.load(str(folder), feature="evil")


def test_missing_folder_says_how_to_get_it(tmp_path):
    with pytest.raises(UserError, match=r"dataset=sun is not here: the folder .*SUN does not exist; download xlsa17"):
        load_dataset("sun", root=tmp_path / "SUN")


def test_overlapping_and_shared_classes_are_refused(folder):
    savemat(folder / "att_splits.mat", splits(trainval_loc=locations(np.ones(20, bool))))
    with pytest.raises(UserError, match="images are in both trainval and test_unseen"):
        load_dataset("xlsa17", root=folder)
    one_shared = ~UNSEEN | (np.arange(20) == 4)
    savemat(
        folder / "att_splits.mat",
        splits(trainval_loc=locations(one_shared), test_unseen_loc=locations(UNSEEN & ~one_shared), test_seen_loc=None),
    )
    with pytest.raises(UserError, match="both seen and unseen"):
        load_dataset("xlsa17", root=folder)


@pytest.mark.parametrize(
    ("name", "n", "q", "n_seen", "n_unseen", "rows"),
    [
        ("AWA1", 30475, 85, 40, 10, (19832, 4958, 5685)),
        ("AWA2", 37322, 85, 40, 10, (23527, 5882, 7913)),
        ("CUB", 11788, 312, 150, 50, (7057, 1764, 2967)),
        ("SUN", 14340, 102, 645, 72, (10320, 2580, 1440)),
    ],
)
def test_official_tables(shared, tmp_path, name, n, q, n_seen, n_unseen, rows):
    import shutil

    from zsl.data.readers.files import read_mat

    source = shared / "xlsa17" / name / "att_splits.mat"
    stored = read_mat(source)
    # Labels are not published without features; any that keep unseen rows in classes of their own will do.
    unseen = stored["test_unseen_loc"].ravel().astype(int) - 1
    labels = n_unseen + np.arange(n) % n_seen
    labels[unseen] = np.arange(len(unseen)) % n_unseen
    shutil.copy(source, tmp_path)
    np.savez(tmp_path / "toy.npz", features=np.ones((n, 1), np.float32), labels=labels + 1)
    table = xlsa17.load(str(tmp_path), feature="toy", name=name.lower())
    split = table.splits["proposed"]
    assert table.attributes.shape == (n_seen + n_unseen, q)
    assert (len(split.trainval), len(split.test_seen), len(split.test_unseen)) == rows
    names = {c.strip() for c in (shared / "xlsa17" / name / "testclasses.txt").read_text().split()}
    assert names < set(table.class_names)


def test_cifar_awa_both_features_and_splits(cifar_awa):
    small = xlsa17.load(str(cifar_awa), feature="lite0_pca128")
    whole = xlsa17.load(str(cifar_awa), feature="lite0_1280")
    assert small.features.shape == (4904, 128)
    assert whole.features.shape == (4904, 1280)
    assert_array_equal(small.labels, whole.labels)
    assert (len(small.splits["proposed"].unseen), len(small.splits["standard"].unseen)) == (4, 4)
    names = (cifar_awa / "testclasses.txt").read_text().split()
    assert sorted(np.array(small.class_names)[small.splits["proposed"].unseen]) == sorted(names)
