"""The dataset that comes with zsl, and its build from CIFAR's archives."""

from __future__ import annotations

import io
import os
import pickle
import tarfile

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from zsl import UserError, load_dataset
from zsl.data import cifar
from zsl.data.__main__ import main
from zsl.data.readers import cifar_awa, xlsa17

TABLE = cifar_awa.load("nowhere")


def test_it_holds_what_its_description_says():
    assert TABLE.features.shape == (4904, 128)
    assert TABLE.attributes.shape == (25, 85)
    assert set(np.bincount(TABLE.labels).tolist()) == {200, 104}
    assert [TABLE.class_names[c] for c in TABLE.splits["standard"].unseen] == [
        "leopard",
        "seal",
        "chimpanzee",
        "raccoon",
    ]
    for split in TABLE.splits.values():
        rows = np.concatenate([split.trainval, split.test_seen, split.test_unseen])
        assert_array_equal(np.sort(rows), np.arange(4904))
        assert not np.isin(TABLE.labels[split.trainval], split.unseen).any()
    np.testing.assert_allclose(np.linalg.norm(TABLE.attributes, axis=1), 1)
    # The highest rows of attributes whose meaning nobody doubts.
    original = cifar_awa.load("nowhere", semantics="original").attributes
    highest = {a: TABLE.class_names[original[:, i].argmax()] for i, a in enumerate(TABLE.attribute_names)}
    assert [highest[a] for a in ("stripes", "tusks", "hooves", "flippers", "domestic")] == [
        "tiger", "elephant", "horse", "dolphin", "chihuahua",
    ]  # fmt: skip


def test_it_equals_the_folder_it_was_made_from(shared):
    theirs = xlsa17.load(str(shared / "cifar_awa"), feature="lite0_pca128", cache="off")
    assert_array_equal(theirs.features, TABLE.features)
    assert_array_equal(theirs.labels, TABLE.labels)
    np.testing.assert_allclose(theirs.attributes, TABLE.attributes, rtol=1e-15)
    assert theirs.class_names == TABLE.class_names
    assert theirs.image_names == TABLE.image_names
    for name, split in theirs.splits.items():
        for part in ("trainval", "test_seen", "test_unseen", "unseen"):
            assert_array_equal(getattr(split, part), getattr(TABLE.splits[name], part))


@pytest.mark.slow
def test_its_features_are_a_projection_of_the_networks(shared):
    """What the description says of the 128 directions, from the 1280 outputs of the network."""
    with np.load(shared / "cifar_awa" / "lite0_1280.npz") as stored:
        outputs = stored["features"].astype(float)
    unit = np.c_[outputs / np.linalg.norm(outputs, axis=1, keepdims=True), np.ones(len(outputs))]
    map_, *_ = np.linalg.lstsq(unit, TABLE.features.astype(float), rcond=None)
    assert np.abs(unit @ map_ - TABLE.features).max() < 2e-4
    assert np.abs(map_[:-1].T @ map_[:-1] - np.eye(128)).max() < 1e-3


def test_other_features_of_the_same_images(tmp_path):
    rng = np.random.default_rng(0)
    order = rng.permutation(4904)
    names = np.array([n.replace("+", "_") for n in TABLE.class_names])
    features = rng.normal(size=(4904, 3)).astype(np.float32)
    # As zsl.extract writes them: sorted class names, labels from 1, files CLASS/NAME.
    sorted_names = np.sort(names)
    labels = np.searchsorted(sorted_names, names[TABLE.labels])
    files = np.array([f"{names[c]}/{f.rpartition('/')[2]}" for f, c in zip(TABLE.image_names, TABLE.labels)])
    stored = {
        "features": features[order],
        "labels": labels[order] + 1,
        "class_names": sorted_names,
        "files": files[order],
    }
    np.savez(tmp_path / "mine.npz", **stored)
    found = cifar_awa.load(str(tmp_path), feature="mine", cache="off")
    assert_array_equal(found.features, features)
    assert "caution" not in found.provenance
    stored = {k: v[:-1] if k in ("features", "labels", "files") else v for k, v in stored.items()}
    np.savez(tmp_path / "fewer.npz", **stored)
    with pytest.raises(UserError, match="lacks 1 of the 4904 images"):
        cifar_awa.load(str(tmp_path), feature="fewer", cache="off")
    with pytest.raises(UserError, match=r"other.mat .or .npz. is missing; the folder has: fewer, mine"):
        cifar_awa.load(str(tmp_path), feature="other", cache="off")
    with pytest.raises(UserError, match="data build cifar_awa"):
        cifar_awa.load(str(tmp_path / "no"), feature="lite0_1280")
    with pytest.raises(UserError, match="it has: continuous, original"):
        load_dataset("cifar_awa", overrides=("dataset.semantics=binary",))


