"""What ``python -m zsl.bench`` prints and writes: a table of all results, the targets, a plot."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np


@dataclass
class Result:
    """The times of one contender on one problem."""

    problem: str
    contender: str
    seconds: list[float] = field(default_factory=list)
    n_rows: int = 0
    gap: float = float("nan")
    """Largest gap of a row, in units of ``|x|^2 / p``."""
    n_nonzero: float = float("nan")
    note: str = ""
    shape: tuple[int, int, int] | None = None
    """Rows, dimensions and atoms of the problem."""

    @property
    def per_row(self) -> float:
        return float(np.median(self.seconds)) / self.n_rows if self.seconds else float("nan")


def print_table(results: list[Result]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("problem", "contender", "rows", "us per row", "times slower", "largest gap", "non-zeros")
    for result, ratio in zip(results, _ratios(results)):
        table.add_row(
            result.problem,
            result.contender,
            str(result.n_rows),
            result.note or f"{1e6 * result.per_row:.1f}",
            f"{ratio:.2f}",
            f"{result.gap:.1e}",
            f"{result.n_nonzero:.1f}",
            end_section=False,
        )
    Console(width=150).print(table)


def bar_plot(results: list[Result], path: Path) -> None:
    """Time per row relative to ours: a group of bars for each problem, a colour for each contender."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    problems = list(dict.fromkeys(r.problem for r in results))
    contenders = list(dict.fromkeys(r.contender for r in results))
    colours = dict(zip(contenders, (f"C{i}" for i in range(len(contenders)))))
    ratios = dict(zip(map(id, results), _ratios(results)))
    figure = Figure(figsize=(8, 1.2 + 0.2 * len(results) + 0.15 * len(problems)), layout="constrained")
    axes = figure.subplots()
    y, ticks = 0.0, []
    for problem in problems:
        group = [r for r in results if r.problem == problem and r.seconds]
        ticks.append(y + (len(group) - 1) / 2)
        for result in group:
            ratio = ratios[id(result)]
            axes.barh(y, ratio, 0.9, color=colours[result.contender])
            axes.annotate(f"{ratio:.3g}", (ratio, y), (3, 0), textcoords="offset points", va="center", fontsize=7)
            y += 1
        y += 0.8
    axes.set_yticks(ticks, [problem.replace(", ", "\n", 1) for problem in problems], fontsize=8)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.margins(x=0.12, y=0.01)
    axes.axvline(1, color="grey", linewidth=0.8, linestyle=":", zorder=0)
    axes.set_xlabel(f"time per row, in units of that of {results[0].contender} on the same problem")
    figure.legend(
        handles=[Patch(color=colours[c], label=c) for c in contenders], loc="outside upper center", ncols=3, fontsize=8
    )
    figure.savefig(path, dpi=150)


def _ratio(results: list[Result], problem: str, ours: str, *theirs: str) -> float | None:
    """How many times longer the quickest of ``theirs`` takes a row than ``ours``; None where one was not measured."""
    found = {r.contender: r.per_row for r in results if r.problem == problem and r.seconds}
    others = [found[name] for name in theirs if name in found]
    return min(others) / found[ours] if ours in found and others else None


# What the targets are stated for: rows, dimensions and atoms, and how often each is timed.
_ENCODE, _LEARN, _IMAGE = (2000, 1024, 1200), (2000, 1280, 1400), (1, 1280, 1400)
_FITS = {"awa2": (23527, 2048, 2100), "vgg19": (24295, 4096, 4400)}
_ROWS, _IMAGES = (10**4, 10**5, 10**6), 100_000
ROUNDS, ROUNDS_OF_ONE_IMAGE = 5, 100


