"""Correct a tracking store afterwards: ``zsl tracking repair|upload [FOLDER ...]``.

``repair`` closes runs whose process is gone, and ``upload`` sends runs that the store lacks.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from zsl.config.credentials import taken
from zsl.errors import Parser, UserError, exit_status


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status: 0, 1 after a sentence on what is wrong, or 130 after Ctrl-C."""
    parser = Parser("zsl tracking", description="Repair the tracking store, or send it runs that it lacks.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, summary in (
        ("repair", "set runs whose process was killed to KILLED"),
        ("upload", "send runs that the store does not have, such as those made while its server was down"),
    ):
        command = commands.add_parser(name, help=summary, description=summary)
        command.add_argument("folders", nargs="*", type=Path, metavar="FOLDER", help="default: multirun")
        command.add_argument("--uri", help="a store: http://HOST:PORT or sqlite:///FILE (default: the runs' own)")
        if name == "repair":
            command.add_argument("--older-than", type=float, metavar="HOURS",
                                 help="runs of other machines too, if they started so long ago")  # fmt: skip
            command.add_argument("--experiment", default="zsl", help="with --uri: MLflow's experiment (default zsl)")
        else:
            command.add_argument("--all", action="store_true", help="runs made with tracking=none too")
            command.add_argument("--allow", action="append", default=[], metavar="PACKAGE",
                                 help="a package outside zsl whose model a run used")  # fmt: skip
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    return exit_status("zsl tracking", lambda: _work(parser.parse_args(argv)))


def _work(arguments: argparse.Namespace) -> None:
    folders = [f.expanduser() for f in arguments.folders] or [Path("multirun")]
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"{folder} is not a folder; name the output folder, a sweep's or a run's.")
    from zsl.tracking.maintain import repair, repair_store, upload

    uri = arguments.uri and taken(arguments.uri)
    if arguments.command == "upload":
        lines = upload(folders, uri=uri, every=arguments.all, allow=tuple(arguments.allow))
    else:
        lines = iter(repair(folders, older_than=arguments.older_than))
        if uri is not None:
            lines = chain(lines, repair_store(uri, arguments.experiment, older_than=arguments.older_than))
    nothing = True
    for line in lines:
        print(line, flush=True)
        nothing = False
    if nothing:
        hint = arguments.command == "upload" and uri is None and not arguments.all
        print("nothing to do" + ("; --all sends runs made with tracking=none too" if hint else ""))


if __name__ == "__main__":
    sys.exit(main())