def of_python_2(content):
    """A pickle as Python 2 wrote CIFAR's: bytes as strings, numpy under its old name."""

    class Pickler(pickle._Pickler):
        dispatch = pickle._Pickler.dispatch.copy()

        def save_bytes(self, text):
            self.write(pickle.BINSTRING + len(text).to_bytes(4, "little") + text)
            self.memoize(text)

        dispatch[bytes] = save_bytes

    file = io.BytesIO()
    Pickler(file, protocol=2).dump(content)
    return file.getvalue().replace(b"numpy._core.multiarray", b"numpy.core.multiarray")


@pytest.fixture
def archives(tmp_path):
    """Archives in the layout of CIFAR's own, with random pixels; (folder, pixels by name)."""
    folder, rng, pixels = tmp_path / "downloads", np.random.default_rng(0), {}
    folder.mkdir()
    for archive, (packed, unpacked, parts) in cifar._ARCHIVES.items():
        with tarfile.open(folder / packed, "w:gz", compresslevel=0) as tar:
            for part, batches in parts.items():
                names = sorted(n for n in TABLE.image_names if n.startswith(f"{archive}:{part}/"))
                for batch, mine in zip(batches, np.array_split(names, len(batches))):
                    data = rng.integers(0, 256, (len(mine), 3072), dtype=np.uint8)
                    pixels |= {str(n): row.reshape(3, 32, 32).transpose(1, 2, 0) for n, row in zip(mine, data)}
                    files = [str(n).rpartition("/")[2].encode() for n in mine]
                    content = of_python_2({b"data": data, b"filenames": files})
                    info = tarfile.TarInfo(f"{unpacked}/{batch}")
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))
    return folder, pixels


@pytest.mark.slow
def test_build_writes_every_image_by_class(archives, tmp_path, monkeypatch, capsys):
    image = pytest.importorskip("PIL.Image", reason="Pillow comes with the extra extract-lite0")
    folder, pixels = archives
    commands = []

    class Done:
        returncode = 0

    # The extraction itself is tested in test_extract.py, with the network's weights.
    monkeypatch.setattr(cifar.subprocess, "run", lambda command, check: commands.append(command) or Done)
    assert main(["build", "cifar_awa", "--images", str(folder), "--to", str(tmp_path / "to")]) == 0
    assert "feature.name=lite0_1280" in capsys.readouterr().out
    assert commands[0][-1] == str(tmp_path / "to" / "lite0_1280.npz")
    files = sorted((tmp_path / "to" / "images").glob("*/*.png"))
    assert len(files) == 4904
    for name in list(pixels)[::500]:
        c = TABLE.labels[TABLE.image_names.index(name)]
        path = tmp_path / "to" / "images" / cifar_awa.image_key(name, TABLE.class_names[c])
        assert_array_equal(np.asarray(image.open(path)), pixels[name])


@pytest.mark.slow
def test_build_refuses(archives, tmp_path, monkeypatch, capsys):
    pytest.importorskip("PIL", reason="Pillow comes with the extra extract-lite0")
    folder, _ = archives
    failed = type("Failed", (), {"returncode": 1})
    monkeypatch.setattr(cifar.subprocess, "run", lambda command, check: failed)
    words = ["build", "cifar_awa", "--to", str(tmp_path / "to")]
    assert main([*words, "--images", str(tmp_path)]) == 1
    assert "holds neither cifar-10-python.tar.gz nor the folder cifar-10-batches-py" in capsys.readouterr().err
    # A pickle that would run a command is refused, and the command does not run.
    bad = tmp_path / "bad" / "cifar-10-batches-py"
    bad.mkdir(parents=True)
    for i in range(1, 6):
        bad.joinpath(f"data_batch_{i}").write_bytes(pickle.dumps(Evil(tmp_path / "ran")))
    assert main([*words, "--images", str(tmp_path / "bad")]) == 1
    assert "which is no array" in capsys.readouterr().err
    assert not (tmp_path / "ran").exists()
    # An archive that lacks an image is named with the image; archives lie unpacked in the target by then.
    assert main([*words, "--images", str(folder)]) == 1
    assert "features could not be extracted" in capsys.readouterr().err
    path = tmp_path / "to" / "cifar-100-python" / "test"
    path.write_bytes(of_python_2({b"data": np.zeros((0, 3072), np.uint8), b"filenames": []}))
    assert main([*words, "--images", str(tmp_path / "to")]) == 1
    assert "cifar-100-python.tar.gz lacks the image c100:test/" in capsys.readouterr().err
    (tmp_path / "to" / "lite0_1280.npz").touch()
    assert main([*words, "--images", str(folder)]) == 1
    assert "exists already and is not overwritten" in capsys.readouterr().err


class Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)
