"""Images as cameras, scanners and programs write them, and names of files that are no text."""

from __future__ import annotations

import os

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from zsl.errors import UserError
from zsl.extract import __main__ as extraction
from zsl.extract.images import find_images
from zsl.extract.lite0 import Settings
from zsl.extract.networks import Network
from zsl.extract.pixels import as_rgb, open_image

Image = pytest.importorskip("PIL.Image", reason="images need the extra extract-lite0 or extract")

RAMP = np.tile(np.arange(256), (8, 1)).astype(np.uint8)
WIDE = RAMP.astype(np.uint16) * 257


def stored(folder, name, pixels, **options):
    """The image as it comes from a file, in RGB."""
    Image.fromarray(pixels).save(folder / name, **options)
    return seen(folder / name)


def seen(path):
    with Image.open(path) as opened:
        return np.asarray(as_rgb(opened, opened.format))


# --- ranges of pixels ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "pixels"),
    [
        ("8.png", RAMP), ("16.png", WIDE), ("16.tif", WIDE), ("32.tif", WIDE.astype(np.int32)),
        ("float.tif", RAMP.astype(np.float32) / 255), ("black.tif", np.zeros((8, 256), np.int32)),
    ],
)  # fmt: skip
def test_every_range_shows_the_same_picture(tmp_path, name, pixels):
    found = stored(tmp_path, name, pixels)
    expected = np.zeros_like(RAMP) if name == "black.tif" else RAMP
    assert_array_equal(found, np.repeat(expected[:, :, None], 3, axis=2))


@pytest.mark.parametrize("order", [">u2", "<u2"])
def test_grey_of_16_bits_in_other_files(tmp_path, order):
    if order == ">u2":
        (tmp_path / "a.pgm").write_bytes(b"P5\n256 8\n65535\n" + WIDE.astype(order).tobytes())
        assert_array_equal(seen(tmp_path / "a.pgm")[:, :, 0], RAMP)
    image = Image.frombytes("I;16B" if order == ">u2" else "I;16", (256, 8), WIDE.astype(order).tobytes())
    assert_array_equal(np.asarray(as_rgb(image, None))[:, :, 2], RAMP)


@pytest.mark.parametrize(
    "pixels",
    [
        np.full((8, 8), 1.5, np.float32), np.full((8, 8), np.nan, np.float32), np.full((8, 8), -0.1, np.float32),
        np.full((8, 8), 70_000, np.int32), np.full((8, 8), -1, np.int32), np.full((8, 8), 200, np.int32),
    ],
)  # fmt: skip
def test_an_unknown_range_is_no_picture_until_it_is_saved_with_8_bits(tmp_path, pixels):
    with pytest.raises(ValueError, match="its pixels go from"):
        stored(tmp_path, "a.tif", pixels)
    assert stored(tmp_path, "b.tif", np.nan_to_num(pixels).astype(np.uint8)).shape == (8, 8, 3)


# --- transparency --------------------------------------------------------------------------------------------------

Y, X = np.mgrid[:40, :40]
DISC = (Y - 20) ** 2 + (X - 20) ** 2 < 100
SHOWN = np.where(DISC, 0, 255).astype(np.uint8)


def disc(hidden):
    """A black disc on nothing, with a colour hidden under the nothing."""
    pixels = np.zeros((40, 40, 4), np.uint8)
    pixels[~DISC, :3], pixels[DISC, 3] = hidden, 255
    return Image.fromarray(pixels)


@pytest.mark.parametrize("hidden", [(0, 0, 0), (0, 255, 0)])
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("a.png", lambda image: image), ("a.webp", lambda image: image), ("a.tif", lambda image: image),
        ("b.png", lambda image: image.convert("LA")), ("c.png", lambda image: image.quantize(method=2)),
        ("a.gif", lambda image: image),
    ],
)  # fmt: skip
def test_transparent_pixels_are_white(tmp_path, hidden, name, change):
    change(disc(hidden)).save(tmp_path / name, **({"lossless": True} if name == "a.webp" else {}))
    assert_allclose(seen(tmp_path / name), np.repeat(SHOWN[:, :, None], 3, axis=2), atol=4)


