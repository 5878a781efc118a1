"""The file of a fitted classifier: written and read by skops, which executes nothing that a file names.

Reading accepts the registered parts of zsl (models, pre-processing, inference rules, solvers) and the packages that the
caller allows; a file cannot allow anything. A digest in the file tells whether its contents are what was written.

Matrices may be rounded to single precision. Reading converts them back to double precision, so that a loaded classifier
computes in the precision of the run; the rounded digits are lost.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import sys
import zipfile
from collections.abc import Mapping
from copy import copy
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from zsl.checks import check_value
from zsl.errors import UserError, atomic, reason, writing

MODEL = "model.skops"
"""The name of the file in a run folder"""
_FORMAT = 4
_READABLE = (3, 4)  # in 3 no array is rounded
_MOST_EXPANDED = 20
"""How many times its own size a file may unpack to; what is written is not compressed"""
# The modules whose own classes a file may name.
_REGISTERED = ("zsl.models", "zsl.inference", "zsl.data.preprocess", "zsl.model_selection.decision")
# What else a file consists of, by skops's kind of part; skops trusts more, such as any estimator of scikit-learn.
_PLAIN = {
    "JsonNode": {"builtins.str"},
    "TypeNode": {"builtins.str"},
    "DictNode": {"builtins.dict"},
    "ListNode": {"builtins.list"},
    "TupleNode": {"builtins.tuple"},
    "NdArrayNode": {"numpy.ndarray"},
    "DTypeNode": {"numpy.dtype"},
    "PartialNode": {"functools.partial"},
}


class CannotBeSaved(UserError):
    """A fitted classifier holds something that has no safe form in a file."""


def write(path: Path, state: Mapping[str, Any], precision: Literal["single", "double"] = "double") -> None:
    """Write ``state`` to ``path``, whole or not at all, with its matrices in that precision at most.

    Raises
    ------
    CannotBeSaved
        If a value has no safe form.
    """
    check_value(Literal["single", "double"], precision, "precision")
    import skops.io  # it loads all of scikit-learn, which takes longer than many a fit

    with writing(path, "choose another file"), atomic(path) as part:
        try:
            skops.io.dump({"format": _FORMAT, **(_rounded(state) if precision == "single" else state)}, part)
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
    import skops.io
    from skops.io._protocol import PROTOCOL

    try:
        with zipfile.ZipFile(path) as archive:
            if sum(member.file_size for member in archive.infolist()) > _MOST_EXPANDED * path.stat().st_size:
                raise UserError(f"{path} would unpack to far more than zsl writes; run it again.")
            schema = json.loads(archive.read("schema.json"))
            if schema.get("protocol") != PROTOCOL:
                raise UserError(f"{path} was written by another version of skops; run it again.")
            named: set[str] = set()
            _check_parts(path, schema, allow, {}, named)
            for member in archive.namelist():
                with archive.open(member) as file:
                    if member != "schema.json" and file.read(6) != b"\x93NUMPY":
                        raise UserError(f"{path} holds {member}, which is no array; do not use it.")
            if not archive.comment:
                raise UserError(f"{path} was written by another version of zsl; run it again.")
            if archive.comment != _digest(archive):
                raise UserError(f"{path} is damaged: it does not hold what was written; copy it anew, or run again.")
        state: dict[str, Any] = skops.io.load(path, trusted=sorted(named))
        if state.pop("format", None) not in _READABLE:
            raise UserError(f"{path} was written by another version of zsl; run it again.")
        for name, attribute in state.pop("rounded", ()):
            state[name] = _with(state[name], {attribute: getattr(state[name], attribute).astype(np.float64)})
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


def save(fitted: Any, table: list[Any], path: Path, precision: Literal["single", "double"]) -> None:
    """Write a fitted classifier, without what its model needs for training only.

    Parameters
    ----------
    table : [names, rows (C, q), names of the columns or None]
        Its table of classes, ``attributes_``.
    """
    model = copy(fitted.model_)
    for name in getattr(model, "training_only", ()):
        model.__dict__.pop(name, None)
    state = {k: v for k, v in vars(fitted).items() if k != "attributes_"}
    write(path, {**state, "model_": model, "table": table}, precision)


def restore(fitted: Any, path: Path, allow: tuple[str, ...]) -> None:
    """Give ``fitted``, a new classifier, what :func:`save` wrote, and see that it predicts.

    Raises
    ------
    UserError
        If the file is something else, or its parts do not fit together.
    """
    state = read(path, allow)
    try:
        names, rows, columns = state.pop("table")
        if any(callable(getattr(type(fitted), name, None)) for name in state):
            raise ValueError("it replaces a method")
        # A file of an older version has no labelled images.
        fitted.__dict__.update(
            {"labelled_": None, **state}, attributes_=pd.DataFrame(rows, pd.Index(names, dtype=object), columns)
        )
        if not np.isfinite(fitted.predict_stages(fitted.example_).scores).all():
            raise ValueError("its scores are not finite")
    except Exception as error:  # parts that do not fit together fail in many ways
        raise UserError(f"{path} holds no classifier that works ({reason(error)}); run it again.") from None


def _rounded(state: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of ``state`` with the matrices of its parts in single precision; its key ``rounded`` lists them."""
    out, where = dict(state), []
    for name, part in state.items():
        fields = part._asdict() if hasattr(part, "_asdict") else getattr(part, "__dict__", {})
        rounded = {field: value.astype(np.float32) for field, value in fields.items() if _may_be_rounded(value)}
        if rounded:
            out[name] = _with(part, rounded)
            where += [[name, field] for field in rounded]
    return {**out, "rounded": where} if where else out


