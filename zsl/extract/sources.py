"""Networks of timm, torchvision, open_clip and transformers: module, pre-processing, pooled output and patches.

Each function loads one with its library's own code, and makes sure that no weight is left at random.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from zsl.data.weights import timm_architecture
from zsl.errors import UserError, did_you_mean
from zsl.extract.libraries import cannot_load, hf_model, hub, need, open_clip_model
from zsl.extract.weights import digest, fit, read_state, weight_file


class Source(NamedTuple):
    """A network of a library."""

    module: Any
    forward: Callable[[Any], tuple[Any, Any]]
    """A batch to the pooled output (b, d), and patches (b, n, d) or (b, d, h, w) where they are asked for"""
    transform: Callable[[Any], Any]
    """An image of Pillow to (3, s, s)"""
    transform_text: str
    weights: str
    """Name of their file, or of their place in a hub"""
    sha256: str
    version: str


def text_of(transform: Any) -> str:
    """A transform as text that is the same in every process."""
    return re.sub(r" at 0x[0-9a-f]+", "", " ".join(str(transform).split()))


def of_timm(name: str, weights: Path | None, pickled: bool, pool: str, size: int | None) -> Source:
    """A model of timm; weights are a file, or a folder in the layout of the hub (``config.json`` beside them)."""
    who = f"timm/{name}"
    timm = need("timm", "modern", who)
    place = name
    if weights is not None and (weights / "config.json").is_file():
        place = f"local-dir:{weights}"
        _check_architecture(weights, name)
    elif not name.startswith("hf-hub:") and not timm.is_model(name):
        raise UserError(f"timm has no model {name}{did_you_mean(name, timm.list_models())}; see timm.list_models().")
    with hub(local=weights is not None) as online:
        try:
            # With its classifier, timm insists that the weights of the hub fit in full.
            module = timm.create_model(place, pretrained=weights is None)
        except Exception as error:
            raise cannot_load(who, weights, error, online) from None
    heads = module.pretrained_cfg.get("classifier") or ()
    heads = tuple(f"{head}." for head in ((heads,) if isinstance(heads, str) else heads))
    if hasattr(module, "reset_classifier"):
        module.reset_classifier(0)
    where = module.pretrained_cfg.get("hf_hub_id") or name
    if weights is not None:
        file = weight_file(weights)
        state, where = read_state(file, pickled), file.name
        # Checkpoints of a network's authors have other names of tensors than timm's.
        renamed = getattr(import_module(type(module).__module__), "checkpoint_filter_fn", None)
        with contextlib.suppress(Exception):  # where it knows nothing of these weights, their names say what is wrong
            state = renamed(state, module) if renamed else state
        fit(module, state, who, file, ignored=heads)
    sha256 = digest(module.state_dict())
    settings = timm.data.resolve_data_config({} if size is None else {"input_size": (3, size, size)}, model=module)
    if size is not None and hasattr(module, "set_input_size"):
        module.set_input_size(img_size=(size, size))
    transform = timm.data.create_transform(**settings, is_training=False)
    forward = _timm_forward(module, who, pool)
    return Source(module, forward, transform, text_of(transform), where, sha256, timm.__version__)


def _check_architecture(folder: Path, name: str) -> None:
    found = timm_architecture(folder)
    if found != name.partition(".")[0] and not name.startswith("hf-hub:"):
        raise UserError(
            f"--weights {folder}: its config.json is of {found or 'no architecture of timm'}, and not of "
            f"{name.partition('.')[0]}; give the folder of timm/{name}."
        )


def _timm_forward(module: Any, who: str, pool: str) -> Callable[[Any], tuple[Any, Any]]:
    def forward(x: Any) -> tuple[Any, Any]:
        if pool == "own":
            return module(x), None
        features = module.forward_features(x)
        own = module.forward_head(features)
        if isinstance(features, tuple | list) or features.ndim not in (3, 4):
            raise _no_patches(who)
        if features.ndim == 3:
            return own, features[:, getattr(module, "num_prefix_tokens", 0) :]
        return own, features.permute(0, 3, 1, 2) if getattr(module, "output_fmt", "NCHW") == "NHWC" else features

    return forward


def _no_patches(who: str) -> UserError:
    return UserError(f"{who} offers no patches of an image; use --pool own.")


def of_torchvision(name: str, weights: Path | None, pickled: bool, pool: str, size: int | None) -> Source:
    """A classifier of torchvision whose last linear layer is taken off; ``:TAG`` names its published weights."""
    who = f"torchvision/{name}"
    torchvision = need("torchvision", "extract", who)
    import torch

    models = torchvision.models
    architecture, _, tag = name.partition(":")
    known = models.list_models(module=models)
    if architecture not in known:
        hint = did_you_mean(architecture, known)
        raise UserError(f"torchvision has no classifier {architecture}{hint}; there are: {', '.join(known)}.")
    published = models.get_model_weights(architecture)
    if tag and tag not in published.__members__:
        raise UserError(f"{who}: there are no weights {tag}; there are: {', '.join(published.__members__)}.")
    chosen = published[tag] if tag else published.DEFAULT
    inceptions = ("googlenet", "inception_v3")
    # The authors' initialisation takes up to half a minute, and no weight of it stays.
    more = {"init_weights": False} if architecture.startswith(("vgg", *inceptions)) else {}
    more |= {"aux_logits": False} if architecture in inceptions else {}
    module = models.get_model(architecture, weights=None, **more)
    if architecture in inceptions:
        # The published weights expect another normalisation, which the module does itself.
        module.transform_input = True
    head = [n for n, m in module.named_modules() if isinstance(m, torch.nn.Linear)][-1:]
    if not head:
        raise UserError(f"{who} has no linear layer to take off; choose another network.")
    parent, _, last = head[0].rpartition(".")
    setattr(module.get_submodule(parent), last, torch.nn.Identity())
    if weights is not None:
        file = weight_file(weights)
        # Older files of DenseNet write norm.1 where the module says norm1.
        state, where = {_of_dense_net(k): v for k, v in read_state(file, pickled).items()}, file.name
    else:
        file, where = Path(chosen.url.rpartition("/")[2]), str(chosen)
        cached = Path(torch.hub.get_dir()) / "checkpoints" / file
        with hub(local=cached.is_file(), address=chosen.url) as online:
            try:
                if not online and not cached.is_file():
                    raise ConnectionError("its address cannot be reached")
                state = chosen.get_state_dict(progress=True, check_hash=True, weights_only=True, map_location="cpu")
            except Exception as error:
                raise cannot_load(who, weights, error, online) from None
        state = {_of_dense_net(k): v for k, v in state.items()}
    fit(module, state, who, file, ignored=(f"{head[0]}.", "aux1.", "aux2.", "AuxLogits."))
    transform = chosen.transforms()
    if size is not None:
        crop, short = transform.crop_size[0], transform.resize_size[0]
        transform = chosen.transforms(crop_size=size, resize_size=round(size * short / crop))
    forward = _torchvision_forward(module, who, pool)
    sha256, version = digest(module.state_dict()), torchvision.__version__
    return Source(module, forward, transform, text_of(transform), where, sha256, version)


def _of_dense_net(name: str) -> str:
    before, found, after = name.partition("denselayer")
    number, _, rest = after.partition(".")
    return f"{before}{found}{number}.{rest.replace('.', '', 1)}" if found and rest[4:6] in (".1", ".2") else name


def _torchvision_forward(module: Any, who: str, pool: str) -> Callable[[Any], tuple[Any, Any]]:
    if pool == "own":
        return lambda x: (module(x), None)
    if hasattr(module, "encoder"):  # a vision transformer, whose first token is the class token
        last = _watch(module.encoder, after=True)
        return lambda x: (module(x), last()[:, 1:])
    if hasattr(module, "avgpool"):
        last = _watch(module.avgpool, after=False)
    elif hasattr(module, "features"):
        last = _watch(module.features, after=True)
    else:
        raise _no_patches(who)

    def forward(x: Any) -> tuple[Any, Any]:
        own, patches = module(x), last()
        if patches.ndim != 4:
            raise _no_patches(who)
        return own, patches

    return forward


def _watch(module: Any, after: bool) -> Callable[[], Any]:
    """A function that returns what last went into a module, or came out of it."""
    seen: list[Any] = [None]

    def see(_: Any, inputs: tuple[Any, ...], output: Any = None) -> None:
        seen[0] = output if after else inputs[0]

    if after:
        module.register_forward_hook(see)
    else:
        module.register_forward_pre_hook(see)
    return lambda: seen[0]


def of_open_clip(name: str, weights: Path | None, pickled: bool, pool: str, size: int | None) -> Source:
    """The image half of a model of open_clip, in the space that it shares with texts."""
    who = f"open_clip/{name}"
    module, transform, _, sha256 = open_clip_model(name, weights, pickled=pickled, texts=False)
    visual = module.visual
    if pool == "own":
        forward: Callable[[Any], tuple[Any, Any]] = lambda x: (module.encode_image(x), None)  # noqa: E731
    elif hasattr(visual, "trunk"):  # a network of timm
        inner = _timm_forward(visual.trunk, who, pool)

        def forward(x: Any) -> tuple[Any, Any]:
            own, patches = inner(x)
            return visual.head(own), patches

    elif getattr(visual, "attn_pool", 0) is None:
        visual.output_tokens = True
        forward = visual
    elif hasattr(visual, "attnpool"):  # a residual network
        last = _watch(visual.attnpool, after=False)
        forward = lambda x: (visual(x), last())  # noqa: E731
    else:
        raise _no_patches(who)
    where = name if weights is None else weight_file(weights).name
    version = import_module("open_clip").__version__
    return Source(module, forward, transform, text_of(transform), where, sha256, version)


def of_hf(name: str, weights: Path | None, pickled: bool, pool: str, size: int | None) -> Source:
    """A model of transformers: image features in the space of texts where it has them, else its pooled output."""
    who = f"hf/{name}"
    module, place, sha256 = hf_model(name, weights, pickled=pickled)
    transformers = need("transformers", "modern", who)
    with hub(local=weights is not None) as online:
        try:
            processor = transformers.AutoImageProcessor.from_pretrained(place)
        except Exception as error:
            raise cannot_load(f"the preparation of images of {who}", weights, error, online) from None

    def transform(image: Any) -> Any:
        return processor(images=image, return_tensors="pt")["pixel_values"][0]

    def forward(x: Any) -> tuple[Any, Any]:
        out = (getattr(module, "get_image_features", None) or module)(pixel_values=x)
        hidden, pooled = out.last_hidden_state, getattr(out, "pooler_output", None)
        if hidden.ndim == 4:
            return hidden.mean(dim=(2, 3)) if pooled is None else pooled.flatten(1), hidden
        n_prefix = hidden.shape[1] - _n_patches(module.config, x)
        if pool != "own" and n_prefix < 0:
            raise _no_patches(who)
        if pooled is None and pool != "patches":
            if n_prefix < 1:
                raise UserError(f"{who} has neither a pooled output nor a class token; use --pool patches.")
            pooled = hidden[:, 0]
        return pooled, hidden[:, max(n_prefix, 0) :]

    kept = {k: v for k, v in processor.to_dict().items() if not k.startswith("_") and "path" not in k}
    text = json.dumps(kept, sort_keys=True, default=str)
    where = name if weights is None else weight_file(weights).name
    return Source(module, forward, transform, text, where, sha256, transformers.__version__)


def _n_patches(config: Any, x: Any) -> int:
    """The number of patches of an image: of all tokens of a transformer those that are neither class nor register."""
    side = getattr(getattr(config, "vision_config", config), "patch_size", None)
    if side is None:
        return int(1e9)
    height, width = (side, side) if isinstance(side, int) else side
    return (x.shape[-2] // height) * (x.shape[-1] // width)


LIBRARIES = {"timm": of_timm, "torchvision": of_torchvision, "open_clip": of_open_clip, "hf": of_hf}
