"""Speed against SPAMS, scikit-learn and plain loops, mostly as ratios: ``zsl bench``.

Every contender solves the same problem in turn, round after round. The median of the rounds counts, and the duality gap
that each reached stands beside it. Competitors run as shipped, on arrays already in the layout that they want.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from zsl.bench import encode, epochs, learning, model, spreading
from zsl.bench.encode import REAL_ATOMS, TOL, Result
from zsl.bench.process import in_a_process
from zsl.costs.trial import N_CLASSES
from zsl.errors import UserError, too_large, unforeseen, writing
from zsl.report.figures import figure_of, relative_times, save_figure
from zsl.report.formats import Table, save, show

PARTS = {
    "encode": "many rows", "image": "one image", "sweep": "dimensions, density and precision",
    "learn": "dictionaries of three sizes to the same objective",
    "growth": "time against rows, dimensions, atoms and non-zeros",
    "awa2": "a fit in the shape of AwA2", "vgg19": "a fit in the shape of AwA2 with VGG19 features",
    "rows": "growth with rows read from a file", "spreading": "labels over many images",
    "epochs": "ranking models against plain loops",
    "model": "predicted and measured time and memory of ten runs",
    "imagenet": "hours of ImageNet-21k on paper, with nodes and GPUs that are assumed",
}  # fmt: skip
DEFAULT = ("encode", "image", "sweep", "learn", "growth")


def whole(least: int) -> Callable[[str], int]:
    """The type of an argument: a whole number of at least ``least``."""

    def number(text: str) -> int:
        if (value := int(text)) < least:
            raise argparse.ArgumentTypeError(f"{text} is not accepted: it should be at least {least}")
        return value

    number.__name__ = "whole number"  # argparse prints the name
    return number


def parser() -> argparse.ArgumentParser:
    """The command line."""
    out = argparse.ArgumentParser(prog="zsl bench", description=__doc__)
    parts = "; ".join(f"{name}: {about}" for name, about in PARTS.items())
    out.add_argument("--only", nargs="+", choices=PARTS, default=list(DEFAULT),
                     help=f"parts to run (default: {' '.join(DEFAULT)}). {parts}")  # fmt: skip
    out.add_argument("--rounds", type=whole(1), default=5, help="timed rounds; 20 times as many of image (default 5)")
    out.add_argument("-n", type=whole(1), default=2000, help="rows of encode and learn (default 2000)")
    out.add_argument("-r", type=whole(1), default=1200, help="atoms of encode and learn (default 1200; of image "
                     f"features learn has {REAL_ATOMS})")  # fmt: skip
    out.add_argument("-p", type=whole(1), default=1024, help="dimensions of simulated features (default 1024)")
    out.add_argument("--iterations", type=whole(0), default=1, help="alternations of awa2 and vgg19 (default 1)")
    out.add_argument("--sizes", type=whole(N_CLASSES), nargs="+", default=[10**4, 10**5, 10**6],
                     help="row counts of rows (default 10000 100000 1000000)")  # fmt: skip
    out.add_argument("--out", type=Path, default=Path("multirun/bench"), help="folder for JSON, tables and plot")
    return out


def main(argv: Sequence[str] | None = None) -> None:
    """The command; what was measured before a part failed is written all the same."""
    arguments = parser().parse_args(argv)
    name = "bench" if len(arguments.only) > 1 else arguments.only[0]
    record: dict[str, Any] = {"environment": environment(), "arguments": {**vars(arguments), "out": str(arguments.out)}}
    failed, began, results, tables = None, time.perf_counter(), [], []
    try:
        with writing(arguments.out, "set --out to another folder"):
            arguments.out.mkdir(parents=True, exist_ok=True)
        for part in arguments.only:
            record[part] = measured = measure(part, arguments)
            table = table_of(part, measured, record["environment"])
            show(table)
            tables.append(table)
            if part in ("encode", "image", "sweep"):
                results += measured
                record[part] = [asdict(result) for result in measured]
    except UserError as error:
        failed = str(error)
    except Exception as error:
        if not too_large(error):
            raise
        failed = unforeseen(error, "make -n, -r, -p or --sizes smaller")
    if tables:
        record["minutes"] = (time.perf_counter() - began) / 60
        with writing(arguments.out, "set --out to another folder"):
            paths = save(tables, arguments.out, name)
            if results:
                frame = pd.DataFrame([(r.problem, r.contender, ratio) for r, ratio in zip(results, ratios_of(results))])
                ratios = frame.set_index([0, 1])[2].unstack(sort=False)
                unit = [next(r.per_row for r in results if r.problem == problem) for problem in ratios.index]
                paths += save_figure(figure_of(relative_times(ratios, unit)), arguments.out, name)
            paths.append(arguments.out / f"{name}.json")
            paths[-1].write_text(json.dumps(record, indent=1))
        print("written: " + " ".join(map(str, paths)))
    if failed is not None:
        print(f"zsl.bench: {failed}", file=sys.stderr)
        sys.exit(1)


def measure(part: str, a: argparse.Namespace) -> Any:
    """What a part of the benchmark finds."""
    if part in learning.SHAPES:
        return in_a_process(learning.fit, learning.SHAPES[part], a.iterations)
    parts: dict[str, Callable[[], Any]] = {
        "encode": lambda: encode.encode(a.n, a.r, a.p, a.rounds),
        "image": lambda: encode.image(REAL_ATOMS, a.p, 20 * a.rounds),
        "sweep": lambda: encode.sweep(a.n, a.rounds),
        "learn": lambda: learning.races(a.n, a.p, a.r, a.rounds),
        "growth": lambda: encode.growth(a.rounds),
        "rows": lambda: learning.growth(a.sizes),
        "spreading": spreading.spreading,
        "epochs": lambda: epochs.epochs(a.rounds),
        "model": model.compare,
        "imagenet": model.imagenet,
    }
    return parts[part]()


def table_of(part: str, found: Any, about: dict[str, Any]) -> Table:
    """The findings of a part as a table."""
    if part in ("encode", "image", "sweep"):
        rows = [{"problem": r.problem, "contender": r.contender, "rows": r.n_rows,
                 "us per row": r.note or 1e6 * r.per_row, "times slower": ratio, "largest gap": r.gap,
                 "non-zeros": r.n_nonzero, "share of the limit": r.share}
                for r, ratio in zip(found, ratios_of(found))]  # fmt: skip
    elif part == "growth":
        rows = [{"axis": axis, **fit} for axis, fit in found.items()]
    else:
        rows = found if part in ("learn", "epochs") else found.get("runs", [found])
    environment = ", ".join(f"{k} {v}" for k, v in about.items())
    out = Table(f"bench_{part}", f"{part}: {PARTS[part]}", environment, list(rows[0]))
    out.rows = [[_shown(value) for value in row.values()] for row in rows]
    if part in ("rows", "spreading") and found["exponent"] is not None:
        out.notes = [f"Time grows with the exponent {found['exponent']:.2f}."]
    if part in ("model", "imagenet"):
        out.notes = found["notes"]
    return out


def _shown(value: Any) -> Any:
    """A measured value as the table shows it; of several times the median."""
    if isinstance(value, list) and value and isinstance(value[0], float):
        value = float(np.median(value))
    if not isinstance(value, float):
        return str(value)
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def ratios_of(results: Iterable[Result]) -> list[float]:
    """Time per row relative to the first contender of the same problem."""
    base: dict[str, float] = {}
    return [r.per_row / base.setdefault(r.problem, r.per_row) for r in results]


def environment() -> dict[str, Any]:
    """What a ratio depends on besides the code."""
    libraries = {name: version(name) for name in ("numpy", "numba", "scikit-learn")}
    return {"machine": platform.machine(), "cpus": os.cpu_count(), "python": platform.python_version(), **libraries,
            "tol": TOL}  # fmt: skip


if __name__ == "__main__":
    main()