def _with(part: Any, fields: Mapping[str, Any]) -> Any:
    """A copy of an object or named tuple with other values of fields that it has."""
    if hasattr(part, "_replace"):
        return part._replace(**fields)
    part = copy(part)
    vars(part).update(fields)
    return part


def _may_be_rounded(value: Any) -> bool:
    """Whether single precision changes no entry of a matrix by more than 1e-7 of itself or 1e-9 of the largest entry.

    Vectors stay: a mean may be so large against the spread around it that the spread would be lost. Matrices outside
    the range of single precision stay, too.
    """
    if not (isinstance(value, np.ndarray) and value.dtype == np.float64 and value.ndim >= 2):
        return False
    negligible = 1e-9 * float(np.max(np.abs(value), initial=0.0, where=np.isfinite(value)))
    with np.errstate(over="ignore", invalid="ignore"):
        return np.allclose(value.astype(np.float32), value, rtol=1e-7, atol=negligible, equal_nan=True)


def _check_parts(path: Path, node: Any, allow: tuple[str, ...], seen: dict[Any, Any], named: set[str]) -> None:
    """Raise UserError unless every part of a file is one that zsl writes, or of an allowed package.

    ``seen`` holds the parts so far by their numbers and arrays: skops reads a number or an array once, so that another
    part of the same number would not be the one that was checked. ``named`` gets the names of the parts that pass.
    """
    if isinstance(node, dict):
        kind = node.get("__loader__")
        if (kind is None and "__id__" in node) or (kind == "NdArrayNode" and node.get("type") != "numpy"):
            raise UserError(f"{path} is not as zsl writes it; do not use it.")
        marks = [("part", node["__id__"])] if "__id__" in node else []
        marks += [("array", node["file"])] if kind == "NdArrayNode" else []
        known = [seen[mark] for mark in marks if mark in seen]
        # An array that two parts name would be unpacked twice.
        if any(_unnumbered(k) != _unnumbered(node) or k.get("__id__") != node.get("__id__") for k in known):
            raise UserError(f"{path} is not as zsl writes it; do not use it.")
        seen.update(dict.fromkeys(marks, node))
        if kind is not None:
            name = f"{node.get('__module__')}.{node.get('__class__')}"
            package = name.partition(".")[0]
            ours = kind in ("ObjectNode", "FunctionNode", "TupleNode") and _is_registered(name)
            if not (name in _PLAIN.get(kind, ()) or ours or (package in allow and not _is_standard(package))):
                raise UserError(f"{path} names {name}, which is no registered part of zsl; {_remedy(package)}.")
            named.add(name)
            content = node.get("content")
            if kind == "ObjectNode" and ours:
                _check_attributes(path, name, content.get("content") if isinstance(content, dict) else None)
        for value in node.values():
            _check_parts(path, value, allow, seen, named)
    elif isinstance(node, list):
        for value in node:
            _check_parts(path, value, allow, seen, named)


def _unnumbered(node: Any) -> Any:
    """A part without the numbers in it, which differ where skops writes one object twice."""
    if isinstance(node, dict):
        return {key: _unnumbered(value) for key, value in node.items() if key != "__id__"}
    return [_unnumbered(value) for value in node] if isinstance(node, list) else node


def _check_attributes(path: Path, name: str, attributes: Any) -> None:
    """Raise UserError if an object of a file replaces a method of its class."""
    module, _, leaf = name.rpartition(".")
    kind = getattr(import_module(module), leaf)
    if not isinstance(attributes, dict):
        raise UserError(f"{path} is not as zsl writes it; do not use it.")
    for attribute in attributes:
        if callable(getattr(kind, attribute, None)):
            raise UserError(f"{path} replaces the method {attribute} of {name}, which zsl never does; do not use it.")


def _is_standard(package: str) -> bool:
    return package in sys.stdlib_module_names or package in ("numpy", "scipy", "sklearn", "skops", "zsl")


def _remedy(package: str) -> str:
    if _is_standard(package):
        return "zsl never writes such a file, so do not use it"
    return (
        f'if you trust it, allow its package: allow=["{package}"] in Python, --allow {package} for zsl.predict and '
        "zsl.tracking"
    )


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
