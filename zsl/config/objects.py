"""Building the objects that YAML files name."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from zsl.checks import check_arguments
from zsl.config.registry import DESCRIPTIVE, components, groups
from zsl.errors import UserError, did_you_mean


def build(
    node: Mapping[str, Any],
    group: str,
    *,
    skip: Iterable[str] = (),
    allow_targets: Iterable[str] = (),
    **given: Any,
) -> Any:
    """Call what ``_target_`` names with the other keys; with ``_partial_: true``, bind them for a later call.

    Keys that only describe the file (``datasets``, and ``name`` where the target has no such parameter) are left out,
    nested nodes with a ``_target_`` are built first.

    Parameters
    ----------
    node : mapping
        A plain dictionary (resolved) of the configuration.
    group : str
        Its place, for messages: ``model`` gives ``model.lam=...``.
    skip : keys to leave out.
    allow_targets : packages outside ``zsl`` that targets may name; the command line gives them, never a file.
    given : arguments that come from the program.

    Raises
    ------
    UserError
        For a target that is neither a registered component nor in a permitted package, one that cannot be imported,
        unknown or missing keys, and values of a wrong type or out of range.
    """
    target = locate(node.get("_target_"), group, tuple(allow_targets))
    parameters = inspect.signature(target).parameters
    values = {k: v for k, v in node.items() if k not in DESCRIPTIVE and k not in set(skip)}
    if "name" in values and "name" not in parameters:
        del values["name"]
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for key in values:
        if key not in parameters and not open_ended:
            valid = [k for k, p in parameters.items() if k not in given and p.kind is not p.POSITIONAL_ONLY]
            raise UserError(
                f"{group}.{key} is not known to {node['_target_']}{did_you_mean(key, valid)}; it takes: "
                f"{', '.join(valid) or 'no settings'}."
            )
    for key, value in values.items():
        if isinstance(value, Mapping) and "_target_" in value:
            # ${solver} inside a model is still set as solver.KEY by the user.
            values[key] = build(value, key if key in groups() else f"{group}.{key}", allow_targets=allow_targets)
        elif value == "???":
            raise UserError(f"{group}.{key} has no value yet; give one: {group}.{key}=...")
        elif (group, key) == ("model", "solver") and value is not None and not callable(value):
            raise UserError(
                f"{group}.solver={value!r} is not accepted: it should be a function; choose with solver=NAME."
            )
    check_arguments(target, values, prefix=f"{group}.")
    if node.get("_partial_"):
        return partial(target, **values, **given)
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    required = [k for k, p in parameters.items() if p.default is p.empty and p.kind in by_name]
    missing = [k for k in required if k not in values and k not in given]
    if missing:
        raise UserError(f"{group}.{missing[0]} is needed by {node['_target_']}; set {group}.{missing[0]}=...")
    return target(**values, **given)


def locate(path: Any, group: str, allow_targets: Iterable[str] = ()) -> Any:
    """The class or function of a dotted path: a registered component of the group, or one of an allowed package.

    A configuration file may come from somebody else. It can name what zsl's own files in ``conf/GROUP`` name, and
    nothing else of zsl or of other packages.

    Raises
    ------
    UserError
        For any other path, and for one that cannot be imported.
    """
    if not isinstance(path, str) or "." not in path:
        raise UserError(f"{group}._target_={path!r} names nothing; write package.module.Name.")
    kind = {"dataset.semantics": "feature"}.get(group, group.partition(".")[0])
    known = components(kind) if kind in groups() else ()
    package, allowed = path.partition(".")[0], set(allow_targets)
    if path not in known and package not in allowed:
        if package == "zsl":
            choice = f"; choose one with {kind}=NAME" if known else ""
            raise UserError(f"{group}._target_={path} is no component of zsl{did_you_mean(path, known)}{choice}.")
        raise UserError(
            f"{group}._target_={path} is outside zsl and is not run; if you trust it, add allow_targets=[{package}] "
            "to the command."
        )
    module, _, name = path.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UserError(
            f"{group}._target_={path} cannot be imported ({error}); correct the name, or install the package."
        ) from None
    # A module also holds what it imports from others, such as mine.subprocess.
    origin = str(getattr(found, "__module__", None) or package).partition(".")[0]
    if not callable(found) or (path not in known and origin not in {*allowed, "zsl"}):
        raise UserError(f"{group}._target_={path} is no class or function of the package {package}; name one.")
    return found
