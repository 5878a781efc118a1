"""Composing the configuration, and what is wrong with overrides in one sentence."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zsl.config import credentials
from zsl.config.argv import is_readable, normalise_argv, quote_options, quoted
from zsl.config.bounds import check_interpolations
from zsl.config.registry import DESCRIPTIVE, conf_dir, groups, options
from zsl.config.trust import check_allowed
from zsl.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from omegaconf import DictConfig

# Launchers that come with an extra of this package.
_LAUNCHERS = {"joblib": "parallel", "submitit_local": "slurm", "submitit_slurm": "slurm"}
MOVED = {
    "inference.gate": "inference.fallback",
    "inference.attribute_scores": "inference.bidirectional.base",
    "inference.anchors": "inference.RULE.base, with RULE one of csls, inverted_softmax, mixture and spread_features",
    **{f"inference.{k}": f"inference.aware.{k}" for k in ("gamma", "gamma_relative", "rho", "kernel")},
    **{f"inference.aware_{k}": f"inference.aware.{k}" for k in ("scale", "batch", "optimiser", "tol", "max_iter")},
    **{f"inference.{k}": f"inference.spread.{k}" for k in ("mu", "sigma", "n_neighbors", "unit",
                                                           "exact_neighbors_up_to")},
    "inference.class_mass": "inference.spread.class_prior",
    "inference.evidence": "inference.mixture.prior_weight",
    "inference.uniform_masses": "inference.mixture.class_prior=uniform",
    "inference.mixture.balanced_prior": "inference.mixture.class_prior=uniform, where balanced_prior was 1",
    "inference.confident": "inference.mixture.confident",
    "inference.concentration": "inference.mixture.concentration",
    "inference.mixture_max_iter": "inference.mixture.max_iter",
    "inference.hub_neighbors": "inference.csls.n_neighbors",
    "inference.hub_temperature": "inference.inverted_softmax.temperature",
    "inference.self_training_rounds": "inference.self_trained.n_rounds",
    "inference.self_training_weight": "inference.self_trained.weight",
    "evaluation.n_draws": "evaluation.n_validation_splits",
    "tracking.model": "tracking.artifacts=all, light or none; light is all files but the model",
    "experiment=table0": "experiment=table1, because tables are called as the paper prints them: table1 is now table2",
}  # fmt: skip
"""Keys and options of earlier versions and what they are called now."""


def compose(overrides: Iterable[str] = ()) -> DictConfig:
    """The configuration for ``overrides`` as the command line would compose it; for notebooks and tests.

    Raises
    ------
    UserError
        For what the command line refuses, with the same sentence.

    Examples
    --------
    >>> compose(["dataset=digits", "model=eszsl"]).model.name
    'eszsl'
    """
    import hydra
    from hydra.core.global_hydra import GlobalHydra

    arguments = normalise_argv(credentials.taken_from(overrides))
    if GlobalHydra.instance().is_initialized():
        return _compose(arguments)
    with hydra.initialize_config_dir(str(conf_dir()), version_base="1.3", job_name="zsl"):
        return _compose(arguments)


def _compose(arguments: list[str]) -> DictConfig:
    import hydra
    from hydra.errors import HydraException
    from yaml import YAMLError

    try:
        cfg = hydra.compose("config", arguments)
    except (HydraException, YAMLError, RecursionError, ValueError) as error:
        raise UserError(explain(error, arguments)) from error
    check_allowed(cfg, arguments)
    return cfg


def resolve(cfg: DictConfig) -> dict[str, Any]:
    """The configuration as plain dictionaries, interpolations resolved, Hydra's own part left out."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    check_interpolations(OmegaConf.to_container(cfg), "the configuration")
    try:
        config = _without_paths(OmegaConf.to_container(cfg, resolve=True))
    except OmegaConfBaseException as error:
        raise UserError(" ".join(str(error).split())) from error
    assert isinstance(config, dict)
    config.pop("hydra", None)
    tracking = config.get("tracking")
    if isinstance(tracking, dict) and isinstance(tracking.get("uri"), str):
        tracking["uri"] = credentials.taken(tracking["uri"])  # from a file, or from an environment variable
    dataset = config.get("dataset")
    if isinstance(dataset, dict) and isinstance(dataset.get("semantics"), str):
        # The short form where no command line rewrote it, as in a sweep that a YAML file describes.
        dataset["semantics"] = {**compose().dataset.semantics, "source": dataset["semantics"]}
    return {str(k): v for k, v in config.items()}


