"""Measures the constants of this machine: small runs whose times the terms of :mod:`zsl.costs.work` have to add up to.

Every coefficient is non-negative and minimises the relative errors of the small runs, so that a term that a machine
does not pay for is zero. The runs differ in every size, in the number of non-zeros, in precision and in the solver.
"""

from __future__ import annotations

import logging
import math
import os
import platform
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares, lsq_linear, nnls

from zsl.checks import Array
from zsl.costs import work
from zsl.costs.machine import Machine, place, raw_rates
from zsl.costs.trial import Timed, read, simulated, write
from zsl.costs.work import Shape
from zsl.errors import writing
from zsl.progress import Bar
from zsl.sparse.solvers.auto import admm_margin, prefers_admm
from zsl.system import usable_cores

log = logging.getLogger(__name__)

TRIALS = (
    # n, p, r, q, L, M, share of lambda, alternations
    Shape(2000, 64, 100, 20, 12000, 10, 0.1),
    Shape(4000, 64, 128, 50, 1000, 40, 0.05),
    Shape(3000, 128, 160, 85, 8000, 30, 0.2, 3),
    Shape(3000, 128, 240, 85, 800, 200, 0.05, 4),
    Shape(2000, 256, 250, 40, 1500, 20, 0.1),
    Shape(2500, 256, 320, 300, 1000, 50, 0.25),
    Shape(1500, 512, 640, 85, 600, 10, 0.15, 4),
    Shape(3000, 512, 640, 100, 1500, 1000, 0.3),
    Shape(1500, 1024, 700, 200, 700, 50, 0.1, 8),
    Shape(2000, 1024, 1280, 85, 500, 10, 0.3),
    Shape(2500, 2048, 1500, 85, 600, 50, 0.25, 3),
    Shape(5000, 256, 400, 30, 5000, 100, 0.15, 1),
    Shape(3000, 128, 320, 85, 600, 10, 0.008),
    Shape(3000, 256, 320, 30, 1000, 50, 0.02),
    Shape(2000, 512, 400, 85, 500, 20, 0.012, 4),
    Shape(3500, 192, 260, 40, 800, 10, 0.008),
    Shape(2500, 768, 512, 60, 600, 40, 0.008, 3),
    Shape(2000, 512, 640, 200, 500, 50, 0.02),
    Shape(1500, 1024, 700, 85, 700, 200, 0.02),
    Shape(2500, 1024, 900, 85, 400, 20, 0.006),
    Shape(3000, 256, 320, 85, 2000, 10, 0.15, 2, single=True),
    Shape(2000, 512, 640, 85, 1000, 50, 0.1, 3, single=True),
    Shape(3000, 256, 320, 85, 1000, 20, 0.02, 2, single=True),
    Shape(3000, 512, 1000, 60, 2000, 20, 0.07, 2),
    Shape(4000, 768, 1500, 100, 1500, 50, 0.12, 2),
    Shape(9000, 64, 400, 20, 500, 10, 0.25, 4),
    Shape(8000, 64, 100, 40, 1000, 20, 0.08, 2, single=True),
    Shape(5000, 160, 200, 50, 1000, 20, 0.12, 2, single=True),
    Shape(4000, 320, 300, 50, 500, 20, 0.06, 2, single=True),
    Shape(9000, 128, 500, 20, 500, 10, 0.25, 8, single=True),
)
# Small runs of every kind come first and do not count: they load compiled kernels.
_FIRST = (
    Shape(400, 64, 100, 20, 100, 5, 0.1), Shape(600, 128, 300, 20, 100, 5, 0.02),
    Shape(400, 64, 100, 20, 100, 5, 0.1, single=True), Shape(600, 128, 300, 20, 100, 5, 0.02, single=True),
)  # fmt: skip


PRODUCTS = {"rest": (1, 4, 6), "aag": (0, 2), "aaw": (0, 1), "taaw": (0,)}
"""The terms of each part that are seconds already: products at the measured rate, and codings"""
# Seconds of a product are at least this share of what its rate makes of it.
_LEAST_PRODUCTS = 0.3
# Features of 48 MB.
_LOADED = Shape(10_000, 500, 500, 85, 2000, 10, 0.1)


def machine(*, again: bool = False, path: Path | None = None) -> Machine:
    """The constants of this machine: those in ``path`` (by default the user's cache), or measured now and kept there.

    Parameters
    ----------
    again : bool
        Measure again, whatever the file holds.

    Raises
    ------
    UserError
        For a damaged file, and where the file cannot be written.
    """
    path = path or place()
    if path.is_file() and not again:
        return Machine.read(path)
    log.info("measuring the constants of this machine, once, which takes minutes: other work should rest meanwhile")
    with writing(path, "set XDG_CACHE_HOME to another folder"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):  # refused before the minutes
            pass
        found = measured()
        found.write(path)
    return found


