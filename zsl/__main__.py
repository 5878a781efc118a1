"""The command ``zsl`` (also ``python -m zsl``), which passes its arguments on to ``zsl run``, ``zsl data``, ..."""

from __future__ import annotations

import sys
from importlib import import_module

COMMANDS = {
    "run": ("zsl.main", "run an experiment or a sweep: zsl run dataset=sun split=645_72 -m model.lam=0.01,0.1"),
    "data": ("zsl.data.__main__", "list, check, download and convert datasets"),
    "extract": ("zsl.extract.__main__", "features of your own images"),
    "predict": ("zsl.predict.__main__", "predictions of a finished run for new images"),
    "serve": ("zsl.predict.server", "the same over HTTP"),
    "report": ("zsl.report.__main__", "tables and figures from the records of runs"),
    "bench": ("zsl.bench.__main__", "speed and memory of the sparse coder"),
    "tracking": ("zsl.tracking.__main__", "repair and upload what the tracking store lacks"),
}


def main() -> None:
    """Pass the arguments on to the command that the first one names."""
    words = sys.argv[1:]
    if words[:1] == ["--version"]:
        from zsl import __version__

        print(f"zsl {__version__}")
        return
    if not words or words[0] in ("-h", "--help"):
        print("usage: zsl COMMAND ...\n\n" + "\n".join(f"  {name:9} {text}" for name, (_, text) in COMMANDS.items()))
        print("\nzsl COMMAND --help explains a command.")
        return
    if words[0] not in COMMANDS:
        from zsl.errors import did_you_mean

        has = ", ".join(COMMANDS)
        print(
            f"zsl: there is no command {words[0]}{did_you_mean(words[0], COMMANDS)}; it is one of: {has}.",
            file=sys.stderr,
        )
        sys.exit(1)
    sys.argv[:2] = [f"zsl {words[0]}"]
    sys.exit(import_module(COMMANDS[words[0]][0]).main())


if __name__ == "__main__":
    main()
