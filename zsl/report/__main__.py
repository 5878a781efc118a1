"""Tables and figures from the records of runs: ``python -m zsl.report NAME [FOLDER] [--run] [KEY=VALUE ...]``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from zsl.errors import Parser, UserError, exit_status, writing
from zsl.report import cells, experiments, tables
from zsl.report.compare import compare
from zsl.report.dashboard import dashboard
from zsl.report.diff import diff
from zsl.report.figures import save_figure
from zsl.report.formats import Table, save, show
from zsl.report.panel import newest, panel
from zsl.report.records import read_records

EXPERIMENTS = {
    "table0": "the paper's Table 0: coupled dictionaries on all data, features and splits",
    "table1": "the paper's Table 1: methods, VGG19",
    "table3": "the paper's Table 3: methods, Inception",
    "ablation": "every part left out in turn, with paired differences",
    "sensitivity": "curves over lam, gamma, rho, n_atoms, n_neighbors, mu",
    "learning_curve": "curves over training images and seen classes",
    "imbalance": "curves over the ratio of the unseen classes' sizes",
}
OTHERS = {
    "compare": "methods on the same splits: compare FOLDER [METRIC]",
    "figure": "the 2 x 3 panel of predicted attributes",
    "diff": "two sweeps beside each other, with paired differences: diff BEFORE AFTER",
    "dashboard": "one page of a sweep that opens from disk: dashboard FOLDER",
    "theory": "the paper's bounds, corrected, with a dataset's numbers put in: theory [dataset=NAME ...]",
}


def parser(name: str) -> argparse.ArgumentParser:
    """The options of one command."""
    out = Parser(prog=f"python -m zsl.report {name}", description={**EXPERIMENTS, **OTHERS}[name])
    if name == "theory":
        from zsl.report.theory import add_options

        add_options(out)
        return out
    if name in EXPERIMENTS or name == "figure":
        out.add_argument("words", nargs="*", metavar="FOLDER | KEY=VALUE",
                         help="folder of records (default multirun), overrides of the runs, data=NAME")  # fmt: skip
        out.add_argument("--run", action="store_true", help="first run what is missing and whose data is here")
    for folder in {"compare": ["folder"], "diff": ["before", "after"], "dashboard": ["folder"]}.get(name, []):
        out.add_argument(folder, type=Path)
    if name == "compare":
        out.add_argument("metric", nargs="?", default="acc_class")
    if name == "diff":
        out.add_argument("--metric", default="acc_class")
    if name == "figure":
        out.add_argument("--seed", type=int, default=0, help="of t-SNE (default 0)")
    if name != "compare":
        out.add_argument("--out", type=Path, help="where files go (default: beside the records)")
    return out


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command; exit with 1 after a mistake or a failed run, and with 130 after Ctrl-C."""
    words = list(sys.argv[1:] if argv is None else argv)
    interrupted = "interrupted; finished runs are complete in their folders."
    if status := exit_status("zsl", lambda: _work(words), interrupted=interrupted):
        sys.exit(status)


def _work(argv: list[str]) -> None:
    commands = {**dict.fromkeys(EXPERIMENTS, _experiment), "compare": _compare, "figure": _figure, "diff": _diff,
                "dashboard": _dashboard, "theory": _theory}  # fmt: skip
    overview = Parser(
        prog="python -m zsl.report", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="\n".join(f"  {name:15}{about}" for name, about in {**EXPERIMENTS, **OTHERS}.items()),
    )  # fmt: skip
    overview.add_argument("name", choices=commands, metavar="NAME")
    name = overview.parse_args(argv[:1]).name
    arguments = parser(name).parse_intermixed_args(argv[1:])
    arguments.name = name
    command: Callable[[argparse.Namespace], None] = commands[name]
    command(arguments)


