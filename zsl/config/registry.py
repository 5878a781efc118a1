"""The folder ``conf``: its groups, its options, and what its keys are for."""

from __future__ import annotations

import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

# What each kind of top-level key is for. A key that is in none of these groups decides a result.
PLACES = ("output_dir", "data_dir", "cache_dir", "tracking", "threads", "device", "skip_existing", "save_model",
          "save_precision", "save_predictions", "figures", "allow_targets", "experiment", "cell", "dask")  # fmt: skip
"""Keys that say where things are and how the work is organised: none of them changes a number."""
DATA = ("dataset", "split", "subset")
"""Keys that decide which data is used; in a run's digest the content of the data stands for them."""
TUNABLE = ("model", "solver", "inference", "feature", "dataset.semantics")
"""What tuning may change; everything else decides what the folds are made of."""
OF_A_MODEL = ("grid", "needs", "checkpoint", "checkpoint_minutes", "backend")
"""Keys of a model that do not change its result: the grid of tuning, a package it needs, interruption, and where."""
DESCRIPTIVE = ("_target_", "_partial_", "datasets", "grid", "needs")
"""Keys of a YAML file that describe the file; they are no arguments of what it builds."""


def conf_dir() -> Path:
    """The folder of the configuration: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "conf", package.parent / "conf"):
        if (folder / "config.yaml").is_file():
            return folder
    raise FileNotFoundError(
        f"zsl's config folder is in neither {package / 'conf'} nor {package.parent / 'conf'}; reinstall zsl."
    )


def groups() -> list[str]:
    """The config groups."""
    return sorted(p.name for p in conf_dir().iterdir() if p.is_dir())


def options(group: str) -> list[str]:
    """The options of a group: the registry of datasets, models, solvers, ..."""
    return sorted(p.stem for p in (conf_dir() / group).glob("*.yaml"))


@cache
def without_package(group: str) -> dict[str, str]:
    """The options whose file ``needs`` a package that is not installed, each with that package.

    Examples
    --------
    >>> without_package("split")
    {}
    """
    from omegaconf import OmegaConf

    needs = {o: OmegaConf.select(OmegaConf.load(conf_dir() / group / f"{o}.yaml"), "needs") for o in options(group)}
    return {option: package for option, package in needs.items() if package and find_spec(package) is None}


@cache
def components(group: str) -> tuple[str, ...]:
    """The registered components of a group: what the files of zsl's own folder ``conf`` name as ``_target_``.

    Examples
    --------
    >>> components("solver")
    ('zsl.sparse.sparse_encode',)
    """
    from omegaconf import OmegaConf

    files: list[Any] = [OmegaConf.load(conf_dir() / group / f"{option}.yaml") for option in options(group)]
    # What several options share lies beside the groups, as conf/sparse_encode.yaml does.
    shared = {re.sub("@.*", "", d) for f in files for d in f.get("defaults", ()) if isinstance(d, str) and d[0] == "/"}
    files += [OmegaConf.load(conf_dir() / f"{name[1:]}.yaml") for name in shared]
    return tuple(sorted({str(f["_target_"]) for f in files if "_target_" in f}))


def inference_preset(name: str) -> dict[str, Any] | None:
    """The rules and settings of ``conf/inference/NAME.yaml``, or None if there is no such file."""
    from omegaconf import OmegaConf

    path = conf_dir() / "inference" / f"{name}.yaml"
    if not path.is_file():
        return None
    found = OmegaConf.to_container(OmegaConf.load(path))
    assert isinstance(found, dict)
    return inference_arguments({str(k): v for k, v in found.items() if k != "defaults"})


def inference_arguments(node: dict[str, Any]) -> dict[str, Any]:
    """The node ``inference`` as arguments of ``zsl.inference.Inference``: its nested nodes are settings by rule."""
    settings = {k: v for k, v in node.items() if isinstance(v, dict)}
    return {**{k: v for k, v in node.items() if k not in settings}, "settings": settings or None}
