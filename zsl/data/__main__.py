"""``zsl data list | check | convert | download | build | weights``: which data is here, and whether it can be used."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zsl.errors import Parser, UserError, did_you_mean, exit_status

if TYPE_CHECKING:
    from omegaconf import DictConfig
    from rich.console import Console


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit status: 0, 1 after a sentence on what is wrong, or 130 after Ctrl-C."""

    def work() -> int:
        arguments = _parse(sys.argv[1:] if argv is None else argv)
        return int(arguments.run(arguments))

    interrupted = "interrupted; a download starts from its beginning when the command is run again."
    return exit_status("zsl data", work, interrupted=interrupted)


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = Parser("zsl data", description="The data that zsl can read.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="list|check|convert|download|build|weights")
    where = Parser(add_help=False)
    where.add_argument("--data-dir", metavar="FOLDER", help="where the benchmarks lie (default: $ZSL_DATA or ./data)")
    chosen = Parser(add_help=False)
    chosen.add_argument("name", metavar="NAME", help="a dataset: cifar_awa, awa2, cub, sun, xlsa17, tabular, ...")
    chosen.add_argument("--root", metavar="FOLDER", help="its folder, if not the usual one")
    chosen.add_argument("overrides", metavar="KEY=VALUE", nargs="*", default=[],
                        help="as for zsl run: feature.name=NAME, split=random, dataset.semantics=image")  # fmt: skip

    def command(name: str, run: Callable[[argparse.Namespace], int], text: str, *parents: Parser) -> Parser:
        parser = commands.add_parser(name, parents=parents, help=text)
        parser.set_defaults(run=run)
        return parser

    command("list", _list, "each dataset: whether it is here, where, licence, citation", where)
    command("check", _check, "read it: classes, splits, leaks, missing values", where, chosen)
    convert = command("convert", _convert, "write it as an xlsa17 folder or as .npz", where, chosen)
    convert.add_argument("--to", metavar="FOLDER", required=True, help="a new or empty folder")
    convert.add_argument("--format", choices=("xlsa17", "npz"), default="xlsa17")
    download = command("download", _download, "fetch it from its own site, and unpack it", where)
    download.add_argument("name", metavar="NAME", help="cifar_awa, awa1, awa2, cub, sun or apy")
    download.add_argument("--form", metavar="FORM", help="xlsa17 (default), standard_split, base, features, images")
    download.add_argument("--url", help="another address of the same archive, such as a mirror")
    download.add_argument("--hash", metavar="ALGORITHM:DIGEST", help="the checksum that the archive must have")
    build = command("build", _build, "make a dataset's features again from its images", where)
    build.add_argument("name", metavar="NAME", choices=("cifar_awa",), help="cifar_awa")
    build.add_argument("--images", metavar="FOLDER", required=True, type=Path, help="holds the archives of CIFAR")
    build.add_argument("--to", metavar="FOLDER", type=Path, help="default: cifar_awa in the data folder")
    weights = command("weights", _weights, "the weights of networks that are here: place, licence, hash")
    weights.add_argument("--folder", metavar="FOLDER", type=Path, help="look for weights below this folder too")
    # data_dir=FOLDER is how zsl.main has it; every command here takes it too.
    words = [f"--data-dir={w.removeprefix('data_dir=')}" if w.startswith("data_dir=") else w for w in argv]
    arguments, rest = parser.parse_known_args(words)
    # argparse takes a list of words only where no option stands between them.
    wrong = [word for word in rest if word.startswith("-") or "=" not in word or not hasattr(arguments, "overrides")]
    if wrong:
        parser.error(f"not understood: {' '.join(wrong)}")
    if rest:
        arguments.overrides = [*arguments.overrides, *rest]
    return arguments


def _config(arguments: argparse.Namespace) -> dict[str, Any]:
    """The resolved configuration of the dataset that the command line names."""
    from zsl.config import compose, options, resolve

    names = options("dataset")
    if arguments.name not in names:
        hint = did_you_mean(arguments.name, names)
        raise UserError(f"dataset={arguments.name} does not exist{hint}; there are: {', '.join(names)}.")
    return resolve(_placed(compose([f"dataset={arguments.name}", *arguments.overrides]), arguments))


def _placed(cfg: DictConfig, arguments: argparse.Namespace) -> DictConfig:
    """``--data-dir`` and ``--root`` put into the configuration: as values, so that any character may be in them."""

    def literal(folder: str) -> str:
        return str(Path(folder).expanduser()).replace("${", "\\${")

    if arguments.data_dir is not None:
        cfg.data_dir = literal(arguments.data_dir)
    root = getattr(arguments, "root", None)
    if root is not None:
        if "root" not in [str(k) for k in cfg.dataset]:
            raise UserError(f"--root: dataset={arguments.name} has no folder; leave it out.")
        cfg.dataset.root = literal(root)
    return cfg


def _console() -> Console:
    from rich.console import Console

    console = Console(highlight=False)
    # A pipe or a log file has no width of its own.
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(width=140, highlight=False)


def _list(arguments: argparse.Namespace) -> int:
    from rich.table import Column, Table

    from zsl.config import compose, conf_dir, options
    from zsl.data.catalogue import ENTRIES, Entry

    table, cited = Table("dataset", "what", "here", Column("where", overflow="fold"), "licence"), []
    for name in options("dataset"):
        entry = ENTRIES.get(name, Entry())
        first = (conf_dir() / "dataset" / f"{name}.yaml").read_text(encoding="utf-8").partition("\n")[0]
        title = first.removeprefix("#").partition(": ")[0].strip(" .") if first.startswith("#") else "-"
        dataset = _placed(compose([f"dataset={name}"]), arguments).dataset
        here, where = "built in", "-"
        if "root" in [str(k) for k in dataset]:
            here, where = "your own", "dataset.root=FOLDER"
            if dataset.get("root") is not None:
                root = Path(dataset.root).expanduser()
                sizes = {place: size for place in entry.places(root) if (size := _size(place))}
                download = f", {next(iter(entry.archives.values())).size_mb} MB to download" if entry.archives else ""
                here = f"{sum(sizes.values()) / 2**20:.1f} MB" if sizes else f"no{download}"
                where = "\n".join(map(str, sizes)) or str(root)
        table.add_row(name, title, here, where, entry.licence)
        cited += [f"{name}: cite {entry.citation}"] if entry.citation else []
        cited += [f"{name}, {form}: {where}" for form, where in entry.by_hand.items()]
    console = _console()
    console.print(table)
    for line in cited:
        console.print(line, soft_wrap=True)
    return 0


def _size(folder: Path) -> int:
    """Bytes under a folder, without following links; 0 if there is none."""
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file() and not p.is_symlink())


