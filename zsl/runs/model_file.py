"""The file of a fitted classifier: written and read by skops, which executes nothing that a file names.

Reading accepts the registered parts of zsl (models, pre-processing, inference rules, solvers) and the packages that the
caller allows; a file cannot allow anything. A digest in the file tells whether its contents are what was written.
"""

from __future__ import annotations

import hashlib
import inspect
import zipfile
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import skops.io

from zsl.errors import UserError, atomic, reason, writing

MODEL = "model.skops"
"""The name of the file in a run folder"""
_FORMAT = 3
_MOST_EXPANDED = 20
"""How many times its own size a file may unpack to; what is written is not compressed"""
# The modules whose own classes a file may name.
_REGISTERED = ("zsl.models", "zsl.inference", "zsl.data.preprocess", "zsl.model_selection.decision")
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
            with zipfile.ZipFile(part, "a") as archive:
                archive.comment = _digest(archive)
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
                f'allow=["{package}"] in Python, --allow {package} for zsl.predict and zsl.tracking.'
            )
        with zipfile.ZipFile(path) as archive:
            if sum(member.file_size for member in archive.infolist()) > _MOST_EXPANDED * path.stat().st_size:
                raise UserError(f"{path} would unpack to far more than zsl writes; run it again.")
            if not archive.comment:
                raise UserError(f"{path} was written by another version of zsl; run it again.")
            if archive.comment != _digest(archive):
                raise UserError(f"{path} is damaged: it does not hold what was written; copy it anew, or run again.")
        state: dict[str, Any] = skops.io.load(path, trusted=named)
        if state.pop("format", None) != _FORMAT:
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


def _digest(archive: zipfile.ZipFile) -> bytes:
    """SHA-256 of the names and the contents of a file's members."""
    found = hashlib.sha256()
    for name in sorted(archive.namelist()):
        found.update(name.encode() + b"\0" + hashlib.sha256(archive.read(name)).digest())
    return found.hexdigest().encode()


def _is_registered(name: str) -> bool:
    """Whether a name is a class of a registered part of zsl, an inference rule or the sparse coder."""
    module, _, leaf = name.rpartition(".")
    if not module.startswith("zsl."):
        return False
    if name == "zsl.sparse.encode.sparse_encode":
        return True
    if not any(module == m or module.startswith(m + ".") for m in _REGISTERED):
        return False
    found = getattr(import_module(module), leaf, None)
    # A module also holds names that it imports, which are no part of zsl.
    mine = getattr(found, "__module__", None) == module
    return mine and (inspect.isclass(found) or (inspect.isfunction(found) and hasattr(found, "rule")))
