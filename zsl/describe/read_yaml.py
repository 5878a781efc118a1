"""Class descriptions in YAML: plain text, lists and mappings, without tags or aliases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from zsl.data.readers.files import read_text
from zsl.describe.written import Written
from zsl.errors import UserError

# Document, class, its mapping, a list in that: one more than is needed.
_DEPTH = 5
_KEYS = ("description", "attributes")
_NULL, _BOOL, _TEXT = (f"tag:yaml.org,2002:{kind}" for kind in ("null", "bool", "str"))
_YES = ("y", "yes", "true", "on")
_FORM = "write a sentence, a list of sentences, or names with numbers"


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
