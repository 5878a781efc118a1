"""Networks of timm, torchvision, open_clip and transformers: tiny ones with random weights, through files and flags."""

from __future__ import annotations

import json
import re
import time

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from zsl.errors import UserError
from zsl.extract.__main__ import main
from zsl.extract.networks import ALIASES, load_network, same
from zsl.extract.weights import digest

WHY = "the extra 'modern' runs this"
torch = pytest.importorskip("torch", reason=WHY)
Image = pytest.importorskip("PIL.Image", reason=WHY)
safetensors = pytest.importorskip("safetensors.torch", reason=WHY)
for _library in ("torchvision", "timm", "open_clip", "transformers"):
    pytest.importorskip(_library, reason=WHY, exc_type=Exception)
pytestmark = pytest.mark.extract

TINY_CLIP = {
    "embed_dim": 12,
    "vision_cfg": {"image_size": 32, "layers": 2, "width": 16, "head_width": 8, "patch_size": 8},
    "text_cfg": {"context_length": 8, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1},
}


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


# --- timm -----------------------------------------------------------------------------------------------------------


def timm_network(name, folder, seed=0):
    """A network of timm, its file of weights, and its own transform."""
    import timm

    module = randomised(timm.create_model(name), seed)
    safetensors.save_file(module.state_dict(), folder / f"{name}.safetensors")
    transform = timm.data.create_transform(**timm.data.resolve_data_config({}, model=module), is_training=False)
    return module, folder / f"{name}.safetensors", transform


@pytest.mark.parametrize("name", ["test_vit", "test_vit3", "test_convnext", "test_resnet"])
def test_timm_gives_its_own_output_and_the_mean_of_patches(name, tmp_path, photos):
    module, file, transform = timm_network(name, tmp_path)
    inputs = [transform(image) for image in opened(photos)]
    whole = expected_of(lambda x: module.forward_head(module.forward_features(x), pre_logits=True), inputs)
    maps = expected_of(module.forward_features, inputs)
    prefix = module.num_prefix_tokens if maps.ndim == 3 else 0
    mean = maps[:, prefix:].mean(axis=1) if maps.ndim == 3 else maps.mean(axis=(2, 3))
    found = {
        pool: features(photos, tmp_path / f"{pool}.npz", "--network", f"timm/{name}", "--weights", file, "--pool", pool)
        for pool in ("own", "patches", "both")
    }
    assert_allclose(found["own"][0], whole, rtol=1e-5, atol=1e-5)
    assert_allclose(found["patches"][0], mean, rtol=1e-5, atol=1e-5)
    assert_array_equal(found["both"][0], np.hstack([found["own"][0], found["patches"][0]]))
    module.reset_classifier(0)
    record = found["both"][1]
    assert record["sha256"] == digest(module.state_dict())
    assert record == record | {
        "name": f"timm/{name}", "weights": file.name, "pool": "both", "size": 160, "dimensions": whole.shape[1] * 2,
    }  # fmt: skip
    assert "Normalize" in record["transform"]
    assert set(record["versions"]) == {"torch", "timm"}


def test_a_folder_in_the_layout_of_the_hub_and_another_size(tmp_path, photos):
    import timm
    from timm.models import save_for_hf

    module, file, _ = timm_network("test_vit", tmp_path)
    save_for_hf(module, tmp_path / "hub", safe_serialization=True)
    assert {p.name for p in (tmp_path / "hub").iterdir()} == {"config.json", "model.safetensors"}
    for size in (160, 96):
        arguments = ["--network", "timm/test_vit.r160_in1k", "--size", size]
        X, record = features(photos, tmp_path / f"a{size}.npz", *arguments, "--weights", tmp_path / "hub")
        of_file, other = features(photos, tmp_path / f"b{size}.npz", *arguments, "--weights", file)
        assert record["size"] == size
        assert same(record, other)
        assert_array_equal(X, of_file)
        own = timm.create_model("test_vit", num_classes=0, img_size=size, checkpoint_path=None).eval()
        state = {k: v for k, v in safetensors.load_file(file).items() if not k.startswith("head.")}
        own.load_state_dict(timm.models.vision_transformer.checkpoint_filter_fn(state, own))
        settings = timm.data.resolve_data_config({"input_size": (3, size, size)}, model=own)
        transform = timm.data.create_transform(**settings, is_training=False)
        assert_allclose(X, expected_of(own, [transform(i) for i in opened(photos)]), rtol=1e-5, atol=1e-5)
    with pytest.raises(UserError, match=r"its config.json is of test_vit, and not of test_resnet; give the folder of"):
        load_network("timm/test_resnet", tmp_path / "hub")


