"""The configuration: where it lies, the command line that Hydra 1.3 can read, and building what YAML files name."""

from __future__ import annotations

import difflib
import fnmatch
import importlib
import inspect
import re
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zsl.errors import UserError

if TYPE_CHECKING:
    from omegaconf import DictConfig

# Hydra's flags that take a value, which travels with them.
_VALUE_FLAGS = {
    "--cfg", "-c", "--package", "-p", "--config-path", "-cp", "--config-name", "-cn", "--config-dir", "-cd",
    "--experimental-rerun", "--info", "-i",
}  # fmt: skip
# Their values are few words, so an override after them is not one.
_WORD_FLAGS = {"--cfg", "-c", "--info", "-i"}
_FLAGS = {
    "--help", "-h", "--hydra-help", "--version", "--resolve", "--run", "-r", "--multirun", "-m", "--shell-completion",
    "-sc", *_VALUE_FLAGS,
}  # fmt: skip
# What may follow these; the others take any text.
_WORDS = {
    **dict.fromkeys(("--cfg", "-c"), ("job", "hydra", "all")),
    **dict.fromkeys(("--info", "-i"), ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")),
}
_NUMBER = re.compile(r"[+-]?\d[\d_]*\Z")
_OVERRIDE = re.compile(r"(?P<key>\+{0,2}(?P<group>[A-Za-z_/]+)(@[^=]*)?)=(?P<value>.*)\Z", re.S)
# dataset.semantics=image: the choice within a node that holds the pre-processing too.
_SHORT = re.compile(r"^(dataset\.semantics)=(?![{\[])")
_SWEEP = re.compile(r"(?P<function>choice|glob)\((?P<arguments>[^()\[\]=]*)\)\Z", re.S)
# Launchers that come with an extra of this package.
_LAUNCHERS = {"joblib": "parallel", "submitit_local": "slurm", "submitit_slurm": "slurm"}
# Keys of a YAML file that describe it rather than being arguments of what it builds.
_DESCRIPTIVE = {"_target_", "_partial_", "datasets", "grid"}


def conf_dir() -> Path:
    """The folder of the configuration: inside the installed package, or beside it in a checkout."""
    here = Path(__file__).resolve().parent
    for folder in (here / "conf", here.parent / "conf"):
        if (folder / "config.yaml").is_file():
            return folder
    raise FileNotFoundError(
        f"zsl's config folder is in neither {here / 'conf'} nor {here.parent / 'conf'}; reinstall zsl."
    )


def groups() -> list[str]:
    """The config groups."""
    return sorted(p.name for p in conf_dir().iterdir() if p.is_dir())


def options(group: str) -> list[str]:
    """The options of a group: the registry of datasets, models, solvers, ..."""
    return sorted(p.stem for p in (conf_dir() / group).glob("*.yaml"))


# --- the command line -------------------------------------------------------------------------------------


def check_flags(argv: Iterable[str]) -> None:
    """Refuse flags that Hydra does not know, in a sentence instead of its parser's usage.

    Raises
    ------
    UserError
        For an unknown flag (near misses are named), a flag without its value, and a value that it does not take.
    """
    rest = list(argv)
    while rest:
        token = rest.pop(0)
        if token == "--":
            return
        if not token.startswith("-") or token == "-":
            continue
        flag, equals, value = token.partition("=")
        if flag not in _FLAGS:
            raise UserError(f"there is no flag {flag}{_did_you_mean(flag, _FLAGS)}; --help shows what there is.")
        if flag not in _VALUE_FLAGS:
            if equals:
                raise UserError(f"{flag} takes no value; write {flag} alone.")
            continue
        if not equals:
            follows = rest and not rest[0].startswith("-") and not (flag in _WORD_FLAGS and "=" in rest[0])
            if not follows:
                if flag in ("--info", "-i"):
                    continue
                raise UserError(f"{flag} needs a value{_one_of(flag)}.")
            value = rest.pop(0)
        if flag in _WORDS and value not in _WORDS[flag]:
            raise UserError(f"{flag} {value} does not exist{_did_you_mean(value, _WORDS[flag])}{_one_of(flag)}.")


def _one_of(flag: str) -> str:
    return f"; it may be: {', '.join(_WORDS[flag])}" if flag in _WORDS else ""


def normalise_argv(argv: Iterable[str]) -> list[str]:
    """Arguments as Hydra 1.3 needs them; applying it twice changes nothing more.

    1. Flags first: Hydra's parser stops collecting overrides at the first flag (hydra issue 3053), so
       ``dataset=sun -m model.lam=1`` would be refused.
    2. Number-like options quoted: ``split=645_72`` is the integer 64572 in Hydra's grammar (hydra issue 1163).
    """
    flags, overrides, rest = [], [], list(argv)
    while rest:
        token = rest.pop(0)
        if token == "--":
            overrides += [quote_options(t) for t in rest]
            break
        if token.startswith("-"):
            flags.append(token)
            takes_value = token in _VALUE_FLAGS and rest and not rest[0].startswith("-")
            if takes_value and not (token in _WORD_FLAGS and "=" in rest[0]):
                flags.append(rest.pop(0))
        else:
            overrides.append(quote_options(token))
    return flags + overrides


def quote_options(override: str) -> str:
    """``split=645_72,707_10`` -> ``split='645_72','707_10'`` for config groups; other overrides as they are.

    ``dataset.semantics=image`` becomes ``dataset.semantics.source=image``.

    ``choice(...)`` and ``glob(...)`` over a group are written out, because Hydra drops the quotes when it passes a
    sweep's jobs on.
    """
    override = _SHORT.sub(r"\1.source=", override)
    match = _OVERRIDE.match(override)
    if not match or match["group"] not in groups():
        return override
    value = match["value"].strip()
    sweep = _SWEEP.match(value)
    if match["group"] == "experiment" and (sweep or "," in value):
        raise UserError(
            f"{override} would run each experiment without its own sweep, because Hydra looks for a sweep before it "
            "reads these files; run one experiment at a time."
        )
    if sweep:
        patterns = [v.strip().strip("'\"") for v in sweep["arguments"].split(",")]
        if sweep["function"] == "glob":
            patterns = [o for o in options(match["group"]) if any(fnmatch.fnmatch(o, p) for p in patterns)]
            if not patterns:
                raise UserError(
                    f"{override} matches nothing; {match['group']} has: {', '.join(options(match['group']))}."
                )
        value = ",".join(patterns)
    if value.startswith(("'", '"', "[", "{")) or "(" in value:
        return override
    quoted = [f"'{v.strip()}'" if _NUMBER.match(v.strip()) else v for v in value.split(",")]
    return f"{match['key']}={','.join(quoted)}"


def is_sweep(override: str) -> bool:
    """Whether an override has several values in Hydra's grammar: ``a=1,2``, ``a=range(3)``, ``a=choice(x,y)``.

    Raises
    ------
    UserError
        If it is no override.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        parsed = OverridesParser.create().parse_overrides([quote_options(override)])[0]
    except HydraException as error:
        raise UserError(explain(error, [override])) from error
    return bool(parsed.is_sweep_override())


def compose(overrides: Iterable[str] = ()) -> DictConfig:
    """The configuration for ``overrides`` as the command line would compose it; for notebooks and tests.

    Raises
    ------
    UserError
        For what the command line refuses, with the same sentence.
    """
    import hydra
    from hydra.core.global_hydra import GlobalHydra

    arguments = normalise_argv(overrides)
    if GlobalHydra.instance().is_initialized():
        return _compose(arguments)
    with hydra.initialize_config_dir(str(conf_dir()), version_base="1.3", job_name="zsl"):
        return _compose(arguments)


def _compose(arguments: list[str]) -> DictConfig:
    import hydra
    from hydra.errors import HydraException

    try:
        return hydra.compose("config", arguments)
    except HydraException as error:
        raise UserError(explain(error, arguments)) from error


def resolve(cfg: DictConfig) -> dict[str, Any]:
    """The configuration as plain dictionaries, interpolations resolved, Hydra's own part left out."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        plain = _without_paths(OmegaConf.to_container(cfg, resolve=True))
    except OmegaConfBaseException as error:
        raise UserError(" ".join(str(error).split())) from error
    assert isinstance(plain, dict)
    plain.pop("hydra", None)
    dataset = plain.get("dataset")
    if isinstance(dataset, dict) and isinstance(dataset.get("semantics"), str):
        # The short form where no command line rewrote it, as in a sweep that a YAML file describes.
        dataset["semantics"] = {**compose().dataset.semantics, "source": dataset["semantics"]}
    return {str(k): v for k, v in plain.items()}


def _without_paths(value: Any) -> Any:
    """Paths, which Python callers may put in, as the text that records, files and stores hold."""
    if isinstance(value, dict):
        return {k: _without_paths(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_without_paths(v) for v in value]
    return str(value) if isinstance(value, Path) else value


# --- Hydra's errors in one sentence -------------------------------------------------------------------------


def explain(error: Exception, overrides: list[str]) -> str:
    """What is wrong with the overrides: the key or option, and the valid ones."""
    from hydra.errors import MissingConfigException, OverrideParseException

    text = " ".join(str(error).split())
    if isinstance(error, OverrideParseException):
        example = f"'{error.override}'" if not error.override.startswith("'") else error.override
        return f"cannot read the override {error.override!r}; write KEY=VALUE, and quote special characters: {example}."
    if isinstance(error, MissingConfigException) and error.options is not None and error.missing_cfg_file:
        group, _, option = error.missing_cfg_file.rpartition("/")
        has = ", ".join(o for o in error.options if not o.startswith("_"))
        more = " Set feature.name=NAME for a stored feature of another name." if group == "feature" else ""
        if group == "hydra/launcher" and option in _LAUNCHERS:
            more = f" For {option}: pip install 'zsl-cdl[{_LAUNCHERS[option]}]'."
        return f"{group}={option} does not exist{_did_you_mean(option, error.options)}; {group} has: {has}.{more}"
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
        return f"{key} does not exist; `--cfg job` shows what does."
    return f"{key} does not exist{_did_you_mean(leaf, valid)}; {where}: {', '.join(valid)}."


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
    return sorted({str(k) for k in node if k not in _DESCRIPTIVE} | (set() if parent else set(groups())))


def _did_you_mean(name: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(names), n=1)
    return f" (did you mean {close[0]}?)" if close else ""


# --- building --------------------------------------------------------------------------------------------


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
    allow_targets : packages outside ``zsl`` that targets may name.
    given : arguments that come from the program.

    Raises
    ------
    UserError
        For a target outside the permitted packages or that cannot be imported, unknown or missing keys, and values
        of a wrong type or out of range.
    """
    from zsl.checks import check_arguments

    target = _locate(node.get("_target_"), group, tuple(allow_targets))
    parameters = inspect.signature(target).parameters
    values = {k: v for k, v in node.items() if k not in _DESCRIPTIVE and k not in set(skip)}
    if "name" in values and "name" not in parameters:
        del values["name"]
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for key in values:
        if key not in parameters and not open_ended:
            valid = [k for k, p in parameters.items() if k not in given and p.kind is not p.POSITIONAL_ONLY]
            raise UserError(f"{group}.{key} is not known to {node['_target_']}; it takes: {', '.join(valid)}.")
    for key, value in values.items():
        if isinstance(value, Mapping) and "_target_" in value:
            # ${solver} inside a model is still set as solver.KEY by the user.
            values[key] = build(value, key if key in groups() else f"{group}.{key}", allow_targets=allow_targets)
        elif value == "???":
            raise UserError(f"{group}.{key} has no value yet; give one: {group}.{key}=...")
    check_arguments(target, values, prefix=f"{group}.")
    if node.get("_partial_"):
        return partial(target, **values, **given)
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    required = [k for k, p in parameters.items() if p.default is p.empty and p.kind in by_name]
    missing = [k for k in required if k not in values and k not in given]
    if missing:
        raise UserError(f"{group}.{missing[0]} is needed by {node['_target_']}; set {group}.{missing[0]}=...")
    return target(**values, **given)


def _locate(path: Any, group: str, allow_targets: tuple[str, ...]) -> Any:
    if not isinstance(path, str) or "." not in path:
        raise UserError(f"{group}._target_={path!r} names nothing; write package.module.Name.")
    module, _, name = path.rpartition(".")
    package = path.split(".")[0]
    if package not in {"zsl", *allow_targets}:
        raise UserError(
            f"{group}._target_={path} is outside zsl and is not run; if you trust it, add allow_targets=[{package}]."
        )
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UserError(f"{group}._target_={path} cannot be imported: {error}.") from None
