"""The sweeps of the table of methods: which models run on which data and splits in a stage."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from zsl.config import is_sweep, without_package
from zsl.errors import UserError
from zsl.report import cells, filling

Sweep = tuple[str, list[str]]

# Models without a grid to tune over; the rules of cells.yaml run them.
_DICTIONARIES = ("coupled", "coupled_paper")
# Models for images and classes in one space, and for several networks: the compared data have neither.
_OTHER_DATA = ("clip", "clip_adapter", "late_fusion")


def comparison(extra: Sequence[str] = ()) -> tuple[list[Sweep], dict[str, str]]:
    """The sweeps that ``make compare`` runs, in the order in which it runs them.

    Parameters
    ----------
    extra : sequence of str
        The user's overrides. ``stage=NAME`` chooses a stage of ``cells.yaml`` (default ``standard``), ``data=NAME``
        some of its data, ``model=NAME`` one model; ``dataset=...`` replaces all data by one set.

    Returns
    -------
    sweeps, lacking
        Of each sweep a title and the arguments of ``zsl.main``; and why data, or a model whose package is missing, is
        left out, by name.

    Raises
    ------
    UserError
        For a stage or data that does not exist.
    """
    node = cells.layout()["compare"]
    name = cells.value_of(extra, "stage") or "standard"
    if name not in node["stages"]:
        raise UserError(f"stage={name} does not exist; there is: {', '.join(node['stages'])}.")
    stage = node["stages"][name]
    data = (cells.value_of(extra, "data") or "").split(",")
    for one in filter(None, data):
        if one not in stage["data"]:
            raise UserError(
                f"data={one} does not exist in stage {name} of compare; there is: {', '.join(stage['data'])}."
            )
    model = cells.value_of(extra, "model")
    named = {cells.key_of(o) for o in extra}
    chosen = [""] if "dataset" in named else [one for one in stage["data"] if one in data or data == [""]]
    found: list[Sweep] = []
    lacking: dict[str, str] = {}
    extra = [o for o in extra if cells.key_of(o) not in ("stage", "data", "model")]
    absent: dict[str, str] = {} if model else without_package("model")
    for block in chosen:
        for split in [""] if "split" in named else stage["splits"]:
            known = cells.layout()["data"][block]["overrides"] if block else []
            words = [f"split={split}" if cells.key_of(o) == "split" and split else o for o in known
                     if cells.key_of(o) not in named]  # fmt: skip
            fixed = [o for o in extra if not is_sweep(o)]
            if why := lacking.get(block) or filling.cannot_read(["experiment=compare", *words, *fixed]):
                lacking[block] = why
                continue
            for sweep in _sweeps(stage["sweeps"], model, absent):
                mine = [o for o in sweep if cells.key_of(o) == "model" or cells.key_of(o) not in named]
                found.append((f"{block} {split}".strip(), ["experiment=compare", *words, *mine, *extra]))
    # Data comes first: if all of it is missing, that is what ends the command.
    for one, package in absent.items():
        lacking[one] = f"it needs {package}, and {package} is not installed; pip install -e '.[{package}]'."
    return found, lacking


def _sweeps(parts: Sequence[str], model: str | None, absent: Collection[str]) -> list[list[str]]:
    """The overrides of each sweep over models and rules: those that the user names, or all but the absent ones."""
    node = cells.layout()["compare"]
    slow = [one for one in node["slow"] if one not in absent]
    fast = f"model=glob(*,exclude=[{','.join(dict.fromkeys([*_DICTIONARIES, *_OTHER_DATA, *node['slow'], *absent]))}])"
    rules = [[*rule, "tune=none"] for rule in node["rules"]]
    if model and not model.startswith("glob("):
        named = model.removeprefix("choice(").removesuffix(")").split(",")
        fast = f"model={','.join(one for one in named if one not in (*node['slow'], *_DICTIONARIES))}"
        slow = [one for one in slow if one in named]
        rules = [rule for rule in rules if rule[0].removeprefix("model=") in named]
    elif model:
        fast, slow, rules = f"model={model}", [], []
    names = f"model={','.join(slow)}"
    known = {"fast": [[fast]], "slow": [[names, "tune=none"]], "tuned": [[names]], "rules": rules}
    return [sweep for part in parts for sweep in known[part] if sweep[0] != "model="]
