"""Seconds and bytes of a run from its sizes and the constants of a machine."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from zsl.costs import work
from zsl.costs.calibration import coding_seconds, kind_of, rate
from zsl.costs.machine import Machine
from zsl.costs.work import Shape
from zsl.graph import EXACT_UP_TO
from zsl.inference.blocks import MOST_IMAGES, MOST_SCORES
from zsl.sparse.learner import rows_of_a_piece

# Nodes up to which neighbours are exact, and seconds per node of the approximate search above, at 22,000 nodes, in
# units of 1e6 multiplications, and the exponent of its growth: by docs/sparse-coding.md, 7.6 s for 100,000 images.
_SEARCH, _GROWTH = 1.5, 1.29


@dataclass(frozen=True)
class Part:
    """What a part of a run costs."""

    name: str
    seconds: float
    memory: float
    """Largest bytes while it runs, those of the process and the data included"""
    dominant: str
    """What most of the time goes into"""


def estimate(s: Shape, m: Machine, stages: tuple[str, ...] = ("aag", "aaw", "taaw")) -> list[Part]:
    """The parts of a run: load, fit, and the stages of inference that were asked for.

    Every stage is without the stages before it; ``results.json`` has their sum.

    Examples
    --------
    >>> m = Machine(1e10, 2e10, 1e9, 1e9, base=4e8)
    >>> shape = Shape(n=1000, p=64, r=80, q=16, L=100, M=5, k=10)
    >>> round(load_alone(shape, m).memory - m.base)  # float64, the features of the reader and those of the split
    1126400
    """
    parts = [load_alone(s, m), fit(s, m)]
    k = work.test_density(s, m.growth)
    for name in stages:
        parts.append({"aag": _agnostic, "aaw": _aware, "taaw": _spreading}[name](s, m, k))
    return parts


def load_alone(s: Shape, m: Machine) -> Part:
    """Read the features, check and hash them, and divide them into training and test images."""
    size = float(s.n + s.L) * s.p * s.itemsize
    return Part("load", size / m.loading, m.base + 2 * size, "disk" if m.disk < 2 * m.loading else "checks and copies")


def fit(s: Shape, m: Machine) -> Part:
    """Learn K pairs of dictionaries."""
    ks, product = work.densities(s, m.growth), rate(m, s)
    share, coding = min(s.r / max(s.n, 1), 1.0), 0.0
    for i, k in enumerate(ks):
        online = s.batch_size is not None
        kind = "first" if online else kind_of(i, s.n_iter)
        n = min(s.n, s.batch_size or rows_of_a_piece(s.r, s.itemsize))
        start = k if i == 0 or online else ks[i - 1]
        atoms = share if i == 0 or not online else 0.0
        coding += coding_seconds(m, s, n, s.p, k, kind, k_start=start, atoms=atoms, pieces=s.n / n)
    terms = work.rest(s, ks, product) * m.rates["rest"]
    seconds = s.K * (coding + float(terms.sum()))
    words = (
        "sums over codes",
        "sums over codes",
        "objective",
        "codes to sparse form",
        "atoms",
        "copies",
        "semantic atoms",
        "overhead",
    )
    names = {"coding": coding}
    for word, value in zip(words, terms):
        names[word] = names.get(word, 0.0) + float(value)
    return Part("fit", seconds, fit_bytes(s, m, ks), max(names, key=names.__getitem__))


def data_bytes(s: Shape) -> float:
    """Bytes of the features before and after pre-processing."""
    return 2.0 * (s.n + s.L) * s.p * s.itemsize


def fit_bytes(s: Shape, m: Machine, ks: list[float]) -> float:
    """Largest memory of a fit: data, the codes of one piece and of all, and matrices among the atoms."""
    size, rows = s.itemsize, min(s.n, s.batch_size or rows_of_a_piece(s.r, s.itemsize))
    dense = 3.0 * rows * s.r * size + min(rows, MOST_IMAGES) * s.r * size
    kept = 0.0 if s.batch_size else s.n * (ks[-1] + ks[max(len(ks) - 2, 0)]) * (size + 4)
    kept += 0.0 if s.batch_size else (2 * s.K - 1) * s.n * ks[-1] * (size + 4)
    atoms = s.r**2 * (5 * 8 + 2 * size) + 5.0 * s.r * s.p * size
    return m.base + data_bytes(s) + dense + kept + atoms + 2.0 * s.n * s.q * 8


def model_bytes(s: Shape, k: float) -> float:
    """What is held after a fit: dictionaries and the codes of the training images."""
    return s.K * s.r * (s.p + s.q) * s.itemsize + (0.0 if s.batch_size else 2 * s.K * s.n * k * (s.itemsize + 4))


def codes_bytes(s: Shape, copies: float) -> float:
    """Dense codes of all test images under all dictionaries."""
    return copies * s.L * s.K * s.r * s.itemsize


def _agnostic(s: Shape, m: Machine, k: float) -> Part:
    coded = coding_seconds(m, s, s.L, s.p, k, "test")
    terms = work.agnostic(s, coded, rate(m, s)) * m.rates["aag"]
    memory = _held(s, m) + codes_bytes(s, 2.5) + _scores_bytes(s, 1)
    return Part(
        "aag", s.K * float(terms.sum()), memory, _word(terms, "coding", "dense codes", "products", "scores", "overhead")
    )


def _aware(s: Shape, m: Machine, k: float) -> Part:
    coded = coding_seconds(m, s, s.L, s.p + s.q, k, "last", single=False)
    terms = work.aware(s, k, coded, m.product) * m.rates["aaw"]
    work_space = 10 * 8 * min(s.L * s.M, MOST_SCORES) + 3 * 8.0 * s.r**2 + 8.0 * s.r * (s.p + s.q)
    memory = _held(s, m) + codes_bytes(s, 4) + _scores_bytes(s, 2) + work_space
    words = ("coding", "products", "entropy of the classes", "objective", "dense codes", "overhead")
    return Part("aaw", s.K * float(terms.sum()), memory, _word(terms, *words))


def _spreading(s: Shape, m: Machine, k: float) -> Part:
    nodes = s.L + s.M
    memory = _held(s, m) + codes_bytes(s, 3) + _scores_bytes(s, 2) + 8.0 * nodes * s.M * 6 + 8.0 * nodes * 15 * 8
    terms = work.spreading(s, m.product) * m.rates["taaw"]
    if nodes > EXACT_UP_TO:
        search = 1e6 * _SEARCH / m.product * nodes * (nodes / EXACT_UP_TO) ** (_GROWTH - 1)
        terms = np.array([search, 0.0, *terms[2:]])
    return Part(
        "taaw", float(terms.sum()), memory, _word(terms, "neighbours", "neighbours", "labels", "graph", "overhead")
    )


def _held(s: Shape, m: Machine) -> float:
    return m.base + data_bytes(s) + model_bytes(s, work.densities(s, m.growth)[-1])


def _scores_bytes(s: Shape, arrays: float) -> float:
    return arrays * 8.0 * s.L * s.M


def _word(terms: np.ndarray, *words: str) -> str:
    return words[int(np.argmax(terms))]


def peak(parts: list[Part]) -> float:
    """The largest memory of all parts."""
    return max(part.memory for part in parts)


def remedies(s: Shape, m: Machine, limit: float, stages: tuple[str, ...]) -> list[str]:
    """Settings that bring the peak below a limit (bytes), each alone, the least change first; all of them if none does.

    Every remedy is tried on the model before it is named.
    """
    few = min(2048, s.n)
    atoms = next(
        (r for r in (s.r // 2**i for i in range(1, 12)) if r >= 1 and _peak(replace(s, r=r), m, stages) < limit), 0
    )
    tried = {
        "feature.dtype=float32": replace(s, single=True),
        f"model.batch_size={few}": replace(s, batch_size=few),
        f"model.n_atoms={atoms}": replace(s, r=max(atoms, 1)),
        "model.n_dictionaries=1": replace(s, K=1),
    }
    found = [
        name for name, other in tried.items() if other != s and _peak(other, m, stages) < limit and "=0" not in name
    ]
    if stages and _peak(s, m, ("aag",)) < limit and stages != ("aag",):
        found.append("inference=aag")
    return found


def _peak(s: Shape, m: Machine, stages: tuple[str, ...]) -> float:
    return peak(estimate(replace(s, k=min(s.k, s.r)), m, stages))
