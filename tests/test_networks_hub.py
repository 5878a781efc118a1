"""Networks of open_clip and transformers, and networks of the hub without a way to it."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
import time

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tiny_networks import (
    expected_of,
    features,
    hf_folder,
    opened,
    photos,
    randomised,
    safetensors,
    timm_network,
    torch,
)  # fmt: skip
from zsl.errors import UserError
from zsl.extract.__main__ import main
from zsl.extract.libraries import hub
from zsl.extract.networks import load_network, same
from zsl.extract.weights import digest

pytestmark = pytest.mark.extract
__all__ = ["photos"]

TINY_CLIP = {
    "embed_dim": 12,
    "vision_cfg": {"image_size": 32, "layers": 2, "width": 16, "head_width": 8, "patch_size": 8},
    "text_cfg": {"context_length": 8, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1},
}


# --- open_clip ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    """A folder in the layout of open_clip's hub, with a tiny model."""
    import open_clip

    folder = tmp_path_factory.mktemp("clip")
    (folder / "configs").mkdir()
    (folder / "configs" / "tiny-clip.json").write_text(json.dumps(TINY_CLIP))
    open_clip.add_model_config(folder / "configs")
    torch.manual_seed(0)
    module, _, transform = open_clip.create_model_and_transforms("tiny-clip")
    module = randomised(module)
    hub = folder / "hub"
    hub.mkdir()
    safetensors.save_file(module.state_dict(), hub / "open_clip_model.safetensors")
    about = {"model_cfg": TINY_CLIP, "preprocess_cfg": {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.2, 0.2]}}
    (hub / "open_clip_config.json").write_text(json.dumps(about))
    return module, hub, transform


def test_open_clip_gives_image_embeddings_and_the_mean_of_patches(clip, tmp_path, photos):
    module, hub, transform = clip
    flags = ["--network", "open_clip/tiny-clip", "--weights", hub / "open_clip_model.safetensors"]
    inputs = [transform(image) for image in opened(photos)]
    own, record = features(photos, tmp_path / "own.npz", *flags)
    assert_allclose(own, expected_of(module.encode_image, inputs), rtol=1e-5, atol=1e-5)
    assert record["sha256"] == digest(module.state_dict())
    assert " at 0x" not in record["transform"]
    both, about = features(photos, tmp_path / "both.npz", *flags, "--pool", "both")
    visual = module.visual

    def patches(x):
        tokens = visual.ln_post(visual.transformer(visual._embeds(x)))
        return tokens[:, 1:].mean(dim=1)

    assert_allclose(both, np.hstack([own, expected_of(patches, inputs)]), rtol=1e-5, atol=1e-5)
    assert not same(record, about)
    # The same weights with the pre-processing of the folder are another network.
    other, about = features(photos, tmp_path / "hub.npz", "--network", "open_clip/tiny-clip", "--weights", hub)
    assert about["sha256"] == record["sha256"]
    assert not same(record, about)
    assert not np.allclose(other, own)
    with pytest.raises(UserError, match="--size 64: open_clip/tiny-clip takes images of 32 pixels; leave --size out"):
        load_network("open_clip/tiny-clip", hub, size=64)


def test_open_clip_refuses_what_does_not_fit(clip, tmp_path):
    _, hub, _ = clip
    with pytest.raises(
        UserError, match=r"open_clip/ViT-S-32 cannot be loaded \(.*\); give the weights of this network"
    ):
        load_network("open_clip/ViT-S-32", hub / "open_clip_model.safetensors")
    with pytest.raises(UserError, match="names no weights; write open_clip/ViT-B-32:TAG, or give --weights"):
        load_network("open_clip/ViT-B-32")


# --- transformers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["dinov2", "registers", "classifier", "clip", "siglip", "convnext"])
def test_transformers_give_pooled_output_and_the_mean_of_patches(kind, tmp_path, photos):
    model, processor = hf_folder(tmp_path / "hub", kind)
    x = processor(images=opened(photos), return_tensors="pt")["pixel_values"]
    prefix = {"dinov2": 1, "registers": 4, "classifier": 1, "clip": 1, "siglip": 0}
    with torch.no_grad():
        inner = {"classifier": lambda: model.vit(x), "clip": lambda: model.vision_model(x),
                 "siglip": lambda: model.vision_model(x)}.get(kind, lambda: model(x))()  # fmt: skip
        hidden = inner.last_hidden_state
        own = hidden[:, 0] if kind == "classifier" else inner.pooler_output
        own = model.visual_projection(own) if kind == "clip" else own
    mean = hidden.mean(dim=(2, 3)) if kind == "convnext" else hidden[:, prefix[kind] :].mean(dim=1)
    X, record = features(photos, tmp_path / "x.npz", "--network", "hf/some/name", "--weights", tmp_path / "hub",
                         "--pool", "both")  # fmt: skip
    assert_allclose(X, np.hstack([own, mean]), rtol=1e-5, atol=1e-5)
    assert record == record | {"name": "hf/some/name", "weights": "model.safetensors", "dimensions": X.shape[1]}
    assert json.loads(record["transform"])["image_mean"] == [0.4, 0.5, 0.6]


