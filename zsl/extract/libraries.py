"""Models of open_clip and transformers, which hold a network for images, one for texts, or both in one space.

The network that makes features (:mod:`zsl.extract.networks`) and the encoder of class descriptions
(:mod:`zsl.describe`) load the same model here, and its hash says whether both are of one space.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import re
import warnings
from collections.abc import Iterator
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
            f"docs/networks.md), then: pip install -e '.[{extra}]'."
        ) from None


@contextlib.contextmanager
def hub(local: bool = False, address: str | None = None) -> Iterator[bool]:
    """Context in which libraries load a model; they neither ask the hub nor print if ``local``, or if it is away.

    Libraries try an unreachable hub for a long time, and write about it.

    Parameters
    ----------
    local : bool
        Whether all files are here.
    address : str, optional
        What is asked for, if not the hub of huggingface.

    Yields
    ------
    bool
        Whether the hub can be reached; False if ``local``.
    """
    try:
        from huggingface_hub import constants
    except ImportError:
        constants = None
    where = address or (constants and constants.ENDPOINT)
    before = bool(constants and constants.HF_HUB_OFFLINE)
    if not local and where and not before and _reachable(where):
        yield True
        return
    nowhere, level = io.StringIO(), logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        if constants:
            constants.HF_HUB_OFFLINE = True
        with contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield False
    finally:
        logging.disable(level)
        if constants:
            constants.HF_HUB_OFFLINE = before


def _reachable(address: str, patience_s: float = 3) -> bool:
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    try:
        with urlopen(Request(address, method="HEAD"), timeout=patience_s):
            return True
    except HTTPError:  # an answer
        return True
    except (OSError, ValueError):
        return False


def cannot_load(who: str, weights: Path | None, error: Exception, online: bool) -> UserError:
    """The sentence for what a library raises while it loads a model; ``online`` is what :func:`hub` yields."""
    if isinstance(error, UserError):
        return error
    if weights is None and not online:
        return UserError(f"{who} is not in the cache of this machine, and its hub cannot be reached; {HUB}.")
    why = re.split(r"\. |; ", reason(error))[0][:200].rstrip(".")
    remedy = (
        "give the weights of this network" if weights is not None else "check its name, or give --weights FILE|FOLDER"
    )
    return UserError(f"{who} cannot be loaded ({why}); {remedy}.")


def open_clip_model(
    name: str, weights: Path | None, *, pickled: bool = False, texts: bool = True
) -> tuple[Any, Any, Any, str]:
    """A model of open_clip, its transform of images, its tokenizer, and the hash of its weights.

    Parameters
    ----------
    name : str
        A model of open_clip (``ViT-B-32``); with ``:TAG`` the weights that open_clip fetches, or ``hf-hub:REPOSITORY``.
    weights : Path, optional
        A file of weights for this model, or a folder in the layout of a hub (``open_clip_config.json`` beside them).
    pickled : bool
        Whether weights may be in a pickle.
    texts : bool
        Whether the tokenizer is wanted, which some models take from a hub; else it is None.

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
            _check_architecture(open_clip.get_model_config(model_name), weights, name)
            model_name, pretrained = f"local-dir:{weights}", None
        else:
            pretrained = str(file)
    elif not tag and not name.startswith("hf-hub:"):
        raise UserError(
            f"open_clip/{name} names no weights; write open_clip/{name}:TAG, or give --weights FILE|FOLDER."
        )
    with hub(local=weights is not None) as online:
        try:
            model, _, transform = open_clip.create_model_and_transforms(
                model_name, pretrained=pretrained, weights_only=True, require_pretrained=True
            )
        except Exception as error:
            # open_clip passes on what torch, its hub and JSON raise.
            raise cannot_load(f"open_clip/{name}", weights, error, online) from None
    tokenizer = _tokenizer(open_clip, model_name, name) if texts else None
    return model.eval(), transform, tokenizer, digest(model.state_dict())


def _tokenizer(open_clip: Any, model_name: str, name: str) -> Any:
    """The tokenizer of a model; only where it is not here, the hub is asked for it."""
    for local in (True, False):
        with hub(local=local) as online:
            try:
                return open_clip.get_tokenizer(model_name)
            except Exception as error:
                refused = cannot_load(f"the tokenizer of open_clip/{name}", None, error, online)
    raise refused


def _check_architecture(known: dict[str, Any] | None, folder: Path, name: str) -> None:
    """Refuse a folder whose model is of another size than the model of open_clip that is asked for, if it has one."""
    if known is None:
        return
    keys = ("layers", "width", "patch_size")
    try:
        found = json.loads((folder / "open_clip_config.json").read_text(encoding="utf-8"))["model_cfg"]
        sizes = [(m["embed_dim"], *(m["vision_cfg"].get(key) for key in keys)) for m in (found, known)]
    except (ValueError, KeyError, TypeError, AttributeError):
        return  # open_clip says what is wrong with it
    if sizes[0] != sizes[1]:
        raise UserError(
            f"--weights {folder}: its open_clip_config.json is of another model than open_clip/{name} (dimensions "
            f"{sizes[0][0]}, and not {sizes[1][0]}, or other layers); give the folder of that model."
        )


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
    with hub(local=weights is not None) as online:
        try:
            model, report = transformers.AutoModel.from_pretrained(
                where, output_loading_info=True, use_safetensors=None if pickled else True, trust_remote_code=False,
                ignore_mismatched_sizes=True,
            )  # fmt: skip
        except Exception as error:
            raise cannot_load(f"hf/{name}", weights, error, online) from None
    if report["mismatched_keys"]:
        first, found, own = sorted(report["mismatched_keys"])[0]
        raise UserError(
            f"the weights of hf/{name} have {first} of the shape {tuple(found)}, and not {tuple(own)}; give its own."
        )
    # A checkpoint of a classifier has no pooling layer; what transformers makes up at random is not used.
    missing = sorted(k for k in report["missing_keys"] if not re.match(r"(\w+\.)?pooler\.", k))
    if missing:
        raise UserError(
            f"the weights of hf/{name} lack {len(missing)} tensors of the model (first: {missing[0]}); give its own."
        )
    if report["missing_keys"]:
        model.pooler = None
    return model.eval(), where, digest(model.state_dict())
