"""``python -m zsl.data list | check | convert``."""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import zsl
from archives import write_awa, write_cub, write_sun, write_xlsa17
from test_readers_xlsa17 import real_folder
from zsl.data.__main__ import main
from zsl.data.readers import awa, cub, sun, tabular, xlsa17


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


def test_list_says_what_is_here(tmp_path, capsys):
    write_xlsa17(tmp_path / "AWA2")
    assert main(["list", "--data-dir", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    row = next(line for line in out.splitlines() if "awa2" in line)
    assert str(tmp_path)[:40] in row
    assert " MB" in row
    assert "built in" in next(line for line in out.splitlines() if "digits" in line)
    assert " no " in next(line for line in out.splitlines() if "sun" in line)
    assert "awa2: cite Xian" in out


def test_check_awa2_reports_the_missing_values_and_the_leak(shared, tmp_path, capsys):
    real_folder(shared, tmp_path, "AWA2")
    assert main(["check", "awa2", "--data-dir", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "4 (antelope: black; antelope: white; antelope: blue; antelope: brown)" in out
    assert "att_splits_2018.mat: leak: train_loc and val_loc hold 5882 of the 5882 images of test_seen_loc" in out
    assert "37322" in out
    assert "in order" in out


def test_check_works_without_features(shared, capsys):
    assert main(["check", "awa2", "--data-dir", str(shared / "xlsa17")]) == 1
    out = capsys.readouterr().out
    assert "4 (antelope: black" in out
    assert "leak: train_loc" in out
    assert "res101.mat (or .npz) is missing" in out


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        (["check", "awa3"], 1, "did you mean awa2"),
        (["check", "awa2", "--rot", "x"], 2, "not understood: --rot x"),
        (["check", "digits", "split.n_unsen=3"], 1, "split.n_unsen does not exist (did you mean n_unseen?)"),
        (["convert", "digits"], 2, "--to"),
        (["nonsense"], 2, "invalid choice"),
        ([], 2, "required"),
    ],
)
def test_mistakes_are_told_in_a_sentence(capsys, arguments, status, sentence):
    try:
        found = main(arguments)
    except SystemExit as error:
        found = error.code
    captured = capsys.readouterr()
    assert found == status
    assert sentence in captured.err
    assert "Traceback" not in captured.err


def test_check_reports_a_split_that_cannot_be_made(capsys):
    assert main(["check", "digits", "split=random", "split.n_unseen=10"]) == 1
    assert "problem: split.n_unseen=10 leaves no seen class" in capsys.readouterr().out


def readers(tmp_path):
    write_awa(tmp_path / "awa")
    write_cub(tmp_path / "CUB" / "cub")
    write_sun(tmp_path / "sun")
    write_xlsa17(tmp_path / "xlsa17")
    return {
        "awa2": awa.load(str(tmp_path / "awa")),
        "cub": cub.load(str(tmp_path / "CUB" / "cub"), feature="lite0", semantics="image"),
        "sun": sun.load(str(tmp_path / "sun"), feature="lite0"),
        "xlsa17": xlsa17.load(str(tmp_path / "xlsa17")),
    }


def test_convert_and_read_back(tmp_path):
    roots = {
        "awa2": tmp_path / "awa",
        "cub": tmp_path / "CUB" / "cub",
        "sun": tmp_path / "sun",
        "xlsa17": tmp_path / "xlsa17",
    }
    for name, table in readers(tmp_path).items():
        more = [f"feature={table.feature}", "split=random", "split.n_unseen=2"]
        if table.semantics == "image":
            more.append("dataset.semantics=image")
        for form in ("xlsa17", "npz"):
            to = tmp_path / f"{name}-{form}"
            assert main(["convert", name, "--root", str(roots[name]), "--to", str(to), "--format", form, *more]) == 0
            if form == "xlsa17":
                source = "image" if table.semantics == "image" else None
                found = xlsa17.load(str(to), feature=table.feature, semantics=source)
            else:
                found = tabular.load("features.npz", attributes="attributes.csv", unseen="unseen.txt", root=str(to))
            assert_array_equal(found.features, table.features)
            assert_array_equal(found.labels, table.labels)
            assert found.class_names == table.class_names
            if table.image_attributes is not None:
                assert_array_equal(found.image_attributes, table.image_attributes)
            else:
                gaps = np.zeros(table.attributes.shape, bool) if table.missing is None else table.missing
                assert_array_equal(found.missing if found.missing is not None else np.zeros_like(gaps), gaps)
                assert_array_equal(found.attributes[~gaps], table.attributes[~gaps])
            expected = zsl.data.splits.random(table, n_unseen=2)
            assert_array_equal(found.splits["proposed"].unseen, expected.unseen)
            if form == "xlsa17":
                assert_array_equal(found.splits["proposed"].trainval, expected.trainval)


def test_convert_never_overwrites(tmp_path, capsys):
    assert main(["convert", "digits", "--to", str(tmp_path)]) == 0
    assert main(["convert", "digits", "--to", str(tmp_path)]) == 1
    assert "exists already and is not overwritten" in capsys.readouterr().err


def test_help_is_fast():
    best = np.inf
    for _ in range(3):
        start = time.perf_counter()
        out = subprocess.run([sys.executable, "-m", "zsl.data", "--help"], capture_output=True, text=True, check=True)
        best = min(best, time.perf_counter() - start)
    assert "check" in out.stdout
    assert best < 1


def test_paths_may_hold_any_character(tmp_path, capsys):
    root = tmp_path / 'quote\'s "and" more, ${x}'
    write_xlsa17(root / "AWA2")
    assert main(["check", "xlsa17", "--root", str(root / "AWA2")]) == 0
    assert main(["check", "awa2", "--data-dir", str(root)]) == 0
    assert main(["list", f"data_dir={root}"]) == 0
    assert "MB" in next(line for line in capsys.readouterr().out.splitlines() if line.startswith("│ awa2"))


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("dataset.semantics.missing=foo", "dataset.semantics.missing='foo' is not accepted"),
        ("feature.pca=1000", "feature.pca=1000 is more than the training data allow"),
        ("dataset.semantics.pca=1000", "dataset.semantics.pca=1000 is more than the training data allow"),
        ("feature.pca=0", "feature.pca=0 is not accepted"),
        ("feature.power=-1", "feature.power=-1 is not accepted"),
        ("feature.name=5", "feature.name=5 is not accepted: it should be a valid string"),
    ],
)
def test_check_refuses_what_a_run_would_refuse(capsys, override, sentence):
    assert main(["check", "digits", override]) == 1
    out = capsys.readouterr().out
    assert f"problem: {sentence}" in out
    assert "in order" not in out


