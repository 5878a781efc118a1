"""The cells of an experiment: the command that fills each, and which records belong to it.

``cells.yaml`` says what an experiment consists of. A record belongs to a cell if its key has the cell's settings, in
whatever folder it lies; seeds and class splits are repetitions within the cell.
"""

from __future__ import annotations

import copy
import itertools
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from zsl.config import compose, groups, resolve
from zsl.errors import UserError

# Parts of a configuration that repeat an experiment, or that a run finds out for itself.
_REPEATS = ("seed", "grid", "n_atoms_used", "lam_used", "checkpoint", "checkpoint_minutes")


@dataclass
class Cell:
    """One row of a table or one point of a curve."""

    experiment: str
    data: str
    """Name of the block in ``cells.yaml``"""
    title: str
    """Of the data"""
    variant: str
    """What varies: a feature, a method, a setting"""
    overrides: tuple[str, ...]
    repeats: tuple[str, ...]
    """Overrides that sweep the repetitions"""
    point: tuple[str, Any] | None = None
    """Key and value of a point of a curve"""
    group: str = ""
    """Heading in a table of variants"""
    records: list[Mapping[str, Any]] = field(default_factory=list)

    @property
    def settings(self) -> tuple[str, ...]:
        return self.overrides if self.point is None else (*self.overrides, f"{self.point[0]}={self.point[1]}")


@lru_cache(maxsize=1)
def layout() -> dict[str, Any]:
    """``cells.yaml``."""
    return read_yaml("cells.yaml")


def read_yaml(name: str) -> dict[str, Any]:
    """A YAML file beside this module."""
    from omegaconf import OmegaConf

    out = OmegaConf.to_container(OmegaConf.load(Path(__file__).with_name(name)))
    assert isinstance(out, dict)
    return {str(k): v for k, v in out.items()}


# --- what an experiment consists of -------------------------------------------------------------------------


def cell(experiment: str, data: str, variant: str, more: Iterable[str], extra: Iterable[str] = (), **rest: Any) -> Cell:
    """A cell on a block of data; ``extra`` come from the user's command line and win."""
    block = layout()["data"][data]
    extra = tuple(extra)
    repeats = [block["splits"]] if "splits" in block else []
    if repeats and key_of(repeats[0]) == "split.seed":
        # Repeated over class splits; table0 repeats dictionaries on each of them too.
        repeats.append("seed=range(2)" if experiment == "table0" else "seed=0")
    named = {key_of(o) for o in extra}
    overrides = tuple(o for o in (*block["overrides"], *more) if key_of(o) not in named)
    kept = tuple(o for o in repeats if key_of(o) not in named)
    # Which splits are run is said of the blocks that have them; a published split has no seed.
    repeated = {"seed", *(key_of(o) for o in repeats)}
    swept = tuple(o for o in extra if key_of(o) in repeated)
    settings = tuple(o for o in extra if key_of(o) not in ("seed", "split.seed", "split.fold"))
    return Cell(experiment, data, block["title"], variant, (*overrides, *settings), (*kept, *swept), **rest)


def key_of(override: str) -> str:
    return override.lstrip("+").partition("=")[0]


def blocks(experiment: str, extra: Sequence[str]) -> list[str]:
    """The blocks of data of an experiment; ``data=NAME`` among the user's words chooses some."""
    chosen = [o.partition("=")[2].split(",") for o in extra if key_of(o) == "data"]
    known = list(layout()["data"])
    for name in itertools.chain(*chosen):
        if name not in known:
            raise UserError(f"data={name} does not exist; zsl/report/cells.yaml has: {', '.join(known)}.")
    return list(chosen[0]) if chosen else list(layout()[experiment]["data"])


def variants(nodes: Iterable[Mapping[str, Any]]) -> list[tuple[str, tuple[str, ...]]]:
    """Name and overrides of each variant; ``labels: every`` and ``labels: transductive`` written out."""
    from zsl import inference

    out = []
    for node in nodes:
        overrides = tuple(node["overrides"])
        if "labels" not in node:
            out.append((str(node["name"]), overrides))
            continue
        for rule in inference.LABEL_RULES:
            used = getattr(getattr(inference, rule), "information", ())
            if node["labels"] == "every" or "unlabelled test images" in used:
                name = f"{node['name']}: {rule}" if "name" in node else rule
                out.append((name, (*overrides, f"inference.labels={rule}")))
    return out


# --- records --------------------------------------------------------------------------------------------------