def measured(trials: Sequence[Shape] = TRIALS) -> Machine:
    """The constants of this machine, measured now."""
    runs = []
    with Bar("measuring this machine", len(_FIRST) + len(trials)) as bar:
        for trial in _FIRST:
            _quietly(trial)
            bar.step()
        rates = raw_rates() | {"loading": _loading()}
        for trial in trials:
            runs.append(_quietly(trial))
            bar.step()
    again = raw_rates()  # other work may have slowed down the first time
    return fitted({name: max(rate, again.get(name, 0.0)) for name, rate in rates.items()}, _base(), runs)


def _quietly(trial: Shape) -> tuple[Shape, Timed]:
    """A small run, which is no run of the user: its log and its warnings are left out."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return simulated(trial)
    finally:
        logging.disable(before)


def _base() -> float:
    """Bytes of a process that has loaded what a run loads; this process also holds what it has measured."""
    code = f"from {__name__} import _FIRST, _quietly, resident; [_quietly(t) for t in _FIRST]; print(resident())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return float(done.stdout) if done.returncode == 0 else resident()


def _loading() -> float:
    """Bytes of features per second that are loaded."""
    with tempfile.TemporaryDirectory() as folder:
        write(_LOADED, folder)
        seconds = [read(_LOADED, folder)[1] for _ in range(3)]
    # A run loads once, into memory that the process does not have yet.
    return (_LOADED.n + _LOADED.L) * _LOADED.p * 8 / max(seconds)


def resident() -> float:
    """Bytes of this process's memory; 0.4 GB on systems that do not tell, as on the machine of docs/costs.md."""
    statm = Path("/proc/self/statm")
    if not statm.is_file():
        return 4e8
    return int(statm.read_text().split()[1]) * float(os.sysconf("SC_PAGE_SIZE"))


def fitted(raw: dict[str, Any], base: float, runs: Iterable[tuple[Shape, Timed]]) -> Machine:
    """The coefficients that explain the measured runs."""
    runs = list(runs)
    growth = _growth(runs)
    out = Machine(**raw, base=base, growth=growth)
    about = {"machine": platform.machine(), "cores": usable_cores(), "day": date.today().isoformat()}
    rates: dict[str, list[float]] = {}
    found: dict[str, list[tuple[Array, float]]] = {}
    for name, terms, seconds in _codings(out, runs, single=False):
        found.setdefault(name, []).append((terms, seconds))
    for name, rows in found.items():
        rates[name] = _least(rows, (0,) if name.startswith("active") else (0, 1, 2))
    out = Machine(**raw, base=base, growth=growth, rates=rates, about=about)
    # The codes of the active set in single precision: the same terms times a factor.
    for kind in ("cold", "warm"):
        of_kind = [(n, t, s) for n, t, s in _codings(out, runs, single=True) if n.startswith("active")]
        ratios = [s / float(np.dot(rates[n], t)) for n, t, s in of_kind if (n == "active cold") == (kind == "cold")]
        rates[f"single {kind}"] = [float(np.median(ratios))]
    samples: dict[str, list[tuple[Array, float]]] = {"rest": [], "aag": [], "aaw": [], "taaw": []}
    for s, timed in runs:
        ks, P = [k for k, _ in timed.codings], rate(out, s)
        samples["rest"].append((work.rest(s, ks, P), timed.fit - sum(t for _, t in timed.codings)))
        samples["aag"].append((work.agnostic(s, timed.test_coding, P), timed.aag))
        warm = coding_seconds(out, s, s.L, s.p + s.q, timed.test_k, "last", single=False)
        samples["aaw"].append((work.aware(s, timed.test_k, warm, out.product), timed.aaw))
        samples["taaw"].append((work.spreading(s, out.product), timed.taaw))
    for kind, rows in samples.items():
        rates[kind] = _least(rows, PRODUCTS[kind])
    return out


def rate(machine: Machine, s: Shape) -> float:
    """Multiplications per second in the precision of the features."""
    return machine.product32 if s.single else machine.product