def _experiment(arguments: argparse.Namespace) -> None:
    name = arguments.name
    folder, output, extra = _words(arguments)
    failed: list[str] = []
    if arguments.run:
        chosen = cells.blocks(name, extra)
        failed = cells.fill([one for one in cells.cells(name, extra) if one.data in chosen], output)
    records = read_records(folder, needed=False)
    figures: dict[str, Any] = {}
    if name.startswith("table"):
        made = [tables.table0(records, extra) if name == "table0" else tables.methods(name, records, extra)]
    elif name == "ablation":
        made = experiments.ablation(records, extra)
    else:
        made, figures = experiments.curves(name, records, extra)
    _write(made, arguments.out or folder / "report", name, figures)
    if failed:
        print(f"zsl: {len(failed)} of the commands failed:", *(f"    {c}" for c in failed), sep="\n", file=sys.stderr)
        sys.exit(1)


def _write(tables: Sequence[Table], out: Path, name: str, figures: Mapping[str, Any] = MappingProxyType({})) -> None:
    """Print tables, and write them and figures to a folder."""
    for table in tables:
        show(table)
    with writing(out, "set --out to another folder"):
        paths = [path for title, figure in figures.items() for path in save_figure(figure, out, title)]
        paths += save(tables, out, name, [f"{title}.png" for title in figures])
    if paths:
        print("written: " + " ".join(map(str, paths)))


def _words(arguments: argparse.Namespace) -> tuple[Path, list[str], list[str]]:
    """The folder of records, the override that sends runs there, and the other overrides."""
    folders = [w for w in arguments.words if "=" not in w]
    overrides = [w for w in arguments.words if "=" in w]
    place = cells.value_of(overrides, "output_dir")
    if len(folders) + (place is not None) > 1:
        raise UserError(f"one folder of records is needed, not several: {', '.join((*folders, place or ''))}.")
    given = folders[0] if folders else place
    if folders and not Path(folders[0]).is_dir() and not arguments.run:
        raise UserError(f"{folders[0]} does not exist or is no folder; name the folder of records, or add --run.")
    output = [f"output_dir={given}"] if given else []
    return Path(given or "multirun"), output, [o for o in overrides if cells.key_of(o) != "output_dir"]


def _figure(arguments: argparse.Namespace) -> None:
    if not 0 <= arguments.seed < 2**32:
        raise UserError(f"--seed {arguments.seed} is out of range; it is a whole number from 0 to {2**32 - 1}.")
    folder, output, extra = _words(arguments)
    if extra and not arguments.run:
        raise UserError(f"{' '.join(extra)} is for a run; add --run, or name the folder of one.")
    if arguments.run and (status := cells.start(["experiment=figure", *extra, *output])) != 0:
        sys.exit(status)
    if arguments.run or not output:
        folder /= "figure"  # where the experiment puts its runs
    folder = newest(folder)
    figure, caption = panel(folder, seed=arguments.seed)
    with writing(arguments.out or folder, "set --out to another folder"):
        paths = save_figure(figure, arguments.out or folder, "figure")
        paths[0].with_suffix(".txt").write_text(caption + "\n", encoding="utf-8")
    print(caption)
    print("written: " + " ".join(map(str, paths)))


def _compare(arguments: argparse.Namespace) -> None:
    show(compare(read_records(arguments.folder), arguments.metric))


def _diff(arguments: argparse.Namespace) -> None:
    table = diff(read_records(arguments.before), read_records(arguments.after), arguments.metric)
    _write([table], arguments.out or arguments.after / "report", "diff")


def _dashboard(arguments: argparse.Namespace) -> None:
    path = arguments.out or arguments.folder / "dashboard.html"
    page = dashboard(read_records(arguments.folder), arguments.folder.resolve().name, path.parent)
    with writing(path, "set --out to another file"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page, encoding="utf-8")
    print(f"written: {path}")


def _theory(arguments: argparse.Namespace) -> None:
    from zsl.report.theory import table

    show(table(arguments))


if __name__ == "__main__":
    main()
