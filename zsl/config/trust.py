"""What a configuration file may not do: permit itself packages, or make Hydra run something.

A file in a folder that ``--config-dir`` names may come from somebody else. It may choose registered components and set
their values. The command line alone permits packages and changes how Hydra works.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zsl.errors import UserError

if TYPE_CHECKING:
    from omegaconf import DictConfig

# What a file may set of Hydra's own node: whether there is a sweep, its jobs, and folders below the output folder.
_FOLDER = re.compile(r"\$\{output_dir\}(/(?:[^$/]|\$\{(?:now:[^{}]*|hydra[.:]job\.num)\})+)*")
_SUBDIR = re.compile(r"(?:[\w.-]|\$\{hydra[.:]job\.\w+\})+")
_PACKAGE = re.compile(r"^\s*#\s*@package\s+(.*)$", re.M)


def check_allowed(cfg: DictConfig, overrides: Iterable[str]) -> None:
    """Refuse ``allow_targets`` from anywhere but the command line.

    Parameters
    ----------
    cfg : DictConfig
        The configuration, composed of files and overrides.
    overrides : iterable of str
        What the command line or the caller gave.

    Raises
    ------
    UserError
        If ``cfg`` allows packages that the overrides do not name.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from omegaconf import OmegaConf

    named = [o for o in overrides if re.match(r"\+{0,2}allow_targets=", o)]
    given: Any = OverridesParser.create().parse_override(named[-1]).value() if named else []
    found = OmegaConf.select(cfg, "allow_targets")
    found = OmegaConf.to_container(found, resolve=True) if OmegaConf.is_list(found) else found
    if found and found != given:
        raise UserError(
            f"a configuration file sets allow_targets={found}, which only the command line may; if you trust the file "
            "and these packages, add allow_targets=[PACKAGE] to the command."
        )


def check_content(path: Path, within: Path, text: str, content: Any) -> None:
    """Refuse a configuration file outside zsl that changes how Hydra works, or allows packages.

    Hydra builds callbacks, launchers, sweepers and loggers before zsl sees a configuration. Files in a ``--config-dir``
    folder may set, under ``hydra``, only the jobs of a sweep and folders below the output folder. Every file is looked
    at by itself, whatever composes it.

    Parameters
    ----------
    path, within : Path
        The file, relative to the folder ``within`` that the command names.
    text : str
        Of the file, for its header ``# @package``.
    content : nested dict, list and str
        Of the file.

    Raises
    ------
    UserError
        With the key that the file sets.
    """
    parts = path.parts
    launcher = len(parts) == 3 and parts[0] == "hydra" and parts[1] in ("launcher", "sweeper")
    if parts[0] == "hydra" and not launcher:
        _refuse(within / path, f"hydra/{parts[1] if len(parts) > 1 else ''}")
    for package in _PACKAGE.findall(text):
        if "hydra" in package:
            _refuse(within / path, f"its package {package.strip()}")
    if not isinstance(content, Mapping):
        return
    if launcher and not str(content.get("_target_", "hydra.")).startswith(("hydra.", "hydra_plugins.")):
        _refuse(within / path, f"_target_={content['_target_']}")
    for entry in content.get("defaults") or ():
        words = " ".join(f"{k} {v}" for k, v in entry.items()) if isinstance(entry, Mapping) else str(entry)
        if "hydra" in words or "${" in words.partition("@")[2]:
            _refuse(within / path, f"defaults: {words}")
    for key, value in content.items():
        if key == "hydra":
            _check_node(within / path, value)
        elif key != "defaults":
            _check_keys(within / path, key, value)


def _check_node(path: Path, node: Any) -> None:
    """The node ``hydra`` of a file."""
    for key, value in (node if isinstance(node, Mapping) else {"": node}).items():
        settings = value if isinstance(value, Mapping) else {"": value}
        for name, setting in settings.items():
            where = f"{key}.{name}" if name else key
            if where == "sweeper.params" and isinstance(setting, Mapping):
                for swept in setting:
                    if "hydra" in swept or "allow_targets" in swept:
                        _refuse(path, f"a sweep over {swept}")
            elif where in ("run.dir", "sweep.dir"):
                if ".." in setting or not _FOLDER.fullmatch(str(setting)):
                    _refuse(path, f"hydra.{where} to a folder that is not below ${{output_dir}}")
            elif where == "sweep.subdir":
                if not _SUBDIR.fullmatch(str(setting)) or ".." in setting:
                    _refuse(path, "hydra.sweep.subdir to more than a name")
            elif where not in ("mode", "verbose"):
                _refuse(path, f"hydra.{where}")


def _check_keys(path: Path, key: str, value: Any) -> None:
    """Any other key of a file, at any depth."""
    name = key.lstrip("+~").rpartition("@")[2]
    if name == "hydra" or name.startswith(("hydra.", "hydra/")) or key.lstrip("+~") == "allow_targets":
        _refuse(path, key)
    values = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for inner, content in values:
        _check_keys(path, str(inner), content)


def _refuse(path: Path, what: str) -> None:
    raise UserError(f"{path} sets {what}, which only the command line may; remove it there.")