def target_rows(results: list[Result], record: dict[str, Any]) -> list[dict[str, Any]]:
    """The targets this project set itself, with what was measured.

    ``met`` is None where that part was not run, or was not run as the target is stated: at its sizes, and often enough.
    """
    out: list[dict[str, Any]] = []

    def add(
        work: str, against: str, measured: float | None, target: float, stretch: float | None, unit: str, stated: bool
    ) -> None:
        # Ratios are to be large, all else small.
        met = (
            bool(measured >= target if unit == "times" else measured <= target)
            if stated and measured is not None
            else None
        )
        out.append(
            {"work": work, "against": against, "measured": measured, "target": target, "stretch": stretch,
             "unit": unit, "met": met}
        )  # fmt: skip

    def as_stated(problem: str, shape: tuple[int, int, int], rounds: int) -> bool:
        """Whether all who were timed on the problem were so at these sizes."""
        timed = [r for r in results if r.problem == problem and r.seconds]
        return all(r.shape == shape and len(r.seconds) >= rounds for r in timed)

    cd = ("scikit-learn lasso_cd", "scikit-learn lasso_cd, 2 jobs")
    for n_nonzero, cold, warm in ((20, (4, 8), (6, 15)), (165, (2.5, 5), (4, 10))):
        for start, aims in (("cold", cold), ("warm", warm)):
            name = f"synthetic, {n_nonzero} non-zeros, {start}"
            measured, stated = _ratio(results, name, "zsl float64", "SPAMS float64"), as_stated(name, _ENCODE, ROUNDS)
            add(f"encode, {n_nonzero} non-zeros, {start}", "SPAMS float64", measured, aims[0], aims[1], "times", stated)
    for n_nonzero in (20, 165):
        name = f"synthetic, {n_nonzero} non-zeros, cold"
        measured, stated = _ratio(results, name, "zsl float64", *cd), as_stated(name, _ENCODE, ROUNDS)
        against = "scikit-learn lasso_cd, best n_jobs"
        add(f"encode, {n_nonzero} non-zeros, cold", against, measured, 20, 50, "times", stated)
    learners = record.get("learn", [])
    others = [row["ratio"] for row in learners if not row["contender"].startswith("zsl")]
    # Long runs are timed once whatever the rounds: these are the rounds that were asked for.
    stated = all(tuple(row.get("shape", ())) == _LEARN and row.get("rounds", 0) >= ROUNDS for row in learners)
    best = min(others, default=None)
    add("learn a dictionary", "the best of SPAMS and scikit-learn", best, 4, 10, "times", stated)
    lasso = [r.per_row for r in results if r.problem.startswith("one image") and r.contender == "scikit-learn Lasso"]
    stated = as_stated("one image", _IMAGE, ROUNDS_OF_ONE_IMAGE)
    for dtype in ("float64", "float32"):
        shipped = [r.per_row for r in results if (r.problem, r.contender) == ("one image", f"zsl {dtype}")]
        measured = min(lasso) / shipped[0] if lasso and shipped else None
        add(f"one image, {dtype}", "scikit-learn Lasso, best threads", measured, 20, None, "times", stated)
        add(f"one image, {dtype}", "", 1e3 * shipped[0] if shipped else None, 5, 1, "ms", stated)
    for shape, memory, minutes in (("awa2", 3.0, None), ("vgg19", 5.0, (30, 10))):
        run = record.get(shape, {})
        stated = tuple(run.get(name) for name in "npr") == _FITS[shape] and run.get("n_iter", 0) >= 1
        peak = run["peak_rss_mb"] / 1024 if run else None
        add(f"fit in the shape of {shape}", "", peak, memory, None, "GiB", stated)
        if minutes:
            took = run["seconds"] / 60 if run else None
            add(f"fit in the shape of {shape}", "", took, minutes[0], minutes[1], "minutes", stated)
    rows = record.get("rows", {})
    stated = tuple(sorted(set(rows.get("sizes", ())))) == _ROWS
    add("rows from a file, time", "", rows.get("exponent"), 1.05, None, "exponent", stated)
    memory_mb = [run["anonymous_mb"] for run in rows.get("runs", [])]
    spread = max(memory_mb) / min(memory_mb) if len(set(rows.get("sizes", ()))) > 1 and min(memory_mb) else None
    add("rows from a file, memory", "", spread, 1.1, None, "largest/smallest", stated)
    spreading = record.get("spreading", {})
    most = spreading.get("largest")
    images = f"labels spread over {most['L'] if most else _IMAGES} images"
    stated = most is not None and most["L"] == _IMAGES
    add(images, "", most["seconds"] if most else None, 90, None, "s", stated)
    add(images, "", most["peak_mb"] / 1024 if most else None, 2, None, "GiB", stated)
    add("labels spread, processor time", "", spreading.get("exponent"), 1.3, None, "exponent", stated)
    return out


def write_table(results: list[Result], record: dict[str, Any], path: Path) -> str:
    """Markdown of everything measured, written to ``path``; returns the part with the targets."""
    lines = ["| work | against | measured | target | stretch | |", "| --- | --- | --- | --- | --- | --- |"]
    for t in record["targets"]:
        if t["measured"] is None:
            continue
        stretch = "" if t["stretch"] is None else f"{t['stretch']:g}"
        verdict = {True: "met", False: "missed", None: "not judged: other sizes or fewer rounds"}[t["met"]]
        measured = f"{t['measured']:.3g} {t['unit']}"
        lines.append(f"| {t['work']} | {t['against']} | {measured} | {t['target']:g} | {stretch} | {verdict} |")
    targets = "\n".join(lines) if len(lines) > 2 else ""
    lines += ["", "| problem | contender | rows | us per row | times ours | largest gap | non-zeros |",
              "| --- | --- | --- | --- | --- | --- | --- |"]  # fmt: skip
    for r, ratio in zip(results, _ratios(results)):
        time = r.note or f"{1e6 * r.per_row:.1f}"
        lines.append(
            f"| {r.problem} | {r.contender} | {r.n_rows} | {time} | {ratio:.2f} | {r.gap:.1e} | {r.n_nonzero:.1f} |"
        )
    if record.get("learn"):
        lines += ["", "| learner | passes | batch size | seconds | times ours | objective | target |",
                  "| --- | --- | --- | --- | --- | --- | --- |"]  # fmt: skip
    for row in record.get("learn", []):
        lines.append(
            f"| {row['contender']} | {row['passes']} | {row['batch_size']} | {float(np.median(row['seconds'])):.2f} | "
            f"{row['ratio']:.2f} | {row['objective']:.6f} | {row['target']:.6f} |"
        )
    for axis, fit in record.get("growth", {}).items():
        lines += ["", f"Time grows as {axis}^{fit['exponent']:.2f} over {axis} = {fit['sizes']}."]
    path.write_text("\n".join(lines) + "\n")
    return targets


def _ratios(results: list[Result]) -> list[float]:
    """Time per row relative to the first contender of the same problem."""
    base: dict[str, float] = {}
    return [r.per_row / base.setdefault(r.problem, r.per_row) for r in results]
