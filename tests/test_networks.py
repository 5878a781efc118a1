"""Networks of timm and torchvision: tiny ones with random weights, through files and flags."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tiny_networks import expected_of, features, opened, photos, randomised, safetensors, timm_network, torch
from zsl.errors import UserError
from zsl.extract.networks import ALIASES, load_network, same
from zsl.extract.sources import _of_dense_net
from zsl.extract.weights import digest

pytestmark = pytest.mark.extract
__all__ = ["photos"]


# --- timm -----------------------------------------------------------------------------------------------------------


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
    # Random networks say much the same of every image: their difference between images is the measure.
    assert np.abs(X - seen[0]).max() < 1e-3 * np.abs(X[0] - X[1]).max()
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


def test_older_files_of_dense_net_have_other_names():
    block = "features.denseblock1.denselayer12."
    for old, new in (
        ("norm.1.weight", "norm1.weight"),
        ("conv.2.weight", "conv2.weight"),
        ("norm2.bias", "norm2.bias"),
    ):
        assert _of_dense_net(block + old) == block + new
    assert _of_dense_net("features.transition1.norm.weight") == "features.transition1.norm.weight"


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
