"""The file of a fitted classifier: written and read by skops, which executes nothing that a file names.

Reading accepts the registered parts of zsl (models, pre-processing, inference rules, solvers) and the packages that the
caller allows; a file cannot allow anything.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import skops.io

from zsl.errors import UserError, atomic, reason, writing

MODEL = "model.skops"
"""The name of the file in a run folder"""
_FORMAT = 2
# The modules whose own classes and functions a file may name.
_REGISTERED = (
    "zsl.models",
    "zsl.inference",
    "zsl.sparse.solvers",
    "zsl.sparse.encode",
    "zsl.data.preprocess",
    "zsl.model_selection.decision",
)
# A partial calls nothing when it is read, and the function in it is named on its own.
_HARMLESS = ("functools.partial", "numpy.dtype", "scipy.sparse._csr.csr_array")


class CannotBeSaved(UserError):
    """A fitted classifier holds something that has no safe form in a file."""


def write(path: Path, state: Mapping[str, Any]) -> None:
    """Write ``state`` to ``path``, whole or not at all.

    Raises
    ------
    CannotBeSaved
        If a value has no safe form.
    """
    with writing(path, "choose another file"), atomic(path) as part:
        try:
            skops.io.dump({"format": _FORMAT, **state}, part)
        except OSError:
            raise
        except Exception as error:
            raise CannotBeSaved(
                f"the fitted classifier cannot be saved ({reason(error)}); list what scores do not need in the model's "
                "training_only."
            ) from error


def read(path: Path, allow: tuple[str, ...] = ()) -> dict[str, Any]:
    """Read what :func:`write` wrote.

    Raises
    ------
    UserError
        If the file does not exist, is something else, or names a class that is neither registered nor allowed.
    """
    if path.name == "model.npz":
        raise UserError(f"{path} was written by zsl 0.1, which this version does not read; run it again.")
    try:
        named = skops.io.get_untrusted_types(file=path)
        known = (name in _HARMLESS or _is_registered(name) for name in named)
        unknown = [name for name, ours in zip(named, known) if not ours and name.partition(".")[0] not in allow]
        if unknown:
            package = unknown[0].partition(".")[0]
            raise UserError(
                f"{path} names {unknown[0]}, which is no registered part of zsl; if you trust it, allow its package: "
                f'allow=["{package}"] in Python, --allow {package} for zsl.predict.'
            )
        state: dict[str, Any] = skops.io.load(path, trusted=named)
        if state.pop("format") != _FORMAT:
            raise UserError(f"{path} was written by another version of zsl; run it again.")
    except UserError:
        raise
    except FileNotFoundError:
        raise UserError(f"{path} does not exist; runs write it with save_model=true.") from None
    except Exception as error:
        # zip, JSON and NumPy fail in many ways on a file of another kind, and on half a file.
        raise UserError(
            f"{path} is not a fitted classifier of zsl, or is damaged ({reason(error)}); copy it anew, or run again."
        ) from None
    return state


def _is_registered(name: str) -> bool:
    module, _, leaf = name.rpartition(".")
    if not any(module == m or module.startswith(m + ".") for m in _REGISTERED):
        return False
    found = getattr(import_module(module), leaf, None)
    # A module also holds names that it imports, which are no part of zsl.
    return (inspect.isclass(found) or inspect.isfunction(found)) and found.__module__ == module
