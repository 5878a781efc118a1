"""Models of open_clip and transformers, which hold a network for images, one for texts, or both in one space.

The network that makes features (:mod:`zsl.extract.networks`) and the encoder of class descriptions
(:mod:`zsl.describe`) load the same model here, and its hash says whether both are of one space.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from zsl.errors import UserError, reason
from zsl.extract.weights import check_form, digest, weight_file

HUB = "give its weights with --weights FILE|FOLDER, or go online so that they can be fetched"


def need(library: str, extra: str, who: str) -> Any:
    """Import a library of an extra; raises a UserError that names the extra where it is absent."""
    from importlib import import_module

    try:
        return import_module(library)
    except (ImportError, RuntimeError) as error:
        raise UserError(
            f"{who} needs {library} ({reason(error)[:100]}); install the CPU build of torch first (see "
            f"docs/own-images.md), then: pip install -e '.[{extra}]'."
        ) from None


def open_clip_model(name: str, weights: Path | None, *, pickled: bool = False) -> tuple[Any, Any, Any, str]:
    """A model of open_clip, its transform of images, its tokenizer, and the hash of its weights.

    Parameters
    ----------
    name : str
        A model of open_clip (``ViT-B-32``); with ``:TAG`` the weights that open_clip fetches, or ``hf-hub:REPOSITORY``.
    weights : Path, optional
        A file of weights for this model, or a folder in the layout of a hub (``open_clip_config.json`` beside them).

    Raises
    ------
    UserError
        If open_clip is missing, the model does not exist, or the weights are missing or of another model.
    """
    open_clip = need("open_clip", "modern", f"open_clip/{name}")
    model_name, _, tag = (name, "", "") if name.startswith("hf-hub:") else name.partition(":")
    pretrained: str | None = tag or None
    if weights is not None:
        file = weight_file(weights)
        check_form(file, pickled)
        if weights.is_dir() and (weights / "open_clip_config.json").is_file():
            model_name, pretrained = f"local-dir:{weights}", None
        else:
            pretrained = str(file)
    elif not tag and not name.startswith("hf-hub:"):
        raise UserError(f"open_clip/{name} says nothing of its weights; {HUB} (open_clip/{name}:TAG).")
    try:
        model, _, transform = open_clip.create_model_and_transforms(
            model_name, pretrained=pretrained, weights_only=True, require_pretrained=True
        )
        tokenizer = open_clip.get_tokenizer(model_name)
    except Exception as error:
        # open_clip passes on what torch, its hub and JSON raise.
        raise UserError(_sentence(f"open_clip/{name}", weights, error)) from None
    return model.eval(), transform, tokenizer, digest(model.state_dict())


def hf_model(name: str, weights: Path | None, *, pickled: bool = False) -> tuple[Any, str, str]:
    """A model of transformers, the folder or hub name that its processors load from, and the hash of its weights.

    Parameters
    ----------
    name : str
        A repository of the hub (``facebook/dinov2-small``).
    weights : Path, optional
        A folder in the layout of the hub: ``config.json`` beside the weights.

    Raises
    ------
    UserError
        If transformers is missing, or the model or its weights are missing or do not fit each other.
    """
    transformers = need("transformers", "modern", f"hf/{name}")
    where = name
    if weights is not None:
        if not (weights / "config.json").is_file():
            raise UserError(
                f"--weights {weights}: hf/{name} needs a folder with config.json and the weights beside it."
            )
        check_form(weight_file(weights), pickled)
        where = str(weights)
    try:
        model, report = transformers.AutoModel.from_pretrained(
            where, output_loading_info=True, use_safetensors=None if pickled else True, trust_remote_code=False
        )
    except Exception as error:
        raise UserError(_sentence(f"hf/{name}", weights, error)) from None
    # A checkpoint of a classifier has no pooling layer; what transformers makes up at random is not used.
    missing = sorted(k for k in report["missing_keys"] if not re.match(r"(\w+\.)?pooler\.", k))
    if missing:
        raise UserError(
            f"the weights of hf/{name} lack {len(missing)} tensors of the model (first: {missing[0]}); give its own."
        )
    if report["missing_keys"]:
        model.pooler = None
    return model.eval(), where, digest(model.state_dict())


def _sentence(who: str, weights: Path | None, error: Exception) -> str:
    why = reason(error)[:200].rstrip(".")
    remedy = "give those of this network" if weights is not None else HUB
    return f"{who} cannot be loaded ({why}); {remedy}."
