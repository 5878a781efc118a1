"""Tables and figures from the records of runs: ``zsl report NAME [FOLDER] [--run] [KEY=VALUE ...]``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from zsl.config import MOVED
from zsl.errors import Parser, UserError, exit_status, writing
from zsl.report import cells, experiments, filling, tables
from zsl.report.compare import compare, comparison
from zsl.report.dashboard import dashboard
from zsl.report.diff import diff
from zsl.report.figures import save_figure
from zsl.report.figures.scatter import newest, panel
from zsl.report.formats import Table, save, show
from zsl.report.overall import overall
from zsl.report.records import read_records, warn_of_old_names
from zsl.system import usable_cores

EXPERIMENTS = {
    "table1": "the paper's Table 1: coupled dictionaries on all data, features and splits",
    "table2": "the paper's Table 2: methods, VGG19",
    "table3": "the paper's Table 3: methods, Inception",
    "ablation": "every part left out in turn, with paired differences",
    "clip_or_not": "CLIP alone, with seen images and with unlabelled test images, on your own embeddings",
    "sensitivity": "curves over lam, gamma, rho, n_atoms, n_neighbors, mu",
    "learning_curve": "curves over training images and seen classes",
    "imbalance": "curves over the ratio of the unseen classes' sizes",
}
TABLES = ("table1", "table2", "table3")
OTHERS = {
    "tables": "table1, table2, table3 and compare (its stage quick), one after the other",
    "compare": "every method on the same splits: compare [FOLDER [METRIC]]; --run [stage=NAME] runs them first",
    "figure": "the 2 x 3 panel of predicted attributes",
    "diff": "two sweeps beside each other, with paired differences: diff BEFORE AFTER",
    "dashboard": "one page of a sweep that opens from disk: dashboard FOLDER",
    "theory": "the paper's bounds, corrected, with a dataset's numbers put in: theory [dataset=NAME ...]",
}


def parser(name: str) -> argparse.ArgumentParser:
    """The options of one command."""
    out = Parser(prog=f"zsl report {name}", description={**EXPERIMENTS, **OTHERS}[name])
    if name == "theory":
        from zsl.report.theory import add_options

        add_options(out)
        return out
    if name in EXPERIMENTS or name in ("figure", "tables", "compare"):
        metric = ", a metric after it (default acc_class)" if name == "compare" else ""
        out.add_argument("words", nargs="*", metavar="FOLDER | KEY=VALUE",
                         help=f"folder of records (default multirun){metric}; overrides; data=NAME")  # fmt: skip
        out.add_argument("--run", action="store_true", help="first run what is missing and whose data is here")
    for folder in {"diff": ["before", "after"], "dashboard": ["folder"]}.get(name, []):
        out.add_argument(folder, type=Path)
    if name == "diff":
        out.add_argument("--metric", default="acc_class")
    if name == "figure":
        out.add_argument("--seed", type=int, default=0, help="of t-SNE (default 0)")
    if name not in ("compare", "tables"):
        out.add_argument("--out", type=Path, help="where files go (default: beside the records)")
    return out


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command; exit with 1 after a mistake or a failed run, and with 130 after Ctrl-C."""
    words = list(sys.argv[1:] if argv is None else argv)
    interrupted = "interrupted; finished runs are complete in their folders."
    if status := exit_status("zsl", lambda: _work(words), interrupted=interrupted):
        sys.exit(status)


def _work(argv: list[str]) -> None:
    commands = {**dict.fromkeys(EXPERIMENTS, _experiment), "tables": _tables, "compare": _compare, "figure": _figure,
                "diff": _diff, "dashboard": _dashboard, "theory": _theory}  # fmt: skip
    overview = Parser(
        prog="zsl report", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="\n".join(f"  {name:15}{about}" for name, about in {**EXPERIMENTS, **OTHERS}.items()),
    )  # fmt: skip
    overview.add_argument("name", choices=commands, metavar="NAME")
    if argv[:1] == ["table0"]:
        raise UserError(f"table0 is now {MOVED['experiment=table0'].removeprefix('experiment=')}.")
    name = overview.parse_args(argv[:1]).name
    arguments = parser(name).parse_intermixed_args(argv[1:])
    arguments.name = name
    command: Callable[[argparse.Namespace], None] = commands[name]
    command(arguments)


def _experiment(arguments: argparse.Namespace) -> None:
    """A table or curves; with ``--run`` its cells are filled first."""
    folder, output, extra = _words(arguments)
    failed = _run_cells([arguments.name], folder, output, extra) if arguments.run else []
    _make(arguments.name, folder, extra, arguments.out)
    _end(failed)


