"""What ``zsl run --help`` says: every group, option and key, from the comments of ``conf`` and from docstrings.

The docstring of the component that a YAML file names gives each key's type, range and meaning. Where it says nothing of
a key, the comment beside the key in the file is its meaning. Docstrings are read as text, so that nothing is imported.
"""

from __future__ import annotations

import inspect
import re
import shutil
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from zsl.config.argv import words_of
from zsl.config.registry import DESCRIPTIVE, conf_dir, groups, options
from zsl.errors import UserError, did_you_mean

_LINE = re.compile(r"(?P<indent> *)(?P<key>[\w.]+):(?P<value>[^#]*?)?(?:(?:^|\s)#\s*(?P<comment>.*))?$")
_DEFAULT = re.compile(r"\s*- (?:override /)?(?P<key>\w+)(?:@[\w.]+)?: *(?P<value>\S*)(?:\s+#\s*(?P<comment>.*))?$")
_SHARED = re.compile(r"/?(\w+)@(\w+)")
_SIBLING = re.compile(r"^  - (\w+)$", re.M)  # an option of the same group, on which a file builds
_PARAMETER = re.compile(r"^(?P<names>\w+(?:, \w+)*)(?: : (?P<kind>.+))?$")
_EXAMPLES = """\
  zsl run                                                     images of animals, four kinds of which are never seen
  zsl run dataset=sun split=645_72 -m model.lam=0.01,0.1      a sweep (-m): one run for each value
  zsl run dataset=xlsa17 dataset.root=FOLDER feature.name=NAME     any folder with NAME.mat and att_splits.mat
  zsl run --cfg job ...                                       show the configuration and run nothing
  zsl run --estimate ...                                      show what the run would take in time and memory
  zsl run --help model=coupled                                explain one option; also: --help model, --help seed"""


@dataclass(frozen=True)
class Key:
    """A key of the configuration."""

    name: str
    default: str
    kind: str = ""
    """Type and range, such as ``float > 0``"""
    meaning: str = ""


def title(path: Path) -> str:
    """The first sentence of the comment that a YAML file of ``conf`` begins with."""
    lines: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        if not line.startswith("# @package"):
            lines.append(line.lstrip("# "))
    return re.split(r"(?<=[.:])\s+(?=[A-Z0-9`]|python)", " ".join(lines))[0].rstrip(":")


def group_titles() -> dict[str, tuple[str, str]]:
    """By group: its default option, and what it is for."""
    found = {}
    for line in (conf_dir() / "config.yaml").read_text(encoding="utf-8").splitlines():
        match = _DEFAULT.match(line)
        if match and match["key"] in groups():
            found[match["key"]] = (match["value"], match["comment"] or "")
        if line.startswith("  - experiment"):
            break
    return {"dataset": found.pop("dataset"), **found}


@cache
def keys_of(group: str, option: str) -> tuple[Key, ...]:
    """The keys of an option of a group; ``keys_of("", "config")`` are the keys outside every group."""
    path = conf_dir() / group / f"{option}.yaml"
    text = path.read_text(encoding="utf-8")
    # The options of inference are settings of one class, which their files do not name.
    target = "zsl.inference.inference.Inference" if group == "inference" else _target(text)
    own = [_completed(key, target) for key in _keys(path, f"{group}." if group else "")]
    inherited = [key for name, place in _SHARED.findall(text) for key in _shared(name, group, place)]
    inherited += [key for name in _SIBLING.findall(text) if name != "_self_" for key in keys_of(group, name)]
    named = {key.name for key in own}
    found = [key for key in inherited if key.name not in named] + own
    return tuple(sorted(found, key=lambda key: key.name.startswith("dataset.semantics.")))  # the longest list last


def _shared(name: str, group: str, place: str) -> list[Key]:
    """The keys of a file beside the groups, such as ``preprocess.yaml``, at the ``place`` where it is used."""
    path = conf_dir() / f"{name}.yaml"
    if not path.is_file() or name == group:
        return []
    text = path.read_text(encoding="utf-8")
    below = [key for other, its_place in _SHARED.findall(text) for key in _shared(other, group, its_place)]
    prefix = "dataset.semantics." if group in ("", "dataset") else f"{group}."
    own = _keys(path, "" if place == "_global_" else prefix)
    target = _target(text) or "zsl.data.preprocess.Preprocess"
    # The keys of rules.yaml are RULE.SETTING, below the prefix.
    return below + [
        _completed(key, f"zsl.inference.{key.name.split('.')[-2]}" if name == "rules" else target) for key in own
    ]