def test_weights_of_another_network_are_refused_with_the_first_tensor(tmp_path):
    _, vit, _ = timm_network("test_vit", tmp_path)
    for name, sentence in (
        ("test_vit2", r"test_vit.safetensors does not fit timm/test_vit2: it (has|lacks) \S+"),
        ("test_resnet", "does not fit timm/test_resnet: it lacks conv1.0.weight"),
    ):
        with pytest.raises(UserError, match=sentence):
            load_network(f"timm/{name}", vit)
    state = safetensors.load_file(vit)
    for change, sentence in (
        ({"blocks.0.attn.qkv.weight": None}, "lacks blocks.0.attn.qkv.weight"),
        ({"more": torch.zeros(2)}, "has more, which the network has not"),
        ({"cls_token": torch.zeros(1, 1, 7)}, r"cls_token of the shape \(1, 1, 7\), and not \(1, 1, 64\)"),
    ):
        changed = {k: v for k, v in (state | change).items() if v is not None}
        safetensors.save_file(changed, tmp_path / "changed.safetensors")
        with pytest.raises(UserError, match=sentence):
            load_network("timm/test_vit", tmp_path / "changed.safetensors")
    with pytest.raises(UserError, match=r"timm has no model test_vitt \(did you mean test_vit\?\)"):
        load_network("timm/test_vitt", vit)


def test_pickles_and_folders_without_weights(tmp_path):
    module, _, _ = timm_network("test_resnet", tmp_path)
    torch.save({"state_dict": {f"module.{k}": v for k, v in module.state_dict().items()}}, tmp_path / "w.pth")
    with pytest.raises(UserError, match=r"w\.pth is a pickle, which can carry code; .* add --pickled"):
        load_network("timm/test_resnet", tmp_path / "w.pth")
    module.reset_classifier(0)
    found = load_network("timm/test_resnet", tmp_path / "w.pth", pickled=True)
    assert found.record["sha256"] == digest(module.state_dict())
    torch.save({"a": print}, tmp_path / "code.pth")
    with pytest.raises(UserError, match="not a file of plain weights"):
        load_network("timm/test_resnet", tmp_path / "code.pth", pickled=True)
    (tmp_path / "empty").mkdir()
    for name in ("timm/test_resnet", "torchvision/resnet18", "open_clip/ViT-B-32"):
        with pytest.raises(UserError, match=r"--weights .*empty: the folder holds no weights"):
            load_network(name, tmp_path / "empty")
    with pytest.raises(UserError, match=r"needs a folder with config\.json"):
        load_network("hf/tiny", tmp_path / "empty")


# --- torchvision ----------------------------------------------------------------------------------------------------


def torchvision_network(name, folder, seed=0):
    from torchvision import models

    more = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    torch.manual_seed(seed)
    module = models.get_model(name, weights=None, **more).eval()
    # As Places files come: wrapped.
    torch.save({"state_dict": {f"module.{k}": v for k, v in module.state_dict().items()}}, folder / "w.pth")
    return module, folder / "w.pth"


# What goes into the last linear layer.
@pytest.mark.parametrize(("name", "last", "dimensions"), [
    ("inception", "fc", 1024), ("inception_v3", "fc", 2048), ("resnet50", "fc", 2048),
    ("densenet161", "classifier", 2208), ("torchvision/resnet18", "fc", 512),
    ("torchvision/mobilenet_v3_small", "classifier.3", 1024),
])  # fmt: skip
def test_torchvision_without_its_last_layer(name, last, dimensions, tmp_path, photos):
    from torchvision import models

    full = ALIASES.get(name, name)
    architecture, _, tag = full.removeprefix("torchvision/").partition(":")
    module, file = torchvision_network(architecture, tmp_path)
    if architecture in ("googlenet", "inception_v3"):
        module.transform_input = True
    seen = []
    module.get_submodule(last).register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].numpy()))
    transform = models.get_model_weights(architecture)[tag or "DEFAULT"].transforms()
    with torch.no_grad():
        module(torch.stack([transform(image) for image in opened(photos)]))
    X, record = features(photos, tmp_path / "x.npz", "--network", name, "--weights", file, "--pickled")
    assert X.shape == (5, dimensions)
    assert_allclose(X, seen[0], rtol=1e-4, atol=1e-5)
    assert record["name"] == full
    if name == "torchvision/resnet18":  # whose output is the mean of its last map
        patches, _ = features(photos, tmp_path / "p.npz", "--network", name, "--weights", file, "--pickled", "--pool",
                              "patches")  # fmt: skip
        assert_allclose(patches, X, rtol=1e-4, atol=1e-5)
        small, about = features(
            photos, tmp_path / "s.npz", "--network", name, "--weights", file, "--pickled", "--size", 64
        )
        assert about["size"] == 64
        assert "resize_size=[73]" in about["transform"]
        assert not np.allclose(small, X)
        with pytest.raises(UserError, match=r"does not fit torchvision/resnet34: it lacks layer1.2.conv1.weight"):
            load_network("torchvision/resnet34", file, pickled=True)


