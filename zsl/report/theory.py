"""What the paper's theory says about a dataset: ``python -m zsl.report.theory [dataset=NAME ...] [--zeta ...]``.

Without a dataset: the size of AwA2 with ResNet50 features, and its attribute table where that is on this machine.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from zsl import theory
from zsl.checks import Array
from zsl.config import build, compose, resolve
from zsl.data.cache import Folder
from zsl.data.dataset import ZeroShotData
from zsl.data.load import load_table
from zsl.data.preprocess import Preprocess, preprocess
from zsl.data.readers import xlsa17
from zsl.data.readers.files import read_mat
from zsl.data.readers.tables import class_list
from zsl.errors import UserError, unforeseen
from zsl.models.coupled import default_n_atoms

_ASKED = (0.1, 1.0)  # deviations whose price in images is always shown


class Problem(NamedTuple):
    """The sizes that the theory is about."""

    name: str
    n_images: int
    p: int
    q: int
    r: int
    n_unseen: int
    Z_unseen: Array | None
    """(M, q) pre-processed attributes of the unseen classes; None where there is no table"""
    note: str = ""
    """What stands for something that is not here"""


# AwA2 as the paper uses it: ResNet50 features, 85 attributes, 10 unseen classes. The paper does not say how many images
# train; these are the proposed split's. r is the least that it allows, r > max(p, q).
AWA2 = Problem("AwA2's size, ResNet50 features", 23527, 2048, 85, 2049, 10, None)


@dataclass
class Section:
    """A heading, figures under it, and what they mean in sentences."""

    title: str
    figures: list[tuple[str, str]] = field(default_factory=list)
    statements: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Constants:
    """What the theorems leave open; the command line sets them."""

    zeta: float = 0.05
    delta: float = 0.05
    lipschitz: float = 1.0
    xi: float = 0.01
    constant: float = 1.0
    n_active: int = 100


def sections(problem: Problem, constants: Constants) -> list[Section]:
    """The report: the label step, Theorem 1, Theorem 2, their product, section 4.1's costs.

    Raises
    ------
    UserError
        For constants out of range.
    """
    label, radius = _label_step(problem, constants)
    images, guaranteed = _theorem_1(problem, constants, radius)
    codes, recovery = _theorem_2(problem, constants)
    return [
        label,
        images,
        codes,
        _product(problem, constants, recovery, guaranteed),
        _costs(problem, constants),
    ]


def _label_step(problem: Problem, constants: Constants) -> tuple[Section, theory.Distance | None]:
    out = Section("From attributes to labels (Eq. 12)")
    if problem.Z_unseen is None or len(problem.Z_unseen) < 2:
        out.statements.append(
            "No attributes of two or more unseen classes are here, so epsilon_max is unknown; "
            "name a dataset that is on this machine: dataset=NAME dataset.root=FOLDER."
        )
        return out, None
    distances, rivals = theory.class_distances(problem.Z_unseen), len(problem.Z_unseen) - 1
    radius = theory.epsilon_max(distances, constants.zeta, rivals)
    finest = theory.finest_zeta(len(distances), rivals)
    safe = theory.safe_radius(problem.Z_unseen)
    median = np.median(distances)
    out.figures += [
        ("distances between unseen classes: least, median, largest",
         f"{distances[0]:.3f}, {median:.3f}, {distances[-1]:.3f}"),
        (f"epsilon_max at zeta = {constants.zeta:g}, {rivals} rivals", f"{radius:.3f}"),
        ("smallest zeta that these distances can tell from 0", f"{finest:.3f}"),
        ("error below which no label can change (half the distance to the nearest class): least, median",
         f"{safe.min():.3f}, {np.median(safe):.3f}"),
        (f"mean squared error for {1 - constants.zeta:.0%} of predictions within epsilon_max (Markov)",
         f"{theory.mean_square_needed(radius, constants.zeta):.2g}"),
        ("the same as the paper reads it: E d^2 <= epsilon_max", f"{theory.mean_square_as_printed(radius):.3f}"),
    ]  # fmt: skip
    if constants.zeta < finest:
        out.statements.append(
            f"{len(distances)} distances cannot resolve zeta = {constants.zeta:g}: epsilon_max is the smallest of them."
        )
    out.statements += [
        "Assumed: the rivals are independent draws (by the paper) and predictions fall near prototypes (ours, "
        "to have distances at all). The paper asks for a neighbour nearer than the true class; meant is that none be.",
        "The paper compares a mean squared error with a distance; Markov's inequality gives what is needed instead.",
    ]
    return out, radius


def _theorem_1(problem: Problem, constants: Constants, radius: theory.Distance | None) -> tuple[Section, bool]:
    n, p, q, r = problem.n_images, problem.p, problem.q, problem.r
    both = theory.n_parameters(p, q, r)
    delta, lipschitz = constants.delta, constants.lipschitz
    bound = theory.deviation_bound(n, both, delta, lipschitz)
    out = Section(
        f"Theorem 1: how many images (delta = {delta:g}, Lipschitz constant {lipschitz:g})",
        [
            ("entries of both dictionaries, (p + q) r", f"{both:,}"),
            ("capacity (the paper's beta)", f"{theory.capacity(both, lipschitz):.3g}"),
            (f"bound on the deviation with {n:,} images", f"{bound:.3g}"),
            ("the same with the paper's count, p r", f"{theory.deviation_bound(n, p * r, delta, lipschitz):.3g}"),
        ],
    )
    asked = {f"a deviation of {d:g}": theory.MeanSquare(d) for d in _ASKED}
    needed = None
    if radius is not None:
        needed = theory.mean_square_needed(radius, constants.zeta)
        asked |= {
            "epsilon_max, as the paper reads it": theory.mean_square_as_printed(radius),
            "what Markov's inequality asks": needed,
        }
    for what, deviation in asked.items():
        if deviation > 0:
            count = theory.images_needed(deviation, both, delta, lipschitz)
            out.figures.append((f"images needed for {what}", f"{count:.2e} ({count / n:.1e} times what there is)"))
        else:
            out.figures.append((f"images needed for {what}", "no number is enough: this leaves no room for any error"))
    if bound >= 1:
        out.statements.append(
            f"VACUOUS: unit features under zero codes have a loss of 1, the bound is {bound:.3g}; it excludes nothing."
        )
    else:
        out.statements.append(
            f"Not vacuous: the expected loss is at most the mean training loss plus {bound:.3g}; zero codes have 1."
        )
    out.statements.append(
        "Assumed: independent images of one distribution, unit rows and atoms, a Lipschitz constant that nobody gives. "
        "Images of unseen classes are not from that distribution, and the loss is that of features, not of attributes: "
        "even a small bound would promise nothing about unseen classes."
    )
    return out, needed is not None and bound <= needed


def _theorem_2(problem: Problem, constants: Constants) -> tuple[Section, float]:
    p, r, xi, constant = problem.p, problem.r, constants.xi, constants.constant
    recovery = theory.recovery_probability(p, xi)
    out = Section(
        f"Theorem 2: recovering codes (xi = {xi:g}, c' = {constant:g})",
        [
            ("probability, 1 - exp(-p xi)", f"{recovery:.6g}"),
            ("as printed, 1 - exp(p xi)", f"{theory.recovery_probability_as_printed(p, xi):.3g}"),
        ],
    )
    if r > p:
        limit = theory.sparsity_limit(p, r, constant)
        out.figures += [
            ("entries allowed, min(c' p / log(r / p), p)", f"{limit:.0f}"),
            ("as printed, c' p log(r / p)", f"{theory.sparsity_limit_as_printed(p, r, constant):.3g}"),
        ]
        if limit >= p:
            out.statements.append(
                f"VACUOUS in k: at c' = {constant:g} the condition allows as many entries as there are features."
            )
    else:
        out.statements.append(f"Not applicable: the theorem needs more atoms than features, not r = {r} and p = {p}.")
    out.statements += [
        "As printed the probability is negative for every xi > 0, and the condition loosens with more atoms where it "
        "must tighten; both are corrected above.",
        "Assumed: a Gaussian random dictionary, which a learned one is not; xi and c' have no known values, those here "
        "are examples. With noise a code is recovered only up to an error in proportion to the noise.",
    ]
    return out, recovery


def _product(problem: Problem, constants: Constants, recovery: float, guaranteed: bool) -> Section:
    zeta, delta = constants.zeta, constants.delta
    printed = (1 - delta) * theory.recovery_probability_as_printed(problem.p, constants.xi) * (1 - zeta)
    out = Section(
        "Their product (Eq. 14)",
        [
            ("as printed", f"{printed:.3g}"),
            ("with Theorem 2's sign corrected", f"{theory.label_probability(delta, recovery, zeta):.3f}"),
            (f"and the share of predictions that Markov lets be far, {zeta:g}",
             f"{theory.label_probability(delta, recovery, zeta, share=zeta):.3f}"),
            (f"what the argument gives with {problem.n_images:,} images",
             f"{theory.label_probability(delta, recovery, zeta, share=zeta):.3f}" if guaranteed else "nothing"),
        ],
    )  # fmt: skip
    if guaranteed:
        out.statements.append(
            "Theorem 1's bound is small enough; the assumptions above remain, and the mean training loss comes on top."
        )
    else:
        out.statements.append(
            "VACUOUS: 1 - delta enters the product only with the images that Theorem 1 asks for. Without them the "
            "figures above promise nothing; accuracy has to be measured."
        )
    return out


def _costs(problem: Problem, constants: Constants) -> Section:
    p, q, r, m = problem.p, problem.q, problem.r, problem.n_unseen
    k = min(constants.n_active, p, r)
    hidden = (p, p)
    sparse = theory.dictionary_cost(p, q, r, m, k).total
    net = theory.network_cost(p, hidden, q, m).total
    out = Section(
        "Section 4.1: multiplications for one test image",
        [
            (f"dictionaries, {k} active atoms: p r + k^2 r + k^3 + k q + q M", f"{sparse:.2e}"),
            (f"dictionaries, as many active atoms as there can be, {min(p, r)}",
             f"{theory.dictionary_cost(p, q, r, m, min(p, r)).total:.2e}"),
            ("as printed: r^3 + q r + q M", f"{theory.dictionary_cost_as_printed(q, r, m).total:.2e}"),
            (f"a network with hidden layers {p}, {p}: p m1 + m1 m2 + m2 q + q M", f"{net:.2e}"),
            ("as printed: p q m1 m2 + q M", f"{theory.network_cost_as_printed(p, hidden, q, m).total:.2e}"),
        ],
    )  # fmt: skip
    ratio = sparse / net
    out.statements.append(
        f"The paper concludes that dictionaries are cheaper at test time. Corrected, with {k} active atoms they cost "
        f"{ratio:.2g} times what this network does: the conclusion {'is reversed' if ratio > 1 else 'holds here'}."
    )
    return out


def load(overrides: Sequence[str], n_atoms: int | None = None) -> Problem:
    """The problem that ``dataset=NAME`` and other overrides of the main command name.

    Where an xlsa17 folder has its class table but no features, p is AwA2's, and a note says so.
    """
    plain = resolve(compose(overrides))
    dataset, feature, allow = plain["dataset"], plain["feature"], tuple(plain["allow_targets"])
    try:
        table = load_table(dataset, feature["name"], dataset["semantics"].get("source"), allow)
    except UserError as error:
        found = _class_table(plain)
        if found is None:
            raise
        n, Z_unseen = found
        p, name = AWA2.p, dataset["name"]
        why = str(error).rstrip(".")
        note = f"The features could not be read, so p = {p} and the folder's own split are assumed ({why})."
    else:
        split = build(plain["split"], "split", allow_targets=allow)(table)
        raw = ZeroShotData.from_table(table, split, missing=dataset["semantics"].get("missing", "mean"))
        data = preprocess(raw, build(feature, "feature", allow_targets=allow), _semantics(plain))
        n, p, Z_unseen = len(data.X), data.X.shape[1], data.Z_unseen
        name, note = f"{data.name} / {data.feature} / {data.split} split", ""
    q = Z_unseen.shape[1]
    return Problem(name, n, p, q, n_atoms or default_n_atoms(n, p, q), len(Z_unseen), Z_unseen, note)


def default(n_atoms: int | None = None) -> Problem:
    """AwA2's size, with its attributes where they are on this machine."""
    found = _class_table(resolve(compose(["dataset=awa2"])))
    return AWA2._replace(r=n_atoms or AWA2.r, Z_unseen=None if found is None else found[1])