def _tables(arguments: argparse.Namespace) -> None:
    """The paper's tables and ``compare``; with ``--run`` all that is possible is run first."""
    folder, output, extra = _words(arguments)
    failed: list[str] = []
    if arguments.run:
        failed = _run_cells(TABLES, folder, output, extra)
        failed += _run_compare(folder, output, ["stage=quick"])
    for name in TABLES:
        _make(name, folder, extra, None)
    if (folder / "compare").is_dir():
        _show_compared(folder / "compare")
    _end(failed)


def _run_cells(names: Sequence[str], folder: Path, output: Sequence[str], extra: Sequence[str]) -> list[str]:
    """Fill the cells of experiments whose data is here; returns the commands that failed.

    Raises
    ------
    UserError
        Before the first job, if no data is here, or if some is missing that the user named.
    """
    found: list[cells.Cell] = []
    for name in names:
        chosen = cells.blocks(name, extra)
        found += [one for one in cells.cells(name, extra) if one.data in chosen]
    lacking = filling.lacking_data(found)
    ready = [one for one in found if cells.data_of(one) not in lacking]
    left_out = filling.advice(names[0], [one for one in found if one not in ready], lacking)
    named = [name for name in (cells.value_of(extra, "data") or "").split(",") if name]
    if not ready or any(name not in {one.data for one in ready} for name in named):
        raise UserError(f"nothing is run, because data is missing. {left_out[0]}")
    for line in left_out:
        filling.say(f"left out  {line}")
    return filling.fill(filling.tasks_of(ready, read_records(folder, needed=False), output), folder)


def _make(name: str, folder: Path, extra: list[str], out: Path | None) -> None:
    """Print an experiment's tables from the records in a folder, and write them and their figures."""
    records = read_records(folder, needed=False)
    figures: dict[str, Any] = {}
    if name in TABLES:
        made = [tables.table1(records, extra) if name == "table1" else tables.methods(name, records, extra)]
        warn_of_old_names(records)
    elif name in ("ablation", "clip_or_not"):
        made = experiments.variants(name, records, extra)
    else:
        made, figures = experiments.curves(name, records, extra)
    _write(made, out or folder / "report", name, figures, extra)


def _end(failed: Sequence[str]) -> None:
    if failed:
        print(f"zsl: {len(failed)} of the commands failed:", *(f"    {c}" for c in failed), sep="\n", file=sys.stderr)
        sys.exit(1)


def _write(
    tables: Sequence[Table],
    out: Path,
    name: str,
    figures: Mapping[str, Any] = MappingProxyType({}),
    extra: Sequence[str] = (),
) -> None:
    """Print tables, and write them and figures to a folder."""
    for table in tables:
        show(table, filling.advice(name, table.empty, filling.lacking_data(table.empty), extra))
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
    if arguments.run and (status := filling.start(["experiment=figure", *extra, *output])) != 0:
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
    words = [w for w in arguments.words if "=" not in w]
    metric = words[1] if len(words) > 1 else "acc_class"
    arguments.words = [*words[:1], *words[2:], *(w for w in arguments.words if "=" in w)]
    folder, output, extra = _words(arguments)
    if extra and not arguments.run:
        raise UserError(f"{' '.join(extra)} is for runs; add --run, or name the folder of some.")
    failed = _run_compare(folder, output, extra) if arguments.run else []
    # Where the experiment puts its runs, unless a folder of others is named.
    _show_compared(folder / "compare" if arguments.run or not output else folder, metric)
    _end(failed)


def _show_compared(folder: Path, metric: str = "acc_class") -> None:
    """The table of methods of one data set and kind of split; of several, one table over all with a figure."""
    records = read_records(folder)
    if records[["dataset", "split_name"]].drop_duplicates().shape[0] == 1:
        show(compare(records, metric))
        return
    found, figures = overall(records, metric)
    _write(found, folder / "report", "methods", figures)


def _run_compare(folder: Path, output: Sequence[str], extra: Sequence[str]) -> list[str]:
    """Run the methods of a stage on the data that is here; returns the commands that failed.

    Raises
    ------
    UserError
        Before the first job, for a stage or data that does not exist, or if no data is here.
    """
    sweeps, lacking = comparison(extra)
    if not sweeps:
        raise UserError(f"compare is not run, because its data is missing: {next(iter(lacking.values()))}")
    for name, why in lacking.items():
        filling.say(f"left out  {name}: {why}")
    tasks = [filling.Task(title, (*words, *output), cells.n_jobs(words), title) for title, words in sweeps]
    return filling.fill(tasks, folder, at_once=usable_cores())


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
