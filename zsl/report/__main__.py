"""Tables and figures from records: ``python -m zsl.report NAME [FOLDER] [--run] [KEY=VALUE ...]``."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from zsl.errors import UserError, unforeseen, writing

EXPERIMENTS = {
    "table0": "the paper's Table 0: coupled dictionaries on all data, features and splits",
    "table1": "the paper's Table 1: methods, VGG19",
    "table3": "the paper's Table 3: methods, Inception",
    "ablation": "every part left out in turn, with paired differences",
    "sensitivity": "curves over lam, gamma, rho, n_atoms, n_neighbors, mu",
    "learning_curve": "curves over training images and seen classes",
    "imbalance": "curves over the ratio of the unseen classes' sizes",
}


def parser() -> argparse.ArgumentParser:
    """The command line, apart from ``compare`` and ``theory``, which have their own."""
    out = argparse.ArgumentParser(
        prog="python -m zsl.report", description="Tables and figures from the records of runs (results.json)."
    )
    names = out.add_subparsers(dest="name", required=True, metavar="NAME")
    for name, words in EXPERIMENTS.items():
        one = names.add_parser(name, help=words, description=words)
        one.add_argument("words", nargs="*", metavar="FOLDER | KEY=VALUE",
                         help="folder of records (multirun), overrides of the runs, data=NAME")  # fmt: skip
        one.add_argument("--run", action="store_true", help="first run what is missing and whose data is here")
        one.add_argument("--out", type=Path, help="where files go (default: FOLDER/report)")
    one = names.add_parser("figure", help="the 2 x 3 panel of predicted attributes")
    one.add_argument("words", nargs="*", metavar="FOLDER | KEY=VALUE", help="folder of runs, overrides of the run")
    one.add_argument("--run", action="store_true", help="first run experiment=figure")
    one.add_argument("--seed", type=int, default=0, help="of t-SNE (default 0)")
    one.add_argument("--out", type=Path)
    one = names.add_parser("diff", help="two sweeps beside each other, with paired differences")
    one.add_argument("before", type=Path)
    one.add_argument("after", type=Path)
    one.add_argument("--metric", default="acc_class")
    one.add_argument("--out", type=Path)
    one = names.add_parser("dashboard", help="one page of a sweep that opens from disk")
    one.add_argument("folder", type=Path)
    one.add_argument("--out", type=Path, help="the file (default: FOLDER/dashboard.html)")
    names.add_parser("compare", help="methods on the same splits: compare FOLDER [METRIC]")
    if importlib.util.find_spec("zsl.report.theory"):
        names.add_parser("theory", help="the paper's bounds, with numbers put in")
    return out


def main(argv: Sequence[str] | None = None) -> None:
    """The command. Exit status 1 after one sentence on what the user can put right, 130 after Ctrl-C."""
    argv = list(sys.argv[1:] if argv is None else argv)
    if argv[:1] in (["compare"], ["theory"]) and importlib.util.find_spec(f"zsl.report.{argv[0]}"):
        importlib.import_module(f"zsl.report.{argv[0]}").main(argv[1:])
        return
    arguments = _parse(argv) if argv[:1] and argv[0] in (*EXPERIMENTS, "figure") else parser().parse_args(argv)
    try:
        {"figure": _figure, "diff": _diff, "dashboard": _dashboard}.get(arguments.name, _experiment)(arguments)
    except UserError as error:
        print(f"zsl: {error}", file=sys.stderr)
        sys.exit(1)
    except (OSError, MemoryError) as error:
        print(f"zsl: {unforeseen(error)}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("zsl: interrupted; finished runs are complete in their folders.", file=sys.stderr)
        sys.exit(130)


def _parse(argv: list[str]) -> argparse.Namespace:
    # Options may stand between words, which argparse's sub-commands do not allow.
    flags = [a for i, a in enumerate(argv) if a.startswith("-") or (i and argv[i - 1] in ("--out", "--seed"))]
    return parser().parse_args([*argv[:1], *flags, *(a for a in argv[1:] if a not in flags)])


def _experiment(arguments: argparse.Namespace) -> None:
    from zsl.report import cells, printed, running, variants
    from zsl.report.document import show
    from zsl.report.figures import save as save_figure

    name = arguments.name
    folder, output, settings = _words(arguments.words, runs=arguments.run)
    failed = []
    if arguments.run:
        chosen = cells.blocks(name, settings)
        todo = [
            c for c in (printed if name.startswith("table") else variants).cells(name, settings) if c.data in chosen
        ]
        for one in todo:
            one.repeats = (*one.repeats, *(f"output_dir={o}" for o in output))
        failed = running.run(todo)
    records = _records(folder)
    figures: dict[str, Any] = {}
    if name == "table0":
        tables = [printed.table0(records, settings)]
    elif name.startswith("table"):
        tables = [printed.methods(name, records, settings)]
    elif name == "ablation":
        tables = variants.ablation(records, settings)
    else:
        tables, figures = variants.curves(name, records, settings)
    for table in tables:
        show(table)
    out = arguments.out or folder / "report"
    with writing(out, "set --out to another folder"):
        paths = [p for title, figure in figures.items() for p in save_figure(figure, out, title)]
        _keep_or_save(tables, out, name, [f"{title}.png" for title in figures], paths)
    if failed:
        lines = "".join(f"\n    {command}" for command in failed)
        print(f"zsl: {len(failed)} of the commands failed, for the reasons said above:{lines}", file=sys.stderr)
        sys.exit(1)


def _keep_or_save(tables: Sequence[Any], out: Path, name: str, figures: Sequence[str], paths: list[Path]) -> None:
    """Write the tables, but nothing empty over a table that has numbers; say where fewer numbers replace more."""
    from zsl.report.document import markdown, numbers_in, save

    before = out / f"{name}.md"
    had = numbers_in(before.read_text(encoding="utf-8")) if before.is_file() else 0
    has = sum(numbers_in(markdown(table)) for table in tables)
    if had > has and not any(table.n_records for table in tables):
        print(f"zsl: no record fits any cell, so {before} and what belongs to it stay as they are.", file=sys.stderr)
        return
    paths += save(tables, out, name, figures)
    print("written: " + " ".join(map(str, paths)))
    if had > has:
        print(f"zsl: {before} had {had} numbers and now has {has}: fewer records fit its cells.", file=sys.stderr)


def _words(words: Sequence[str], *, runs: bool = False) -> tuple[Path, list[str], list[str]]:
    """The folder of records, what ``output_dir`` is set to for runs, and the other overrides."""
    from zsl.report.cells import key_of

    extra = [w for w in words if "=" in w]
    folders = [w for w in words if "=" not in w]
    if len(folders) > 1:
        raise UserError(f"one folder of records is needed, not {len(folders)}: {', '.join(folders)}.")
    output = [o.partition("=")[2] for o in extra if key_of(o) == "output_dir"][-1:]
    settings = [o for o in extra if key_of(o) != "output_dir"]
    if folders and output and Path(folders[0]) != Path(output[0]):
        raise UserError(f"the folder is said twice, as {folders[0]} and as output_dir={output[0]}; leave one out.")
    if folders and not Path(folders[0]).is_dir() and not runs:
        raise UserError(f"{folders[0]} does not exist or is no folder; name the folder of records, or add --run.")
    return Path((folders or output or ["multirun"])[0]), output or folders, settings


def _records(folder: Path) -> list[dict[str, Any]]:
    """Complete records under a folder; none where it does not exist yet, since every cell then is missing."""
    from zsl.report.compare import read

    try:
        return read(folder)
    except UserError:
        if folder.is_file():
            raise
        return []


def _figure(arguments: argparse.Namespace) -> None:
    from zsl.report.figures import save
    from zsl.report.panel import newest, panel
    from zsl.report.running import start

    if not 0 <= arguments.seed < 2**32:
        raise UserError(f"--seed {arguments.seed} is out of range; it is a whole number from 0 to {2**32 - 1}.")
    folder, output, settings = _words(arguments.words, runs=arguments.run)
    if settings and not arguments.run:
        raise UserError(f"{' '.join(settings)} is for a run; add --run, or name the folder of one.")
    if arguments.run or all("=" in w for w in arguments.words):
        folder /= "figure"
    if arguments.run:
        words = ["experiment=figure", *settings, *(f"output_dir={o}" for o in output)]
        if (code := start(words)) != 0:
            sys.exit(code)
    folder = newest(folder)
    figure, caption = panel(folder, seed=arguments.seed)
    with writing(arguments.out or folder, "set --out to another folder"):
        paths = save(figure, arguments.out or folder, "figure")
        (paths[0].parent / "figure.txt").write_text(caption + "\n", encoding="utf-8")
    print(caption)
    print("written: " + " ".join(map(str, paths)))


def _diff(arguments: argparse.Namespace) -> None:
    from zsl.report.compare import read
    from zsl.report.document import save, show
    from zsl.report.sweeps import diff

    table = diff(read(arguments.before), read(arguments.after), arguments.metric)
    show(table)
    out = arguments.out or arguments.after / "report"
    with writing(out, "set --out to another folder"):
        paths = save([table], out, "diff")
    print("written: " + " ".join(map(str, paths)))


def _dashboard(arguments: argparse.Namespace) -> None:
    from zsl.report.compare import read
    from zsl.report.dashboard import dashboard

    path = arguments.out or arguments.folder / "dashboard.html"
    page = dashboard(read(arguments.folder), arguments.folder.resolve().name)
    with writing(path, "set --out to another file"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page, encoding="utf-8")
    print(f"written: {path}")


if __name__ == "__main__":
    main()
