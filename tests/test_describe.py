"""Class descriptions: reading, prompts, word counts, means of texts, and what runs and predictions make of them."""

from __future__ import annotations

import math
import pickle
import re
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import zsl
from archives import features_for
from zsl.data.readers.tables import read_class_table
from zsl.describe.__main__ import main
from zsl.describe.classes import read_descriptions
from zsl.describe.encoders import Encoder, hashed, tfidf
from zsl.describe.prompts import PHOTOGRAPHS, read_prompts, texts_of
from zsl.describe.rows import class_rows, most_similar
from zsl.errors import UserError

YAML = """
zebra: [A horse with black stripes., It grazes in Africa.]
polar+bear: A white bear that hunts seals.
sea_lion:
no: "A class whose name YAML takes for a word of its own: not here."
"""


def written(folder, text, name="classes.yaml"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


# --- reading ---------------------------------------------------------------------------------------------------


def test_yaml_of_sentences(tmp_path, caplog):
    caplog.set_level("INFO")
    found = read_descriptions(written(tmp_path, YAML))
    assert found.names == ("zebra", "polar+bear", "sea_lion", "no")
    assert [len(s) for s in found.sentences] == [2, 1, 0, 1]
    assert found.attributes.shape == (4, 0)
    assert "1 classes (first: sea_lion) has no sentence, so that its name is its only text" in caplog.text


def test_yaml_and_csv_of_sentences_and_attributes_say_the_same(tmp_path):
    text = """
    zebra: {description: [Striped., Grazes.], attributes: {stripes: yes, weight: 300.5}}
    lion: {description: 'A cat, and large.', attributes: {stripes: 0, weight: }}
    """
    csv = 'class,text,stripes,more,weight\nzebra,Striped.,1,Grazes.,\nlion,"A cat,\n and large.",0,,\nzebra,,,,300.5\n'
    semicolons = "class;text;stripes;weight\nzebra;Striped.;1;300,5\nlion;A cat, and large.;0;\nzebra;Grazes.;;\n"
    for file in (written(tmp_path, text), written(tmp_path, csv, "a.csv"), written(tmp_path, semicolons, "b.csv")):
        found = read_descriptions(file)
        assert found.names == ("zebra", "lion")
        assert found.sentences == (("Striped.", "Grazes."), ("A cat, and large.",))
        assert found.attribute_names == ("stripes", "weight")
        assert_array_equal(found.attributes, [[1, 300.5], [0, np.nan]])


def test_names_of_classes_and_sentences_are_never_numbers_or_missing_values(tmp_path):
    csv = written(tmp_path, "class,text\n007,none at all\nNA,an agent\n", "a.csv")
    assert read_descriptions(csv).names == ("007", "NA")
    assert read_descriptions(written(tmp_path, "007: a\nnull: b\n1.50: c\n")).names == ("007", "null", "1.50")


@pytest.mark.parametrize(("text", "sentence"), [
    ("", "describes no class"),
    ("{}", "describes no class"),
    ("- zebra\n- lion", "is no mapping of class names"),
    ("zebra", "is no mapping of class names"),
    ("zebra: a: b", "line 1: this is no YAML .*between quotes"),
    ("zebra:\n- Home: Africa", "line 2: in the description of 'zebra' ': ' stands in a sentence"),
    ("zebra: 5", "the description of 'zebra' is no text"),
    ("zebra: [[a]]", "the description of 'zebra' is no text"),
    ("zebra: ''", "the class 'zebra' has no description"),
    ("zebra: []\nlion: a", "the class 'zebra' has no description"),
    ("zebra: {attributes: {a: 1}}\nlion: {description: b, attributes: {a: 1}}", "the class 'zebra' has no description"),
    ("zebra: a\nlion: b\nzebra: c", "line 3: the class 'zebra' occurs twice"),
    ("zebra: {a: 1, a: 2}", "of the class 'zebra' the attribute 'a' occurs twice"),
    ("zebra: a\nZebra: b", "'zebra' and 'Zebra' differ in capitals or blanks only"),
    ("sea lion: a\nsea_lion: b", "'sea lion' and 'sea_lion' differ in capitals or blanks only"),
    ("'': a", "class 1 has no name"),
    ("? [a]\n: b", "a name must be text"),
    ("zebra: {stripes: 1}\nlion: {stripe: 0}", r"'zebra' lacks the attribute 'stripe', .*did you mean stripes\?"),
    ("zebra: {stripes: 1}\nlion: a", "the class 'zebra' has no description"),
    ("zebra: {stripes: }", "the class 'zebra' has no attribute value at all"),
    ("zebra: {stripes: .inf}", "'stripes' of 'zebra' is '.inf', which is no number"),
    ("zebra: {stripes: 1e999}", "the class 'zebra' has an infinite attribute"),
    ("zebra: {stripes: many}", "line 1: the attribute 'stripes' of 'zebra' is 'many', which is no number"),
    ("zebra: {description: a, stripes: 1}", "'zebra' has 'stripes' beside description; put it under attributes"),
    ("zebra: {attributes: many}", "the attributes of 'zebra' are no names with numbers"),
    ("zebra: !!python/object/apply:os.system [ls]", "the tag .*os.system is not read"),
    ("zebra: &a b\nlion: *a", r"aliases \(\*a\) are not read"),
    ("zebra: {a: {b: {c: {d: {e: {f: 1}}}}}}", "nested more than 5 levels deep"),
    ("zebra: a\n---\nlion: b", "holds several documents"),
])  # fmt: skip
def test_bad_yaml_ends_in_a_sentence(tmp_path, text, sentence):
    with pytest.raises(UserError, match=sentence) as found:
        read_descriptions(written(tmp_path, text))
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(("text", "sentence"), [
    ("", "it is empty"),
    ("class,text\n", "it needs a header and at least one row"),
    ("class,text\nzebra,a\nlion,\n", "the class 'lion' has no description"),
    ("class,text\nzebra,a\nZebra,b\n", "differ in capitals or blanks only"),
    ("class,text\nzebra,a\n,b\n", "class 2 has no name"),
    ("class,legs\nzebra,4\nlion,four\n", "the column 'legs' holds 'four' in row 2, which is not a number"),
    ("class,legs,arms\nzebra,4,1\nlion,,\n", "the class 'lion' has no attribute value at all"),
    ("class,text,legs\nzebra,a,4\nzebra,b,5\n", "rows of the class 'zebra' give 'legs' as 4 and 5"),
    ("class,text,legs\nzebra,a,\n", "the column 'legs' has no value"),
    ("class,text,nr\na,b,1\nc,d,2\ne,f,3\n", "the column 'nr' numbers the classes"),
    ("class,text,text\nzebra,a,b\n", "two columns called 'text'"),
])  # fmt: skip
def test_bad_csv_ends_in_a_sentence(tmp_path, text, sentence):
    with pytest.raises(UserError, match=sentence):
        read_descriptions(written(tmp_path, text, "classes.csv"))


def test_other_files_are_refused_and_nothing_in_them_runs(tmp_path):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "trapped"), "w"))

    with pytest.raises(UserError, match=r"are read from .yaml or .csv"):
        read_descriptions(written(tmp_path, "zebra", "classes.txt"))
    for name in ("a.yaml", "a.csv"):
        (tmp_path / name).write_bytes(pickle.dumps(Trap()))
        with pytest.raises(UserError, match="holds Python objects"):
            read_descriptions(tmp_path / name)
    for key in ("attributes", "class_names", "encoder"):
        arrays = {"attributes": np.eye(2), "class_names": np.array(["a", "b"]), "encoder": np.array("{}")}
        np.savez(tmp_path / "a.npz", **{**arrays, key: np.array([Trap(), 1], dtype=object)})
        with pytest.raises(UserError, match="holds Python objects"):
            read_class_table(tmp_path / "a.npz")
    assert not (tmp_path / "trapped").exists()


