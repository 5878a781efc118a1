"""Bounds of what YAML files may grow to: aliases, nesting and interpolations, checked before anything is expanded."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from zsl.config.argv import words_of
from zsl.config.trust import check_content
from zsl.errors import UserError, reason

# Our own configuration has about 300 values in 6 levels.
_DEPTH, _VALUES, _LETTERS = 50, 100_000, 1_000_000
_REFERENCE = re.compile(r"\$\{([^${}:]+)\}")
# Flags and keys of Hydra that name folders of YAML files.
_FLAG = re.compile(r"(?:--config-dir|-cd)(?:=(?P<folder>.*))?\Z", re.S)
_KEY = re.compile(r"\+*hydra\.searchpath=(?P<folders>.*)\Z", re.S)


def check_own_files(argv: Iterable[str]) -> None:
    """Check the YAML files of every folder that a command line names as a place of configuration.

    Raises
    ------
    UserError
        For a file that is no YAML, is not in UTF-8, is nested too deeply, or has aliases or interpolations that grow
        beyond any use.
    """
    folders = []
    for word, value in words_of(argv):
        flag, key = _FLAG.match(word), _KEY.match(word)
        if word.partition("=")[0] in ("--config-path", "-cp", "--config-name", "-cn", "--experimental-rerun"):
            raise UserError(f"{word} would replace zsl's configuration; add your own files with --config-dir FOLDER.")
        if flag:
            folders.append(flag["folder"] if flag["folder"] is not None else value or "")
        elif key:
            named = [f.strip(" '\"") for f in key["folders"].strip("[] ").split(",")]
            strange = [f for f in named if "${" in f or not Path(f.removeprefix("file://")).is_dir()]
            if strange:
                raise UserError(f"hydra.searchpath holds {strange[0]}, which is no folder; write --config-dir FOLDER.")
            folders += [f.removeprefix("file://") for f in named]
    for folder in folders:
        for place, below, files in os.walk(folder, followlinks=True) if folder else ():
            if len(Path(place).parts) - len(Path(folder).parts) > _DEPTH:
                below.clear()  # a link to a folder above it
            for name in sorted(files):
                if name.endswith((".yaml", ".yml")):
                    check_file(Path(place) / name, Path(folder))


def check_file(path: Path, within: Path | None = None) -> None:
    """Check one YAML file of a folder ``within``; see :func:`check_own_files`."""
    import yaml

    try:
        text = path.read_text(encoding="utf-8-sig")
        _check_events(yaml.parse(text, Loader=yaml.SafeLoader), path)
        found = yaml.load(text, Loader=yaml.BaseLoader)  # text only
    except OSError as error:
        raise UserError(f"{path} cannot be read ({reason(error)}); give access to it, or move it elsewhere.") from None
    except UnicodeDecodeError:
        raise UserError(f"{path} is not in UTF-8; save it so.") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or reason(error)
        raise UserError(f"{path}{line}: this is no YAML ({problem}); put it right.") from None
    check_interpolations(found, str(path))
    if within is not None:
        check_content(path.relative_to(within), within, text, found)


def _check_events(events: Iterable[Any], path: Path) -> None:
    """Depth, tags, and the number of values behind aliases, without building any of them."""
    from yaml import AliasEvent, CollectionEndEvent, CollectionStartEvent, ScalarEvent

    sizes: dict[str, int] = {}
    stack: list[tuple[str | None, int]] = [(None, 0)]
    for event in events:
        tag = getattr(event, "tag", None)
        if tag and ("python" in tag or not tag.startswith("tag:yaml.org,2002:")):
            raise UserError(f"{path}: the tag {tag} is not read; write plain values.")
        n = 0
        if isinstance(event, CollectionStartEvent):
            stack.append((event.anchor, 1))
        elif isinstance(event, ScalarEvent):
            n = 1
            if event.anchor:
                sizes[event.anchor] = 1
        elif isinstance(event, AliasEvent):
            n = sizes.get(event.anchor, _VALUES)  # one that is not complete yet holds itself
        elif isinstance(event, CollectionEndEvent):
            anchor, n = stack.pop()
            if anchor:
                sizes[anchor] = n
        stack[-1] = (stack[-1][0], stack[-1][1] + n)
        if len(stack) > _DEPTH:
            raise UserError(f"{path} is nested more than {_DEPTH} levels deep; write it flatter.")
        if stack[-1][1] > _VALUES:
            raise UserError(f"{path}: its aliases (*NAME) grow to more than {_VALUES} values; write fewer of them.")


def check_interpolations(config: Any, where: str) -> None:
    """Refuse a configuration whose interpolations ``${KEY}`` grow beyond any use once they are resolved.

    Parameters
    ----------
    config : dictionaries, lists and values
        Not resolved yet.
    where : str
        What the message calls it.
    """
    known: dict[tuple[str, ...], int] = {}

    def size(value: Any, place: tuple[str, ...], depth: int) -> int:
        if place in known:
            return known[place]
        known[place] = 0  # a circle; OmegaConf has a sentence for that
        if isinstance(value, Mapping):
            n = sum(size(v, (*place, str(k)), depth + 1) for k, v in value.items())
        elif isinstance(value, list | tuple):
            n = sum(size(v, (*place, str(i)), depth + 1) for i, v in enumerate(value))
        elif isinstance(value, str):
            n = len(value)
            for reference in _REFERENCE.findall(value):
                target = _target(reference, place)
                n += size(_at(config, target), target, depth + 1)
        else:
            n = 1
        if n > _LETTERS or depth > 4 * _DEPTH:
            key = ".".join(place) or "all of it"
            raise UserError(
                f"{where}: the interpolations in {key} grow to more than {_LETTERS} letters or {4 * _DEPTH} steps; "
                "write fewer of them."
            )
        known[place] = n
        return n

    size(config, (), 0)


def _target(reference: str, place: tuple[str, ...]) -> tuple[str, ...]:
    """The place that ``a.b[0]`` names, or ``..c`` from the value at ``place``."""
    bare = reference.strip().lstrip(".")
    up = len(reference.strip()) - len(bare)
    base = place[: max(len(place) - up, 0)] if up else ()
    return (*base, *(part for part in re.split(r"[.\[\]]+", bare) if part))


def _at(config: Any, place: tuple[str, ...]) -> Any:
    for key in place:
        if isinstance(config, Mapping):
            config = config.get(key)
        elif isinstance(config, list) and key.isdecimal() and int(key) < len(config):
            config = config[int(key)]
        else:
            return None
    return config