def test_vgg19_ends_in_fc7_after_its_rectifier(tmp_path, photos, monkeypatch):
    from torchvision import models

    # A vgg19 of 16 numbers where the paper's has 4096: half a gigabyte of weights shows nothing more.
    real = models.vgg.VGG

    def small(layers, **more):
        module = real(layers, **{**more, "init_weights": False})
        a, b = torch.nn.Linear(512 * 49, 16), torch.nn.Linear(16, 16)
        module.classifier = torch.nn.Sequential(a, torch.nn.ReLU(True), torch.nn.Dropout(), b, torch.nn.ReLU(True),
                                                torch.nn.Dropout(), torch.nn.Linear(16, 1000))  # fmt: skip
        return module

    monkeypatch.setattr(models.vgg, "VGG", small)
    module, file = torchvision_network("vgg19", tmp_path)
    X, _ = features(photos, tmp_path / "x.npz", "--network", "vgg19", "--weights", file, "--pickled")
    transform = models.VGG19_Weights.IMAGENET1K_V1.transforms()
    fc7 = lambda x: module.classifier[:5](module.avgpool(module.features(x)).flatten(1))  # noqa: E731
    assert_allclose(X, expected_of(fc7, [transform(i) for i in opened(photos)]), rtol=1e-4, atol=1e-6)
    assert X.min() == 0


def test_patches_of_a_vision_transformer_of_torchvision(tmp_path, photos, monkeypatch):
    from torchvision import models

    real, small = models.VisionTransformer, {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "mlp_dim": 16}
    monkeypatch.setattr(models.vision_transformer, "VisionTransformer", lambda **more: real(**{**more, **small}))
    module, file = torchvision_network("vit_b_32", tmp_path)
    randomised(module)
    torch.save(module.state_dict(), file)
    X, _ = features(photos, tmp_path / "x.npz", "--network", "torchvision/vit_b_32", "--weights", file, "--pickled",
                    "--pool", "both")  # fmt: skip

    def tokens(x):
        x = module._process_input(x)
        return module.encoder(torch.cat([module.class_token.expand(len(x), -1, -1), x], dim=1))

    inputs = [models.ViT_B_32_Weights.DEFAULT.transforms()(image) for image in opened(photos)]
    found = expected_of(tokens, inputs)
    assert found.shape == (5, 50, 8)
    assert_allclose(X, np.hstack([found[:, 0], found[:, 1:].mean(axis=1)]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("resnet19", r"torchvision has no classifier resnet19 \(did you mean resnet18\?\)"),
        ("resnet50:V9", "there are no weights V9; there are: IMAGENET1K_V1, IMAGENET1K_V2"),
        ("squeezenet1_0", "has no linear layer to take off"),
    ],
)
def test_names_that_torchvision_has_not(name, sentence):
    with pytest.raises(UserError, match=sentence):
        load_network(f"torchvision/{name}")


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
    with pytest.raises(UserError, match="says nothing of its weights; give its weights with --weights"):
        load_network("open_clip/ViT-B-32")


# --- transformers ---------------------------------------------------------------------------------------------------

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
    "name", ["timm/test_vit", "torchvision/resnet18", "open_clip/RN50:openai", "hf/facebook/dinov2-small"]
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
        rf"zsl.extract: {name} is not in the cache of this machine, and its hub cannot be reached; "
        r"give its weights with --weights FILE\|FOLDER, or go online so that they can be fetched\.", line
    )  # fmt: skip


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
