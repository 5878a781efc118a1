"""Rewrites the words of a command line so that Hydra 1.3 reads them as the user means them, and refuses wrong flags."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterable, Iterator

from zsl.config.registry import groups, options
from zsl.errors import UserError, did_you_mean
from zsl.text import not_text

# Hydra's flags that take a value, which travels with them.
VALUE_FLAGS = {
    "--cfg", "-c", "--package", "-p", "--config-path", "-cp", "--config-name", "-cn", "--config-dir", "-cd",
    "--experimental-rerun", "--info", "-i",
}  # fmt: skip
# zsl's own flag: what a run would take, and no run.
ESTIMATE = "--estimate"
# Their values are few words, so an override after them is not one.
_WORD_FLAGS = {"--cfg", "-c", "--info", "-i"}
_FLAGS = {
    "--help", "-h", "--hydra-help", "--version", "--resolve", "--run", "-r", "--multirun", "-m", "--shell-completion",
    "-sc", ESTIMATE, *VALUE_FLAGS,
}  # fmt: skip
# What may follow these; the others take any text.
_WORDS = {
    **dict.fromkeys(("--cfg", "-c"), ("job", "hydra", "all")),
    **dict.fromkeys(("--info", "-i"), ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")),
}
_NUMBER = re.compile(r"[+-]?\d[\d_]*\Z")
_OVERRIDE = re.compile(r"(?P<key>\+{0,2}(?P<group>[A-Za-z_/]+)(@[^=]*)?)=(?P<value>.*)\Z", re.S)
# dataset.semantics=image: the choice within a node that holds the pre-processing too.
_SHORT = re.compile(r"^(dataset\.semantics)=(?![{\[])")
# A setting of a component, whose signature says what there is: model.width, inference.manhattan.power.
_SETTING = re.compile(r"(?:(dataset|model|solver|split|tracking)\.\w+|(inference)\.\w+\.\w+)=")
# Values that need no quotes, values that have some, and functions of Hydra's grammar.
_PLAIN = re.compile(r"[A-Za-z0-9_./,:+-]*")
_DELIMITERS = ("'", '"', "[", "{")
_CALL = re.compile(r"(choice|glob|range|interval|shuffle|sort|tag|extend_list|int|float|str|bool|json_str)\(")
_HOME = re.compile(r"""(["']?)(~[^/"',\s]*)""")
_SWEEP = re.compile(r"(?P<function>choice|glob)\((?P<arguments>[^()\[\]=]*)\)\Z", re.S)


def check_flags(argv: Iterable[str]) -> None:
    """Refuse flags that Hydra does not know, in a sentence instead of its parser's usage.

    Raises
    ------
    UserError
        For an unknown flag (near misses are named), a flag without its value, a value that it does not take, and words
        that are not text.
    """
    words = list(argv)
    foreign = not_text(words)
    if foreign is not None:
        raise UserError(f"'{foreign}' is not text in UTF-8, so no record could hold it; rename the file or folder.")
    for token, follows in words_of(words):
        if token == "--":
            return
        if not token.startswith("-") or token == "-":
            continue
        flag, equals, own = token.partition("=")
        if flag not in _FLAGS:
            if equals:
                raise UserError(f"{token} is no flag: settings have no dashes; write {token.lstrip('-')}.")
            raise UserError(f"there is no flag {flag}{did_you_mean(flag, _FLAGS)}; --help shows what there is.")
        if flag not in VALUE_FLAGS:
            if equals:
                raise UserError(f"{flag} takes no value; write {flag} alone.")
            continue
        value = own if equals else follows
        if value is None:
            if flag in ("--info", "-i"):
                continue
            raise UserError(f"{flag} needs a value{_one_of(flag)}.")
        if flag in _WORDS and value not in _WORDS[flag]:
            raise UserError(f"{flag} {value} does not exist{did_you_mean(value, _WORDS[flag])}{_one_of(flag)}.")


def words_of(argv: Iterable[str]) -> Iterator[tuple[str, str | None]]:
    """Each word of a command line; a flag with the next word, where that is its value, and all others with None."""
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if word == "--":
            yield from ((left, None) for left in (word, *rest))
            return
        follows = word in VALUE_FLAGS and rest and not rest[0].startswith("-")
        yield word, rest.pop(0) if follows and not (word in _WORD_FLAGS and "=" in rest[0]) else None


def _one_of(flag: str) -> str:
    return f"; it may be: {', '.join(_WORDS[flag])}" if flag in _WORDS else ""


def normalise_argv(argv: Iterable[str]) -> list[str]:
    """Arguments as Hydra 1.3 needs them; applying it twice changes nothing more.

    1. Flags first: Hydra's parser stops collecting overrides at the first flag (hydra issue 3053), so
       ``dataset=sun -m model.lam=1`` would be refused.
    2. Number-like options quoted: ``split=645_72`` is the integer 64572 in Hydra's grammar (hydra issue 1163).
    3. ``++`` before settings of a component of the user's own, whose YAML need not list them.
    4. ``feature=[A,B]`` as ``feature=own feature.name='A+B'``: both beside each other. Hydra would merge two files.
    5. ``~`` at the beginning of a value expanded, and values quoted that Hydra's grammar reads only within quotes.
    """
    flags, overrides, only_overrides = [], [], False
    for word, value in words_of(argv):
        if only_overrides or not word.startswith("-"):
            overrides += [quote_options(override) for override in _several_features(word)]
        elif word == "--":
            only_overrides = True
        else:
            flag, equals, own = word.partition("=")
            flags += [flag + equals + _at_home(own), *([] if value is None else [_at_home(value)])]
    return flags + [_addable(o, overrides) for o in overrides]


def _several_features(override: str) -> list[str]:
    """``feature=[A,B]``, or several such lists, as two overrides; any other override alone."""
    key, _, value = override.strip().partition("=")
    if key != "feature" or "[" not in value:
        return [override]
    choices = re.findall(r"\[[^\[\]]*\]|[^,\[\]]+", value)  # several, where -m sweeps over lists
    names = [[name.strip().strip("'\"") for name in choice.strip("[]").split(",")] for choice in choices]
    if ",".join(choices) != value or not all(re.fullmatch(r"[^\[\],'\"+=]+", name) for of in names for name in of):
        raise UserError(f"{override} is not a list of features; write feature=[NAME,NAME].")
    return ["feature=own", f"feature.name={','.join(repr('+'.join(of)) for of in names)}"]


def _addable(override: str, overrides: list[str]) -> str:
    """``model.width=1`` -> ``++model.width=1`` for a component outside zsl; building it checks the name."""
    match = _SETTING.match(override)
    if match is None:
        return override
    group = match[1] or match[2]
    chosen = [v for o in overrides if o.startswith(f"{group}=") for v in re.findall(r"[\w.-]+", o.partition("=")[2])]
    # inference.labels=mine.rule and model._target_=mine.Model choose one without a YAML of its own.
    own = any(re.match(rf"\+*{group}\.(_target_|labels|attributes)=[^=]*\.", o) for o in overrides)
    return f"++{override}" if own or not set(chosen) <= {*options(group), "choice", "null"} else override


def quote_options(override: str) -> str:
    """``split=645_72,707_10`` -> ``split='645_72','707_10'`` for config groups; other overrides as they are.

    ``dataset.semantics=image`` becomes ``dataset.semantics.source=image``.

    ``choice(...)`` and ``glob(...)`` over a group are written out, because Hydra drops the quotes when it passes a
    sweep's jobs on.
    """
    override = _readable(_SHORT.sub(r"\1.source=", override))
    match = _OVERRIDE.match(override)
    if not match or match["group"] not in groups():
        return override
    value = match["value"].strip()
    if value in ("null", "") and match["group"] != "experiment":
        raise UserError(f"{override} chooses nothing; {match['group']} has: {', '.join(options(match['group']))}.")
    sweep = _SWEEP.match(value)
    if match["group"] == "experiment" and (sweep or "," in value):
        raise UserError(
            f"{override} would run each experiment without its own sweep, because Hydra looks for a sweep before it "
            "reads these files; run one experiment at a time."
        )
    if sweep:
        patterns = [v.strip().strip("'\"") for v in sweep["arguments"].split(",")]
        if sweep["function"] == "glob":
            patterns = [o for o in options(match["group"]) if any(fnmatch.fnmatch(o, p) for p in patterns)]
            if not patterns:
                raise UserError(
                    f"{override} matches nothing; {match['group']} has: {', '.join(options(match['group']))}."
                )
        value = ",".join(patterns)
    if value.startswith(("'", '"', "[", "{")) or "(" in value:
        return override
    quoted = [f"'{v.strip()}'" if _NUMBER.match(v.strip()) else v for v in value.split(",")]
    return f"{match['key']}={','.join(quoted)}"


def quoted(value: str) -> str:
    """A value in the quotes of Hydra's grammar, whatever letters it has."""
    # A backslash means itself, unless a quote follows.
    escaped = re.sub(r'(\\*)("|\Z)', lambda m: m[1] * 2 + ("\\" if m[2] else "") + m[2], value)
    return f'"{escaped}"'


def is_readable(override: str) -> bool:
    """Whether Hydra can read an override."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        OverridesParser.create().parse_override(override)
    except HydraException:
        return False
    return True


def _readable(override: str) -> str:
    """``data_dir=~/a,~/b#`` -> ``data_dir=/home/me/a,"/home/me/b#"``: as the user means it, for Hydra's grammar."""
    key, equals, value = override.partition("=")
    if not equals or _PLAIN.fullmatch(value):
        return override
    pieces = [_at_home(piece) for piece in value.split(",")]
    if is_readable(f"{key}={','.join(pieces)}"):
        return f"{key}={','.join(pieces)}"
    pieces = [
        piece if piece[:1] in _DELIMITERS or _CALL.match(piece) or is_readable(f"{key}={piece}") else quoted(piece)
        for piece in pieces
    ]
    return better if is_readable(better := f"{key}={','.join(pieces)}") else override


def _at_home(value: str) -> str:
    """A value with the home folder for a leading ``~``, inside quotes too: what a shell does with a word alone."""
    match = _HOME.match(value)
    return value if match is None else match[1] + os.path.expanduser(match[2]) + value[match.end() :]
