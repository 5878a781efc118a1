"""The cells of an experiment, as ``cells.yaml`` lists them, and the commands that fill them.

A cell is one row of a table or one curve. Its runs carry the cell's name in their records (``cell=ID`` on the command
line), so that a table finds them without comparing settings.
"""

from __future__ import annotations

import itertools
import math
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from zsl.config import PLACES, compose, conf_dir, groups, is_sweep, n_values
from zsl.errors import UserError

# These keys repeat a run; a cell holds all of its repetitions.
REPEATS = ("seed", "split.seed", "split.fold")
# These keys of a group name its option, and with it what a cell is.
_NAMES = ("name", "_target_", "attributes", "labels")


@dataclass(frozen=True)
class Cell:
    """One row of a table, or one curve."""

    experiment: str
    data: str
    """Name of the block in ``cells.yaml``"""
    title: str
    """Title of the data"""
    variant: str
    """What the row shows: a feature, a method, a setting"""
    overrides: tuple[str, ...]
    repeats: tuple[str, ...]
    """Overrides that sweep the repetitions"""
    given: tuple[str, ...] = ()
    """Those of ``overrides`` that the user wrote"""
    varied: tuple[str, ...] = ()
    """Keys that differ between the cells of the experiment"""
    group: str = ""
    """Heading in a table of variants, or the title of a curve's axis"""
    key: str = ""
    """The key that a curve sweeps"""
    values: tuple[Any, ...] = ()

    @property
    def id(self) -> str:
        """The name that records of this cell carry; readable, and unique within the experiment."""
        settings = sorted(o for o in self.given if key_of(o) not in PLACES and not key_of(o).startswith("hydra"))
        parts = (self.data, self.variant, self.key, *settings)
        return "/".join(re.sub(r"[^\w.+-]+", "-", part).strip("-") for part in parts if part)

    @property
    def settings(self) -> tuple[str, ...]:
        """The overrides on this data: the block's and the user's own."""
        block = layout()["data"][self.data]["overrides"]
        return tuple(o for o in self.overrides if key_of(o) != "dataset" and (o in block or o in self.given))


def key_of(override: str) -> str:
    """The key that an override sets."""
    return override.lstrip("+").partition("=")[0]


def value_of(overrides: Iterable[str], key: str) -> str | None:
    """The last value that overrides give a key, or None."""
    return next((o.partition("=")[2] for o in reversed([*overrides]) if key_of(o) == key), None)


@lru_cache
def layout(name: str = "cells.yaml") -> dict[str, Any]:
    """A YAML file beside this module: what experiments consist of, or what the paper prints."""
    from omegaconf import OmegaConf

    out = OmegaConf.to_container(OmegaConf.load(Path(__file__).with_name(name)))
    assert isinstance(out, dict)
    return {str(k): v for k, v in out.items()}


# --- what an experiment consists of -------------------------------------------------------------------------


def cells(experiment: str, extra: Sequence[str] = ()) -> list[Cell]:
    """The cells of an experiment.

    Parameters
    ----------
    experiment : str
        A key of ``cells.yaml``.
    extra : sequence of str
        The user's overrides. They replace those of the block of data; with ``data=NAME`` among them, they change only
        the cells on these blocks.

    Raises
    ------
    UserError
        For overrides that would make one cell another, have several values, or do not exist.
    """
    chosen = blocks(experiment, extra)
    out = [_cell(experiment, *part, extra if part[0] in chosen else ()) for part in _parts(experiment, chosen)]
    _check(out, extra)
    return out


def _parts(experiment: str, chosen: Sequence[str]) -> Iterator[tuple[str, str, list[str], dict[str, Any]]]:
    """Of every cell its block of data, its variant, the variant's overrides, and other fields of :class:`Cell`."""
    node, paper = layout()[experiment], layout("paper.yaml")
    for row in node.get("rows", ()):
        for feature in row.get("features", [""]):
            yield row["data"], feature, [f"feature={feature}"] if feature else [], {"group": row.get("paper", "")}
    for column in node.get("columns", ()):
        feature = [f"feature={column['feature']}"] if "feature" in column else []
        for name, method in paper["methods"].items():
            if name in paper[experiment] and "model" in method:
                yield column["data"], method["model"], [*feature, f"model={method['model']}"], {}
        # One run has the results of all three rules. The paper gives no grid for its own method.
        yield column["data"], "coupled", [*feature, "model=coupled_paper", "inference=taaw", "tune=none"], {}
    for data in chosen if "groups" in node else ():
        for group in ({"name": "", "variants": [node["base"]]}, *node["groups"]):
            for variant, overrides in variants(group["variants"]):
                yield data, variant, overrides, {"group": group["name"]}
    models = variants(node.get("models", [{"name": "coupled", "overrides": ["model=coupled_paper", "inference=taaw"]}]))
    for data, curve in itertools.product(chosen, node.get("curves", ())):
        values = curve["values"][data] if isinstance(curve["values"], dict) else curve["values"]
        for variant, overrides in models:
            yield data, variant, overrides, {"group": curve["name"], "key": curve["key"], "values": tuple(values)}


