"""``zsl run --estimate``: what a run is likely to take, and whether it fits into memory, before any work."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace

from sklearn.base import clone

from zsl.config import compose, is_sweep
from zsl.costs.calibration import machine
from zsl.costs.machine import memory_limit
from zsl.costs.model import Part, estimate, peak, remedies
from zsl.costs.trial import non_zeros
from zsl.costs.work import Shape
from zsl.data.dataset import ZeroShotData
from zsl.data.preprocess import Preprocess, preprocess
from zsl.errors import UserError
from zsl.experiment.loading import load, unequal_rows
from zsl.experiment.metrics import peak_rss_mb
from zsl.experiment.setup import Setup, checked
from zsl.models import CoupledDictionaries
from zsl.progress import duration
from zsl.sparse.chunks import is_chunked

# The stages of each pair of rules that the model of costs knows.
_STAGES = {
    ("agnostic", "nearest"): ("aag",), ("aware", "nearest"): ("aag", "aaw"),
    ("aware", "spread"): ("aag", "aaw", "taaw"),
}  # fmt: skip


# A remedy has to fit into this share of the memory that data may take, because predictions were a quarter too small.
_SURE = 0.8
# Bytes that MLflow takes while it records a run (95 MB were measured).
_TRACKING = 1e8


def estimate_run(overrides: Iterable[str]) -> str:
    """Check a configuration, read its data, and predict seconds and memory of every part of the run.

    Nothing is fitted and nothing is written but the constants of the machine, which are measured the first time.

    Parameters
    ----------
    overrides : iterable of str
        As on the command line.

    Returns
    -------
    str
        A table and the notes below it.

    Raises
    ------
    UserError
        For whatever :func:`zsl.run` refuses, for a sweep, and where the run needs more memory than there is; the
        sentence then names settings with which it would fit.
    """
    overrides = list(overrides)
    swept = [word for word in overrides if is_sweep(word)]
    if swept:
        raise UserError(f"--estimate is for one run, and {swept[0]} is a sweep; give it one value.")
    setup = checked(compose(overrides))
    start = time.perf_counter()
    data = load(setup)
    if setup.imbalance is not None:
        unequal_rows(setup, data)  # refuses a ratio that the test images do not allow, as the run would
    seconds = time.perf_counter() - start
    if is_chunked(data.X):
        raise UserError(
            "--estimate is for features in the memory of this machine, and these lie in chunks (docs/dask.md); "
            "estimate a part of them with subset.images."
        )
    shape, stages, notes = _sizes(setup, data)
    if not shape.K:
        return "\n".join(
            [_table([Part("load", seconds, peak_rss_mb() * 2**20, "measured now")]), _sizes_of(shape), *notes]
        )
    constants = machine()
    if setup.config["tracking"]["name"] != "none":
        constants = replace(constants, base=constants.base + _TRACKING)
    notes.append(f"The constants of this machine were measured on {constants.about.get('day', 'another day')}.")
    parts = estimate(shape, constants, stages)
    parts[0] = Part("load", seconds, parts[0].memory, "measured now")
    there, needed = memory_limit(), peak(parts)
    if 0 < there < needed:
        others = remedies(shape, constants, constants.base + _SURE * (there - constants.base), stages)
        what = f"it would fit with {' or '.join(others)}" if others else (
            "no single setting that --estimate knows makes it fit; model.backend=dask divides the images among machines"
        )  # fmt: skip
        raise UserError(
            f"this run needs about {needed / 2**30:.2f} GiB of memory, and there are {there / 2**30:.2f} GiB; {what}."
        )
    return "\n".join([_table(parts), *_sums(shape, parts, there), *notes])


def _sizes(setup: Setup, data: ZeroShotData) -> tuple[Shape, tuple[str, ...], list[str]]:
    """The sizes of a run, the stages that are estimated, and what the estimate leaves out."""
    model, notes = setup.classifier.model, []
    (n, p), q = data.X.shape, data.attributes.shape[1]
    L, M, single = len(data.X_unseen), len(data.unseen) or len(data.seen), data.X.dtype.itemsize == 4
    if not isinstance(model, CoupledDictionaries):
        notes.append(
            f"Fit and inference are estimated for models with dictionaries only, and {type(model).__name__} has none."
        )
        return Shape(n, p, 1, q, L, M, K=0, single=single), (), notes
    feature, semantics = (clone(t or Preprocess()) for t in (setup.classifier.preprocess, setup.classifier.semantics))
    ready = preprocess(data, feature, semantics)
    (n, p), q, single = ready.X.shape, ready.attributes.shape[1], ready.X.dtype.itemsize == 4
    r, K = model.size(n, p, q)
    k = non_zeros(ready.X, r, model.lam, model.lam_relative, model.init, model.seed)
    pair = setup.inference.resolved(model)
    stages = _STAGES.get(pair, ("aag",) if pair[0] == "agnostic" else ("aag", "aaw") if pair[0] == "aware" else ())
    if pair not in _STAGES:
        notes.append(f"The label rule {pair[1]} is not estimated.")
    if setup.tuning:
        notes.append("Tuning repeats fit and inference; the estimate is of one of each.")
    if model.coupling == "joint":
        notes.append("The joint coupling is estimated as the sequential one, and takes longer.")
    if (solver := setup.config["solver"].get("solver", "auto")) != "auto":
        notes.append(f"The estimate is that of solver=auto; that of {solver} is not known.")
    if model.backend != "numpy" or setup.config["device"] == "cuda":
        notes.append("The estimate is for this machine's cores alone, without a Dask cluster or a GPU.")
    if model.tol:
        notes.append("With model.tol learning may end earlier.")
    return Shape(n, p, r, q, L, M, model.lam_relative, model.n_iter, K, single, model.batch_size, k), stages, notes


def _table(parts: list[Part]) -> str:
    rows = [("part", "seconds", "memory", "mostly")]
    rows += [(p.name, f"{p.seconds:,.2f}", f"{p.memory / 2**30:.2f} GiB", p.dominant) for p in parts]
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    return "\n".join(
        f"{a:<{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}  {d}".rstrip() for a, b, c, d in rows
    )  # fmt: skip


def _sizes_of(shape: Shape) -> str:
    sizes = f"{shape.n} training images, {shape.L} test images, {shape.p} features, {shape.M} classes"
    if shape.K:
        sizes += f"; {shape.K} x {shape.r} atoms, codes with about {shape.k:.0f} non-zeros"
    return sizes


def _sums(shape: Shape, parts: list[Part], there: float) -> list[str]:
    memory = f", of {there / 2**30:.2f} GiB that it may use" if there else ""
    whole = sum(part.seconds for part in parts)
    return [
        _sizes_of(shape),
        f"The whole takes {duration(whole)}, without compiling, figures and tracking; its largest memory is "
        f"{peak(parts) / 2**30:.2f} GiB{memory}.",
    ]
