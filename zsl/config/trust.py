"""What a configuration file may not do: permit itself packages, or make Hydra run something.

A file in a folder that ``--config-dir`` names may come from somebody else. It may choose registered components and set
their values. The command line alone permits packages and changes how Hydra works.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zsl.config.registry import conf_dir
from zsl.errors import UserError

if TYPE_CHECKING:
    from omegaconf import DictConfig

# The keys of Hydra's own node that a file may set: which jobs a sweep has, and where their folders are.
_FREE = ("sweeper.params", "mode", "verbose", "searchpath")
# Folders, which may be named below the output folder only.
_FOLDERS = ("run.dir", "sweep.dir", "sweep.subdir")
# Hydra fills these in by itself, from the command line.
_OWN = ("runtime", "overrides", "job.name", "job.override_dirname", "job.id", "job.num", "job.config_name", "help",
        "hydra_help", "output_subdir")  # fmt: skip


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
    from omegaconf import OmegaConf

    given: Any = []
    for override in _parsed(o for o in overrides if re.match(r"\+{0,2}allow_targets=", o)):
        given = override.value()
    found = OmegaConf.select(cfg, "allow_targets")
    found = OmegaConf.to_container(found, resolve=True) if OmegaConf.is_list(found) else found
    if found and found != given:
        raise UserError(
            f"a configuration file sets allow_targets={found}, which only the command line may; if you trust the file "
            "and these packages, add allow_targets=[PACKAGE] to the command."
        )


def check_files(argv: list[str]) -> None:
    """Refuse configuration files outside zsl that change how Hydra works; the check builds no object.

    Hydra builds callbacks, launchers, sweepers and loggers before zsl sees a configuration. Files in a ``--config-dir``
    folder may set, under ``hydra``, only the jobs of a sweep and folders below the output folder.

    Parameters
    ----------
    argv : list of str
        The arguments of the command, after :func:`zsl.config.normalise_argv`.

    Raises
    ------
    UserError
        With the key that a file sets.
    """
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    replaced = next((a for a in argv if a.partition("=")[0] in ("--config-path", "-cp", "--config-name", "-cn")), None)
    if replaced is not None:
        raise UserError(
            f"{replaced} would replace zsl's configuration; add files of your own with --config-dir FOLDER."
        )
    overrides = [a for a in argv if "=" in a and not a.startswith("-")]
    folders = [v for flag, v in pairwise(argv) if flag in ("--config-dir", "-cd")]
    folders += [a.partition("=")[2] for a in argv if a.startswith(("--config-dir=", "-cd="))]
    folders = [f for f in folders if Path(f).is_dir()]  # Hydra says so where one does not exist
    if not folders and not any("hydra.searchpath" in o for o in overrides):
        return
    if folders and not any("hydra.searchpath" in o for o in overrides):
        overrides = [
            *overrides,
            "hydra.searchpath=[" + ",".join(f"'file://{Path(f).absolute()}'" for f in folders) + "]",
        ]
    # A launcher that the command names may come from a file, since the user has chosen it there.
    chosen = {o.partition("=")[0].lstrip("+").removeprefix("hydra/") for o in overrides if "hydra/" in o}
    try:
        mine = _flat(_hydra([o for o in overrides if o.lstrip("+").startswith("hydra.")]))
        nodes = [_flat(_hydra(jobs)) for jobs in _variants(overrides)]
        # A file may also sweep, and so choose the options of each job.
        for node in list(nodes):
            given = {k.removeprefix("sweeper.params."): v for k, v in node.items() if k.startswith("sweeper.params.")}
            params = [f"{key}={value}" for key, value in given.items() if key.lstrip("+~").split(".")[0] != "hydra"]
            nodes += [_flat(_hydra(jobs)) for jobs in _variants([*overrides, *params])] if params else []
    except (HydraException, OmegaConfBaseException):
        return  # Hydra fails for the same reason in a moment, before it builds anything
    for theirs in nodes:
        for key in sorted(mine.keys() | theirs.keys()):
            free = key.startswith((*_FREE, *_OWN)) or key.partition(".")[0] in chosen
            free |= key in _FOLDERS and _below_output(key, theirs.get(key))
            if not free and mine.get(key) != theirs.get(key):
                kind = key.partition(".")[0]
                choice = f", and choose with hydra/{kind}=NAME" if kind in ("launcher", "sweeper") else ""
                raise UserError(
                    f"a configuration file sets hydra.{key}, which only the command line may; remove it there{choice}."
                )
            swept = key.removeprefix("sweeper.").removeprefix("params.").lstrip("+~")
            if key.startswith("sweeper.") and swept.startswith(("hydra", "allow_targets")):
                raise UserError(
                    f"a configuration file sweeps over {swept}, which only the command line may set; remove it there."
                )


def _below_output(key: str, value: Any) -> bool:
    starts = ("${output_dir}/",) if key != "sweep.subdir" else ("${hydra.job", "${hydra:job")
    return isinstance(value, str) and ".." not in value and (value == "${output_dir}" or value.startswith(starts))


def _variants(overrides: list[str]) -> Iterator[list[str]]:
    """The overrides of single jobs in which each option of each swept group occurs once."""
    single = [o for o in _parsed(overrides) if not o.is_sweep_override()]
    swept = [o for o in _parsed(overrides) if o.is_sweep_override()]
    plain = [o.input_line for o in single]
    first = [f"{o.get_key_element()}={next(iter(o.sweep_string_iterator()))}" for o in swept]
    yield plain + first
    for override in swept:
        if "." not in override.get_key_element():
            others = [f for f in first if not f.startswith(f"{override.get_key_element()}=")]
            yield from (
                [*plain, *others, f"{override.get_key_element()}={v}"] for v in override.sweep_string_iterator()
            )


def _parsed(overrides: Iterable[str]) -> list[Any]:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    return list(OverridesParser.create().parse_overrides(list(overrides)))


def _hydra(overrides: list[str]) -> Any:
    """Hydra's own node of the configuration, not resolved."""
    import hydra
    from omegaconf import OmegaConf

    with hydra.initialize_config_dir(str(conf_dir()), version_base="1.3", job_name="zsl"):
        cfg = hydra.compose("config", overrides, return_hydra_config=True)
    return OmegaConf.to_container(cfg, resolve=False)["hydra"]  # type: ignore[call-overload,index]


def _flat(node: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(node, Mapping) or not node:
        return {prefix.removesuffix("."): node}
    return {k: v for key, value in node.items() for k, v in _flat(value, f"{prefix}{key}.").items()}
