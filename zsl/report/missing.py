"""What to do about the empty cells of a table: one line per dataset, those that are here first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from zsl.config import compose
from zsl.data.catalogue import ENTRIES, Entry, how_to_make
from zsl.report.cells import Cell, data_of, value_of


def advice(
    name: str, empty: Sequence[Cell], lacking: Mapping[tuple[str, str], str], words: Sequence[str] = ()
) -> list[str]:
    """One line per dataset on its empty cells, with the command that fills them or fetches the data.

    Parameters
    ----------
    name : str
        The experiment.
    empty : sequence of Cell
    lacking : mapping
        Why data cannot be read, of :func:`zsl.report.filling.lacking_data`.
    words : sequence of str
        What the user gave besides, for the command.
    """
    ready = [one for one in empty if data_of(one) not in lacking]
    lines = []
    for data in dict.fromkeys(one.data for one in ready):
        mine = [one for one in ready if one.data == data]
        given = " ".join(w for w in words if not w.startswith("data="))
        command = f"zsl report {name} --run data={data} {given}".rstrip()
        lines.append(f"{_titles(mine)}: {_count(mine)} to run: {command}")
    absent = [one for one in empty if data_of(one) in lacking]
    by_dataset: dict[str, list[Cell]] = {}
    for one in absent:
        by_dataset.setdefault(value_of(one.overrides, "dataset") or "", []).append(one)
    here = {dataset: is_here(mine[0]) for dataset, mine in by_dataset.items()}
    for dataset in sorted(by_dataset, key=lambda d: not here[d]):
        lines.append(_line(dataset, by_dataset[dataset], lacking, here[dataset]))
    return lines


def is_here(one: Cell) -> bool:
    """Whether the folder of a cell's dataset is on this machine, whatever it holds."""
    root = compose([f"experiment={one.experiment}", *one.overrides]).dataset.get("root")
    entry = ENTRIES.get(value_of(one.overrides, "dataset") or "", Entry())
    return root is not None and any(place.is_dir() for place in entry.places(Path(root).expanduser()))


def _line(dataset: str, mine: Sequence[Cell], lacking: Mapping[tuple[str, str], str], here: bool) -> str:
    start = f"{_titles(mine)}: {_count(mine)} without data"
    entry = ENTRIES.get(dataset)
    features = list(dict.fromkeys(data_of(one)[1] for one in mine))
    if here or entry is None or "xlsa17" not in entry.archives:
        first = lacking[data_of(mine[0])]
        more = len({lacking[data_of(one)] for one in mine}) - 1
        return f"{start}: {first.rstrip('.')}" + (f" (and {more} more such)." if more else ".")
    archive = entry.archives["xlsa17"]
    has = f"(tables, splits, ResNet101 features; {archive.size_mb} MB)"
    made = [feature for feature in features if how_to_make(dataset, feature)]
    how = how_to_make(dataset, made[0]) + (f", likewise {', '.join(made[1:])}" if made[1:] else "") if made else ""
    return f"{start}: zsl data download {dataset} {has} from {archive.url}" + (f"; {how}" if how else "")


def _count(mine: Sequence[Cell]) -> str:
    return f"{len(mine)} cell{'s' if len(mine) > 1 else ''}"


def _titles(mine: Sequence[Cell]) -> str:
    return ", ".join(dict.fromkeys(one.title for one in mine))
