"""Fits and predictions that no machine here can run, on paper: nodes of many cores, a cluster, and a GPU.

Everything that could not be measured is an assumption with a name: :data:`CORES`, :data:`SCALING`, :data:`DASK`,
:data:`GPU`, :data:`GPU_SHARE`, :data:`DOUBLE` and :data:`BUS`.
"""

from __future__ import annotations

from dataclasses import replace

from zsl.costs import model, work
from zsl.costs.calibration import PRODUCTS, coding_name, coding_seconds, kind_of
from zsl.costs.machine import Machine
from zsl.costs.work import Shape
from zsl.inference.blocks import MOST_SCORES

CORES = 32
"""Cores of a node"""
SCALING = 0.7
"""Share of the speed of all cores that many cores reach together"""
DASK = 0.9
"""Share of the speed of all nodes that a Dask cluster reaches"""
GPU = 33.5e12
"""Multiplications per second of a GPU in single precision: 67e12 floating-point operations, as published for an H100"""
GPU_SHARE = 0.3
"""Share of that speed which products of codes reach"""
DOUBLE = 0.5
"""Speed of a GPU in double precision as a share of that in single precision, as published for an H100"""
BUS = 25e9
"""Bytes per second between a GPU and the memory of its node"""
IMAGENET = Shape(n=14_000_000, p=2048, r=2560, q=512, L=1_400_000, M=21_841, k=70.0, n_iter=2, K=1, single=True)
"""ImageNet-21k with features of 2048 dimensions and 512 attributes (or dimensions of text); a tenth is tested"""
NODES = (1, 16)


def node(m: Machine, cores: int = CORES) -> Machine:
    """A machine of many cores like those of this one."""
    f = max(1.0, SCALING * cores / m.about.get("cores", 1))
    rates = {name: [c if _in_seconds(name, i) else c / f for i, c in enumerate(cs)] for name, cs in m.rates.items()}
    return replace(
        m,
        product=m.product * f,
        product32=m.product32 * f,
        loading=min(m.loading * f, m.disk),
        rates=rates,
    )


def _in_seconds(name: str, i: int) -> bool:
    """Whether a coefficient multiplies a time that the faster machine has made shorter already, or is a factor."""
    kind = name.split()[0]
    return kind == "single" or i in {"active": (0,), "admm": (0, 1, 2, 3), **PRODUCTS}[kind]


def fit_hours(s: Shape, m: Machine, nodes: int, gpu: bool) -> dict[str, float]:
    """Hours of the parts of a fit on a cluster: codes, sums over codes, and the atoms, which are not divided."""
    ks = work.densities(s, m.growth)
    divided = nodes * (DASK if nodes > 1 else 1.0)
    if gpu:
        coding = s.n * sum(_on_gpu(s, m, kind_of(i, s.n_iter)) for i in range(len(ks)))
    else:
        piece = 8192
        coding = sum(
            coding_seconds(m, s, piece, s.p, k, kind_of(i, s.n_iter), k_start=ks[max(i - 1, 0)], pieces=s.n / piece)
            for i, k in enumerate(ks)
        )
    terms = work.rest(s, ks, m.product32) * m.rates["rest"]
    atoms = float(terms[4] + terms[6])
    sums = float(terms.sum()) - atoms
    if gpu:
        sums += s.n * len(ks) * _sums_on_gpu(s) - float(terms[0] + terms[1])
    parts = {"codes": coding / divided, "sums over codes": sums / divided, "atoms": atoms}
    return {name: s.K * seconds / 3600 for name, seconds in parts.items()}


def _on_gpu(s: Shape, m: Machine, kind: str) -> float:
    """Seconds of coding one row by ADMM on a GPU, its dense code brought back."""
    rate = GPU * GPU_SHARE
    terms = work.coding(1, s.p, s.r, s.k, rate, rate, by_admm=True)
    products = s.p * s.r / rate  # the products among the atoms are shared by all rows
    rates = m.rates[coding_name(True, kind)]
    return rates[0] * products + rates[1] * float(terms[1]) + 4 * s.r / BUS


def _sums_on_gpu(s: Shape) -> float:
    """Seconds of adding one row to ``A'A``, in double precision, and to ``A'X`` on a GPU, to which its code is sent."""
    rate = GPU * GPU_SHARE
    return s.r**2 / (rate * DOUBLE) + s.r * s.p / rate + ((8 + s.itemsize) * s.r + s.itemsize * s.p) / BUS


def imagenet(m: Machine, s: Shape = IMAGENET) -> list[dict[str, float | str]]:
    """Hours of ImageNet-21k on one node and on sixteen, with and without a GPU in each, and what they are spent on."""
    rows: list[dict[str, float | str]] = []
    big = node(m)
    parts = {part.name: part.seconds / 3600 for part in model.estimate(s, big)}
    for nodes in NODES:
        divided = nodes * (DASK if nodes > 1 else 1.0)
        for gpu in (False, True):
            fit = fit_hours(s, big, nodes, gpu)
            longest = max(fit, key=fit.__getitem__)
            rows.append({
                "nodes": nodes, "GPU": "yes" if gpu else "no", "load (h)": parts["load"] / divided,
                "fit (h)": sum(fit.values()), **{f"{name} (h)": hours for name, hours in fit.items()},
                "most of the fit": longest, "AAg (h)": parts["aag"] / divided, "AAw (h)": parts["aaw"] / divided,
                "spreading, one node (h)": parts["taaw"],
            })  # fmt: skip
    return rows


def imagenet_memory(s: Shape = IMAGENET) -> dict[str, float]:
    """GiB of what ImageNet-21k holds if it is held whole, and in the form that zsl uses."""
    scores, gib = float(s.L) * s.M, 2**30
    return {
        "features of training images": float(s.n) * s.p * s.itemsize / gib,
        "their codes, dense": float(s.n) * s.r * s.itemsize / gib,
        "their codes, sparse": float(s.n) * s.k * (s.itemsize + 4) / gib,
        "scores of all test images": 8 * scores / gib,
        "scores of one block": 8 * MOST_SCORES / gib,
        "the best 5 classes of all test images": 5 * 16 * float(s.L) / gib,
        "labels while they spread": 6 * 8 * float(s.L + s.M) * s.M / gib,
        "graph of 15 neighbours": 2 * 15 * 12 * float(s.L + s.M) / gib,
        "graph of all pairs": 8 * float(s.L + s.M) ** 2 / gib,
    }