def test_a_transparent_colour_is_white(tmp_path):
    key = np.zeros((40, 40, 3), np.uint8)
    key[~DISC] = (255, 0, 255)
    assert_array_equal(stored(tmp_path, "rgb.png", key, transparency=(255, 0, 255))[:, :, 1], SHOWN)
    grey = np.where(DISC, 0, 77).astype(np.uint8)
    assert_array_equal(stored(tmp_path, "grey.png", grey, transparency=77)[:, :, 1], SHOWN)
    wide = np.where(DISC, 0, 7700).astype(np.uint16)
    assert_array_equal(stored(tmp_path, "wide.png", wide, transparency=7700)[:, :, 1], SHOWN)
    assert_array_equal(np.asarray(as_rgb(disc((9, 9, 9)).convert("RGBa"), None))[:, :, 1], SHOWN)


def test_half_transparent_pixels_are_mixed_and_opaque_ones_unchanged():
    pixels = np.full((2, 2, 4), 100, np.uint8)
    pixels[:, :, 3] = [[255, 0], [128, 255]]
    assert_allclose(np.asarray(as_rgb(Image.fromarray(pixels), None))[:, :, 0], [[100, 255], [177, 100]], atol=1)


def test_an_image_of_nothing_is_left_out():
    with pytest.raises(ValueError, match="all of its pixels are transparent"):
        as_rgb(Image.new("RGBA", (4, 4)), None)


def test_the_network_sees_what_people_see(tmp_path):
    for hidden in ((0, 0, 0), (0, 255, 0)):
        disc(hidden).save(tmp_path / f"{hidden[1]}.png")
    first, second = (Settings()(open_image(tmp_path / f"{c}.png")) for c in (0, 255))
    assert_array_equal(first, second)
    assert len(np.unique(first)) > 1


# --- names that are no text ----------------------------------------------------------------------------------------


def test_files_and_folders_whose_names_are_no_text_are_left_out_and_named(tmp_path, caplog):
    for folder in ("fox", "owl"):
        (tmp_path / folder).mkdir()
        Image.new("RGB", (40, 40)).save(tmp_path / folder / "1.png")
    try:
        os.rename(os.fsencode(tmp_path / "fox" / "1.png"), os.fsencode(tmp_path / "fox") + b"/caf\xe9.png")
        os.mkdir(os.fsencode(tmp_path) + b"/h\xfchner")
    except OSError:
        pytest.skip("this system has no such names")
    assert find_images(tmp_path).files == ("owl/1.png",)
    assert r"fox/caf\xe9.png is left out: its name is not text in UTF-8; rename it." in caplog.text
    assert r"h\xfchner is left out" in caplog.text
    assert find_images(tmp_path).nameless == (r"h\xfchner", r"fox/caf\xe9.png")
    os.rename(os.fsencode(tmp_path / "fox") + b"/caf\xe9.png", tmp_path / "fox" / "café.png")
    assert find_images(tmp_path).files == ("fox/café.png", "owl/1.png")


def test_a_list_finds_names_in_decomposed_characters(tmp_path):
    (tmp_path / "fox").mkdir()
    (tmp_path / "fox" / "cafe\u0301.png").touch()
    (tmp_path / "list.txt").write_text("fox/cafe\u0301.png\n", encoding="utf-8")
    assert len(find_images(tmp_path, tmp_path / "list.txt").files) == 1


# --- unfinished work -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damaged", ["plan.json", "0.npz"])
def test_damaged_unfinished_work_ends_in_a_sentence(tmp_path, monkeypatch, damaged):
    network = Network(
        lambda path: Settings()(open_image(path)), lambda x: np.zeros((len(x), 6)), {"name": "none"}, 6, (3, 224, 224)
    )
    (tmp_path / "fox").mkdir()
    for i in range(3):
        Image.new("RGB", (40, 40)).save(tmp_path / "fox" / f"{i}.png")
    target, images = tmp_path / "out.npz", find_images(tmp_path)

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(extraction.shutil, "rmtree", stop)
        with pytest.raises(KeyboardInterrupt):
            extraction.extract(images, network, target, batch_size=2)
    target.unlink()
    work = tmp_path / "out.npz.part"
    (work / damaged).write_bytes(b"\xff{")
    with pytest.raises(UserError, match=r"out\.npz\.part.*(remove it|download it again)"):
        extraction.extract(images, network, target, batch_size=2)
    extraction.shutil.rmtree(work)
    assert extraction.extract(images, network, target, batch_size=2) == []