def variants(nodes: Iterable[Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
    """Name and overrides of each variant; ``labels: [..]`` stands for one variant per label rule."""
    out = []
    for node in nodes:
        name = node.get("name", "")
        if "labels" not in node:
            out.append((name, [*node["overrides"]]))
        for rule in node.get("labels", ()):
            out.append((f"{name}: {rule}" if name else rule, [*node["overrides"], f"inference.labels={rule}"]))
    return out


def blocks(experiment: str, extra: Sequence[str] = ()) -> list[str]:
    """The blocks of data of an experiment; ``data=NAME`` among the user's words chooses some."""
    node = layout()[experiment]
    tabled = [row["data"] for row in (*node.get("rows", ()), *node.get("columns", ()))]
    known = list(dict.fromkeys(tabled or layout()["data"]))
    chosen = (value_of(extra, "data") or "").split(",")
    for name in filter(None, chosen):
        if name not in known:
            raise UserError(f"data={name} does not exist in {experiment}, which may have: {', '.join(known)}.")
    return list(filter(None, chosen)) or list(node.get("data", known))


def _cell(
    experiment: str, data: str, variant: str, overrides: list[str], rest: dict[str, Any], extra: Sequence[str]
) -> Cell:
    block = layout()["data"][data]
    repeats = [block["splits"]] if "splits" in block else []
    drawn = any(o.startswith("subset.") for o in (*extra, rest.get("key", "")))  # the images that train
    if repeats and key_of(repeats[0]) == "split.seed":
        # table1 repeats the dictionaries on each split, the others need one run per split.
        repeats.append("seed=range(2)" if experiment == "table1" else "seed=0")
    elif not (drawn or _is_random(value_of(overrides, "model") or "coupled")):
        repeats.append("seed=0")  # all seeds would give the same result
    own = {"seed", *map(key_of, repeats)}  # a split without folds has no use for split.fold
    swept = [o for o in extra if key_of(o) in own]
    given = tuple(o for o in extra if key_of(o) not in (*REPEATS, "data"))
    named = {key_of(o) for o in extra}
    kept = [o for o in repeats if key_of(o) not in named]
    fixed = [o for o in (*block["overrides"], *_atoms(overrides)) if key_of(o) not in named]
    varied = (*map(key_of, overrides), *([rest["key"]] if "key" in rest else []))
    return Cell(experiment, data, block["title"], variant, (*fixed, *overrides, *given), (*kept, *swept), given, varied,
                **rest)  # fmt: skip


def _atoms(overrides: Sequence[str]) -> list[str]:
    """What a cell of coupled dictionaries sets besides because of its feature."""
    atoms = layout()["atoms"].get(value_of(overrides, "feature"))
    return [atoms] if atoms and (value_of(overrides, "model") or "coupled").startswith("coupled") else []


@lru_cache
def _is_random(model: str) -> bool:
    from omegaconf import OmegaConf

    return "seed" in OmegaConf.load(conf_dir() / "model" / f"{model}.yaml")


def _check(found: Sequence[Cell], extra: Sequence[str]) -> None:
    """Refuse the user's overrides where a cell would no longer be what its row says."""
    name, varied = found[0].experiment, {key for one in found for key in one.varied}
    for override in extra:
        key = key_of(override)
        if key == "data" or key in REPEATS:
            continue
        chosen = key in varied or f"{key}_relative" in varied
        named = key in groups() or (key.rpartition(".")[2] in _NAMES and key != "dataset.attributes")
        if chosen or (named and (name.startswith("table") or not key.startswith("feature"))):
            raise UserError(f"{override} would change what {name} compares; leave it out (data=NAME chooses the data).")
        if is_sweep(override):
            raise UserError(f"{override} has several values; give one, or sweep only {', '.join(REPEATS)}.")
    # Once per model, because models differ in the keys that they have.
    for one in {(c.given, value_of(c.overrides, "model")): c for c in found if c.given}.values():
        compose([f"experiment={name}", *one.overrides])


# --- the commands that fill cells --------------------------------------------------------------------------------


def arguments_of(one: Cell) -> list[str]:
    """The arguments of ``zsl.main`` that fill a cell."""
    swept = [f"{one.key}={','.join(map(str, one.values))}"] if one.key else []
    return [f"experiment={one.experiment}", *one.overrides, *swept, *one.repeats, f"cell={one.id}"]


def n_jobs(arguments: Sequence[str]) -> int:
    """How many jobs a command of ``zsl.main`` has that names an experiment, by what it and the file sweep."""
    from omegaconf import OmegaConf

    path = conf_dir() / "experiment" / f"{value_of(arguments, 'experiment')}.yaml"
    named = {key_of(o) for o in arguments}
    file = OmegaConf.select(OmegaConf.load(path), "hydra.sweeper.params") or {}
    swept = [f"{key}={value}" for key, value in file.items() if key not in named]
    return math.prod(n_values(o) for o in (*arguments, *swept) if not key_of(o).startswith("hydra"))


def command_of(one: Cell, *more: str) -> str:
    """The command that fills a cell, as it is typed into a shell."""
    return "zsl run " + shlex.join([*arguments_of(one), *more])


def data_of(one: Cell) -> tuple[str, str]:
    """Block and feature of a cell: what has to be on this machine to run it."""
    return one.data, value_of(one.overrides, "feature") or ""
