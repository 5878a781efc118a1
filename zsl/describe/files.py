"""Files of class descriptions: in YAML plain text, lists and mappings, without tags or aliases; and in CSV.

In CSV, columns of text are sentences and columns of numbers are attributes.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any, NamedTuple

from zsl.data.readers.columns import NO_NUMBER, Columns, read_csv, without_numbering
from zsl.data.readers.files import read_text
from zsl.data.readers.tables import name_column
from zsl.data.table import first_repeated
from zsl.errors import UserError

# Document, class, its mapping, a list in that: one more than is needed.
_DEPTH = 5
_KEYS = ("description", "attributes")
_NULL, _BOOL, _TEXT = (f"tag:yaml.org,2002:{kind}" for kind in ("null", "bool", "str"))
_YES = ("y", "yes", "true", "on")
_FORM = "write a sentence, a list of sentences, or names with numbers"
# What is a number in a table, whatever its comma or dot means; the reader of CSV files decides that.
_NUMBER = re.compile(r"[+-]?[\d.,]*\d[\d.,]*([eE][+-]?\d+)?|true|false", re.IGNORECASE)


class Written(NamedTuple):
    """A class, its sentences and its attributes; nothing is checked yet."""

    name: str
    sentences: list[str] | None
    """None: nothing is said, so that the name is the only text; an empty list: a description is missing"""
    attributes: dict[str, float]
    """NaN is unknown"""


def read_yaml_classes(path: Path) -> list[Written]:
    """The classes of a YAML file, in order; a key is always a name, never a number or yes and no.

    Raises
    ------
    UserError
        For a file that is no such YAML, a key that occurs twice, and anything but text, numbers, lists and mappings.
    """
    root = _compose(read_text(path, "YAML file"), path)
    if root is None:
        return []
    if root.id != "mapping":
        raise UserError(f"{path} is no mapping of class names to descriptions; write lines 'NAME: A sentence.'.")
    return [_class(name, node, path) for name, node in _items(root, path, "the class")]


def _compose(text: str, path: Path) -> Any:
    """The tree of a YAML file, none of whose values are built yet; None for an empty file."""
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # many times as fast where it exists
    depth = documents = 0
    try:
        # A pass over the events first, since they cost no more memory than the text, however aliases are nested.
        for event in yaml.parse(text, Loader=loader):
            if isinstance(event, yaml.AliasEvent):
                raise UserError(f"{path}: aliases (*{event.anchor}) are not read; write the text out.")
            if getattr(event, "tag", None):
                raise UserError(f"{path}: the tag {event.tag} is not read; write plain text.")
            documents += isinstance(event, yaml.DocumentStartEvent)
            if documents > 1:
                raise UserError(f"{path} holds several documents (---); put all classes into one.")
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > _DEPTH:
                raise UserError(f"{path} is nested more than {_DEPTH} levels deep; write it flatter.")
        return yaml.compose(text, Loader=loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark is not None else ""
        raise UserError(
            f"{path}{line}: this is no YAML ({getattr(error, 'problem', None) or 'it cannot be read'}); put a sentence "
            "that holds ': ' or ' #', or begins with a sign, between quotes."
        ) from None


def _items(mapping: Any, path: Path, what: str) -> list[tuple[str, Any]]:
    found: dict[str, Any] = {}
    for key, node in mapping.value:
        if key.id != "scalar":
            raise UserError(f"{path}, line {key.start_mark.line + 1}: a name must be text; write 'NAME: A sentence.'.")
        name = key.value.strip()
        if name in found:
            raise UserError(
                f"{path}, line {key.start_mark.line + 1}: {what} {name!r} occurs twice; keep one, with all it needs."
            )
        found[name] = node
    return list(found.items())


def _class(name: str, node: Any, path: Path) -> Written:
    if node.id != "mapping":
        return Written(name, _sentences(name, node, path), {})
    items = dict(_items(node, path, f"of the class {name!r} the attribute"))
    if not set(items) & set(_KEYS):
        return Written(name, None, _attributes(name, items, path))
    other = next((key for key in items if key not in _KEYS), None)
    if other is not None:
        raise UserError(
            f"{path}: the class {name!r} has {other!r} beside {' and '.join(k for k in _KEYS if k in items)}; put it "
            "under attributes."
        )
    attributes = items.get("attributes")
    if attributes is not None and attributes.id != "mapping":
        raise UserError(f"{path}: the attributes of {name!r} are no names with numbers; write 'stripes: 1' in lines.")
    sentences = _sentences(name, items["description"], path) if "description" in items else None
    found = {} if attributes is None else dict(_items(attributes, path, f"of the class {name!r} the attribute"))
    return Written(name, sentences, _attributes(name, found, path))


def _sentences(name: str, node: Any, path: Path) -> list[str] | None:
    if node.id == "scalar" and node.tag == _NULL:
        return None
    found = []
    for each in node.value if node.id == "sequence" else [node]:
        if each.id == "mapping":
            raise UserError(
                f"{path}, line {each.start_mark.line + 1}: in the description of {name!r} ': ' stands in a sentence; "
                "put the sentence between quotes."
            )
        if each.id != "scalar" or each.tag not in (_TEXT, _NULL):
            raise UserError(
                f"{path}, line {each.start_mark.line + 1}: the description of {name!r} is no text; {_FORM}."
            )
        text = "" if each.tag == _NULL else " ".join(each.value.split())
        found += [text] if text else []
    return found


def _attributes(name: str, items: dict[str, Any], path: Path) -> dict[str, float]:
    found = {}
    for attribute, node in items.items():
        text = node.value.strip().lower() if node.id == "scalar" else "a list"
        if node.id == "scalar" and (node.tag == _NULL or not text):
            found[attribute] = float("nan")
        elif node.id == "scalar" and node.tag == _BOOL:
            found[attribute] = float(text in _YES)
        else:
            try:
                found[attribute] = float("nan" if text == ".nan" else text)
            except ValueError:
                raise UserError(
                    f"{path}, line {node.start_mark.line + 1}: the attribute {attribute!r} of {name!r} is {text[:40]!r}"
                    ", which is no number (leave it empty if it is unknown; sentences belong under description)."
                ) from None
    return found


def read_csv_classes(path: Path) -> list[Written]:
    """The classes of a CSV, in the order of their first rows; several rows of a class are several sentences.

    The first column holds the names. Of the others, one in which any field is a number holds an attribute.

    Raises
    ------
    UserError
        For a file that is no table, a column without values, one that numbers the classes, and rows of one class that
        give an attribute different values.
    """
    header: list[str] = []
    place = 0

    def all_as_text(names: list[str], first: list[str]) -> set[int]:
        nonlocal header, place
        header, place = names, name_column(names, first)
        return {place} | {i for i, name in enumerate(names) if name}

    # What a column holds is known once all of it is read, so the file is read twice.
    fields = read_csv(path, all_as_text).texts
    texts = {i for i, name in enumerate(header) if name and _is_text(fields[name])} - {place}
    found = read_csv(path, lambda *_: {place} | texts)
    names = [" ".join(name.split()) for name in found.texts[header[place]]]
    return _classes(names, [found.texts[header[i]] for i in sorted(texts)], found, path)


def _is_text(column: list[str]) -> bool:
    known = [field.strip() for field in column if field.strip().lower() not in NO_NUMBER]
    return bool(known) and not any(_NUMBER.fullmatch(field) for field in known)


def _classes(names: list[str], sentences: list[list[str]], found: Columns, path: Path) -> list[Written]:
    """Rows of one class are brought together."""
    repeated = first_repeated(found.names)
    if repeated is not None:
        raise UserError(f"{path}: {repeated!r} is not the name of one column; each column needs its own name.")
    kept = without_numbering(found.numbers, found.names, path, "classes")
    classes: dict[str, Written] = {}
    for i, name in enumerate(names):
        c = classes.setdefault(name, Written(name, [] if sentences else None, {}))
        if c.sentences is not None:
            c.sentences.extend(text for column in sentences if (text := " ".join(column[i].split())))
        for j in kept.nonzero()[0]:
            attribute, value = found.names[j], float(found.numbers[i, j])
            known = c.attributes.get(attribute, math.nan)
            if known != value and not math.isnan(known) and not math.isnan(value):
                raise UserError(
                    f"{path}: rows of the class {name!r} give {attribute!r} as {known:g} and {value:g}; keep one."
                )
            c.attributes[attribute] = known if math.isnan(value) else value
    empty = [a for j, a in enumerate(found.names) if kept[j] and all(math.isnan(v) for v in found.numbers[:, j])]
    if empty:
        raise UserError(f"{path}: the column {empty[0]!r} has no value; fill it, or remove it.")
    return list(classes.values())