def fill(cells: Iterable[Cell], records: Iterable[Mapping[str, Any]]) -> None:
    """Give each cell the records that belong to it; the same result found twice counts once.

    Raises
    ------
    UserError
        If records of different data fit one cell.
    """
    keys = [(record, _of_record(record["key"])) for record in records]
    for one in cells:
        wanted = _of_configuration(one)
        seen: dict[str, Mapping[str, Any]] = {}
        for record, has in keys:
            if _agree(wanted, has):
                seen.setdefault(f"{record['key']['split']['rows']}/{record['key']['seed']}", record)
        contents = {record["key"]["dataset"]["content"] for record in seen.values()}
        if len(contents) > 1:
            raise UserError(
                f"{one.experiment}: records of {len(contents)} different data sets called {one.title} fit one cell; "
                "give each its own output_dir."
            )
        one.records = list(seen.values())


def share_splits(cells: Iterable[Cell], *, seeds: bool = False) -> None:
    """Keep of cells to be compared only the records on class splits that all of them have.

    Accuracy differs more between splits than between settings, so that a mean over other splits is another number.
    Cells without records do not count. With ``seeds`` (the points of a curve) the dictionary seeds must agree as well;
    among methods they need not, since in some nothing is random.
    """

    def repetition(record: Mapping[str, Any]) -> tuple[str, Any]:
        return _split_of(record), record["key"]["seed"] if seeds else None

    filled = [c for c in cells if c.records]
    if filled:
        common = set.intersection(*({repetition(r) for r in c.records} for c in filled))
        for one in filled:
            one.records = [r for r in one.records if repetition(r) in common]


def _of_record(key: Mapping[str, Any]) -> dict[str, Any]:
    chosen = (key.get("tune") or {}).get("chosen", {})
    out = {
        "dataset.name": key["dataset"]["name"],
        "split.name": key["split"]["name"],
        "tune.name": (key.get("tune") or {}).get("name", "none"),
        "dataset.shuffle_attributes": key["dataset"].get("shuffle_attributes"),
        "split.n_unseen": key["split"].get("n_unseen"),
    }
    for part in ("model", "inference", "feature"):
        out |= _flat(part, key[part])
    out |= _flat("dataset.semantics", key["dataset"]["semantics"])
    out |= {f"subset.{k}": key["split"].get("subset", {}).get(k) for k in ("images", "classes", "imbalance")}
    return {k: v for k, v in out.items() if k not in chosen}


def _of_configuration(one: Cell) -> dict[str, Any]:
    plain = configuration(one)
    out = {"dataset.name": plain["dataset"]["name"], "split.name": plain["split"]["name"],
           "tune.name": plain["tune"]["name"],
           "dataset.shuffle_attributes": plain["dataset"].get("shuffle_attributes")}  # fmt: skip
    for part in ("model", "inference", "feature"):
        out |= _flat(part, plain[part])
    # What a null stands for is found out by the run.
    loose = {
        "split.n_unseen": plain["split"].get("n_unseen"),
        **_flat("dataset.semantics", plain["dataset"]["semantics"]),
    }
    out |= {k: v for k, v in loose.items() if v is not None}
    return out | {f"subset.{k}": plain["subset"][k] for k in ("images", "classes", "imbalance")}


