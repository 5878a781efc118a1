"""The networks that make features of images, under the names that their libraries give them.

==========================  ========================================================================================
``lite0``                   EfficientNet-Lite0, whose weights come in a package (:mod:`zsl.extract.lite0`)
``timm/NAME``               a model of timm
``open_clip/NAME[:TAG]``    the image half of a model of open_clip
``hf/REPOSITORY``           a model of transformers
``torchvision/NAME[:TAG]``  a classifier of torchvision without its last linear layer
==========================  ========================================================================================
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from zsl.checks import Array
from zsl.errors import UserError, did_you_mean, reason
from zsl.extract.pixels import open_image

# The paper's networks, with the pre-processing of the weights that were there at its time.
ALIASES = {
    "inception": "torchvision/googlenet:IMAGENET1K_V1",
    **{n: f"torchvision/{n}:IMAGENET1K_V1" for n in ("vgg19", "inception_v3", "resnet50", "resnet101", "densenet161")},
}
POOLS = ("own", "patches", "both")
PRECISIONS = ("auto", "single", "half")


@dataclass(frozen=True)
class Network:
    """What makes features of images."""

    read: Callable[[Path], Array]
    """An image file as the network sees it, (3, s, s) float32; any exception if it cannot be read"""
    run: Callable[[Array], Array]
    """A batch (b, 3, s, s) to features (b, d) float32"""
    record: dict[str, Any]
    """What made the features, which is stored with them: ``name``, ``sha256`` of the weights, ``size``, ..."""
    dimensions: int
    """d"""
    shape: tuple[int, ...]
    """(3, s, s)"""


def load_network(
    name: str,
    weights: Path | None = None,
    *,
    pickled: bool = False,
    pool: str = "own",
    size: int | None = None,
    device: str = "cpu",
    precision: str = "auto",
) -> Network:
    """Load a network with its weights and the pre-processing that belongs to it.

    Parameters
    ----------
    name : str
        ``lite0``, ``timm/NAME``, ``open_clip/NAME[:TAG]``, ``hf/REPOSITORY``, ``torchvision/NAME[:TAG]``, or a name of
        the paper in :data:`ALIASES`.
    weights : Path, optional
        A file or folder of weights. Without it, ``lite0`` takes its package, and the others the cache or hub of their
        library.
    pickled : bool
        Whether weights may be in a pickle; of its content only tensors are read.
    pool : "own", "patches" or "both"
        The network's own pooled output, the mean of its patch tokens (without class and register tokens) or of its
        last feature map, or the two beside each other.
    size : int, optional
        The side of the input in pixels, where it is not the network's own; open_clip and transformers have no other.
    device : str
        Where torch computes.
    precision : "auto", "single" or "half"
        With ``half``, operations that torch's autocast considers safe run in 16 bits; ``auto`` is ``half`` on ``cuda``
        only.

    Raises
    ------
    UserError
        If the name, the library or the weights are missing, or do not fit each other or the settings.
    """
    name = ALIASES.get(name, name)
    library, _, rest = name.partition("/")
    if name != "lite0" and (library not in ("timm", "open_clip", "hf", "torchvision") or not rest):
        names = ("lite0", *ALIASES)
        raise UserError(
            f"--network {name} is not known{did_you_mean(name, names)}; give timm/NAME, open_clip/NAME, "
            f"hf/REPOSITORY, torchvision/NAME, or one of: {', '.join(names)}."
        )
    try:
        import torch
    except ImportError:
        raise UserError(
            "extracting needs torch; install the CPU build first (see docs/networks.md), then: pip install -e "
            "'.[modern]', or '.[extract-lite0]' for lite0 alone."
        ) from None
    if name == "lite0":
        from zsl.extract import lite0

        if pool != "own":
            raise UserError(f"--pool {pool}: lite0 gives the mean of its last feature map already; leave --pool out.")
        settings = lite0.Settings() if size is None else lite0.Settings().of_size(size)
        transform: Callable[[Any], Any] = settings
        module, record = lite0.load(settings, weights, pickled)
        forward: Callable[[Any], Any] = module
    else:
        from zsl.extract import sources

        source = sources.LIBRARIES[library](rest, weights, pickled, pool, size)
        module, transform, text = source.module, source.transform, source.transform_text
        forward = _pooled(source.forward, pool)
        versions = {"torch": str(torch.__version__), library: source.version}
        record = {"name": name, "weights": source.weights, "sha256": source.sha256, "transform": text,
                  "transform_sha256": hashlib.sha256(text.encode()).hexdigest()[:16], "pool": pool,
                  "versions": versions}  # fmt: skip
    try:
        place = torch.device(device)
        module.to(place).eval()
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"--device {device} cannot be used: {str(error).splitlines()[0]}.") from None
    half = precision == "half" or (precision == "auto" and place.type == "cuda")

    def read(path: Path) -> Array:
        return np.asarray(transform(open_image(path)), dtype=np.float32)

    def run(pixels: Array) -> Array:
        x = torch.from_numpy(np.ascontiguousarray(pixels)).to(place)
        with torch.inference_mode(), torch.autocast(place.type, dtype=torch.float16, enabled=half):
            return forward(x).float().cpu().numpy()

    shape = _shape(transform, name)
    if size is not None and shape[-1] != size:
        raise UserError(f"--size {size}: {name} takes images of {shape[-1]} pixels; leave --size out.")
    try:
        dimensions = run(np.zeros((1, *shape), np.float32)).shape[1]
    except UserError:
        raise
    except Exception as error:  # of any kind, from the library's own code
        why = reason(error)[:150].rstrip(".")
        remedy = "choose another network" if size is None else "leave --size out"
        raise UserError(f"--network {name} cannot take images of {shape[-1]} pixels ({why}); {remedy}.") from None
    if name != "lite0":
        record |= {"size": shape[-1], "dimensions": dimensions}
    return Network(read, run, record | ({"precision": "half"} if half else {}), dimensions, shape)


def same(record: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two records are of one network: the same weights, pre-processing and pooling.

    Versions of libraries and the rounding do not count, and neither does the name of a file whose hash is there.
    """

    def counted(about: dict[str, Any]) -> dict[str, Any]:
        aside = {"torch", "versions", "precision", *(["weights"] if "sha256" in about else [])}
        return {k: v for k, v in about.items() if k not in aside}

    return counted(record) == counted(other)


def _pooled(forward: Callable[[Any], tuple[Any, Any]], pool: str) -> Callable[[Any], Any]:
    """Features (b, d) from a function that gives the pooled output (b, d) and patches (b, n, d) or (b, d, h, w)."""
    import torch

    def run(x: Any) -> Any:
        own, patches = forward(x)
        if pool == "own":
            return own.float()
        mean = patches.float().mean(dim=1 if patches.ndim == 3 else (2, 3))
        return mean if pool == "patches" else torch.cat([own.float(), mean], dim=1)

    return run


def _shape(transform: Callable[[Any], Any], name: str) -> tuple[int, ...]:
    """The shape of a prepared image, which may not depend on the image."""
    from PIL import Image

    high, wide = (np.asarray(transform(Image.new("RGB", size))).shape for size in ((48, 64), (64, 48)))
    if high != wide:
        raise UserError(f"--network {name} prepares images of several shapes, which make no batch; choose another.")
    return high