def _semantics(plain: dict[str, Any]) -> Preprocess:
    chosen = {k: v for k, v in plain["dataset"]["semantics"].items() if k not in ("source", "missing")}
    target = {"_target_": plain["feature"]["_target_"], **chosen}
    return build(target, "dataset.semantics", allow_targets=tuple(plain["allow_targets"]))


def _class_table(plain: dict[str, Any]) -> tuple[int, Array] | None:
    """Training images and (M, q) pre-processed attributes of unseen classes by an xlsa17 folder's own tables."""
    root, source = plain["dataset"].get("root"), plain["dataset"]["semantics"].get("source")
    if not isinstance(root, str) or root == "???":
        return None
    folder = Folder(xlsa17.unpacked(root))
    path = folder / "att_splits.mat"
    if not path.is_file():
        return None
    stored = read_mat(path)
    names = xlsa17.names_of(stored, folder, path, 0)
    listed = class_list(folder, "testclasses.txt", names)
    if listed is None:
        return None
    rows, missing, _ = xlsa17.read_semantics(folder, stored, path, names, source, 0)
    unseen = np.isin(names, listed)
    Z = np.array(rows, dtype=np.float64)
    if missing is not None:
        Z[missing] = np.nan
        Z = np.where(missing, np.nanmean(Z[~unseen], axis=0), Z)
    semantics = _semantics(plain).fit(Z[~unseen])
    return xlsa17.locations(stored, "trainval_loc", None, path).size, semantics.transform(Z[unseen])


