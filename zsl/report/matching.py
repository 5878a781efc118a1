"""Which records belong to a cell: those with all its settings, of the data and split that it reads.

Seeds and class splits are repetitions; everything else that determines a result must be the cell's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from zsl.errors import UserError
from zsl.experiment.search import trials_of
from zsl.experiment.selection import own_grid
from zsl.report import here
from zsl.report.cells import SEED, Cell, configuration

Record = Mapping[str, Any]

# Of a model: interruption, what only tuning reads, and what a run finds out for itself.
_NOT_SET = ("grid", "n_atoms_used", "lam_used", "checkpoint", "checkpoint_minutes")
_STRICT = ("model", "inference", "feature", "evaluation")
# Of a split: repetitions, and what says how it is made rather than what it is.
_NOT_OF_SPLIT = ("seed", "fold", "index", "n_seen", "datasets", "_target_", "_partial_")


def fill(cells: Iterable[Cell], records: Iterable[Record]) -> None:
    """Give each cell the records that belong to it; the same result found twice counts once.

    Where a cell's data is on this machine, records of other data or of another division of it are left out; those of
    other data are counted. Elsewhere all must be of one content, which :func:`doubts` then says.

    Raises
    ------
    UserError
        If records of different data fit one cell and the data is not here to tell which are right.
    """
    records = [r for r in records if not _simulated(r)]
    keys = [_of_record(r["key"]) for r in records]
    for one in cells:
        plain = configuration(one)
        strict, loose = _of_configuration(plain)
        chosen = [r for r, has in zip(records, keys) if _agree(strict, loose, r, has) and _tuned_alike(plain, r)]
        seen: dict[str, Record] = {}
        other: dict[str, Record] = {}
        for record in chosen:
            mine = _is_its_data(plain, record)
            if mine is not None:
                key = record["key"]
                # Images of other data may be divided alike.
                name = f"{key['dataset']['content']}/{key['split']['rows']}/{key['seed']}"
                (seen if mine else other).setdefault(name, record)
        contents = {record["key"]["dataset"]["content"] for record in seen.values()}
        if len(contents) > 1:
            raise UserError(
                f"{one.experiment}: records of {len(contents)} different data sets called {one.title} fit one cell; "
                "give each its own output_dir."
            )
        one.records, one.of_other_data = list(seen.values()), len(other)
        one.unverified = contents.pop() if contents and here.data(plain).absent else None


def doubts(cells: Iterable[Cell]) -> list[str]:
    """What a reader should know of the data behind the records, one sentence each."""
    left: dict[str, int] = {}
    unverified: dict[tuple[str, str], None] = {}
    for one in cells:
        if one.of_other_data:
            left[one.title] = left.get(one.title, 0) + one.of_other_data
        if one.unverified:
            unverified[one.title, one.unverified] = None
    return [
        *(f"{title}: {n} record{'s' if n > 1 else ''} of other data under the same name {'were' if n > 1 else 'was'} "
          "left out." for title, n in left.items()),
        *(f"{title}: its data is not on this machine; the records are of data with content hash {content}."
          for title, content in unverified),
    ]  # fmt: skip


def flat(prefix: str, node: Mapping[str, Any]) -> dict[str, Any]:
    """Nested settings under dotted keys, without those that are none."""
    out: dict[str, Any] = {}
    for k, v in node.items():
        if k not in _NOT_SET:
            out |= flat(f"{prefix}.{k}", v) if isinstance(v, Mapping) else {f"{prefix}.{k}": v}
    return out


def _simulated(record: Record) -> bool:
    return bool((record["key"]["dataset"].get("provenance") or {}).get("simulated"))


def _is_its_data(plain: Mapping[str, Any], record: Record) -> bool | None:
    """Whether a record is of the data that a configuration reads; None if of another split of it."""
    found = here.data(plain)
    if found.absent is not None:
        return True  # nothing to compare with
    key = record["key"]
    if key["dataset"]["content"] != found.content:
        return False
    rows = here.rows(plain, key["split"], key["seed"])
    # Of a split whose list of classes is not here the settings have to do.
    return True if isinstance(rows, UserError) or rows == key["split"]["rows"] else None


def _of_configuration(plain: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a record must have, and what it must have unless it is null, since the run finds out what that stands for"""
    strict = {
        "dataset.name": plain["dataset"]["name"],
        "dataset.shuffle_attributes": plain["dataset"].get("shuffle_attributes"),
        "split.name": plain["split"]["name"],
        **{f"subset.{k}": plain["subset"][k] for k in ("images", "classes", "imbalance")},
    }
    for part in _STRICT:
        strict |= flat(part, plain[part])
    settings = plain["tune"]
    strict |= {"tune.name": "none"} if settings["name"] == "none" else flat("tune", _without_grid(settings))
    loose = flat("dataset.semantics", plain["dataset"]["semantics"])
    loose |= {f"split.{k}": v for k, v in plain["split"].items() if k not in _NOT_OF_SPLIT}
    loose["subset.seed"] = plain["subset"]["seed"]
    return strict, {k: v for k, v in loose.items() if v is not None}


