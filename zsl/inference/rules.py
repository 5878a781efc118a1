"""The registry of inference rules: a rule is a function that a decorator registers.

The names of a rule's parameters say what the rule is given. The positional ones are quantities:

* ``model``: the fitted model; ``X`` (L, p): the test images; ``Z_unseen`` (M, q): the attributes of the classes;
* ``attributes``: the predicted attributes with their codes; ``Z_hat`` (L, q): the predicted attributes alone;
* ``start``: the attribute-agnostic prediction, from which an attribute rule may start;
* ``statistics``: :class:`zsl.inference.statistics.SeenStatistics`;
* ``reliability``: :class:`zsl.inference.statistics.Reliability`, or None where there are too few seen classes;
* ``base_scores`` (L, M): the scores of the base rule, which ``@label_rule(base=NAME)`` declares;
* ``labelled`` (L,): the class of each test image that the user has named, -1 for all others.

The keyword-only ones are the rule's settings, ``inference.RULE.SETTING`` on the command line. Other labels of test
images are not among the quantities, so no rule can use them.
"""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any, Literal, TypeVar

from zsl.checks import check_arguments
from zsl.errors import UserError, did_you_mean

F = TypeVar("F", bound=Callable[..., Any])
Kind = Literal["attributes", "labels"]
Use = str | Callable[[Any], str]

NATIVE = "own"
"""The name under which a model's native scores stand in the place of a rule."""
TRANSDUCTIVE = "unlabelled test images"
"""What a rule declares that looks at other test images than the one it scores."""
LABELLED = "labels of images of unseen classes"
"""What a stage declares, with their number, that used labels which the user gave."""


