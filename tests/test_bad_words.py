"""Command lines, YAML files and terminals as people have them: any path, any letters, bounded expansion."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import example, given
from hypothesis import strategies as st

from archives import write_xlsa17
from zsl.config import check_flags, check_nodes, check_own_files, compose, normalise_argv, resolve
from zsl.config.argv import quoted
from zsl.data.__main__ import main as data_command
from zsl.data.cache import Folder
from zsl.data.dataset import ZeroShotData
from zsl.data.readers import xlsa17
from zsl.data.readers.tables import validation_lists
from zsl.data.table import ImageTable, Split
from zsl.errors import UserError
from zsl.predict.__main__ import write

HOME = os.path.expanduser("~")


# --- paths on the command line -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("~/data", f"{HOME}/data"), ("~", HOME), ("'~/data'", f"{HOME}/data"), ('"~/data"', f"{HOME}/data"),
        ("/mnt/run=3/x", "/mnt/run=3/x"), ("/home/it's", "/home/it's"), ('a"b', 'a"b'), ("50%", "50%"), ("p?q", "p?q"),
        ("My%20Data", "My%20Data"), ("a#b", "a#b"), ("größe 🦓", "größe 🦓"), ("photos (1)", "photos (1)"),
        ("a&b;c!", "a&b;c!"),
        ("C:\\data\\", "C:\\data\\"), ("a~b", "a~b"), ("^<b>`c`|", "^<b>`c`|"), ("~/${seed}", f"{HOME}/0"),
    ],
)  # fmt: skip
def test_a_path_needs_no_quotes_of_hydra(written, meant):
    words = normalise_argv([f"output_dir={written}"])
    assert compose(words).output_dir == meant
    assert normalise_argv(words) == words


@given(st.text(alphabet=st.characters(exclude_categories=("Cs", "Cc"))))
@example("\\")
@example("'\"\\")
def test_any_text_can_be_quoted(text):
    parsed = OverridesParser.create().parse_override(f"output_dir={quoted(text)}")
    assert str(parsed.value()) == text


@pytest.mark.parametrize("path", ["{a", "a,b", "[1", "range(1", "a,it's", 'a#,"b'])
def test_the_quotes_that_a_refusal_shows_work_in_a_shell(path):
    with pytest.raises(UserError) as refused:
        compose([f"output_dir={path}"])
    (word,) = shlex.split(re.split("for the shell: |for one value write ", str(refused.value))[1].removesuffix("."))
    assert str(compose([word]).output_dir) == path


def test_words_that_are_no_text_are_refused():
    with pytest.raises(UserError, match=r"'dataset.root=caf\\xe9' is not text in UTF-8.*rename"):
        check_flags(["dataset.root=caf\udce9"])


@pytest.mark.parametrize("value", [3, False, ["a"]])
def test_cache_dir_is_a_folder(value):
    config = resolve(compose([]))
    check_nodes({**config, "cache_dir": "off"})
    with pytest.raises(UserError, match=r"cache_dir=.* is not accepted: .* the path of a folder, 'off' or null"):
        check_nodes({**config, "cache_dir": value})


def test_no_choice_ends_in_a_sentence():
    with pytest.raises(UserError, match="experiment=null chooses nothing; leave it out"):
        compose(["model=ridge", "experiment=null"])
    assert compose(["model=ridge"]).experiment is None


def test_flags_know_the_home_folder_too():
    assert normalise_argv(["--config-dir=~/c", "-cd", "~/d"]) == [f"--config-dir={HOME}/c", "-cd", f"{HOME}/d"]


# --- YAML ----------------------------------------------------------------------------------------------------------

LAUGHS = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 9)
)
TENFOLD = "b0: xxxxxxxxxx\n" + "".join(f"b{i}: {f'${{b{i - 1}}}' * 10}\n" for i in range(1, 10))
TWOFOLD = "c0: x\nc1: y\n" + "".join(f"c{i}: ${{c{i - 1}}}${{c{i - 2}}}\n" for i in range(2, 90))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (LAUGHS, r"aliases \(\*NAME\) grow to more than"),
        ("a: &a [*a]\n", r"aliases \(\*NAME\) grow"),
        (TENFOLD, "interpolations in b5 grow to more than"),
        (TWOFOLD, "interpolations in c2. grow to more than"),
        ("d0: 1\n" + "".join(f"d{i}: ${{d{i - 1}}}\n" for i in range(1, 1000)), "grow to more than .* steps"),
        ("a: " + "[" * 1000, "nested more than 50 levels deep; write it flatter"),
        ("a: " + "{b: " * 3000 + "1" + "}" * 3000, "nested more than 50 levels"),
        ("a: !!python/object/apply:os.system [id]\n", "the tag .*os.system is not read; write plain values"),
        ("a:\n\t- b\n", r"line 2: this is no YAML \(.*put it right"),
        (b"a: caf\xe9\n", "is not in UTF-8; save it so"),
    ],
    ids=["laughs", "itself", "tenfold", "twofold", "chain", "lists", "maps", "tag", "tab", "latin"],
)
def test_yaml_files_are_bounded(tmp_path, text, sentence):
    path = tmp_path / "experiment" / "mine.yaml"
    path.parent.mkdir()
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    for words in (
        ["--config-dir", str(tmp_path)],
        [f"--config-dir={tmp_path}"],
        [f"hydra.searchpath=[file://{tmp_path}]"],
    ):
        with pytest.raises(UserError, match=sentence):
            check_own_files(words)
    path.write_text("a: &a [1, 2]\nb: *a\nc: ${a} ${b}\nd: ${oc.env:HOME} ${.c} ${e[0].f}\n")
    check_own_files(["--config-dir", str(tmp_path)])


def test_interpolations_of_the_command_line_are_bounded_too():
    words = ["+x0=xxxxxxxxxx", *(f"+x{i}={f'${{x{i - 1}}}' * 10}" for i in range(1, 10))]
    with pytest.raises(UserError, match=r"the configuration: the interpolations in x. grow"):
        resolve(compose(words))


def run_main(*words, **settings):
    return subprocess.run(
        [sys.executable, "-m", "zsl.main", *words], capture_output=True, timeout=100, env={**os.environ, **settings}
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("defaults:\n  - mine\n", b"includes the file itself; remove that line"), ("a: 1\na: 2\n", b"duplicate key a")],
)
def test_yaml_files_that_hydra_cannot_read_end_in_a_sentence(tmp_path, text, sentence):
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text("# @package _global_\n" + text)
    done = run_main("--config-dir", str(tmp_path), "experiment=mine", f"output_dir={tmp_path}/out")
    assert done.returncode == 1
    assert sentence in done.stderr
    assert done.stderr.count(b"\n") == 1


# --- letters -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_output_of_any_letters_under_any_encoding(tmp_path):
    names, rng = ["狐狸", "größe", "сова", "carp", "łoś", "eel"], np.random.default_rng(0)
    rows = rng.random((6, 4)).round(2)
    rows[2] = rows[0]  # a warning will name these
    y = np.repeat(np.arange(6), 6)
    X = rows[y] @ rng.normal(size=(4, 5)) + 0.1 * rng.normal(size=(36, 5))
    table = "".join(f"{n},{','.join(map(str, row))}\n" for n, row in zip(names, rows))
    (tmp_path / "c.csv").write_text(f"class,a,b,c,d\n{table}", encoding="utf-8")
    images = "".join(
        f"{names[c] if c < 4 else ''},фото {i}.jpg,{','.join(map(str, x))}\n" for i, (c, x) in enumerate(zip(y, X))
    )
    (tmp_path / "f.csv").write_text(f"label,file,a,b,c,d,e\n{images}", encoding="utf-8")
    odd = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "POSIX", "PYTHONIOENCODING": "cp1252"}
    words = [
        "dataset=tabular", f"dataset.features={tmp_path}/f.csv", f"dataset.attributes={tmp_path}/c.csv", "model=ridge",
        "tracking=none", f"hydra.run.dir={tmp_path}/out",
    ]  # fmt: skip
    code = (
        "import sys, zsl.main as m, zsl.predict.__main__ as p\nm.main()\nsys.exit(p.main([sys.argv[-1][14:], 'f.csv']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, env={**os.environ, **odd}, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert b"Logging error" not in done.stderr
    assert "狐狸" in (tmp_path / "out" / "zsl.log").read_text(encoding="utf-8")
    assert rb"\u0444\u043e\u0442\u043e 0.jpg,eel" in done.stdout


def test_names_that_are_no_text_are_refused_by_every_table():
    names = {"class_names": ("cat", "dog"), "image_names": ("a", "b"), "attribute_names": ("q",)}
    for kind in names:
        bad = {**names, kind: (*names[kind][:-1], "caf\udce9")}
        with pytest.raises(
            UserError, match=rf"the {kind.partition('_')[0]} name 'caf\\xe9' is not text in UTF-8; rename"
        ):
            ImageTable("toy", "raw", np.eye(2), np.arange(2), attributes=np.eye(2)[:, :1], **bad)


def test_names_like_markup_are_printed_as_they_are(tmp_path, capsys):
    names = ["[/red]", "[bold]x", "[link=a]b"]
    rows = "".join(f"{name},{i},{i * i},{-i}\n" for i, name in zip((5, 2, 9), names * 1))
    (tmp_path / "c.csv").write_text(f"class,a,b,c\n{rows}")
    (tmp_path / "f.csv").write_text("label,a,b\n" + "".join(f"{names[i % 2]},{i * i},{i % 3}\n" for i in range(12)))
    words = [f"dataset.features={tmp_path}/f.csv", f"dataset.attributes={tmp_path}/c.csv"]
    assert data_command(["check", "tabular", *words, "dataset.unseen=null"]) == 1
    assert "[link=a]b" in capsys.readouterr().out


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_json_is_json_under_any_encoding(encoding):
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="backslashreplace")
    write([[("🦓", 1.0)], [("狐", 1.0)]], ["a.jpg", "ß.jpg"], out, as_json=True)
    out.seek(0)
    assert [one["classes"][0]["class"] for one in json.loads(out.read())] == ["🦓", "狐"]


# --- lists that are not used ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("train", "val", "reason"),
    [
        (("a", "b"), ("c",), "name unseen classes of this split .c."),
        (("a",), (), "lack seen classes of this split .b."),
    ],
)
def test_a_validation_list_that_is_not_used_is_named(train, val, reason):
    table = ImageTable("toy", "raw", np.eye(3), np.arange(3), ("a", "b", "c"), np.eye(3), validation=((train, val),))
    data = ZeroShotData.from_table(table, Split("s", np.array([0, 1]), np.array([], int), np.array([2]), np.array([2])))
    assert data.validation == ()
    assert len(data.notes) == 1
    assert re.search(rf"trainclasses1.txt and valclasses1.txt {reason}", data.notes[0])


def test_attribute_names_that_do_not_fit_are_named(tmp_path, caplog):
    write_xlsa17(tmp_path)
    (tmp_path / "predicates.txt").write_text("1 a\n2 b\n")
    assert xlsa17.load(str(tmp_path)).attribute_names == ()
    assert "predicates.txt has 2 names and is not used: the table has 4 attributes; name each" in caplog.text
    (tmp_path / "predicates.txt").write_text("1 a\n2 b\n3 c\n4 d\n")
    assert xlsa17.load(str(tmp_path)).attribute_names == ("a", "b", "c", "d")


def test_half_a_pair_of_lists_is_named(tmp_path, caplog):
    (tmp_path / "valclasses2.txt").write_text("a\n")
    with caplog.at_level(logging.WARNING):
        assert validation_lists(Folder(tmp_path), ("a", "b")) == ()
    assert "valclasses2.txt is not used, because there is no trainclasses2.txt beside it; add that one" in caplog.text
    (Path(tmp_path) / "trainclasses2.txt").write_text("b\n")
    assert validation_lists(Folder(tmp_path), ("a", "b")) == ((("b",), ("a",)),)
