"""Weights of networks: where they come from, how they are read without running anything, and their hash."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from zsl.errors import UserError, reason

# The forms of weights, safest first; all but the first are pickles.
_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".tar")


def weight_file(weights: Path) -> Path:
    """The file of weights that ``weights`` is, or that lies in the folder ``weights``; safetensors come first.

    Raises
    ------
    UserError
        If there is no such file, or a folder holds several of the same form.
    """
    if weights.is_file():
        return weights
    if not weights.is_dir():
        raise UserError(f"--weights {weights}: there is no such file or folder; give the one that holds the weights.")
    for suffix in _SUFFIXES:
        found = sorted(p for p in weights.iterdir() if p.suffix == suffix and p.is_file())
        if len(found) == 1:
            return found[0]
        if found:
            names = ", ".join(p.name for p in found[:3])
            raise UserError(f"--weights {weights}: the folder holds several files of weights ({names}); name one.")
    raise UserError(f"--weights {weights}: the folder holds no weights ({', '.join(_SUFFIXES)}); give another one.")


def check_form(file: Path, pickled: bool) -> None:
    """Refuse weights in a pickle, unless ``pickled`` allows them: only safetensors cannot carry code.

    Raises
    ------
    UserError
        With the way to read the file all the same.
    """
    if file.suffix != ".safetensors" and not pickled:
        raise UserError(
            f"{file} is a pickle, which can carry code; take the network's .safetensors, or add --pickled, which reads "
            "tensors alone and refuses everything else in the file."
        )


def read_state(file: Path, pickled: bool = False) -> dict[str, Any]:
    """The tensors of a file of weights by name; nothing that the file contains is executed.

    A level ``state_dict`` or ``model`` and the prefix ``module.`` of parallel training are taken off.

    Raises
    ------
    UserError
        For a pickle that ``pickled`` does not allow, and for a file that holds anything but tensors.
    """
    import torch

    check_form(file, pickled)
    try:
        if file.suffix == ".safetensors":
            from safetensors.torch import load_file

            found: Any = load_file(file)
        else:
            found = torch.load(file, map_location="cpu", weights_only=True)
    except ImportError:
        raise UserError("reading .safetensors needs the package safetensors; pip install safetensors.") from None
    except Exception as error:
        # Each library raises errors of its own, and torch raises pickle, zip and runtime errors alike.
        raise UserError(f"{file} is not a file of plain weights ({reason(error)[:100]}); give another one.") from None
    for level in ("state_dict", "model"):
        if isinstance(found, dict) and isinstance(found.get(level), dict):
            found = found[level]
    if not isinstance(found, dict) or not all(isinstance(v, torch.Tensor) for v in found.values()):
        raise UserError(f"{file} holds no dictionary of weights; give another file.")
    return {k.removeprefix("module."): v for k, v in found.items()}


def fit(module: Any, state: Mapping[str, Any], who: str, file: Path, ignored: Sequence[str] = ()) -> None:
    """Put weights into a module whose classifier has been taken off, if they are all of its own and no others.

    Parameters
    ----------
    module : torch.nn.Module
    state : mapping
        Tensors by name, from :func:`read_state`.
    who : str
        The name of the network, for the sentence.
    file : Path
        Where the weights come from, for the sentence.
    ignored : sequence of str
        What the names of tensors begin with that the module does not need: its classifiers.

    Raises
    ------
    UserError
        With the first tensor that is missing, of another shape, or not known to the module.
    """
    own = module.state_dict()
    wrong = {k: f"lacks {k}" for k in own if k not in state and not k.endswith("num_batches_tracked")}
    for name, tensor in state.items():
        if name in own and tensor.shape != own[name].shape:
            wrong[name] = f"has {name} of the shape {tuple(tensor.shape)}, and not {tuple(own[name].shape)}"
        elif name not in own and not name.startswith(tuple(ignored)):
            wrong[name] = f"has {name}, which the network has not"
    if wrong:
        raise UserError(
            f"{file} does not fit {who}: it {next(iter(wrong.values()))} (tensors that do not fit: {len(wrong)}); give "
            "the weights of this network."
        )
    module.load_state_dict({k: v for k, v in state.items() if k in own}, strict=False)


def digest(state: Mapping[str, Any]) -> str:
    """A hash of weights by name (16 hex digits of SHA-256): the same from a file of either form and from a hub."""
    import torch

    found = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name].detach().cpu().contiguous()
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        found.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()[:16]
