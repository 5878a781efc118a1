"""The model of costs against measurements: predicted and measured time and memory of runs that did not calibrate it."""

from __future__ import annotations

import logging
import tempfile
import warnings
from dataclasses import asdict, replace
from typing import Any

from zsl.bench.process import in_a_process, memory_mb
from zsl.costs import large, trial
from zsl.costs.calibration import machine
from zsl.costs.machine import Machine
from zsl.costs.model import estimate, peak
from zsl.costs.work import Shape

PROBLEMS = (
    # n, p, r, q, L, M, share of lambda, alternations, dictionaries
    Shape(18000, 192, 510, 102, 1200, 20, 0.15, 3, K=3, batch_size=2000),
    Shape(5000, 128, 430, 64, 2300, 300, 0.1, K=2, batch_size=2000),
    Shape(5000, 768, 2160, 85, 4500, 72, 0.1),
    Shape(16000, 192, 420, 85, 2600, 300, 0.05, 4),
    Shape(3000, 128, 420, 64, 5900, 50, 0.15, 6),
    Shape(13000, 96, 240, 40, 11200, 72, 0.15),
    Shape(25000, 128, 80, 40, 1300, 20, 0.08, 4, K=3),
    Shape(3000, 384, 650, 64, 4800, 300, 0.2, single=True),
    Shape(8000, 384, 1080, 64, 9200, 50, 0.2, 4, batch_size=2000),
    Shape(4000, 1024, 1570, 200, 7800, 20, 0.15, K=2),
)
"""Runs whose shapes were drawn at random, none among those that :mod:`zsl.costs.calibration` measures"""
PARTS = ("load", "fit", "aag", "aaw", "taaw")
WITHIN = 0.3


def compare(problems: tuple[Shape, ...] = PROBLEMS) -> dict[str, Any]:
    """Predicted and measured seconds of every part, and peak memory, each problem in a process of its own."""
    constants, runs = in_a_process(machine), []
    for problem in problems:
        with tempfile.TemporaryDirectory() as folder:
            in_a_process(trial.write, problem, folder)
            found = in_a_process(measure, problem, folder)
        runs.append(beside(problem, constants, found))
    names = ["fit", "time", "memory"]
    good = {name: sum(abs(row[f"{name} ratio"] - 1) <= WITHIN for row in runs) for name in (*PARTS, "time", "memory")}
    both = sum(all(abs(row[f"{name} ratio"] - 1) <= WITHIN for name in names) for row in runs)
    counts = ", ".join(f"{name} {count}" for name, count in good.items())
    notes = [
        "A ratio is the predicted value over the measured one; seconds, and memory in MB.",
        f"Of {len(runs)} problems {both} are within 30 % in time of fit, whole time and memory; each: {counts}.",
    ]
    return {"runs": runs, "within": good, "all": both, "notes": notes, "machine": asdict(constants)}


def beside(problem: Shape, constants: Machine, found: dict[str, float]) -> dict[str, Any]:
    """A row of the table: sizes, then measured values and the ratio of the predicted to the measured one."""
    shape = replace(problem, k=found["k"])
    parts = estimate(shape, constants)
    seconds = {part.name: part.seconds for part in parts}
    row: dict[str, Any] = {"problem": _name(problem), "non-zeros": found["k"]}
    predicted = {**seconds, "time": sum(seconds.values()), "memory": peak(parts) / 2**20}
    measured = {**found, "time": sum(found[name] for name in PARTS)}
    for name in (*PARTS, "time", "memory"):
        row[name] = measured[name]
        row[f"{name} ratio"] = predicted[name] / max(measured[name], 1e-9)
    return row


def _name(t: Shape) -> str:
    extra = [f"{t.K} dictionaries"] * (t.K > 1) + ["float32"] * t.single
    extra += [f"batches of {t.batch_size}"] * (t.batch_size is not None)
    sizes = f"n={t.n} p={t.p} r={t.r} q={t.q} L={t.L} M={t.M} passes={t.n_iter + 1}"
    return " ".join([sizes, *extra])


def measure(problem: Shape, folder: str) -> dict[str, float]:
    """Seconds of each part in this process, and its peak memory in MB."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    for share in (0.1, 0.02):  # loads compiled kernels of both solvers
        trial.simulated(Shape(600, 128, 300, 20, 100, 5, share, single=problem.single, batch_size=problem.batch_size))
    data, load = trial.read(problem, folder)
    timed = trial.run(problem, data)
    memory = memory_mb("VmHWM")
    k = trial.probed(problem, data)
    return {"load": load, "fit": timed.fit, "aag": timed.aag, "aaw": timed.aaw, "taaw": timed.taaw, "memory": memory,
            "k": k}  # fmt: skip


def imagenet() -> dict[str, Any]:
    """ImageNet-21k by the model of costs of this machine: nothing is run."""
    memory = ", ".join(f"{name} {gib:,.2f}" for name, gib in large.imagenet_memory().items())
    notes = [
        f"Assumed: nodes of {large.CORES} cores with {large.SCALING:.0%} of their speed together, {large.DASK:.0%} of "
        f"the speed of all nodes, GPUs with {large.GPU_SHARE:.0%} of {2 * large.GPU / 1e12:.0f} TFLOP/s.",
        f"Memory in GiB: {memory}.",
    ]
    return {"runs": large.imagenet(machine()), "notes": notes}