def test_nested_aliases_are_refused_at_once(tmp_path):
    lines = ["c0: &c0 [x, x]", *(f"c{i}: &c{i} [*c{i - 1}, *c{i - 1}]" for i in range(1, 40_000))]
    path = written(tmp_path, "\n".join(lines))
    assert path.stat().st_size > 1_000_000
    start = time.process_time()
    with pytest.raises(UserError, match="aliases"):
        read_descriptions(path)
    assert time.process_time() - start < 2


# --- texts -----------------------------------------------------------------------------------------------------


def test_prompts_of_our_own(tmp_path):
    ours = read_prompts(PHOTOGRAPHS)
    assert len(set(ours)) == len(ours) >= 5
    texts = texts_of(read_descriptions(written(tmp_path, YAML)), ours)
    assert texts[2] == [prompt.replace("{}", "sea lion") for prompt in ours]
    assert texts[0][-2:] == ["A horse with black stripes.", "It grazes in Africa."]


def test_sentences_may_hold_braces(tmp_path):
    found = read_descriptions(written(tmp_path, "'{}x': 'a {} of {description}'"))
    assert texts_of(found, ["{}: {description}"]) == [["{}x: a {} of {description}"]]


@pytest.mark.parametrize("text", ["", "# a comment\n", "a photo\n", "a {name}\n", "a {} and a }\n"])
def test_bad_prompts(tmp_path, text):
    with pytest.raises(UserError, match=r"template"):
        read_prompts(written(tmp_path, text, "prompts.txt"))