def test_a_problem_is_told_once(tmp_path, capsys):
    stored = write_xlsa17(tmp_path)
    both = np.vstack([stored["test_seen_loc"], stored["trainval_loc"][:1]])
    write_xlsa17(tmp_path, test_seen_loc=both)
    assert main(["check", "xlsa17", "--root", str(tmp_path)]) == 1
    assert capsys.readouterr().out.count("problem:") == 1


@pytest.mark.parametrize("place", ["file", "file/below", "/proc/nowhere"])
@pytest.mark.parametrize("form", ["xlsa17", "npz"])
def test_convert_names_a_folder_that_cannot_be_written(tmp_path, capsys, place, form):
    (tmp_path / "file").write_text("")
    assert main(["convert", "digits", "--to", str(tmp_path / place), "--format", form]) == 1
    err = capsys.readouterr().err
    assert "cannot be written" in err
    assert "choose another folder with --to" in err


@pytest.mark.parametrize(
    "error", [PermissionError(13, "Permission denied", "some/file"), MemoryError("Unable to allocate")]
)
def test_what_nobody_foresaw_is_a_sentence_too(monkeypatch, capsys, error):
    def fails(*_):
        raise error

    monkeypatch.setattr("zsl.data.report.check", fails)
    assert main(["check", "digits"]) == 1
    err = capsys.readouterr().err
    assert "some/file cannot be used (Permission denied)" in err or "there is not enough memory (Unable to" in err
    assert err.count("\n") == 1
