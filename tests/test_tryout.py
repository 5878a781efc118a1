"""``zsl try``: photographs and descriptions to one page, with a network that the test makes."""

from __future__ import annotations

import html
import os
import re
import shlex
import shutil

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import zsl
from zsl.data.readers.files import read_npz
from zsl.errors import UserError
from zsl.extract.networks import Network
from zsl.models import ESZSL
from zsl.tryout import __main__ as command
from zsl.tryout.choice import Chosen, Method
from zsl.tryout.evidence import answers, nearest_described, telling_attributes
from zsl.tryout.page import expectation

Image = pytest.importorskip("PIL.Image")
COLOURS = {
    "red_tall": (200, 30, 30, 1), "green_tall": (30, 200, 30, 1), "blue_tall": (30, 30, 200, 1),
    "red_wide": (200, 30, 30, 0), "green_wide": (30, 200, 30, 0), "grey_tall": (120, 120, 120, 1),
    "blue_wide": (30, 30, 200, 0), "grey_wide": (120, 120, 120, 0),
}  # fmt: skip
UNSEEN = ("grey_tall", "blue_wide")


@pytest.fixture
def photos(tmp_path):
    """Images of coloured bars, tall or wide; those of two kinds lie in ``unlabelled``."""
    rng = np.random.default_rng(0)
    for name, (*colour, tall) in COLOURS.items():
        folder = tmp_path / "photos" / ("unlabelled" if name in UNSEEN else name)
        folder.mkdir(parents=True, exist_ok=True)
        for i in range(6):
            pixels = np.full((24, 24, 3), 255.0)
            pixels[(slice(None), slice(9, 15)) if tall else (slice(9, 15), slice(None))] = colour
            pixels = np.clip(pixels + rng.normal(0, 12, pixels.shape), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"{name}_{i}.png")
    text = "".join(f"{name}: A {name.partition('_')[0]} bar that is {name.partition('_')[2]}.\n" for name in COLOURS)
    (tmp_path / "classes.yaml").write_text(text)
    return tmp_path / "photos"


@pytest.fixture
def seen_by(monkeypatch):
    """The pixels of an image, made small, are its features; counts how many images were read."""
    read = []

    def network_of(arguments, default, **settings):
        def prepare(path):
            read.append(path.name)
            with Image.open(path) as image:
                return np.asarray(image.resize((6, 6)), dtype=np.float32).transpose(2, 0, 1) / 255

        return Network(prepare, lambda pixels: pixels.reshape(len(pixels), -1), {"name": "small", "sha256": "0"},
                       108, (3, 6, 6))  # fmt: skip

    monkeypatch.setattr("zsl.extract.choice.network_of", network_of)
    return read


def tried(photos, *more):
    return command.main([str(photos), str(photos.with_name("classes.yaml")), *more])