# --- encoders --------------------------------------------------------------------------------------------------


def test_tfidf_of_two_classes_by_hand():
    # Both classes have "horse": idf 1. One of two has each other word: idf 1 + ln(3/2). "big" occurs twice: 1 + ln 2.
    a, b = ["Horse: big, BIG!"], ["The horse is smáll"]
    encoder = tfidf([a, b])
    assert encoder.terms == ("big", "horse", "small")
    rare = 1 + math.log(3 / 2)
    assert_allclose(encoder.encode([*a, *b]), [[(1 + math.log(2)) * rare, 1, 0], [0, 1, rare]], rtol=1e-12)


def test_tfidf_counts_classes_not_sentences():
    # A word in two sentences of one class is as rare as one in a single sentence.
    encoder = tfidf([["stripes", "stripes hooves"], ["mane"]])
    assert_allclose(encoder.encode(["stripes", "hooves", "mane"]).sum(axis=1), [1 + math.log(3 / 2)] * 3, rtol=1e-12)


def test_tfidf_keeps_the_commonest_words_and_needs_some():
    assert tfidf([["mane mane hooves"], ["mane hooves tail"]], dimensions=2).terms == ("hooves", "mane")
    with pytest.raises(UserError, match="no text has a word"):
        tfidf([["the"], ["a"]])


