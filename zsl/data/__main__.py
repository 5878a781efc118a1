"""``python -m zsl.data list | check | convert | download``: what data there is, and whether it is in order."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zsl.errors import UserError, reason, unforeseen

if TYPE_CHECKING:
    from omegaconf import DictConfig
    from rich.console import Console

# What "check" finds wrong ends in 1, what the command line gets wrong in 2, as argparse does.
_PROBLEM, _USAGE = 1, 2


def main(argv: list[str] | None = None) -> int:
    """Run one command; the exit status is 0, 1 after a sentence on what is wrong, 2 for a wrong command line."""
    parser = _parser()
    # data_dir=FOLDER is how zsl.main has it; every command here takes it too.
    words = [f"--data-dir={w.removeprefix('data_dir=')}" if w.startswith("data_dir=") else w
             for w in (sys.argv[1:] if argv is None else argv)]  # fmt: skip
    arguments, rest = parser.parse_known_args(words)
    # argparse takes a list of words only where no option stands between them.
    wrong = [word for word in rest if word.startswith("-") or "=" not in word or not hasattr(arguments, "overrides")]
    if wrong:
        parser.error(f"not understood: {' '.join(wrong)} (see: python -m zsl.data {arguments.command} --help)")
    if hasattr(arguments, "overrides"):
        arguments.overrides = [*arguments.overrides, *rest]
    try:
        return {"list": _list, "check": _check, "convert": _convert, "download": _download}[arguments.command](
            arguments
        )
    except UserError as error:
        print(f"zsl.data: {error}", file=sys.stderr)
        return _PROBLEM
    except BrokenPipeError:  # the reader of a pipe left, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (OSError, MemoryError) as error:
        print(f"zsl.data: {unforeseen(error)}", file=sys.stderr)
        return _PROBLEM
    except KeyboardInterrupt:
        print("zsl.data: interrupted; a download goes on where it stopped when started again.", file=sys.stderr)
        return _PROBLEM


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m zsl.data", description="The data that zsl can read.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="list|check|convert|download")
    where = argparse.ArgumentParser(add_help=False)
    where.add_argument("--data-dir", metavar="FOLDER", help="where the benchmarks lie (default: $ZSL_DATA or ./data)")
    chosen = argparse.ArgumentParser(add_help=False)
    chosen.add_argument("name", metavar="NAME", help="a dataset: awa1, awa2, cub, sun, apy, xlsa17, tabular, ...")
    chosen.add_argument("--root", metavar="FOLDER", help="its folder, if not the usual one")
    chosen.add_argument("overrides", metavar="KEY=VALUE", nargs="*",
                        help="as for zsl.main: feature.name=NAME, split=random, dataset.semantics=image")  # fmt: skip
    commands.add_parser("list", parents=[where], help="each dataset: here or not, where, size, licence, citation")
    commands.add_parser("check", parents=[where, chosen], help="read it and report: classes, splits, leaks, gaps")
    convert = commands.add_parser("convert", parents=[where, chosen], help="write it as an xlsa17 folder or as .npz")
    convert.add_argument("--to", metavar="FOLDER", required=True, help="a new or empty folder")
    convert.add_argument("--format", choices=("xlsa17", "npz"), default="xlsa17")
    download = commands.add_parser("download", parents=[where], help="fetch it from its own site, and unpack it")
    download.add_argument("name", metavar="NAME", help="awa1, awa2, cub, sun or apy")
    download.add_argument("--form", metavar="FORM", help="xlsa17 (default), standard_split, base, features, images")
    download.add_argument("--url", help="another address of the same archive, such as a mirror")
    download.add_argument("--hash", metavar="ALGORITHM:DIGEST", help="the checksum that the archive must have")
    return parser


def _compose(arguments: argparse.Namespace) -> dict[str, Any]:
    from zsl.config import compose, options, resolve

    if arguments.name not in options("dataset"):
        import difflib

        close = difflib.get_close_matches(arguments.name, options("dataset"), n=1)
        hint = f" (did you mean {close[0]}?)" if close else ""
        raise UserError(f"dataset={arguments.name} does not exist{hint}; there are: {', '.join(options('dataset'))}.")
    return resolve(_placed(compose([f"dataset={arguments.name}", *arguments.overrides]), arguments))


def _placed(cfg: DictConfig, arguments: argparse.Namespace) -> DictConfig:
    """``--data-dir`` and ``--root`` put into the configuration: as values, so that any character may be in them."""
    if arguments.data_dir is not None:
        cfg.data_dir = _literal(arguments.data_dir)
    root = getattr(arguments, "root", None)
    if root is not None:
        if "root" not in [str(k) for k in cfg.dataset]:
            raise UserError(f"--root: dataset={arguments.name} has no folder; leave it out.")
        cfg.dataset.root = _literal(root)
    return cfg


def _literal(folder: str) -> str:
    return str(Path(folder).expanduser()).replace("${", "\\${")


def _console() -> Console:
    from rich.console import Console

    console = Console(highlight=False)
    # A pipe or a log file has no width of its own.
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(width=140, highlight=False)


def _list(arguments: argparse.Namespace) -> int:
    from rich.table import Column, Table

    from zsl.config import compose, options
    from zsl.data.catalogue import ENTRIES
    from zsl.data.report import folder_size

    console = _console()
    table = Table("dataset", "what", "here", Column("where", overflow="fold"), "licence")
    cited = {}
    for name in options("dataset"):
        entry = ENTRIES.get(name)
        if entry is None:
            continue
        cited[name] = entry.citation
        root = _placed(compose([f"dataset={name}"]), arguments).dataset.get("root")
        if root is None:
            table.add_row(name, entry.title, "built in", "-", entry.licence)
            continue
        places = [folder for folder in _places(Path(root).expanduser(), name) if _holds_anything(folder)]
        here = f"{sum(map(folder_size, places)) / 2**20:.1f} MB" if places else "no"
        table.add_row(name, entry.title, here, "\n".join(map(str, places)) or str(root), entry.licence)
    console.print(table)
    for name, citation in cited.items():
        if citation != "-":
            console.print(f"{name}: cite {citation}", soft_wrap=True)
    console.print("any other data: dataset=xlsa17 dataset.root=FOLDER, or dataset=tabular", soft_wrap=True)
    return 0


def _holds_anything(folder: Path) -> bool:
    if not folder.is_dir():
        return False
    try:
        return any(folder.iterdir())
    except OSError as error:
        raise UserError(f"{folder} cannot be read ({reason(error)}); give access to it.") from None


def _places(root: Path, name: str) -> list[Path]:
    archives = {"awa1": "Animals_with_Attributes", "awa2": "Animals_with_Attributes2", "cub": "CUB_200_2011",
                "sun": "SUNAttributeDB"}  # fmt: skip
    beside = [root.parent / archives[name]] if name in archives else []
    return [root, root.parent / "xlsa17" / "data" / root.name, *beside]


def _check(arguments: argparse.Namespace) -> int:
    from rich.table import Table

    from zsl.data.report import check

    report, console = check(_compose(arguments)), _console()
    console.print(f"[bold]{report.name}[/bold]")
    facts = Table.grid(padding=(0, 2))
    for what, value in report.facts:
        facts.add_row(what, value)
    console.print(facts, soft_wrap=True)
    if report.splits:
        columns = list(report.splits[0])
        table = Table(*columns)
        for row in report.splits:
            table.add_row(*(row.get(c, "-") for c in columns))
        console.print(table)
    for leak in report.leaks:
        console.print(f"[yellow]{leak}[/yellow]", soft_wrap=True)
    for problem in report.problems:
        console.print(f"[red]problem:[/red] {problem}", soft_wrap=True)
    if not report.problems:
        console.print("[green]in order[/green]")
    return _PROBLEM if report.problems else 0


def _convert(arguments: argparse.Namespace) -> int:
    from zsl.config.objects import build
    from zsl.data.convert import to_npz, to_xlsa17
    from zsl.data.load import load_table

    plain = _compose(arguments)
    table = load_table(plain["dataset"], plain["feature"]["name"], plain["dataset"]["semantics"].get("source"))
    splits = dict(table.splits)
    if "proposed" not in splits or any(o.startswith("split") for o in arguments.overrides):
        splits = {**splits, "proposed": build(plain["split"], "split")(table)}
    write = to_xlsa17 if arguments.format == "xlsa17" else to_npz
    for path in write(table, splits, Path(arguments.to).expanduser()):
        print(path)
    return 0


def _download(arguments: argparse.Namespace) -> int:
    from zsl.data.download import download

    data_dir = Path(arguments.data_dir or os.environ.get("ZSL_DATA") or "data").expanduser()
    for path in download(
        arguments.name, data_dir, form=arguments.form, url=arguments.url, known_hash=arguments.hash,
        progress=sys.stderr.isatty(),
    ):  # fmt: skip
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