@pytest.mark.slow
def test_one_page_tells_what_was_recognised_and_how_sure_it_is(photos, seen_by, capsys):
    assert tried(photos) == 0
    out = photos.with_name("photos-try")
    said = capsys.readouterr().out
    page = (out / "index.html").read_text()
    text = html.unescape(re.sub(r"<[^>]+>", " ", page))
    assert "12 images, recognised among 2 kinds without photographs" in text
    # The expectation on the page is the one that is printed, and it is not that of the images to be recognised.
    (sentence,) = re.findall(
        r"On average over kinds with photographs that were held out, .*? for \d+\.", " ".join(text.split())
    )
    assert sentence in said
    assert "A blue bar that is wide." in text
    assert page.count("data:image/jpeg;base64,") == 12 + 12  # each image with its kind, and among the least certain
    assert "http" not in page  # nothing is fetched when the page is opened
    import csv

    with (out / "run" / "predictions.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 12
    right = sum(row["file"].startswith(f"unlabelled/{row['predicted']}") for row in rows)
    assert right >= 10, right
    # The run behind the page is an ordinary one.
    assert zsl.ZeroShotClassifier.load(out / "run" / "model.skops").classes_.tolist() == list(UNSEEN)


@pytest.mark.slow
def test_a_second_call_reads_no_image_again_and_takes_other_descriptions(photos, seen_by):
    assert tried(photos) == 0
    assert len(seen_by) == 48
    source = photos.with_name("classes.yaml")
    source.write_text(source.read_text().replace("A grey bar", "A bar in grey"))
    assert tried(photos, "--encoder", "hashed") == 0
    assert len(seen_by) == 48
    assert "A bar in grey" in (photos.with_name("photos-try") / "index.html").read_text()
    Image.new("RGB", (24, 24)).save(photos / "unlabelled" / "new.png")
    assert tried(photos) == 0
    assert len(seen_by) == 48 + 49


@pytest.mark.slow
def test_images_that_were_written_again_are_read_again(photos, seen_by):
    assert tried(photos) == 0
    image = next((photos / "unlabelled").iterdir())
    os.utime(image, ns=(0, 0))  # the size is the same
    assert tried(photos) == 0
    assert len(seen_by) == 2 * 48


@pytest.mark.slow
def test_answers_to_questions_are_kept(photos, seen_by):
    assert tried(photos) == 0
    out = photos.with_name("photos-try")
    (out / "run" / "ask").mkdir()
    (out / "run" / "ask" / "questions.csv").write_text("mine")
    assert tried(photos) == 0
    assert (out / "run-1" / "ask" / "questions.csv").read_text() == "mine"
    assert (out / "run" / "predictions.csv").is_file()
    assert tried(photos) == 0
    (classes,) = out.glob("classes-*.npz")
    (features,) = out.glob("features-*.npz")
    assert {p.name for p in out.iterdir()} == {"run", "run-1", features.name, classes.name, "index.html"}
    # Other descriptions leave those of the kept run alone, and a description that is refused leaves everything.
    source = photos.with_name("classes.yaml")
    source.write_text(source.read_text().replace("A grey bar", "A bar in grey"))
    assert tried(photos) == 0
    assert len(list(out.glob("classes-*.npz"))) == 2
    files = [p for p in out.rglob("*") if p.is_file()]
    before = [p.stat().st_mtime_ns for p in files]
    source.write_text(source.read_text().replace("A bar in grey", "the of"))
    source.write_text(re.sub("grey_tall: .*", "grey_tall: the of", source.read_text()))
    assert tried(photos) == 1
    assert [p.stat().st_mtime_ns for p in files] == before


@pytest.mark.parametrize("name", ["it's", "a ${x} b", 'q"q', "c,d=e", "ü [1]"])
@pytest.mark.slow
def test_any_folder_will_do(photos, seen_by, name):
    assert tried(photos, "--to", str(photos.with_name(name))) == 0
    page = html.unescape((photos.with_name(name) / "index.html").read_text())
    assert f"<code>zsl ask {shlex.quote(str(photos.with_name(name) / 'run'))} --images " in page


@pytest.mark.slow
def test_the_page_says_when_answers_say_nothing(photos, seen_by, caplog):
    source = photos.with_name("classes.yaml")
    source.write_text(re.sub("(grey_tall|blue_wide): .*", r"\1: A grey bar that is wide.", source.read_text()))
    assert tried(photos) == 0
    page = " ".join(html.unescape((photos.with_name("photos-try") / "index.html").read_text()).split())
    assert "The classes 'grey_tall' and 'blue_wide' have the same description, so both get the same scores." in page
    source.write_text("".join(f"{name}: A {i}{i} b{i}b.\n" for i, name in enumerate(COLOURS)))
    assert tried(photos) == 0
    assert "no word occurs in the descriptions of two classes" in caplog.text
    assert "No word occurs in the descriptions" in (photos.with_name("photos-try") / "index.html").read_text()


@pytest.mark.slow
def test_with_few_kinds_the_page_says_that_nothing_was_compared(photos, seen_by, capsys):
    for name in ("green_tall", "blue_tall", "red_wide", "green_wide", "grey_wide"):
        shutil.rmtree(photos / name)
    (photos / "blue_tall").mkdir()
    Image.new("RGB", (24, 24), "blue").save(photos / "blue_tall" / "1.png")
    source = photos.with_name("classes.yaml")
    kept = ("red_tall", "blue_tall", "grey_tall", "blue_wide")
    source.write_text("".join(line for line in source.open() if line.startswith(kept)))
    assert tried(photos) == 0
    assert "is unknown" in capsys.readouterr().out
    page = (photos.with_name("photos-try") / "index.html").read_text()
    assert "with so few kinds, methods could not be compared" in page
    assert "accuracy on held-out kinds" not in page


@pytest.mark.slow
def test_an_interrupted_extraction_goes_on(photos, seen_by, monkeypatch):
    from zsl.extract import __main__ as extract

    real, calls = extract._features, []

    def stops(network, pixels):
        calls.append(len(pixels))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(network, pixels)

    with monkeypatch.context() as broken:
        broken.setattr(extract, "_features", stops)
        assert tried(photos) == 130
    n = len(seen_by)
    assert tried(photos) == 0
    assert len(seen_by) - n < 48  # the first batch was kept


@pytest.mark.slow
def test_a_run_that_fails_leaves_the_one_before(photos, seen_by, monkeypatch):
    assert tried(photos) == 0
    run = photos.with_name("photos-try") / "run"
    before = (run / "results.json").read_text()

    def fails(*_):
        (run / "half").mkdir(parents=True)
        raise UserError("no.")

    for _ in range(2):
        with monkeypatch.context() as broken:
            broken.setattr("zsl.experiment.run.run", fails)
            assert tried(photos) == 1
        assert (run / "results.json").read_text() == before
        assert not (run / "half").exists()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda p: (p / "red_tall").rename(p / "Red_tall"), "does not describe 'Red_tall', .*did you mean red_tall"),
        (lambda p: [f.unlink() for f in (p / "unlabelled").iterdir()], "has no folder 'unlabelled'"),
        (lambda p: p.with_name("classes.yaml").write_text("red_tall: A red bar.\n"), "does not describe"),
        (lambda p: p.with_name("classes.yaml").unlink(), "cannot be read"),
        (lambda p: (p / "unlabelled" / "notes.txt").write_text("x"), None),
        (lambda p: p.with_name("photos-try").mkdir() or (p.with_name("photos-try") / "mine").write_text(""),
         "is not empty and not by zsl try"),
    ],
)  # fmt: skip
def test_mistakes_end_in_a_sentence(photos, seen_by, capsys, change, sentence):
    change(photos)
    status = tried(photos)
    said = capsys.readouterr().err
    assert status == (0 if sentence is None else 1)
    assert sentence is None or re.search(sentence, said)
    assert "Traceback" not in said
    if sentence:
        assert not seen_by  # before any image is read