def _target(text: str) -> str:
    found = re.search(r"^_target_: (\S+)", text, re.M)
    return found[1] if found else ""


def _completed(key: Key, target: str) -> Key:
    """A key with the type and the meaning that the docstring of the component ``target`` gives it."""
    known = _parameters(target) if target else {}
    kind, meaning = known.get(key.name.rpartition(".")[2], ("", ""))
    return Key(key.name, key.default, kind or key.kind, meaning or key.meaning)


def _keys(path: Path, prefix: str) -> list[Key]:
    """The keys of one YAML file with their comments; nested keys are joined by dots."""
    found: list[Key] = []
    above: list[tuple[int, str]] = []
    skipped = -1  # the indentation of a key whose block is not explained
    for line in path.read_text(encoding="utf-8").splitlines():
        match = _LINE.match(line)
        if match is None or not line.strip():
            more = re.match(r"\s{12,}#\s*(.*)", line)
            if more and found:  # a comment that goes on
                last = found[-1]
                found[-1] = Key(last.name, last.default, "", f"{last.meaning} {more[1]}")
            continue
        indent, value = len(match["indent"]), (match["value"] or "").strip()
        if 0 <= skipped < indent:
            continue
        skipped = -1
        while above and above[-1][0] >= indent:
            above.pop()
        hidden = (*DESCRIPTIVE, "defaults", "hydra", *([] if prefix == "feature." else ["name"]))
        if not indent and match["key"] in hidden:
            skipped = indent
            continue
        name = prefix + ".".join([*(key for _, key in above), match["key"]])
        if value:
            found.append(Key(name, value, "", match["comment"] or ""))
        else:
            above.append((indent, match["key"]))
    return found


@cache
def _parameters(target: str) -> dict[str, tuple[str, str]]:
    """Type and meaning of each parameter in the docstring of a class or function of zsl, found by its name."""
    module, _, name = target.rpartition(".")
    package = Path(__file__).resolve().parents[2] / module.replace(".", "/")
    files = [package.with_suffix(".py")] if package.with_suffix(".py").is_file() else sorted(package.rglob("*.py"))
    for file in files:
        text = file.read_text(encoding="utf-8")
        match = re.search(rf"^(?:class|def) {name}\b.*?\"\"\"(.*?)\"\"\"", text, re.M | re.S)
        if match:
            return _section(inspect.cleandoc(match[1]))
    return {}


def _section(docstring: str) -> dict[str, tuple[str, str]]:
    """The section "Parameters" of a numpydoc docstring."""
    body = re.search(r"^Parameters\n-+\n(.*?)(?:\n\n\w[\w ]*\n-+\n|\Z)", docstring, re.M | re.S)
    found: dict[str, tuple[str, str]] = {}
    names: list[str] = []
    for line in body[1].splitlines() if body else ():
        match = _PARAMETER.match(line)
        if match:
            names = match["names"].split(", ")
            found |= {name: ((match["kind"] or "").removesuffix(", optional"), "") for name in names}
        for name in names if not match else ():
            kind, meaning = found[name]
            found[name] = (kind, f"{meaning} {line.strip()}".strip())
    return {name: (kind, _plain(meaning)) for name, (kind, meaning) in found.items()}


def _plain(text: str) -> str:
    """A docstring's text without its markup, and with the words of YAML."""
    text = re.sub(r":\w+:`~?([^`]*)`|``([^`]*)``", lambda m: m[1] or m[2], text)
    return re.sub(r"\bNone\b", "null", text)


def _first_sentence(text: str) -> str:
    return re.split(r"(?<!Eqs\.)(?<!Eq\.)(?<=[a-z0-9)]\.)\s+(?=[A-Z`\d])", text)[0]


def asked_for(argv: Iterable[str]) -> list[str]:
    """The words of a command line that ``--help`` is to explain: no flags and no values of flags."""
    return [word for word, _ in words_of(argv) if not word.startswith(("-", "allow_targets="))]


