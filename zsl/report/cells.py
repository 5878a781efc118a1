"""The cells of an experiment, as ``cells.yaml`` says.

The commands that fill them are in :mod:`zsl.report.running`, which records belong to a cell in
:mod:`zsl.report.matching`, numbers over its repetitions in :mod:`zsl.report.numbers`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from zsl.config import compose, groups, is_sweep, resolve
from zsl.errors import UserError
from zsl.inference.prediction import TRANSDUCTIVE
from zsl.report.numbers import split_of

SEED = -1
"""In a cell's configuration: whatever seed the run has"""
# Overrides that repeat a run.
_REPEATS = ("seed", "split.seed", "split.fold")
# What makes an experiment the one that it is called, each with the keys that it decides.
_DECIDED = {
    "experiment": (),
    "dataset": ("_target_", "name"),
    "split": ("_target_", "name"),
    "model": ("_target_", "name"),
    "inference": ("attributes", "labels"),
    "tune": ("name",),
}


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
    own: tuple[str, ...] = ()
    """Keys that say which cell of the experiment this is"""
    shared: tuple[str, ...] = ()
    """Overrides that all cells on the same data have: the block's and the user's"""
    given: tuple[str, ...] = ()
    """Of these the user's"""
    records: list[Mapping[str, Any]] = field(default_factory=list)
    of_other_data: int = 0
    """Records left out because the data on this machine is not theirs"""
    unverified: str | None = None
    """Content hash of the records' data, where it could not be compared with the data itself"""

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
    """A cell on a block of data; ``extra`` come from the user's command line and replace the block's settings.

    Where ``data=NAME`` is among them, they are for these blocks only.
    """
    block, more, extra = layout()["data"][data], tuple(more), tuple(extra)
    extra = tuple(o for o in extra if key_of(o) != "data" and data in blocks(experiment, extra))
    repeats = [block["splits"]] if "splits" in block else []
    if repeats and key_of(repeats[0]) == "split.seed":
        # Repeated over class splits; table0 repeats dictionaries on each of them too.
        repeats.append("seed=range(2)" if experiment == "table0" else "seed=0")
    named = {key_of(o) for o in extra}
    kept = tuple(o for o in repeats if key_of(o) not in named)
    # Which splits are run is said of the blocks that have them; a published split has no seed.
    repeated = {"seed", *(key_of(o) for o in repeats)}
    swept = tuple(o for o in extra if key_of(o) in repeated)
    given = tuple(o for o in extra if key_of(o) not in _REPEATS)
    own = tuple(o for o in block["overrides"] if key_of(o) not in named)
    out = Cell(experiment, data, block["title"], variant, (*own, *more, *given), (*kept, *swept), **rest)
    out.own = (*map(key_of, more), *([out.point[0]] if out.point else []))
    out.shared, out.given = (*own, *given), given
    return out


def check_given(found: Sequence[Cell], extra: Iterable[str]) -> None:
    """Refuse overrides that would make one cell another, or that have several values.

    Raises
    ------
    UserError
        For a key that the experiment varies or that it is named after, a sweep over anything but repetitions, and data
        that it does not have.
    """
    name, extra = found[0].experiment, tuple(extra)
    blocks(name, extra)
    varied = {key for one in found for key in one.own}
    fixed = {f"{group}.{k}" for group, keys in _DECIDED.items() for k in keys} | set(_DECIDED)
    if name.startswith("table"):
        fixed |= {"feature", "feature.name"}
    for override in extra:
        key = key_of(override)
        if key == "data" or key in _REPEATS:
            continue
        if key in ("dataset", "split"):
            known = ", ".join(dict.fromkeys(one.data for one in found))
            raise UserError(f"{key} is what data=NAME chooses; leave it out, and name one of: {known}.")
        if key in varied:
            raise UserError(f"{key} is what {name} varies; leave it out.")
        if key in fixed:
            raise UserError(f"{key} is what {name} itself decides; leave it out.")
        if f"{key}_relative" in varied:
            raise UserError(f"{key} overrules {key}_relative, which is what {name} varies; leave it out.")
        if is_sweep(override):
            raise UserError(
                f"{override} has several values, and a table has room for one; give one, or sweep only "
                f"{', '.join(_REPEATS)}."
            )


def key_of(override: str) -> str:
    """The key that an override sets."""
    return override.lstrip("+").partition("=")[0]