def _of_record(key: Mapping[str, Any]) -> dict[str, Any]:
    semantics = dict(key["dataset"]["semantics"])
    if isinstance(semantics.get("missing"), Mapping):  # how many there were, and what was done
        semantics["missing"] = semantics["missing"].get("treated")
    split = key["split"]
    out = {
        "dataset.name": key["dataset"]["name"],
        "dataset.shuffle_attributes": key["dataset"].get("shuffle_attributes"),
        **{f"subset.{k}": split.get("subset", {}).get(k) for k in ("images", "classes", "imbalance")},
        **{f"subset.{k}": v for k, v in split.get("subset", {}).items() if k == "seed"},
        **flat("dataset.semantics", semantics),
        **{f"split.{k}": v for k, v in split.items() if k not in _NOT_OF_SPLIT},
    }
    for part in _STRICT:
        out |= flat(part, key.get(part) or {})
    tune = key.get("tune")
    found = {k: v for k, v in (tune or {}).items() if k not in ("chosen", "folds")}
    return out | ({"tune.name": "none"} if tune is None else flat("tune", _without_grid(found)))


def _without_grid(tune: Mapping[str, Any]) -> dict[str, Any]:
    # A null stands for a grid that the record does not have; the trials tell.
    return {k: v for k, v in tune.items() if k != "grid"}


def _agree(strict: Mapping[str, Any], loose: Mapping[str, Any], record: Record, has: Mapping[str, Any]) -> bool:
    """What tuning chose may differ. A record without one of the keys, or with another, is of another version of zsl."""
    key = record["key"]
    chosen = (key.get("tune") or {}).get("chosen", {})

    def same(k: str, v: Any) -> bool:
        return k in chosen or has[k] == (key["seed"] if v == SEED else v)

    kinds = (*_STRICT, "tune")
    unknown = [k for k in has if k.split(".")[0] in kinds and k not in strict and k not in chosen]
    return (
        not unknown
        and all((k in has or k in chosen) and same(k, v) for k, v in strict.items())
        and all(same(k, v) for k, v in loose.items() if k in has)
    )


def _tuned_alike(plain: Mapping[str, Any], record: Record) -> bool:
    """Whether a record's tuning tried what the configuration's would: a null is the model's own grid."""
    tune = plain["tune"]
    if tune["name"] == "none":
        return True
    grid = tune["grid"] if tune["grid"] is not None else own_grid(plain["model"])
    tried = [trial["settings"] for trial in record.get("trials") or ()]
    if tune["search"] == "optuna":  # what its sampler asks for is not known beforehand; where it may look is
        return bool(tried) and all(_within(grid, settings) for settings in tried)
    seed = record["key"]["seed"] if tune["seed"] == SEED else tune["seed"]
    return tried == trials_of(grid, search=tune["search"], n_trials=tune["n_trials"], seed=seed)


def _within(grid: Mapping[str, Any], settings: Mapping[str, Any]) -> bool:
    return grid.keys() == settings.keys() and all(
        grid[k]["low"] <= v <= grid[k]["high"] if isinstance(grid[k], Mapping) else v in grid[k]
        for k, v in settings.items()
    )
