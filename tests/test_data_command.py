"""``zsl data list | check | convert``."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from archives import write_awa, write_cub, write_sun, write_xlsa17
from test_readers_xlsa17 import real_folder
from zsl import config
from zsl.data import splits
from zsl.data.__main__ import main
from zsl.data.dataset import ZeroShotData
from zsl.data.load import load_table
from zsl.data.readers import awa, cub, sun, tabular, xlsa17


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


@pytest.mark.slow
def test_list_says_what_is_here(tmp_path, capsys):
    write_xlsa17(tmp_path / "AWA2")
    write_awa(tmp_path / "Animals_with_Attributes")
    assert main(["list", "--data-dir", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    rows = {line.split("│")[1].strip(): line for line in out.splitlines() if line.startswith("│")}
    for name in ("awa1", "awa2"):
        assert str(tmp_path)[:40] in rows[name]
        assert " MB " in rows[name]
    assert "Animals with Attributes 2" in rows["awa2"]
    assert "built in" in rows["digits"]
    assert "no, 880 MB to download" in rows["sun"]
    assert "your own" in rows["xlsa17"]
    assert "awa2: cite Xian" in out


@pytest.mark.slow
def test_list_shows_a_dataset_that_has_no_entry_in_the_catalogue(tmp_path, capsys, monkeypatch):
    shutil.copytree(config.conf_dir(), tmp_path / "conf")
    (tmp_path / "conf/dataset/mine.yaml").write_text(
        "# My photographs: 12 classes.\ndefaults:\n  - digits\n  - _self_\n_target_: my.reader.load\nname: mine\n"
    )
    for module in ("", ".registry", ".composition"):
        monkeypatch.setattr(f"zsl.config{module}.conf_dir", lambda: tmp_path / "conf")
    assert main(["list"]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("│ mine"))
    assert "My photographs" in row


def test_check_awa2_reports_the_missing_values_and_the_leak(shared, tmp_path, capsys):
    real_folder(shared, tmp_path, "AWA2")
    assert main(["check", "awa2", "--data-dir", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "4 (antelope: black; antelope: white; antelope: blue; antelope: brown)" in out
    assert "att_splits_2018.mat: leak: train_loc and val_loc hold 5882 of the 5882 images of test_seen_loc" in out
    assert "37322" in out
    assert "OK: nothing wrong" in out


def test_check_works_without_features(shared, capsys):
    assert main(["check", "awa2", "--data-dir", str(shared / "xlsa17")]) == 1
    out = capsys.readouterr().out
    assert "4 (antelope: black" in out
    assert "leak: train_loc" in out
    assert "23527 images" in out
    assert "res101.mat (or .npz) is missing" in out


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        (["check", "awa3"], 1, "did you mean awa"),
        (["check", "awa2", "--rot", "x"], 1, "not understood: --rot x"),
        (["check", "digits", "split.n_unsen=3"], 1, "split.n_unsen does not exist (did you mean n_unseen?)"),
        (["check", "digits", "--root", "x"], 1, "dataset=digits has no folder"),
        (["convert", "digits"], 1, "--to"),
        (["nonsense"], 1, "invalid choice"),
        ([], 1, "required"),
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


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["split=random", "split.n_unseen=10"], "split.n_unseen=10 leaves no seen class"),
        (["dataset.semantics.missing=foo"], "dataset.semantics.missing='foo' is not accepted"),
        (["feature.pca=1000"], "feature.pca=1000 is more than the"),
        (["dataset.semantics.pca=1000"], "dataset.semantics.pca=1000 is more than the"),
        (["feature.name=5"], "feature.name=5 is not accepted: it should be a valid string"),
    ],
)
def test_check_refuses_what_a_run_would_refuse(capsys, overrides, sentence):
    assert main(["check", "digits", *overrides]) == 1
    out = capsys.readouterr().out
    assert f"problem: {sentence}" in out
    assert "OK" not in out


def test_a_problem_is_told_once(tmp_path, capsys):
    stored = write_xlsa17(tmp_path)
    both = np.vstack([stored["test_seen_loc"], stored["trainval_loc"][:1]])
    write_xlsa17(tmp_path, test_seen_loc=both)
    assert main(["check", "xlsa17", "--root", str(tmp_path)]) == 1
    assert capsys.readouterr().out.count("problem:") == 1


@pytest.mark.parametrize("form", ["xlsa17", "npz"])
@pytest.mark.parametrize(
    ("name", "write", "load", "source"),
    [
        ("awa2", write_awa, awa.load, None),
        ("cub", write_cub, cub.load, "image"),
        ("sun", write_sun, sun.load, None),
        ("xlsa17", write_xlsa17, xlsa17.load, None),
    ],
)
def test_convert_and_read_back(tmp_path, name, write, load, source, form):
    root, to = tmp_path / "data" / name, tmp_path / "to"
    root.parent.mkdir()
    write(root)
    feature = "lite0" if name in {"cub", "sun"} else "resnet101"
    table = load(str(root), feature=feature, semantics=source)
    more = [f"feature={feature}", "split=random", "split.n_unseen=2"]
    more += [f"dataset.semantics={source}"] if source else []
    assert main(["convert", name, "--root", str(root), "--to", str(to), "--format", form, *more]) == 0
    if form == "xlsa17":
        found = xlsa17.load(str(to), feature=feature, semantics=source)
    else:
        found = tabular.load("features.npz", attributes="attributes.csv", unseen="unseen.txt", root=str(to))
    assert_array_equal(found.features, table.features)
    assert_array_equal(found.labels, table.labels)
    assert found.class_names == table.class_names
    if source == "image":
        assert_array_equal(found.image_attributes, table.image_attributes)
    else:
        assert_array_equal(found.gaps, table.gaps)
        assert_array_equal(found.attributes[~table.gaps], table.attributes[~table.gaps])
    expected = splits.random(table, n_unseen=2)
    assert_array_equal(found.splits["proposed"].unseen, expected.unseen)
    if form == "xlsa17":
        assert found.splits["proposed"].rows == expected.rows


def test_convert_never_overwrites(tmp_path, capsys):
    assert main(["convert", "digits", "--to", str(tmp_path)]) == 0
    assert main(["convert", "digits", "--to", str(tmp_path)]) == 1
    assert "exists already and is not overwritten" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["file", "file/below", "/proc/nowhere"])
def test_convert_names_a_folder_that_cannot_be_written(tmp_path, capsys, place):
    (tmp_path / "file").write_text("")
    assert main(["convert", "digits", "--to", str(tmp_path / place)]) == 1
    err = capsys.readouterr().err
    assert "cannot be written" in err
    assert "choose another folder with --to" in err


@pytest.mark.slow
def test_paths_may_hold_any_character(tmp_path, capsys):
    root = tmp_path / 'quote\'s "and" more, ${x}'
    write_xlsa17(root / "AWA2")
    assert main(["check", "xlsa17", "--root", str(root / "AWA2")]) == 0
    assert main(["check", "awa2", "--data-dir", str(root)]) == 0
    assert main(["list", f"data_dir={root}"]) == 0
    assert "MB" in next(line for line in capsys.readouterr().out.splitlines() if line.startswith("│ awa2"))


def test_a_dataset_is_one_function_that_returns_a_table(tmp_path, monkeypatch):
    (tmp_path / "my_reader.py").write_text(
        "import numpy as np\n"
        "from zsl.data.table import ImageTable\n\n"
        "def load(feature: str) -> ImageTable:\n"
        "    X, y = np.random.default_rng(0).random((40, 3)), np.arange(40) % 5\n"
        "    Z = np.random.default_rng(1).random((5, 4))\n"
        "    return ImageTable('mine', feature, X, y, tuple('abcde'), Z, n_unseen=2)\n\n"
        "def divide(table, **_):\n"
        "    from zsl.data import splits\n"
        "    return splits.auto(table)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    table = load_table({"_target_": "my_reader.load", "name": "mine"}, "raw", None, allow=["my_reader"])
    data = ZeroShotData.from_table(table, splits.auto(table))
    assert (data.feature, len(data.unseen), data.split) == ("raw", 2, "random")
    # A split may be one, too, and zsl data convert takes it.
    words = ["split=random", "split._target_=my_reader.divide", "allow_targets=[my_reader]"]
    assert main(["convert", "digits", *words, "--to", str(tmp_path / "out")]) == 0


def test_help_is_fast():
    best = np.inf
    for _ in range(3):
        start = time.perf_counter()
        out = subprocess.run([sys.executable, "-m", "zsl.data", "--help"], capture_output=True, text=True, check=True)
        best = min(best, time.perf_counter() - start)
    assert "check" in out.stdout
    assert best < 1


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