def manual(words: Iterable[str] = ()) -> str:
    """The text of ``zsl run --help WORDS``.

    Parameters
    ----------
    words : iterable of str
        ``GROUP=OPTION``, ``GROUP`` or ``KEY``: what to explain. Without any, everything is explained.

    Raises
    ------
    UserError
        For a word that is neither.

    Examples
    --------
    >>> print(manual(["model=ridge"]).splitlines()[0])
    model=ridge: Ridge regression from features to attributes.
    """
    width = min(shutil.get_terminal_size((110, 24)).columns, 130)
    parts = [_explained(word.lstrip("+"), width) for word in words]
    return "\n\n".join(parts) if parts else _everything(width)


def _explained(word: str, width: int) -> str:
    name, equals, option = word.partition("=")
    option = option.strip("'\"")
    if name in groups() and equals:
        if option not in options(name):
            raise UserError(f"{word} is no option of zsl's own{did_you_mean(option, options(name))}; {name} has: "
                            f"{', '.join(options(name))}. (--help does not read --config-dir.)")  # fmt: skip
        return _option(name, option, width, whole=True)
    if name in groups():
        default, what = group_titles().get(name, ("", ""))
        marked = {default: " (default)"} if default != "own" else {}
        rows = [(o + marked.get(o, ""), title(conf_dir() / name / f"{o}.yaml")) for o in options(name)]
        return f"{name}: {what}\n" + _columns(rows, width)
    found: dict[Key, list[str]] = {}
    for where, key in _all_keys():
        if key.name == name or key.name.startswith(f"{name}."):
            found.setdefault(key, []).extend([where] if where else [])
    if not found:
        known = [key.name for _, key in _all_keys()] + groups()
        raise UserError(f"there is no group or key {name}{did_you_mean(name, known)}; zsl run --help shows all.")
    same: dict[str, list[Key]] = {}  # keys that the same options have, below the names of these options
    for key, having in found.items():
        group = key.name.partition(".")[0]
        heading = f"{group}={','.join(having)}:\n" if 0 < len(having) < len(options(group)) else ""
        same.setdefault(heading, []).append(key)
    return "\n".join(heading + _rows(keys, width, whole=True) for heading, keys in same.items())


def _all_keys() -> list[tuple[str, Key]]:
    """Every key, after the option that it belongs to (empty for keys outside the groups)."""
    every = [(o, key) for g in groups() if g != "experiment" for o in options(g) for key in keys_of(g, o)]
    return [*(("", key) for key in keys_of("", "config")), *every]


def _everything(width: int) -> str:
    titles = group_titles()
    lines = [
        "zsl run: trains a model on seen classes, tests it on unseen ones, and records the result.",
        "",
        _EXAMPLES,
        "",
    ]
    lines += ["Groups, chosen with GROUP=OPTION (zsl run --help GROUP explains the options):", ""]
    lines.append(_columns([(g, f"{what} [{', '.join(options(g))}]") for g, (_, what) in titles.items()], width))
    lines += ["", "Keys outside the groups, set with KEY=VALUE:", "", _rows(list(keys_of("", "config")), width)]
    for group, (default, _) in titles.items():
        default = "lite0_pca128" if group == "feature" else default  # as the default dataset has it
        if default not in ("null", "none") and keys_of(group, default):
            lines += ["", _option(group, default, width)]
    return "\n".join(lines)


def _option(group: str, option: str, width: int, *, whole: bool = False) -> str:
    keys = keys_of(group, option)
    text = title(conf_dir() / group / f"{option}.yaml")
    return f"{group}={option}: {text}\n" + (_rows(list(keys), width, whole=whole) if keys else "  It has no settings.")


def _rows(keys: list[Key], width: int, *, whole: bool = False) -> str:
    """Keys with their defaults and meanings, in the first sentence of each or as a ``whole``."""
    rows = []
    for key in keys:
        meaning = key.meaning if whole else _first_sentence(key.meaning)
        rows.append((f"{key.name}={key.default}", meaning + (f" [{_plain(key.kind)}]" if key.kind else "")))
    return _columns(rows, width)


def _columns(rows: list[tuple[str, str]], width: int) -> str:
    """Two columns; a long left one takes a line of its own."""
    left = min(max((len(a) for a, _ in rows), default=0), 34)
    lines = []
    for a, b in rows:
        wrapped = textwrap.wrap(b, max(width - left - 4, 30)) or [""]
        if len(a) > left:
            lines.append(f"  {a}")
            a = ""
        lines.append(f"  {a:<{left}}  {wrapped[0]}".rstrip())
        lines += [" " * (left + 4) + rest for rest in wrapped[1:]]
    return "\n".join(lines)
