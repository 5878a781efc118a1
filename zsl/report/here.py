"""The data of cells as far as it is on this machine: whether it can be read, what it is, which images a split takes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from zsl.data.load import load_table
from zsl.data.table import ImageTable
from zsl.errors import UserError
from zsl.experiment.loading import split_table

# What repeats a split, by key of its node.
_DRAWS = ("seed", "fold", "index")


@dataclass
class Here:
    """A dataset with one feature, or why it is not here."""

    absent: str | None
    content: str | None


_known: dict[str, Here] = {}
# Tables are large, and cells on the same data stand together: the last one is enough.
_last: dict[str, ImageTable] = {}
_rows: dict[str, str | UserError] = {}


def forget() -> None:
    """Look again: files may have come or gone."""
    for known in (_known, _last, _rows):
        known.clear()


def data(plain: Mapping[str, Any]) -> Here:
    """The data of a resolved configuration; read once."""
    name = _name(plain)
    if name not in _known:
        try:
            _known[name] = Here(None, _table(plain).content)
        except UserError as error:
            _known[name] = Here(str(error), None)
    return _known[name]


def absence(plain: Mapping[str, Any], seed: int = 0) -> str | None:
    """Why a configuration cannot be run here, or None; found out by reading the data, without fitting anything."""
    why = data(plain).absent
    if why is not None:
        return why
    found = rows(plain, {}, seed)
    return str(found) if isinstance(found, UserError) else None


def rows(plain: Mapping[str, Any], drawn: Mapping[str, Any], seed: int) -> str | UserError:
    """Digest of the images that a run takes, as its record has it, or why there is none.

    Parameters
    ----------
    drawn : mapping
        A record's split: its seed, fold or index take the place of the configuration's.
    seed : int
        Of the run: what follows it in the configuration is negative there.
    """
    split = {**plain["split"], **{k: drawn[k] for k in _DRAWS if k in plain["split"] and k in drawn}}
    parts = [{k: seed if _follows(v) else v for k, v in node.items()} for node in (split, plain["subset"])]
    name = json.dumps([_name(plain), *parts], sort_keys=True, default=str)
    if name not in _rows:
        try:
            _rows[name] = split_table({**plain, "split": parts[0], "subset": parts[1]}, _table(plain)).rows
        except UserError as error:
            _rows[name] = error
    return _rows[name]


def _follows(value: Any) -> bool:
    return isinstance(value, int) and value < 0


def _name(plain: Mapping[str, Any]) -> str:
    return json.dumps([plain["dataset"], plain["feature"]["name"]], sort_keys=True, default=str)


def _table(plain: Mapping[str, Any]) -> ImageTable:
    name = _name(plain)
    if name not in _last:
        _last.clear()
        dataset = plain["dataset"]
        _last[name] = load_table(dataset, plain["feature"]["name"], dataset["semantics"].get("source"))
    return _last[name]
