"""Tiny networks with random weights, in the files of their libraries, and images for them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from zsl.extract.__main__ import main

WHY = "the extra 'modern' runs this"
torch = pytest.importorskip("torch", reason=WHY)
Image = pytest.importorskip("PIL.Image", reason=WHY)
safetensors = pytest.importorskip("safetensors.torch", reason=WHY)
for _library in ("torchvision", "timm", "open_clip", "transformers"):
    pytest.importorskip(_library, reason=WHY, exc_type=Exception)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Five images of several shapes in two classes."""
    folder, rng = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    for i, (height, width) in enumerate(((60, 50), (40, 90), (70, 70), (33, 41), (100, 80))):
        file = folder / ("fox", "owl")[i % 2] / f"{i}.png"
        file.parent.mkdir(exist_ok=True)
        coarse = Image.fromarray(rng.integers(0, 255, (6, 6, 3), np.uint8))
        coarse.resize((width, height), Image.Resampling.BICUBIC).save(file)
    return folder


def opened(photos):
    return [Image.open(file).convert("RGB") for file in sorted(photos.rglob("*.png"))]


def features(photos, to, *words):
    """What the command writes, and the record of the network."""
    assert main([str(photos), "--to", str(to), "--batch-size", "2", *map(str, words)]) == 0
    with np.load(to) as stored:
        return stored["features"], json.loads(str(stored["network"]))


def randomised(module, seed=0):
    """The module with weights that are nowhere constant, as those of trained networks are not."""
    drawn = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in (*module.parameters(), *module.buffers()):
            if tensor.is_floating_point():
                tensor.add_(0.05 * torch.rand(tensor.shape, generator=drawn))
    return module.eval()


@torch.no_grad()
def expected_of(call, inputs):
    return call(torch.stack(inputs)).numpy()


def timm_network(name, folder, seed=0):
    """A network of timm, its file of weights, and its own transform."""
    import timm

    module = randomised(timm.create_model(name), seed)
    safetensors.save_file(module.state_dict(), folder / f"{name}.safetensors")
    transform = timm.data.create_transform(**timm.data.resolve_data_config({}, model=module), is_training=False)
    return module, folder / f"{name}.safetensors", transform


SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
SEEN = {"image_size": 32, "patch_size": 8}


def hf_folder(folder, kind):
    """A folder in the layout of the hub: model, random weights, preparation of images; and the whole model."""
    import transformers as t

    texts = {**SMALL, "vocab_size": 99, "max_position_embeddings": 8}
    torch.manual_seed(0)
    if kind == "dinov2":
        model = t.Dinov2Model(t.Dinov2Config(**SMALL, **SEEN))
    elif kind == "registers":
        model = t.Dinov2WithRegistersModel(t.Dinov2WithRegistersConfig(**SMALL, **SEEN, num_register_tokens=3))
    elif kind == "classifier":
        model = t.ViTForImageClassification(t.ViTConfig(**SMALL, **SEEN))
    elif kind == "clip":
        model = t.CLIPModel(t.CLIPConfig(text_config=texts, vision_config=SMALL | SEEN, projection_dim=12))
    elif kind == "siglip":
        model = t.SiglipModel(t.SiglipConfig(text_config=texts, vision_config=SMALL | SEEN))
    else:
        model = t.ConvNextModel(t.ConvNextConfig(hidden_sizes=[8, 12], depths=[1, 1], num_stages=2))
    model = randomised(model)
    model.save_pretrained(folder)
    size = {"height": 32, "width": 32}
    processor = t.ViTImageProcessor(size=size, image_mean=[0.4, 0.5, 0.6], image_std=[0.3, 0.2, 0.1])
    processor.save_pretrained(folder)
    return model, processor