def _flat(prefix: str, node: Mapping[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for k, v in node.items():
        if k not in _REPEATS:
            out |= _flat(f"{prefix}.{k}", v) if isinstance(v, Mapping) else {f"{prefix}.{k}": v}
    return out


def _agree(wanted: Mapping[str, Any], has: Mapping[str, Any]) -> bool:
    """Keys that only one of them has belong to another version of zsl, or were chosen by tuning."""
    return all(has[k] == v for k, v in wanted.items() if k in has)


def configuration(one: Cell) -> dict[str, Any]:
    """The resolved configuration of a cell's runs, repetitions aside."""
    from omegaconf import OmegaConf

    chosen = tuple(o for o in one.settings if key_of(o) in groups())
    cfg = _composed((f"experiment={one.experiment}", *chosen)).copy()
    # Composing takes a tenth of a second, and a curve has the same groups at each of its points.
    for override in one.settings:
        if override in chosen:
            continue
        key, _, text = override.partition("=")
        value = OmegaConf.to_container(OmegaConf.from_dotlist([f"value={text}"]))["value"]  # type: ignore[index,call-overload]
        if key in groups() or OmegaConf.select(cfg, key.rpartition(".")[0] or "seed", throw_on_missing=False) is None:
            raise UserError(f"{override}: there is no {key} in the configuration of experiment={one.experiment}.")
        OmegaConf.update(cfg, key, value)
    return resolve(cfg)


@lru_cache(maxsize=256)
def _composed(overrides: tuple[str, ...]) -> Any:
    return compose(overrides)


# --- running --------------------------------------------------------------------------------------------------


def repeats_of(one: Cell) -> tuple[str, ...]:
    """The repetitions; a method in which nothing is random has one on a fixed split, since all would be the same."""
    named = {key_of(o) for o in one.repeats}
    drawn = any(o.startswith("subset.") for o in one.settings)  # which images train follows the seed
    if not drawn and not named & {"split.seed", "seed"} and "seed" not in configuration(one)["model"]:
        return (*one.repeats, "seed=0")
    return one.repeats


def commands(cells: Iterable[Cell]) -> list[tuple[list[str], list[Cell]]]:
    """The arguments of ``zsl.main`` that fill cells, the points of a curve in one command."""
    together: dict[tuple[Any, ...], list[Cell]] = {}
    for one in cells:
        name = (one.experiment, one.overrides, repeats_of(one), one.point[0] if one.point else None)
        together.setdefault(name, []).append(one)
    out = []
    for (experiment, overrides, repeats, key), members in together.items():
        swept = [f"{key}={','.join(str(c.point[1]) for c in members if c.point)}"] if key else []
        out.append(([f"experiment={experiment}", *overrides, *swept, *repeats], members))
    return out


def absent(one: Cell) -> str | None:
    """Why a cell cannot be run here, or None; found out by reading the data, without fitting anything."""
    plain = configuration(one)
    dataset = plain["dataset"]
    key = repr((dataset, plain["feature"]["name"], plain["split"], plain["subset"]))
    if key not in _absent:
        _absent[key] = _absence(copy.deepcopy(plain))
    return _absent[key]


_absent: dict[str, str | None] = {}


def _absence(plain: Mapping[str, Any]) -> str | None:
    from zsl.checks import check_arguments
    from zsl.config import build
    from zsl.data.load import load_table
    from zsl.data.subsets import subset

    try:
        table = load_table(plain["dataset"], plain["feature"]["name"], plain["dataset"]["semantics"].get("source"))
        check_arguments(subset, plain["subset"], prefix="subset.")
        subset(table, build(plain["split"], "split")(table), **plain["subset"])
    except UserError as error:
        return str(error)
    return None


def run(cells: Sequence[Cell]) -> None:
    """Fill the cells whose data is here, one command after another; says which are left out and why."""
    todo = []
    for one in cells:
        why = absent(one)
        if why is None:
            todo.append(one)
        else:
            print(f"left out  {one.title}, {label(one)}: {why}", file=sys.stderr)
    for arguments, _ in commands(todo):
        print(f"running   python -m zsl.main {shown(arguments)}", file=sys.stderr, flush=True)
        # A job that fails says so and leaves its cell empty; the others go on.
        subprocess.run([sys.executable, "-m", "zsl.main", *arguments], stdout=subprocess.DEVNULL, check=False)


def label(one: Cell) -> str:
    """What varies in a cell, for a line of text."""
    return one.variant if one.point is None else f"{one.variant}, {one.point[0]}={one.point[1]}"


def shown(arguments: Iterable[str]) -> str:
    """Arguments as they are typed into a shell."""
    import shlex

    return " ".join(shlex.quote(a) for a in arguments)


# --- numbers over repetitions ---------------------------------------------------------------------------------


@dataclass
class Summary:
    """A metric over the repetitions of a cell: dictionary seeds within class splits."""

    mean: float
    """Over splits, of the means over seeds"""
    std_splits: float
    """Between splits (of their means over seeds), n - 1; NaN for one split"""
    std_seeds: float
    """Within splits, pooled, n - 1; NaN where no split has two seeds"""
    n_splits: int
    n_seeds: int
    """Largest number on one split"""

    @property
    def std(self) -> float:
        """Between splits where there are two, else between seeds."""
        return self.std_splits if self.n_splits > 1 else self.std_seeds

    @property
    def repetitions(self) -> str:
        splits, seeds = (f"{n} {word}{'s' * (n > 1)}" for n, word in ((self.n_splits, "split"), (self.n_seeds, "seed")))
        return (
            f"{splits} x {seeds}" if self.n_splits > 1 and self.n_seeds > 1 else splits if self.n_splits > 1 else seeds
        )


def by_split(records: Iterable[Mapping[str, Any]], metric: str) -> dict[str, list[float]]:
    """The metric by class split, one value per seed; splits are told apart by their rows and unseen classes."""
    out: dict[str, list[float]] = {}
    for record in records:
        value = record["metrics"].get(metric)
        if value is not None:
            out.setdefault(_split_of(record), []).append(float(value))
    return dict(sorted(out.items()))


def _split_of(record: Mapping[str, Any]) -> str:
    split = record["key"]["split"]
    return "/".join(split["unseen"])


def summarise(records: Iterable[Mapping[str, Any]], metric: str) -> Summary | None:
    """None where no record has the metric."""
    values = by_split(records, metric)
    if not values:
        return None
    means = np.array([np.mean(v) for v in values.values()])
    within = [(np.var(v, ddof=1), len(v) - 1) for v in values.values() if len(v) > 1]
    pooled = float(np.sqrt(sum(v * n for v, n in within) / sum(n for _, n in within))) if within else float("nan")
    return Summary(
        float(means.mean()),
        float(means.std(ddof=1)) if len(means) > 1 else float("nan"),
        pooled,
        len(means),
        max(len(v) for v in values.values()),
    )