def show(problem: Problem, found: Sequence[Section]) -> None:
    """Print the report."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = Console(width=130, highlight=False)  # a pipe or a log file has no width of its own
    console.print(
        f"Theory for {problem.name}: {problem.n_images:,} training images, p = {problem.p} features, q = {problem.q} "
        f"attributes, r = {problem.r} atoms, {problem.n_unseen} unseen classes. {problem.note}\n",
        markup=False,
    )
    for section in found:
        out = Table(title=section.title, title_justify="left", show_header=False, expand=False)
        out.add_column()
        out.add_column(justify="right")
        for what, value in section.figures:
            out.add_row(what, value)
        console.print(out if section.figures else section.title)
        for statement in section.statements:
            console.print(f"- {statement}", markup=False)
        console.print()


def main(argv: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser("python -m zsl.report.theory", description=__doc__.splitlines()[0])
    parser.add_argument(
        "overrides", nargs="*", metavar="KEY=VALUE", help="as for zsl.main: dataset=awa2 split=proposed"
    )
    usual = Constants()
    parser.add_argument("--zeta", type=float, default=usual.zeta, help="probability of a wrong label (%(default)s)")
    parser.add_argument("--delta", type=float, default=usual.delta, help="that Theorem 1 fails (%(default)s)")
    parser.add_argument("--lipschitz", type=float, default=usual.lipschitz, help="L of Theorem 1 (%(default)s)")
    parser.add_argument("--xi", type=float, default=usual.xi, help="of Theorem 2, unknown (%(default)s)")
    parser.add_argument("--constant", type=float, default=usual.constant, help="c' of Theorem 2, unknown (%(default)s)")
    parser.add_argument(
        "--n-active", type=int, default=usual.n_active, help="entries of a code, for its cost (%(default)s)"
    )
    parser.add_argument("--n-atoms", type=int, help="r (default: the model's rule)")
    arguments = parser.parse_intermixed_args(argv)
    try:
        if arguments.n_atoms is not None and arguments.n_atoms < 1:
            raise UserError(f"--n-atoms={arguments.n_atoms} is not accepted: it should be at least 1.")
        constants = Constants(**{name: getattr(arguments, name) for name in Constants.__dataclass_fields__})
        problem = load(arguments.overrides, arguments.n_atoms) if arguments.overrides else default(arguments.n_atoms)
        show(problem, sections(problem, constants))
    except UserError as error:
        print(f"zsl: {error}", file=sys.stderr)
        sys.exit(1)
    except (OSError, MemoryError) as error:
        print(f"zsl: {unforeseen(error)}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
