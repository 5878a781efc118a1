# PYTHON_ARGCOMPLETE_OK
"""The command ``zsl`` (also ``python -m zsl``), which passes its arguments on to ``zsl run``, ``zsl data``, ..."""

from __future__ import annotations

import os
import sys
from importlib import import_module

COMMANDS = {
    "run": ("zsl.main", "train a model, test it on unseen classes and record the result; -m sweeps over values"),
    "data": ("zsl.data.__main__", "list, check, download, convert and build datasets, and list weights of networks"),
    "extract": ("zsl.extract.__main__", "make features of your own images"),
    "describe": ("zsl.describe.__main__", "make class rows of sentences and named attributes"),
    "try": ("zsl.tryout.__main__", "from photographs and class descriptions to a page of answers"),
    "predict": ("zsl.predict.__main__", "predict the classes of new images with a finished run"),
    "ask": ("zsl.ask.__main__", "name clusters of test images with your help, and predict again"),
    "serve": ("zsl.predict.server", "answer the same over HTTP"),
    "report": ("zsl.report.__main__", "make tables, figures and a dashboard from the records of runs"),
    "ui": ("zsl.tracking.ui", "compare runs in the browser, on MLflow's page"),
    "tracking": ("zsl.tracking.__main__", "repair the tracking store, and send runs that it lacks"),
    "bench": ("zsl.bench.__main__", "measure speed and memory of the sparse coder"),
    "completion": ("zsl.completion", "let the shell complete commands and settings"),
}


def main() -> None:
    """Pass the arguments on to the command that the first one names."""
    words = sys.argv[1:]
    if "_ARGCOMPLETE" in os.environ:
        from zsl.completion import complete

        complete(COMMANDS)
    if words[:1] == ["--version"]:
        from zsl import __version__
        from zsl.version import commit

        print(f"zsl {__version__}" + (f" (commit {commit()})" if commit() else ""))
        return
    if not words or words[0] in ("-h", "--help"):
        print("usage: zsl COMMAND ...\n\n" + "\n".join(f"  {name:10} {text}" for name, (_, text) in COMMANDS.items()))
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
