"""``python -m zsl.tracking repair|upload [FOLDER ...]``."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from zsl.errors import UserError, unforeseen


class _Parser(argparse.ArgumentParser):
    """Mistakes end in one sentence."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; see python -m zsl.tracking --help.")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0, or 1 after a sentence on what is wrong."""
    parser = _Parser("python -m zsl.tracking", description="Put the tracking store right afterwards.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, help_ in (
        ("repair", "set runs whose process was killed to KILLED"),
        ("upload", "send runs that the store does not have, such as those made while its server was down"),
    ):
        command = commands.add_parser(name, help=help_, description=help_)
        command.add_argument("folders", nargs="*", type=Path, metavar="FOLDER", help="default: multirun")
        command.add_argument("--uri", help="a store: http://HOST:PORT or sqlite:///FILE (default: the runs' own)")
        if name == "repair":
            command.add_argument("--older-than", type=float, metavar="HOURS",
                                 help="runs of other machines too, if they started so long ago")  # fmt: skip
            command.add_argument("--experiment", default="zsl", help="with --uri: MLflow's experiment (default zsl)")
        else:
            command.add_argument("--all", action="store_true", help="runs made with tracking=none too")
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    try:
        arguments = parser.parse_args(argv)
        from zsl.tracking.maintain import repair, repair_store, upload

        folders = [f.expanduser() for f in arguments.folders] or [Path("multirun")]
        lacking = next((f for f in folders if not f.is_dir()), None)
        if lacking is not None:
            raise UserError(f"{lacking} is not a folder; name the output folder, a sweep's or a run's.")
        if arguments.command == "upload":
            said = upload(folders, uri=arguments.uri, every=arguments.all)
        else:
            said = repair(folders, older_than=arguments.older_than)
            if arguments.uri is not None:
                settings = {"uri": arguments.uri, "experiment": arguments.experiment}
                said += repair_store(settings, folders[0], older_than=arguments.older_than)
    except UserError as error:
        print(f"zsl.tracking: {error}", file=sys.stderr)
        return 1
    except (OSError, MemoryError) as error:
        print(f"zsl.tracking: {unforeseen(error)}", file=sys.stderr)
        return 1
    print("\n".join(said) if said else "nothing to do")
    return 0


if __name__ == "__main__":
    sys.exit(main())