def coding_seconds(m: Machine, s: Shape, n: float, p: int, k: float, kind: str, *, k_start: float = 0.0,
                   atoms: float = 0.0, single: bool | None = None, pieces: float = 1.0) -> float:  # fmt: skip
    """Seconds of coding ``pieces`` times ``n`` rows of ``p`` dimensions with ``k`` non-zeros.

    Parameters
    ----------
    kind : "first", "second", "later", "last" or "test"
        ``first`` and ``test`` start at zero, the others from the codes of the pass before; ``test`` and ``last`` are
        solved to the end by ADMM, and the active set always is.
    k_start : float
        Non-zeros of the codes that it starts from, which decide the solver; 0: those of the result.
    atoms : float
        Share of the rows that are atoms.
    """
    single = s.single if single is None else single
    by_admm = prefers_admm(n, s.r, k_start or k)
    terms = work.coding(n, p, s.r, k, m.product32 if single else m.product, m.product32, by_admm, atoms)
    name = coding_name(by_admm, kind)
    terms[:-1] *= pieces  # the last term, a constant, is paid once for all pieces
    factor = m.rates[f"single {'cold' if kind in COLD else 'warm'}"][0] if single and not by_admm else 1.0
    return float(np.dot(m.rates[name], terms)) * factor


COLD = ("first", "test")


def coding_name(by_admm: bool, kind: str) -> str:
    """The name of a coding's coefficients: ADMM's codings on the way are rough, those of the active set are exact."""
    if by_admm:
        return "admm " + {"second": "middle", "later": "middle"}.get(kind, kind)
    return "active " + ("cold" if kind in COLD else "second" if kind == "second" else "later")


def _codings(m: Machine, runs: Iterable[tuple[Shape, Timed]], single: bool) -> Iterator[tuple[str, Array, float]]:
    """Name, terms and seconds of every coding in one precision, without those that either solver may have done."""
    for s, timed in runs:
        last, before = len(timed.codings) - 1, 0.0
        if s.single != single:
            continue
        for i, (k, seconds) in enumerate([*timed.codings, (timed.test_k, timed.test_coding)]):
            kind = kind_of(i, last) if i <= last else "test"
            n, start = (s.L, k) if kind == "test" else (s.n, before or k)
            before = k
            if 0.5 < admm_margin(n, s.r, start) < 2:
                continue
            atoms = 0.0 if kind == "test" else min(s.r / s.n, 1.0)
            by_admm = prefers_admm(n, s.r, start)
            terms = work.coding(n, s.p, s.r, k, rate(m, s), m.product32, by_admm, atoms)
            yield coding_name(by_admm, kind), terms, seconds


def kind_of(i: int, last: int) -> str:
    """What pass i of a fit is, whose last pass has the number ``last``."""
    return "first" if i == 0 else "last" if i == last else "second" if i == 1 else "later"


def _least(rows: Sequence[tuple[Array, float]], products: Sequence[int]) -> list[float]:
    """Non-negative coefficients with the least logarithms of errors: half as much is as wrong as twice as much.

    Coefficients of ``products`` are at least :data:`_LEAST_PRODUCTS`, because small runs may not show them at all.
    """
    T, t = np.array([terms for terms, _ in rows]), np.array([max(seconds, 1e-3) for _, seconds in rows])
    floor = np.zeros(T.shape[1])
    floor[list(products)] = _LEAST_PRODUCTS
    unit = np.maximum(T.mean(axis=0), 1e-12)
    start = np.maximum(nnls(T / t[:, None], np.ones(len(t)))[0], floor) * unit + 1e-4
    found = least_squares(
        lambda c: np.log(T / unit @ c / t), start, bounds=(floor * unit, np.inf), loss="soft_l1", f_scale=0.3
    )
    return [float(c) for c in found.x / unit]


def _growth(runs: Sequence[tuple[Shape, Timed]]) -> dict[str, float]:
    """The exponents of :func:`zsl.costs.work.densities` and :func:`zsl.costs.work.test_density`."""
    rows, change, test, later = [], [], [], []
    for s, timed in runs:
        ks = [k for k, _ in timed.codings]
        first = work.densities(s, {"one": 0, "k/p": 0, "n/r": 0, "later": 0})[0]
        rows.append([1.0, math.log(s.k / s.p), math.log(s.n / s.r)])
        change.append(math.log(ks[1] / first))
        test.append(math.log(timed.test_k / s.k))
        later += [(math.log(t), math.log(ks[t] / first), math.log(ks[1] / first)) for t in range(2, len(ks))]
    x = lsq_linear(np.array(rows), np.array(change)).x
    y = lsq_linear(np.array(rows), np.array(test)).x
    fall = [(b / a - 1) / t for t, b, a in later if abs(a) > 0.05]
    return {
        "one": float(x[0]), "k/p": float(x[1]), "n/r": float(x[2]), "later": float(np.median(fall)),
        "test one": float(y[0]), "test k/p": float(y[1]), "test n/r": float(y[2]),
    }  # fmt: skip