@given(st.text(max_size=60), st.integers(16, 200))
@pytest.mark.slow
def test_hashed_rows_are_those_of_the_text_alone(text, d):
    # Two halves of unit length; either may be empty.
    row = hashed(d).encode([text, "another text"])[0]
    assert row.shape == (d,)
    for half in (row[: d // 2], row[d // 2 :]):
        assert np.isclose(half @ half, 1) or not half.any()
    assert_array_equal(row, hashed(d).encode([text])[0])


def test_hashed_products_are_those_of_counts():
    # With as many columns as make collisions unlikely, the product of the halves is that of plain counts of terms.
    from sklearn.feature_extraction.text import CountVectorizer

    texts = ["a striped horse", "a horse without stripes"]
    d = 65_536
    rows = hashed(d).encode(texts)
    for half, options in (
        (rows[:, : d // 2], {"ngram_range": (1, 2), "token_pattern": r"(?u)\b\w+\b"}),
        (rows[:, d // 2 :], {"ngram_range": (3, 5), "analyzer": "char_wb"}),
    ):
        counts = CountVectorizer(**options).fit_transform(texts).toarray().astype(float)
        counts /= np.linalg.norm(counts, axis=1, keepdims=True)
        assert_allclose(half @ half.T, counts @ counts.T, atol=1e-12)


# --- rows ------------------------------------------------------------------------------------------------------


def fixed(vectors):
    """An encoder of known vectors."""
    return Encoder("fixed", lambda texts: np.array([vectors[t] for t in texts], dtype=float), "none")


def three(tmp_path, text="a: [x, y]\nb: z\nc: [x, x, z]\n"):
    found = read_descriptions(written(tmp_path, text))
    return found, texts_of(found)


VECTORS = {"x": [3, 4], "y": [0, 2], "z": [5, 0]}


def test_mean_of_texts_by_hand(tmp_path):
    # Unit vectors (.6, .8), (0, 1), (1, 0). Class a: (.3, .9) / sqrt(.9). Class c: (2.2, 1.6), divided by its length.
    found, texts = three(tmp_path)
    expected = np.array([[0.3, 0.9] / np.sqrt(0.9), [1, 0], [2.2, 1.6] / np.sqrt(2.2**2 + 1.6**2)])
    assert_allclose(class_rows(found, texts, fixed(VECTORS)).attributes, expected, rtol=1e-12)
    plain = class_rows(found, texts, fixed(VECTORS), l2=False)
    assert_allclose(plain.attributes, [[1.5, 3], [5, 0], [11 / 3, 8 / 3]], rtol=1e-12)
    centred = class_rows(found, texts, fixed(VECTORS), centre=True)
    assert_allclose(centred.attributes, expected - expected.mean(axis=0), atol=1e-15)
    assert centred.encoder["centred"]
    assert not plain.encoder["l2"]


@pytest.mark.parametrize("encoder", [tfidf, lambda texts: hashed(64)], ids=["tfidf", "hashed"])
def test_order_of_sentences_and_classes_does_not_count(tmp_path, encoder):
    rows = []
    for text in (
        "a: [red fox, big dog, old cat]\nb: [small dog]\nc: [a cat]\n",
        "c: [a cat]\nb: small dog\na: [old cat, red fox, big dog]\n",
    ):
        found, texts = three(tmp_path, text)
        made = class_rows(found, texts, encoder(texts))
        rows.append(dict(zip(made.class_names, made.attributes)))
    for name in "abc":
        assert_array_equal(rows[0][name], rows[1][name])


def test_a_class_of_which_nothing_is_left_is_named(tmp_path):
    found, texts = three(tmp_path, "a: horse\nb: it is the\n")
    with pytest.raises(UserError, match="nothing is left of the texts of the class 'b'"):
        class_rows(found, texts, tfidf(texts))


@given(st.integers(2, 12), st.integers(1, 4), st.integers(0, 5))
def test_most_similar_pairs_are_those_of_the_whole_table(n, pairs, seed):
    rows = np.random.default_rng(seed).standard_normal((n, 3))
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    i, j = np.triu_indices(n, 1)
    found = most_similar(rows, pairs)
    assert_allclose([c for *_, c in found], np.sort((unit @ unit.T)[i, j])[::-1][:pairs], atol=1e-12)
    assert all(a < b for a, b, _ in found)


def test_most_similar_pairs_across_blocks(monkeypatch):
    rows = np.random.default_rng(0).standard_normal((30, 4))
    whole = most_similar(rows, 5)
    monkeypatch.setattr("zsl.describe.rows._BLOCK", 7)
    assert [pair[:2] for pair in most_similar(rows, 5)] == [pair[:2] for pair in whole]


# --- the command and what reads its file ------------------------------------------------------------------------

BOTH = """
cat: {description: A small furry animal that meows., attributes: {legs: 4, wings: 0}}
dog: {description: [A furry animal., It barks.], attributes: {legs: 4, wings: }}
giraffe+tall: {description: An animal with a long neck and spots., attributes: {legs: 4, wings: 0}}
owl: {description: A bird with large eyes that hunts at night., attributes: {legs: 2, wings: 2}}
"""


@pytest.fixture
def photos(tmp_path):
    """Features of 24 images; the class owl has no labelled image."""
    labels = np.repeat(np.arange(4), 6)
    names = np.array(["cat", "dog", "giraffe+tall", "?"])[labels]
    np.savez(tmp_path / "photos.npz", features=features_for(labels, 5), labels=names)
    return tmp_path


def test_attributes_and_texts_reach_the_record_of_a_run(photos, capsys):
    source = written(photos, BOTH)
    assert main([str(source), "--encoder", "tfidf"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].endswith("classes.npz: 4 classes, 5 texts, 15 columns (2 of attributes, 13 of text)")
    assert out[1].startswith("most similar by text: cat and dog, cosine 0.")
    assert out[-1].startswith("  owl: ")
    stored = dict(np.load(photos / "classes.npz"))
    assert stored["texts"].tolist()[1] == "A furry animal.\nIt barks."
    data = zsl.load_dataset(
        "tabular", split="proposed", root=photos, features="photos.npz", attributes="classes.npz"
    )  # fmt: skip
    assert data.unseen_names == ["owl"]
    assert data.attribute_names[:3] == ("legs", "wings", "animal")
    provenance = data.key["provenance"]
    assert provenance["attribute_blocks"] == [["attributes", 2], ["text", 13]]
    record = provenance["encoder"]
    assert record["name"] == "tfidf"
    assert record["l2"]
    assert not record["centred"]
    assert "no image, no label" in record["fitted_on"]
    assert record["descriptions"]["file"] == "classes.yaml"
    assert len(record["descriptions"]["sha256"]) == 16
    table = read_class_table(photos / "classes.npz")
    assert_array_equal(table.rows[:, :2], [[4, 0], [4, np.nan], [4, 0], [2, 2]])
    assert_allclose(np.linalg.norm(table.rows[:, 2:], axis=1), 1)


def test_named_attributes_need_no_encoder(tmp_path, capsys):
    source = written(tmp_path, "zebra: {stripes: 1, legs: 4}\nlion: {stripes: 0, legs: 4}\n")
    assert main([str(source)]) == 0
    table = read_class_table(tmp_path / "classes.npz")
    assert table.attribute_names == ("stripes", "legs")
    assert list(table.about["encoder"]) == ["descriptions"]
    assert main([str(source), "--encoder", "tfidf", "--to", str(tmp_path / "b.npz")]) == 1
    assert "holds named attributes only; leave --encoder out" in capsys.readouterr().err


def test_a_csv_for_reading_by_eye_says_what_it_loses(tmp_path, capsys, caplog):
    caplog.set_level("INFO")
    source = written(tmp_path, YAML)
    assert main([str(source), "--encoder", "tfidf", "--to", str(tmp_path / "a.csv")]) == 0
    assert "a.csv does not say which encoder made it" in caplog.text
    assert main([str(source), "--encoder", "tfidf"]) == 0
    a, b = read_class_table(tmp_path / "a.csv"), read_class_table(tmp_path / "classes.npz")
    assert (a.names, a.attribute_names) == (b.names, b.attribute_names)
    assert_allclose(a.rows, b.rows, rtol=1e-12)


def test_equal_descriptions_are_a_warning_with_both_names(tmp_path, caplog):
    source = written(tmp_path, "ox: [Big., Strong.]\ncow: [strong., BIG.]\nfox: Red.\n")
    assert main([str(source), "--encoder", "hashed"]) == 0
    assert [r.message for r in caplog.records if r.levelname == "WARNING"] == [
        "the classes 'ox' and 'cow' have the same description, so both get the same scores."
    ]
    rows = read_class_table(tmp_path / "classes.npz").rows
    assert_allclose(rows[0], rows[1], atol=1e-15)


@pytest.mark.parametrize(("arguments", "sentence"), [
    ([], "holds texts; say what encodes them, such as --encoder tfidf"),
    (["--encoder", "tfdif"], r"--encoder tfdif does not exist \(did you mean tfidf\?\); there are: tfidf, hashed"),
    (["--encoder", "hf/"], "--encoder hf/ does not exist"),
    (["--encoder", "tfidf", "--weights", "x"], "--weights and --pickled are for networks"),
    (["--encoder", "tfidf", "--dimensions", "1"], "--dimensions must be from 16 to 65536, not 1"),
    (["--encoder", "hf/a/b", "--dimensions", "64"], "--dimensions is for tfidf and hashed"),
    (["--encoder", "tfidf", "--batch-size", "0"], "--batch-size must be at least 1"),
    (["--encoder", "tfidf", "--to", "a.txt"], "the name must end in .npz or .csv"),
    (["--encoder", "tfidf", "--to", "classes.yaml/a.npz"], "classes.yaml.* cannot be written"),
    (["--encoder", "tfidf", "--prompts", "nowhere.txt"], "nowhere.txt cannot be read"),
    (["--encoder"], "expected one argument; see zsl describe --help"),
])  # fmt: skip
def test_mistakes_of_the_command_end_in_one_sentence(tmp_path, monkeypatch, capsys, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, YAML)
    assert main(["classes.yaml", *arguments]) == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("zsl describe: ")
    assert re.search(sentence, line), line


def test_nothing_is_overwritten(tmp_path, capsys):
    source = written(tmp_path, YAML)
    assert main([str(source), "--encoder", "tfidf"]) == 0
    before = (tmp_path / "classes.npz").read_bytes()
    assert main([str(source), "--encoder", "hashed"]) == 1
    assert "exists already and is not overwritten" in capsys.readouterr().err
    assert (tmp_path / "classes.npz").read_bytes() == before


@pytest.mark.parametrize(("change", "sentence"), [
    ({"class_names": np.array(["a", "a"])}, "class_names has 'a' more than once"),
    ({"class_names": np.array(["a"])}, r"1 class_names for attributes of shape \(2, 2\)"),
    ({"attribute_names": np.array(["x"])}, r"1 attribute_names for attributes"),
    ({"encoder": np.array("{")}, "encoder is no JSON"),
    ({"blocks": np.array('[["text", 3]]')}, "blocks do not add up to the 2 attributes"),
    ({"attributes": None}, "has no variable 'attributes'"),
    ({"class_names": None}, "has no variable 'class_names'"),
])  # fmt: skip
def test_damaged_files_of_class_rows(tmp_path, change, sentence):
    arrays = {"attributes": np.eye(2), "class_names": np.array(["a", "b"])} | change
    np.savez(tmp_path / "a.npz", **{k: v for k, v in arrays.items() if v is not None})
    with pytest.raises(UserError, match=sentence):
        read_class_table(tmp_path / "a.npz")


def test_class_rows_are_matched_by_name_beside_other_layouts(tmp_path):
    # dataset.semantics=NAME finds NAME.npz; its classes may stand in another order.
    from zsl.data.cache import Folder
    from zsl.data.readers.tables import named_semantics

    source = written(tmp_path, "lion: cat\nzebra: horse\n")
    assert main([str(source), "--encoder", "tfidf", "--to", str(tmp_path / "words.npz")]) == 0
    rows = named_semantics(Folder(tmp_path), "words", ["zebra", "lion"], 9, ()).attributes
    assert_array_equal(rows, [[0, 1], [1, 0]])


def test_a_new_class_needs_the_encoder_of_training(photos, monkeypatch, capsys):
    from commands import zsl as command
    from zsl.predict.__main__ import main as predict

    monkeypatch.chdir(photos)
    written(photos, BOTH)
    written(photos, "penguin: {description: A bird that swims., attributes: {legs: 2, wings: 2}}\n", "new.yaml")
    for file, to, encoder, *more in (
        ("classes", "old", "hashed", "--dimensions", "32"), ("new", "same", "hashed", "--dimensions", "32"),
        ("new", "wider", "hashed", "--dimensions", "64"), ("new", "longer", "hashed", "--dimensions", "32", "--no-l2"),
        ("new", "moved", "hashed", "--dimensions", "32", "--centre"), ("new", "words", "tfidf"),
    ):  # fmt: skip
        assert main([f"{file}.yaml", "--encoder", encoder, "--to", f"{to}.npz", *more]) == 0
    out = command(
        "dataset=tabular", "dataset.features=photos.npz", "dataset.attributes=old.npz", "model=eszsl", "inference=own",
        "tracking=none", "figures=false", cwd=photos,
    )  # fmt: skip
    assert out.returncode == 0, out.err
    (folder,) = [path.parent for path in photos.rglob("model.skops")]
    capsys.readouterr()
    assert predict([str(folder), "photos.npz", "--add", "same.npz"]) == 0
    assert "penguin" in capsys.readouterr().out
    for file, key in (
        ("wider", "(dimensions 64 against 32)"), ("longer", "(l2 False against True)"),
        ("words", "(name tfidf against hashed)"),
        ("moved", "--centre subtracts the mean of one file's classes"),
    ):  # fmt: skip
        assert predict([str(folder), "photos.npz", "--add", f"{file}.npz"]) == 1
        assert key in capsys.readouterr().err


def test_new_classes_where_their_encoder_cannot_be_compared(photos, caplog):
    from zsl.predict.__main__ import read_classes

    assert main([str(written(photos, BOTH)), "--encoder", "tfidf"]) == 0
    with pytest.raises(UserError, match="tfidf weighs words by the classes of one file; describe old and new"):
        read_classes(photos / "classes.npz", {"name": "tfidf"})
    (photos / "a.csv").write_text("class,legs\npenguin,2\n")
    with pytest.raises(UserError, match=r"encoded otherwise than training's \(name None against hashed\)"):
        read_classes(photos / "a.csv", {"name": "hashed"})
    assert len(read_classes(photos / "a.csv")) == 1
    assert main([str(photos / "classes.yaml"), "--encoder", "hashed", "--to", str(photos / "b.npz")]) == 0
    caplog.clear()
    assert len(read_classes(photos / "b.npz")) == 4
    assert "training does not say which encoder made its classes" in caplog.text