def test_transformers_refuse_what_does_not_fit(tmp_path):
    hf_folder(tmp_path / "hub", "dinov2")
    file = tmp_path / "hub" / "model.safetensors"
    state = safetensors.load_file(file)
    name = "encoder.layer.0.norm1.weight"
    for change, sentence in (
        ({name: None}, f"lack 1 tensors of the model .first: {name}"),
        ({name: torch.zeros(7)}, rf"have {name} of the shape \(7,\), and not \(16,\)"),
    ):
        changed = {k: v for k, v in (state | change).items() if v is not None}
        safetensors.save_file(changed, file, metadata={"format": "pt"})
        with pytest.raises(UserError, match=sentence):
            load_network("hf/tiny", tmp_path / "hub")
    safetensors.save_file(state, file, metadata={"format": "pt"})
    (tmp_path / "hub" / "preprocessor_config.json").unlink()
    with pytest.raises(UserError, match="the preparation of images of hf/tiny cannot be loaded"):
        load_network("hf/tiny", tmp_path / "hub")
    file.unlink()
    torch.save(state, tmp_path / "hub" / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"pytorch_model.bin is a pickle"):
        load_network("hf/tiny", tmp_path / "hub")


# --- without a network ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["timm/test_vit", "torchvision/resnet18", "open_clip/ViT-B-16-SigLIP:webli", "hf/facebook/dinov2-small"]
)
def test_offline_a_network_of_the_hub_ends_in_one_sentence(name, photos, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr("zsl.extract.libraries._reachable", lambda _: False)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    began = time.perf_counter()
    assert main([str(photos), "--to", str(tmp_path / "x.npz"), "--network", name]) == 1
    assert time.perf_counter() - began < 20  # the imports take the time
    out, err = capfd.readouterr()
    assert out == ""
    (line,) = err.strip().splitlines()
    assert re.fullmatch(
        rf"zsl extract: {name} is not in the cache of this machine, and its hub cannot be reached; "
        r"give its weights with --weights FILE\|FOLDER, or go online so that they can be fetched\.", line
    )  # fmt: skip


@pytest.mark.parametrize("name", ["timm/test_vit.r160_in1k", "hf/someone/tiny"])
def test_a_network_in_the_cache_of_the_hub_is_used_offline(name, tmp_path, photos):
    repository = tmp_path / "cache" / f"models--{name.replace('/', '--').replace('hf--', '')}"
    snapshot = repository / "snapshots" / "c0ffee"
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("c0ffee")
    if name.startswith("timm"):
        module, file, _ = timm_network("test_vit", tmp_path)
        file.rename(snapshot / "model.safetensors")
        module.reset_classifier(0)
    else:
        module, _ = hf_folder(snapshot, "dinov2")
    there = {**os.environ, "HF_HUB_CACHE": str(tmp_path / "cache"), "HF_ENDPOINT": "http://127.0.0.1:9"}
    command = [sys.executable, "-m", "zsl.extract", photos, "--to", tmp_path / "x.npz", "--network", name]
    done = subprocess.run(list(map(str, command)), env=there, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    with np.load(tmp_path / "x.npz") as stored:
        record = json.loads(str(stored["network"]))
    assert record["sha256"] == digest(module.state_dict())
    assert record["weights"] == name.removeprefix("hf/")


@pytest.mark.parametrize("local", [True, False])
def test_a_hub_that_is_not_asked_or_not_reached_is_not_tried_again(local, monkeypatch, capfd, caplog):
    constants = pytest.importorskip("huggingface_hub").constants
    asked, before = [], constants.HF_HUB_OFFLINE
    monkeypatch.setattr("zsl.extract.libraries._reachable", lambda address: asked.append(address))
    with pytest.raises(KeyError), hub(local=local) as online:  # noqa: PT012
        assert (online, constants.is_offline_mode()) == (False, True)
        logging.getLogger("any").error("the hub is away")
        print("trying again")
        raise KeyError
    assert asked == ([] if local or before else [constants.ENDPOINT])
    assert before == constants.HF_HUB_OFFLINE
    assert capfd.readouterr() == ("", "")
    logging.getLogger("any").error("heard again")
    assert caplog.messages == ["heard again"]


@pytest.mark.parametrize("device", ["cuda", "nonsense"])
def test_a_device_that_is_not_here(device, tmp_path):
    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("a GPU is here")
    _, file, _ = timm_network("test_resnet", tmp_path)
    with pytest.raises(UserError, match=f"--device {device} cannot be used"):
        load_network("timm/test_resnet", file, device=device)


def test_half_precision_is_in_the_record_and_near(tmp_path):
    _, file, _ = timm_network("test_vit", tmp_path)
    single, half = (load_network("timm/test_vit", file, precision=p) for p in ("auto", "half"))
    assert "precision" not in single.record
    assert half.record["precision"] == "half"
    assert same(single.record, half.record)
    x = np.random.default_rng(0).standard_normal((2, *single.shape)).astype(np.float32)
    assert half.run(x).dtype == np.float32
    assert_allclose(half.run(x), single.run(x), atol=0.05)
    assert not np.array_equal(half.run(x), single.run(x))
