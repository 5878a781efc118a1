"""How inference rules are found, what they may ask for, and what they declare.

A rule is a function. The names of its parameters are the interface: it is given the quantities it names (``model``,
``X``, ``Z_hat``, ``Z_unseen``, ...) and, of the settings under ``inference`` in the configuration, those it names.
Labels of test images are not among them.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from zsl.checks import check_arguments
from zsl.errors import UserError

F = TypeVar("F", bound=Callable[..., Any])


def uses(*information: str, when: Mapping[str, str] | None = None) -> Callable[[F], F]:
    """Declare what a rule uses beyond the features of one image: it becomes part of the result's record.

    ``when`` maps settings of the rule to what it uses in addition if they are neither false nor zero.
    """

    def mark(rule: F) -> F:
        rule.information = information  # type: ignore[attr-defined]
        rule.information_when = dict(when or {})  # type: ignore[attr-defined]
        return rule

    return mark


def information(rule: Callable[..., Any], settings: Mapping[str, Any]) -> tuple[str, ...]:
    """What :func:`uses` declared, under these settings; nothing for a rule without it."""
    more = (text for key, text in getattr(rule, "information_when", {}).items() if settings.get(key))
    return (*getattr(rule, "information", ()), *more)


def asks_for(rule: Callable[..., Any]) -> frozenset[str]:
    """Names of a rule's parameters."""
    return frozenset(inspect.signature(rule).parameters)


def find(kind: str, name: str, allow_targets: tuple[str, ...] = ()) -> Callable[..., Any]:
    """The rule called ``name``: one that ``zsl.inference`` exports, or a dotted path.

    Raises
    ------
    UserError
        If there is none, naming those there are; if the path is outside ``zsl.`` and ``allow_targets``.
    """
    from zsl import inference

    known = inference.ATTRIBUTE_RULES if kind == "attributes" else inference.LABEL_RULES
    if "." not in name:
        if name not in known:
            raise UserError(
                f"inference.{kind}={name} does not exist; it may be: {', '.join(known)}, or module.function."
            )
        return getattr(inference, name)
    module, _, attribute = name.rpartition(".")
    if module.split(".")[0] not in {"zsl", *allow_targets}:
        package = module.split(".")[0]
        raise UserError(f"inference.{kind}={name} is outside zsl; allow_targets=[{package}] permits it.")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise UserError(f"inference.{kind}={name} cannot be imported: {error}.") from None


def call(rule: Callable[..., Any], given: Mapping[str, Any], settings: Mapping[str, Any]) -> Any:
    """Call a rule with those of ``given`` and ``settings`` that it names; a missing one is named in a sentence."""
    parameters = inspect.signature(rule).parameters
    chosen = check_settings(rule, settings)
    chosen |= {k: v for k, v in given.items() if k in parameters}
    missing = [k for k, v in parameters.items() if v.default is v.empty and k not in chosen]
    if missing:
        raise UserError(
            f"inference rule {rule.__name__} asks for {missing[0]!r}, which is neither a setting under inference "
            f"nor one of: {', '.join(given)}."
        )
    return rule(**chosen)


def check_settings(rule: Callable[..., Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a rule names, after a check of their types and ranges."""
    parameters = inspect.signature(rule).parameters
    chosen = {k: v for k, v in settings.items() if k in parameters}
    check_arguments(rule, chosen, prefix="inference.")
    return chosen