@dataclass(frozen=True)
class Rule:
    """A registered rule: its function, what it uses and what it builds on."""

    name: str
    function: Callable[..., Any]
    uses: tuple[str, ...] = ()
    """The information beyond the features of one image that the rule uses; it becomes part of a result's record."""
    uses_when: Mapping[str, Use] = field(default_factory=dict)
    """By setting: what the rule uses in addition where this setting is neither false nor zero, or a function of the
    setting that says it."""
    base: str | None = None
    """The default base rule of a rule that builds on the scores of another one."""
    calibrated: bool = False
    """Whether the scores are log-probabilities that held-out seen classes have calibrated."""
    in_blocks: bool = False
    """Whether a transductive rule also takes and returns :class:`zsl.inference.blocks.Scores` in place of arrays."""

    @property
    def asks_for(self) -> frozenset[str]:
        """The names of the rule's parameters."""
        return frozenset(inspect.signature(self.function).parameters)

    @property
    def settings(self) -> dict[str, Any]:
        """The rule's settings with their defaults, its ``base`` included."""
        parameters = inspect.signature(self.function).parameters.values()
        own = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in QUANTITIES}
        return own if self.base is None else {"base": self.base, **own}

    def checked(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """``settings`` completed by the defaults.

        Raises
        ------
        UserError
            For a setting that the rule does not have, and for a value of a wrong type or out of range.
        """
        defaults = self.settings
        for key in settings:
            if key not in defaults:
                has = f"it has: {', '.join(defaults)}" if defaults else "it has no settings"
                raise UserError(f"inference.{self.name}.{key} does not exist; {has}.")
        found = {**defaults, **settings}
        check_arguments(self.function, {k: v for k, v in found.items() if k != "base"}, f"inference.{self.name}.")
        if not isinstance(found.get("base", ""), str):
            raise UserError(
                f"inference.{self.name}.base={found['base']!r} is not the name of a label rule, such as cosine."
            )
        return found

    def information(self, settings: Mapping[str, Any]) -> tuple[str, ...]:
        """What the rule uses under these settings."""
        found = [
            use(settings.get(key)) if callable(use) else use for key, use in self.uses_when.items() if settings.get(key)
        ]
        return (*self.uses, *(use for use in found if use))

    def __call__(self, given: Mapping[str, Any], settings: Mapping[str, Any]) -> Any:
        """Call the function with those of the quantities ``given`` that it asks for, and with its settings.

        Raises
        ------
        UserError
            For a parameter that is neither a quantity at hand nor has a default.
        """
        parameters = inspect.signature(self.function).parameters
        chosen = {k: v for k, v in self.checked(settings).items() if k in parameters}
        chosen |= {k: v for k, v in given.items() if k in parameters}
        missing = [k for k, v in parameters.items() if v.default is v.empty and k not in chosen]
        if missing:
            raise UserError(
                f"the inference rule {self.name} asks for {missing[0]!r}, which is none of: {', '.join(given)}."
            )
        return self.function(**chosen)


QUANTITIES = (
    "model", "X", "Z_unseen", "attributes", "Z_hat", "start", "statistics", "reliability", "base_scores", "labelled",
)  # fmt: skip
_RULES: dict[Kind, dict[str, Rule]] = {"attributes": {}, "labels": {}}


def attribute_rule(*uses: str, when: Mapping[str, Use] | None = None) -> Callable[[F], F]:
    """Register a function that predicts attributes: ``rule(model, X, ...) -> Attributes``.

    Parameters
    ----------
    uses : str
        The information beyond the features of one image that the rule uses, such as ``"unlabelled test images"``.
    when : mapping, optional
        By setting of the rule: what the rule uses in addition where the setting is neither false nor zero, or a
        function of the setting that says it.

    Examples
    --------
    >>> from zsl.inference import Attributes
    >>> @attribute_rule()
    ... def shrunk(model, X, *, factor=0.5):
    ...     return Attributes(factor * model.predict_attributes(X))
    """
    return _registrar("attributes", uses, when)


def label_rule(
    *uses: str, when: Mapping[str, Use] | None = None, base: str | None = None, calibrated: bool = False,
    in_blocks: bool = False,
) -> Callable[[F], F]:  # fmt: skip
    """Register a function that scores classes: ``rule(Z_hat, Z_unseen, ...) -> (L, M)``, larger is likelier.

    Parameters
    ----------
    uses, when
        As for :func:`attribute_rule`.
    base : str, optional
        The default base rule, where the function asks for ``base_scores``; the setting ``base`` replaces it.
    calibrated : bool
        Whether the scores are log-probabilities that held-out seen classes have calibrated. Results then say how many
        right answers the rule expects.
    in_blocks : bool
        Whether a transductive function also takes ``base_scores`` as :class:`zsl.inference.blocks.Scores`, and then
        returns such scores. A rule that scores each image by itself needs nothing of the kind.

    Examples
    --------
    >>> @label_rule()
    ... def city_block(Z_hat, Z_unseen):
    ...     return -np.abs(Z_hat[:, None] - Z_unseen[None]).sum(axis=2)
    >>> city_block(np.array([[0.0, 2.0]]), np.eye(2))
    array([[-3., -1.]])
    """
    return _registrar("labels", uses, when, base, calibrated, in_blocks)


def _registrar(
    kind: Kind, uses: tuple[str, ...], when: Mapping[str, Use] | None, base: str | None = None,
    calibrated: bool = False, in_blocks: bool = False,
) -> Callable[[F], F]:  # fmt: skip
    def register(function: F) -> F:
        rule = Rule(function.__name__, function, uses, dict(when or {}), base, calibrated, in_blocks)
        function.rule = rule  # type: ignore[attr-defined]
        if function.__module__.partition(".")[0] == "zsl":
            _RULES[kind][rule.name] = rule
        return function

    return register


@cache
def _import_all() -> None:
    """Import every module of ``zsl.inference``, so that a rule needs no list to be known."""
    package = import_module("zsl.inference")
    for module in pkgutil.iter_modules(package.__path__):
        import_module(f"zsl.inference.{module.name}")


def rules(kind: Kind) -> dict[str, Rule]:
    """The registered rules of a kind by name."""
    _import_all()
    return _RULES[kind]


def find(kind: Kind, rule: str | Callable[..., Any], key: str | None = None) -> Rule:
    """The rule of this name, or the one that a function is; ``key`` is the setting that names it, for messages.

    Raises
    ------
    UserError
        If no rule has this name; the sentence names those there are. For a function with the name of another rule,
        because stages and settings go by names.
    """
    known = rules(kind)
    if callable(rule):
        found = getattr(rule, "rule", None) or Rule(rule.__name__, rule)
        if found.name == NATIVE or (found.name in known and known[found.name].function is not found.function):
            raise UserError(
                f"inference.{kind} is a function called {found.name}, as a rule of zsl is; give it another name."
            )
        return found
    if rule not in known:
        own = "" if key else ", or package.module.function"
        raise UserError(
            f"{key or f'inference.{kind}'}={rule} does not exist{did_you_mean(rule, known)}; it may be: "
            f"{', '.join(known)}{own}."
        )
    return known[rule]


def by_name(kind: Kind, rule: str | Callable[..., Any]) -> Any:
    """The name of a rule of zsl that is given as a function, which is then the same rule; anything else as it is."""
    return rule if isinstance(rule, str) else next((n for n, r in rules(kind).items() if r.function is rule), rule)