def blocks(experiment: str, extra: Sequence[str] = ()) -> list[str]:
    """The blocks of data of an experiment; ``data=NAME`` among the user's words chooses some."""
    node = layout()[experiment]
    tabled = [row["data"] for row in (*node.get("rows", ()), *node.get("columns", ()))]
    known = list(dict.fromkeys(tabled)) or list(layout()["data"])
    chosen = list(
        dict.fromkeys(itertools.chain(*(o.partition("=")[2].split(",") for o in extra if key_of(o) == "data")))
    )
    for name in chosen:
        if name not in known:
            raise UserError(f"data={name} does not exist in {experiment}, which may have: {', '.join(known)}.")
    return chosen or list(node.get("data", known))


def variants(nodes: Iterable[Mapping[str, Any]]) -> list[tuple[str, tuple[str, ...]]]:
    """Name and overrides of each variant; ``labels: every`` and ``labels: transductive`` written out.

    A label rule that refuses the variant's model, such as one on codes a model without dictionaries, is no variant.
    """
    from zsl import inference
    from zsl.report.trial import applies

    out = []
    for node in nodes:
        overrides = tuple(node["overrides"])
        if "labels" not in node:
            out.append((str(node["name"]), overrides))
            continue
        for rule in inference.LABEL_RULES:
            used = getattr(getattr(inference, rule), "information", ())
            if (node["labels"] == "every" or TRANSDUCTIVE in used) and applies(overrides, rule):
                name = f"{node['name']}: {rule}" if "name" in node else rule
                out.append((name, (*overrides, f"inference.labels={rule}")))
    return out


# --- what is compared ---------------------------------------------------------------------------------------


def share_splits(
    cells: Iterable[Cell], *, seeds: bool = False, called: Callable[[Cell], str] | None = None
) -> str | None:
    """Keep of cells to be compared only the records on class splits that all of them have.

    Accuracy differs more between splits than between settings, so that a mean over other splits is another number.
    Cells without records do not count. With ``seeds`` (the points of a curve) the dictionary seeds must agree as well;
    among methods they need not, since in some nothing is random. ``called`` names a cell for people.

    Returns
    -------
    str or None
        What was left out and because of which cells, in a sentence; None if nothing was.
    """

    def repetition(record: Mapping[str, Any]) -> tuple[str, Any]:
        return split_of(record), record["key"]["seed"] if seeds else None

    filled = [c for c in cells if c.records]
    if not filled:
        return None
    has = [{repetition(r) for r in c.records} for c in filled]
    common, every = set.intersection(*has), set.union(*has)
    for one in filled:
        one.records = [r for r in one.records if repetition(r) in common]
    if common == every:
        return None
    lacking = list(dict.fromkeys((called or label)(c) for c, mine in zip(filled, has) if mine != every))
    names = ", ".join(lacking[:3]) + (f" and {len(lacking) - 3} more" if len(lacking) > 3 else "")
    what = "repetitions" if seeds else "class splits"
    n = f"{len(every - common)} of {len(every)}"
    return f"{filled[0].title}: {n} {what} left out, because not all have them (fewer: {names})."


# --- configurations -------------------------------------------------------------------------------------------


def configuration(one: Cell) -> dict[str, Any]:
    """The resolved configuration of a cell's runs; what follows the run's seed is :data:`SEED`.

    Raises
    ------
    UserError
        For a setting of the user's that does not exist or has no valid value.
    """
    from omegaconf import OmegaConf

    mine = [o for o in one.settings if o not in one.given]
    chosen = tuple(o for o in mine if key_of(o) in groups())
    # Composing takes a tenth of a second, and a curve has the same groups at each of its points.
    cfg = _composed((f"experiment={one.experiment}", *chosen, *one.given)).copy()
    for override in mine:
        if override not in chosen:
            key, _, text = override.partition("=")
            value = OmegaConf.to_container(OmegaConf.from_dotlist([f"value={text}"]))["value"]  # type: ignore[index,call-overload]
            OmegaConf.update(cfg, key, value)
    cfg.seed = SEED
    return resolve(cfg)


@lru_cache(maxsize=256)
def _composed(overrides: tuple[str, ...]) -> Any:
    return compose(overrides)


def label(one: Cell) -> str:
    """What varies in a cell, for a line of text."""
    return one.variant if one.point is None else f"{one.variant}, {one.point[0]}={one.point[1]}"
