"""The commands that fill the cells of an experiment, and running them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from zsl.report import here
from zsl.report.cells import Cell, configuration, key_of, label

INTERRUPTED = 130
"""Exit status after Ctrl-C"""
# How long a run may take to end after Ctrl-C before it is told again.
_PATIENCE_S = 10


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
    """Why a cell cannot be run here, or None."""
    return here.absence(configuration(one))


def run(cells: Sequence[Cell]) -> list[str]:
    """Fill the cells whose data is here, one command after another; says which are left out and why.

    Returns
    -------
    list of str
        The commands that failed. A job that fails says so itself and leaves its cell empty; the others go on.
    """
    todo = []
    for one in cells:
        why = absent(one)
        if why is None:
            todo.append(one)
        else:
            print(f"left out  {one.title}, {label(one)}: {why}", file=sys.stderr)
    failed = []
    for arguments, _ in commands(todo):
        command = f"python -m zsl.main {shown(arguments)}"
        print(f"running   {command}", file=sys.stderr, flush=True)
        if start(arguments, quiet=True) != 0:
            failed.append(command)
    return failed


def start(arguments: Sequence[str], *, quiet: bool = False) -> int:
    """Run ``zsl.main`` in a process of its own and wait for it; its exit status.

    Ctrl-C reaches it as well, and it is given the time to record how its runs ended.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "zsl.main", *arguments], stdout=subprocess.DEVNULL if quiet else None
    )
    try:
        return process.wait()
    except BaseException:
        for stop in (None, process.terminate, process.kill):
            if stop is not None:
                stop()
            try:
                process.wait(_PATIENCE_S)
                break
            except subprocess.TimeoutExpired:
                continue
        if process.returncode == INTERRUPTED:
            sys.exit(INTERRUPTED)  # it has said so
        raise


def shown(arguments: Iterable[str]) -> str:
    """Arguments as they are typed into a shell."""
    import shlex

    return " ".join(shlex.quote(a) for a in arguments)