def test_described_kinds_without_photographs_are_needed(photos, seen_by, capsys):
    source = photos.with_name("classes.yaml")
    source.write_text("".join(line for line in source.open() if not line.startswith("grey_tall")))
    assert tried(photos) == 1
    assert "describes only one kind without photographs" in capsys.readouterr().err
    assert tried(photos, "--encoder", "tfdif") == 1
    assert "did you mean tfidf?" in capsys.readouterr().err
    assert tried(photos, "--to", str(photos / "x")) == 1
    assert "lies in" in capsys.readouterr().err


# --- the expectation, and the evidence ------------------------------------------------------------------------------


def test_the_expectation_is_of_the_method_that_the_other_draws_choose(photos, seen_by):
    from zsl.tryout import choice

    accuracy = np.array([[0.5, 0.5, 0.5], [0.9, 0.9, 0.1]])
    # Without the third draw the second method is surely better, with it alone among the two others it is not.
    found = [accuracy[choice._best(np.delete(accuracy, j, axis=1), 3.0), j] for j in range(3)]
    assert found == [0.5, 0.5, 0.1]
    assert choice._best(np.empty((2, 0)), 1.0) == 0
    method = Method("m", ())
    told = expectation(Chosen([method, method], accuracy, 4, 0, np.array(found)))
    assert told.startswith(
        "On average over kinds with photographs that were held out, 4 at a time, 37 of 100 answers were"
    )
    assert "guessing is right for 25." in told
    assert "is unknown" in expectation(Chosen([method], np.empty((1, 0)), 0, 0, np.empty(0)))


def test_answers_are_sorted_by_their_margin():
    found = answers(np.array([[3.0, 0.0], [0.0, 1.0], [0.0, 2.0], [1.0, 0.9]]))
    assert_array_equal(found.best, [0, 1, 1, 0])
    assert_array_equal(found.most_certain(1, 5), [2, 1])
    assert_array_equal(found.least_certain(1), [3])
    assert_array_equal(answers(np.array([[0.3, 0.1 + 0.2], [1.0, 0.0]])).margin > 0, [False, True])  # rounding is a tie


def test_what_speaks_for_a_class_are_attributes_that_it_has_and_images_show():
    X = np.array([[1.0, 0.0, 0.2], [0.9, 0.1, 0.1], [0.0, 1.0, 0.1], [0.1, 0.9, 0.3]])
    import pandas as pd

    table = pd.DataFrame(
        [[1.0, 0.0, 1.0], [0.0, 1.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]],
        index=["zebra", "seal", "horse", "fish"], columns=["hooves", "fins", "stripes"],
    )  # fmt: skip
    classifier = zsl.ZeroShotClassifier(ESZSL(gamma=0.1), "own").fit(X, ["zebra", "zebra", "seal", "seal"], table)
    named = telling_attributes(classifier, X[:2], 0)
    assert named[0] == "hooves"
    assert "fins" not in named  # the horse has none: what a class lacks says nothing in words
    assert nearest_described(classifier, 0)[0][0] == "zebra"
    unnamed = table.set_axis([f"hashed:{i}" for i in range(3)], axis=1)
    other = zsl.ZeroShotClassifier(ESZSL(), "own").fit(X, ["zebra", "zebra", "seal", "seal"], unnamed)
    assert telling_attributes(other, X[:2], 0) == []


@pytest.mark.slow
def test_texts_of_the_file_are_on_the_page(photos, seen_by):
    assert tried(photos) == 0
    kept = read_npz(next(photos.with_name("photos-try").glob("classes-*.npz")))
    assert_allclose(np.linalg.norm(kept["attributes"], axis=1), 1)
