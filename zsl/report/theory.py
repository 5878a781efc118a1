"""What the paper's theory says of a dataset: ``zsl report theory [KEY=VALUE ...] [--zeta ...]``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NamedTuple

from zsl import theory
from zsl.checks import Array
from zsl.config import compose, resolve
from zsl.config.objects import build
from zsl.data.dataset import ZeroShotData
from zsl.data.load import load_table, load_transforms
from zsl.data.preprocess import preprocess
from zsl.models.initial_atoms import default_n_atoms
from zsl.report.formats import NONE, Table


class Problem(NamedTuple):
    """The sizes that the theory is about."""

    name: str
    n_images: int
    p: int
    q: int
    r: int
    n_unseen: int
    Z_unseen: Array | None = None
    """(M, q) pre-processed attributes of the unseen classes, if they are known"""


# The sizes of AwA2 with ResNet50 features and the proposed split; r is the least that the paper allows, r > max(p, q).
AWA2 = Problem("the size of AwA2 with ResNet50 features", 23527, 2048, 85, 2049, 10)


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE",
                        help="as for zsl.main: dataset=awa2 split=proposed (default: AwA2's sizes alone)")  # fmt: skip
    parser.add_argument("--zeta", type=float, default=0.05, help="probability of a wrong label (%(default)s)")
    parser.add_argument("--delta", type=float, default=0.05, help="that Theorem 1 fails (%(default)s)")
    parser.add_argument("--lipschitz", type=float, default=1.0, help="L of Theorem 1 (%(default)s)")
    parser.add_argument("--xi", type=float, default=0.01, help="of Theorem 2, unknown (%(default)s)")
    parser.add_argument("--constant", type=float, default=1.0, help="c' of Theorem 2, unknown (%(default)s)")
    parser.add_argument("--n-active", type=int, default=100, help="entries of a code, for its cost (%(default)s)")
    parser.add_argument("--n-atoms", type=int, help="r (default: the model's rule)")


def load(overrides: Sequence[str]) -> Problem:
    """The problem that ``dataset=NAME`` and other overrides of the main command name."""
    config = resolve(compose(overrides))
    dataset, feature, allow = config["dataset"], config["feature"], tuple(config["allow_targets"])
    images = load_table(dataset, feature["name"], dataset["semantics"].get("source"), allow)
    split = build(config["split"], "split", allow_targets=allow)(images)
    raw = ZeroShotData.from_table(images, split, missing=dataset["semantics"].get("missing", "mean"))
    data = preprocess(raw, *load_transforms(dataset, feature, allow))
    n, p, q = *data.X.shape, data.Z_unseen.shape[1]
    name = f"{data.name} / {data.feature} / {data.split} split"
    return Problem(name, n, p, q, default_n_atoms(n, p, q), len(data.Z_unseen), data.Z_unseen)


def table(options: argparse.Namespace) -> Table:
    """Each quantity, corrected and as the paper prints it.

    Raises
    ------
    UserError
        For data that is not here, and constants out of range.
    """
    problem = load(options.overrides) if options.overrides else AWA2
    problem = problem._replace(r=problem.r if options.n_atoms is None else options.n_atoms)
    return corrected_and_printed(problem, options)


def corrected_and_printed(problem: Problem, o: argparse.Namespace) -> Table:
    """The table for given sizes; ``o`` holds the constants that :func:`add_options` names."""
    name, N, p, q, r, M, Z = problem
    title = f"Theory for {name}: {N:,} images, p = {p} features, q = {q} attributes, r = {r} atoms, {M} unseen classes"
    constants = f"zeta {o.zeta:g}, delta {o.delta:g}, L {o.lipschitz:g}, xi {o.xi:g}, c' {o.constant:g}"
    out = Table("theory", title, constants, ["quantity", "corrected", "as printed"])

    def add(what: str, corrected: Any, printed: Any = NONE) -> None:
        out.rows.append([what, *(v if isinstance(v, str) else f"{v:,.4g}" for v in (corrected, printed))])

    parameters = theory.n_parameters(p, q, r)
    bound = theory.deviation_bound(N, parameters, o.delta, o.lipschitz)
    asked = [0.1, 1.0]
    if Z is not None:
        distances = theory.class_distances(Z)
        radius = theory.epsilon_max(distances, o.zeta, M - 1)
        needed = theory.mean_square_needed(radius, o.zeta)
        add("least distance between unseen classes", distances[0])
        add("error below which no label can change: the least over classes", theory.safe_radius(Z).min())
        add("epsilon_max, the error at which a label is wrong with probability zeta (Eq. 12)", radius)
        add(
            "smallest zeta that so few distances can tell from 0",
            theory.nearest_distance_cdf(1 / len(distances), M - 1),
        )
        add("mean squared error that it needs", needed, theory.mean_square_needed(radius, o.zeta, as_printed=True))
        asked += [needed] if needed > 0 else []
    add("entries of the dictionaries", parameters, theory.n_parameters(p, q, r, as_printed=True))
    add("bound on the deviation (Theorem 1); 1 or more excludes nothing", bound,
        theory.deviation_bound(N, p * r, o.delta, o.lipschitz))  # fmt: skip
    for deviation in asked:
        add(f"images needed for a deviation of {deviation:.3g}",
            theory.images_needed(deviation, parameters, o.delta, o.lipschitz),
            theory.images_needed(deviation, p * r, o.delta, o.lipschitz))  # fmt: skip
    recovery = theory.recovery_probability(p, o.xi)
    add(
        "probability that a code is recovered (Theorem 2)",
        recovery,
        theory.recovery_probability(p, o.xi, as_printed=True),
    )
    limits = [theory.sparsity_limit(p, r, o.constant, as_printed=w) if r > p else "needs r > p" for w in (False, True)]
    add("entries of a code that Theorem 2 allows", *limits)
    product = theory.label_probability(o.delta, recovery, o.zeta, share=o.zeta)
    holds = Z is not None and needed > 0 and bound <= needed
    add("probability of a right label (Eq. 14) with these images", product if holds else "nothing follows",
        (1 - o.delta) * theory.recovery_probability(p, o.xi, as_printed=True) * (1 - o.zeta))  # fmt: skip
    k = min(o.n_active, p, r)
    costs = [(theory.dictionary_cost(p, q, r, M, k, as_printed=w).total,
              theory.network_cost(p, [p, p], q, M, as_printed=w).total) for w in (False, True)]  # fmt: skip
    add(f"multiplications for a test image, {k} active atoms (section 4.1)", *(c[0] for c in costs))
    add(f"the same for a network with two hidden layers of {p}", *(c[1] for c in costs))
    out.notes = ["docs/theory.md explains each line, and what the theorems assume."]
    return out