def check_nodes(config: dict[str, Any]) -> None:
    """Check that the keys of ``config.yaml`` are there, and that groups of settings, lists and folders are such.

    Raises
    ------
    UserError
        With the key of the first that is not.
    """
    needed, rules = _needed_nodes(conf_dir())
    # A YAML of the user's own may leave out the settings of rules.
    inference = config.get("inference")
    present: dict[str, Any] = {k: {} for k in rules if k in inference} if isinstance(inference, dict) else {}
    _check_node(config, {**needed, "inference": present}, "")


@cache
def _needed_nodes(conf: Path) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The keys that every configuration has, with values of their kinds, and the names of the rules with settings.

    The files are read once in a process, since every trial of tuning is checked.
    """
    from omegaconf import OmegaConf

    expected, rules = (OmegaConf.to_container(OmegaConf.load(conf / f)) for f in ("config.yaml", "rules.yaml"))
    assert isinstance(expected, dict)
    assert isinstance(rules, dict)
    needed = {str(k): v for k, v in expected.items() if k not in ("defaults", "hydra")}
    needed |= {group: {} for group in groups() if group != "experiment"}
    needed["dataset"] = {**expected["dataset"], "semantics": dict.fromkeys(("source", "missing"))}
    return needed, tuple(map(str, rules))


def _check_node(value: Any, expected: Any, key: str) -> None:
    kinds: dict[type, str] = {dict: "a group of settings", list: "a list, such as [a,b]"}
    kind = next((k for k in kinds if isinstance(expected, k)), None)
    if kind and not isinstance(value, kind):
        choice = f"; choose one with {key}=NAME" if key in groups() else ""
        raise UserError(f"{key}={value!r} is not accepted: it should be {kinds[kind]}{choice}.")
    if kind is dict:
        for name, inner in expected.items():
            path = f"{key}.{name}" if key else str(name)
            if name not in value:
                choice = f"; choose one with {path}=NAME" if path in groups() else f"; leave out ~{path}"
                raise UserError(f"{path} is missing{choice}.")
            _check_node(value[name], inner, path)
    elif key in ("output_dir", "data_dir") and not isinstance(value, str):
        raise UserError(f"{key}={value!r} is not accepted: it should be the path of a folder, such as ./data.")
    elif key == "cache_dir" and not isinstance(value, str | None):
        raise UserError(f"{key}={value!r} is not accepted: it should be the path of a folder, 'off' or null.")


def _without_paths(value: Any) -> Any:
    """Paths, which Python callers may put in, as the text that records, files and stores hold."""
    if isinstance(value, dict):
        return {k: _without_paths(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_without_paths(v) for v in value]
    if isinstance(value, str) and credentials.VARIABLE in os.environ:
        return credentials.masked(value)  # a file may have asked for the variable
    return str(value) if isinstance(value, Path) else value


def is_sweep(override: str) -> bool:
    """Whether an override has several values in Hydra's grammar: ``a=1,2``, ``a=range(3)``, ``a=choice(x,y)``.

    Raises
    ------
    UserError
        If it is no override.
    """
    return bool(_parsed(override).is_sweep_override())


def n_values(override: str) -> int:
    """How many values an override has: the number of jobs that it makes of one in a sweep.

    Raises
    ------
    UserError
        If it is no override.

    Examples
    --------
    >>> n_values("seed=range(10)"), n_values("model=eszsl,sae"), n_values("tune=glob(*)"), n_values("seed=3")
    (10, 2, 2, 1)
    """
    parsed = _parsed(override)
    return len(swept_values(parsed)) if parsed.is_sweep_override() else 1


def swept_values(parsed: Any) -> list[str]:
    """What a parsed override sweeps over, as Hydra writes it for each job."""
    from hydra.core.override_parser.types import Glob

    if isinstance(parsed.value(), Glob):
        return list(parsed.value().filter(options(parsed.key_or_group)))
    return list(parsed.sweep_string_iterator())


def _parsed(override: str) -> Any:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        return OverridesParser.create().parse_overrides([quote_options(override)])[0]
    except HydraException as error:
        raise UserError(explain(error, [override])) from error


def explain(error: Exception, overrides: list[str]) -> str:
    """What is wrong with the overrides or with YAML files: the key or option, and the valid ones."""
    from hydra.errors import MissingConfigException, OverrideParseException
    from yaml import YAMLError

    text = " ".join(str(error).split())
    if isinstance(error, YAMLError):
        return f"a YAML file cannot be read ({text}); put it right."
    if isinstance(error, RecursionError):
        return "a list of defaults in a YAML file includes the file itself; remove that line."
    if isinstance(error, OverrideParseException):
        key, equals, value = str(error.override).partition("=")
        better = f"{key}=" + quoted(value.strip("'\""))
        if not equals or not is_readable(better):
            return f"cannot read the override {error.override!r}; write KEY=VALUE."
        return (
            f"cannot read the override {error.override!r}; put the value into quotes, and the whole into others for "
            f"the shell: {shlex.quote(better)}."
        )
    ambiguous = re.match(r"Ambiguous value for argument '(.*?)=(.*)' 1\. To use it as a list", text)
    if ambiguous:
        # Without the quotes that pieces of it were given.
        value = re.sub(r'"((?:[^"\\]|\\.)*)"', lambda m: m[1].replace('\\"', '"'), ambiguous[2])
        one = f"{ambiguous[1]}={quoted(value)}"
        several = f"{ambiguous[1]}={value} is several values"
        return f"{several}; for a sweep add -m, for one value write {shlex.quote(one)}."
    if isinstance(error, MissingConfigException) and error.options is not None and error.missing_cfg_file:
        group, _, option = error.missing_cfg_file.rpartition("/")
        if f"{group}={option}" in MOVED:
            return f"{group}={option} is now {MOVED[f'{group}={option}']}."
        has = ", ".join(o for o in error.options if not o.startswith("_"))
        more = " Set feature.name=NAME for a stored feature of another name." if group == "feature" else ""
        if group == "hydra/launcher" and option in _LAUNCHERS:
            more = f" For {option}: pip install -e '.[{_LAUNCHERS[option]}]'."
        return f"{group}={option} does not exist{did_you_mean(option, error.options)}; {group} has: {has}.{more}"
    if "Config group override must be a string" in text:
        nothing = next((o for o in overrides if o.endswith("=null")), "GROUP=null")
        return f"{nothing} chooses nothing; leave it out."
    cause = error.__cause__
    full_key = getattr(cause, "full_key", None)
    if full_key and ("not in struct" in str(cause) or "Could not override" in text):
        return _unknown_key(str(full_key), overrides)
    refused = re.match(r"Could not override '([^']+)'", text)
    if refused:
        return _unknown_key(refused[1], overrides)
    if cause is not None and type(cause).__module__.startswith("omegaconf"):
        text = " ".join(str(cause).split())
    return text.removesuffix(".") + "."


def _unknown_key(key: str, overrides: list[str]) -> str:
    if key in MOVED:
        return f"{key} is now {MOVED[key]}."
    parent, _, leaf = key.rpartition(".")
    rest = [o for o in overrides if not re.match(rf"\+*{re.escape(key)}(\.|=|@)", o)]
    where = f"{parent} has" if parent else "there are"
    valid: list[str] = []
    for option in _swept_options(parent, rest) or [""]:
        chosen = [o for o in rest if not o.startswith(f"{parent}=")] + [f"{parent}={option}"] if option else rest
        valid = _keys_under(parent, chosen)
        if option and valid and leaf not in valid:
            where = f"{parent}={option} has"
            break
    if not valid:
        return f"{key} does not exist; `--cfg job` shows what does, and +{key}=... adds what a YAML does not list."
    return f"{key} does not exist{did_you_mean(leaf, valid)}; {where}: {', '.join(valid)}."


def _swept_options(group: str, overrides: list[str]) -> list[str]:
    """The options of a group that a sweep goes through, where it lists them; it may be one of them that lacks a key."""
    value = next((o.partition("=")[2] for o in overrides if o.startswith(f"{group}=")), "")
    return [v.strip() for v in value.split(",")] if "," in value and "(" not in value and group in groups() else []


def _keys_under(parent: str, overrides: list[str]) -> list[str]:
    """The keys that may follow ``parent`` under the remaining overrides; none if those do not compose either."""
    from omegaconf import DictConfig, OmegaConf

    try:
        config = compose([o for o in overrides if "=" in o and not re.match(r"\+*hydra[./]", o) and "," not in o])
    except UserError:
        return []
    node = OmegaConf.select(config, parent) if parent else config
    if not isinstance(node, DictConfig):
        return []
    return sorted({str(k) for k in node if k not in DESCRIPTIVE} | (set() if parent else set(groups())))
