# PYTHON_ARGCOMPLETE_OK
"""Completion of the command line by the shell: commands, groups, options and keys.

``eval "$(zsl completion bash)"`` (or ``zsh``, ``fish``) switches it on for a shell.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable

from zsl.config.manual import group_titles, keys_of
from zsl.config.registry import groups, options
from zsl.errors import Parser, exit_status

SHELLS = ("bash", "zsh", "fish")


def complete(commands: Iterable[str]) -> None:
    """Answer the shell's question, which is in the environment, and end the process."""
    import argcomplete

    parser = argparse.ArgumentParser("zsl")
    below = parser.add_subparsers()
    for command in commands:
        words = below.add_parser(command).add_argument("words", nargs="*")
        if command == "run":
            words.completer = lambda prefix, parsed_args, **_: candidates(prefix, parsed_args.words)  # type: ignore[attr-defined]
        elif command == "completion":
            words.completer = lambda **_: SHELLS  # type: ignore[attr-defined]
    argcomplete.autocomplete(parser)


def candidates(prefix: str, words: Iterable[str]) -> list[str]:
    """What a word of ``zsl run`` may become: ``GROUP=OPTION``, or ``KEY=`` of the chosen options.

    Examples
    --------
    >>> candidates("model=es", [])
    ['model=eszsl']
    >>> candidates("model.gam", ["model=eszsl"])
    ['model.gamma=']
    """
    group, equals, _ = prefix.partition("=")
    if equals:
        found = [f"{group}={option}" for option in options(group)] if group in groups() else []
    else:
        chosen = {g: default for g, (default, _) in group_titles().items()}
        chosen |= dict(word.split("=", 1) for word in words if word.partition("=")[0] in chosen and "=" in word)
        keys = [*keys_of("", "config"), *(k for g, o in chosen.items() if o in options(g) for k in keys_of(g, o))]
        found = [f"{g}=" for g in groups()] + [f"{key.name}=" for key in keys]
    return sorted({word for word in found if word.startswith(prefix)})


def main(argv: list[str] | None = None) -> int:
    """Print the lines that switch completion on in a shell, and return the exit status."""
    parser = Parser("zsl completion", description='Switch completion on: eval "$(zsl completion bash)".')
    parser.add_argument("shell", choices=SHELLS)

    def work() -> None:
        from argcomplete.shell_integration import shellcode

        shell = parser.parse_args(sys.argv[1:] if argv is None else argv).shell
        print(shellcode(["zsl"], shell=shell))

    return exit_status("zsl completion", work)