def _check(arguments: argparse.Namespace) -> int:
    from rich.markup import escape
    from rich.table import Table

    from zsl.data.report import check

    report, console = check(_config(arguments)), _console()
    facts = Table.grid(padding=(0, 2))
    for what, value in report.facts:
        facts.add_row(escape(what), escape(value))
    console.print(facts, soft_wrap=True)
    if report.splits:
        table = Table(*report.splits[0])
        for row in report.splits:
            table.add_row(*map(escape, row.values()))
        console.print(table)
    last = [f"[red]problem:[/red] {escape(problem)}" for problem in report.problems] or [
        "[green]OK: nothing wrong was found[/green]"
    ]
    for line in [*(f"[yellow]{escape(warning)}[/yellow]" for warning in report.warnings), *last]:
        console.print(line, soft_wrap=True)
    return 1 if report.problems else 0


def _convert(arguments: argparse.Namespace) -> int:
    from zsl.config.objects import build
    from zsl.data.convert import to_npz, to_xlsa17
    from zsl.data.load import load_table

    config = _config(arguments)
    source, allow = config["dataset"]["semantics"].get("source"), config["allow_targets"]
    table = load_table(config["dataset"], config["feature"]["name"], source, allow)
    splits = dict(table.splits)
    if "proposed" not in splits or any(o.startswith("split") for o in arguments.overrides):
        splits["proposed"] = build(config["split"], "split", allow_targets=allow)(table)
    write = to_xlsa17 if arguments.format == "xlsa17" else to_npz
    for path in write(table, splits, Path(arguments.to).expanduser()):
        print(path)
    return 0


def _build(arguments: argparse.Namespace) -> int:
    from zsl.data.cifar import build

    target = (arguments.to or _data_dir(arguments) / arguments.name).expanduser()
    print(f"{build(arguments.images.expanduser(), target)} is read by dataset=cifar_awa feature.name=lite0_1280")
    return 0


def _weights(arguments: argparse.Namespace) -> int:
    from rich.markup import escape
    from rich.table import Column, Table

    from zsl.data.weights import missing, weights_here

    found = weights_here(arguments.folder and arguments.folder.expanduser())
    columns = [Column("used by --network or --encoder", overflow="fold"), Column("place", overflow="fold")]
    table = Table(*columns, "size", "sha256 of the file", "licence")
    for weights in found:
        size = f"{weights.size / 2**20:.1f} MB"
        table.add_row(escape(weights.used_by), escape(str(weights.path)), size, weights.sha256, weights.licence)
    console = _console()
    if found:
        console.print(table)
    else:
        console.print("no weights are here: neither in a package, nor in the caches of torch and of the hub")
    absent = missing(found)
    console.print(f"not here: {', '.join(absent)}" if absent else "All documented networks are here.", soft_wrap=True)
    return 0


def _data_dir(arguments: argparse.Namespace) -> Path:
    return Path(arguments.data_dir or os.environ.get("ZSL_DATA") or "data").expanduser()


def _download(arguments: argparse.Namespace) -> int:
    from zsl.data.download import download

    for path in download(
        arguments.name, _data_dir(arguments), form=arguments.form, url=arguments.url, known_hash=arguments.hash,
        progress=sys.stderr.isatty(),
    ):  # fmt: skip
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
